"""Why a trial went where it went: everything that was decided about it, with the numbers, read from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from schedulers.decisions import Reason
from tuner.core.events import Outcome
from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.storage.strict_json import Opaque

_DEEDS: Final[Mapping[str, str]] = {
    "stop": "is stopped",
    "pause": "is paused",
    "resume": "is resumed",
    "save": "is asked to save",
    "resize": "is given other resources",
}
_WISHES: Final[Mapping[str, str]] = {
    "pause_requested": "pause",
    "resume_requested": "go on",
    "trial_stop_requested": "stop",
}
_MAX_VALUES: Final = 8


def story_of(
    trial: Trial,
    records: Iterable[Mapping[str, Any]],
    metric: str | None = None,
    why_given_up: str = "",
) -> list[str]:
    """Return a trial's story, one line for each thing that happened to it.

    Results at which nothing was decided are left out.

    Args:
        trial: The trial.
        records: The experiment's journal, or all of it that concerns the trial.
        metric: The metric that is told with each result, flattened; None for none.
        why_given_up: Why it was not tried again, where it has failed for good, see `RetryPolicy.why_given_up`; empty if nothing tells.
    """
    teller = _Teller(trial, metric, why_given_up)
    lines = [f"{trial.trial_id}: {_standing(trial)}"]
    restored: list[str] = []  # told only where the trial goes on afterwards
    for record in records:
        at = f"{record['t']:9.2f} s  "
        if record["k"] == "restarted":
            restored = [
                f"{at}the experiment is restored; trials that ran start again from their latest checkpoints"
            ]
        elif told := [f"{at}{line}" for line in teller.lines(record)]:
            lines += (restored if len(lines) > 1 else []) + told
            restored = []
    return lines


def _standing(trial: Trial) -> str:
    why = f", {trial.ending}" if trial.ending not in (None, TerminationReason.FAILED) else ""
    reason = f": {trial.reason}" if trial.reason else ""
    return f"{trial.status} after {trial.iteration} iterations{why}{reason}"


class _Teller:
    """Remembers what a line has to tell beside its own record."""

    def __init__(self, trial: Trial, metric: str | None, why_given_up: str) -> None:
        self._trial_id = trial.trial_id
        self._last_attempt = trial.attempt
        self._why_given_up = why_given_up
        self._is_to_stop = False
        self._metric = metric
        self._iteration: int | None = None
        self._value: Any = None
        self._config: Mapping[str, Any] = {}

    def lines(self, record: Mapping[str, Any]) -> Iterator[str]:
        if record.get("id") == self._trial_id:
            yield from self._own(record)
        for said in record.get("d", ()):
            if said.get("id") == self._trial_id:
                yield from self._decided(said)
            elif said["k"] == "exploit" and said["donor"] == self._trial_id:
                yield f"gives its checkpoint to {said['id']}: {_reason(said)}"

    def _own(self, record: Mapping[str, Any]) -> Iterator[str]:
        match record["k"]:
            case "suggested":
                self._config = flatten(record["config"])
                yield f"is suggested: {_listed(self._config)}"
            case "started":
                self._is_to_stop = False
                yield f"attempt {record['a']} begins"
            case "result":
                flat = flatten(record["m"])
                self._iteration, self._value = (
                    flat.get(TRAINING_ITERATION),
                    flat.get(self._metric) if self._metric else None,
                )
            case "saved":
                yield f"has saved checkpoint {record['c']['index']} of iteration {record['c']['iteration']}"
            case "save_failed":
                yield f"could not save: {record['failure']['kind']}: {record['failure']['message']}"
            case "checkpoint_lost":
                yield f"has lost checkpoint {record['index']}: {record['why']}"
            case "exited":
                yield from self._ended(record)
            case "pause_requested" | "resume_requested" | "trial_stop_requested":
                self._is_to_stop |= record["k"] == "trial_stop_requested"
                yield f"is to {_WISHES[record['k']]}, since the user wants it to"
            case "forked":
                yield f"is forked from {record['donor']}, its checkpoint {record['checkpoint']}, with {_listed(record['changes'])}"
            case _:
                pass

    def _ended(self, record: Mapping[str, Any]) -> Iterator[str]:
        failure = record["failure"]
        how = (
            "since it could not be saved"
            if record["outcome"] == Outcome.UNSAVED
            else record["outcome"]
        )
        yield f"attempt {record['a']} ends, {how}" + (
            f": {failure['kind']}: {failure['message']}" if failure else ""
        )
        # A trial that the user has stopped is not tried again in any case.
        if (
            failure
            and self._why_given_up
            and record["a"] == self._last_attempt
            and not self._is_to_stop
        ):
            yield f"is not tried again: {self._why_given_up}"

    def _decided(self, said: Mapping[str, Any]) -> Iterator[str]:
        where = "" if self._iteration is None else f"at iteration {self._iteration}"
        if where and self._value is not None:
            where += f" with {self._metric}={_short(self._value)}"
        if said["k"] != "exploit":
            yield " ".join(
                filter(None, [where, f"{_DEEDS.get(said['k'], said['k'])}: {_reason(said)}"])
            )
            return
        before, self._config = self._config, flatten(said["config"])
        which = (
            "its latest checkpoint"
            if said["checkpoint"] is None
            else f"its checkpoint {said['checkpoint']}"
        )
        yield " ".join(
            filter(None, [where, f"takes over from {said['donor']}, {which}: {_reason(said)}"])
        )
        yield f"goes on with {_changes(before, self._config)}"


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = [
        f"{name} {_short(before.get(name))} -> {_short(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return ", ".join(changed) or "an unchanged configuration"


def _reason(said: Mapping[str, Any]) -> str:
    return str(Reason(said["rule"], said["n"]))


def _listed(flat: Mapping[str, Any]) -> str:
    shown = [f"{name}={_short(value)}" for name, value in list(flat.items())[:_MAX_VALUES]]
    return ", ".join(shown) + (", ..." if len(flat) > _MAX_VALUES else "")


def _short(value: Any) -> str:
    value = value.text if isinstance(value, Opaque) else value
    return f"{value:.6g}" if isinstance(value, float) else f"{value!s:.60}"
