"""Logger of ``params.json``, ``result.json`` and ``validations.json``, all of them strict JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, final

from tuner.callbacks.log_records import Segment, Validated, ended_validations
from tuner.core.result import CHECKPOINT_DIR_NAME, TRAINING_ITERATION, is_same_report, merged
from tuner.core.trial import Trial
from tuner.storage.disk import LARGE_BYTES, open_file, read_file
from tuner.storage.layout import PARAMS, RESULTS, VALIDATIONS
from tuner.storage.readable_json import json_bytes
from tuner.wire.declared import encode

from .append import remove
from .background_writer import Pace
from .trial_file import TrialFile, TrialFileLogger
from .validations_file import ReportKey, metrics_by_report, read_validations, report_key


class JsonLoggerCallback(TrialFileLogger):
    r"""Writes ``params.json`` and ``result.json`` into each trial's directory.

    ``params.json`` holds the configuration. ``result.json`` has one JSON object per line and
    result, nested as reported, with the configuration under ``config``. Values that JSON does not
    support are written as text. ``validations.json`` has a line for each validation of a checkpoint
    that has ended, with its metrics; when the trial is over, ``result.json`` has them, too.

    Args:
        writer: The writer, which loggers may share; None for a new one.

    Example:
        >>> import io, pandas
        >>> lines = io.StringIO('{"loss": 0.5}\n{"loss": "NaN"}\n')
        >>> pandas.read_json(lines, lines=True)["loss"].astype(float).tolist()
        [0.5, nan]

    Departures:
        Ray Tune writes bare ``NaN`` and ``Infinity``, which strict readers reject; here they are
        the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. Rows that a retry reports again
        replace the earlier ones.
    """

    def open_file(self, directory: str) -> TrialFile:
        """Return the files of one trial."""
        return _JsonFile(directory, self)

    def validations_of(self, trial: Trial) -> Sequence[Validated]:
        """Return all validations of the trial that have ended."""
        known: list[Validated] = []
        if trial.validations:
            with suppress(OSError):
                known = read_validations(f"{trial.local_path}{os.sep}{VALIDATIONS}")
        return ended_validations(trial, known)


@final
class _JsonFile(TrialFile):
    def __init__(self, directory: str, owner: TrialFileLogger) -> None:
        super().__init__(directory, owner)
        self._path = self.path_of(RESULTS)
        self._tail = b"}\n"

    def __str__(self) -> str:
        return self._path

    def is_complete(self, trial: Trial) -> bool:
        if trial.attempt and not _is_whole(self.path_of(PARAMS)):
            return False
        try:
            data = read_file(self._path, LARGE_BYTES)
        except FileNotFoundError:
            return trial.num_rows == 0
        num_lines, num_whole = data.count(b"\n"), (b"\n" + data).count(b"\n{")
        if not num_lines == num_whole == data.count(b"}\n") == trial.num_rows or b"\0" in data:
            return False
        try:
            last = json.loads(data[data.rfind(b"\n", 0, -1) + 1 :])
        except ValueError:
            return False
        return (
            isinstance(last, dict)
            and is_same_report(last, trial.last_result)
            and self._has_all_validations(trial)
        )

    def _has_all_validations(self, trial: Trial) -> bool:
        expected = {(one.checkpoint, one.status) for one in ended_validations(trial)}
        if not expected:
            return True
        logged = read_validations(self.path_of(VALIDATIONS))
        return expected <= {(one.checkpoint, one.status) for one in logged}

    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        if begin := segment.begin:
            self.replace(self.path_of(PARAMS), json_bytes(begin.config, is_pretty=True) + b"\n")
            self._tail = b',"config":%b}\n' % json_bytes(begin.config)
            if begin.is_first and not self.is_new:
                remove(self.path_of(VALIDATIONS))
        if segment.validations:
            # Before the rows, since a segment that fails is written again: readers take the last
            # line of a checkpoint, but count rows.
            lines = [json_bytes(encode(one)) + b"\n" for one in segment.validations]
            self.append(self.path_of(VALIDATIONS), b"".join(lines))
        if (num_kept := self.num_to_keep(segment)) is not None:
            self._cut_back(num_kept)
        if segment.rows:
            lines = [json_bytes(row.result)[:-1] + self._tail for row in pace(segment.rows)]
            self.append(self._path, b"".join(lines))
        if segment.end and os.path.exists(self.path_of(VALIDATIONS)):  # noqa: PTH110  (a text)
            with suppress(OSError):  # the rows are written, and must not be a second time
                self._add_validated_metrics()

    def _add_validated_metrics(self) -> None:
        metrics_of = metrics_by_report(read_validations(self.path_of(VALIDATIONS)))
        if metrics_of and Path(self._path).exists():
            lines = [
                json_bytes(merged(row, metrics)) + b"\n"
                if (metrics := metrics_of.get(_report_key(row)))
                else line
                for line, row in read_rows(self._path)
            ]
            self.replace(self._path, b"".join(lines))

    def _cut_back(self, num_rows: int) -> None:
        """Leave the first rows, at most so many."""
        kept: list[bytes] = []
        if num_rows and Path(self._path).exists():
            kept = [line for line, _ in islice(read_rows(self._path), num_rows)]
        if kept:
            self.replace(self._path, b"".join(kept))
        else:
            remove(self._path)
        self.num_rows = len(kept)


def _report_key(row: Mapping[str, Any]) -> ReportKey:
    return report_key(row.get(CHECKPOINT_DIR_NAME), row.get(TRAINING_ITERATION))


def _is_whole(path: str) -> bool:
    """Return whether a file holds its object: it is never synced, so a power cut may empty it."""
    try:
        return read_file(path, LARGE_BYTES).endswith(b"}\n")
    except FileNotFoundError:
        return False


def read_rows(path: str | Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each line of a ``result.json`` and its object, without lines torn by a crash."""
    with open_file(path) as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and line.endswith(b"\n"):
                yield line, row
