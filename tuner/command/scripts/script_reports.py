"""How a script tells its metrics, found by reading it, and what a sweep file says about that."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .printed_lines import Field, Piece, PrintedLine, printed_lines
from .python_source import dotted_name, in_order, last_name

_LOWER_IS_BETTER: Final = frozenset(
    {
        "loss", "losses", "error", "err", "rmse", "mse", "mae", "mape", "nll", "perplexity", "ppl",
        "wer", "cer", "fid", "brier", "logloss", "bpb", "bpc", "cost",
    }
)  # fmt: skip
_HIGHER_IS_BETTER: Final = frozenset(
    {
        "acc", "acc1", "accuracy", "top1", "prec", "prec1", "precision", "recall", "f1", "auc",
        "auroc", "score", "r2", "bleu", "rouge", "iou", "miou", "dice", "map", "reward", "rewards",
        "return", "psnr", "ssim", "ndcg",
    }
)  # fmt: skip
_METRICS: Final = _LOWER_IS_BETTER | _HIGHER_IS_BETTER
_HELD_OUT: Final = frozenset({"val", "valid", "validation", "test", "eval", "dev", "heldout"})
_AT_THE_END: Final = frozenset({"best", "final", "finished", "total"})
_STEPS: Final = frozenset({"step", "steps", "iter", "iteration"})
_SESSIONS: Final = frozenset({"tune", "tuner", "train", "session", "ray"})
_TRACKERS: Final = frozenset({"log", "log_metric", "log_metrics", "add_scalar", "add_scalars"})
_BY_ITSELF: Final = ",;%"
"""What may stand behind a number in a group, since it is cut off when the number is read."""
_MAX_WORDS: Final = 3


class Way(enum.Enum):
    """How a script tells its metrics."""

    REPORT = "tune.report"
    LINES = "lines of JSON"
    OUTPUT = "output"
    CSV = "a CSV logger"
    TRACKER = "a tracker"
    NONE = "nothing that can be seen"


@dataclass(frozen=True, slots=True)
class Reporting:
    """How a script tells its metrics.

    Attributes:
        way: The way that takes the least change to the script.
        metric: The metric to compare trials by; empty if none is known.
        mode: ``"min"`` or ``"max"``: its direction.
        metrics: All metrics found there.
        patterns: Regular expressions that find them in the output.
        line: Where the script tells them, 0 for nowhere.
        call: The function that it calls for that.
    """

    way: Way = Way.NONE
    metric: str = ""
    mode: str = "min"
    metrics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    line: int = 0
    call: str = ""


def reporting_of(tree: ast.Module) -> Reporting:
    """Return how a script tells its metrics."""
    calls = [node for node in in_order(tree) if isinstance(node, ast.Call)]
    names = _imported_reports(tree)
    for call in calls:
        owner, _, name = dotted_name(call.func).rpartition(".")
        if (name == "report" and owner.split(".")[0] in _SESSIONS) or (not owner and name in names):
            return _told(Way.REPORT, call, [*_keys(call, tree)])
    if any(
        isinstance(node, ast.Constant) and node.value == "TUNER_REPORT" for node in in_order(tree)
    ):
        return Reporting(Way.LINES, call="TUNER_REPORT")
    if (printed := _printed(tree)).way is Way.OUTPUT:
        return printed
    tracked = [call for call in calls if _is_tracking(call)]
    metrics = [name for call in tracked for name in _keys(call, tree)]
    for call in calls:
        if last_name(call.func) == "CSVLogger":
            return _told(Way.CSV, call, metrics)
    first = next((call for call in tracked if [*_keys(call, tree)]), None)
    return Reporting() if first is None else _told(Way.TRACKER, first, metrics)


def _imported_reports(tree: ast.Module) -> frozenset[str]:
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _SESSIONS
        for alias in node.names
        if alias.name == "report"
    )


def _is_tracking(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _TRACKERS and bool(call.args)


def _keys(call: ast.Call, tree: ast.Module) -> Iterator[str]:
    """Yield the names of metrics in a call: keys of a dictionary, or a first argument."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Name):
        first = next(
            (
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Dict)
                and any(isinstance(one, ast.Name) and one.id == first.id for one in node.targets)
            ),
            None,
        )
    match first:
        case ast.Dict(keys=keys):
            for key in keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
        case ast.Constant(value=str(name)) if len(call.args) > 1:
            yield name
    if last_name(call.func) == "report":
        yield from (
            one.arg for one in call.keywords if one.arg and one.arg not in ("checkpoint", "metrics")
        )
        for one in call.keywords:
            if one.arg == "metrics" and isinstance(one.value, ast.Dict):
                yield from (
                    key.value
                    for key in one.value.keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                )


