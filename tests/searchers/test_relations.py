"""Relations between parameters: their text, what they mean, and what each searcher makes of them.

The library's own searchers are tested by the contract, with a relation as well.
"""

import copy
import pickle

import numpy as np
import pytest

from searchers import (
    AutoSearch,
    BasicVariantGenerator,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    Repeater,
    Searcher,
    TreeSearch,
)
from searchers.models.encoding import Encoding
from searchers.space import (
    SearchSpace,
    Space,
    choice,
    grid_search,
    loguniform,
    only_if,
    randint,
    sample_from,
    uniform,
)
from searchers.space.relations import MAX_DRAWS, Relation, spelling

NESTED = {
    "depth": randint(1, 17),
    "width": randint(64, 1025),
    "model": {"weight-decay": uniform(0, 1), "layers": [{"units": randint(1, 9)}]},
    "optimizer": choice([{"name": "sgd", "momentum": uniform(0, 1)}, {"name": "adam"}, "none"]),
    "epochs": 10,
    "kind": choice(["a", "b", None]),
}
CONFIG = {
    "depth": 4,
    "width": 128,
    "model": {"weight-decay": 0.5, "layers": [{"units": 3}]},
    "optimizer": {"name": "sgd", "momentum": 0.9},
    "epochs": 10,
    "kind": "a",
}


def holds(text: str, **changed: object) -> bool:
    return Relation(text, NESTED).holds({**CONFIG, **changed})


@pytest.mark.parametrize(
    "text",
    [
        "depth * width <= 512",
        "1 < depth < width",
        "width % 64 == 0 and width // 64 == 2",
        "model['weight-decay'] < 0.6",
        'model.layers[0].units in [3, "x"]',
        "config['depth'] == 4 and config.depth == 4",
        "optimizer.name == 'sgd' and optimizer.momentum > 0.5",
        "optimizer != 'none'",
        "kind not in ('b', None)",
        "not (depth > 5 or width < 100)",
        "max(depth, 7, epochs) == epochs",
        "abs(-depth) == min(depth, 5)",
        "log10(100) == 2 and log2(8) == 3 and sqrt(depth) == 2 and log(1) == 0",
        "2 ** depth == 16 and -depth + 5 == +1",
        "depth / 8 == 0.5",
        "True",
        "1 / (depth - 4) != 1",
        "10 ** 10 ** 10 > depth",
        "(-10) ** (10 ** 10 + 1) < depth",
        "(2 ** 1023 * 2 ** 1023) > depth",
    ],
)
def test_a_relation_holds(text):
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "depth > 4",
        "1 < depth < 3",
        "depth < width < 100",
        "kind == None",
        "1 / (depth - 4) < 1",
        "sqrt(depth - 5) >= 0",
        "(0 - depth) ** 0.5 < 99",
        "False or depth == 3",
    ],
)
def test_a_relation_does_not_hold(text):
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optimizer.momentum > 0.95", True),
        ("not optimizer.momentum > 0.95", True),
        ("optimizer.momentum > 0.95 and depth > 4", False),
        ("optimizer.momentum > 0.95 or depth > 4", True),
        ("depth < optimizer.momentum < 1", True),
        ("optimizer.momentum in [1, 2]", True),
        ("max(optimizer.momentum, 3) < 2", True),
    ],
)
def test_what_is_absent_is_unknown(text, expected):
    assert holds(text, optimizer={"name": "adam"}) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "(lambda: True)()",
        "lambda: True",
        "[x for x in (1, 2)]",
        "any(x for x in (1, 2))",
        "depth.bit_length() > 1",
        "open('/etc/passwd')",
        "f'{depth}' == '4'",
        "(depth := 3) == 3",
        "depth if width else kind",
        "depth << width > 1",
        "~depth < 0",
        "depth @ width",
        "{'a': 1} == 1",
        "b'a' == kind",
        "3j == depth",
        "... == depth",
        "max(*depth) < 3",
        "max(depth, key=abs) < 3",
        "model.layers[0:1] == 1",
        "model.layers[depth] == 1",
    ],
)
def test_nothing_else_is_evaluated(text):
    with pytest.raises(ValueError, match="must not have"):
        Space(NESTED, where=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dept < 3", "unknown name 'dept'; did you mean 'depth'"),
        ("momentum < 3", "did you mean 'optimizer.momentum'"),
        ("zzz < 3", "there are depth, width, model\\['weight-decay'\\], model.layers\\[0\\].units"),
        ("model / depth < 3", "'model', which holds others; name one of model\\['weight-decay'\\]"),
        ("depth is None", "write == or != instead of is"),
        ("'a' in kind", "write in with a list"),
        ("abs(depth, 1) < 1", "give abs one number"),
        ("max(depth) < 1", "give max two numbers at least"),
        ("depth <", "must be an expression"),
        ("", "must be an expression"),
        ("depth < 3; width < 3", "must be an expression"),
        ("(" * 300, "must be an expression"),
        ("not " * 200 + "True", "give a function"),
        ("1 + " * 9_000 + "1 < 2", "10,000 characters at most"),
    ],
)
def test_a_wrong_text_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Space(NESTED, where=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depth", "must be true or false, got 4"),
        ("not depth", "must be true or false, got 4"),
        ("kind + 1 < 2", "computes with 'a', which is no number"),
        ("kind < 1", "cannot be decided"),
        ("'a' * 1000 == kind", "computes with 'a'"),
    ],
)
def test_what_cannot_be_decided_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        holds(text)


