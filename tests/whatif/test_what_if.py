"""Answers of what-if, with numbers that can be checked by hand."""

import json
import math

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler, HyperBandScheduler, MOASHAScheduler
from schedulers.decisions import Reason
from searchers.objectives import outcome_constraints
from tuner.whatif import ReplayEnding, TimedValue

ASHA = {"max_t": 4, "reduction_factor": 2, "type": "stopping"}


@pytest.fixture
def late_bloomer(record, worlds):
    """Three trials of four results at one a second; the second begins badly and ends best."""
    return record(
        worlds.World(
            [[1.0, 0.9, 0.8, 0.7], [2.0, 0.5, 0.1, 0.05], [3.0, 2.9, 2.8, 2.7]], [1.0, 1.0, 1.0]
        )
    )


def test_time_and_iterations_are_told_as_they_were_in_full_and_under_the_scheduler(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA))
    accounts = (answer.recorded, answer.in_full, answer.replayed)
    assert [totals.wall_clock_s for totals in accounts] == [12.0, 12.0, 6.0]
    assert [totals.worker_s for totals in accounts] == [12.0, 12.0, 6.0]
    assert [totals.num_iterations for totals in accounts] == [12, 12, 6]
    assert (answer.saved_s, answer.saved_share, answer.saved_worker_s, answer.drift) == (
        6.0,
        0.5,
        6.0,
        0.0,
    )


def test_lost_quality_is_given_in_units_of_the_metric_and_as_a_rank(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA))
    assert (answer.in_full.best_value, answer.replayed.best_value) == (0.05, 0.7)
    assert answer.regret == pytest.approx(0.65)
    assert (answer.chosen.trial_id, answer.chosen_rank) == ("t00000", 2)


def test_trials_are_judged_by_their_last_values(record, worlds):
    # The first one is best at its second iteration, the second one in the end.
    recorded = record(
        worlds.World(
            [[1.0, 0.01, 2.9, 2.9], [2.0, 0.5, 0.2, 0.1], [3.0, 3.0, 3.0, 3.0]], [1.0, 1.0, 1.0]
        )
    )
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert (
        recorded.grid.get_best_result().trial_id
        == answer.best_recorded.trial_id
        == answer.in_full.best_trial_id
        == "t00001"
    )
    assert answer.best_recorded.ending is ReplayEnding.STOPPED
    assert (
        answer.replayed.best_trial_id,
        answer.replayed.best_value,
        answer.replayed.best_at_any_iteration,
    ) == ("t00001", 2.0, 0.01)
    assert answer.regret == pytest.approx(1.9)
    assert [(trial.recorded_last, trial.last, trial.best) for trial in answer.trials] == [
        (2.9, 2.9, 0.01),
        (0.1, 2.0, 2.0),
        (3.0, 3.0, 3.0),
    ]
    told = [line.split() for line in answer.lines()]
    assert ["best", "trial", "t00001", "t00001", "t00001"] in told
    assert ["its", "last", "loss", "0.1", "0.1", "2"] in told
    assert ["best", "at", "any", "iteration", "0.01", "0.01", "0.01"] in told


def test_a_trial_that_is_stopped_before_it_gets_worse_loses_nothing(record, worlds):
    recorded = record(worlds.World([[0.5, 1.0, 2.0, 3.0], [0.6, 5.0, 5.0, 5.0]], [1.0, 1.0]))
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert (answer.best_recorded.trial_id, answer.chosen.trial_id, answer.chosen_rank) == (
        "t00000",
        "t00001",
        2,
    )
    assert answer.regret == pytest.approx(-2.4)
    assert (
        "the trial chosen is t00001, rank 2 of 2 as recorded; it is stopped earlier, and its "
        "last loss" in str(answer)
    )


