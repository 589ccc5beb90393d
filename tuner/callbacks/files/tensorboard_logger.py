"""Logger of TensorBoard's event files.

Each trial is one run, with metrics as curves and the searched parameters in the HParams table.
"""

from __future__ import annotations

import functools
import logging
import math
import numbers
import os
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, final

from searchers.space import Conditional, flat_name, is_word, leaves
from tuner.callbacks.log_records import Begin, Entry, Row, Segment, Validated, is_over
from tuner.core import result as keys
from tuner.core.result import as_float, flatten
from tuner.core.trial import Trial
from tuner.storage.disk import LARGE_BYTES, read_file

from .append import remove
from .background_writer import BatchWriter, Pace
from .event_file import EventEncoder, is_of_validation, is_session_end, records, shown, single
from .trial_file import TrialFile, TrialFileLogger

_PREFIX = "events.out.tfevents."
_SUFFIX = ".tuner"
"""Distinguishes our files from those that the trainable or a framework writes beside them."""
_HIDDEN = keys.AUTO_FILLED - {keys.TIME_TOTAL_S}
_HIDDEN_BESIDE_TIMESTEPS = _HIDDEN - {keys.TRAINING_ITERATION}
_NUMBERS = (int, float, numbers.Real)
_VALIDATED = "/validated"
"""End of the tag of a validated metric that the training code reports as well."""
_NUM_FIRST_RECORDS = 4
"""The records before the first result: the version, the start and the hyperparameters."""

_ZEROS = bytes(64)
"""In a file with so many zeros, a power cut may have replaced blocks."""

_log = logging.getLogger("tuner")


class TBXLoggerCallback(TrialFileLogger):
    """Writes one ``events.out.tfevents`` file into each trial's directory.

    Show them with ``tensorboard --logdir <experiment>``. Curves: each number or boolean that the
    trainable reports, under its name (nested ones as ``a/b``), and ``time_total_s``; NaN, texts and
    lists are left out. The step is ``training_iteration``, or ``timesteps_total`` if the trainable
    counts timesteps; then ``training_iteration`` is a curve, too. Metrics of a checkpoint's
    validation have the step of that checkpoint; one that the training code has reported since, too,
    becomes a curve of its own, e.g. ``loss/validated``, as TensorBoard would drop what was reported
    behind that step. HParams table: the searched parameters of the trial, from its start on, the
    metric of the search, and how the trial ended. Without tensorboardX nothing is written, with one
    warning.

    Args:
        writer: The writer, which loggers may share; None for a new one.

    Departures:
        Ray Tune puts ``ray/tune/`` before each name, begins a new file after each pause and retry,
        and writes the hyperparameters only when a trial ends. Here a trial has one file, whose name
        ends in ``.tuner``, so that files that the training code writes into that directory are not
        touched; and results that a retry reports again replace the earlier ones.
    """

    def __init__(self, writer: BatchWriter | None = None) -> None:
        super().__init__(writer)
        self._encoder: EventEncoder | None = None
        self._metric: str | None = None
        self._searched: frozenset[str] = frozenset()

    @property
    def encoder(self) -> EventEncoder:
        """The encoder of results; the first use imports tensorboardX."""
        if self._encoder is None:
            self._encoder = EventEncoder()
        return self._encoder

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Import tensorboardX and determine the columns of the HParams table."""
        super().setup(**info)
        self._metric = info.get("metric")
        self._searched = frozenset(searched_names(info.get("space") or {}))
        # Here and not at the first write, which is in the background thread: the import hides torch
        # for a moment, and this thread may run trials that import it.
        try:
            _ = self.encoder
        except ImportError as error:
            self.is_on = False
            _log.warning(
                "no TensorBoard files are written, since tensorboardX cannot be imported "
                "(%s); pip install tensorboardX",
                error,
            )

    def story(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
        """Yield the entries of the trial, to be appended to the existing file.

        An open TensorBoard would not read another file, or would read it after the old one.
        """
        begin, *others = super().story(trial, results)
        yield begin._replace(is_first=False) if isinstance(begin, Begin) else begin
        yield from others

    def open_file(self, directory: str) -> TrialFile:
        """Return the event file of one trial."""
        return _EventFile(directory, self, self.encoder)

    def session_start(self, begin: Begin) -> bytes:
        """Return the records of the trial's hyperparameters, only of searched ones if known."""
        params = flatten(begin.config)
        chosen = {name: value for name, value in params.items() if name in self._searched}
        return self.encoder.session_start(begin.at, chosen or params, self._metric)


