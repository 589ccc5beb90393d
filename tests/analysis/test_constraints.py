"""Results under constraints, and trade-offs between several metrics."""

import math

import numpy as np
import pytest

import tuner as tune
from searchers.objectives import outcome_constraints
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.core.near_misses import why_infeasible, why_none_feasible
from tuner.journal.rows import MemoryRows

LIMIT = {"size_mb": "<= 4"}
SEVERAL = (("accuracy", "max"), ("latency_ms", "min"))


@pytest.fixture
def grid(make):
    """Returns a grid of trials that reported these results each."""

    def built(reported, constraints=LIMIT, **options):
        trials = [make.trial(name, results) for name, results in reported.items()]
        rows = MemoryRows({name: make.rows(name, each) for name, each in reported.items()})
        goals = {"metric": "loss", "mode": "min"} | options
        return ResultGrid(
            trials, "/nowhere", rows, constraints=outcome_constraints(constraints), **goals
        )

    return built


def ids(results):
    return [result.trial_id for result in results]


def test_a_trial_that_misses_a_constraint_is_never_the_best(grid):
    results = grid(
        {
            "big": [{"loss": 1, "size_mb": 4.43}],
            "silent": [{"loss": 2}],
            "broken": [{"loss": 3, "size_mb": math.nan}],
            "small": [{"loss": 5, "size_mb": 4}],
            "smaller": [{"loss": 6, "size_mb": 1}],
        }
    )
    assert results.get_best_result().trial_id == "small"
    assert ids(result for result, _ in results.ranked()) == ["small", "smaller"]
    assert results.get_best_result("size_mb", "min").trial_id == "smaller"
    assert results.get_best_result(feasible=False).trial_id == "big"
    assert ids(result for result, _ in results.ranked(feasible=False))[:3] == [
        "big",
        "silent",
        "broken",
    ]
    assert ids(results.feasible) == ["small", "smaller"]
    assert results[0].violations == {"size_mb <= 4": pytest.approx(0.43)}
    assert [result.feasible for result in results] == [False, False, False, True, True]
    assert ",\n  violations={'size_mb <= 4': inf},\n" in repr(results[1])
    assert "violations" not in repr(results[3])
    assert results.constraints == LIMIT
    assert results[:4].get_best_result().trial_id == "small"


def test_the_newest_value_of_a_constraint_counts_in_every_scope(grid):
    results = grid(
        {
            "grew": [{"loss": 1, "size_mb": 1}, {"loss": 1, "size_mb": 9}],
            "once": [{"loss": 4, "size_mb": 2}, {"loss": 3}],
        }
    )
    for scope in ("last", "all", "avg"):
        assert results.get_best_result(scope=scope).trial_id == "once"


def test_the_error_says_what_is_missed_by_how_many_and_which_trial_is_closest(grid):
    results = grid(
        {
            "far": [{"loss": 1, "size_mb": 40, "fairness": 0.9}],
            "near": [{"loss": 2, "size_mb": 4.43, "fairness": 0.79}],
            "silent": [{"loss": 3}],
            "empty": [],
        },
        constraints={"size_mb": "<= 4", "fairness": ">= 0.8"},
    )
    message = (
        "no trial is feasible: 2 of 3 miss size_mb <= 4, 1 of 3 miss fairness >= 0.8, size_mb is "
        "not reported by 1 of 3, fairness is not reported by 1 of 3; the closest is far: size_mb "
        "40 misses <= 4 by 36; feasible=False compares the trials all the same"
    )
    with pytest.raises(RuntimeError, match=f"^{message}$"):
        results.get_best_result()
    with pytest.raises(
        RuntimeError, match=r"the closest is near: size_mb 4\.43 misses <= 4 by 0.43"
    ):
        results[1:].get_best_result()


def test_no_trial_is_the_closest_where_none_has_reported_all_metrics(make):
    constraints = outcome_constraints({"size_mb": [">= 1", "<= 4"], "fairness": ">= 0.8"})
    trials = [make.trial("t1", [{"size_mb": 9}]), make.trial("t2", [{"loss": 1}])]
    assert why_none_feasible(trials, constraints) == (
        "no trial is feasible: 1 of 2 miss size_mb <= 4, size_mb is not reported by 1 of 2, "
        "fairness is not reported by 2 of 2"
    )


