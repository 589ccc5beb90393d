"""Properties of all searchers that wrap a library, and how well each of them searches."""

import json
import math
import random
import sys

import numpy as np
import pytest

from searchers import AxSearch, BayesOptSearch, ConcurrencyLimiter, HyperOptSearch, NevergradSearch
from searchers.space import (
    Space,
    choice,
    grid_search,
    lograndint,
    loguniform,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

pytestmark = pytest.mark.heavy

NUMBERS = {
    "x": uniform(-3, 3),
    "deep": {"lr": loguniform(1e-4, 1), "n": randint(1, 9)},
    "q": quniform(0, 1, 0.25),
    "fixed": 7,
}
MIXED = NUMBERS | {
    "kind": choice([abs, "a", None]),
    "one": choice(["only"]),
    "order": choice([16, 32], ordered=True),
    "l": lograndint(1, 9),
}
MAKERS = {
    "hyperopt": (lambda **given: HyperOptSearch(**({"n_initial_points": 4} | given)), MIXED),
    "bayesopt": (lambda **given: BayesOptSearch(**({"random_search_steps": 4} | given)), NUMBERS),
    "ax": (lambda **given: AxSearch(**({"method": "random_search"} | given)), MIXED),
    "nevergrad": (lambda **given: NevergradSearch(**({"optimizer": "TwoPointsDE"} | given)), MIXED),
}


@pytest.fixture(params=MAKERS)
def library(request):
    if request.param == "nevergrad":
        request.getfixturevalue("nevergrad")
    return request.param


@pytest.fixture
def make(library):
    """Return a function that constructs a searcher with a space and the given arguments."""

    def made(space=None, *, seed=0, mode="min", **given):
        searcher = MAKERS[library][0](**given)
        assert searcher.set_search_properties(
            "loss", mode, space or MAKERS[library][1], seed=seed, num_samples=9
        )
        return searcher

    return made


def loss(config):
    return (
        config["x"] ** 2
        + abs(math.log10(config["deep"]["lr"]) + 2)
        + (config["deep"]["n"] - 4) ** 2 / 10
    )


def play(searcher, num=8, first=0):
    configs = []
    for number in range(first, first + num):
        configs.append(searcher.suggest(str(number)))
        searcher.on_trial_complete(str(number), {"loss": loss(configs[-1])})
    return configs


def global_states():
    import torch  # noqa: PLC0415  (large)

    return (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002  (the global one is meant)
        torch.random.get_rng_state().tolist(),
    )


def test_global_generators_are_neither_used_nor_changed(make):
    import torch  # noqa: PLC0415  (large)

    before = global_states()
    first = play(make(seed=3))
    assert global_states() == before
    random.seed(1)  # noqa: TID251  (likewise)
    np.random.seed(1)  # noqa: NPY002  (likewise)
    torch.manual_seed(1)
    assert play(make(seed=3)) == first
    assert play(make(seed=4)) != first


def test_points_to_evaluate_come_first(make):
    points = [{"x": 1.5, "deep/lr": 0.01, "q": 0.25}, {"deep": {"n": 2}}]
    first, second = play(make(points_to_evaluate=points), 2)
    assert (first["x"], first["deep"]["lr"], first["q"], second["deep"]["n"]) == (
        1.5,
        0.01,
        0.25,
        2,
    )


def test_a_point_outside_the_space_is_refused(make):
    with pytest.raises(
        ValueError, match=r"'x' must lie in Float\(lower=-3.0, .*, got 4; widen the space"
    ):
        make(points_to_evaluate=[{"x": 4}])


WHOLE = {"x": 1.5, "deep": {"lr": 0.01, "n": 2}, "q": 0.25}


def whole(library):
    return WHOLE | (
        {"kind": abs, "one": "only", "order": 32, "l": 3} if MAKERS[library][1] is MIXED else {}
    )


def test_points_with_rewards_are_not_run(make, library):
    searcher = make(points_to_evaluate=[whole(library)], evaluated_rewards=[0.5])
    assert play(searcher, 1)[0]["x"] != 1.5
    assert searcher._history[0].value == 0.5


def test_rewards_have_to_fit_the_points(make, library):
    with pytest.raises(
        ValueError,
        match="evaluated_rewards must hold one value per point, got 1 for 2; add what is missing",
    ):
        make(points_to_evaluate=[{}, {}], evaluated_rewards=[0.5])
    with pytest.raises(
        ValueError,
        match=r"points with a value must be complete, got none of \['deep/lr', .*\]; add their "
        r"values",
    ):
        make(points_to_evaluate=[{"x": 1}], evaluated_rewards=[0.5])
    with pytest.raises(
        ValueError,
        match="values of evaluated points must be finite numbers, got nan; leave out points "
        "without a result",
    ):
        make(points_to_evaluate=[whole(library)], evaluated_rewards=[math.nan])


def test_metric_and_mode_have_to_be_known(library):
    with pytest.raises(
        ValueError,
        match=r"metric must be the name of one metric for \w+, got None; set "
        r"TuneConfig\(metric=...\)",
    ):
        MAKERS[library][0]().set_search_properties(None, "min", NUMBERS)
    with pytest.raises(
        ValueError, match=r"mode must be one of .* for \w+, got None; set TuneConfig\(mode=...\)"
    ):
        MAKERS[library][0]().set_search_properties("loss", None, NUMBERS)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            grid_search([1, 2]),
            "'x' must not be a grid for .*; use choice, or leave the searcher out for a grid",
        ),
        (
            sample_from(lambda: 3),
            "'x' must not depend on others for .*; compute the value in the training code",
        ),
    ],
)
def test_domains_that_the_library_does_not_support_are_refused(make, word, message):
    with pytest.raises(ValueError, match=message):
        make({"x": word})