def test_the_best_recorded_trial_is_followed_to_its_end(late_bloomer):
    best = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA)).best_recorded
    assert (best.trial_id, best.ending, best.iterations, best.recorded_iterations) == (
        "t00001",
        ReplayEnding.STOPPED,
        1,
        4,
    )
    assert best.reason.rule == "asha.rung"
    assert (best.reason.numbers["value"], best.reason.numbers["cutoff"]) == (2.0, 1.0)
    assert (best.recorded_best, best.best) == (0.05, 2.0)


def test_the_best_so_far_is_given_over_time(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA))
    assert answer.replayed.progress == tuple(
        TimedValue(at_s, value, "t00000")
        for at_s, value in zip((1, 2, 3, 4), (1.0, 0.9, 0.8, 0.7), strict=True)
    )
    assert answer.recorded.progress == answer.in_full.progress
    assert [(point.time_s, point.value) for point in answer.in_full.progress[4:]] == [
        (6.0, 0.5),
        (7.0, 0.1),
        (8.0, 0.05),
    ]
    frame = answer.progress_dataframe()
    assert list(frame.columns) == ["run", "time_s", "value", "trial_id"]
    assert frame["run"].value_counts().to_dict() == {"recorded": 7, "in full": 7, "replayed": 4}


def test_nothing_is_lost_without_comparisons(late_bloomer):
    answer = tune.what_if(late_bloomer.path, FIFOScheduler())
    assert (answer.saved_s, answer.regret, answer.chosen_rank) == (0.0, 0.0, 1)
    assert answer.num_by_ending == {
        ReplayEnding.COMPLETED: 3,
        ReplayEnding.STOPPED: 0,
        ReplayEnding.FAILED: 0,
        ReplayEnding.RAN_OUT: 0,
    }
    assert (
        "No quality is lost: the trial chosen is t00001, whose last loss is the best recorded one"
        in answer.lines()
    )


def test_a_scheduler_may_be_named_with_its_arguments(late_bloomer):
    named, made = (
        tune.what_if(late_bloomer.path, "asha", **ASHA),
        tune.what_if(late_bloomer.grid, ASHAScheduler(**ASHA)),
    )
    assert named.as_dict() == made.as_dict()
    assert named.scheduler == "ASHAScheduler(max_t=4, reduction_factor=2, type='stopping')"


def test_more_slots_make_both_clocks_faster(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA), slots=3)
    assert (answer.num_slots, answer.in_full.wall_clock_s, answer.replayed.wall_clock_s) == (
        3,
        4.0,
        4.0,
    )
    assert (answer.recorded.wall_clock_s, answer.drift) == (12.0, None)


def test_another_metric_may_count(late_bloomer):
    answer = tune.what_if(
        late_bloomer.path, ASHAScheduler(**ASHA), metric="nested/loss", mode="max"
    )
    assert (answer.metric, answer.mode, answer.replayed.best_value, answer.in_full.best_value) == (
        "nested/loss",
        "max",
        -0.7,
        -0.05,
    )
    own = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA, metric="nested/loss", mode="max"))
    assert own.as_dict() == {**answer.as_dict(), "scheduler": own.scheduler}


def test_a_scheduler_with_several_metrics_is_measured_by_the_experiments(late_bloomer):
    answer = tune.what_if(
        late_bloomer.path, MOASHAScheduler({"loss": "min", "nested/loss": "max"}, max_t=4)
    )
    assert (answer.metric, answer.replayed.best_value) == ("loss", 0.7)


