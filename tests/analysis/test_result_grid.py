import math
import re

import pandas as pd
import pytest

from tuner.analysis.report.sections import trial_table
from tuner.analysis.result_grid import ResultGrid
from tuner.core.trial import Status, TerminationReason
from tuner.journal.rows import MemoryRows

PATH = "/experiments/one"


@pytest.fixture
def grid(make):
    """Build a grid of trials that reported the given metrics."""

    def build(results_by_trial, metric=None, mode=None, **options):
        trials = [make.trial(trial_id, results) for trial_id, results in results_by_trial.items()]
        rows = MemoryRows(
            {
                trial_id: make.rows(trial_id, results)
                for trial_id, results in results_by_trial.items()
            }
        )
        return ResultGrid(trials, PATH, rows, metric, mode, **options)

    return build


def losses(*values):
    return [{"loss": value} for value in values]


def test_every_trial_of_any_status_is_in_the_grid_in_order_of_creation(make):
    trials = [
        make.failed("t1"),
        make.trial("t2", status=Status.PENDING, ending=None),
        make.trial("t3", losses(1.0), status=Status.PAUSED, ending=None),
        make.trial("t4", losses(1.0)),
        make.trial("t5", losses(1.0), ending=TerminationReason.STOPPED_EARLY),
    ]
    grid = ResultGrid(trials, PATH, MemoryRows({}))
    assert [result.trial_id for result in grid] == ["t1", "t2", "t3", "t4", "t5"]
    assert len(grid) == 5
    assert (grid.num_errors, grid.num_terminated) == (1, 2)
    assert [result.status for result in grid] == [
        "ERROR",
        "PENDING",
        "PAUSED",
        "TERMINATED",
        "TERMINATED",
    ]


def test_only_errors_that_ended_a_trial_are_errors(make):
    recovered = make.trial("t2", losses(1.0), failures=[("OSError", "gone")])
    grid = ResultGrid([make.failed("t1"), recovered], PATH, MemoryRows({}))
    assert [str(error) for error in grid.errors] == ["trial t1 failed: ValueError: boom"]
    assert grid[1].error is None


def test_indices_count_from_either_end_and_slices_are_grids(grid):
    results = grid({"t1": losses(3.0), "t2": losses(1.0), "t3": losses(2.0)}, "loss", "min")
    assert results[0].trial_id == "t1"
    assert results[-1].trial_id == "t3"
    assert [result.trial_id for result in results[::2]] == ["t1", "t3"]
    assert results[::2].get_best_result().trial_id == "t3"
    assert len(results[1:].get_dataframe()) == 2
    with pytest.raises(IndexError):
        results[3]


def test_a_result_is_found_in_the_grid_it_came_from(grid):
    results = grid({"t1": losses(3.0), "t2": losses(1.0)}, "loss", "min")
    assert results.index(results.get_best_result()) == 1
    assert results[0] != results[1]


@pytest.mark.parametrize(("mode", "best"), [("min", "t2"), ("max", "t1")])
def test_the_direction_decides_which_is_best(grid, mode, best):
    assert (
        grid({"t1": losses(3.0), "t2": losses(1.0), "t3": losses(2.0)})
        .get_best_result("loss", mode)
        .trial_id
        == best
    )


def test_metric_and_mode_default_to_those_of_the_experiment(grid):
    results = grid(
        {"t1": [{"loss": 1.0, "accuracy": 0.1}], "t2": [{"loss": 2.0, "accuracy": 0.9}]},
        "loss",
        "min",
    )
    assert results.get_best_result().trial_id == "t1"
    assert results.get_best_result(mode="max").trial_id == "t2"
    assert results.get_best_result("loss").trial_id == "t1"


def test_the_mode_of_one_metric_is_not_taken_for_another(grid):
    results = grid(
        {"t1": [{"loss": 1.0, "accuracy": 0.1}], "t2": [{"loss": 2.0, "accuracy": 0.9}]},
        "loss",
        "min",
    )
    refusal = "got None; pass it, as the experiment does not say whether 'accuracy' is minimised"
    for ask in (
        results.get_best_result,
        results.ranked,
        results.get_dataframe,
        results.get_param_importances,
    ):
        with pytest.raises(ValueError, match=refusal):
            ask("accuracy")
    with pytest.raises(ValueError, match=refusal):
        results.plot.data.history("trials", "accuracy")
    assert results.get_best_result("accuracy", "max").trial_id == "t2"
    assert results.get_dataframe("accuracy", "max")["accuracy"].tolist() == [0.1, 0.9]