def _told(way: Way, call: ast.Call, metrics: Sequence[str]) -> Reporting:
    metric = chosen_metric(metrics)
    return Reporting(
        way,
        metric,
        mode_of(metric),
        tuple(dict.fromkeys(metrics)),
        line=call.lineno,
        call=dotted_name(call.func) or last_name(call.func),
    )


def chosen_metric(names: Sequence[str]) -> str:
    """Return the metric to compare trials by; empty if there is none.

    Example:
        >>> chosen_metric(["epoch", "train_loss", "val_acc", "val_loss"])
        'val_acc'
    """
    known = [name for name in names if _words(name) & _METRICS]
    held_out = [name for name in known if _words(name) & _HELD_OUT]
    return next(iter([*held_out, *known]), "")


def mode_of(metric: str) -> str:
    """Return the direction in which a metric is optimised, ``"min"`` or ``"max"``, by its name.

    Example:
        >>> mode_of("val_loss"), mode_of("test_accuracy")
        ('min', 'max')
    """
    words = _words(metric)
    return "max" if words & _HIGHER_IS_BETTER and not words & _LOWER_IS_BETTER else "min"


def _words(text: str) -> frozenset[str]:
    return frozenset(_in_words(text))


def _in_words(text: str) -> list[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word for word in re.split(r"[^a-z0-9]+", split.lower()) if word]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A printed line with its fields named: metrics, and epoch or step."""

    line: PrintedLine
    names: Mapping[int, str]
    """Names of groups by the place of their field among the pieces."""

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.names.values() if name not in ("epoch", "step")]

    @property
    def has_epoch(self) -> bool:
        return "epoch" in self.names.values()

    @property
    def score(self) -> int:
        """How likely it is that this line is meant to tell how good a trial is."""
        words = [_words(name) for name in self.metrics]
        text = _words(" ".join(piece for piece in self.line.pieces if isinstance(piece, str)))
        is_held_out = any(one & _HELD_OUT for one in words) or bool(text & _HELD_OUT)
        return (
            4 * is_held_out
            + 2 * self.has_epoch
            - 3 * ("train" in text and not is_held_out)
            - 2 * ("step" in self.names.values() or bool(text & {*_STEPS, "batch"}))
            - 4 * bool(text & _AT_THE_END)
            - max(0, self.line.depth - 1)
        )


def _printed(tree: ast.Module) -> Reporting:
    """Return the metrics that a script prints."""
    found = [_Candidate(line, _named(line.pieces)) for line in printed_lines(tree)]
    told = [one for one in found if one.metrics]
    if not told:
        return Reporting()
    best = max(told, key=lambda one: one.score)
    patterns = [pattern_of(best.line.pieces, best.names)]
    names = list(best.names.values())
    header = next((one for one in found if one.has_epoch), None)
    if header and not best.has_epoch:
        place = next(place for place, name in header.names.items() if name == "epoch")
        patterns.insert(0, pattern_of(header.line.pieces, {place: "epoch"}))
        names.insert(0, "epoch")
    metric = chosen_metric(best.metrics)
    return Reporting(
        Way.OUTPUT,
        metric,
        mode_of(metric),
        tuple(names),
        tuple(patterns),
        line=best.line.line,
        call="print",
    )


def _named(pieces: Sequence[Piece]) -> dict[int, str]:
    """Return the names of the fields that tell something, by their places."""
    names: dict[int, str] = {}
    label = ""
    for place, piece in enumerate(pieces):
        if isinstance(piece, str):
            continue
        before = pieces[place - 1] if place else ""
        text = before if isinstance(before, str) else ""
        is_continued = not re.search(r"[A-Za-z]", text)
        label = label if is_continued else _phrase(text)
        name = _name_for(label, piece.name, is_continued=is_continued and place > 1)
        if not name:
            continue
        if name in names.values():
            previous = next(one for one, given in names.items() if given == name)
            if _is_percentage(pieces, place) and not _is_percentage(pieces, previous):
                del names[previous]  # `9700/10000 (97%)`
            else:
                continue
        names[place] = name
    return names


def _phrase(text: str) -> str:
    """Return the last words of a text, which say what follows it.

    Example:
        >>> _phrase("Test set: Average loss: ")
        'Average loss'
    """
    return re.split(r"[,;:|()\[\]/\t{]| - |  ", text.rstrip(" \t:=([{'\"-~"))[-1].strip(" '\"")


def _name_for(label: str, variable: str, *, is_continued: bool) -> str:
    """Return the name of a field's group, empty if the field is of no interest."""
    said, own = _words(label), _words(variable)
    if not is_continued:
        is_metric = bool((said | own) & _METRICS)
        if "epoch" in said or ("epoch" in own and not is_metric):
            return "epoch"
        if (said | own) & _STEPS and not is_metric:
            return "step"
    is_own = variable.isidentifier() and bool(own & _METRICS)
    if is_own and (own & _HELD_OUT or not said & {*_HELD_OUT, "train"}):
        return variable
    if not said & _METRICS:
        return ""
    words = ["val" if word in ("valid", "validation") else word for word in _in_words(label)]
    name = "_".join(words[-_MAX_WORDS:])
    return name if name.isidentifier() else f"_{name}"


