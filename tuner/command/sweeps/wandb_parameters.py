"""Parameters of W&B's sweep files, as domains of our own."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, final

from tuner.command.scripts.python_source import is_number

from .space_text import value_of, written
from .sweep_file import Section, plain

_NO_COUNTERPART: Final = frozenset({"log_normal", "q_log_normal", "beta", "q_beta"})
_BOUNDS: Final = ("min", "max")
_NORMAL: Final = ("mu", "sigma")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "constant": ("value",),
    "categorical": ("values", "probabilities"),
    "categorical_w_probabilities": ("values", "probabilities"),
    "int_uniform": _BOUNDS,
    "uniform": _BOUNDS,
    "q_uniform": (*_BOUNDS, "q"),
    "log_uniform": _BOUNDS,
    "log_uniform_values": _BOUNDS,
    "q_log_uniform": (*_BOUNDS, "q"),
    "q_log_uniform_values": (*_BOUNDS, "q"),
    "inv_log_uniform": _BOUNDS,
    "inv_log_uniform_values": _BOUNDS,
    "normal": _NORMAL,
    "q_normal": (*_NORMAL, "q"),
}
"""What is said of each distribution besides its name."""
_USUAL: Final = {"mu": 0.0, "sigma": 1.0}
_MAX_PARTS: Final = 100
"""Into how many equal parts probabilities are split."""
_MAX_ERROR: Final = 0.01
"""By what share of itself a probability may be rounded for that."""
_MAX_GRID: Final = 10_000


@final
@dataclass(frozen=True, slots=True)
class WandbParameter:
    """A parameter of a sweep file of W&B's.

    Attributes:
        name: Its name, that of a nested one with dots.
        within: The mapping that declares it.
        key: Its key there.
        is_flag: Whether true is to be a flag in the command, and false nothing.
        is_above: Whether its name is the beginning of others, as where Hydra has a group
            ``optimizer`` and ``optimizer.lr``.
    """

    name: str
    within: Section
    key: str
    is_flag: bool = False
    is_above: bool = False

    @property
    def own_name(self) -> str:
        """Its name in our own space, where no parameter can lie in another one."""
        return f"{self.name}.value" if self.is_above else self.name

    @property
    def given(self) -> Section:
        """What it is declared as."""
        section: Section = self.within[self.key]
        return section

    @property
    def values(self) -> list[Any]:
        """The values that are listed, a constant's included; empty for a range."""
        listed = [self.given["value"]] if "value" in self.given else self.given.get("values", [])
        return listed if isinstance(listed, list) else []

    @property
    def is_range(self) -> bool:
        """Whether its values are numbers between others."""
        return not ({"value", "values"} & self.given.keys())

    def refusal(self, what: str, field: str | None = None) -> ValueError:
        """Return the error for what is wrong with it, or with one of its fields."""
        told = f"{self.name}: {what}"
        in_field = field is not None and field in self.given
        return self.given.refusal(field, told) if in_field else self.within.refusal(self.key, told)

    def domain(self) -> tuple[Any, str]:
        """Return its domain as a sweep file has it, and a remark if it is not quite the same.

        Raises:
            ValueError: If it has no counterpart; begins with file and line.
        """
        distribution = self._distribution()
        if distribution == "constant":
            return written(self._as_flag(plain(self.given["value"]))), ""
        if distribution.startswith("categorical"):
            return self._choice()
        if distribution in ("normal", "q_normal"):
            ends = [self._number(field) for field in _NORMAL]
            word = "randn"
        else:
            word, *ends = self._interval(distribution)
        if not distribution.startswith("q_"):
            return self._called(word, ends), self._exponents(distribution)
        if word == "randn":
            return self._called("qrandn", [*ends, self._q()]), ""
        return self._stepped(word, ends), self._exponents(distribution)

    def grid(self) -> Any:
        """Return its domain where all combinations are tried.

        Raises:
            ValueError: If it has no values to try one after the other; begins with file and line.
        """
        distribution = self._distribution()
        if distribution == "constant":
            return written(self._as_flag(plain(self.given["value"])))
        if distribution == "categorical" and "probabilities" not in self.given:
            return self._call("grid_search", map(self._value, self._listed()))
        if distribution == "int_uniform":
            first, last = (int(self._number(field)) for field in _BOUNDS)
            return self._call("grid_search", self._bounded(range(first, last + 1)))
        if distribution == "q_uniform":
            lower, upper = (self._number(field) for field in _BOUNDS)
            count = max(0, math.ceil((upper - lower) / self._q() - 1e-9))
            steps = range(min(count, _MAX_GRID + 1))
            return self._call(
                "grid_search", self._bounded([_tidy(lower + step * self._q()) for step in steps])
            )
        raise self.refusal(
            f"method grid needs values to try, got the distribution {distribution}; list values, "
            "or write method: random",
            "distribution",
        )

    def _bounded(self, values: Any) -> Iterator[Any]:
        if not 0 < len(values) <= _MAX_GRID:
            raise self.refusal(
                f"a grid needs 1 to {_MAX_GRID:,} values, got {len(values):,}; move min and max"
            )
        return iter(values)

    def _distribution(self) -> str:
        given = self.given
        distribution = given["distribution"] if "distribution" in given else self._implied()
        if distribution in _NO_COUNTERPART:
            raise self.refusal(
                f"the distribution {distribution} has no counterpart; write log_uniform_values or "
                "uniform, with min and max",
                "distribution",
            )
        if distribution not in _FIELDS:
            close = difflib.get_close_matches(str(distribution), _FIELDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_FIELDS)}"
            raise self.refusal(f"unknown distribution {distribution!r}; {hint}", "distribution")
        fields = _FIELDS[distribution]
        for field in given:
            if field not in (*fields, "distribution"):
                close = difflib.get_close_matches(field, fields, n=1)
                hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(fields)}"
                raise self.refusal(f"unknown key {field!r} of {distribution}; {hint}", field)
        for field in fields:
            if field not in given and field not in ("q", "probabilities", *_NORMAL):
                raise self.refusal(f"{distribution} needs {field}; add it")
        return str(distribution)

    def _implied(self) -> str:
        """Return the distribution that is meant where none is named."""
        if "value" in self.given:
            return "constant"
        if "values" in self.given:
            return "categorical"
        ends = [self.given.get(field) for field in _BOUNDS]
        if None in ends:
            raise self.refusal("it needs value, values, or min and max; add them")
        return "int_uniform" if all(map(_is_whole, ends)) else "uniform"

    def _number(self, field: str) -> float:
        value = self.given.get(field, _USUAL.get(field))
        if not is_number(value) or not math.isfinite(value):
            raise self.refusal(f"{field} must be a number, got {value!r}", field)
        return value

    def _q(self) -> float:
        q = self.given.get("q", 1)
        if not is_number(q) or not 0 < q < math.inf:
            raise self.refusal(f"q must be a number greater than 0, got {q!r}", "q")
        return q

    def _interval(self, distribution: str) -> tuple[str, float, float]:
        lower, upper = (self._number(field) for field in _BOUNDS)
        match distribution.removeprefix("q_"):
            case "int_uniform":
                if not (_is_whole(lower) and _is_whole(upper)):
                    raise self.refusal("int_uniform needs whole numbers as min and max")
                return "randint", lower, upper + 1
            case "uniform":
                return "uniform", lower, upper
            case "log_uniform":
                return "loguniform", self._power(lower), self._power(upper)
            case "inv_log_uniform":
                return "loguniform", self._power(-upper), self._power(-lower)
            case _:
                return "loguniform", lower, upper

    def _power(self, exponent: float) -> float:
        try:
            return _tidy(math.exp(exponent))
        except OverflowError as error:
            raise self.refusal(
                f"its bounds are exponents of e, got {exponent:g}; write log_uniform_values for "
                "the values themselves"
            ) from error

    def _exponents(self, distribution: str) -> str:
        """Return a remark if exponents look as if values were meant."""
        if not distribution.endswith("log_uniform"):
            return ""
        lower, upper = (self._number(field) for field in _BOUNDS)
        if not 0 < lower < upper <= 1:
            return ""
        return (
            f"{self.name}: min and max of {distribution} are exponents of e: it goes from "
            f"{math.exp(lower):.4g} to {math.exp(upper):.4g}; {distribution}_values has the values "
            "themselves."
        )

    def _stepped(self, word: str, ends: list[float]) -> str:
        """Return a domain of multiples of q, rounded as W&B does it."""
        q = self._q()
        first, last = (round(end / q) for end in ends)
        if word == "loguniform":
            first = max(first, 1)
        if not isinstance(q, int):
            return self._called(f"q{word}", [_tidy(first * q), _tidy(last * q), q])
        whole = "lograndint" if word == "loguniform" else "randint"
        if q == 1:
            return self._called(whole, [first, last + 1])
        return self._called(f"q{whole}", [first * q, last * q, q])

    def _called(self, word: str, numbers: list[float]) -> str:
        return self._call(word, map(_text, numbers))

    def _call(self, word: str, arguments: Any) -> str:
        text = f"{word}({', '.join(map(str, arguments))})"
        try:
            value_of(text)
        except ValueError as error:
            raise self.refusal(str(error)) from error
        return text

    def _listed(self) -> list[Any]:
        values = self.given["values"]
        if not isinstance(values, list) or not values:
            raise self.refusal(f"values must be a list, got {values!r:.60}", "values")
        return values

    def _choice(self) -> tuple[str, str]:
        values = self._listed()
        probabilities = self.given.get("probabilities")
        if probabilities is None:
            return self._call("choice", map(self._value, values)), ""
        if (
            not isinstance(probabilities, list)
            or len(probabilities) != len(values)
            or not all(is_number(one) and one >= 0 for one in probabilities)
            or not math.isclose(sum(probabilities), 1, abs_tol=1e-6)
        ):
            raise self.refusal(
                f"probabilities must be {len(values)} numbers that add up to 1, got "
                f"{probabilities!r:.80}",
                "probabilities",
            )
        parts = [Fraction(one).limit_denominator(_MAX_PARTS) for one in probabilities]
        whole = math.lcm(*(part.denominator for part in parts))
        is_near = all(
            abs(part - one) <= _MAX_ERROR * one
            for part, one in zip(parts, probabilities, strict=True)
        )
        if whole > _MAX_PARTS or sum(parts) != 1 or not is_near:
            raise self.refusal(
                f"probabilities must be multiples of 1/{_MAX_PARTS}, since a value is listed as "
                f"often as it is likely, got {probabilities!r:.80}; round them",
                "probabilities",
            )
        counts = [int(part * whole) for part in parts]
        repeated = [
            text
            for text, count in zip(map(self._value, values), counts, strict=True)
            for _ in range(count)
        ]
        is_even = len(set(counts)) == 1
        remark = f"{self.name}: values are listed as often as they are likely."
        return self._call("choice", repeated), "" if is_even else remark

    def _value(self, value: Any) -> str:
        """Return a value as it stands in a domain."""
        return _text(self._as_flag(value))

    def _as_flag(self, value: Any) -> Any:
        if not self.is_flag:
            return value
        return f"--{self.name}" if value else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tidy(value: float) -> float:
    """Return a number without the errors of its last digits."""
    return value if isinstance(value, int) else float(f"{value:.12g}")


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(plain(value))


def parameters_in(space: Section) -> list[WandbParameter]:
    """Return the parameters of a mapping of W&B's, those of nested mappings with names with dots.

    Raises:
        ValueError: If one is no mapping; begins with file and line.
    """
    found = [*_parameters_in(space, "")]
    return [
        replace(one, is_above=any(other.name.startswith(f"{one.name}.") for other in found))
        for one in found
    ]


def _parameters_in(space: Section, above: str) -> Iterator[WandbParameter]:
    for key, value in space.items():
        if not isinstance(value, Section):
            raise space.refusal(
                key, f"{key} must be a mapping, got {value!r:.60}; write value: {value!r:.60} in it"
            )
        if (inner := nested_in(value)) is not None:
            yield from _parameters_in(inner, f"{above}{key}.")
        else:
            yield WandbParameter(f"{above}{key}", space, key)


def nested_in(value: Section) -> Section | None:
    """Return the parameters that are nested in one, None if it is one itself."""
    inner = value.get("parameters")
    return inner if isinstance(inner, Section) and value.keys() == {"parameters"} else None
