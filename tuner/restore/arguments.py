"""Arguments of a restore: what was recorded, unless it is given again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schedulers import FIFOScheduler
from searchers import BasicVariantGenerator
from tuner.execution.group_trainable import GroupTrainable
from tuner.spec import argument_codec
from tuner.spec.argument_codec import Absent
from tuner.spec.config import AUTO, RunConfig, TuneConfig
from tuner.spec.default_algorithms import is_outgrown
from tuner.spec.experiment_location import ExperimentLocation
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.param_space import RecordedSpace
from tuner.spec.record import Record, fingerprint, noted_parts, trainable_changes
from tuner.storage.urls import split_url

_FIELD = re.compile(r"(?:tune_config|run_config)\.(\w+)")
_SINGLE_FIELDS = frozenset({"scheduler", "search_alg", "stop", "callbacks", "validation_config"})


@dataclass(frozen=True, slots=True)
class Given:
    """What is given anew; None, and a field that is missing, stand for what was recorded.

    Attributes:
        param_space: The search space.
        tune_config: What is searched for, and how.
        run_config: How it is run.
        tune: Single fields of the `TuneConfig`.
        run: Single fields of the `RunConfig`.
    """

    param_space: Mapping[str, Any] | None = None
    tune_config: TuneConfig | None = None
    run_config: RunConfig | None = None
    tune: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)


def restored_arguments(record: Record, address: str, given: Given) -> dict[str, Any]:
    """Return the arguments of the `Tuner` that continues an experiment.

    Args:
        record: What its directory declares.
        address: Its directory or URL, for messages.
        given: What holds instead of what was recorded.

    Raises:
        ValueError: If something could not be recorded and is not given either; names every such
            place at once.
    """
    absent: list[Absent] = []
    space = given.param_space
    if space is None:
        noted = argument_codec.constructed(record.parts["param_space"], "param_space", absent)
        space = RecordedSpace(noted) if isinstance(noted, dict) else noted
    single = {**_recorded_parts(given, record, absent), **given.tune}
    tune = _settings("tune_config", given.tune_config, single, record, absent)
    run = _settings("run_config", given.run_config, given.run, record, absent)
    if absent:
        listed = ", ".join(map(str, absent))
        raise ValueError(
            f"what {address!r} could only describe has to be given again: {listed}; pass "
            f"{' and '.join(given_again(absent))} "
            "to Tuner.restore"
        )
    if not _is_given(given, "scheduler") and is_outgrown(tune):
        tune = replace(tune, scheduler=AUTO)
    return {"param_space": space, "tune_config": tune, "run_config": run}


def _recorded_parts(given: Given, record: Record, absent: list[Absent]) -> dict[str, Any]:
    """Return the recorded scheduler and searcher, where none is given now.

    Those that name none are chosen when an experiment begins, and written down as if they had been
    named.
    """
    parts: dict[str, Any] = {}
    for name, classic in (("scheduler", FIFOScheduler), ("search_alg", BasicVariantGenerator)):
        noted = record.parts["tune_config"].get(name)
        if _is_given(given, name):
            continue
        if noted is None:
            parts[name] = classic()  # before there was a choice, none meant these
        elif given.tune_config is not None:
            parts[name] = argument_codec.constructed(noted, f"tune_config.{name}", absent)
    return {name: part for name, part in parts.items() if not isinstance(part, Absent)}


def _is_given(given: Given, name: str) -> bool:
    """Return whether a part of the `TuneConfig` is given now."""
    return given.tune.get(name) is not None or getattr(given.tune_config, name, None) is not None


def _settings(
    place: str, config: Any, single: Mapping[str, Any], record: Record, absent: list[Absent]
) -> Any:
    if config is None:
        return argument_codec.constructed_config(record.parts[place], place, single, absent)
    return argument_codec.replaced(config, single)


def changes(record: Record, spec: ExperimentSpec) -> Iterator[str]:
    """Yield each difference between the two declarations, as ``place: old -> new``."""
    yield from trainable_changes(record.trainable, fingerprint(spec.trainable, spec.name))
    for place, noted in noted_parts(spec).items():
        yield from argument_codec.differences(record.parts[place], noted, place)
    if spec.tune.seed not in (None, record.seed):
        yield f"tune_config.seed: {spec.tune.seed} is not taken, the experiment keeps {record.seed}"


def given_again(absent: Iterable[Absent]) -> Sequence[str]:
    """Return the arguments of `Tuner.restore` with which the absent can be given, each once."""
    return list(dict.fromkeys(f"{name}=" for name in map(_argument_for, absent)))


def _argument_for(absent: Absent) -> str:
    found = _FIELD.match(absent.place)
    if found is None:
        return "param_space"
    return found[1] if found[1] in _SINGLE_FIELDS else found[0].partition(".")[0]


def storage_of(location: ExperimentLocation, record: Record) -> dict[str, Any]:
    """Return the fields of `RunConfig` that say where an experiment of an object store is."""
    if not location.url:
        return {}
    depth = str(record.text.get("declared_name") or "").count("/")
    return {
        "storage_path": split_url(location.url)[0],
        "storage_filesystem": location.filesystem,
        "local_dir": location.directory.parents[depth],
    }


def check_same_trainable(spec: ExperimentSpec, record: Record, address: str) -> None:
    """Check that an experiment is continued with the trainable with which it was begun.

    Raises:
        ValueError: If its name is another one.
    """
    trained, name = record.trainable.get("name"), spec.name
    trainer = record.trainable.get("trainer")
    if trainer and not isinstance(spec.trainable, GroupTrainable):
        raise ValueError(
            f"trainable must be a {trainer.rpartition('.')[2]}, with which the experiment in "
            f"{address!r} was begun, got {name!r}; pass the trainer of this function"
        )
    if trained is not None and name != trained:
        raise ValueError(
            f"trainable must be {trained!r}, which the experiment in {address!r} "
            f"trains, got {name!r}; pass that one, start an experiment with another name, or "
            "continue this one with Tuner.restore(..., allow_other_trainable=True)"
        )
