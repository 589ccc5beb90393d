"""What the driver appends is read back, and superseded checkpoints go once it is safe."""

import pytest

from tuner.core.events import TurnEnded, WorkerStarted
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import JournalLog
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
