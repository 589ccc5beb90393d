"""Journals of experiments whose checkpoints were validated, made of those of real runs."""

import shutil

from tuner.core.events import Outcome, TurnEnded, ValidationEnded
from tuner.core.worker_records import Failure
from tuner.journal import records
from tuner.journal.reader import read
from tuner.journal.writer import Journal
from tuner.storage import layout

FAILED = Failure("ValueError", "no data", "Traceback: here")


def validate(experiment, validations):
    """Rewrite the journal of a finished experiment as if its checkpoints had been validated.

    Args:
        experiment: Its directory.
        validations: For each trial, by the index of the checkpoint, what the function returned; a
            failure if it raised that; None if it has not ended.
    """
    rewrite(experiment, _with_validations(read(experiment), validations))


def rewrite(experiment, bodies):
    """Replace the journal of a finished experiment."""
    bodies = [
        {name: value for name, value in body.items() if name not in ("q", "e")} for body in bodies
    ]
    for folder in (layout.JOURNAL, layout.SNAPSHOT):
        shutil.rmtree(experiment / folder, ignore_errors=True)
    with Journal(experiment, sync="process") as journal:
        journal.append(*bodies)


def _with_validations(bodies, validations):
    requested = []
    for body in bodies:
        if body["k"] == "exited":
            # One after the other, in the order in which they were asked for.
            for trial_id, index, outcome in requested:
                yield _ended(trial_id, index, outcome, body["t"])
                yield records.encode(TurnEnded(), body["t"])
            requested.clear()
        wanted = validations.get(body.get("id"), {})
        index = body["c"]["index"] if body["k"] == records.RESULT and body["c"] else None
        if index in wanted and wanted[index] is not None:
            requested.append((body["id"], index, wanted[index]))
        yield {**body, "v": {}} if index in wanted else body


def _ended(trial_id, index, outcome, at_s):
    has_failed = isinstance(outcome, Failure)
    event = ValidationEnded(
        trial_id,
        index,
        1,
        Outcome.FAILED if has_failed else Outcome.COMPLETED,
        None if has_failed else outcome,
        outcome if has_failed else None,
    )
    return records.encode(event, at_s)
