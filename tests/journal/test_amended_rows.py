"""Results whose checkpoints are stored or validated after they were reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.events import (
    CheckpointCommitted,
    CheckpointSaved,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.journal import records
from tuner.journal.rows import History, JournalRows
from tuner.journal.writer import Journal

TRIAL = "t00000"


def result(iteration, *, checkpoint=None, upload=None, validates=False, attempt=1, of=TRIAL):
    """Return a report of this iteration, with a checkpoint of this index."""
    named = {} if checkpoint is None else {"checkpoint_dir_name": f"checkpoint_{checkpoint:06d}"}
    return ResultReported(
        of,
        attempt,
        {"training_iteration": iteration, "loss": 1 / iteration, **named},
        None if checkpoint is None else CheckpointRecord(checkpoint, iteration),
        upload=upload,
        validation=ValidationRequest() if validates else None,
    )


def validated(index, metrics, outcome=Outcome.COMPLETED, num_try=1, of=TRIAL):
    failure = None if outcome is Outcome.COMPLETED else Failure("ValueError", "no")
    return ValidationEnded(of, index, num_try, outcome, metrics, failure)


def written(path, events):
    with Journal(path, sync="process") as writer:
        writer.append(records.mark(records.OPEN, 0.0, pid=1))
        for number, event in enumerate(events):
            writer.append(records.encode(event, float(number)))
    return JournalRows(path)


def both(rows, *, trial_id=TRIAL):
    """Return the trial's results as `of` and as `reported` give them, which have to agree."""
    current = rows.of(trial_id)
    for are_few in (False, True):
        reported = rows.reported([trial_id], are_few=are_few)
        assert [row | {"num_exploits": branch} for _, branch, _, row in reported] == current
    return [{name: row[name] for name in row if name != "num_exploits"} for row in current]


def test_a_validation_belongs_to_the_result_of_its_checkpoint(tmp_path):
    rows = written(
        tmp_path,
        [
            result(1, checkpoint=0, validates=True),
            result(2, checkpoint=1, validates=True),
            result(3),
            validated(0, {"acc": 0.5}),
            validated(1, {"acc": 0.75}),
        ],
    )
    assert [row.get("acc") for row in both(rows)] == [0.5, 0.75, None]


def test_values_of_the_validation_replace_reported_ones_and_none_of_the_engine(tmp_path):
    more = {"loss": 9.0, "val": {"f1": 0.5}, "training_iteration": 77, "config": {"x": 1}}
    rows = written(tmp_path, [result(1, checkpoint=0, validates=True), validated(0, more)])
    assert both(rows) == [
        {
            "training_iteration": 1,
            "loss": 9.0,
            "val": {"f1": 0.5},
            "checkpoint_dir_name": "checkpoint_000000",
        }
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.KILLED, Outcome.LOST])
def test_a_validation_that_did_not_complete_changes_nothing(tmp_path, outcome):
    events = [result(1, checkpoint=0, validates=True), validated(0, None, outcome), result(2)]
    assert both(written(tmp_path, events)) == [event.metrics for event in events[::2]]


def test_a_validation_that_was_tried_again_counts_when_it_completes(tmp_path):
    rows = written(
        tmp_path,
        [
            result(1, checkpoint=0, validates=True),
            validated(0, None, Outcome.FAILED),
            result(2),
            validated(0, {"acc": 0.5}, num_try=2),
        ],
    )
    assert [row.get("acc") for row in both(rows)] == [0.5, None]


def test_a_checkpoint_that_was_stored_later_is_named_in_its_result(tmp_path):
    named = CheckpointRecord(1, 2, name="best")
    rows = written(
        tmp_path,
        [
            result(1, upload=0, validates=True),
            result(2, upload=1),
            result(3, upload=2),
            CheckpointCommitted(TRIAL, 1, CheckpointRecord(0, 1)),
            CheckpointCommitted(TRIAL, 1, named),
            validated(0, {"acc": 0.5}),
        ],
    )
    found = both(rows)
    assert [row.get("checkpoint_dir_name") for row in found] == ["checkpoint_000000", "best", None]
    assert [row.get("acc") for row in found] == [0.5, None, None]


def test_a_validation_may_outlive_its_attempt(tmp_path):
    rows = written(
        tmp_path,
        [
            WorkerStarted(TRIAL, 1, 7),
            result(1, checkpoint=0, validates=True),
            result(2),
            WorkerStarted(TRIAL, 2, 8),
            result(2, attempt=2),
            validated(0, {"acc": 0.5}),
            result(3, attempt=2),
        ],
    )
    assert [row.get("acc") for row in rows.of(TRIAL)] == [0.5, None, None]
    assert [row.get("acc") for _, _, _, row in rows.reported([TRIAL])] == [0.5, None, None, None]


def test_results_that_wait_for_their_validation_do_not_hold_up_other_trials(tmp_path):
    other = "t00001"
    rows = written(
        tmp_path,
        [
            result(1, checkpoint=0, validates=True),
            result(1, of=other),
            result(2),
            result(2, of=other),
            result(3, of=other),
        ],
    )
    trials = [trial_id for trial_id, *_ in rows.reported([TRIAL, other])]
    assert trials == [other, other, TRIAL, TRIAL, other]


def test_results_do_not_wait_for_a_validation_that_has_failed_for_good(tmp_path):
    other = "t00001"
    events = [
        result(1, checkpoint=0, validates=True),
        validated(0, None, Outcome.FAILED),
        result(2),
        result(1, of=other),
        result(3),
        result(2, of=other),
    ]
    written(tmp_path, events)
    rows = JournalRows(tmp_path, {TRIAL: History(failed_validations=frozenset({0}))})
    trials = [trial_id for trial_id, *_ in rows.reported([TRIAL, other])]
    assert trials == [TRIAL, TRIAL, other, TRIAL, other]


def test_a_validation_of_an_unknown_checkpoint_is_passed_over(tmp_path):
    events = [result(1), validated(4, {"acc": 1.0}), validated(0, {"acc": 1.0}, of="t00009")]
    assert both(written(tmp_path, events)) == [events[0].metrics]


def test_a_checkpoint_saved_on_request_does_not_take_the_validation_of_another(tmp_path):
    rows = written(
        tmp_path,
        [
            result(1, checkpoint=0, validates=True),
            CheckpointSaved(TRIAL, 1, CheckpointRecord(1, 1)),
            validated(0, {"acc": 0.5}),
        ],
    )
    assert [row["acc"] for row in rows.of(TRIAL)] == [0.5]


@given(st.permutations(range(5)), st.integers(0, 5), st.sets(st.integers(0, 4)))
def test_the_order_in_which_validations_end_does_not_matter(
    tmp_path_factory, ends, num_before, uploads
):
    reports = [
        result(
            index + 1,
            checkpoint=None if index in uploads else index,
            upload=index if index in uploads else None,
            validates=True,
        )
        for index in range(5)
    ]
    commits = [
        CheckpointCommitted(TRIAL, 1, CheckpointRecord(index, index + 1))
        for index in sorted(uploads)
    ]
    ended = [validated(index, {"acc": float(index)}) for index in ends]
    rows = written(
        tmp_path_factory.mktemp("journal"),
        [*reports, *ended[:num_before], *commits, *ended[num_before:], result(6)],
    )
    found = both(rows)
    assert [row.get("acc") for row in found] == [0.0, 1.0, 2.0, 3.0, 4.0, None]
    assert [row.get("checkpoint_dir_name") for row in found][:5] == [
        f"checkpoint_{index:06d}" for index in range(5)
    ]
