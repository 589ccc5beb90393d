"""Results numbered with gaps: which count, through retries, restores and exploits."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Exploit, Reason, Resume
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler
from tuner.analysis.frames import MetricsTable, TableTrial
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.events import DriverRestarted, Outcome, ResultReported, WorkerStarted
from tuner.core.trial import Trial, trial_fields, trial_from
from tuner.core.worker_records import CheckpointRecord
from tuner.journal.records import encode
from tuner.journal.rows import JournalRows, MemoryRows, histories_of
from tuner.journal.writer import Journal

A, B = "t00000", "t00001"


def begin_again(talk, trial_id):
    talk.say(WorkerStarted(trial_id, talk.trial(trial_id).attempt, 1))


def test_results_are_counted_and_not_what_they_are_numbered():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.report(A, 10, CheckpointRecord(0, 10))
    talk.report(A, 20, CheckpointRecord(1, 20))
    talk.report(A, 30)
    assert talk.trial(A).num_rows == 3
    talk.exit(A, Outcome.FAILED, BOOM)
    begin_again(talk, A)
    assert (talk.trial(A).num_rows, talk.trial(A).resumed_iteration) == (3, 20)
    talk.report(A, 45)
    assert talk.trial(A).num_rows == 3
    talk.report(A, 46)
    assert talk.trial(A).num_rows == 4


def test_an_exploit_keeps_what_was_reported_before_it():
    why = Reason("test")
    script = {(B, 40): [Exploit(B, A, {"x": 2}, why), Resume(B, why)]}
    talk = Conversation(
        ScriptedScheduler(script), max_trials=2, max_failures=2, checkpoints=CheckpointPolicy()
    )
    talk.begin(2)
    talk.report(A, 100, CheckpointRecord(0, 100))
    talk.report(B, 20, CheckpointRecord(0, 20))
    talk.report(B, 40)
    talk.exit(B, Outcome.STOPPED)
    begin_again(talk, B)
    for iteration, num_rows in ((150, 3), (200, 4)):
        talk.report(B, iteration, CheckpointRecord(iteration // 50 - 2, iteration))
        assert talk.trial(B).num_rows == num_rows
    talk.report(B, 250)
    talk.exit(B, Outcome.FAILED, BOOM)
    begin_again(talk, B)
    talk.report(B, 260)
    assert talk.trial(B).num_rows == 5
    assert (talk.trial(B).grafts[0].num_rows, talk.trial(B).grafts[0].from_iteration) == (2, 100)


def test_a_snapshot_of_an_earlier_release_counts_on_without_gaps():
    trial = Trial(A, {}, {})
    trial.attempt = 1
    for iteration in (1, 2, 3):
        trial.summarise({"training_iteration": iteration})
    trial.checkpoints.append(CheckpointRecord(0, 2))
    fields = trial_fields(trial)
    del fields["resumed_row"], fields["reported_attempt"]
    running, again = trial_from(fields), trial_from(fields)
    running.summarise({"training_iteration": 4})
    assert running.num_rows == 4
    again.attempt += 1
    again.go_back_to_source()
    again.summarise({"training_iteration": 3})
    again.summarise({"training_iteration": 4})
    assert again.num_rows == 4


@pytest.mark.property
@given(st.data())
def test_as_many_results_count_as_the_journal_has(data):
    """The rows count, however attempts number their results, end and continue.

    A journal of an earlier release, which lacks the rows, is read alike.
    """
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory) / name for name in ("now", "earlier")]
        with (
            Journal(places[0], sync="process") as now,
            Journal(places[1], sync="process") as earlier,
        ):
            train_with_gaps(talk, data, places, (now, earlier))


def train_with_gaps(talk, data, places, journals):
    num_saved = 0
    for _ in range(data.draw(st.integers(1, 5))):
        trial = talk.trial(A)
        resumed = iteration = trial.resumed_iteration
        for step in data.draw(st.lists(st.integers(1, 9), max_size=5)):
            iteration += step
            has_checkpoint = data.draw(st.booleans())
            talk.report(
                A, iteration, CheckpointRecord(num_saved, iteration) if has_checkpoint else None
            )
            num_saved += has_checkpoint
            metrics = {
                "training_iteration": iteration,
                "iterations_since_restore": iteration - resumed,
            }
            for journal, row in zip(journals, (trial.num_rows, None), strict=True):
                journal.append(
                    encode(ResultReported(A, trial.attempt, metrics, row=row), stamp=0.0)
                )
                journal.flush()
        rows, num_rows = JournalRows(places[0]), talk.trial(A).num_rows
        assert num_rows == len(rows.of(A))
        assert rows.of(A) == JournalRows(places[1]).of(A)
        assert num_rows == len(MetricsTable([TableTrial(A, {}, done=False)], rows).of(A))
        if data.draw(st.booleans()):
            talk.exit(A, Outcome.FAILED, BOOM)
        else:
            talk.say(DriverRestarted(talk.experiment.settings))
        while talk.trial(A).worker == "ABSENT":
            talk.say(after_s=100.0)
        begin_again(talk, A)


def test_rows_in_memory_are_counted_alike():
    trial = Trial(A, {}, {})
    rows = MemoryRows({A: [{"training_iteration": 10}, {"training_iteration": 20}]})
    assert histories_of([trial]) == {}
    assert [row["training_iteration"] for row in rows.of(A)] == [10, 20]
