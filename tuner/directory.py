"""The directory of an experiment: where it lies, whether it can be used, what is declared in it."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.settings import ExperimentSettings
from tuner.errors import ExperimentExists, StorageError
from tuner.storage import atomic, layout, strict_json
from tuner.storage.declaration import FORMAT_VERSION, is_experiment, read_declaration
from tuner.storage.disk import DIRECTORY_MODE, LOCAL_DISK
from tuner.storage.folder import make_folder, make_own_folder
from tuner.storage.recovery import verified
from tuner.storage.release import RELEASE_KEY, THIS_RELEASE

from .declarations import note
from .fingerprint import fingerprint
from .plan import Plan


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
        make_folder(root)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as cause:
        raise StorageError(f"storage_path {str(root)!r} cannot be written to: {cause}; give another one in RunConfig") from cause
    return _named(root, plan.run.name) if plan.run.name else _dated(root, plan.name)


def check_unused(directory: Path) -> None:
    """Make sure that the directory of a new experiment is still unused, now that its lock is held.

    Raises:
        ExperimentExists: If another driver has been there since its name was found free.
    """
    if is_experiment(directory):
        raise ExperimentExists(
            f"{str(directory)!r} already holds an experiment; continue it with Tuner.restore({str(directory)!r}, trainable) or "
            'Tuner(..., resume="auto"), choose another name, or delete it'
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What a directory tells about the experiment in it.

    Attributes:
        trainable: Fingerprint of what its trials run.
        seed: What all chance in it follows from.
        settings: The settings with which it began.
        parts: Space and configurations as they were declared last, by their names as arguments of the `Tuner`, as notes.
        text: All that was written.
    """

    trainable: Mapping[str, Any]
    seed: int
    settings: ExperimentSettings
    parts: Mapping[str, Any]
    text: Mapping[str, Any]

    @property
    def experiment_id(self) -> str:
        """What tells the experiment from all others; of one that an earlier release has written, when it was created."""
        return str(self.text.get("id") or self.text.get("created", ""))


def noted_parts(plan: Plan) -> dict[str, Any]:
    """Return what was declared as notes, by the names of the arguments of the `Tuner`."""
    return {"param_space": note(dict(plan.declared_space)), "tune_config": note(plan.tune), "run_config": note(plan.run)}


def write_declaration(plan: Plan, settings: ExperimentSettings, directory: Path) -> None:
    """Write ``experiment.json``: what was declared, for people and for a restore; nothing in it is ever executed.

    Raises:
        StorageError: If it cannot be written.
    """
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    _write({"created": created, "id": plan.experiment_id, "seed": plan.seed, "settings": settings.as_fields()}, plan, directory)


def rewrite_declaration(plan: Plan, record: Record, directory: Path) -> None:
    """Write down what is declared now; how the experiment began stays as it was recorded.

    Raises:
        StorageError: If it cannot be written.
    """
    _write({name: record.text[name] for name in ("created", "id", "seed", "settings") if name in record.text}, plan, directory)


def _write(beginning: Mapping[str, Any], plan: Plan, directory: Path) -> None:
    declaration = {
        "format_version": FORMAT_VERSION,
        RELEASE_KEY: THIS_RELEASE,
        "name": directory.name,
        "trainable": fingerprint(plan.trainable, plan.name),
        "metric": plan.metric,
        "mode": plan.mode,
        "num_samples": plan.tune.num_samples,
        **beginning,
        **noted_parts(plan),
    }
    path = directory / layout.DECLARATION
    text = strict_json.dumps(strict_json.signed(declaration)) + "\n"
    try:
        if not path.is_file() or path.read_text() != text:
            atomic.write_text(path, text)
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}; nothing has been run") from cause


def read_record(directory: Path) -> Record:
    """Return what the directory of an experiment tells.

    Raises:
        StorageError: If there is no experiment, what it tells cannot be read, or it was written by a later version.
    """
    if not is_experiment(directory):
        raise StorageError(f"{str(directory)!r} holds no experiment; give the directory that fit() has made")
    text = read_declaration(directory)
    try:
        parts = {name: text[name] for name in ("param_space", "tune_config", "run_config")}
        return Record(dict(text["trainable"]), int(text["seed"]), ExperimentSettings.from_fields(text["settings"]), parts, text)
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        path = directory / layout.DECLARATION
        raise StorageError(f"{path} is not as this release writes it ({cause!r}); it has to be whole to continue the experiment") from cause


def check_restorable(directory: Path) -> None:
    """Check that an experiment can be continued, as far as that can be seen without its code, and without changing or locking anything.

    Raises:
        StorageError: If there is no experiment, or its declaration cannot be read.
        DamagedJournal: If its journal does not verify; a torn end does.
    """
    read_record(directory)
    for _ in verified(directory, 0, LOCAL_DISK):
        pass


def named_directory(plan: Plan) -> Path:
    """Return where the experiment lies that has the plan's name."""
    return storage_root(plan) / layout.check_name(plan.run.name or "")


def _named(root: Path, name: str) -> Path:
    directory = root / layout.check_name(name)
    check_unused(directory)
    try:
        make_own_folder(directory)
    except OSError as cause:
        raise StorageError(f"{str(directory)!r} cannot be made: {cause}; choose another name") from cause
    return directory


def _dated(root: Path, trainable: str) -> Path:
    date = dt.datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    stem = f"{_safe(trainable)}_{date}"
    for number in range(1000):
        directory = root / (stem if number == 0 else f"{stem}_{number}")
        try:
            directory.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            continue
        return directory
    raise StorageError(f"no free directory name like {stem!r} is left in {str(root)!r}")


def _safe(name: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name).lstrip("_-")
    return kept[:60] or "experiment"
