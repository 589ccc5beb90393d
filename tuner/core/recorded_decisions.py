"""Decisions as they are recorded, those of schedulers and the one to end the experiment.

Schedulers know nothing of records, so what `Annotated` says elsewhere stands here for theirs.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from tuner.wire.declared import CONFIG, FLAT, OPTIONAL, Key, Tagged, declare, tagged
from tuner.wire.record import record

declare(Reason, rule=(), numbers=Key("n"))
declare(Stop, "stop", trial_id=Key("id"), reason=FLAT, is_complete=OPTIONAL)
declare(Pause, "pause", trial_id=Key("id"), reason=FLAT)
declare(Resume, "resume", trial_id=Key("id"), reason=FLAT)
declare(Save, "save", trial_id=Key("id"), reason=FLAT)
declare(
    Exploit,
    "exploit",
    trial_id=Key("id"),
    donor_id=Key("donor"),
    config=CONFIG,
    checkpoint=(),
    reason=FLAT,
)
declare(Resize, "resize", trial_id=Key("id"), reason=FLAT)


@tagged("stop_all")
@record
class StopExperiment:
    """End the experiment.

    Attributes:
        reason: Why.
    """

    reason: Annotated[Reason, FLAT]


@record
class RecordedDecision:
    """A decision, and the question that it answers.

    Attributes:
        question: Number of the question among those that the event raised, from 0. An event may
            raise several, and the answers to the first ones determine which follow.
        decision: What was decided.
    """

    question: int
    decision: Decision | StopExperiment


DECISIONS: Final[Tagged[Decision | StopExperiment]] = Tagged(
    "k", (*get_args(Decision), StopExperiment)
)
"""All decisions, by their kinds."""
