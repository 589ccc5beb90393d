"""What to search of a script's options: a domain by an option's name, type and default."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tuner.command.scripts.python_source import UNKNOWN, is_number
from tuner.command.scripts.script_option import Option, Takes

from .space_text import value_of

_LOGARITHMIC: Final = frozenset(
    {"lr", "rate", "wd", "decay", "l1", "l2", "reg", "lambda", "penalty"}
)
_RATES: Final = frozenset(
    {
        "dropout", "drop", "momentum", "beta", "beta1", "beta2", "gamma", "smoothing", "mixup",
        "cutmix", "prob", "probability", "ratio", "fraction", "frac", "subsample", "colsample",
        "rho", "tau", "ema",
    }
)  # fmt: skip
_LENGTHS: Final = frozenset(
    {"epoch", "epochs", "steps", "iterations", "iters", "iter", "timesteps"}
)
_NO_LENGTH: Final = frozenset(
    {"warmup", "start", "save", "eval", "log", "decay", "print", "patience", "accumulation", "lr"}
)
_EVALUATION: Final = frozenset({"test", "eval", "val", "valid", "validation", "predict"})
_PLACES: Final = frozenset(
    {
        "device", "devices", "cuda", "gpu", "gpus", "rank", "workers", "worker", "threads", "jobs",
        "cpu", "cpus", "nodes", "port", "host", "url", "backend", "accelerator", "strategy", "mps",
    }
)  # fmt: skip
_FILES: Final = frozenset(
    {
        "dir", "directory", "path", "file", "filename", "root", "output", "out", "outdir", "save",
        "ckpt", "checkpoint", "resume", "log", "logdir", "folder", "cache", "config", "dataset",
        "data", "weights", "pretrained",
    }
)  # fmt: skip
_SHOWN: Final = frozenset(
    {
        "verbose", "verbosity", "debug", "quiet", "interval", "freq", "frequency", "every", "print",
        "project", "wandb", "entity", "tag", "tags", "name", "run", "experiment", "exp", "id",
        "version", "note", "notes", "progress", "loglevel", "level",
    }
)  # fmt: skip
_MAX_CHOICES: Final = 12
_SMALLEST_WIDTH: Final = 8
_LARGE: Final = 1000
_MAX_DIGITS: Final = 6
_SMALL_RATE: Final = 0.01
_RATE_ENDS: Final = (0.9, 0.99)
"""Up to which default a rate ends there; beyond these it is searched next to 1."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to write about an option in a sweep file.

    Attributes:
        option: The option.
        domain: Its domain as text; empty where there is none to suggest.
        left_out: Why it is not searched; empty if it is.
        is_length: Whether it says how long to train.
        has_default: Whether the domain contains the default.
    """

    option: Option
    domain: str = ""
    left_out: str = ""
    is_length: bool = False
    has_default: bool = False


def suggestion_for(option: Option) -> Suggestion:
    """Return what to write about an option.

    Example:
        >>> suggestion_for(Option("lr", "--lr", "float", 1e-3)).domain
        'loguniform(1e-5, 0.1)'
        >>> suggestion_for(Option("seed", "--seed", "int", 1)).left_out
        'not searched; --seed {seed} gives each trial its own'
    """
    suggestion = _suggested(option, _words(option.name))
    if suggestion.left_out:
        return suggestion
    try:
        value_of(suggestion.domain)
    except ValueError:
        return Suggestion(option, left_out="its default is at the end of what numbers can be")
    return suggestion


def _suggested(  # noqa: PLR0911  (a line per case)
    option: Option, words: frozenset[str]
) -> Suggestion:
    if reason := _why_left_out(option, words):
        is_length = _is_length(words) and option.takes is Takes.VALUE
        return Suggestion(option, _flag_choice(option), reason, is_length=is_length)
    if option.takes is not Takes.VALUE:
        return _flag(option)
    if option.truth_of_text:
        return Suggestion(
            option, left_out="type=bool takes every text for true; use BooleanOptionalAction"
        )
    if isinstance(option.choices, tuple):
        return _among(option, option.choices)
    if option.kind == "bool":
        return Suggestion(option, "choice(true, false)", has_default=option.default is not None)
    if option.kind in ("float", "int"):
        return _numeric(option, words)
    what = "its choices are computed" if option.choices is UNKNOWN else "any text"
    default = json.dumps(option.default) if isinstance(option.default, str) else '"A"'
    return Suggestion(option, f'choice({default}, "B")', f"{what}; name the ones to try")


def domain_for_name(name: str) -> str:
    """Return the domain of a parameter of which only the name is known; empty for no idea.

    Example:
        >>> domain_for_name("learning_rate"), domain_for_name("seed")
        ('loguniform(1e-5, 0.1)', '')
    """
    words = _words(name)
    if words & {"lr", "rate", "wd", "decay", *_RATES}:
        return suggestion_for(Option(name, f"--{name}", "float")).domain
    if words & {"width", "hidden", "batch", "units", "size"}:
        return suggestion_for(Option(name, f"--{name}", "int", 64)).domain
    return ""


def _words(name: str) -> frozenset[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.split(r"[^a-z0-9]+", split.lower())
    return frozenset(words)


def _is_length(words: frozenset[str]) -> bool:
    return bool(words & _LENGTHS) and not words & _NO_LENGTH


def _why_left_out(  # noqa: PLR0911  (a line per reason)
    option: Option, words: frozenset[str]
) -> str:
    if {"seed", "state"} & words and option.kind in ("int", ""):
        return "not searched; --seed {seed} gives each trial its own"
    if _is_length(words):
        return "how long to train: see max_t below"
    if words & {"rate", "lr", *_RATES} and option.kind == "float":
        return ""
    if words & _PLACES:
        return "where it runs"
    if words & _EVALUATION and words & {"batch", "size"}:
        return "does not change training"
    if words & _SHOWN:
        return "what it shows or how it is called"
    is_text = option.kind in ("str", "path", "") or option.takes is not Takes.VALUE
    if option.kind == "path" or (words & _FILES and is_text):
        return "files"
    return ""


def _flag(option: Option) -> Suggestion:
    """Return how to search an option that takes no value, or several."""
    if option.takes is Takes.VALUES:
        return Suggestion(option, left_out="takes several values; write them into the command")
    how = f"a flag: also put {{{option.name}}} before {{args}}"
    return Suggestion(option, _flag_choice(option), how)


def _flag_choice(option: Option) -> str:
    """Return the domain of a flag as a word of its own; empty for other options."""
    if option.takes not in (Takes.NOTHING, Takes.OR_NO):
        return ""
    return choice_of([option.flag, option.off_flag or None])


def _among(option: Option, choices: Iterable[Any]) -> Suggestion:
    known = [one for one in choices if isinstance(one, str | int | float)]
    domain = choice_of(known)
    if len(known) < 2:  # noqa: PLR2004  (nothing to choose)
        return Suggestion(option, left_out="has one value")
    if len(known) > _MAX_CHOICES:
        return Suggestion(option, domain, f"{len(known)} choices; keep those to try")
    return Suggestion(option, domain, has_default=option.default in known)


def _numeric(  # noqa: PLR0911  (a line per case)
    option: Option, words: frozenset[str]
) -> Suggestion:
    default = option.default if is_number(option.default) else None
    if option.kind == "int":
        return _whole(option, default)
    if words & _LOGARITHMIC and not words & {"drop", "dropout"}:
        return _magnitude(option, default, words)
    if words & _RATES and (default is None or 0 <= default < 1):
        return _rate(option, default)
    if default is None:
        return Suggestion(option, "uniform(0.0, 1.0)", "no default to begin from; set its bounds")
    if default == 0:
        return Suggestion(option, "uniform(0.0, 1.0)", "0 is off as a rule; set its bounds")
    if default < 0:
        return Suggestion(
            option, _between("uniform", 2 * default, default / 2), "negative; set its bounds"
        )
    lower, upper = _clipped(option, default / 10, default * 10)
    return _interval(option, "loguniform", lower, upper)


def _magnitude(option: Option, default: float | None, words: frozenset[str]) -> Suggestion:
    """Return a domain over orders of magnitude, two to each side."""
    is_decay = bool(words & {"wd", "decay", "l1", "l2", "reg", "lambda", "penalty"})
    center = default if default and default > 0 else (1e-4 if is_decay else 1e-3)
    exponent = round(math.log10(center), 9)
    lower = 10.0 ** (math.floor(exponent) - 2)
    top = 10.0 ** math.ceil(exponent)
    lower, upper = _clipped(option, lower, min(100 * top, max(1.0, 10 * top)))
    return _interval(option, "loguniform", lower, upper)


def _rate(option: Option, default: float | None) -> Suggestion:
    upper = next((end for end in _RATE_ENDS if (default or 0) < end), None)
    if default and default < _SMALL_RATE:
        return _interval(option, "loguniform", *_clipped(option, default / 10, default * 10))
    ends = (0.0, upper) if upper else (0.9, 0.9999)
    return _interval(option, "uniform", *_clipped(option, *ends))


def _whole(option: Option, default: float | None) -> Suggestion:
    if default is None or default != int(default):
        return Suggestion(option, "randint(1, 10)", "no default to begin from; set its bounds")
    center = int(default)
    if center <= 0:
        return Suggestion(option, "randint(1, 10)", f"{center} is off as a rule; set its bounds")
    if center >= _SMALLEST_WIDTH and center & (center - 1) == 0:
        lower, upper = _clipped(option, 0, math.inf)
        near = [one for one in (center // 2, center, 2 * center) if lower <= one <= upper]
        if len(near) > 1:
            return Suggestion(option, choice_of(near), has_default=True)
    if center >= _LARGE:
        lower, upper = _clipped(option, max(1, center // 10), center * 10)
        return _interval(option, "lograndint", int(lower), int(upper) + 1)
    lower, upper = _clipped(option, max(1, center // 2), center * 2)
    return _interval(option, "randint", int(lower), int(upper) + 1)


def _clipped(option: Option, lower: float, upper: float) -> tuple[float, float]:
    """Return bounds within those that the option itself has."""
    low = lower if option.lower is None else max(lower, option.lower)
    high = upper if option.upper is None else min(upper, option.upper)
    return low, high


def _interval(option: Option, word: str, lower: float, upper: float) -> Suggestion:
    if not lower < upper or (word.startswith("log") and lower <= 0):
        return Suggestion(option, left_out="its bounds leave nothing to search")
    is_inside = is_number(option.default) and lower <= option.default <= upper
    return Suggestion(option, _between(word, lower, upper), has_default=is_inside)


def _between(word: str, lower: float, upper: float) -> str:
    return f"{word}({shown(lower)}, {shown(upper)})"


def choice_of(values: Iterable[Any]) -> str:
    """Return the text of a choice.

    Example:
        >>> choice_of(["adam", 64, True, 1e-5, None])
        'choice("adam", 64, true, 1e-5, null)'
    """
    return f"choice({', '.join(map(shown, values))})"


def shown(value: Any) -> str:
    """Return a value as it stands in a sweep file's domain."""
    if isinstance(value, float) and math.isfinite(value):
        text = f"{value:.12g}"
        if len(text) > _MAX_DIGITS and text.strip("-").isdecimal():
            text = re.sub(r"\.?0*e", "e", f"{value:.12e}")
        mantissa, e, exponent = text.partition("e")
        if e:
            return f"{mantissa}e{int(exponent)}"
        return text if "." in text else f"{text}.0"
    return json.dumps(value)