class TestTradeOffs:
    @pytest.fixture
    def grid(self, record, worlds):
        """Three trials on the front, of which one has the lowest loss late, and a dominated one."""

        class Costly(worlds.World):
            def curve(self, config):
                for result in super().curve(config):
                    yield {**result, "cost": [1.0, 2.0, 3.0, 4.0][config["number"]]}

        losses = [[4.0, 4.0, 4.0], [3.0, 2.0, 2.0], [9.0, 9.0, 9.0], [5.0, 5.0, 0.0]]
        read = record(Costly(losses, [1.0] * 4)).grid
        several = (("loss", "min"), ("cost", "min"))
        return tune.ResultGrid(read.trials, read.experiment_path, read[0].rows, several=several)

    def test_moasha_compares_the_metrics_of_the_experiment(self, grid):
        answer = tune.what_if(grid, "moasha", max_t=3, reduction_factor=3, type="stopping")
        assert (answer.metric, answer.mode) == ("loss", "min")
        assert [trial.iterations for trial in answer.trials] == [3, 3, 1, 1]
        assert answer.trade_off.front_in_full == ["t00003", "t00001", "t00000"]
        assert answer.trade_off.front == ["t00001", "t00000"]
        # From the reference (9.9, 4.3): 9.9 * 0.3 + 7.9 * 2 + 5.9 * 1 in full.
        share = (7.9 * 2.3 + 5.9) / (9.9 * 0.3 + 7.9 * 2 + 5.9)
        assert answer.trade_off.hypervolume_share == pytest.approx(share)
        told = str(answer)
        assert (
            f"Front of loss (min), cost (min): {share:.1%} of the recorded hypervolume, and 2 of "
            "the 3 trials on the recorded front"
        ) in told
        assert "told by 'loss', the first of several metrics; name another one with metric=" in told
        assert json.loads(json.dumps(answer.as_dict()))["trade_off"]["front"] == [
            "t00001",
            "t00000",
        ]

    def test_a_metric_that_is_named_is_the_one_that_is_told(self, grid):
        answer = tune.what_if(grid, "fifo", metric="cost")
        assert (answer.replayed.best_trial_id, answer.mode) == ("t00000", "min")
        assert answer.trade_off.hypervolume_share == 1.0
        assert "first of several" not in str(answer)

    def test_without_a_feasible_trial_there_is_no_front(self, grid):
        limited = tune.ResultGrid(
            grid.trials,
            grid.experiment_path,
            grid[0].rows,
            several=grid.objectives,
            constraints=outcome_constraints({"cost": "<= 0"}),
        )
        found = tune.what_if(limited, "fifo").trade_off
        assert (found.front, found.hypervolume_share) == ([], None)
        assert (
            found.sentence
            == "No feasible trial has a finite value of each of loss (min), cost (min)"
        )

    def test_one_metric_is_no_trade_off(self, late_bloomer):
        answer = tune.what_if(late_bloomer.path, "fifo")
        assert answer.trade_off is None
        assert "trade_off" not in answer.as_dict()


def test_the_constraints_of_the_experiment_count(record, worlds):
    world = worlds.World(
        [[1.0, 0.9, 0.8, 0.7], [2.0, 0.5, 0.1, 0.05], [3.0, 2.9, 2.8, 2.7]], [1.0, 1.0, 1.0]
    )
    # The loss has to be at least 1.5.
    recorded = record(world, constraints={"nested/loss": "<= -1.5"})
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert [trial.iterations for trial in answer.trials] == [4, 2, 4]
    assert answer.trials[1].reason.numbers["violation"] == pytest.approx(2 / 3)


def test_pauses_and_promotions_are_counted(record, worlds):
    recorded = record(
        worlds.World([[3.0, 3.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]], [1.0] * 3), can_save=True
    )
    answer = tune.what_if(recorded.path, HyperBandScheduler(max_t=3))
    # The three of the first bracket meet at level 1; the last one completes the rung, goes on and
    # is not paused.
    assert (answer.num_pauses, answer.num_resumes) == (2, 0)
    assert [(trial.ending, trial.iterations, trial.num_pauses) for trial in answer.trials] == [
        (ReplayEnding.STOPPED, 1, 1),
        (ReplayEnding.STOPPED, 1, 1),
        (ReplayEnding.COMPLETED, 3, 0),
    ]
    assert not answer.supposes_saves


def test_trials_that_saved_nothing_are_paused_all_the_same_and_the_answer_says_so(late_bloomer):
    answer = tune.what_if(late_bloomer.path, HyperBandScheduler(max_t=4, reduction_factor=2))
    assert answer.supposes_saves
    assert answer.num_pauses > 0
    assert answer.caveats[0].startswith("the recorded trials saved no checkpoints")


