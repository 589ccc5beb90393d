"""What the driver appends is read back, and superseded checkpoints go once it is safe."""

import math

import pytest

from tuner.core.events import TurnEnded, WorkerStarted
from tuner.core.settings import ExperimentSettings
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import BEAT_S, JournalLog, beat_for
from tuner.journal.reader import read_events
from tuner.journal.writer import Journal


@pytest.mark.parametrize("policy", ["strict", "group", "process"])
def test_a_checkpoint_is_deleted_when_its_successor_is_as_safe_as_records_become(tmp_path, policy):
    deleted = []
    with Journal(tmp_path, sync=policy, has_syncer=False) as journal:
        deleter = CheckpointDeleter(journal, deleted.append)
        log = JournalLog(journal, deleter)
        log.append(TurnEnded(), 0.0, ())
        deleter.delete(tmp_path / "checkpoint_000000")
        assert deleted == []
        log.flush()
        if policy == "group":
            assert deleted == []
            journal.sync()
            log.flush()
        assert deleted == [tmp_path / "checkpoint_000000"]


def test_turns_that_changed_nothing_are_read_back_with_the_time_of_the_first_in_a_row(tmp_path):
    def started(number):
        return WorkerStarted(f"t{number:05}", 1, pid=7)

    noop = TurnEnded(is_noop=True)
    with Journal(tmp_path, sync="process") as journal:
        log = JournalLog(journal, CheckpointDeleter(journal, print))
        for at_s, event in enumerate(
            [started(0), noop, noop, started(1), started(2), TurnEnded(), noop], start=1
        ):
            log.append(event, float(at_s), ())
        log.close(8.0)
    *found, closed = read_events(tmp_path)
    assert closed.event is None
    assert [(each.event, each.at_s) for each in found] == [
        (started(0), 1.0),
        (TurnEnded(), 2.0),
        (started(1), 4.0),
        (started(2), 5.0),
        (TurnEnded(), 6.0),
        (noop, 7.0),
    ]


def test_a_journal_that_is_silent_for_long_tells_until_when_its_driver_ran(tmp_path):
    noop = TurnEnded(is_noop=True)
    with Journal(tmp_path, sync="process") as journal:
        log = JournalLog(journal, CheckpointDeleter(journal, print), beat_s=10.0)
        log.append(WorkerStarted("t00000", 1, pid=7), 3.0, ())
        for at_s in range(4, 36):
            log.append(noop, float(at_s), ())
            log.flush()
        # The driver is killed here.
    assert [(each.event, each.at_s) for each in read_events(tmp_path)] == [
        (WorkerStarted("t00000", 1, pid=7), 3.0),
        (TurnEnded(), 4.0),
        (noop, 13.0),
        (TurnEnded(), 14.0),
        (noop, 23.0),
        (TurnEnded(), 24.0),
        (noop, 33.0),
    ]


@pytest.mark.parametrize(
    ("limits", "beat_s"),
    [({}, math.inf), ({"budget": {"gpu_hours": 9.0}}, BEAT_S), ({"time_budget_s": 60.0}, BEAT_S)],
)
def test_only_where_time_is_limited_the_journal_is_never_silent_for_long(limits, beat_s):
    assert beat_for(ExperimentSettings(capacity={"cpu": 1.0}, **limits)) == beat_s
