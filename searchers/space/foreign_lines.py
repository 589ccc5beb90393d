"""Lines to write instead of domains of other libraries; loaded where a space may have some."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final


@final
@dataclass(frozen=True, slots=True)
class ForeignDomain:
    """A domain of another library.

    Attributes:
        library: The library.
        line: The expression to write instead; None if it is not known.
        constant: The expression for a constant with this value; None if it cannot be meant as one.
    """

    library: str
    line: str | None
    constant: str | None = None


def of_object(library: str, domain: Any) -> ForeignDomain:
    """Return what a domain of a library is, by the name of the library."""
    return ForeignDomain(library, _attempt(_TRANSLATIONS.get(library, _by_attributes), domain))


def of_distribution(distribution: Any) -> ForeignDomain:
    """Return what a distribution of SciPy is."""
    return ForeignDomain(
        "SciPy", _attempt(_scipy, distribution), "tune.choice([...]) with it in the list"
    )


def of_dictionary(given: Mapping[str, Any]) -> ForeignDomain | None:
    """Return what a dictionary is in another library, None if it is no domain there."""
    return next(filter(None, (known(given) for known in (_nni, _wandb, _ax, _ray))), None)


def _attempt(translate: Callable[[Any], str | None], value: Any) -> str | None:
    try:
        return translate(value)
    except Exception:  # noqa: BLE001  (another release of the library has other attributes)
        return None


def _line(word: str, *values: Any) -> str:
    return f"tune.{word}({', '.join(map(_shown, values))})"


def _shown(value: Any) -> str:
    plain = value.item() if hasattr(value, "item") else value
    return repr(plain).replace("e-0", "e-") if isinstance(plain, float) else repr(plain)


def _floats(lower: float, upper: float, *, is_log: Any = False, q: Any = None) -> str:
    log = "log" if is_log else ""
    return _line(f"q{log}uniform", lower, upper, q) if q else _line(f"{log}uniform", lower, upper)


def _integers(lower: int, last: int, *, is_log: Any = False, q: Any = None) -> str:
    """Return the line for integers up to `last`, which is included."""
    log = "log" if is_log else ""
    if q is None or q == 1:
        name = "lograndint" if is_log else "randint"
        return _line(name, int(lower), int(last) + 1)
    return _line(f"q{log}randint", int(lower), int(last), int(q))


def _by_attributes(domain: Any) -> str | None:
    """Return the line by the attributes that most libraries use."""
    for name in ("choices", "categories", "values", "sequence"):
        if (options := getattr(domain, name, None)) is not None and not callable(options):
            return _line("choice", list(options))
    bounds = getattr(domain, "bounds", None)
    ends = [
        next((getattr(domain, name) for name in names if hasattr(domain, name)), None)
        for names in (("low", "lower", "min_value"), ("high", "upper", "max_value"))
    ]
    lower, upper = bounds if None in ends and bounds is not None else ends
    if lower is None or upper is None:
        return None
    marks = [getattr(domain, name, None) for name in ("prior", "sampling", "scaling")]
    is_log = any(getattr(domain, name, False) is True for name in ("log", "log_scale")) or any(
        isinstance(mark, str) and "log" in mark for mark in marks
    )
    q = getattr(domain, "step", None) or getattr(domain, "q", None)
    kind = f"{type(domain).__name__} {getattr(domain, 'parameter_type', '')}".lower()
    make = _integers if "int" in kind.replace("point", "") else _floats
    return make(lower, upper, is_log=is_log, q=q)


def _sampled_domain(domain: Any) -> str | None:
    """Return the line for a domain of Ray Tune, or of one of the libraries with its classes."""
    if hasattr(domain, "categories"):
        return _line("choice", list(domain.categories))
    if hasattr(domain, "func"):
        return "tune.sample_from(function)"
    sampler = domain.get_sampler()
    q = getattr(sampler, "q", None)
    inner = getattr(sampler, "sampler", sampler)
    is_log = "Log" in type(inner).__name__
    if "Normal" in type(inner).__name__:
        return _line("qrandn" if q else "randn", inner.mean, inner.sd, *([q] if q else []))
    if type(domain).__name__ == "Float":
        return _floats(domain.lower, domain.upper, is_log=is_log, q=q)
    is_last = q not in (None, 1) or type(domain).__module__.startswith("syne_tune")
    return _integers(domain.lower, domain.upper - (not is_last), is_log=is_log, q=q)


def _hyperopt(expression: Any) -> str | None:
    if expression.name == "switch":
        options = expression.pos_args[1:]
        is_plain = all(option.name == "literal" for option in options)
        return _line("choice", [option.obj for option in options]) if is_plain else None
    is_integer = expression.name == "int"
    while expression.name in ("float", "int"):
        expression = expression.pos_args[0]
    drawn = expression.pos_args[1]
    given = [argument.obj for argument in (*drawn.pos_args, *(arg for _, arg in drawn.named_args))]
    return _hyperopt_line(drawn.name, given, is_integer=is_integer)


def _hyperopt_line(word: str, given: list[Any], *, is_integer: bool) -> str | None:
    match word, given:
        case "uniform" | "quniform", [lower, upper, *q]:
            make = _integers if is_integer else _floats
            line = make(lower, upper, q=q[0] if q else None)
        case "loguniform" | "qloguniform", [lower, upper, *q]:
            line = _floats(math.exp(lower), math.exp(upper), is_log=True, q=q[0] if q else None)
        case "normal" | "qnormal", [mean, sd, *q]:
            line = _line("qrandn" if q else "randn", mean, sd, *q)
        case "randint", [*ends, upper]:
            line = _line("randint", ends[0] if ends else 0, upper)
        case _:
            return None
    return line


def _nevergrad(parameter: Any) -> str | None:
    lower, upper = (float(bound.reshape(-1)[0]) for bound in parameter.bounds)
    if getattr(parameter, "integer", False):
        return _integers(int(lower), int(upper))
    return _floats(lower, upper, is_log=type(parameter).__name__ == "Log")


_TRANSLATIONS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "hyperopt": _hyperopt,
    "nevergrad": _nevergrad,
    "ray": _sampled_domain,
    "flaml": _sampled_domain,
    "syne_tune": _sampled_domain,
}


def _scipy(distribution: Any) -> str | None:
    # Frozen distributions have another one inside; those of the newer interface are named by class.
    name = getattr(getattr(distribution, "dist", distribution), "name", None)
    name = (name or type(distribution).__name__).lower()
    if name in ("norm", "normal"):
        deviation = getattr(distribution, "std", None) or distribution.standard_deviation
        return _line("randn", distribution.mean(), deviation())
    lower, upper = distribution.support()
    match name:
        case "uniform":
            return _floats(float(lower), float(upper))
        case "loguniform" | "reciprocal":
            return _floats(float(lower), float(upper), is_log=True)
        case "randint":
            return _integers(lower, upper)
    return None


def _dictionary(library: str, line: str | None, given: Mapping[str, Any]) -> ForeignDomain:
    return ForeignDomain(library, line, f"tune.choice([{dict(given)!r}])")


def _nni(given: Mapping[str, Any]) -> ForeignDomain | None:
    if not {"_type", "_value"} <= given.keys():
        return None
    return _dictionary("NNI", _attempt(_nni_line, given), given)


def _nni_line(given: Mapping[str, Any]) -> str | None:
    word, values = given["_type"], list(given["_value"])
    if word == "choice":
        return _line(word, values)
    name = {"normal": "randn", "qnormal": "qrandn"}.get(word, word)
    return _line(name, *values) if name in _NNI_WORDS else None


_NNI_WORDS: Final = frozenset(
    {"uniform", "quniform", "loguniform", "qloguniform", "randint", "randn", "qrandn"}
)
_WANDB_FIELDS: Final = frozenset(
    {"distribution", "min", "max", "mu", "sigma", "q", "values", "probabilities", "value", "a", "b"}
)
_WANDB_LINES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "constant": lambda given: _shown(given["value"]),
    "categorical": lambda given: _line("choice", list(given["values"])),
    "int_uniform": lambda given: _integers(given["min"], given["max"]),
    "uniform": lambda given: _floats(given["min"], given["max"]),
    "q_uniform": lambda given: _floats(given["min"], given["max"], q=given.get("q", 1)),
    "log_uniform": lambda given: _floats(
        math.exp(given["min"]), math.exp(given["max"]), is_log=True
    ),
    "log_uniform_values": lambda given: _floats(given["min"], given["max"], is_log=True),
    "q_log_uniform_values": lambda given: _floats(
        given["min"], given["max"], is_log=True, q=given.get("q", 1)
    ),
    "normal": lambda given: _line("randn", given.get("mu", 0), given.get("sigma", 1)),
    "q_normal": lambda given: _line(
        "qrandn", given.get("mu", 0), given.get("sigma", 1), given.get("q", 1)
    ),
}
_WANDB_DISTRIBUTIONS: Final = frozenset(_WANDB_LINES) | {
    "categorical_w_probabilities", "q_log_uniform", "inv_log_uniform", "inv_log_uniform_values",
    "log_normal", "q_log_normal", "beta", "q_beta",
}  # fmt: skip


def _wandb(given: Mapping[str, Any]) -> ForeignDomain | None:
    fields = set(given)
    if fields == {"min", "max"}:
        is_domain = all(map(_is_number, given.values())) and given["min"] < given["max"]
    elif fields in ({"values"}, {"values", "probabilities"}):
        is_domain = isinstance(given["values"], list | tuple)
    else:
        distribution = given.get("distribution")
        is_domain = (
            isinstance(distribution, str)
            and distribution in _WANDB_DISTRIBUTIONS
            and fields <= _WANDB_FIELDS
        )
    return _dictionary("W&B", _attempt(_wandb_line, given), given) if is_domain else None


def _wandb_line(given: Mapping[str, Any]) -> str | None:
    ends = [given.get("min"), given.get("max")]
    usual = "int_uniform" if all(isinstance(end, int) for end in ends) else "uniform"
    distribution = given.get("distribution", "categorical" if "values" in given else usual)
    return _WANDB_LINES[distribution](given) if distribution in _WANDB_LINES else None


def _ax(given: Mapping[str, Any]) -> ForeignDomain | None:
    match given:
        case {"type": "range", "bounds": [lower, upper]}:
            are_integers = isinstance(lower, int) and isinstance(upper, int)
            make = _integers if given.get("value_type") == "int" or are_integers else _floats
            line = make(lower, upper, is_log=given.get("log_scale", False))
        case {"type": "choice", "values": [*options]}:
            line = _line("choice", options)
        case _:
            return None
    return _dictionary("Ax", line, given)


def _ray(given: Mapping[str, Any]) -> ForeignDomain | None:
    if given.keys() != {"eval"} or not isinstance(given["eval"], str):
        return None
    return _dictionary("ray", f"tune.sample_from(lambda spec: {given['eval']})", given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