def test_a_scheduler_that_can_do_without_pauses_does_without(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(max_t=4, reduction_factor=2))
    assert (answer.num_pauses, answer.supposes_saves) == (0, False)
    assert "ASHA stops trials at its levels for good" in answer.remarks[0]


def test_a_trial_fails_where_it_failed_unless_it_is_stopped_before(record, worlds):
    recorded = record(
        worlds.World([[1.0] * 4, [2.0] * 4, [0.5, 0.5]], [1.0] * 3, frozenset({1, 2}))
    )
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert [trial.ending for trial in answer.trials] == [
        ReplayEnding.COMPLETED,
        ReplayEnding.STOPPED,
        ReplayEnding.FAILED,
    ]
    # The third needs its third second to fail in, as it did.
    assert (answer.replayed.wall_clock_s, answer.recorded.wall_clock_s) == (
        4.0 + 1.0 + 3.0,
        4.0 + 5.0 + 3.0,
    )


def test_a_trial_that_never_reported_and_values_that_are_no_numbers_are_no_trouble(
    record, worlds, monkeypatch
):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    recorded = record(worlds.World([[], [math.nan, math.nan], [math.inf, 1.0]], [1.0] * 3))
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert [trial.recorded_best for trial in answer.trials] == [None, None, 1.0]
    assert answer.trials[0].recorded_iterations == answer.trials[0].iterations == 0
    json.dumps(answer.as_dict(), allow_nan=False)


def test_retries_count_once_and_are_told(record, worlds):
    calls = []

    class Moody(worlds.World):
        def curve(self, config):
            calls.append(config["number"])
            yield {"loss": 1.0}
            if len(calls) == 1:
                raise ValueError("once")
            yield {"loss": 0.5}

    recorded = record(Moody([[1.0, 0.5]], [1.0]), failure={"max_failures": 1})
    answer = tune.what_if(recorded.path, FIFOScheduler())
    assert (
        answer.replayed.num_iterations,
        answer.replayed.wall_clock_s,
        answer.recorded.wall_clock_s,
    ) == (2, 2.0, 4.0)
    assert any(
        "attempts that failed and were tried again: 1" in caveat for caveat in answer.caveats
    )
    assert any("50% less" in caveat for caveat in answer.caveats)


def test_a_grid_may_be_a_part_of_an_experiment(late_bloomer):
    answer = tune.what_if(late_bloomer.grid[1:], FIFOScheduler())
    assert [trial.trial_id for trial in answer.trials] == ["t00001", "t00002"]
    assert (answer.replayed.wall_clock_s, answer.recorded.num_iterations, answer.drift) == (
        8.0,
        8,
        None,
    )
    assert answer.caveats == (
        "1 of 3 trials never ran, or are not among the results given, and are left out",
    )


def test_the_table_of_trials_has_a_row_for_each(late_bloomer):
    frame = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA)).dataframe()
    assert list(frame["trial_id"]) == ["t00000", "t00001", "t00002"]
    assert list(frame["fate"]) == ["completed", "stopped_early", "stopped_early"]
    assert list(frame["iterations"]) == [4, 1, 1]
    assert frame["reason"][1].startswith("asha.rung (rung=1, value=2, cutoff=1")
    assert "numbers" not in frame


def test_the_answer_is_strict_json(late_bloomer):
    answer = tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA))
    fields = json.loads(json.dumps(answer.as_dict(), allow_nan=False))
    assert fields["replayed"]["wall_clock_s"] == 6.0
    assert answer.num_by_fate == answer.num_by_ending
    assert [trial.fate for trial in answer.trials] == [trial.ending for trial in answer.trials]
    assert fields["num_by_fate"] == {"completed": 1, "stopped_early": 2, "failed": 0, "ran_out": 0}
    assert (fields["chosen"], fields["best_recorded"], fields["chosen_rank"]) == (
        "t00000",
        "t00001",
        2,
    )
    assert fields["trials"][1]["rule"] == "asha.rung"
    assert (
        Reason(fields["trials"][1]["rule"], fields["trials"][1]["numbers"])
        == answer.trials[1].reason
    )