@final
class _EventFile(TrialFile):
    def __init__(self, directory: str, owner: TBXLoggerCallback, encoder: EventEncoder) -> None:
        super().__init__(directory, owner)
        self._logger = owner
        self._encoder = encoder
        self._path: str | None = None
        self._counts_timesteps = False
        self._last_steps: dict[str, int] | None = None
        """The last step of each curve, once a validation has ended."""

    def __str__(self) -> str:
        return self._path or self.path_of(_PREFIX)

    def is_complete(self, trial: Trial) -> bool:
        files = _event_files(self.directory)
        if len(files) != 1:
            return not files and trial.num_rows == 0
        data = read_file(files[0], LARGE_BYTES)
        found = records(data)
        if sum(map(len, found)) != len(data) or len(found) < trial.num_rows + _NUM_FIRST_RECORDS:
            return False
        has_ended = is_session_end(found[-1])
        if is_over(trial) and not has_ended:
            return False
        num_usual = _NUM_FIRST_RECORDS + trial.num_rows + has_ended
        if len(found) == num_usual and trial.num_rows and _ZEROS not in data:
            # Decoding all records takes most of the time, and only those of other files need it.
            points = shown(found[-1 - has_ended :])
            return bool(points) and self._is_last(*points[-1], trial.last_result)
        points = shown(found)
        return len(points) == trial.num_rows and (
            not points or self._is_last(*points[-1], trial.last_result)
        )

    def _is_last(self, step: int, record: bytes, result: Mapping[str, Any]) -> bool:
        """Return whether a record has a result's step and time; see `is_same_report`."""
        if step != _step(result)[0]:
            return False
        total_s = result.get(keys.TIME_TOTAL_S)
        return not isinstance(total_s, (int, float)) or self._encoder.scalar(
            record, keys.TIME_TOTAL_S
        ) in (None, single(total_s))

    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        if segment.begin and segment.begin.is_first:
            self._discard()
        elif self._path is None:
            self._path = self._adopt()
        path, parts, num_rows = self._path, list[bytes](), self.num_rows
        if path is None:
            if segment.begin is None:
                return  # the trial ends and was never started
            path = self.path_of(_file_name())
            parts += self._head(segment.begin)
            num_rows = 0
        elif (num_kept := self.num_to_keep(segment)) is not None:
            num_rows, parts = self._cut_back(num_kept)
        has_begun_anew = bool(parts)
        self._last_steps = None if has_begun_anew else self._last_steps
        parts += [self._record_of(row) for row in pace(segment.rows)]
        parts += self._records_of_validations(segment.validations, parts)
        if segment.end:
            parts.append(
                self._encoder.session_end(segment.end.at, has_failed=segment.end.has_failed)
            )
        if parts:
            self.append(path, b"".join(parts))
        self._path, self.num_rows = path, num_rows

    def _head(self, begin: Begin) -> Iterator[bytes]:
        yield self._encoder.version(begin.at)
        # TensorBoard's server takes the first restart for the start and drops nothing.
        yield self._encoder.restart(begin.at, 0)
        yield self._logger.session_start(begin)

    def _cut_back(self, num_rows: int) -> tuple[int, list[bytes]]:
        """Return how many rows remain, at most so many, and records that hide the others."""
        found = records(read_file(self._path, LARGE_BYTES)) if self._path else []
        kept: list[tuple[int, bytes]] = []
        hidden: list[int] = []
        count, last_step = 0, -1
        for step, record in shown(found, has_validations=True):
            is_row = not is_of_validation(record)
            # What a validation has added to a row may be anywhere behind it.
            if count < num_rows or (not is_row and step <= last_step):
                kept.append((step, record))
                last_step = step if is_row else last_step
            else:
                hidden.append(step)
            count += is_row
        if not hidden:
            return min(count, num_rows), []
        at, first = time.time(), min(hidden)
        if all(step < first for step, _ in kept):
            return min(count, num_rows), [self._encoder.restart(at, first if kept else 0)]
        # Steps of rows from before an exploit may be above those that it hides.
        return num_rows, [self._encoder.restart(at, 0), *(record for _, record in kept)]

    def _record_of(self, row: Row) -> bytes:
        step, self._counts_timesteps = _step(row.result)
        values = _scalars(row.flat, self._counts_timesteps)
        if self._last_steps is not None:
            self._last_steps |= dict.fromkeys(values, step)
        return self._encoder.scalars(row.at, step, values)

    def _records_of_validations(
        self, validations: Sequence[Validated], unwritten: Sequence[bytes]
    ) -> list[bytes]:
        if not validations:
            return []
        if self._last_steps is None:
            written = read_file(self._path, LARGE_BYTES) if self._path else b""
            found = shown(records(written + b"".join(unwritten)), has_validations=True)
            self._last_steps = self._encoder.last_steps(record for _, record in found)
        last_steps, parts = self._last_steps, []
        for one in validations:
            if one.metrics:
                step, values = _validated_step(one), dict(_curves_of(one, last_steps))
                last_steps |= dict.fromkeys(values, step)
                parts.append(self._encoder.scalars(one.at, step, values, of_validation=True))
        return parts

    def _discard(self) -> None:
        for path in () if self.is_new else _event_files(self.directory):
            remove(path)
        self._path = None

    def _adopt(self) -> str | None:
        """Return the file of an earlier driver, repaired so that more can be appended."""
        all_files = sorted(_event_files(self.directory))
        files = [path for path in all_files if stat.S_ISREG(os.lstat(path).st_mode)]
        data = read_file(files[-1], LARGE_BYTES) if files else b""
        found = records(data)
        path = files[-1] if found else None
        for other in all_files:
            if other != path:
                remove(other)
        if path is None:
            return None
        # An open TensorBoard continues at its position in the file, so the file is not replaced and
        # no record is moved.
        with Path(path).open("r+b") as file:
            # TensorBoard shows the first ending that it finds.
            file.writelines(
                self._encoder.void(record) if is_session_end(record) else record for record in found
            )
            file.truncate()  # TensorBoard would stop at a torn record
        self._counts_timesteps = keys.TRAINING_ITERATION.encode() in data
        return path


