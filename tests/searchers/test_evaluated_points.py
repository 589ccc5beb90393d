"""Evaluated points are added to searchers with a model, to OptunaSearch, and through wrappers."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from searchers import (
    AutoSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    OptunaSearch,
    Repeater,
    TreeSearch,
)
from searchers.objectives import outcome_constraints
from searchers.space import choice, randint, uniform
from tuner.core.trial import Status, TerminationReason

KINDS = [AutoSearch, GPSearch, TreeSearch, BOHBSearch, CQRSearch]
SPACE = {"x": uniform(0, 1), "net": {"depth": randint(1, 5)}, "epochs": 5}
BRANCHES = {
    "opt": choice(
        [
            {"name": "sgd", "momentum": uniform(0, 1)},
            {"name": "adam", "beta": uniform(0, 1)},
            "none",
        ]
    )
}
CONFIG = {"x": 0.5, "net": {"depth": 2}, "epochs": 5}


def prepared(searcher, space=SPACE, *, mode="min", seed=0):
    assert searcher.set_search_properties("loss", mode, space, seed=seed, num_samples=-1)
    return searcher


def points():
    return [{"x": place, "net": {"depth": 2}} for place in np.linspace(0.02, 0.98, 25).tolist()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_model_is_fitted_to_points(kind, mode):
    searcher = prepared(kind(n_initial_points=0, random_fraction=0), mode=mode)
    for point in points():
        loss = (point["x"] - 0.7) ** 2
        searcher.add_evaluated_point(point, -loss if mode == "max" else loss)
    assert searcher.observations.num_observed == 25
    assert np.median([abs(searcher.suggest(f"t{number}")["x"] - 0.7) for number in range(6)]) < 0.15


@pytest.mark.parametrize("kind", KINDS)
def test_evaluated_points_count_like_points_with_rewards(kind):
    rewards = [(point["x"] - 0.7) ** 2 for point in points()]
    one = prepared(kind(points_to_evaluate=points(), evaluated_rewards=rewards))
    other = prepared(kind())
    for point, reward in zip(points(), rewards, strict=True):
        other.add_evaluated_point(point, reward)
    assert (
        one.observations.table().quantiles.tolist() == other.observations.table().quantiles.tolist()
    )
    assert [one.suggest(f"t{number}") for number in range(12)] == [
        other.suggest(f"t{number}") for number in range(12)
    ]


def test_a_point_is_compared_at_the_levels_of_its_intermediate_values():
    searcher = prepared(TreeSearch())
    for number, curve in enumerate([[0.9, 0.5, 0.2], [0.8, 0.6, 0.3], [0.95], [0.7]]):
        searcher.add_evaluated_point(
            {"x": number / 4, "net/depth": 1},
            curve[-1],
            pruned=len(curve) == 1,
            intermediate_values=curve,
        )
    table = searcher.observations.table()
    # At the first level the last one is best and the third worst; the two that went on divide their
    # places by their ends.
    assert table.quantiles.tolist() == [0.375, 0.625, 0.875, 0.125]
    assert table.heights.tolist() == [1, 1, 0, 0]


def test_the_value_takes_the_place_of_the_last_intermediate_one():
    searcher = prepared(TreeSearch())
    searcher.add_evaluated_point(CONFIG, 0.1, intermediate_values=[0.5, 0.4])
    (trial,) = searcher.observations.trials.values()
    assert list(trial.curve.values()) == [0.5, 0.1]


def test_failures_count_as_worst_and_need_no_value():
    searcher = prepared(TreeSearch())
    searcher.add_evaluated_point(CONFIG, math.nan, error=True)
    searcher.add_evaluated_point({**CONFIG, "x": 0.6}, 7.0)
    assert searcher.observations.table().quantiles.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluated_points_are_not_suggested(kind):
    searcher = prepared(kind(), {"n": randint(0, 4), "act": choice(["a", "b"])})
    for n in range(3):
        searcher.add_evaluated_point({"n": n, "act": "a"}, float(n))
    found = [searcher.suggest(f"t{number}") for number in range(6)]
    assert found[-1] == searcher.FINISHED
    assert sorted((config["n"], config["act"]) for config in found[:-1]) == [
        (0, "b"),
        (1, "b"),
        (2, "b"),
        (3, "a"),
        (3, "b"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_search_has_the_evaluated_points(kind):
    original = prepared(kind())
    for point in points():
        original.add_evaluated_point(
            point, point["x"], intermediate_values=[1.0, 2.0] if point["x"] > 0.5 else None
        )
    original.add_evaluated_point({**CONFIG, "x": 0.123}, 0.0, error=True)
    restored = prepared(kind(), seed=99)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert [restored.suggest(f"t{number}") for number in range(13)] == [
        original.suggest(f"t{number}") for number in range(13)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_points_of_conditional_spaces_have_active_parameters_only(kind):
    searcher = prepared(kind(), BRANCHES)
    searcher.add_evaluated_point({"opt": {"name": "sgd", "momentum": 0.5}}, 0.5)
    searcher.add_evaluated_point({"opt": "none"}, 0.7)
    assert [
        [not math.isnan(entry) for entry in trial.vector]
        for trial in searcher.observations.trials.values()
    ] == [
        [True, True, False],
        [True, False, False],
    ]
    with pytest.raises(ValueError, match=r"must be complete, got none of \['opt/1/beta'\]"):
        searcher.add_evaluated_point({"opt": {"name": "adam"}}, 0.5)


@pytest.mark.parametrize("make", [TreeSearch, OptunaSearch])
@pytest.mark.parametrize(
    ("point", "value", "message"),
    [
        ({"x": 7.0, "net/depth": 1}, 0.5, "'x' must lie in"),
        ({"x": 0.5}, 0.5, r"must be complete, got none of \['net/depth'\]"),
        (CONFIG, math.nan, "must (be|hold) numbers, got nan"),
        (CONFIG, "text", "must (be|hold) numbers, got 'text'"),
    ],
)
def test_a_point_that_does_not_fit_is_refused_without_a_trace(make, point, value, message):
    if make is OptunaSearch:
        pytest.importorskip("optuna")
    searcher = prepared(make())
    with pytest.raises(ValueError, match=message):
        searcher.add_evaluated_point(point, value)
    assert not (searcher.study.trials if make is OptunaSearch else searcher.observations.trials)


def test_intermediate_values_must_be_numbers():
    with pytest.raises(ValueError, match="must be numbers, got None"):
        prepared(TreeSearch()).add_evaluated_point(CONFIG, 0.5, intermediate_values=[None, 0.5])


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_refused_before_the_space_is_known(kind):
    with pytest.raises(RuntimeError, match="call set_search_properties"):
        kind().add_evaluated_point(CONFIG, 0.5)


def test_trials_of_another_experiment_are_added():
    def trial(x, loss, status=Status.TERMINATED, ending=TerminationReason.COMPLETED):
        return SimpleNamespace(
            config={**CONFIG, "x": x}, last_result={"loss": loss}, status=status, ending=ending
        )

    trials = [
        trial(0.1, 3.0),
        trial(0.2, 1.0, ending=TerminationReason.STOPPED_EARLY),
        trial(0.3, 2.0, Status.ERROR, TerminationReason.FAILED),
    ]
    searcher = prepared(TreeSearch())
    searcher.add_evaluated_trials(trials, "loss")
    assert searcher.observations.table().quantiles.tolist() == pytest.approx([1 / 2, 1 / 6, 5 / 6])


GOALS = {
    "objectives": (("accuracy", "max"), ("latency", "min")),
    "constraints": outcome_constraints({"size": "<= 4", "latency": ">= 0"}),
}


def trials_of_a_trade_off():
    """Return a feasible trial, one with a size that it has reported before, and useless ones."""

    def trial(x, reported, summary=(), ending=TerminationReason.COMPLETED):
        return SimpleNamespace(
            config={**CONFIG, "x": x},
            last_result=reported,
            summary={name: SimpleNamespace(last=value) for name, value in dict(summary).items()},
            status=Status.TERMINATED,
            ending=ending,
        )

    return [
        trial(0.1, {"accuracy": 0.9, "latency": 3, "size": 2}),
        trial(0.2, {"accuracy": 0.95, "latency": 2}, {"size": 9}),
        trial(0.3, {"accuracy": 0.5}),
        trial(0.4, {"accuracy": 0.5, "latency": 1}, ending=TerminationReason.INTERRUPTED),
    ]


@pytest.mark.parametrize("kind", [AutoSearch, GPSearch, TreeSearch])
def test_trials_of_a_trade_off_are_added_with_all_that_counts(kind):
    searcher = kind()
    wrapper = ConcurrencyLimiter(searcher, 2)
    assert wrapper.set_search_properties(None, None, SPACE, seed=0, **GOALS)
    wrapper.add_evaluated_trials(trials_of_a_trade_off())
    names = list(searcher.observations.trials)
    assert searcher.tradeoffs.excesses(names).tolist() == [[-2, -3], [5, -2]]
    assert isinstance(wrapper.suggest("a"), dict)
    with pytest.raises(ValueError, match="must be left out where several are optimised, 'accur"):
        wrapper.add_evaluated_trials(trials_of_a_trade_off(), "accuracy")


def test_one_metric_is_added_with_what_is_bounded():
    searcher = TreeSearch()
    bounded = outcome_constraints({"size": "<= 4"})
    searcher.set_search_properties("accuracy", "max", SPACE, seed=0, constraints=bounded)
    for metric in (None, "accuracy"):
        searcher.add_evaluated_trials(trials_of_a_trade_off()[:2], metric)
    names = list(searcher.observations.trials)
    assert searcher.tradeoffs.excesses(names).tolist() == [[-2], [5]] * 2
    with pytest.raises(ValueError, match=r"metric must be given as long as .* pass metric="):
        TreeSearch().add_evaluated_trials(trials_of_a_trade_off())


@pytest.mark.parametrize("inner", [TreeSearch, OptunaSearch])
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda inner: ConcurrencyLimiter(inner, 2),
        lambda inner: Repeater(inner, 2),
        lambda inner: DuplicateGuard(inner, "skip"),
        lambda inner: ConcurrencyLimiter(Repeater(DuplicateGuard(inner, "reuse"), 2), 2),
    ],
)
def test_wrappers_pass_points_on(inner, wrapped):
    if inner is OptunaSearch:
        pytest.importorskip("optuna")
    searcher = inner()
    wrapper = prepared(wrapped(searcher))
    wrapper.add_evaluated_point(CONFIG, 0.5, intermediate_values=[0.7, 0.5])
    if inner is OptunaSearch:
        assert [(trial.value, trial.intermediate_values) for trial in searcher.study.trials] == [
            (0.5, {1: 0.7, 2: 0.5})
        ]
    else:
        assert [list(trial.curve.values()) for trial in searcher.observations.trials.values()] == [
            [0.7, 0.5]
        ]
    assert isinstance(wrapper.suggest("a"), dict)


class TestOptuna:
    @pytest.fixture(autouse=True)
    def _needs_optuna(self):
        pytest.importorskip("optuna")

    def test_trials_of_a_trade_off_have_constraints(self):
        searcher = OptunaSearch()
        searcher.set_search_properties(None, None, SPACE, seed=0, num_samples=-1, **GOALS)
        searcher.add_evaluated_trials(trials_of_a_trade_off())
        searcher.add_evaluated_point({**CONFIG, "x": 0.7}, [0.7, 3])
        assert [(one.values, one.constraints) for one in searcher.study.trials] == [
            ([0.9, 3], {"size": -2, "latency": -3}),
            ([0.95, 2], {"size": 5, "latency": -2}),
            ([0.7, 3], {}),
        ]

    def test_rewards_have_constraints(self):
        given = {"accuracy": 0.9, "latency": 3, "size": 2}
        searcher = OptunaSearch(points_to_evaluate=[CONFIG], evaluated_rewards=[given])
        searcher.set_search_properties(None, None, SPACE, seed=0, num_samples=-1, **GOALS)
        (known,) = searcher.study.trials
        assert (known.values, known.constraints) == ([0.9, 3], {"size": -2, "latency": -3})

    def test_points_are_trials_of_the_study(self):
        searcher = prepared(OptunaSearch())
        searcher.add_evaluated_point(CONFIG, 0.5)
        searcher.add_evaluated_point(
            {"x": 0.6, "net/depth": 1}, 0.4, pruned=True, intermediate_values=[0.9, 0.4]
        )
        searcher.add_evaluated_point({"x": 0.7, "net/depth": 1}, math.nan, error=True)
        assert [
            (trial.state.name, trial.values, trial.intermediate_values)
            for trial in searcher.study.trials
        ] == [
            ("COMPLETE", [0.5], {}),
            ("PRUNED", [0.4], {1: 0.9, 2: 0.4}),
            ("FAIL", None, {}),
        ]
        assert searcher.study.trials[0].params == {"x": 0.5, "net/depth": 2}

    @pytest.mark.property
    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_the_sampler_learns_from_them(self, mode):
        distances = []
        for seed in range(12):
            searcher = prepared(OptunaSearch(), mode=mode, seed=seed)
            for point in points():
                loss = (point["x"] - 0.7) ** 2
                searcher.add_evaluated_point(point, -loss if mode == "max" else loss)
            distances.append(abs(searcher.suggest("first")["x"] - 0.7))
        assert np.median(distances) < 0.15

    def test_running_trials_keep_their_numbers(self):
        searcher = prepared(OptunaSearch())
        searcher.suggest("a")
        searcher.add_evaluated_point(CONFIG, 0.5)
        searcher.suggest("b")
        searcher.on_trial_complete("b", {"loss": 2.0, "training_iteration": 1})
        searcher.on_trial_complete("a", {"loss": 1.0, "training_iteration": 1})
        assert [trial.value for trial in searcher.study.trials] == [1.0, 0.5, 2.0]

    def test_a_restored_search_has_the_evaluated_points(self):
        original = prepared(OptunaSearch())
        for point in points():
            original.add_evaluated_point(point, point["x"])
        restored = prepared(OptunaSearch(), seed=9)
        restored.load_state_dict(json.loads(json.dumps(original.state_dict())))
        assert [restored.suggest(f"t{number}") for number in range(5)] == [
            original.suggest(f"t{number}") for number in range(5)
        ]

    def test_several_metrics_have_several_values(self):
        searcher = OptunaSearch(metric=["loss", "size"], mode=["min", "min"])
        assert searcher.set_search_properties(None, None, SPACE, seed=0)
        searcher.add_evaluated_point(CONFIG, [0.5, 3.0], intermediate_values=[1, 2])
        assert [trial.values for trial in searcher.study.trials] == [[0.5, 3.0]]
        with pytest.raises(ValueError, match="2 numbers for each point"):
            searcher.add_evaluated_point(CONFIG, 0.5)

    def test_evaluated_points_are_not_written_to_the_storage(self):
        import optuna  # noqa: PLC0415  (an extra)

        storage = optuna.storages.InMemoryStorage()
        searcher = prepared(OptunaSearch(storage=storage, study_name="mine"))
        searcher.add_evaluated_point(CONFIG, 0.5)
        searcher.suggest("a")
        searcher.on_trial_complete("a", {"loss": 1.0, "training_iteration": 1})
        assert [
            trial.value for trial in optuna.load_study(study_name="mine", storage=storage).trials
        ] == [1.0]
        assert [trial.value for trial in searcher.study.trials] == [0.5, 1.0]

    @pytest.mark.parametrize(
        "wrapped", [lambda inner: inner, lambda inner: DuplicateGuard(inner, "skip")]
    )
    def test_points_can_be_added_to_a_space_function(self, wrapped):
        def define(trial):
            if trial.suggest_categorical("kind", ["a", "b"]) == "a":
                trial.suggest_float("x", 0, 1)

        inner = OptunaSearch(define)
        searcher = prepared(wrapped(inner), {})
        searcher.add_evaluated_point({"kind": "a", "x": 0.5}, 0.5)
        assert [trial.params for trial in inner.study.trials] == [{"kind": "a", "x": 0.5}]
        with pytest.raises(ValueError, match=r"must be complete, got none of \['x'\]"):
            searcher.add_evaluated_point({"kind": "a"}, 0.5)