def test_a_relation_is_a_text_or_a_function():
    with pytest.raises(TypeError, match="where must be a text or a function"):
        Space({"x": uniform(0, 1)}, where=3)


@pytest.mark.parametrize(
    "space", [{"config": uniform(0, 1)}, {"config": {"x": uniform(0, 1)}, "y": uniform(0, 1)}]
)
def test_a_parameter_may_be_called_config(space):
    name = "config" if len(space) == 1 else "config.x"
    assert Relation(f"{name} < 0.5", space).names == (tuple(name.split(".")),)


def test_names_are_shown_as_they_are_written():
    for path in [("depth",), ("model", "weight-decay"), ("model", "layers", 0, "units")]:
        assert Relation(f"{spelling(path)} > 0", NESTED).names == (path,)


def test_a_computed_value_is_refused():
    space = {"x": uniform(0, 1), "y": sample_from(lambda config: config.x)}
    with pytest.raises(ValueError, match="y, which sample_from computes"):
        Space(space, where="x < y")
    given = Space(space, where=lambda config: config["x"] < config["y"])
    with pytest.raises(ValueError, match="must read values that are drawn"):
        SearchSpace(given).check_satisfiable()


def test_a_function_reads_items_and_attributes():
    space = SearchSpace(
        Space({"x": uniform(0, 1), "m": {"y": uniform(0, 1)}}, lambda c: c["x"] < c.m.y)
    )
    rng = np.random.default_rng(0)
    configs = [space.resolve({}, rng) for _ in range(20)]
    assert all(config["x"] < config["m"]["y"] for config in configs)


def test_an_error_of_a_function_says_where_it_is_from():
    space = SearchSpace(Space({"x": uniform(0, 1)}, lambda config: config["z"] > 1))
    with pytest.raises(KeyError) as caught:
        space.check_satisfiable()
    assert "raised by where=" in caught.value.__notes__[0]


def test_a_space_is_a_dictionary_that_keeps_its_relation():
    space = Space({"x": uniform(0, 1), "y": 1}, where="x < 0.5")
    for same in (copy.deepcopy(space), pickle.loads(pickle.dumps(space)), space.copy()):  # noqa: S301
        assert (same, same.where) == (space, "x < 0.5")
    assert (space | {"y": 2}).where == "x < 0.5"
    assert Space(space).where == "x < 0.5"
    assert "where='x < 0.5'" in repr(space)