def searched_names(space: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flattened names of the searched parameters of a search space, each once."""
    # A flattened configuration keeps lists whole.
    yield from dict.fromkeys(
        flat_name(tuple(takewhile(lambda step: isinstance(step, str), path)))
        for path in _searched_paths(space, ())
    )


def _searched_paths(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    for found, leaf in leaves(node, path):
        if isinstance(leaf, Conditional):
            for (
                _,
                inside,
            ) in leaf.inner():  # constants count as well: whether they are there is searched
                yield from (constant for constant, _ in leaves(inside, found))
                yield from _searched_paths(inside, found)
        elif is_word(leaf):
            yield found


def _event_files(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208  (one call)
        return [
            f"{directory}{os.sep}{name}"
            for name in names
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        ]
    except FileNotFoundError:
        return []


def _file_name() -> str:
    return f"{_PREFIX}{int(time.time()):010d}.{_host_name()}{_SUFFIX}"


@functools.cache
def _host_name() -> str:
    return socket.gethostname()


def _step(result: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the step of a result, and whether it counts timesteps."""
    timesteps = result.get(keys.TIMESTEPS_TOTAL)
    if isinstance(timesteps, int):
        return int(timesteps), True
    return int(result.get(keys.TRAINING_ITERATION, 0)), False


def _validated_step(validated: Validated) -> int:
    return validated.iteration if validated.step is None else validated.step


def _curves_of(validated: Validated, last_steps: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    """Yield tag and value of each metric of a validation."""
    step = _validated_step(validated)
    for name, value in _scalars(flatten(validated.metrics), False).items():
        # TensorBoard drops the values of a curve from the step of a later record on.
        yield f"{name}{_VALIDATED}" if last_steps.get(name, -1) > step else name, value


@functools.lru_cache(maxsize=64)
def _curves(counts_timesteps: bool, *names: str) -> tuple[str, ...]:
    hidden = _HIDDEN_BESIDE_TIMESTEPS if counts_timesteps else _HIDDEN
    return tuple(name for name in names if name not in hidden)


def _scalars(flat: Mapping[str, Any], counts_timesteps: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    # The same for all results of a trial, and mostly of all trials.
    for key in _curves(counts_timesteps, *flat):
        value = flat[key]
        if value.__class__ is not float:
            if not isinstance(value, _NUMBERS):
                continue
            value = as_float(value)
        if not math.isnan(value):
            found[key] = value
    return found