def test_the_answer_reads_well_on_a_terminal(late_bloomer):
    lines = str(tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA))).splitlines()
    assert lines[1] == "3 trials, 1 at once, loss to be minimised"
    assert [line.split() for line in lines[3:6]] == [
        ["as", "it", "ran", "in", "full", "replayed", "saved"],
        ["running", "time", "12s", "12s", "6s", "6s", "(50", "%)"],
        ["time", "of", "workers", "12s", "12s", "6s", "6s", "(50", "%)"],
    ]
    assert (
        "Quality lost: 0.65 of loss; the trial chosen is t00000, rank 2 of 3 as recorded" in lines
    )
    assert any(
        line.startswith(
            "The best recorded trial, t00001, is stopped at iteration 1 of 4: asha.rung ("
        )
        for line in lines
    )


def test_several_schedulers_are_compared(late_bloomer):
    comparison = tune.what_if(late_bloomer.path, {"asha": ASHAScheduler(**ASHA), "nobody": "fifo"})
    assert list(comparison) == ["asha", "nobody"]
    assert (
        comparison["asha"].as_dict()
        == tune.what_if(late_bloomer.path, ASHAScheduler(**ASHA)).as_dict()
    )
    frame = comparison.dataframe()
    assert list(frame["wall_clock_s"]) == [6.0, 12.0]
    assert list(frame["num_stopped"]) == [2, 0]
    rows = [line.split() for line in comparison.lines()]
    assert ["asha", "6s", "50", "%", "6", "0.7", "0.65", "t00000", "2", "2", "0"] in rows
    assert ["in", "full", "12s", "-", "12", "0.05", "-", "-", "-", "-", "-"] in rows
    assert set(comparison.as_dict()) == {"asha", "nobody"}


class HalvesAtTwo:
    """A scheduler of Ray Tune that stops trials at iteration 2 if they are not the best so far."""

    def __init__(self):
        self.best = float("inf")

    def on_trial_result(self, tune_controller, trial, result):
        is_worse = result["training_iteration"] == 2 and result["loss"] > self.best
        self.best = min(self.best, result["loss"])
        return "STOP" if is_worse else "CONTINUE"


def test_a_scheduler_with_the_signatures_of_ray_tune_answers_as_it_would_have_run(record, worlds):
    world = worlds.World([[3, 2, 1], [5, 4, 3], [2, 1, 0.5]], [1.0, 1.0, 1.0])
    recorded = record(world)
    scheduler = HalvesAtTwo()
    answer = tune.what_if(recorded.path, scheduler)
    assert [len(result.metrics_dataframe) for result in record(world, HalvesAtTwo()).grid] == [
        3,
        2,
        3,
    ]
    assert answer.replayed.num_iterations == 8
    assert answer.scheduler == "HalvesAtTwo(...)"
    # The scheduler is left as it is.
    assert tune.what_if(recorded.path, scheduler).replayed.num_iterations == 8
    assert tune.what_if(recorded.path, {"halves": scheduler})["halves"].replayed.num_iterations == 8


def test_a_scheduler_with_the_signatures_of_ray_tune_that_has_run_is_refused(record, worlds):
    world = worlds.World([[3, 2, 1], [5, 4, 3]], [1.0, 1.0])
    scheduler = HalvesAtTwo()
    recorded = record(world, scheduler)
    with pytest.raises(
        ValueError,
        match=r"scheduler must not have run before, got .*HalvesAtTwo.*, which has; construct "
        r"another one",
    ):
        tune.what_if(recorded.path, scheduler)


def test_a_scheduler_class_is_to_be_called(record, worlds):
    recorded = record(worlds.World([[3, 2, 1]], [1.0]))
    with pytest.raises(TypeError, match="call it"):
        tune.what_if(recorded.path, HalvesAtTwo)
