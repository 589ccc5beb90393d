"""Records that workers know as well: failures, checkpoints, groups, requests and replies.

A worker loads this file, and neither what a trial is nor how decisions are made.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Final

from tuner.wire.declared import OPTIONAL, Key
from tuner.wire.record import record

_ROUNDING: Final = 1e-6
_FRAME: Final = re.compile(
    r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$', re.MULTILINE
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_SEPARATOR: Final = re.compile(r"[/\\]")
_LIBRARIES: Final = ("site-packages", "dist-packages", "/lib/python3", "\\Lib\\", "<frozen ")
"""Parts of the paths of library files; a failure's place is in the user's own code."""
STORAGE_FULL: Final = "StorageFull"
"""Among a failure's bases: the disk of the trial's directory was full."""
STORAGE_FAILED: Final = "StorageFailed"
"""Among a failure's bases: that disk failed otherwise, or another one was full."""


@record
class Failure:
    """What went wrong in a worker, as text; the driver unpickles no exception of the user's code.

    Attributes:
        kind: Name of the exception type, or what happened to the process, e.g. ``"ValueError"`` or
            ``"killed by SIGSEGV"``.
        message: One line.
        traceback: The formatted traceback, or what is known instead of it (the last lines of
            stderr); may be empty.
        bases: Names of the classes that the exception's type is derived from, nearest first; empty
            where there is no exception.
        place: Where in the user's code, e.g. ``"train.py:12 in train"``, as the worker told it;
            empty where that is not known.
        ranks: What went wrong in each worker of a group, by rank, the one to blame first; empty
            for a single process.
    """

    kind: str
    message: str
    traceback: str = ""
    bases: Annotated[tuple[str, ...], OPTIONAL] = ()
    place: Annotated[str, OPTIONAL] = ""
    ranks: Annotated[tuple[tuple[int, Failure], ...], OPTIONAL] = ()

    def __str__(self) -> str:
        """Return ``kind: message``."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


def place_in(traceback: str, engine: Sequence[str] = ()) -> str:
    """Return where in the user's code an exception arose, e.g. ``"train.py:12 in train"``.

    Args:
        traceback: A formatted traceback. Of a chain of exceptions, the last one counts.
        engine: With what the paths of the engine's files begin. Like files of libraries, they are
            not the user's.
    """
    frames = list(_FRAME.finditer(traceback, max(traceback.rfind(_TRACEBACK), 0)))
    own = [
        frame
        for frame in frames
        if not frame["file"].startswith(tuple(engine)) and not _is_library(frame["file"])
    ]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    function = f" in {frame['function']}" if frame["function"] else ""
    return f"{_SEPARATOR.split(frame['file'])[-1]}:{frame['line']}{function}"


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


@record
class CheckpointRecord:
    """A committed checkpoint of a trial.

    Attributes:
        index: Zero-based count of the trial's checkpoints; the directory is ``checkpoint_<index>``,
            six digits.
        iteration: ``training_iteration`` of the result it belongs to.
        time_total_s: Training time of the trial up to it.
        counters: ``timesteps_total`` and ``episodes_total`` up to it, where the trainable counts
            them.
        score: Value of ``checkpoint_score_attribute`` in that result, None without one.
        num_rows: How many of the trial's results counted up to it, see `Trial.num_rows`; None where
            an earlier release has not noted it, which numbered results without gaps.
        name: Name that the training code has given to the directory, which then lies inside the
            trial's; empty for the numbered one.
        is_placeholder: Whether the directory need not exist: the checkpoint was reported only for
            the sake of its metrics, and nothing can continue from it.
        remote: Name of its directory in the object store, inside the trial's; empty where the
            experiment is not stored in one.
    """

    index: int
    iteration: int
    time_total_s: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)
    score: float | None = None
    num_rows: Annotated[int | None, OPTIONAL] = field(default=None, compare=False)
    name: Annotated[str, OPTIONAL] = ""
    is_placeholder: Annotated[bool, OPTIONAL] = False
    remote: Annotated[str, OPTIONAL] = ""

    @property
    def directory(self) -> str:
        """Name of the checkpoint's directory inside the trial's."""
        return self.name or checkpoint_directory_name(self.index)


def checkpoint_directory_name(index: int) -> str:
    """Return the name of a trial's checkpoint directory, e.g. ``checkpoint_000003``."""
    return f"checkpoint_{index:06d}"


COMMITTED: Final = "COMMITTED"
"""Public status of a checkpoint that is not to be validated."""