def test_a_mode_without_a_metric_counts_for_every_metric(grid):
    results = grid({"t1": [{"accuracy": 0.1}], "t2": [{"accuracy": 0.9}]}, None, "max")
    assert results.get_best_result("accuracy").trial_id == "t2"


def test_each_of_several_objectives_has_its_own_mode_in_tables(grid):
    objectives = (("loss", "min"), ("accuracy", "max"))
    results = grid(
        {"t1": [{"loss": 1.0, "accuracy": 0.1}, {"loss": 0.5, "accuracy": 0.05}]},
        several=objectives,
    )
    assert results.get_dataframe("accuracy")["accuracy"].tolist() == [0.1]
    assert results.get_dataframe("loss")["loss"].tolist() == [0.5]


# Worked by hand. last: 4, 5, 6. Means: 2.5, 5, 4.2. Means of the last five: 2.5, 5, 6. Best: 1, 5,
# 0.
CURVES = {"t1": losses(1, 2, 3, 4), "t2": losses(5, 5), "t3": losses(0, 0, 3, 6, 6, 6, 6, 6)}
LATE = {"t1": losses(*[0] * 6, *[10] * 5), "t2": losses(*[100] * 5, *[6] * 10)}


@pytest.mark.parametrize(
    ("curves", "scope", "lowest", "highest"),
    [
        (CURVES, "last", "t1", "t3"),
        (CURVES, "avg", "t1", "t2"),
        (CURVES, "last-5-avg", "t1", "t3"),
        (CURVES, "all", "t3", "t3"),
        # Means of the last five: 10 against 6; of the last ten: 5 against 6; of all: 50/11 against
        # 560/15.
        (LATE, "last-5-avg", "t2", "t1"),
        (LATE, "last-10-avg", "t1", "t2"),
        (LATE, "avg", "t1", "t2"),
        (LATE, "all", "t1", "t2"),
    ],
)
def test_the_scope_says_which_value_of_a_trial_counts(grid, curves, scope, lowest, highest):
    results = grid(curves)
    assert results.get_best_result("loss", "min", scope).trial_id == lowest
    assert results.get_best_result("loss", "max", scope).trial_id == highest


def report(trial, results):
    """Let a trial report; where iterations come again, a new attempt has gone on."""
    for result in results:
        if result["training_iteration"] <= trial.iteration:
            trial.attempt += 1
            trial.resumed_iteration = trial.resumed_row = result["training_iteration"] - 1
        trial.last_result = result
        trial.summarise(result)


@pytest.mark.parametrize("scope", ["last", "avg", "last-5-avg", "last-10-avg", "all"])
def test_results_that_a_later_attempt_has_superseded_do_not_count(make, scope):
    """The first trial fails after iteration 3 and continues from 1: results 2 and 3 are gone."""
    attempts = [*make.rows("t1", losses(9, -50, -50)), *make.rows("t1", losses(9, 8, 7, 3))[1:]]
    again, steady = make.trial("t1"), make.trial("t2", losses(2, 2, 2, 2))
    report(again, attempts)
    rows = MemoryRows({"t1": attempts, "t2": make.rows("t2", losses(2, 2, 2, 2))})
    assert [row["loss"] for row in rows.of("t1")] == [9, 8, 7, 3]
    assert (
        ResultGrid([again, steady], PATH, rows).get_best_result("loss", "min", scope).trial_id
        == "t2"
    )


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("scope", ["last", "avg", "last-5-avg", "last-10-avg", "all"])
def test_of_equally_good_trials_the_first_one_wins(grid, mode, scope):
    results = grid({"t1": losses(2.0, 2.0), "t2": losses(2.0, 2.0), "t3": losses(2.0, 2.0)})
    assert results.get_best_result("loss", mode, scope).trial_id == "t1"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_values_that_are_not_finite_are_left_out(grid, bad, mode):
    assert (
        grid({"t1": losses(bad), "t2": losses(1.0)}).get_best_result("loss", mode).trial_id == "t2"
    )


@pytest.mark.parametrize(("mode", "best"), [("min", "t2"), ("max", "t3")])
def test_without_the_filter_infinities_are_numbers_and_nan_still_loses(grid, mode, best):
    results = grid({"t1": losses(math.nan), "t2": losses(-math.inf), "t3": losses(math.inf)})
    assert results.get_best_result("loss", mode, filter_nan_and_inf=False).trial_id == best


