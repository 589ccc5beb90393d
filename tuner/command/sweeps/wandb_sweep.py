"""Sweep files of W&B: what they have in common with our own, in the keys of these."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from schedulers.halving.rungs import rung_levels
from searchers.space import is_grid
from tuner.command.scripts.python_source import is_number, parse_file
from tuner.command.scripts.script_reports import Reporting, Way, reporting_of

from .space_text import value_of
from .sweep_file import Section
from .wandb_command import WandbCommand
from .wandb_parameters import WandbParameter, nested_in, parameters_in

_OWN_KEYS: Final = frozenset({"program", "method", "parameters", "early_terminate", "run_cap"})
"""Keys that our sweep files do not have."""
_WITHOUT_MEANING: Final = ("project", "entity", "description", "apiVersion", "kind", "controller")
_REFUSED: Final = {
    "job": "jobs of W&B Launch do not run here; write program or command",
    "image_uri": "images of W&B Launch do not run here; write program or command",
    "scheduler": "schedulers of W&B Launch do not run here; write a sweep file of tuner's",
    "metrics": "several metrics need a sweep file of tuner's, with metric: [a, b] and mode: "
    "[min, max]; write metric with one of them",
}
_KEYS: Final = (*sorted(_OWN_KEYS), "command", "metric", "name", *_WITHOUT_MEANING)
_SEARCHERS: Final = {"grid": "variant_generator", "random": "random", "bayes": "auto"}
"""Searchers by W&B's methods."""
_TERMINATE_KEYS: Final = ("type", "min_iter", "max_iter", "s", "eta", "strict")
_FAR: Final = 1_000_000
"""A number of results that no trial reaches."""
_MAX_SHOWN: Final = 4


def is_wandb_sweep(keys: Section) -> bool:
    """Return whether a file is a sweep of W&B's, by its keys."""
    return "space" not in keys and len(_OWN_KEYS & keys.keys()) > 1


def translated(keys: Section) -> tuple[Section, list[str]]:
    """Return the sweep file that means the same, and remarks on what is different here.

    Its keys have the lines of those that they come from.

    Args:
        keys: What a sweep file of W&B's contains.

    Raises:
        ValueError: If something in it has no counterpart, or is wrong; begins with file and line.
    """
    translation = _Translation(keys)
    translation.run()
    return Section(translation.made, keys.path, translation.lines), translation.remarks