@record
class WorkerGroup:
    """Processes that train one trial together, all with the same resources.

    Unless a scheduler has decided how many there are, as many are started as then fit.

    Attributes:
        num_workers: How many in the current attempt, or in the next one.
        resources_per_worker: What each of them occupies, e.g. ``{"cpu": 1.0, "gpu": 0.5}``.
        min_workers: The smallest number with which the trial can be started.
        max_workers: The largest number that it makes use of.
        strategy: How they are spread over machines, see `PlacementGroupFactory`.
        labels: What the node of each worker must have, see `tuner.nodes.nodes.matches`.
        is_decided: Whether a scheduler has decided that there are `num_workers`.
    """

    num_workers: int
    resources_per_worker: Mapping[str, float]
    min_workers: int
    max_workers: int
    strategy: str = "PACK"
    labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    is_decided: Annotated[bool, OPTIONAL] = False

    @property
    def fewest(self) -> int:
        """With how many it can be started."""
        return self.num_workers if self.is_decided else self.min_workers

    @property
    def most(self) -> int:
        """With how many it is started where there is room for all."""
        return self.num_workers if self.is_decided else self.max_workers

    @property
    def total(self) -> dict[str, float]:
        """What all workers together occupy."""
        return {
            name: amount * self.num_workers for name, amount in self.resources_per_worker.items()
        }

    @property
    def shown(self) -> str:
        """Its size and shares in words, e.g. ``"2 to 4 workers with 1 cpu each"``."""
        fewest, most = self.min_workers, self.max_workers
        number = f"{most}" if fewest == most else f"{fewest} to {most}"
        share = ", ".join(f"{value:g} {name}" for name, value in self.resources_per_worker.items())
        where = f" on nodes with the labels {dict(self.labels)}" if self.labels else ""
        noun = "worker" if most == 1 else "workers"
        return f"{number} {noun} with {share or 'nothing'} each{where}"

    def resized(self, num_workers: int) -> WorkerGroup:
        """Return the group with another number of workers."""
        return replace(self, num_workers=num_workers)

    def decided(self, num_workers: int) -> WorkerGroup:
        """Return the group with the number of workers that was decided."""
        return replace(self, num_workers=num_workers, is_decided=True)

    def is_declared_like(self, other: WorkerGroup) -> bool:
        """Return whether both were declared alike, however many workers there are now."""
        return replace(self, num_workers=0, is_decided=False) == replace(
            other, num_workers=0, is_decided=False
        )

    def redeclared(self, declared: WorkerGroup) -> WorkerGroup:
        """Return the group as declared now; a decided size is kept if it is still possible."""
        is_possible = declared.min_workers <= self.num_workers <= declared.max_workers
        return declared.decided(self.num_workers) if self.is_decided and is_possible else declared

    def num_workers_for(self, total: Mapping[str, float]) -> int | None:
        """Return with how many workers it occupies these amounts; None if with no number."""
        share = self.resources_per_worker
        count = max(
            (round(total.get(name, 0.0) / each) for name, each in share.items() if each), default=0
        )
        is_exact = all(
            abs(total.get(name, 0.0) - share.get(name, 0.0) * count) < _ROUNDING
            for name in {**share, **total}
        )
        return count if is_exact and self.min_workers <= count <= self.max_workers else None


@record
class ValidationRequest:
    """What training code asks for when it reports a checkpoint that is to be validated.

    Attributes:
        function: ``module:qualname`` of the function given to `report`; empty for the one that was
            declared with the experiment.
        kwargs: Its keyword arguments as JSON values; what is no JSON value is described, see
            `tuner.execution.validation`.
        timeout_s: Seconds after which it is killed, None for the declared limit.
        payload: Name of the file in the trial's directory with the pickled function and arguments,
            which only the driver's own session uses; empty for none.
        takes_config: Whether the function is called as ``function(checkpoint, config)`` and not as
            ``function(checkpoint, **kwargs)``.
    """

    function: Annotated[str, Key("fn"), OPTIONAL] = ""
    kwargs: Annotated[Mapping[str, Any], OPTIONAL] = field(default_factory=dict)
    timeout_s: Annotated[float | None, Key("timeout"), OPTIONAL] = None
    payload: Annotated[str, OPTIONAL] = ""
    takes_config: Annotated[bool, OPTIONAL] = False


class ReportReply(enum.StrEnum):
    """Reply to a worker that has reported, which also tells why it leaves."""

    CONTINUE = "continue"
    PAUSE = "pause"
    EXPLOIT = "exploit"
    """Leave without saving, since another trial's checkpoint replaces what has been trained."""
    STOP = "stop"
