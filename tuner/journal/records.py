"""Encoding and decoding of events and decisions as records of the journal.

A body is a flat dictionary of JSON values: ``t`` the stamp (seconds of experiment time), ``k`` the
kind, then the event's own fields, then ``d``, what was decided on it, if anything; ``on`` says
which of the questions that the event raised a decision answers, where it was not the first. How
events and decisions are written is declared with them. The journal puts sequence and epoch in
front. Beside events there are *marks*, made by the driver: ``open`` and ``close`` frame the life of
one driver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from schedulers.decisions import Exploit
from tuner.core.events import (
    EVENTS,
    CheckpointCommitted,
    CheckpointSaved,
    Event,
    ResultReported,
    TrialSuggested,
    TurnEnded,
    ValidationEnded,
)
from tuner.core.recorded_decisions import DECISIONS, RecordedDecision
from tuner.errors import StorageError
from tuner.wire.declared import Body, Malformed, Translate, tag_of

OPEN: Final = "open"
CLOSE: Final = "close"
"""Kinds of records that are no events."""
RESULT: Final = tag_of(ResultReported)
SAVED: Final = tag_of(CheckpointSaved)
COMMITTED: Final = tag_of(CheckpointCommitted)
VALIDATED: Final = tag_of(ValidationEnded)
ROUTINE_END: Final = tag_of(TurnEnded)
"""Field of a record before which a turn ended in routine, see `TurnEnded`: when it ended, in
seconds."""


def encode(
    event: Event,
    stamp: float,
    recorded: Sequence[RecordedDecision] = (),
    translate: Translate = dict,
) -> Body:
    """Return the record of an event.

    Args:
        event: What happened.
        stamp: When, in seconds of experiment time.
        recorded: What was decided on it.
        translate: Puts configurations into JSON values.
    """
    body = EVENTS.put(event, {"t": stamp}, translate)
    if recorded:
        body["d"] = [_advice_fields(said, translate) for said in recorded]
    return body


def _advice_fields(said: RecordedDecision, translate: Translate) -> Body:
    fields = DECISIONS.encode(said.decision, translate)
    if said.question:
        fields["on"] = said.question
    return fields


def with_configs(
    event: Event, recorded: Sequence[RecordedDecision], translate: Translate
) -> tuple[Event, Sequence[RecordedDecision]]:
    """Return event and recorded with the configurations in them brought back from JSON values."""
    if isinstance(event, TrialSuggested):
        event = replace(event, config=translate(event.config))
    if recorded and any(isinstance(said.decision, Exploit) for said in recorded):
        recorded = tuple(_with_config(said, translate) for said in recorded)
    return event, recorded


def _with_config(said: RecordedDecision, translate: Translate) -> RecordedDecision:
    decision = said.decision
    return (
        replace(said, decision=replace(decision, config=translate(decision.config)))
        if isinstance(decision, Exploit)
        else said
    )


def mark(kind: str, stamp: float, **facts: Any) -> Body:
    """Return a record that is no event: `OPEN` or `CLOSE`, with facts for people."""
    return {"t": stamp, "k": kind, **facts}


def is_event(body: Mapping[str, Any]) -> bool:
    """Return whether the record is one that `decode` understands, and not a mark."""
    return body.get("k") not in (OPEN, CLOSE)


def decode(body: Mapping[str, Any]) -> tuple[Event, float, tuple[RecordedDecision, ...]]:
    """Return event, stamp and what was decided of a record.

    Raises:
        StorageError: If the record is of a kind or shape that this version does not know.
    """
    kind = body.get("k")
    if not EVENTS.knows(kind):
        raise StorageError(
            f"record {body.get('q')} is of the unknown kind {kind!r:.80}, which a newer version "
            "can read"
        )
    try:
        return EVENTS.decode(body), stamp_of(body), tuple(map(_decision, body.get("d", ())))
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as cause:
        what = f"{cause!s:.200}" if isinstance(cause, Malformed) else f"{cause!r:.200}"
        raise StorageError(
            f"record {body.get('q')} of kind {kind!r} is not as this version writes it "
            f"({what}); a newer version wrote it, or it was changed on purpose, as its checksum is "
            "right"
        ) from cause


def _decision(fields: Body) -> RecordedDecision:
    return RecordedDecision(fields.get("on", 0), DECISIONS.decode(fields))


def stamp_of(body: Mapping[str, Any], name: str = "t") -> float:
    """Return when the record was written, or another time in it, in seconds of experiment time.

    Raises:
        StorageError: If it is no finite number.
    """
    stamp = body.get(name)
    try:
        if isinstance(stamp, int | float) and math.isfinite(stamp):
            return float(stamp)
    except OverflowError:  # an integer beyond all floats
        pass
    what = f"record {body.get('q')} of kind {body.get('k')!r:.80} is not as this version writes it"
    raise StorageError(f"{what}: {name!r} is {stamp!r:.80}; a newer version wrote it")