def test_a_metric_with_two_bounds_is_told_once_where_it_is_not_reported(make):
    constraints = outcome_constraints({"size_mb": [">= 1", "<= 4"]})
    assert why_infeasible(make.trial("t1", [{"size_mb": 0.5}]), constraints) == (
        "size_mb 0.5 misses >= 1 by 0.5"
    )
    assert why_infeasible(make.trial("t2", [{"loss": 1}]), constraints) == (
        "size_mb, to be >= 1 and <= 4, is not reported"
    )
    assert why_infeasible(make.trial("t3", [{"size_mb": math.nan}]), constraints) == (
        "size_mb nan misses >= 1, size_mb nan misses <= 4"
    )


def test_the_best_trial_keeps_both_bounds_of_a_metric(grid):
    results = grid(
        {
            "small": [{"loss": 1, "size_mb": 0.5}],
            "kept": [{"loss": 3, "size_mb": 2}],
            "large": [{"loss": 2, "size_mb": 5}],
        },
        constraints={"size_mb": [">= 1", "<= 4"]},
    )
    assert results.get_best_result().trial_id == "kept"
    assert [result.violations for result in results] == [
        {"size_mb >= 1": 0.5},
        {},
        {"size_mb <= 4": 1},
    ]
    assert results.constraints == {"size_mb": [">= 1", "<= 4"]}


def test_what_a_trial_misses_is_told_with_its_value(make):
    constraints = outcome_constraints({"size_mb": "<= 4", "fairness": ">= 0.8"})
    trial = make.trial("t1", [{"size_mb": 4.43, "fairness": math.nan}])
    assert why_infeasible(trial, constraints) == (
        "size_mb 4.43 misses <= 4 by 0.43, fairness nan misses >= 0.8"
    )
    assert why_infeasible(make.trial("t2"), constraints[:1]) == (
        "size_mb, to be <= 4, is not reported"
    )
    feasible = make.trial("t3", [{"size_mb": 4, "fairness": 1}])
    assert why_infeasible(feasible, constraints) == ""
    assert why_none_feasible([trial, feasible], constraints) == ""
    assert why_none_feasible([make.trial("t4")], constraints) == ""
    assert why_none_feasible([], constraints) == why_none_feasible([trial], ()) == ""


def test_the_only_trial_is_not_returned_where_it_is_not_feasible(grid):
    results = grid({"t1": [{"loss": 1, "size_mb": 9}]}, metric=None, mode=None)
    with pytest.raises(RuntimeError, match="no trial is feasible: 1 of 1 miss size_mb <= 4"):
        results.get_best_result()
    assert results.get_best_result(feasible=False).trial_id == "t1"
    with pytest.warns(RuntimeWarning, match="no best trial, as no trial is feasible: 1 of 1 miss"):
        assert ExperimentAnalysis(results).best_trial is None


def test_the_table_has_a_column_of_feasible_trials_only_where_there_are_constraints(grid):
    reported = {"t1": [{"loss": 1, "size_mb": 9}], "t2": [{"loss": 2, "size_mb": 1}], "t3": []}
    frame = grid(reported).get_dataframe()
    assert frame["feasible"].tolist() == [False, True, False]
    assert frame["feasible"].dtype == bool
    assert list(frame.columns).index("status") == list(frame.columns).index("feasible") + 1
    assert "feasible" not in grid(reported, None).get_dataframe()


def test_the_front_has_feasible_trials_only(grid):
    results = grid(
        {
            "big": [{"accuracy": 0.99, "latency_ms": 1, "size_mb": 9}],
            "slow": [{"accuracy": 0.9, "latency_ms": 50, "size_mb": 4}],
            "worse": [{"accuracy": 0.7, "latency_ms": 20, "size_mb": 3}],
            "quick": [{"accuracy": 0.8, "latency_ms": 10}, {"size_mb": 2}],
        },
        metric=None,
        mode=None,
        several=SEVERAL,
    )
    assert ids(results.get_best_results()) == ["slow", "quick"]
    frame = results.pareto()
    assert list(frame.columns) == ["trial_id", "accuracy", "latency_ms", "size_mb"]
    assert frame.to_numpy().tolist() == [["slow", 0.9, 50, 4], ["quick", 0.8, 10, 2]]
    assert results.get_best_result("accuracy").trial_id == "slow"


