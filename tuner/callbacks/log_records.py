"""What the log files of a trial are told of it, entry by entry, and how the entries of one attempt hang together."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from operator import itemgetter
from typing import Any, NamedTuple, assert_never, final

from tuner.core.result import CONFIG, SCALARS, TIMESTEPS_TOTAL, flatten, identity
from tuner.core.trial import TerminationReason, Trial
from tuner.storage import strict_json

from .texts import IS_COMPILED, Layout, layout_of


@final
class Told:
    """How much there is to be told of a trial: the number of its results, and what tells the last of them from others.

    Args:
        values: All that.
    """

    __slots__ = ("_text", "_values")

    def __init__(self, *values: Any) -> None:
        self._values = values
        self._text = ""

    @property
    def text(self) -> str:
        """The same as JSON; made once, for all files that tell it."""
        if not self._text:
            self._text = strict_json.dumps(self._values, strict_json.opaque)
        return self._text


class Begin(NamedTuple):
    """An attempt of the trial has started.

    Attributes:
        config: Its hyperparameters.
        is_first: Whether whatever of this trial is on disk does not count.
        resumed_iteration: Rows after this training iteration are going to be reported again; -1 if nothing counts of what was told.
        resumed_step: The same in ``timesteps_total``, None where the trial does not count them.
        num_earlier: How many rows stay whatever their iteration, since the trial reported them before it went on from another one's
            checkpoint.
        at: Unix time.
    """

    config: Mapping[str, Any]
    is_first: bool
    resumed_iteration: int
    resumed_step: int | None
    num_earlier: int
    at: float


@final
class Shape:
    """The names of a result's values and their classes, where all of them are numbers, texts, booleans or None; few results differ in it.

    Args:
        names: The names.
        classes: The class of each value.

    Attributes:
        names: The names.
        class_of: The class of each value, by its name.
        num_nones: How many are None.
        floats: Picks the floats from the values of a result.
        layout: How the texts of such results look; None where they are to be parsed.
        picked: Returns, for some of the names, what picks their values, in that order, from those of a result.
    """

    __slots__ = ("class_of", "floats", "layout", "names", "num_nones", "picked")

    def __init__(self, names: tuple[str, ...], classes: tuple[type, ...]) -> None:
        self.names = names
        self.class_of = dict(zip(names, classes, strict=True))
        self.num_nones = classes.count(type(None))
        self.picked = functools.lru_cache(maxsize=8)(self._picked)
        self.layout = layout_of(self.class_of)
        self.floats = self.picked(tuple(name for name in names if self.class_of[name] is float))

    def _picked(self, names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        places = [self.names.index(name) for name in names]
        match places:
            case []:
                return lambda _: ()
            case [place]:
                return lambda values: (values[place],)
            case _:
                return itemgetter(*places)


@functools.lru_cache(maxsize=256)
def _shape_of(names: tuple[str, ...], classes: tuple[type, ...]) -> Shape | None:
    return (
        Shape(names, classes)
        if SCALARS.issuperset(classes) and all(type(name) is str for name in names)
        else None
    )


@final
class Row:
    """A result without its configuration, and the Unix time at which the driver heard of it.

    Args:
        result: The result; it is copied, since other callbacks may still change it. None to have it read off the text.
        at: Unix time.
        text: The result as JSON, valid, in one line of ASCII without blanks; empty where that is not known.

    Attributes:
        at: Unix time.
        text: See above.
    """

    __slots__ = ("_flat", "_result", "at", "text")

    def __init__(self, result: Mapping[str, Any] | None, at: float, text: bytes = b"") -> None:
        self._result: dict[str, Any] | None = None
        if result is not None:
            self._result = dict(result)
            self._result.pop(CONFIG, None)
        self.at = at
        self.text = text
        self._flat: dict[str, Any] | None = None

    @property
    def result(self) -> dict[str, Any]:
        """The result, nested as reported."""
        if self._result is None:
            self._result = strict_json.loads(self.text)
            self._result.pop(CONFIG, None)
        return self._result

    @property
    def flat(self) -> dict[str, Any]:
        """The result with nested keys joined to ``"a/b"``; made once, for all files that are written from it."""
        if self._flat is None:
            self._flat = flatten(self.result)
        return self._flat


@final
class Block:
    """Rows that follow each other and have the same shape, so that their lines can be made together; or such as have none.

    None has a row with anything but numbers, texts, booleans and None in it, or with a float that is not finite, which is written
    otherwise in each file.

    Args:
        shape: Their shape.
        rows: The rows.
        texts: Their texts, where all of them look as the shape's layout says; else empty.

    Attributes:
        shape: See above, as for the others.
        rows: The rows.
        texts: Their texts.
    """

    __slots__ = ("_values", "rows", "shape", "texts")

    def __init__(
        self, shape: Shape | None, rows: list[Row], texts: list[bytes] | None = None
    ) -> None:
        self.shape = shape
        self.rows = rows
        self.texts = texts or []
        self._values: list[tuple[Any, ...]] | None = None

    @property
    def layout(self) -> Layout | None:
        """How all of their texts look; None where they were parsed."""
        return self.shape.layout if self.shape and self.texts else None

    @property
    def values(self) -> list[tuple[Any, ...]]:
        """The values of each row, in the order of their names; empty without a shape."""
        if self._values is None:
            self._values = [tuple(row.result.values()) for row in self.rows] if self.shape else []
        return self._values


_recent: deque[Shape] = deque(maxlen=1)
"""What was met last, as most results look like the one before."""


def blocks_of(rows: Iterable[Row]) -> list[Block]:
    """Return the rows, block by block."""
    rows = list(rows)
    if not IS_COMPILED:
        return _parsed(rows)
    blocks: list[Block] = []
    texts = [row.text for row in rows]
    parsed: list[Row] = []
    at = 0
    while at < len(rows):
        block = _unparsed(rows, texts, at) if texts[at] else None
        if block is None:
            parsed.append(rows[at])
            at += 1
            continue
        blocks += [*_parsed(parsed), block]
        parsed = []
        at += len(block.rows)
    return blocks + _parsed(parsed)


def _unparsed(rows: list[Row], texts: list[bytes], at: int) -> Block | None:
    """Return the block that begins with a row, found by the look of the texts alone; None where they have to be parsed."""
    for shape in (*_recent, None):
        if shape is None and (shape := _shape_of_row(rows[at])) is None:
            return None
        if shape.layout and (num := shape.layout.num_alike(texts, at)):
            _recent.append(shape)
            return Block(shape, rows[at : at + num], texts[at : at + num])
    return None


def _shape_of_row(row: Row) -> Shape | None:
    values = tuple(row.result.values())
    return _shape_of(tuple(row.result), tuple(map(type, values)))


def _parsed(rows: list[Row]) -> list[Block]:
    """Return the rows, block by block, found by what they are parsed to."""
    blocks: list[Block] = []
    block, shape = Block(None, []), None
    names: tuple[str, ...] | None = None
    classes: tuple[type, ...] = ()
    for row in rows:
        result = row.result
        values = tuple(result.values())
        its_names, its_classes = tuple(result), tuple(map(type, values))
        if its_names != names or its_classes != classes:
            names, classes = its_names, its_classes
            shape = _shape_of(names, classes)
        # Their sum is not finite, either, where two are huge; so be it.
        own = shape if shape is not None and isfinite(sum(shape.floats(values))) else None
        if own is not block.shape or not block.rows:
            block = Block(own, [])
            blocks.append(block)
        block.rows.append(row)
    return blocks


class End(NamedTuple):
    """The trial is over for good.

    Attributes:
        has_failed: Whether it ended in ERROR.
        at: Unix time.
        told: How much there was to be told of it; None where nobody need know.
    """

    has_failed: bool
    at: float
    told: Told | None = None


Entry = Begin | Row | End


@dataclass(slots=True)
class Segment:
    """What happened to a trial within one attempt, as far as one batch tells; written in one piece.

    Attributes:
        begin: How the attempt began, None where it had begun before.
        rows: What was reported.
        end: How it ended, None where it goes on.
    """

    begin: Begin | None = None
    rows: list[Row] = field(default_factory=list)
    end: End | None = None
    _blocks: list[Block] | None = field(default=None, init=False, repr=False, compare=False)

    def blocks(self, pace: Callable[[Iterable[Row]], Iterable[Row]]) -> list[Block]:
        """Return `blocks_of` the rows, found once for all files.

        Args:
            pace: How to walk through them.
        """
        if self._blocks is None:
            self._blocks = blocks_of(pace(self.rows))
        return self._blocks

    @property
    def entries(self) -> list[Entry]:
        """Everything in it, oldest first."""
        return [entry for entry in (self.begin, *self.rows, self.end) if entry is not None]


def segments_of(entries: Iterable[Entry]) -> list[Segment]:
    """Return the entries, attempt by attempt; the first may have begun earlier."""
    segments: list[Segment] = []
    rows: list[Row] = []
    for entry in entries:
        if entry.__class__ is Row and segments:
            rows.append(entry)
            continue
        if not segments or isinstance(entry, Begin):
            segments.append(Segment())
            rows = segments[-1].rows
        match entry:
            case Begin():
                segments[-1].begin = entry
            case End():
                segments[-1].end = entry
            case Row():
                rows.append(entry)
            case _:
                assert_never(entry)
    return segments


def begin_of(trial: Trial) -> Begin:
    """Return what is to be told of the attempt with which a trial begins, or goes on."""
    num_earlier = trial.grafts[-1].num_rows if trial.grafts else 0
    if trial.attempt == trial.superseded_attempt + 1:  # the trial begins, or begins anew
        return Begin(trial.config, trial.attempt <= 1, -1, -1, num_earlier, time.time())
    own = next(
        (kept for kept in reversed(trial.checkpoints) if kept.iteration == trial.resumed_iteration),
        None,
    )
    origin = trial.graft.checkpoint if trial.graft else own
    resumed_step = origin.counters.get(TIMESTEPS_TOTAL) if origin else None
    return Begin(
        trial.config,
        trial.attempt <= 1,
        trial.resumed_iteration,
        resumed_step,
        num_earlier,
        time.time(),
    )


def told_of(trial: Trial) -> Told:
    """Return how much there is to be told of a trial."""
    return Told(trial.num_rows, *identity(trial.last_result))


def is_over(trial: Trial) -> bool:
    """Return whether nothing more will be told of the trial; an interrupted one may be continued later."""
    return trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