@final
class _Translation:
    def __init__(self, keys: Section) -> None:
        self._keys = keys
        self.made: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.remarks: list[str] = []

    def run(self) -> None:
        self._check_keys()
        method = self._method()
        self._put("searcher", _SEARCHERS[method], "method")
        if "parameters" not in self._keys:
            raise self._keys.refusal(None, "there are no parameters; add parameters")
        given = self._section("parameters", "{lr: {min: 0.001, max: 0.1}}")
        command = WandbCommand(self._keys, [*parameters_in(given)])
        self.remarks += command.remarks
        self._put("command", command.words, "command", "program")
        by_name = {one.name: one for one in command.parameters}
        self._put("space", self._space(given, by_name, as_grid=method == "grid"), "parameters")
        self._metric(method)
        self._put("scheduler", self._scheduler(), "early_terminate", "method")
        self._number(method)
        self._name()
        self._reporting()

    def _put(self, key: str, value: Any, *origins: str) -> None:
        self.made[key] = value
        lines = self._keys.lines
        line = next((lines[origin] for origin in origins if origin in lines), None)
        if line is not None:
            self.lines[key] = line

    def _check_keys(self) -> None:
        for key in self._keys:
            if key in _REFUSED:
                raise self._keys.refusal(key, f"{key}: {_REFUSED[key]}")
            if key not in _KEYS:
                raise self._keys.refusal(key, _unknown(key, _KEYS, "a W&B sweep", "an option"))
        if unused := [key for key in self._keys if key in _WITHOUT_MEANING]:
            *others, last = unused
            names = f"{', '.join(others)} and {last} have" if others else f"{last} has"
            self.remarks.append(f"{names} no meaning here.")

    def _section(self, key: str, example: str) -> Section:
        value = self._keys[key]
        if not isinstance(value, Section) or not value:
            what = f"{key} must be a mapping such as {example}, got {value!r:.60}"
            raise self._keys.refusal(key, what)
        return value

    def _method(self) -> str:
        method = self._keys.get("method")
        if method not in _SEARCHERS:
            what = "is missing" if method is None else f"must be one of those, got {method!r}"
            raise self._keys.refusal("method", f"method {what}; write grid, random or bayes")
        return str(method)

    def _space(
        self,
        given: Section,
        by_name: Mapping[str, WandbParameter],
        above: str = "",
        *,
        as_grid: bool,
    ) -> Section:
        made: dict[str, Any] = {}
        lines = dict(given.lines)
        for key, value in given.items():
            if (inner := nested_in(value)) is not None:
                made[key] = self._space(inner, by_name, f"{above}{key}.", as_grid=as_grid)
                continue
            one = by_name[f"{above}{key}"]
            domain, remark = (one.grid(), "") if as_grid else one.domain()
            self.remarks += [remark] if remark else []
            own_key = f"{key}{one.own_name.removeprefix(one.name)}"
            made[own_key] = domain
            lines[own_key] = lines[key]
            if own_key != key:
                self.remarks.append(
                    f"{one.name} is {one.own_name} in configurations, since others lie in it."
                )
        return Section(made, given.path, lines)

    def _metric(self, method: str) -> None:
        if "metric" not in self._keys:
            for key, needs in (("early_terminate", True), ("method", method == "bayes")):
                if needs and key in self._keys:
                    what = f"{key} needs a metric; add metric with its name and goal"
                    raise self._keys.refusal(key, what)
            return
        given = self._section("metric", "{name: val_loss, goal: minimize}")
        for key in given:
            if key not in ("name", "goal"):
                also = ", and end single trials by --stop" if key == "target" else ""
                raise given.refusal(key, f"metric.{key} has no counterpart; remove it{also}")
        goal = given.get("goal", "minimize")
        if goal not in ("minimize", "maximize"):
            raise given.refusal("goal", f"goal must be minimize or maximize, got {goal!r}")
        if "name" not in given:
            raise self._keys.refusal("metric", "metric has no name; add name")
        self._put("metric", given["name"], "metric")
        self._put("mode", goal[:3], "metric")

    def _scheduler(self) -> dict[str, Any]:
        if "early_terminate" not in self._keys:
            return {"type": "fifo"}
        given = self._section("early_terminate", "{type: hyperband, min_iter: 3}")
        _check_terminate(given)
        bands = _bands(given)
        eta = given.get("eta", 3)
        # As many levels as there are bands: nothing happens at the last one, `max_t`.
        max_t = bands[0] * eta ** len(bands)
        levels = [*rung_levels(bands[0], max_t, eta)][:-1]
        shown = ", ".join(f"{level:g}" for level in levels[:_MAX_SHOWN])
        more = ", ..." if len(levels) > _MAX_SHOWN else ""
        wandbs = "" if levels == bands else f" (W&B: {', '.join(map(str, bands[:_MAX_SHOWN]))})"
        by = "" if given.get("strict") is True else "; W&B without strict goes by its best so far"
        self.remarks.append(
            f"early_terminate is asha: at results {shown}{more}{wandbs} a trial ends unless its "
            f"value there is among the best 1/{eta:g}{by}."
        )
        return {
            "type": "asha",
            "grace_period": bands[0],
            "max_t": max_t,
            "reduction_factor": eta,
            "stop_last_trials": False,  # W&B's runs train on
        }

    def _number(self, method: str) -> None:
        cap = self._keys.get("run_cap")
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
            raise self._keys.refusal("run_cap", f"run_cap must be a whole number, got {cap!r}")
        if method != "grid":
            self._put("num_samples", -1 if cap is None else cap, "run_cap", "method")
            if cap is None:
                self.remarks.append("There is no run_cap: the search has no end; -n 50 gives one.")
        elif cap is not None and cap < (size := _grid_size(self.made["space"])):
            raise self._keys.refusal(
                "run_cap",
                f"run_cap must be at least {size}, the number of combinations, since a grid is "
                f"tried as a whole, got {cap}; write method: random to try some of them",
            )

    def _name(self) -> None:
        name = self._keys.get("name")
        if name is None:
            return
        made = re.sub(r"[^\w.-]+", "-", str(name), flags=re.ASCII).strip(".-")
        if not made:
            raise self._keys.refusal("name", f"name must have letters, got {name!r}; change it")
        self._put("name", made, "name")
        if made != name:
            self.remarks.append(f"The name {name!r} becomes {made!r}, since it is a directory's.")

    def _reporting(self) -> None:
        """Have what the program prints read, or remark how it is to report."""
        metric = self.made.get("metric", "loss")
        program = str(self._keys.get("program", ""))
        found = _reporting_of(Path(program))
        if found.way in (Way.REPORT, Way.LINES):
            return
        if found.way is Way.OUTPUT and metric in found.metrics:
            self._put("report", list(found.patterns), "metric")
            self.remarks.append(
                f"{metric} is taken from what {program} prints in line {found.line}."
            )
            return
        self.remarks.append(
            "What the program tells wandb.log alone does not come here: call tune.report("
            f"{{{metric!r}: ...}}) beside it, write lines of JSON to the file that TUNER_REPORT "
            "names, or have its output or a file read: --report REGEX, --report-file FILE."
        )