def test_a_searcher_with_its_own_space_takes_constants_from_param_space(library):
    searcher = MAKERS[library][0](space={"x": uniform(0, 1)}, metric="loss", mode="min")
    assert not searcher.set_search_properties(None, None, {"y": uniform(0, 1)})
    assert searcher.set_search_properties(None, None, {"epochs": 5}, seed=0)
    config = searcher.suggest("a")
    assert (sorted(config), config["epochs"]) == (["epochs", "x"], 5)


def test_a_searcher_without_a_space_raises_with_a_remedy(library):
    with pytest.raises(
        RuntimeError, match="metric, mode and space must be known before the first suggestion"
    ):
        MAKERS[library][0]().suggest("a")


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "0.1", 10**400, True])
def test_a_value_that_is_not_a_finite_number_counts_as_a_failure(make, value):
    searcher = make()
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": value})
    searcher.on_trial_complete("unknown", {"loss": 1})
    assert (searcher._history[0].value, searcher._history[0].is_over) == (None, True)
    assert isinstance(searcher.suggest("b"), dict)


def test_trials_that_were_stopped_count_with_their_last_value(make):
    searcher = make()
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 0.5}, stopped=True)
    assert searcher._history[0].value == 0.5


def test_a_missing_library_is_named_with_its_extra(library, monkeypatch):
    maker = MAKERS[library][0]
    for name in [name for name in sys.modules if name.split(".")[0] == maker().library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(
        ImportError,
        match=rf'Search needs \w+, which is not installed; pip install "tuner-hpo\[{library}\]"',
    ):
        maker()


class Absent:
    """An environment in which the libraries are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name in ("ax", "bayes_opt", "hyperopt", "nevergrad"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_state_holds_the_whole_history(make, library):
    first, second = make(), make()
    play(first, 6)
    first.suggest("open")
    state = json.loads(json.dumps(first.state_dict()))
    if library in ("ax", "nevergrad"):
        assert (state, first.keeps_state) == ({}, False)
        return
    second.load_state_dict(state)
    for searcher in (first, second):
        searcher.on_trial_complete("open", {"loss": 1.0})
    assert play(second, 3, 6) == play(first, 3, 6)


def test_only_hyperopt_supports_normal_distributions(make, library):
    if library == "hyperopt":
        assert isinstance(make({"x": randn(0, 1)}).suggest("a")["x"], float)
    else:
        with pytest.raises(ValueError, match=r"'x' must be searchable for .*, got Normal"):
            make({"x": randn(0, 1)})


def test_bayesopt_refuses_categories():
    with pytest.raises(
        ValueError,
        match=r"'kind' must be searchable for BayesOptSearch, .*; use ranges of numbers only, or "
        r"another searcher",
    ):
        BayesOptSearch().set_search_properties("loss", "min", MIXED)


@pytest.mark.parametrize("kind", ["ucb", "ei", "poi"])
def test_bayesopt_beats_random_search_with_each_utility(kind):
    searcher = BayesOptSearch(
        utility_kwargs={"kind": kind, "kappa_decay": 0.9, "kappa_decay_delay": 3},
        random_search_steps=5,
    )
    searcher.set_search_properties(
        "loss", "max", {"x": uniform(-3, 3), "y": uniform(-3, 3)}, seed=1
    )
    values = []
    for number in range(14):
        config = searcher.suggest(str(number))
        values.append(-((config["x"] - 1) ** 2) - (config["y"] + 2) ** 2)
        searcher.on_trial_complete(str(number), {"loss": values[-1]})
    assert max(values) > max(*values[:5], -0.5)


def test_bayesopt_finishes_when_it_only_proposes_known_configurations():
    searcher = BayesOptSearch(random_search_steps=2)
    searcher.set_search_properties("loss", "min", {"n": randint(0, 3)}, seed=0)
    seen = []
    while isinstance(config := searcher.suggest(str(len(seen))), dict):
        seen.append(config["n"])
        searcher.on_trial_complete(str(len(seen) - 1), {"loss": config["n"]})
    assert config == "FINISHED"
    assert len(seen) == len(set(seen)) <= 3


def test_bayesopt_runs_duplicates_on_request():
    searcher = BayesOptSearch(random_search_steps=2, skip_duplicate=False)
    searcher.set_search_properties("loss", "min", {"n": randint(0, 3)}, seed=0)
    for number in range(5):
        searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), {"loss": 1})
    assert len(searcher._history) == 5


def test_bayesopt_begins_with_an_earlier_analysis():
    class Trial:
        config, last_result, status = {"x": 0.5}, {"loss": 0.25}, "TERMINATED"

    searcher = BayesOptSearch(analysis=[Trial])
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0)
    assert [(each.values, each.value) for each in searcher._history] == [({"x": 0.5}, 0.25)]


@pytest.mark.parametrize(
    ("make_one", "message"),
    [
        (
            lambda: BayesOptSearch(utility_kwargs={"kind": "x"}),
            r"utility_kwargs\['kind'\] must be one of",
        ),
        (
            lambda: BayesOptSearch(utility_kwargs={"kapa": 1}),
            "utility_kwargs must hold nothing but kind, kappa, .*, got 'kapa'; leave it out",
        ),
        (
            lambda: BayesOptSearch(utility_kwargs={"kappa": -1}),
            r"utility_kwargs\['kappa'\] must be at least 0, got -1",
        ),
        (
            lambda: BayesOptSearch(utility_kwargs={"kappa_decay": 2}),
            r"utility_kwargs\['kappa_decay'\] must be above 0, and 1 at most, got 2",
        ),
        (lambda: BayesOptSearch(patience=0), "patience must be at least 1, got 0"),
        (lambda: HyperOptSearch(n_initial_points=0), "n_initial_points must be at least 1, got 0"),
        (lambda: HyperOptSearch(gamma=1), "gamma must lie between 0 and 1, got 1"),
        (
            lambda: AxSearch(method="slow"),
            "method must be 'fast', 'quality' or 'random_search', got 'slow'",
        ),
        (
            lambda: AxSearch(initialization_budget=0),
            "initialization_budget must be at least 1, got 0",
        ),
        (
            lambda: AxSearch(outcome_constraints=["a/b <= 3"]),
            "outcome_constraints must name metrics that are not nested, got 'a/b <= 3'",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(make_one, message):
    with pytest.raises(ValueError, match=message):
        make_one()


def test_hyperopt_beats_random_search():
    searcher = HyperOptSearch(n_initial_points=10)
    searcher.set_search_properties("loss", "min", MIXED, seed=0)
    losses = [loss(config) for config in play(searcher, 40)]
    assert min(losses[10:]) < min(losses[:10])
    assert np.median(losses[20:]) < np.median(losses[:10])


def test_a_running_trial_counts_as_bad_for_hyperopt():
    searcher = HyperOptSearch(n_initial_points=1)
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0)
    assert len({searcher.suggest(str(number))["x"] for number in range(10)}) == 10


def test_ax_refuses_a_space_without_parameters():
    with pytest.raises(
        ValueError,
        match=r"space must hold a parameter to search for AxSearch, got \['x'\]; give one at least "
        r"a range",
    ):
        AxSearch().set_search_properties("loss", "min", {"x": choice([1])})


def test_ax_uses_its_model_and_respects_constraints():
    searcher = AxSearch(
        initialization_budget=3,
        parameter_constraints=["x + deep/y <= 0"],
        outcome_constraints=["size <= 3"],
    )
    searcher.set_search_properties(
        "loss", "min", {"x": uniform(-3, 3), "deep": {"y": uniform(-3, 3)}}, seed=0
    )
    for number in range(5):
        config = searcher.suggest(str(number))
        assert config["x"] + config["deep"]["y"] <= 1e-6
        value = (config["x"] + 1) ** 2 + (config["deep"]["y"] + 1) ** 2
        searcher.on_trial_complete(
            str(number), {"loss": value, **({} if number == 1 else {"size": 2})}
        )
    statuses = [trial.status.name for trial in searcher._client._experiment.trials.values()]
    # The one without a size counts like the worst.
    assert statuses[:2] == ["COMPLETED", "COMPLETED"]
    generators = {
        trial.generator_run.generator_run_type or trial.generator_run._generator_key
        for trial in searcher._client._experiment.trials.values()
    }
    assert len(generators) >= 2


@pytest.mark.usefixtures("nevergrad")
@pytest.mark.parametrize("optimizer", [None, "CMA", "OnePlusOne", "PSO", "TwoPointsDE", "TBPSA"])
def test_nevergrad_beats_random_search(optimizer):
    searcher = NevergradSearch(optimizer)
    searcher.set_search_properties("loss", "min", MIXED, seed=0, num_samples=60)
    losses = [loss(config) for config in play(searcher, 60)]
    assert np.mean(sorted(losses[30:])[:10]) < np.mean(sorted(losses[:10]))


@pytest.mark.usefixtures("nevergrad")
def test_nevergrad_learns_in_the_direction_that_is_asked_for():
    searcher = NevergradSearch("OnePlusOne")
    searcher.set_search_properties("score", "max", {"x": uniform(0, 1)}, seed=0)
    for number in range(60):
        config = searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), {"score": -abs(config["x"] - 0.9)})
    assert abs(searcher._optimizer.provide_recommendation().value["x"] - 0.9) < 0.05


@pytest.mark.usefixtures("nevergrad")
def test_given_points_and_failures_are_reported_to_nevergrad():
    searcher = NevergradSearch("TwoPointsDE", points_to_evaluate=[{"x": 0.0}, {"x": 1.0}])
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0)
    searcher.suggest("a"), searcher.suggest("b")
    searcher.on_trial_complete("a", {"loss": 2.0})
    searcher.on_trial_complete("b", error=True)
    searcher.add_evaluated_point({"x": 0.25}, 1.0)
    searcher.suggest("c")
    archive = [
        (round(each.parameter.value["x"], 6), each.mean)
        for each in searcher._optimizer.archive.values()
    ]
    assert sorted(archive) == [(0.0, 2.0), (0.25, 1.0), (1.0, 2.0)]


@pytest.mark.usefixtures("nevergrad")
def test_nevergrad_gets_num_samples_as_budget():
    searcher = NevergradSearch("CMA")
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0, num_samples=50)
    assert (searcher._optimizer.budget, searcher._optimizer.num_workers) == (50, 4)
    searcher = NevergradSearch("CMA", {"budget": 7, "num_workers": 2})
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0, num_samples=-1)
    assert (searcher._optimizer.budget, searcher._optimizer.num_workers) == (7, 2)


def test_nevergrad_accepts_classes_and_families(nevergrad):
    family = nevergrad.families.DifferentialEvolution(popsize=10)
    for optimizer in (family, nevergrad.optimizers.registry["OnePlusOne"]):
        searcher = NevergradSearch(optimizer)
        searcher.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0)
        assert 0 <= searcher.suggest("a")["x"] <= 1


def test_nevergrad_refuses_instances_of_optimizers(nevergrad):
    made = nevergrad.optimizers.registry["OnePlusOne"](2)
    with pytest.raises(
        TypeError,
        match=r"optimizer must be a name, a class or a configured family of Nevergrad's, got "
        r".*made anew in each",
    ):
        NevergradSearch(made)
    with pytest.raises(
        ValueError,
        match=r"optimizer must be a name in Nevergrad's registry, got 'CMAA'; there are .*CMA.* "
        r"and others",
    ):
        NevergradSearch("CMAA")


@pytest.mark.usefixtures("nevergrad")
def test_sequential_optimizers_of_nevergrad_require_a_limit():
    with pytest.raises(
        ValueError,
        match=r"optimizer 'SPSA' takes one trial at a time, got num_workers=4; put "
        r"ConcurrencyLimiter\(",
    ):
        NevergradSearch("SPSA").set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0)
    with pytest.raises(
        ValueError,
        match=r"optimizer 'CMA' cannot be made with .*'turbo'.*; change optimizer_kwargs",
    ):
        NevergradSearch("CMA", {"turbo": True}).set_search_properties(
            "loss", "min", {"x": uniform(0, 1)}, seed=0
        )
    limited = ConcurrencyLimiter(NevergradSearch("SPSA"), 1)
    limited.set_search_properties("loss", "min", {"x": uniform(0, 1)}, seed=0, num_samples=9)
    assert isinstance(limited.suggest("a"), dict)


@pytest.mark.usefixtures("nevergrad")
def test_nevergrad_refuses_a_space_without_parameters():
    with pytest.raises(
        ValueError,
        match=r"space must hold a parameter to search for NevergradSearch, got \['x'\]; give one "
        r"at least",
    ):
        NevergradSearch().set_search_properties("loss", "min", {"x": 1})


@pytest.mark.usefixtures("nevergrad")
def test_importing_nevergrad_leaves_bayesian_optimization_importable():
    known = sys.modules.get("bayes_opt")
    NevergradSearch()
    assert sys.modules.get("bayes_opt") is known


def related(where, searcher, *, num, seed=0, **tune):
    """Return the suggestions in a space with a relation, and their explanations."""
    entries = {"x": uniform(0, 1), "y": uniform(0, 1), "n": randint(1, 9), "gap": 0.1}
    assert searcher.set_search_properties(
        "loss", "min", Space(entries, where), seed=seed, num_samples=num, **tune
    )
    configs, explanations = [], []
    for number in range(num):
        configs.append(searcher.suggest(str(number)))
        explanations.append(searcher.explain_suggestion())
        # The best of all violates what the tests ask for.
        loss = (configs[-1]["x"] - 0.8) ** 2 + (configs[-1]["y"] - 0.6) ** 2
        searcher.on_trial_complete(str(number), {"loss": loss})
    return configs, explanations


def is_related(config):
    return config["x"] + 0.1 < config["y"] and config["n"] * config["x"] < 4


@pytest.mark.parametrize("where", ["x + gap < y and n * x < 4", is_related])
def test_suggestions_satisfy_a_relation(library, where):
    def made():
        return MAKERS[library][0]()

    configs, _ = related(where, made(), num=6)
    assert all(map(is_related, configs))
    assert len({tuple(config.values()) for config in configs}) > 3
    assert related(where, made(), num=6)[0] == configs


def test_the_library_respects_what_it_can_of_a_relation_by_itself(library):
    if library == "hyperopt":
        pytest.skip("it is asked again")
    configs, explanations = related("x + gap < y", MAKERS[library][0](), num=5)
    assert all(config["x"] + 0.1 < config["y"] for config in configs)
    assert explanations == [""] * 5


def test_bayesopt_searches_up_to_the_boundary_of_a_relation():
    searcher = BayesOptSearch(random_search_steps=4, utility_kwargs={"kind": "ei"})
    configs, _ = related("x < y", searcher, num=14)
    # The best that satisfies it is at (0.7, 0.7).
    assert min((each["x"] - 0.7) ** 2 + (each["y"] - 0.7) ** 2 for each in configs) < 0.01


def test_ax_is_asked_again_for_what_is_not_linear():
    searcher = AxSearch(method="random_search")
    configs, explanations = related("x * y < 0.1", searcher, num=6)
    assert all(config["x"] * config["y"] < 0.1 for config in configs)
    assert any("violated where='x * y < 0.1'" in each for each in explanations)


def test_ax_takes_linear_conditions_of_parameters_that_vary_on_linear_scales():
    searcher = AxSearch(method="random_search")
    entries = {
        "deep": {"x": uniform(0, 1)},
        "n": randint(1, 9),
        "one": randint(2, 3),
        "lr": loguniform(1e-3, 1),
        "order": choice([1, 2], ordered=True),
    }
    where = "deep.x + one < 0.5 * n and lr < deep.x and order < n and deep.x * n < 4"
    searcher.set_search_properties("loss", "min", Space(entries, where), seed=0)
    assert list(searcher._linear_constraints()) == ["1.0 * deep__x + -0.5 * n <= -2.000001"]
    assert searcher.suggest("a")["deep"]["x"] + 2 < 0.5 * searcher.suggest("b")["n"] + 4


def test_a_trial_that_violates_the_relation_by_now_is_no_proposal(library):
    searcher = MAKERS[library][0]()
    entries = {"x": uniform(0, 1), "y": uniform(0, 1), "n": randint(1, 9)}
    searcher.set_search_properties("loss", "min", Space(entries, "x < y"), seed=0, num_samples=6)
    searcher.suggest("0")
    assert searcher.on_trial_replaced("0", {"x": 0.9, "y": 0.1, "n": 3})
    searcher.on_trial_complete("0", {"loss": 1.0})
    configs = [searcher.suggest(str(number)) for number in range(1, 5)]
    assert all(config["x"] < config["y"] for config in configs)