@pytest.mark.parametrize(
    "space",
    [
        {"model": Space({"x": uniform(0, 1)}, where="x < 0.5")},
        {"layers": [Space({"x": uniform(0, 1)}, where="x < 0.5")]},
        {"optimizer": choice([Space({"x": uniform(0, 1)}, where="x < 0.5"), "none"])},
        {"k": choice([1, 2]), "m": only_if({"k": 1}, Space({"x": uniform(0, 1)}, where="x < 1"))},
    ],
)
def test_a_relation_of_a_part_is_refused(space):
    with pytest.raises(ValueError, match="Space must be the whole search space, got one at"):
        SearchSpace(space)


@pytest.mark.process  # all draws take longer than a unit test may
def test_what_nothing_satisfies_is_refused_before_a_trial():
    space = Space({"x": uniform(0, 1), "y": uniform(0, 1)}, where="x < y - 2")
    for searcher in (BasicVariantGenerator(), AutoSearch("loss", "min")):
        with pytest.raises(ValueError, match=f"after {MAX_DRAWS:,} draws; relax it"):
            searcher.set_search_properties(None, None, space, seed=0)


def suggested(searcher: Searcher, space: Space, num: int = 12) -> list[dict]:
    wants_metric = not isinstance(searcher, BasicVariantGenerator)
    goal = ("loss", "min") if wants_metric else (None, None)
    searcher.set_search_properties(*goal, space, seed=3, num_samples=num)
    configs = []
    for number in range(num):
        config = searcher.suggest(f"t{number}")
        if config == Searcher.FINISHED:
            break
        configs.append(config)
        searcher.on_trial_complete(f"t{number}", {"loss": -config["low"], "training_iteration": 1})
    return configs


SEARCHERS = {
    "random": BasicVariantGenerator,
    "auto": lambda: AutoSearch(n_initial_points=4),
    "gp": lambda: GPSearch(n_initial_points=4),
    "tree": lambda: TreeSearch(n_initial_points=4),
    "bohb": lambda: BOHBSearch(n_initial_points=4, random_fraction=0),
    "cqr": lambda: CQRSearch(n_initial_points=4),
    "limited": lambda: ConcurrencyLimiter(GPSearch(n_initial_points=4), 2),
    "guarded": lambda: DuplicateGuard(BasicVariantGenerator()),
    "repeated": lambda: Repeater(TreeSearch(n_initial_points=4), 2),
}


@pytest.mark.process  # a GP takes longer than a unit test may
@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize(
    "where", ["low < high - 0.8", lambda config: config.low < config["high"] - 0.8]
)
def test_every_suggestion_satisfies_the_relation(name, where):
    entries = {"low": uniform(0, 1), "high": uniform(0, 1), "k": choice(["a", "b"])}
    configs = suggested(SEARCHERS[name](), Space(entries, where))
    assert len(configs) == 12
    assert all(config["low"] < config["high"] - 0.8 for config in configs)


@pytest.mark.process  # a GP takes longer than a unit test may
@pytest.mark.parametrize("name", SEARCHERS)
def test_conditional_parameters_satisfy_it_where_they_are(name):
    sgd = {"name": "sgd", "momentum": uniform(0, 1), "decay": loguniform(1e-3, 1)}
    space = Space(
        {"low": uniform(0, 1), "optimizer": choice([sgd, {"name": "adam"}, "none"])},
        where="optimizer.momentum < low and optimizer.name != 'adam'",
    )
    configs = suggested(SEARCHERS[name](), space)
    assert {str(type(config["optimizer"])) for config in configs} == {str(dict), str(str)}
    for config in configs:
        optimizer = config["optimizer"]
        assert optimizer == "none" or optimizer["momentum"] < config["low"]