def _is_percentage(pieces: Sequence[Piece], place: int) -> bool:
    field = pieces[place]
    after = pieces[place + 1] if place + 1 < len(pieces) else ""
    in_spec = isinstance(field, Field) and field.spec.endswith("%")
    return in_spec or (isinstance(after, str) and after.startswith("%"))


def pattern_of(pieces: Sequence[Piece], names: Mapping[int, str]) -> str:
    r"""Return a regular expression that finds fields of a printed line.

    Args:
        pieces: The line.
        names: The names of the groups, by the places of the fields.

    Example:
        >>> pattern_of(["epoch ", Field("i"), ": loss=", Field("x")], {1: "epoch", 3: "loss"})
        'epoch (?P<epoch>\\d+): loss=(?P<loss>\\S+)'
    """
    first, last = min(names), max(names)
    begin = first - 1 if first and isinstance(pieces[first - 1], str) else first
    parts: list[str] = []
    for place in range(begin, last + 1):
        piece = pieces[place]
        if isinstance(piece, Field):
            parts.append(_group(piece, names.get(place, ""), is_first=not parts))
        else:
            text = piece.lstrip() if place == begin else piece
            parts.append(_escaped(text))
    after = pieces[last + 1] if last + 1 < len(pieces) else ""
    if isinstance(after, str) and (end := re.match(r"\S*", after)) and end[0].strip(_BY_ITSELF):
        parts.append(_escaped(end[0]))
    return _tidy("".join(parts))


def _group(field: Field, name: str, *, is_first: bool) -> str:
    space = r"\s*" if field.is_padded else ""
    if not name:
        return ".*?"
    inner = r"\d+" if name == "epoch" else r"\S+"
    behind = space if field.spec.startswith("<") else ""
    before = "" if is_first else space
    return f"{before}(?P<{name}>{inner}){behind}"


def _escaped(text: str) -> str:
    escaped = re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)
    return escaped.replace("\t", r"\t")


def _tidy(pattern: str) -> str:
    """Return a pattern without spaces beside those that may be there."""
    return re.sub(r" *\\s\*\s*", r"\\s*", pattern)
