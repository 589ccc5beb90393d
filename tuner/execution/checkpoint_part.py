"""One worker's part of the checkpoint that the workers of a group report together."""

from __future__ import annotations

import enum
from typing import Annotated

from tuner.wire.declared import OPTIONAL
from tuner.wire.record import record


class PartKind(enum.StrEnum):
    """What a worker has done with the checkpoint that it reports."""

    STAGED = "staged"
    PLACED = "placed"
    PLACEHOLDER = "placeholder"
    PENDING = "pending"
    DROPPED = "dropped"


@record
class Part:
    """One worker's part of a checkpoint.

    Attributes:
        kind: What the worker has done.
        name: Name of its directory inside the trial's, empty for PENDING and DROPPED.
        why: Why it could not be prepared, for DROPPED. In a ``result`` the storage is at fault, and
            training goes on; where the part was pending, the attempt fails.
    """

    kind: PartKind
    name: str = ""
    why: Annotated[str, OPTIONAL] = ""