@pytest.mark.process  # a GP takes longer than a unit test may
def test_a_model_comes_near_to_an_optimum_on_the_boundary():
    space = Space({"low": uniform(0, 1), "high": uniform(0, 1)}, where="low + high <= 0.7")
    configs = suggested(GPSearch(n_initial_points=5), space, 20)
    assert max(config["low"] for config in configs) > 0.69


@pytest.mark.process  # many draws take longer than a unit test may
def test_a_narrow_relation_is_satisfied():
    entries = {f"x{number}": uniform(0, 1) for number in range(4)}
    where = "abs(x0 - x1) < 0.02 and abs(x2 - x3) < 0.05"  # holds for about 0.4 %
    encoding = Encoding(Space(entries, where), "me")
    rng = np.random.default_rng(0)
    vectors = encoding.from_cube(rng.random((20, 4)))
    relation = Relation(where, entries)
    for vector in [*vectors, *encoding.snapped(rng.random((20, 4)))]:
        assert relation.holds(encoding.config(encoding.settled(vector.tolist()), None))
    assert len({tuple(vector) for vector in vectors.tolist()}) >= 15


def test_random_vectors_stay_uniform_where_half_of_them_are_feasible():
    encoding = Encoding(Space({"x": uniform(0, 1), "y": uniform(0, 1)}, "x < y"), "me")
    vectors = encoding.from_cube(np.random.default_rng(0).random((500, 2)))
    assert (vectors[:, 0] < vectors[:, 1]).all()
    assert abs(vectors[:, 0].mean() - 1 / 3) < 0.04
    assert abs(vectors[:, 1].mean() - 2 / 3) < 0.04


def test_what_violates_it_moves_towards_its_parent():
    encoding = Encoding(Space({"x": uniform(0, 1), "y": uniform(0, 1)}, "x < 0.5"), "me")
    parent = np.array([[0.4, 0.1]])
    (moved,) = encoding.snapped(np.array([[0.6, 0.2]]), parent)
    assert 0.4 <= moved[0] < 0.5
    assert 0.1 <= moved[1] <= 0.2
    # An infeasible parent, as from before the relation, is none to move towards.
    (other,) = encoding.snapped(np.array([[0.6, 0.2]]), np.array([[0.9, 0.9]]))
    assert other[0] < 0.5


def test_an_option_that_nothing_satisfies_is_no_branch():
    options = [{"a": uniform(0, 1), "b": uniform(0, 1)}, {"c": uniform(0, 1), "d": uniform(0, 1)}]
    assert len(Encoding({"x": choice(options)}, "me").branches) == 2
    assert len(Encoding(Space({"x": choice(options)}, "x.a > 2"), "me").branches) == 1


def test_a_finite_space_is_finished_when_all_that_satisfies_it_was_suggested():
    space = Space({"low": randint(0, 4), "high": randint(0, 4)}, where="low < high")
    for searcher in (
        GPSearch(n_initial_points=20),
        DuplicateGuard(BasicVariantGenerator()),
    ):
        configs = suggested(searcher, space, 20)
        assert len({tuple(config.items()) for config in configs}) == len(configs) == 6


def test_points_of_a_grid_that_violate_it_are_left_out():
    space = Space(
        {"low": grid_search([1, 2, 3]), "high": grid_search([1, 2, 3]), "lr": uniform(0, 1)},
        where="low < high",
    )
    searcher = BasicVariantGenerator(points_to_evaluate=[{"low": 2}])
    searcher.set_search_properties(None, None, space, seed=0, num_samples=2)
    assert searcher.total_samples == 1 + 3
    configs = [searcher.suggest(str(number)) for number in range(5)]
    assert configs.pop() == Searcher.FINISHED
    pairs = [(config["low"], config["high"]) for config in configs]
    assert pairs == [(2, 3), (1, 2), (1, 3), (2, 3)]


