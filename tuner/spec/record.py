"""Record of an experiment: its declaration in ``experiment.json``, written and read back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.settings import ExperimentSettings
from tuner.errors import StorageError
from tuner.execution.group_trainable import GroupTrainable, recorded_part
from tuner.journal.mark import MARK, mark_fields
from tuner.storage import layout, strict_json
from tuner.storage.declaration import (
    FORMAT_VERSION,
    RELEASE_KEY,
    THIS_RELEASE,
    is_experiment,
    read_declaration,
    refusal_of,
)
from tuner.storage.disk import has_content, write_bytes

from .argument_codec import note
from .experiment_spec import ExperimentSpec, Rerun, seed_of_trial

_BEGINNING = ("created", "declared_name", "id", "seed", "settings", "rerun")
"""Keys of the declaration that a restore does not change."""
_NUM_SHOWN = 12
_TYPED_IN = frozenset({"<string>", "<stdin>"})
"""File names of code that was given to ``exec`` or typed in; any such code has the same."""


@dataclass(frozen=True, slots=True)
class Record:
    """The declaration of an experiment, as recorded in its directory.

    Attributes:
        trainable: Fingerprint of the trainable.
        seed: Seed of everything random in the experiment.
        settings: The settings with which it began.
        parts: Search space and configurations as declared last, as notes by the names of arguments
            of `Tuner`.
        text: The whole declaration as JSON.
    """

    trainable: Mapping[str, Any]
    seed: int
    settings: ExperimentSettings
    parts: Mapping[str, Any]
    text: Mapping[str, Any]

    @property
    def rerun(self) -> Rerun | None:
        """The trial of another experiment that this one runs again, None if there is none."""
        fields = self.text.get("rerun")
        return (
            Rerun(str(fields["experiment"]), str(fields["trial_id"]), int(fields["seed"]))
            if fields
            else None
        )

    def seed_of(self, trial_id: str) -> int:
        """Return the seed of one of its trials."""
        return seed_of_trial(trial_id, self.seed, self.rerun)

    @property
    def experiment_id(self) -> str:
        """Identifies the experiment among all others."""
        # Early releases recorded no id; the time of creation comes closest.
        return str(self.text.get("id") or self.text.get("created", ""))


def noted_parts(spec: ExperimentSpec) -> dict[str, Any]:
    """Return the declaration as notes, by the names of the arguments of `Tuner`."""
    return {
        "param_space": note(spec.declared_space),
        "tune_config": note(spec.tune),
        "run_config": note(spec.run),
    }


def write_declaration(spec: ExperimentSpec, settings: ExperimentSettings, directory: Path) -> None:
    """Write ``experiment.json``, the declaration for people and for a restore.

    Nothing in it is ever executed.

    Raises:
        StorageError: If it cannot be written.
    """
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    beginning = {
        "created": created,
        "declared_name": spec.run.name,
        "id": spec.experiment_id,
        "seed": spec.seed,
        "settings": settings.as_fields(),
    }
    _write(
        beginning if spec.rerun is None else {**beginning, "rerun": dataclasses.asdict(spec.rerun)},
        spec,
        directory,
    )


def rewrite_declaration(spec: ExperimentSpec, directory: Path, epoch: int) -> None:
    """Update ``experiment.json`` for a new driver; how the experiment began is not changed.

    Args:
        spec: What is declared now.
        directory: The experiment's directory.
        epoch: The driver's epoch, whose segment of the journal exists.

    Raises:
        StorageError: If it cannot be written, or the previous one cannot be read.
    """
    before = read_declaration(directory)
    kept = {name: before[name] for name in _BEGINNING if name in before}
    _write({**kept, MARK: mark_fields(epoch, spec.run.durability)}, spec, directory)


def _write(beginning: Mapping[str, Any], spec: ExperimentSpec, directory: Path) -> None:
    declaration = {
        "format_version": FORMAT_VERSION,
        RELEASE_KEY: THIS_RELEASE,
        "name": directory.name,
        "trainable": fingerprint(spec.trainable, spec.name),
        "metric": spec.metric,
        "mode": spec.mode,
        "num_samples": spec.tune.num_samples,
        **beginning,
        **noted_parts(spec),
    }
    path = directory / layout.DECLARATION
    data = (strict_json.dumps(strict_json.signed(declaration)) + "\n").encode()
    try:
        # An equal file is kept, so that a restore that changes nothing needs no flush to the disk.
        if not has_content(path, data):
            write_bytes(path, data)
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}; nothing has been run") from cause


def read_record(directory: Path) -> Record:
    """Return the declaration in the directory of an experiment.

    Raises:
        StorageError: If there is no experiment, its declaration cannot be read, or it was written
            by a later version.
    """
    if not is_experiment(directory):
        if any(directory.glob(layout.RAY_STATES)):
            raise StorageError(
                f"{str(directory)!r} is an experiment of Ray Tune, whose state is pickled, and "
                "cannot be continued; read it with ResultGrid.from_directory(path, metric, mode), "
                "and begin a new one with points_to_evaluate=tune.points_from(path, metric, mode)"
            )
        raise StorageError(refusal_of(directory))
    text = read_declaration(directory)
    try:
        parts = {name: text[name] for name in ("param_space", "tune_config", "run_config")}
        return Record(
            dict(text["trainable"]),
            int(text["seed"]),
            ExperimentSettings.from_fields(text["settings"]),
            parts,
            text,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        path = directory / layout.DECLARATION
        raise StorageError(
            f"{path} is not as this release writes it ({cause!r}); it has to be whole to "
            "continue the experiment"
        ) from cause


def check_restorable(directory: Path) -> None:
    """Check that an experiment's files are complete; changes and locks nothing.

    Raises:
        StorageError: If there is no experiment, or its declaration cannot be read.
        DamagedJournal: If its journal does not verify or lacks records. An incomplete last record
            is no damage.
    """
    from tuner.journal.completeness import check  # noqa: PLC0415  (new ones have no journal)

    read_record(directory)
    check(directory)


# The trainable, by whose fingerprint a restore notices that it has changed.


def fingerprint(trainable: Any, name: str) -> dict[str, Any]:
    """Return a trainable's name, where it is defined, and the hash of its source if available.

    Of a trainable that tells what it is made from, that is its record instead of the source.

    Args:
        trainable: A function or class, or what the workers of a trainer run.
        name: Its name in tables.
    """
    code, recorded = _defined(trainable), recorded_part(trainable)
    told: dict[str, Any] = {
        "name": name,
        "module": str(getattr(code, "__module__", "")),
        "qualname": str(getattr(code, "__qualname__", "")),
        "source_sha256": None if recorded else _source_hash(code),
    }
    if recorded:
        return {**told, "record": dict(recorded.as_record())}
    trainer = getattr(trainable, "trainer", None) if isinstance(trainable, GroupTrainable) else None
    return told if trainer is None else {**told, "trainer": str(trainer)}


def trainable_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the fingerprint of a trainable differs from another."""
    # Not compared by module: a script's is "__main__" at one time and its file name at another.
    if then.get("qualname") != now["qualname"]:
        yield f"trainable: {then.get('qualname')} -> {now['qualname']}"
    before, after = then.get("record") or {}, now.get("record") or {}
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield f"trainable's {name}: {before[name]!r} -> {after[name]!r}"
    old, new = then.get("source_sha256"), now["source_sha256"]
    if old and new and old != new:
        yield f"trainable's source (SHA-256): {str(old)[:_NUM_SHOWN]} -> {str(new)[:_NUM_SHOWN]}"


def _defined(trainable: Any) -> Any:
    """Return the function or class that the user wrote."""
    while hasattr(trainable, "func"):  # bound by functools.partial or `with_parameters`
        trainable = trainable.func
    return trainable if hasattr(trainable, "__qualname__") else type(trainable)


def _source_hash(code: Any) -> str | None:
    try:
        if inspect.getfile(code) in _TYPED_IN:
            return None
        return hashlib.sha256(inspect.getsource(code).encode(errors="surrogatepass")).hexdigest()
    except (OSError, TypeError, SyntaxError, IndexError):
        # Typed in, generated or built in; or its file has changed since it was imported.
        return None
