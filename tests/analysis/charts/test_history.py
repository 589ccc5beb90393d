"""History, trade-offs and slots."""

import math
from itertools import pairwise

import pytest

from tuner.analysis.charts.history import history_over_time, history_over_trials
from tuner.analysis.charts.pareto import checked_objectives, pareto
from tuner.analysis.charts.plots import PlotData
from tuner.analysis.charts.slots import run_intervals
from tuner.analysis.charts.source import Source
from tuner.analysis.charts.timeline import TimedAttempt
from tuner.journal.rows import MemoryRows


@pytest.fixture
def source(make, tmp_path):
    def build(reported, mode="min"):
        trials = [make.trial(name, results) for name, results in reported.items()]
        return Source(trials, MemoryRows({}), str(tmp_path), "loss", mode)

    return build


def test_over_trials_the_best_so_far_never_gets_worse(source):
    steps = history_over_trials(
        source(
            {
                "a": [{"loss": math.nan}],
                "b": [{"loss": 0.5}, {"loss": 0.7}],
                "c": [{"loss": 0.6}],
                "d": [],
            }
        )
    )
    assert [(step.trial_number, step.trial_id) for step in steps] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    assert [step.best for step in steps[1:]] == [0.5, 0.5, 0.5]
    assert [math.isnan(step.value) for step in steps] == [True, False, False, True]
    assert steps[1].value == 0.5
    assert [step.time_s for step in steps] == [None] * 4


def test_over_trials_larger_may_be_better(source):
    steps = history_over_trials(
        source({"a": [{"loss": 1.0}], "b": [{"loss": 3.0}], "c": [{"loss": 2.0}]}, mode="max")
    )
    assert [step.best for step in steps] == [1.0, 3.0, 3.0]


def test_over_time_the_history_has_each_improvement_and_the_end(experiment):
    grid = experiment("asha")
    source = grid._source()
    steps = history_over_time(source)
    assert [step.best for step in steps[:-1]] == sorted({step.best for step in steps}, reverse=True)
    assert steps[-1].time_s == source.timeline.end_s
    assert steps[-1].best == min(trial.summary["loss"].min for trial in grid.trials)
    assert [step.time_s for step in steps] == sorted(step.time_s for step in steps)


def test_a_history_is_over_time_or_over_trials(source):
    with pytest.raises(ValueError, match="over must be 'time' or 'trials', got 'epochs'"):
        PlotData(source({})).history("epochs")


def both(values):
    return {name: [{"loss": loss, "size": size}] for name, (loss, size) in values.items()}


def test_no_trial_beats_the_front_in_both_metrics(source):
    values = {
        "a": (1.0, 9.0),
        "b": (2.0, 5.0),
        "c": (3.0, 5.0),
        "d": (2.0, 5.0),
        "e": (4.0, 1.0),
        "f": (5.0, 5.0),
        "g": (1.0, 10.0),
    }
    found = pareto(source(both(values)), (("loss", "min"), ("size", "min")))
    assert [point.trial_id for point in found if point.is_on_front] == ["a", "b", "d", "e"]
    found = pareto(source(both(values)), (("loss", "max"), ("size", "min")))
    assert [point.trial_id for point in found if point.is_on_front] == ["e", "f"]


def test_trials_without_a_finite_value_of_both_have_no_place(source):
    reported = both({"a": (1.0, math.nan), "b": (math.inf, 1.0), "c": (1.0, 1.0)}) | {
        "d": [{"loss": 1.0}]
    }
    assert [
        point.trial_id for point in pareto(source(reported), (("loss", "min"), ("size", "min")))
    ] == ["c"]


@pytest.mark.parametrize(
    ("metrics", "modes", "message"),
    [
        (("loss", "loss"), ("min", "min"), "at least two different ones"),
        (("loss",), ("min",), "must be at least two different ones"),
        (("loss", "size"), None, "modes.1. must be 'min' or 'max', got None"),
        (None, None, "metrics must be given, as the experiment does not have several objectives"),
        (None, ("min", "min"), "modes must be given with metrics"),
        (("loss", "size"), ("min", "lower"), "modes.1. must be 'min' or 'max', got 'lower'"),
        (("loss", "sizes"), ("min", "min"), "got 'sizes'; did you mean 'size'"),
    ],
)
def test_a_tradeoff_is_between_known_metrics_with_a_mode_each(source, metrics, modes, message):
    with pytest.raises(ValueError, match=message):
        checked_objectives(source(both({"a": (1.0, 2.0)})), metrics, modes)


def test_runs_that_overlap_have_slots_of_their_own(source):
    experiment = source({"a": [{"loss": 1.0}], "b": [], "c": []})
    experiment.timeline.attempts[:] = [
        TimedAttempt("a", 1, 0.0, 4.0, "stopped", "pause"),
        TimedAttempt("b", 1, 1.0, 3.0, "failed"),
        TimedAttempt("c", 1, 3.0, 5.0, "completed"),
        TimedAttempt("a", 2, 4.0, 6.0, "stopped", "stop"),
        TimedAttempt("b", 2, 4.5, 7.0, "stopped", "exploit"),
    ]
    assert [
        (interval.slot, interval.trial_id, interval.attempt, interval.state)
        for interval in run_intervals(experiment)
    ] == [
        (0, "a", 1, "paused"),
        (1, "b", 1, "failed"),
        (1, "c", 1, "completed"),
        (0, "a", 2, "stopped early"),
        (2, "b", 2, "replaced"),
    ]


@pytest.mark.parametrize("kind", ["asha", "promotion", "pbt"])
def test_no_two_runs_share_a_slot_at_one_time(experiment, kind):
    found = run_intervals(experiment(kind)._source())
    assert found
    for slot in {interval.slot for interval in found}:
        there = sorted(
            (interval.start_s, interval.end_s) for interval in found if interval.slot == slot
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(there))


def test_where_there_is_no_journal_there_are_no_slots(source):
    assert run_intervals(source({"a": [{"loss": 1.0}]})) == []