def test_without_the_filter_a_trial_with_nan_alone_is_returned(grid):
    assert (
        grid({"t1": losses(math.nan), "t2": []})
        .get_best_result("loss", "min", filter_nan_and_inf=False)
        .trial_id
        == "t1"
    )


def test_trials_that_never_reported_the_metric_are_passed_over(grid):
    assert (
        grid({"t1": [{"accuracy": 0.0}], "t2": [], "t3": losses(9.0)})
        .get_best_result("loss", "min")
        .trial_id
        == "t3"
    )


def test_a_failed_trial_can_be_the_best(make):
    trials = [make.failed("t1", losses(1.0)), make.trial("t2", losses(2.0))]
    assert ResultGrid(trials, PATH, MemoryRows({})).get_best_result("loss", "min").trial_id == "t1"


def test_a_nested_metric_is_named_by_its_path(grid):
    results = grid({"t1": [{"val": {"loss": 2.0}}], "t2": [{"val": {"loss": 1.0}}]})
    assert results.get_best_result("val/loss", "min").trial_id == "t2"


def test_the_only_trial_is_returned_unseen_where_no_metric_is_named(grid):
    assert grid({"t1": []}).get_best_result().trial_id == "t1"


def test_the_only_trial_is_judged_where_a_metric_is_named(grid):
    with pytest.raises(RuntimeError, match="no trial has a finite value of 'loss'"):
        grid({"t1": losses(math.nan)}, "loss", "min").get_best_result()
    with pytest.raises(ValueError, match="did you mean 'loss'"):
        grid({"t1": losses(1.0)}).get_best_result("los", "min")


def test_a_metric_that_no_trial_reported_is_refused_with_a_suggestion(grid):
    with pytest.raises(ValueError, match="got 'los'; did you mean 'loss'"):
        grid({"t1": losses(1.0), "t2": losses(2.0)}).get_best_result("los", "min")


def test_a_metric_of_the_experiment_that_no_trial_reported_is_no_argument_error(grid):
    with pytest.raises(RuntimeError, match="got 'los'; did you mean 'loss'"):
        grid({"t1": losses(1.0), "t2": losses(2.0)}, "los", "min").get_best_result()


def test_missing_metric_mode_and_unknown_scope_are_refused(grid):
    results = grid({"t1": losses(1.0), "t2": losses(2.0)})
    with pytest.raises(ValueError, match="metric must be given"):
        results.get_best_result()
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got None"):
        results.get_best_result("loss")
    with pytest.raises(ValueError, match="got 'maximum'; did you mean 'max'"):
        results.get_best_result("loss", "maximum")
    with pytest.raises(
        ValueError, match="scope must be one of last, avg, last-5-avg, last-10-avg, all, got 'best'"
    ):
        results.get_best_result("loss", "min", "best")


def test_no_best_because_all_failed_says_so_with_the_first_failure(make):
    grid = ResultGrid([make.failed("t1"), make.failed("t2")], PATH, MemoryRows({}), "loss", "min")
    with pytest.raises(
        RuntimeError,
        match="no trial reported a result; 2 of 2 ERROR; the first failure was of trial t1: "
        "ValueError: boom",
    ):
        grid.get_best_result()


def test_no_best_because_there_are_no_trials_says_so():
    with pytest.raises(RuntimeError, match="there are no trials"):
        ResultGrid([], PATH, MemoryRows({}), "loss", "min").get_best_result()


def test_no_best_because_all_are_nan_says_so(grid):
    with pytest.raises(
        RuntimeError, match=r"no trial has a finite value of 'loss' \(scope 'last'\)"
    ):
        grid({"t1": losses(math.nan), "t2": losses(math.inf)}).get_best_result("loss", "min")


def test_the_columns_of_the_data_frame_are_golden(make):
    first = {"loss": 1.0, "timestamp": 7, "val": {"acc": 0.5}}
    trials = [
        make.failed("t0", config={"lr": 0.3}),
        make.trial("t1", [first], config={"lr": 0.1, "model": {"depth": 2}}),
        make.trial("t2", [{**first, "late": 3}], config={"lr": 0.2, "momentum": 0.9}),
    ]
    frame = ResultGrid(trials, PATH, MemoryRows({})).get_dataframe()
    assert list(frame.columns) == [
        *["trial_id", "loss", "val/acc", "late", "training_iteration"],
        *["config/lr", "config/model/depth", "config/momentum"],
        *["status", "ending", "error", "done", "timestamp", "logdir"],
    ]
    assert frame["training_iteration"].dtype == "Int64"
    assert frame["ending"].tolist() == ["failed", "completed", "completed"]
    assert frame["error"][0] == "ValueError: boom"
    assert frame["error"].isna().tolist() == [False, True, True]
    assert frame["config/lr"].tolist() == [0.3, 0.1, 0.2]
    assert frame["late"].isna().tolist() == [True, True, False]