def test_the_hypervolume_grows_with_feasible_trials_that_are_better_than_the_reference(grid):
    results = grid(
        {
            "first": [{"accuracy": 0.8, "latency_ms": 20, "size_mb": 1}],
            "big": [{"accuracy": 0.99, "latency_ms": 1, "size_mb": 9}],
            "second": [{"accuracy": 0.9, "latency_ms": 30, "size_mb": 1}],
            "outside": [{"accuracy": 0.4, "latency_ms": 5, "size_mb": 1}],
        },
        metric=None,
        mode=None,
        several=SEVERAL,
    )
    frame = results.hypervolume({"latency_ms": 40, "accuracy": 0.5})
    assert frame["hypervolume"].tolist() == pytest.approx([6, 6, 7, 7])
    assert frame["num_trials"].tolist() == [1, 2, 3, 4]
    assert frame["trial_id"].tolist() == ["first", "big", "second", "outside"]
    assert frame.attrs["reference"] == {"accuracy": 0.5, "latency_ms": 40}
    default = results.hypervolume()
    assert default.attrs["reference"] == pytest.approx({"accuracy": 0.35, "latency_ms": 32.5})
    assert default["hypervolume"].iloc[0] == pytest.approx((0.8 - 0.35) * (32.5 - 20))
    nothing = results[1:2].hypervolume()
    assert nothing["hypervolume"].tolist() == [0]


def test_the_default_reference_is_beyond_values_that_are_all_equal(grid):
    reported = {"accuracy": 0.5, "latency_ms": 0, "size_mb": 1}
    results = grid({"t1": [reported], "t2": [reported]}, metric=None, mode=None, several=SEVERAL)
    frame = results.hypervolume()
    assert frame.attrs["reference"] == pytest.approx({"accuracy": 0.45, "latency_ms": 1 / 10})
    assert frame["hypervolume"].tolist() == pytest.approx([0.005, 0.005])


def test_numbers_of_numpy_are_numbers_in_references_and_weights(grid):
    results = grid(
        {"t1": [{"accuracy": 0.75, "latency_ms": 20}], "t2": [{"accuracy": 0.5, "latency_ms": 8}]},
        None,
        metric=None,
        mode=None,
        several=SEVERAL,
    )
    reference = {"accuracy": np.float32(0.25), "latency_ms": np.int64(40)}
    assert results.hypervolume(reference)["hypervolume"].iloc[-1] == 0.5 * 20 + 0.25 * 12
    weights = {"accuracy": np.float32(0), "latency_ms": np.array(1)}
    assert results.get_best_result(weights=weights).trial_id == "t2"


@pytest.mark.parametrize("names", [[], ["t1", "t2"]])
def test_the_front_is_empty_before_anything_is_reported(grid, names):
    results = grid({name: [] for name in names}, metric=None, mode=None, several=SEVERAL)
    assert results.pareto().columns.tolist() == ["trial_id", "accuracy", "latency_ms", "size_mb"]
    assert len(results.pareto()) == len(results.get_best_results()) == 0
    assert results.hypervolume({"accuracy": 0.5, "latency_ms": 40})["hypervolume"].sum() == 0
    assert results.hypervolume().attrs["reference"] == {}
    assert len(results.plot.data.pareto()) == 0
    with pytest.raises(RuntimeError, match="no trial reported a result"):
        results.get_best_result(weights={"accuracy": 1})
    if names:
        with pytest.raises(ValueError, match="metric must be one that a trial reported"):
            results.pareto(["accuracy", "size_mb"], ["max", "min"])


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        ([0.5, 40], TypeError, "must be a dictionary by metric"),
        ({"accuracy": 0.5}, ValueError, "a finite number for each of accuracy, latency_ms"),
        ({"accuracy": 0.5, "latency_ms": math.inf}, ValueError, "a finite number for each"),
        ({"accuracy": "0.5", "latency_ms": 40}, ValueError, "a finite number for each"),
    ],
)
def test_a_reference_that_is_no_point_is_refused(grid, reference, error, message):
    results = grid(
        {"t1": [{"accuracy": 0.8, "latency_ms": 20}]}, None, metric=None, several=SEVERAL
    )
    with pytest.raises(error, match=message):
        results.hypervolume(reference)


def test_there_is_nothing_to_weigh_in_an_experiment_with_one_metric(grid):
    with pytest.raises(ValueError, match=r"weights must be left out, .*; name one metric, or take"):
        grid({"one": [{"loss": 1, "size_mb": 1}]}).get_best_result(weights={"loss": 1})


