"""Log of what the engine has acknowledged and announced, kept independently of the engine."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from schedulers.decisions import Exploit
from tuner.core.worker_records import checkpoint_directory_name

STALE = "is_ghost"
"""Metric that marks a message of an attempt which has ended."""

_WITH_CHECKPOINT = frozenset({"result", "saved", "checkpoint_committed"})
_WITH_LABELS = frozenset({"suggested", "forked"})
_SEGMENT = re.compile(r"(\d{20})\.log")


class ReportKey(NamedTuple):
    """One report of one attempt."""

    trial_id: str
    attempt: int
    iteration: int


def report_of(record: Mapping[str, Any]) -> ReportKey:
    """Return the report in a journal's record of a result."""
    return ReportKey(record["id"], record["a"], record["m"]["training_iteration"])


class Transcript(NamedTuple):
    """The journal as read without the engine's code.

    Attributes:
        records: What it holds, in order.
        problem: What is wrong with it, empty for nothing.
    """

    records: list[dict[str, Any]]
    problem: str

    def reports(self) -> set[ReportKey]:
        """Return the reports that it holds."""
        return {report_of(record) for record in self.records if record["k"] == "result"}


class JournalParser:
    """Parses a journal without the engine's code, and caches parsed lines."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Any] | None] = {}

    def record(self, line: bytes) -> dict[str, Any] | None:
        """Return the record on a line without its line break; None if it does not verify."""
        try:
            return self._known[line]
        except KeyError:
            is_good = line[:9] == b"%08x " % zlib.crc32(line[9:])
            record = self._known[line] = orjson.loads(line[9:]) if is_good else None
            return record

    def transcript(self, files: Mapping[str, bytes]) -> Transcript:
        """Return the journal in these files.

        A segment counts up to where the next one begins, and the last one up to the first line that
        does not verify.
        """
        segments = sorted(
            (int(found[1]), data)
            for name, data in files.items()
            if (found := _SEGMENT.fullmatch(name))
        )
        records: list[dict[str, Any]] = []
        for place, (first, data) in enumerate(segments):
            end = segments[place + 1][0] if place + 1 < len(segments) else math.inf
            if records and records[-1]["q"] != first - 1:
                return Transcript(
                    records, f"segment {first} does not follow record {records[-1]['q']}"
                )
            records += [record for record in self._verified(data) if record["q"] < end]
        if [record["q"] for record in records] != list(range(1, len(records) + 1)):
            return Transcript(records, "records are not numbered 1, 2, 3, ...")
        epochs = [record["e"] for record in records]
        return Transcript(
            records,
            "" if epochs == sorted(epochs) else "an earlier driver wrote behind a later one",
        )

    def _verified(self, data: bytes) -> Iterator[dict[str, Any]]:
        # Behind the last line break stands nothing, or what is torn.
        for line in data.split(b"\n")[1:-1]:
            record = self.record(line)
            if record is None:
                return
            yield record


@dataclass(slots=True)
class AcknowledgementLog:
    """Observations from outside the engine, to check the engine against.

    Attributes:
        acknowledged: Every report that was answered, in order.
        num_safe: How many of them a power cut must not cost.
        written: Reports in all bytes that the disk has taken.
        values: The value that each trial first reported at each iteration.
        values_by_config: The same for each configuration that the trial has had.
        told: Highest iteration of each trial that callbacks were notified of.
        over: Trials whose end callbacks were notified of, and how they ended.
        discarded: Trials whose worker was told to stop and not be resumed.
        own_failures: How often each trial's own worker has failed.
        all_failures: Number of failures of each trial, of any cause.
        farthest: The highest iteration that each trial has reported.
        num_lost: How often each trial's worker was lost since a report that got farther was
            acknowledged, unless its node was known to leave.
        num_exploits: How often each trial had exploited another one when it was started last.
        lost_in_row: How often in a row under one driver, without a report in between.
        exploits: Configurations that exploits gave to a trial, by its id and the reason.
        paused: Which attempt those made last that lay paused at the end of the last turn.
        saved: Names of the checkpoints in the journal.
        failed_saves: Trials that could not save when they were asked to.
        given_up_by_user: Trials that could not save themselves when the user ended them, and are
            not tried again for that.
        has_forks: Whether the user has forked a trial.
        requested: Checkpoints for which a validation was requested, as written.
        validated: Those of them that were validated, as written.
        taken_validations: The lines that tell so.
        losses: What was to be reported with each of them.
        labels: The labels of their nodes that trials ask for, as written.
        num_lost_validations: How often the process of each validation was lost, unless its node was
            known to leave.
        validations_lost_in_row: How often in a row under one driver.
        reader: Parser of the journal.
    """

    acknowledged: list[ReportKey] = field(default_factory=list)
    num_safe: int = 0
    written: set[ReportKey] = field(default_factory=set)
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    values_by_config: dict[tuple[str, int, str], float] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)
    discarded: set[str] = field(default_factory=set)
    own_failures: Counter[str] = field(default_factory=Counter)
    all_failures: Counter[str] = field(default_factory=Counter)
    farthest: Counter[str] = field(default_factory=Counter)
    num_exploits: Counter[str] = field(default_factory=Counter)
    num_lost: Counter[str] = field(default_factory=Counter)
    lost_in_row: Counter[str] = field(default_factory=Counter)
    exploits: dict[tuple[str, str], list[Mapping[str, Any]]] = field(default_factory=dict)
    paused: dict[str, int] = field(default_factory=dict)
    saved: set[tuple[str, str]] = field(default_factory=set)
    failed_saves: set[str] = field(default_factory=set)
    given_up_by_user: set[str] = field(default_factory=set)
    has_forks: bool = False
    requested: set[tuple[str, int]] = field(default_factory=set)
    validated: set[tuple[str, int]] = field(default_factory=set)
    taken_validations: set[bytes] = field(default_factory=set)
    losses: dict[tuple[str, int], float] = field(default_factory=dict)
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    num_lost_validations: Counter[tuple[str, int]] = field(default_factory=Counter)
    validations_lost_in_row: Counter[tuple[str, int]] = field(default_factory=Counter)
    reader: JournalParser = field(default_factory=JournalParser)

    def note_exploit(self, exploit: Exploit) -> None:
        """Log the configuration that an exploit gives to a trial."""
        self.exploits.setdefault((exploit.trial_id, str(exploit.reason)), []).append(exploit.config)

    def take_written(self, data: bytes) -> None:
        """Log the reports and checkpoints in bytes that the disk has accepted."""
        for line in data.splitlines():
            record = self.reader.record(line)
            # Once: what a power cut has left behind a gap is cut off, and kept in another file.
            is_new = record is not None and line not in self.taken_validations
            if record and is_new and record["k"] == "validation_ended":
                self.taken_validations.add(line)
                self._note_validation(record)
            if record and record["k"] in _WITH_LABELS:
                self.labels[record["id"]] = (record.get("group") or record).get("labels", {})
            if record and record["k"] in _WITH_CHECKPOINT:
                if record["k"] == "result":
                    self.written.add(report_of(record))
                self._note_checkpoint(record)

    def _note_validation(self, record: Mapping[str, Any]) -> None:
        if record["metrics"] is not None and STALE not in record["metrics"]:
            self.validated.add((record["id"], record["index"]))

    def _note_checkpoint(self, record: Mapping[str, Any]) -> None:
        if record.get("v") is not None:
            index = record["c"]["index"] if record["c"] else record["upload"]
            self.requested.add((record["id"], index))
        if record["c"] and not record["c"].get("is_placeholder"):
            self.saved.add((record["id"], checkpoint_directory_name(record["c"]["index"])))

    def note_lost_validation(self, key: tuple[str, int]) -> None:
        """Log that the process of a validation was lost, and its node was not known to leave."""
        self.num_lost_validations[key] += 1
        self.validations_lost_in_row[key] += 1

    def forget_all_but(self, left: Transcript) -> None:
        """Remove what was lost in a power cut."""
        surviving = left.reports()
        self.saved, self.requested, self.validated = set(), set(), set()
        for record in left.records:
            if record["k"] == "validation_ended":
                self._note_validation(record)
            if record["k"] in _WITH_CHECKPOINT:
                self._note_checkpoint(record)
        self.acknowledged = [report for report in self.acknowledged if report in surviving]
        self.num_safe = len(self.acknowledged)
        highest: dict[str, int] = {}
        for report in self.acknowledged:
            highest[report.trial_id] = max(report.iteration, highest.get(report.trial_id, 0))
        self.told = {
            trial_id: min(told, highest[trial_id])
            for trial_id, told in self.told.items()
            if trial_id in highest
        }
        self.over, self.discarded = {}, set()