def test_every_trial_has_a_row_with_status_and_directory(make):
    trials = [
        make.trial("t1", losses(1.0)),
        make.failed("t2"),
        make.trial("t3", status=Status.PENDING, ending=None, config={"lr": 1}),
        make.trial("t4", losses(2.0), ending=TerminationReason.INTERRUPTED),
    ]
    frame = ResultGrid(trials, PATH, MemoryRows({})).get_dataframe()
    assert frame["trial_id"].tolist() == ["t1", "t2", "t3", "t4"]
    assert frame["status"].tolist() == ["TERMINATED", "ERROR", "PENDING", "TERMINATED"]
    assert frame["logdir"].tolist() == [
        f"{PATH}/{trial_id}" for trial_id in ("t1", "t2", "t3", "t4")
    ]
    assert frame["done"].tolist() == [True, True, False, False]
    assert frame["done"].dtype == bool


def test_if_the_last_result_lacks_the_metric_the_newest_value_is_given_with_its_iteration(grid):
    results = grid(
        {"t1": [{"val": {"loss": 0.5}}, {"val": {"loss": 0.4}}, {"step": 3}], "t2": [{"step": 1}]},
        "val/loss",
        "min",
    )
    frame = results.get_dataframe()
    assert frame["val/loss"].isna().tolist() == [False, True]
    assert (frame["val/loss"][0], frame["metric_iteration"][0], frame["training_iteration"][0]) == (
        0.4,
        2,
        3,
    )
    best = results.get_best_result()
    assert (best.metrics["val/loss"], best.metrics["val"]["loss"], best.metrics["step"]) == (
        0.4,
        0.4,
        3,
    )
    assert (best.best_metrics["val"]["loss"], best.best_metrics["training_iteration"]) == (0.4, 2)


def test_a_grid_without_results_still_has_a_table(make):
    frame = ResultGrid(
        [make.failed("t1", config={"lr": 0.1})], PATH, MemoryRows({})
    ).get_dataframe()
    assert list(frame.columns) == [
        "trial_id",
        "config/lr",
        "status",
        "ending",
        "error",
        "done",
        "logdir",
    ]
    assert ResultGrid([], PATH, MemoryRows({})).get_dataframe().empty


def test_the_data_frame_shows_last_results_by_default(grid):
    assert grid({"t1": losses(1.0, 5.0), "t2": losses(2.0)}, "loss", "min").get_dataframe()[
        "loss"
    ].tolist() == [5.0, 2.0]


@pytest.mark.parametrize(
    ("mode", "best", "iterations"), [("min", [1.0, 2.0], [4, 1]), ("max", [5.0, 2.0], [1, 1])]
)
def test_the_data_frame_shows_the_row_in_which_the_metric_was_best(grid, mode, best, iterations):
    frame = grid({"t1": losses(5.0, 1.0, math.nan, 1.0), "t2": losses(2.0)}).get_dataframe(
        "loss", mode
    )
    assert frame["loss"].tolist() == best
    assert frame["training_iteration"].tolist() == iterations
    assert frame["done"].tolist() == [True, True]


def test_a_trial_without_the_filter_metric_shows_its_last_result(grid):
    frame = grid({"t1": losses(1.0), "t2": [{"other": 1}, {"other": 2}], "t3": []}).get_dataframe(
        "loss", "min"
    )
    assert frame["other"].tolist()[1] == 2
    assert frame["loss"].isna().tolist() == [False, True, True]


def test_the_filter_mode_defaults_to_that_of_the_experiment(grid):
    assert grid({"t1": losses(1.0, 5.0)}, "loss", "min").get_dataframe("loss")["loss"].tolist() == [
        1.0
    ]


def test_a_filter_that_makes_no_sense_is_refused(grid):
    results = grid({"t1": losses(1.0)})
    with pytest.raises(ValueError, match="did you mean 'loss'"):
        results.get_dataframe("los", "min")
    with pytest.raises(ValueError, match="filter_mode must be 'min' or 'max', got None"):
        results.get_dataframe("loss")
    with pytest.raises(ValueError, match="filter_mode='min' needs a filter_metric"):
        results.get_dataframe(filter_mode="min")


