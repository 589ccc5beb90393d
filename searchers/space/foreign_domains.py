"""Domains of other libraries, which a space would hold as constants, and what to write instead.

Recognised are objects, by the module of their class, so that no library is imported; distributions
of SciPy; and dictionaries in the forms of NNI, Weights & Biases and Ax. A dictionary, or a
distribution, that is meant as a constant is written as a choice with this one option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from .domains import Categorical
from .tree import GRID_KEY, Conditional, Path, flat_name, is_grid

_LIBRARY_OF: Final = {
    "hyperopt.pyll": "hyperopt",
    "optuna.distributions": "optuna",
    "ConfigSpace": "ConfigSpace",
    "nevergrad.parametrization": "nevergrad",
    "ray.tune.search.sample": "ray",
    "ray.tune.sample": "ray",
    "flaml.tune.sample": "flaml",
    "syne_tune.config_space": "syne_tune",
    "skopt.space": "skopt",
    "keras_tuner": "keras_tuner",
    "ax.core.parameter": "ax",
    "ax.api.configs": "ax",
}
"""The library, by the module, or prefix of modules, with its domains."""
_SCIPY: Final = "scipy.stats"
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_GENERAL_REMEDY: Final = (
    "tune.uniform(lower, upper), tune.loguniform(lower, upper), tune.randint(lower, upper), "
    "tune.choice([...]) or the like"
)


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


def library_of(value: Any) -> str | None:
    """Return the library whose domain an object is, or None; without importing any library.

    Example:
        >>> library_of(3.0)
    """
    module = type(value).__module__
    return next(
        (
            library
            for known, library in _LIBRARY_OF.items()
            if module == known or module.startswith(f"{known}.")
        ),
        None,
    )


def foreign_domain(value: Any) -> ForeignDomain | None:
    """Return what a value is in another library, None if it is no domain there.

    Example:
        >>> foreign_domain({"_type": "uniform", "_value": [0, 1]}).line
        'tune.uniform(0, 1)'
    """
    if type(value) in _PLAIN:
        return None
    if isinstance(value, Mapping):
        return next(filter(None, (known(value) for known in (_nni, _wandb, _ax, _ray))), None)
    library = library_of(value)
    if library is not None:
        return ForeignDomain(library, _attempt(_TRANSLATIONS.get(library, _by_attributes), value))
    if type(value).__module__.startswith(_SCIPY) and (
        hasattr(value, "rvs") or hasattr(value, "icdf")
    ):
        return ForeignDomain(
            "SciPy", _attempt(_scipy, value), "tune.choice([...]) with it in the list"
        )
    return None


def check_no_foreign_domains(
    space: Mapping[str, Any], place: str, *, accepts: str | None = None
) -> None:
    """Refuse a space with domains of other libraries.

    Args:
        space: The space.
        place: Where it was given, for the message.
        accepts: A library whose domains the searcher supports.

    Raises:
        ValueError: If there are any; with the lines to write instead.
    """
    found = {
        flat_name(path): domain
        for path, domain in _found(space, ())
        if accepts is None or domain.library != accepts
    }
    if not found:
        return
    name, first = next(iter(found.items()))
    lines = ", ".join(
        f'"{name}": {domain.line or _GENERAL_REMEDY}' for name, domain in found.items()
    )
    constant = f", or {first.constant} where it is a constant" if first.constant else ""
    raise ValueError(
        f"{place} must hold constants and tuner's domains, got a domain of {first.library} for "
        f"{name!r}; write {lines}{constant}"
    )


def check_own_space(space: Any, kind: str, *, accepts: str | None = None) -> None:
    """Check a space that was given to a searcher.

    Args:
        space: What was given, None for nothing.
        kind: The searcher.
        accepts: A library whose domains it supports.

    Raises:
        TypeError: If it is no dictionary.
        ValueError: If it has domains of another library.
    """
    if space is None:
        return
    library = library_of(space)
    if not isinstance(space, Mapping):
        given = f"a space of {library}" if library else repr(space)
        raise TypeError(
            f'space must be a dictionary for {kind}, got {given}; write {kind}(space={{"x": '
            "tune.uniform(0, 1)}, ...)"
        )
    check_no_foreign_domains(space, f"space of {kind}", accepts=accepts)


def _found(node: Any, path: Path) -> Iterator[tuple[Path, ForeignDomain]]:
    """Yield the foreign domains of a part of a space, each with its path."""
    # The whole space may have any keys: {"min": 0, "max": 1} are two parameters there.
    if path and (domain := foreign_domain(node)) is not None:
        yield path, domain
    else:
        for steps, part in _parts(node):
            yield from _found(part, (*path, *steps))


def _parts(node: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, Conditional):
        yield from node.inner()
    elif isinstance(node, Categorical):
        yield from _inside_options(node.categories)
    elif is_grid(node):
        yield from _inside_options(node[GRID_KEY])
    elif isinstance(node, Mapping):
        yield from (((key,), part) for key, part in node.items())
    elif isinstance(node, list | tuple):
        yield from (((index,), part) for index, part in enumerate(node))


def _inside_options(options: Any) -> Iterator[tuple[Path, Any]]:
    """Yield what may not be constant in options; an option itself says that it is a constant."""
    for number, option in enumerate(options):
        domain = foreign_domain(option)
        if domain is None:
            yield from (((number, *steps), part) for steps, part in _parts(option))
        elif domain.constant is None:
            yield (number,), option


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
