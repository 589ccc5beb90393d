"""Key figures of an experiment."""

import math

import pytest

from tuner.analysis.charts.source import Source
from tuner.analysis.charts.summary import failed, saving, slowest, summarize
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure
from tuner.journal.rows import MemoryRows


@pytest.fixture
def source(tmp_path):
    return lambda trials, metric="loss", mode="min": Source(
        trials, MemoryRows({}), str(tmp_path), metric, mode
    )


def timed(make, name, num_results, *, pace_s=2.0, ending=TerminationReason.COMPLETED):
    results = [
        {"loss": 1.0 / number, "time_total_s": pace_s * number}
        for number in range(1, num_results + 1)
    ]
    return make.trial(name, results, ending=ending)


def test_the_best_trial_and_the_counts_are_told(make, source, tmp_path):
    trials = [
        timed(make, "a", 3),
        timed(make, "b", 9),
        make.failed("c"),
        timed(make, "d", 1, ending=TerminationReason.STOPPED_EARLY),
    ]
    told = summarize(source(trials))
    assert (told.name, told.path, told.best_trial_id, told.best_value) == (
        tmp_path.name,
        str(tmp_path),
        "b",
        pytest.approx(1 / 9),
    )
    assert told.num_by_state == {"completed": 2, "failed": 1, "stopped early": 1}
    assert (told.num_trials, told.num_iterations, told.run_s, told.wall_s) == (4, 13, 26.0, None)


def test_early_stopping_saves_the_iterations_that_stopped_trials_lack(make, source):
    stopped = timed(make, "b", 2, pace_s=3.0, ending=TerminationReason.STOPPED_EARLY)
    found = saving(source([timed(make, "a", 10), stopped]))
    assert (found.num_trials, found.full_iterations, found.iterations, found.time_s) == (
        1,
        10,
        8,
        24.0,
    )
    assert found.share == pytest.approx(24 / (24 + 20 + 6))


def test_nothing_is_saved_where_nothing_was_stopped_early(make, source):
    assert saving(source([timed(make, "a", 3)])) is None
    assert saving(source([make.trial("a", ending=TerminationReason.STOPPED_EARLY)])) is None
    assert saving(source([])) is None


def test_an_empty_experiment_has_a_summary(source):
    told = summarize(source([], metric=None, mode=None))
    assert (told.best_trial_id, told.num_trials, told.run_s, told.saving) == (None, 0, 0.0, None)
    assert math.isnan(told.best_value)


def test_times_of_a_journal_count_all_attempts(experiment):
    grid = experiment("pbt")
    source = grid._source()
    attempts = source.timeline.attempts
    assert summarize(source).run_s == pytest.approx(
        sum(attempt.end_s - attempt.start_s for attempt in attempts)
    )
    assert summarize(source).wall_s == source.timeline.end_s


def test_the_slowest_come_first(make, source):
    found = slowest(source([timed(make, "a", 1), timed(make, "b", 5), timed(make, "c", 2)]), 2)
    assert [(one.trial_id, one.run_s, one.share) for one in found] == [
        ("b", 10.0, 10 / 16),
        ("c", 4.0, 4 / 16),
    ]


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], "unknown"),
        ([Failure("ValueError", "boom", "Traceback\nValueError: boom")], "ValueError: boom"),
        (
            [Failure("A", "first"), Failure("ValueError", "no luck\nsecond line  \n\n")],
            "second line",
        ),
        ([Failure("killed by SIGKILL", "", "last words")], "killed by SIGKILL"),
    ],
)
def test_a_failure_is_described_by_its_last_line(make, source, failures, expected):
    trial = make.trial("a", status=Status.ERROR, ending=TerminationReason.FAILED)
    trial.failures = failures
    [found] = failed(source([trial, make.trial("b")]))
    assert (found.trial_id, found.error) == ("a", expected)


def test_the_log_is_an_existing_file(experiment):
    found = failed(experiment("plain")._source())
    assert [one.trial_id for one in found] == [
        trial.trial_id for trial in experiment("plain").trials if trial.num_failures
    ]
    assert all(one.log.endswith(f"{one.trial_id}/error.txt") for one in found)
    assert all(
        "no luck" in one.error and "\n" not in one.error and one.training_iteration == 3
        for one in found
    )