def test_the_table_lists_trials_and_cuts_long_grids(grid):
    text = repr(grid({f"t{number}": losses(number / 3) for number in range(30)}, "loss", "min"))
    assert text.startswith(
        "ResultGrid of 30 trials, 30 terminated, 0 failed, in /experiments/one\n"
    )
    assert re.search(r"^trial_id +status +training_iteration +loss$", text, re.MULTILINE)
    assert re.search(r"^t1 +TERMINATED +1 +0\.333333$", text, re.MULTILINE)
    assert text.endswith("... and 10 more")
    assert "t20 " not in text


def test_metrics_of_the_best_result_are_those_of_the_trial(grid):
    best = grid({"t1": losses(3.0), "t2": losses(1.0)}, "loss", "min").get_best_result()
    assert best.metrics["loss"] == 1.0
    assert best.metrics["experiment_tag"] == "tag-t2"
    assert best.metrics["done"] is True
    assert isinstance(best.metrics_dataframe, pd.DataFrame)


def test_paths_and_file_systems_are_those_of_the_experiment(grid):
    pytest.importorskip("fsspec")
    results = grid({"t1": []})
    assert results.experiment_path == PATH
    assert results[0].path == f"{PATH}/t1"
    assert "file" in results.filesystem.protocol
    assert "file" in results[0].filesystem.protocol


def test_on_the_front_results_that_a_later_attempt_has_superseded_do_not_count(make):
    """The first trial fails after iteration 2, and continues from 1 without reporting the loss."""
    attempts = [
        *make.rows("t1", [{"loss": 9, "size": 5}, {"loss": -50, "size": 5}]),
        *make.rows("t1", [{}, {"size": 5}])[1:],
    ]
    again, steady = make.trial("t1"), make.trial("t2", [{"loss": 2, "size": 5}])
    report(again, attempts)
    rows = MemoryRows({"t1": attempts, "t2": make.rows("t2", [{"loss": 2, "size": 5}])})
    grid = ResultGrid([again, steady], PATH, rows, several=(("loss", "min"), ("size", "min")))
    assert [result.trial_id for result in grid.get_best_results()] == ["t2"]
    assert grid.plot.data.pareto()["loss"].tolist() == [9, 2]
    assert [row[3:5] for row in trial_table(grid._source())["rows"]] == [[2, 5], [9, 5]]


def test_several_objectives_are_known_to_the_grid_that_fit_returns_and_to_one_read_back(experiment):
    grid = experiment("tradeoff")
    for known in (grid, ResultGrid.from_directory(grid.experiment_path), grid[:10]):
        assert known.objectives == (("accuracy", "max"), ("size", "min"))
        front = known.get_best_results()
        drawn = known.plot.data.pareto()
        drawn = drawn[drawn["is_on_front"]].sort_values("accuracy", ascending=False, kind="stable")
        assert [result.trial_id for result in front] == drawn["trial_id"].tolist()
        assert 1 < len(front) < len(known)
        assert front[0].metrics["accuracy"] == max(result.metrics["accuracy"] for result in known)
        assert known.get_best_result("size").metrics["size"] == min(
            result.metrics["size"] for result in known
        )
        assert known.get_best_result("accuracy").trial_id == front[0].trial_id
        with pytest.raises(
            ValueError,
            match=r"has 2 objectives: accuracy, size; name one, weigh .* ResultGrid.pareto\(\)",
        ):
            known.get_best_result()
    assert [result.trial_id for result in grid.get_best_results(["size", "other"], ["min", "max"])]
    with pytest.raises(
        ValueError, match=r"does not have several objectives; pass at least two, and their modes"
    ):
        experiment("plain").get_best_results()
    assert experiment("plain").objectives == (("loss", "min"),)


def test_a_notebook_shows_the_trials_as_a_table_in_which_nothing_is_markup(make):
    trials = [
        make.trial(f"t{number}", [{"loss": number / 4}], config={"x": "<b>"})
        for number in range(25)
    ]
    shown = ResultGrid(trials, "/nowhere", MemoryRows({}), "loss", "min")._repr_html_()
    assert shown.count("<tr>") == 21
    assert ("&lt;b&gt;" in shown, "<b>" in shown) == (True, False)
    assert "... and 5 more" in shown
