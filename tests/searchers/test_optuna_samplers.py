"""Each of Optuna's samplers in `OptunaSearch`: seeds, exhaustion, restore and errors."""

import json
import warnings

import pytest

from searchers import OptunaSearch, Searcher
from searchers.space import choice, quniform, randint, uniform

optuna = pytest.importorskip("optuna")
samplers = optuna.samplers
State = optuna.trial.TrialState

SPACE = {"x": uniform(0, 1), "model": {"n": randint(1, 9), "act": choice(["a", "b"])}, "epochs": 5}
FINITE = {
    "x": quniform(0, 1, 0.5),
    "model": {"n": randint(1, 3), "act": choice(["a", "b"])},
    "epochs": 5,
}


def make(name, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are experimental
        return getattr(samplers, name)(*arguments, **keywords)


ENDLESS = {
    "tpe": lambda: make("TPESampler", seed=3),
    "gp": lambda: make("GPSampler", seed=3, n_startup_trials=18),
    "cmaes": lambda: make("CmaEsSampler", seed=3),
    "nsga2": lambda: make("NSGAIISampler", seed=3, population_size=5),
    "nsga3": lambda: make("NSGAIIISampler", seed=3, population_size=5),
    "qmc": lambda: make("QMCSampler", seed=3),
    "random": lambda: make("RandomSampler", seed=3),
    "fixed": lambda: make("PartialFixedSampler", {"model/act": "b"}, make("TPESampler", seed=3)),
}
EXHAUSTIVE = {
    "grid": (
        lambda: make("GridSampler", {"x": [0.0, 0.5, 1.0], "model/n": [1, 2], "model/act": ["b"]}),
        6,
    ),
    "brute_force": (lambda: make("BruteForceSampler", seed=3), 12),
}
NEEDS = {"gp": "torch", "cmaes": "cmaes", "qmc": "scipy"}
GP = pytest.param("gp", marks=pytest.mark.heavy)


def prepared(sampler, space=SPACE, *, seed=0, metric="loss", mode="min", **arguments):
    searcher = OptunaSearch(metric=metric, mode=mode, sampler=sampler, **arguments)
    assert searcher.set_search_properties(
        None, None, space, seed=seed, experiment=f"experiment {seed}"
    )
    return searcher


class Play:
    """Runs trials of a searcher, three at a time; some fail and some are stopped."""

    def __init__(self, searcher, number=0, running=()):
        self.searcher, self.number, self.running = searcher, number, list(running)

    def run(self, num):
        configs = []
        for _ in range(num):
            config = self.searcher.suggest(f"t{self.number}")
            configs.append(config)
            if config == Searcher.FINISHED:
                break
            self.running.append((f"t{self.number}", config))
            self.number += 1
            if len(self.running) == 3:
                self.end_oldest()
        return configs

    def end_oldest(self):
        trial_id, config = self.running.pop(0)
        number = int(trial_id[1:])
        result = {
            "loss": (config["x"] - 0.3) ** 2 + number % 4 / 10,
            "size": config["model"]["n"],
            "training_iteration": 1,
        }
        self.searcher.on_trial_result(trial_id, result)
        self.searcher.on_trial_complete(
            trial_id,
            None if number % 7 == 6 else result,
            error=number % 7 == 6,
            stopped=number % 5 == 4,
        )


@pytest.mark.parametrize("name", [GP, *sorted(ENDLESS.keys() - {"gp"})])
def test_a_sampler_is_reproducible_with_its_seed(name):
    pytest.importorskip(NEEDS.get(name, "optuna"))
    num = 25 if name == "gp" else 16
    configs = Play(prepared(ENDLESS[name]())).run(num)
    assert len(configs) == num
    assert all(
        0 <= config["x"] <= 1 and config["model"]["act"] in "ab" and config["epochs"] == 5
        for config in configs
    )
    assert len({config["x"] for config in configs}) > 10
    if name != "gp":
        assert Play(prepared(ENDLESS[name](), seed=1)).run(num) == configs, (
            "the sampler's seed counts, not the experiment's"
        )


@pytest.mark.parametrize("name", [GP, *sorted(ENDLESS.keys() - {"gp"}), *EXHAUSTIVE])
def test_a_restored_sampler_continues_as_if_uninterrupted(name):
    pytest.importorskip(NEEDS.get(name, "optuna"))
    maker, space = (ENDLESS[name], SPACE) if name in ENDLESS else (EXHAUSTIVE[name][0], FINITE)
    original = Play(prepared(maker(), space))
    original.run(4 if name in EXHAUSTIVE else 13)
    state = json.loads(json.dumps(original.searcher.state_dict()))
    if name == "cmaes":
        assert state == {}
        assert not original.searcher.keeps_state
        return
    assert original.searcher.keeps_state
    restored = Play(prepared(maker(), space, seed=9), original.number, original.running)
    restored.searcher.load_state_dict(state)
    assert restored.run(8) == original.run(8)


def test_a_state_contains_no_pickle_of_cma_es():
    pytest.importorskip("cmaes")
    searcher = prepared(ENDLESS["cmaes"]())
    Play(searcher).run(25)
    assert any(
        key.startswith("cma:optimizer")
        for trial in searcher.study.trials
        for key in trial.system_attrs
    )
    assert searcher.state_dict() == {}


def test_a_manipulated_state_with_a_pickle_is_refused():
    pytest.importorskip("cmaes")
    planted = prepared(ENDLESS["tpe"]())
    Play(planted).run(3)
    with pytest.raises(
        ValueError,
        match=r"state must be empty with this sampler, got .*'study'.*; replay the search "
        r"instead",
    ):
        prepared(ENDLESS["cmaes"]()).load_state_dict(planted.state_dict())


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_an_exhausted_sampler_ends_the_search(name):
    maker, num = EXHAUSTIVE[name]
    searcher = prepared(maker(), FINITE)
    configs = Play(searcher).run(30)
    assert configs.pop() == Searcher.FINISHED
    assert len(configs) == len({str(config) for config in configs}) == num
    assert searcher.suggest("late") == Searcher.FINISHED
    assert len(searcher.study.trials) == num


def test_a_grid_ends_while_its_trials_are_still_running():
    searcher = prepared(EXHAUSTIVE["grid"][0](), FINITE)
    assert [searcher.suggest(str(number)) for number in range(7)][-1] == Searcher.FINISHED


def test_points_that_lie_on_a_grid_do_not_end_it_early():
    points = [{"x": 0.5, "model": {"n": 1, "act": "b"}}]
    configs = Play(prepared(EXHAUSTIVE["grid"][0](), FINITE, points_to_evaluate=points)).run(30)
    assert configs.count(configs[0]) == 2
    assert len(configs) == 8
    assert configs.pop() == Searcher.FINISHED


def test_brute_force_leaves_out_points_that_were_run():
    points = [{"x": 0.5, "model": {"n": 1, "act": "b"}}]
    configs = Play(prepared(EXHAUSTIVE["brute_force"][0](), FINITE, points_to_evaluate=points)).run(
        30
    )
    assert configs[0]["model"] == points[0]["model"]
    assert len(configs) == 13
    assert len({str(config) for config in configs}) == 13


def test_brute_force_enumerates_a_conditional_space():
    def define(trial):
        if trial.suggest_categorical("kind", ["deep", "flat"]) == "deep":
            trial.suggest_int("deep/layers", 1, 3)

    searcher = OptunaSearch(define, "loss", "min", sampler=make("BruteForceSampler", seed=0))
    assert searcher.set_search_properties(None, None, {}, seed=0)
    configs = [searcher.suggest(str(number)) for number in range(5)]
    assert configs.pop() == Searcher.FINISHED
    assert sorted(map(str, configs)) == sorted(
        map(str, [{"kind": "flat"}, *({"kind": "deep", "deep": {"layers": n}} for n in (1, 2, 3))])
    )


@pytest.mark.parametrize(
    ("sampler", "arguments", "message"),
    [
        (
            lambda: make("BruteForceSampler"),
            {},
            "BruteForceSampler cannot: FloatDistribution.step must be given",
        ),
        (
            lambda: make("GridSampler", {"x": [0.5]}),
            {},
            "GridSampler cannot: The parameter name, model/n, is not found",
        ),
        (
            lambda: make("GridSampler", {"x": [0.5], "model/n": [1], "model/act": ["a"], "y": [1]}),
            {},
            "the grid names .*'y'",
        ),
        (
            lambda: make("GridSampler", {"x": [0.5], "model/n": [1], "model/act": ["a", "c"]}),
            {},
            r"'c' not in \('a', 'b'\)",
        ),
        (
            lambda: make("GridSampler", {"x": [0.1, 0.2, 7.0], "model/n": [1], "model/act": ["a"]}),
            {},
            "(`7.0` is out of range of the parameter `x`|the grid holds 7.0 for 'x')",
        ),
        (
            lambda: make("PartialFixedSampler", {"x": 7.0}, make("RandomSampler")),
            {},
            "'x' with value 7.0 is out of range",
        ),
        (
            ENDLESS["cmaes"],
            {"metric": ["loss", "size"], "mode": ["min", "min"]},
            "CmaEsSampler cannot: If",
        ),
    ],
)
def test_a_space_that_the_sampler_does_not_support_is_refused(sampler, arguments, message):
    with pytest.raises(
        ValueError,
        match=rf"sampler must be able to search the space for . metrics, .*{message}.*; take",
    ):
        prepared(sampler(), **arguments)


def test_constraints_are_refused_with_cma_es():
    pytest.importorskip("cmaes")
    with pytest.raises(ValueError, match="constraints must be None with CmaEsSampler"):
        OptunaSearch(sampler=ENDLESS["cmaes"](), constraints=["size"])


@pytest.mark.parametrize("inner", EXHAUSTIVE)
def test_an_exhaustive_sampler_with_fixed_parameters_is_refused(inner):
    with pytest.raises(
        ValueError,
        match=r"PartialFixedSampler must not hold (Grid|BruteForce)Sampler, which would repeat "
        r"itself",
    ):
        OptunaSearch(
            sampler=make("PartialFixedSampler", {"model/act": "b"}, EXHAUSTIVE[inner][0]())
        )


def test_an_unseeded_sampler_follows_the_seed_of_the_experiment():
    assert Play(prepared(samplers.TPESampler(), seed=5)).run(15) == Play(
        prepared(samplers.TPESampler(), seed=5)
    ).run(15)
    assert prepared(samplers.TPESampler(), seed=5).suggest("a") != prepared(
        samplers.TPESampler(), seed=6
    ).suggest("a")


def test_samplers_with_other_seeds_propose_other_configurations():
    assert prepared(samplers.TPESampler(seed=5)).suggest("a") != prepared(
        samplers.TPESampler(seed=6)
    ).suggest("a")


def test_the_given_sampler_is_not_changed():
    given = samplers.RandomSampler(seed=3)
    first = Play(prepared(given)).run(5)
    assert Play(prepared(given)).run(5) == first


@pytest.mark.parametrize("given", [samplers.TPESampler, "tpe"])
def test_an_object_that_is_not_a_sampler_is_refused(given):
    with pytest.raises(
        TypeError, match=r"sampler must be one of optuna.samplers, got .*; construct it first"
    ):
        OptunaSearch(sampler=given)


def test_points_that_a_grid_cannot_complete_are_refused_with_the_space():
    with pytest.raises(ValueError, match=r"GridSampler cannot: All parameters must be specified"):
        prepared(EXHAUSTIVE["grid"][0](), FINITE, points_to_evaluate=[{"x": 0.5}])


def test_points_out_of_the_range_that_a_function_asks_for_are_refused():
    with pytest.raises(ValueError, match=r"'x' must lie in FloatDistribution.*, got 7.0"):
        OptunaSearch(
            lambda trial: {"y": trial.suggest_float("x", 0, 1)}, "loss", "min", [{"x": 7.0}]
        )


class Counting(samplers.BaseSampler):
    """A user-defined sampler that counts its calls."""

    def __init__(self):
        self.num_asked = 0

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        self.num_asked += 1
        return self.num_asked / 100


def test_a_user_defined_sampler_keeps_its_state_and_is_restored_by_replay():
    searcher = prepared(Counting(), {"x": uniform(0, 1)})
    assert [searcher.suggest(name)["x"] for name in "abc"] == [0.01, 0.02, 0.03]
    assert not searcher.keeps_state
    assert searcher.state_dict() == {}


class Failing(Counting):
    """A sampler that raises."""

    def __init__(self, fails_at):
        super().__init__()
        self.fails_at = fails_at

    def sample_independent(self, study, trial, param_name, param_distribution):
        value = super().sample_independent(study, trial, param_name, param_distribution)
        if self.num_asked == self.fails_at:
            raise RuntimeError("singular matrix")
        return value

    def after_trial(self, study, trial, state, values):
        if trial.number == 0:
            raise RuntimeError("cannot learn")


def test_if_a_sampler_raises_the_suggestion_is_random_with_a_warning():
    searcher = prepared(Failing(2), {"x": uniform(0, 1)})
    assert searcher.suggest("a")["x"] == 0.01
    with pytest.warns(
        RuntimeWarning,
        match="the sampler raised RuntimeError: singular matrix; this suggestion is drawn at "
        "random",
    ):
        assert 0 <= searcher.suggest("b")["x"] <= 1
    assert searcher.suggest("c")["x"] == 0.03
    assert [trial.state for trial in searcher.study.trials] == [
        State.RUNNING,
        State.FAIL,
        State.RUNNING,
        State.RUNNING,
    ]
    with pytest.warns(
        RuntimeWarning, match="the sampler raised RuntimeError at the end of a trial: cannot learn"
    ):
        searcher.on_trial_complete("a", {"loss": 1.0})
    assert searcher.study.trials[0].state == State.COMPLETE


def test_a_point_that_the_sampler_cannot_complete_is_not_lost():
    points = [{"y": number / 10} for number in range(9)]
    searcher = prepared(
        Failing(0), {"x": uniform(0, 1), "y": uniform(0, 1)}, points_to_evaluate=points
    )
    searcher._known.source._given.fails_at = 5
    with pytest.warns(RuntimeWarning, match="singular matrix"):
        configs = [searcher.suggest(name) for name in "abcdefghi"]
    assert sorted(config["y"] for config in configs) == [point["y"] for point in points]


def test_an_error_of_a_space_function_during_the_search_is_raised():
    asked = []

    def define(trial):
        asked.append(trial)
        if len(asked) > 1:
            raise KeyError("typo")
        trial.suggest_float("x", 0, 1)

    searcher = OptunaSearch(define, "loss", "min")
    searcher.set_search_properties(None, None, {}, seed=0)
    with pytest.raises(KeyError, match="typo"):
        searcher.suggest("a")


@pytest.mark.parametrize("error", [TypeError("wrong"), KeyError("typo")])
def test_an_error_of_a_space_function_is_raised_with_the_space(error):
    def define(trial):
        raise error

    searcher = OptunaSearch(define, "loss", "min")
    with pytest.raises((TypeError, ValueError), match=r"wrong|typo"):
        searcher.set_search_properties(None, None, {}, seed=0)


@pytest.mark.parametrize("name", ["tpe", GP, "cmaes", "nsga2", "nsga3", "qmc", "random"])
def test_every_sampler_supports_conditional_spaces(name):
    pytest.importorskip(NEEDS.get(name, "optuna"))

    def define(trial):
        trial.suggest_float("x", 0, 1)
        if trial.suggest_categorical("model/act", ["a", "b"]) == "a":
            trial.suggest_int("model/slope", 1, 5)
        return {"model": {"n": 3}}

    searcher = OptunaSearch(define, "loss", "min", sampler=ENDLESS[name]())
    assert searcher.set_search_properties(None, None, {}, seed=0)
    for config in Play(searcher).run(20):
        assert ("slope" in config["model"]) == (config["model"]["act"] == "a")
        assert config["model"]["n"] == 3
