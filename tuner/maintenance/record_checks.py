"""Consistency of a journal's records of checkpoints, validations, worker groups and leases.

Each record verifies by itself; whether it fits those before it is checked here. A replay passes
over what refers to nothing, so a contradiction shows that the journal was changed, or has lost
records.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tuner.core.events import Outcome
from tuner.core.worker_records import WorkerGroup
from tuner.journal.records import COMMITTED, RESULT, SAVED, VALIDATED
from tuner.wire.declared import decode

_ROUNDING: Final = 1e-6


@dataclass(slots=True)
class _KnownTrial:
    """What records have said of a trial.

    Attributes:
        num_rows: How many results count so far; None where they were recorded without their rows.
        announced: Indices of checkpoints that were reported and are yet to be stored.
        stored: Indices of checkpoints that have been stored.
        requested: Indices of checkpoints that are to be validated.
        validated: Indices of checkpoints whose validation has completed.
        leases: The tokens of leases that were asked for and not given back.
    """

    num_rows: int | None = 0
    announced: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    requested: set[int] = field(default_factory=set)
    validated: set[int] = field(default_factory=set)
    leases: set[Hashable] = field(default_factory=set)


def contradictions(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what does not fit in the records of a journal, each as half a sentence.

    Args:
        records: All of them, from the first on.
    """
    trials: dict[str, _KnownTrial] = {}
    for record in records:
        try:
            found = list(_contradictions_of(record, trials))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            found = [f"is not as this release writes it: {error!r}"]
        yield from (f"record {record.get('q')} {what}" for what in found)


def _contradictions_of(record: Mapping[str, Any], trials: dict[str, _KnownTrial]) -> Iterator[str]:
    kind = record["k"]
    if kind in ("suggested", "forked"):
        trials.setdefault(record["id"], _KnownTrial())
        yield from _of_group(record)
    elif kind in _CHECKS:
        trial = trials.get(record["id"])
        if trial is None:
            yield f"is of trial {record['id']!r}, which was never suggested"
        else:
            yield from _CHECKS[kind](record, trial)


def _of_group(record: Mapping[str, Any]) -> Iterator[str]:
    if not (fields := record.get("group")):
        return
    group = decode(WorkerGroup, fields)
    if not 1 <= group.min_workers <= group.num_workers <= group.max_workers:
        yield (
            f"gives trial {record['id']} {group.num_workers} workers, and between "
            f"{group.min_workers} and {group.max_workers} are possible"
        )
    total, given = group.total, record["resources"]
    if any(abs(total.get(name, 0.0) - given.get(name, 0.0)) > _ROUNDING for name in total | given):
        yield f"gives trial {record['id']} {given}, and its workers ask for {total}"


def _of_result(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    row, num_rows = record.get("row"), trial.num_rows
    if row is not None and num_rows is not None and not 1 <= row <= num_rows + 1:
        yield f"gives trial {record['id']} row {row} behind {num_rows} rows"
    trial.num_rows = row
    index = record["c"]["index"] if record["c"] else record.get("upload")
    if record.get("v") is not None:
        if index is None:
            yield f"asks trial {record['id']} to validate a result without a checkpoint"
        else:
            trial.requested.add(index)
    if index is None:
        return
    if index in trial.stored | trial.announced:
        yield f"reports checkpoint {index} of trial {record['id']} a second time"
    (trial.stored if record["c"] else trial.announced).add(index)


def _of_saved(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    index = record["c"]["index"]
    if index in trial.stored:
        yield f"stores checkpoint {index} of trial {record['id']} a second time"
    trial.stored.add(index)


def _of_commit(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    index = record["c"]["index"]
    if index not in trial.announced:
        again = "a second time" if index in trial.stored else "which was never reported"
        yield f"stores checkpoint {index} of trial {record['id']}, {again}"
    trial.announced.discard(index)
    trial.stored.add(index)


def _of_validation(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    index = record["index"]
    what = f"validates checkpoint {index} of trial {record['id']}, "
    if index in trial.announced:
        yield f"{what}which was not stored by then"
    elif index not in trial.stored:
        yield f"{what}which was never reported"
    elif index not in trial.requested:
        yield f"{what}which nothing has asked for"
    elif index in trial.validated:
        yield f"{what}which was validated before"
    if Outcome(record["outcome"]) is Outcome.COMPLETED:
        trial.validated.add(index)


def _of_lease_request(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    token = (record["of"], record["token"])
    if token in trial.leases:
        yield f"asks for lease {record['token']!r} of trial {record['id']} a second time"
    if record["of"] is not None and record["of"] not in trial.requested:
        yield (
            f"asks for a lease for the validation of checkpoint {record['of']} of trial "
            f"{record['id']}, which nothing has asked for"
        )
    trial.leases.add(token)


def _of_lease_release(record: Mapping[str, Any], trial: _KnownTrial) -> Iterator[str]:
    token = (record["of"], record["token"])
    if token not in trial.leases:
        yield f"gives back lease {record['token']!r} of trial {record['id']}, which it has not got"
    trial.leases.discard(token)


_CHECKS: Final = {
    RESULT: _of_result,
    SAVED: _of_saved,
    COMMITTED: _of_commit,
    VALIDATED: _of_validation,
    "lease_requested": _of_lease_request,
    "lease_released": _of_lease_release,
}