def test_weights_choose_a_trial_of_the_front(grid):
    results = grid(
        {
            "big": [{"accuracy": 1.0, "latency_ms": 0, "size_mb": 9}],
            "accurate": [{"accuracy": 0.9, "latency_ms": 100, "size_mb": 1}],
            "balanced": [{"accuracy": 0.8, "latency_ms": 40, "size_mb": 1}],
            "quick": [{"accuracy": 0.5, "latency_ms": 20, "size_mb": 1}],
        },
        metric=None,
        mode=None,
        several=SEVERAL,
    )

    def chosen(accuracy, latency_ms, **more):
        weights = {"accuracy": accuracy, "latency_ms": latency_ms}
        return results.get_best_result(weights=weights, **more).trial_id

    assert chosen(0.7, 0.3) == "balanced"
    assert chosen(1, 0) == "accurate"
    assert chosen(0.02, 0.98) == "quick"
    assert chosen(0.7, 0.3, feasible=False) == "big"
    assert results.get_best_result(weights={"accuracy": 1}).trial_id == "accurate"
    for weights in ({"size_mb": 1}, {"accuracy": 0}, {"accuracy": -1}, {"accuracy": math.nan}, {}):
        with pytest.raises(
            ValueError, match="weights must be numbers from 0 on, not all of them 0"
        ):
            results.get_best_result(weights=weights)
    with pytest.raises(TypeError, match="weights must be a dictionary by metric"):
        results.get_best_result(weights=[0.7, 0.3])
    with pytest.raises(ValueError, match="metric, mode and scope must be left out with weights"):
        results.get_best_result("accuracy", weights={"accuracy": 1})
    with pytest.raises(RuntimeError, match="no trial is feasible"):
        results[:1].get_best_result(weights={"accuracy": 1})


def test_constraints_are_known_to_the_grid_that_fit_returns_and_to_one_read_back(experiment):
    grid = experiment("limited")
    for known in (grid, ResultGrid.from_directory(grid.experiment_path)):
        assert known.constraints == LIMIT
        assert known.objectives == (("accuracy", "max"), ("latency_ms", "min"))
        frame = known.get_dataframe()
        assert frame["feasible"].tolist() == (frame["size_mb"] <= 4).tolist()
        best = frame[frame["feasible"]].sort_values("accuracy", kind="stable").iloc[-1]
        assert known.get_best_result("accuracy").trial_id == best["trial_id"]
        assert frame["accuracy"].max() > best["accuracy"]
        front = known.pareto()
        assert ids(known.get_best_results()) == front["trial_id"].tolist()
        assert (front["size_mb"] <= 4).all()
        volumes = known.hypervolume()
        assert len(volumes) == len(known)
        assert volumes["hypervolume"].is_monotonic_increasing
        assert volumes["hypervolume"].iloc[-1] > 0
        assert volumes["time_s"].is_monotonic_increasing


def test_a_printed_grid_says_which_trials_are_feasible(grid):
    reported = {"t1": [{"loss": 1, "size_mb": 9}, {"loss": 2}], "t2": [{"loss": 3, "size_mb": 1}]}
    _, heading, *lines = repr(grid(reported)).splitlines()
    assert heading.split() == [
        "trial_id",
        "status",
        "training_iteration",
        "feasible",
        "loss",
        "size_mb",
    ]
    assert [line.split()[3:] for line in lines] == [["no", "2", "9"], ["yes", "3", "1"]]
    assert ">feasible<" in grid(reported)._repr_html_()
    assert "feasible" not in repr(grid(reported, None))
    both = {"t1": [{"accuracy": 0.5, "latency_ms": 3}]}
    several = repr(grid(both, None, metric=None, mode=None, several=SEVERAL)).splitlines()[1]
    assert several.split()[-2:] == ["accuracy", "latency_ms"]


@pytest.mark.process
def test_constraints_and_metrics_that_a_restore_has_changed_count(tmp_path):
    def train(config):
        width = config["width"]
        tune.report({"loss": 1 / width, "cost": width, "size_mb": width})

    def goals(**more):
        return tune.TuneConfig(mode="min", search_alg="random", **more)

    first = tune.Tuner(
        train,
        param_space={"width": tune.grid_search([8, 4, 2])},
        tune_config=goals(metric="loss", constraints=LIMIT),
        run_config=tune.RunConfig(
            name="changed", storage_path=tmp_path, verbose=0, executor="inline"
        ),
    ).fit()
    assert first.get_best_result().config == {"width": 4}
    path = first.experiment_path
    tighter = goals(metric="loss", constraints={"size_mb": "<= 2"})
    for known in (
        tune.Tuner.restore(path, train, tune_config=tighter).fit(),
        ResultGrid.from_directory(path),
    ):
        assert known.get_best_result().config == {"width": 2}
    both = goals(metric=["loss", "cost"], constraints=LIMIT)
    for known in (
        tune.Tuner.restore(path, train, tune_config=both).fit(),
        ResultGrid.from_directory(path),
    ):
        assert known.pareto()["config/width"].tolist() == [4, 2]