def _unknown(key: str, known: Sequence[str], of: str, otherwise: str) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"remove it, or give {otherwise}"
    return f"unknown key {key!r} of {of}; {hint}"


def _check_terminate(given: Section) -> None:
    for key in given:
        if key not in _TERMINATE_KEYS:
            of = "early_terminate"
            raise given.refusal(key, _unknown(key, _TERMINATE_KEYS, of, "min_iter"))
    if given.get("type") != "hyperband":
        what = f"early_terminate must have type: hyperband, got {given.get('type')!r}"
        raise given.refusal("type", what)
    for key in ("min_iter", "max_iter", "s", "eta"):
        value = given.get(key, 3)
        if not is_number(value) or value < 1 or (key == "eta" and value == 1):
            accepted = "a number greater than 1" if key == "eta" else "a number of at least 1"
            raise given.refusal(key, f"{key} must be {accepted}, got {value!r}")


def _bands(given: Section) -> list[int]:
    """Return after how many results W&B compares runs."""
    eta = given.get("eta", 3)
    bands: list[int] = []
    if "max_iter" in given and "s" in given:
        band = given["max_iter"] / eta
        while band >= 1 and len(bands) < given["s"]:
            bands.insert(0, int(band))
            band /= eta
        if not bands:
            what = f"max_iter must be at least eta={eta:g}, got {given['max_iter']}"
            raise given.refusal("max_iter", what)
        return bands
    if "min_iter" not in given:
        key = "max_iter" if "max_iter" in given else "type"
        raise given.refusal(
            key, "early_terminate needs min_iter, or both max_iter and s; add min_iter: 1"
        )
    end = min(given.get("max_iter", _FAR), _FAR)
    band = given["min_iter"]
    while band < end:
        bands.append(int(band))
        band *= eta
    if not bands:
        what = f"min_iter must be less than max_iter={end:g}, got {given['min_iter']}"
        raise given.refusal("min_iter", what)
    return bands


def _grid_size(space: Section) -> int:
    size = 1
    for value in space.values():
        if isinstance(value, Section):
            size *= _grid_size(value)
        elif isinstance(value, str) and is_grid(axis := value_of(value)):
            size *= len(axis["grid_search"])
    return size


def _reporting_of(program: Path) -> Reporting:
    if program.suffix != ".py" or not program.is_file():
        return Reporting()
    try:
        return reporting_of(parse_file(program))
    except ValueError:
        return Reporting()
