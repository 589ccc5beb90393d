"""The directory of an experiment: where it lies, whether it can be used, what is declared in it."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchers.space import domains, grid_axes
from searchers.tree import flat_name
from tuner.core.settings import ExperimentSettings
from tuner.errors import ExperimentExists, StorageError
from tuner.storage import atomic, layout, strict_json

from .plan import Plan

FORMAT_VERSION = 1


def storage_root(plan: Plan) -> Path:
    """Return the absolute directory in which the experiment's own is made."""
    return Path(plan.run.storage_path or layout.DEFAULT_STORAGE_PATH).expanduser().absolute()


def new_directory(plan: Plan) -> Path:
    """Make the directory of a new experiment.

    Raises:
        ExperimentExists: If the given name is taken.
        StorageError: If the storage path cannot be written to.
    """
    root = storage_root(plan)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as cause:
        raise StorageError(f"storage_path {str(root)!r} cannot be written to: {cause}; give another one in RunConfig") from cause
    return _named(root, plan.run.name) if plan.run.name else _dated(root, plan.name)


def is_experiment(path: Path) -> bool:
    """Return whether the directory holds an experiment."""
    return (path / layout.DECLARATION).is_file() or (path / layout.JOURNAL).is_dir()


def check_unused(directory: Path) -> None:
    """Make sure that the directory of a new experiment is still unused, now that its lock is held.

    Raises:
        ExperimentExists: If another driver has been there since its name was found free.
    """
    if is_experiment(directory):
        raise ExperimentExists(
            f"{str(directory)!r} already holds an experiment; continue it with Tuner.restore({str(directory)!r}, trainable), "
            "choose another name, or delete it"
        )


def write_declaration(plan: Plan, settings: ExperimentSettings, directory: Path) -> None:
    """Write ``experiment.json``: what was declared, for people and for a restore; nothing in it is ever executed.

    Raises:
        StorageError: If it cannot be written.
    """
    declaration = {
        "format_version": FORMAT_VERSION,
        "name": directory.name,
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "trainable": {"name": plan.name, "module": getattr(plan.trainable, "__module__", ""), "qualname": _qualname(plan.trainable)},
        "metric": plan.metric,
        "mode": plan.mode,
        "num_samples": plan.tune.num_samples,
        "seed": plan.seed,
        "settings": settings.as_fields(),
        **_fixed(plan),
        "stop": repr(plan.run.stop),
    }
    text = strict_json.dumps(strict_json.signed(declaration, default=strict_json.opaque))
    try:
        atomic.write_text(directory / layout.DECLARATION, f"{text}\n")
    except OSError as cause:
        raise StorageError(f"{directory / layout.DECLARATION} cannot be written: {cause}; nothing has been run") from cause


def read_declaration(directory: Path) -> Mapping[str, Any]:
    """Return what ``experiment.json`` says.

    Raises:
        StorageError: If it cannot be read, or was written by a later version.
    """
    path = directory / layout.DECLARATION
    try:
        declaration = strict_json.checked(strict_json.loads(path.read_bytes()))
        version = declaration["format_version"]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StorageError(f"{path} cannot be read: {cause}; it has to be there to continue the experiment") from cause
    if version > FORMAT_VERSION:
        raise StorageError(f"{path} has format version {version}, this release reads up to {FORMAT_VERSION}; update tuner-hpo")
    return dict(declaration)


def check_same(plan: Plan, directory: Path) -> Mapping[str, Any]:
    """Return the declaration of an experiment that this plan continues.

    Raises:
        StorageError: If there is none, or it cannot be read.
        ValueError: If the plan declares another experiment; names each difference.
    """
    if not is_experiment(directory):
        raise StorageError(f"{str(directory)!r} holds no experiment; give the directory that fit() has made")
    declaration = read_declaration(directory)
    now = {"trainable": plan.name, **_fixed(plan)}
    then = {"trainable": declaration["trainable"]["name"], **{name: declaration[name] for name in _fixed(plan)}}
    differences = [f"{name} was {then[name]!r} and is {now[name]!r}" for name in now if now[name] != then[name]]
    if differences:
        raise ValueError(f"{str(directory)!r} holds another experiment: {'; '.join(differences)}; restore with what it was run with")
    return declaration


def _fixed(plan: Plan) -> dict[str, Any]:
    """Return what cannot change between the sessions of an experiment."""
    return {"space": _described_space(plan.space), "scheduler": _described(plan.scheduler), "searcher": _described(plan.searcher)}


def _named(root: Path, name: str) -> Path:
    directory = root / layout.check_name(name)
    check_unused(directory)
    try:
        directory.mkdir(exist_ok=True)
    except OSError as cause:
        raise StorageError(f"{str(directory)!r} cannot be made: {cause}; choose another name") from cause
    return directory


def _dated(root: Path, trainable: str) -> Path:
    date = dt.datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    stem = f"{_safe(trainable)}_{date}"
    for number in range(1000):
        directory = root / (stem if number == 0 else f"{stem}_{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise StorageError(f"no free directory name like {stem!r} is left in {str(root)!r}")


def _safe(name: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name).lstrip("_-")
    return kept[:60] or "experiment"


def _qualname(trainable: Any) -> str:
    return str(getattr(trainable, "__qualname__", type(trainable).__qualname__))


def _described_space(space: Mapping[str, Any]) -> dict[str, str]:
    searched = {**domains(space), **grid_axes(space)}
    return {flat_name(path): repr(domain) for path, domain in searched.items()}


def _described(part: object) -> dict[str, Any]:
    return {"class": f"{type(part).__module__}.{type(part).__qualname__}"}