def test_a_grid_is_crossed_only_with_draws_that_satisfy_it():
    space = Space({"low": grid_search([0.1, 0.9, 2.0]), "x": uniform(0, 1)}, where="low < x")
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, space, seed=0, num_samples=10)
    configs = [searcher.suggest(str(number)) for number in range(20)]
    assert {config["low"] for config in configs} == {0.1, 0.9}
    assert all(config["low"] < config["x"] for config in configs)


@pytest.mark.process  # all draws take longer than a unit test may
def test_a_grid_without_a_point_that_satisfies_it_is_refused():
    space = Space({"low": grid_search([2, 3]), "x": randint(0, 3)}, where="low < x")
    with pytest.raises(ValueError, match="no configuration satisfies where='low < x'"):
        BasicVariantGenerator().set_search_properties(None, None, space, seed=0)


def test_a_grid_is_continued_with_another_relation():
    entries = {"low": grid_search([1, 2, 3]), "high": grid_search([1, 2, 3])}
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, Space(entries, "low < high"), seed=0)
    run = [{"low": 3, "high": 3}, {"low": 1, "high": 3}]
    for number, config in enumerate(run):
        searcher.suggest(str(number))
        searcher.on_trial_replaced(str(number), config)
    rest = [searcher.suggest(str(number)) for number in range(2, 5)]
    assert rest == [{"low": 1, "high": 2}, {"low": 2, "high": 3}, Searcher.FINISHED]
    assert list(searcher.surplus_trials(1)) == ["0"]


@pytest.mark.process  # all draws take longer than a unit test may
@pytest.mark.parametrize("kind", [BasicVariantGenerator, GPSearch])
@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"low": 0.9, "high": 0.1}, "points_to_evaluate\\[1\\].* must satisfy where='low < high'"),
        ({"high": 0.0}, "no completion of points_to_evaluate\\[1\\].* satisfies"),
    ],
)
def test_a_point_to_evaluate_that_violates_it_is_refused(kind, point, message):
    space = Space({"low": uniform(0, 1), "high": uniform(0, 1)}, where="low < high")
    goal = (None, None) if kind is BasicVariantGenerator else ("loss", "min")
    searcher = kind(points_to_evaluate=[{"low": 0.1, "high": 0.2}, point])
    with pytest.raises(ValueError, match=message):
        searcher.set_search_properties(*goal, space, seed=0)


@pytest.mark.parametrize("kind", [BasicVariantGenerator, GPSearch])
def test_an_incomplete_point_is_completed_so_that_it_holds(kind):
    space = Space({"low": uniform(0, 1), "high": uniform(0, 1)}, where="low < high")
    configs = suggested(kind(points_to_evaluate=[{"low": 0.95}]), space, 1)
    assert configs[0]["low"] == 0.95 < configs[0]["high"]


def test_a_model_learns_from_trials_that_violate_it():
    space = Space({"low": uniform(0, 1), "high": uniform(0, 1)}, where="low < high")
    searcher = GPSearch("loss", "min")
    searcher.set_search_properties(None, None, space, seed=0)
    searcher.suggest("t0")
    assert searcher.on_trial_replaced("t0", {"low": 0.9, "high": 0.1})
    assert searcher.observations.trials["t0"].vector == [0.9, 0.1]


@pytest.mark.process  # many draws take longer than a unit test may
def test_the_same_seed_draws_the_same():
    space = Space({"low": uniform(0, 1), "high": uniform(0, 1)}, where="low < high - 0.9")
    first, second = (suggested(TreeSearch(n_initial_points=3), space, 6) for _ in range(2))
    assert first == second


def test_a_relation_that_always_holds_changes_nothing():
    entries = {"low": uniform(0, 1), "k": choice(["a", "b"]), "depth": randint(1, 9)}
    for kind in (BasicVariantGenerator, TreeSearch):
        plain, related = (suggested(kind(), s, 14) for s in (entries, Space(entries, "low >= 0")))
        assert plain == related
