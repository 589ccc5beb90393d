"""Instructions that continue an experiment: a line of Python, or a command that runs its script.

An experiment's directory has no code, so its script is run as it was, with the arguments that were
recorded. A variable of the environment makes the first `Tuner` in it continue an experiment, or
train one of its trials alone, instead of beginning an experiment.
"""

from __future__ import annotations

import keyword
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from schedulers.decisions import Reason
from tuner.errors import ExperimentFenced, StorageLost
from tuner.execution.group_trainable import recorded_part
from tuner.spec import argument_codec
from tuner.spec.argument_codec import Absent
from tuner.spec.config import RunConfig
from tuner.spec.environment import WITHHELD
from tuner.spec.experiment_location import ExperimentLocation, local_root, location_of, storage_root
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.record import Record, fingerprint, noted_parts, read_record
from tuner.storage.declaration import read_environments
from tuner.storage.origin import address_of, origin_of
from tuner.storage.urls import is_url

from .arguments import given_again
from .shell_requests import RERUN, RESUME


@dataclass(frozen=True, slots=True)
class Launch:
    """How a script is started.

    Attributes:
        arguments: The command: interpreter, script or module, arguments.
        directory: The working directory.
        script: The script's path.
    """

    arguments: Sequence[str]
    directory: str
    script: str

    @property
    def withheld(self) -> list[str]:
        """The arguments to be filled in, which looked like secrets and were not recorded."""
        return [argument for argument in self.arguments if WITHHELD in argument]

    def shell_line(self, **variables: str) -> str:
        """Return the command for a shell, with variables of the environment."""
        is_here = self.directory == os.getcwd()  # noqa: PTH109  (as it was recorded)
        place = [] if is_here else [f"cd {shlex.quote(self.directory)} &&"]
        settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        return " ".join([*place, *settings, *map(shlex.quote, self.arguments)])


def launch_of(
    directory: Path, script: str | None = None, arguments: Sequence[str] | None = None
) -> Launch | None:
    """Return how an experiment's script is started, None if no script is recorded.

    Args:
        directory: The experiment's directory.
        script: Where the script lies now, None for where it lay.
        arguments: Its arguments, None for those that were recorded.
    """
    sessions = read_environments(directory)
    recorded: Mapping[str, Any] = next(
        (session for session in reversed(sessions) if session.get("script")), {}
    )
    place = script or recorded.get("script")
    if not place:
        return None
    python = str((recorded.get("python") or {}).get("executable") or "")
    module = recorded.get("module") if script is None else None
    given = (
        [str(argument) for argument in recorded.get("arguments") or ()]
        if arguments is None
        else arguments
    )
    return Launch(
        [
            python if os.access(python, os.X_OK) else sys.executable,
            *(["-m", str(module)] if module else [str(place)]),
            *given,
        ],
        str(recorded.get("directory") or Path(place).parent),
        str(place),
    )


def resume_line(directory: Path) -> str:
    """Return the command that continues an experiment; empty if its script is not there."""
    launch = launch_of(directory)
    return (
        launch.shell_line(**{RESUME: address_of(directory)})
        if launch and Path(launch.script).is_file()
        else ""
    )


def restore_line(directory: Path, spec: ExperimentSpec, **others: str) -> str:
    """Return the line of Python that continues an experiment.

    What was recorded is not given again, all else under its argument's name.

    Args:
        directory: Its directory.
        spec: What was declared.
        **others: Further arguments of `Tuner.restore`, as Python code.
    """
    if (recorded := recorded_part(spec.trainable)) and not others:
        return recorded.resume_line(address_of(directory))
    run, origin = spec.run, origin_of(directory)
    if origin and origin.has_filesystem:
        others["storage_filesystem"] = "storage_filesystem"
    if origin and run.local_dir is not None and storage_root(run) != local_root(None):
        # What has not been uploaded yet is there only.
        others["local_dir"] = repr(os.fspath(storage_root(run)))
    if run.cluster is not None:
        others["cluster"] = "cluster"  # it is not recorded, and may be another one
    name = "trainer" if hasattr(spec.trainable, "trainer") else spec.name
    return _line(directory, name, _given_again(noted_parts(spec)), others)


def recorded_snippet(directory: Path) -> tuple[str, Sequence[str]]:
    """Return a Python program that continues an experiment, and what it lacks, a line each.

    The training code is imported from its module. What was defined in a notebook or a script has to
    be there when the program is run.

    Raises:
        StorageError: If the directory does not tell.
    """
    record = read_record(directory)
    trainable = record.trainable
    trainer = str(trainable.get("trainer") or "").rpartition(".")[2]
    kind = f"{trainer} of the function" if trainer else "trainable,"
    name, module = "trainer" if trainer else str(trainable.get("name")), str(trainable["module"])
    again = _given_again(record.parts)
    is_importable = (
        module not in ("", "__main__", "__mp_main__") and trainable.get("qualname") == name
    )
    lines = [
        "import tuner as tune",
        *([f"from {module} import {name}"] if is_importable else []),
        "",
    ]
    lacking = (
        []
        if is_importable
        else [(f"{_variable(name)} is the {kind} {trainable.get('qualname')} of module {module}")]
    )
    lacking += [f"{argument} is what was given as {argument} before" for argument in again]
    if record.settings.node_wait_s is not None:
        lacking.append(
            "it was begun on a cluster; add cluster=tune.RayCluster(...), or what it was, to run "
            "trials on one again"
        )
    return "\n".join([*lines, f"tune.{_line(directory, name, again)}"]), lacking


def _given_again(parts: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the arguments that have to be given again."""
    absent: list[Absent] = []
    for place, noted in parts.items():
        argument_codec.constructed(noted, place, absent)
    return [argument.removesuffix("=") for argument in given_again(absent)]


def _line(
    directory: Path,
    name: str,
    again: Sequence[str],
    others: Mapping[str, str] = MappingProxyType({}),
) -> str:
    arguments = {**{argument: argument for argument in again}, **others}
    given = "".join(f", {argument}={code}" for argument, code in arguments.items())
    return f"Tuner.restore({address_of(directory)!r}, {_variable(name)}{given}).fit()"


def _variable(name: str) -> str:
    return name if name.isidentifier() and not keyword.iskeyword(name) else "trainable"


def rerun_value(directory: Path, trial_id: str) -> str:
    """Return the value of `RERUN` that asks for a trial."""
    return f"{trial_id}:{address_of(directory)}"


def take_rerun(spec: ExperimentSpec) -> tuple[str, str] | None:
    """Return an experiment's address and the trial to be trained again, once, or None.

    Raises:
        ValueError: If the script declares another experiment.
    """
    trial_id, _, directory = os.environ.pop(RERUN, "").partition(":")
    if not directory:
        return None
    _check_same(RERUN, location_of(directory), spec, "tune.rerun(path, trial, train)")
    return directory, trial_id


def take_resume(spec: ExperimentSpec, own: ExperimentLocation | None) -> ExperimentLocation | None:
    """Return where the experiment is that is to be continued in place of a new one, once, or None.

    Args:
        spec: What the script declares.
        own: Where the experiment is that the script itself continues.

    Raises:
        ValueError: If the script declares another experiment.
    """
    value = os.environ.pop(RESUME, "")
    if not value:
        return None
    run = spec.run
    # The script declares the file system of its storage path, which cannot be in a variable.
    is_there = run.storage_url is not None and value.startswith(f"{run.storage_url}/")
    location = location_of(
        value,
        run.storage_filesystem if is_there else None,
        run.local_dir if is_url(value) else None,
    )
    if own is not None and own.directory.resolve() == location.directory.resolve():
        return None
    _check_same(RESUME, location, spec, "Tuner.restore(path, train).fit()")
    return location


def _check_same(
    variable: str, location: ExperimentLocation, spec: ExperimentSpec, instead: str
) -> None:
    record = location.read_record()
    then, now = record.trainable.get("qualname"), fingerprint(spec.trainable, spec.name)["qualname"]
    if then != now or not (spec.run.name is None or _can_be_named(record, spec.run)):
        name = record.text.get("declared_name") or _folder_of(record)
        raise ValueError(
            f"{variable} names the experiment {name!r} of trainable {then!r} in "
            f"{location.address!r}, but the script begins with "
            f"{spec.run.name or 'an unnamed one'!r} of {now!r}; if it runs several experiments, "
            f"call {instead} instead"
        )


def _can_be_named(record: Record, run: RunConfig) -> bool:
    """Return whether an experiment was begun under the name that a script declares."""
    if "declared_name" in record.text:
        return bool(record.text["declared_name"] == run.name)
    # Release 0.1.0 wrote down the folder alone: the last part of the name, with a number behind it
    # where the name was taken.
    folder, last = _folder_of(record), str(run.name).rpartition("/")[2]
    number = folder.removeprefix(f"{last}_") if run.if_exists == "new" else ""
    return folder == last or number.isdecimal()


def _folder_of(record: Record) -> str:
    """Return the directory name with which the experiment was begun."""
    return str(record.text.get("name"))


def how_to_continue(directory: Path, spec: ExperimentSpec) -> str:
    """Return the line of Python that continues an experiment, and the command if there is one."""
    if recorded := recorded_part(spec.trainable):
        return f"continue with\n    {recorded.resume_line(address_of(directory))}"
    command = resume_line(directory)
    in_python = f"continue with\n    {restore_line(directory, spec)}"
    return f"{in_python}\nor in a shell with\n    {command}" if command else in_python


def shell_line(directory: Path, spec: ExperimentSpec, options: str) -> str:
    """Return the command that continues an experiment; empty if it needs the user's script.

    Args:
        directory: Its directory.
        spec: What was declared.
        options: Those of the command.
    """
    recorded = recorded_part(spec.trainable)
    return f"{recorded.resume_line(address_of(directory))} {options}" if recorded else ""


def how_to_recover(error: BaseException, directory: Path, spec: ExperimentSpec) -> str:
    """Return what can be restored of an experiment that an error has ended, and how."""
    if not isinstance(error, StorageLost):
        return (
            "what had been reported is kept; when this is mended, "
            f"{how_to_continue(directory, spec)}"
        )
    if isinstance(error, ExperimentFenced):
        return (
            "the other driver goes on with the experiment, without what only "
            f"{str(directory)!r} contains; when it has ended, "
            f"continue with\n    {restore_line(directory, spec)}"
        )
    if error.is_deleted:
        return (
            "what had been reported is lost, but for the log files and checkpoints that are "
            "still there; with a backup of the directory, "
            f"continue with\n    {restore_line(directory, spec)}"
        )
    if error.moved_to:
        moved = Path(error.moved_to).parents[1]
        return f"what had been reported is there; continue with\n    {restore_line(moved, spec)}"
    return (
        "what had been reported is kept; when the directory is in its place, and no other "
        "driver works in it, continue with\n"
        f"    {restore_line(directory, spec)}"
    )


def how_to_name_the_metric(
    directory: Path, spec: ExperimentSpec, reason: Reason, *, is_new: bool = False
) -> str:
    """Return how to continue an experiment whose metric no trial has reported.

    Args:
        directory: Its directory.
        spec: What was declared.
        reason: Why it cannot continue.
        is_new: Whether a restore has just named the metric.
    """
    leniency = "TUNE_DISABLE_STRICT_METRIC_CHECKING=1 lets an experiment go on without"
    if "num_failed_validations" in reason.numbers:
        again = 'tune.ResumeConfig(unfinished="restart", finished="restart")'
        return (
            "mend the validation function, and train again with\n"
            f"    {restore_line(directory, spec, resume_config=again)}\n{leniency}"
        )
    if reason.numbers.get("value"):
        return (
            f"report a number for it, and continue with\n    {restore_line(directory, spec)}\n"
            f"{leniency}"
        )
    name, given = _argument_with_metric(spec, reason.numbers["metric"], reason.numbers["meant"])
    remedy = "name one that is reported" if is_new else "have it reported, or name one that is"
    return (
        f"{remedy}, and continue with\n"
        f"    {restore_line(directory, spec, **{name: given})}\n{leniency}"
        f"{', for example if trials report it from now on' if is_new else ''}"
    )


def _argument_with_metric(spec: ExperimentSpec, metric: Any, meant: Any) -> tuple[str, str]:
    """Return the argument of a restore that replaces a metric by another one, and its value."""
    instead = str(meant or "...")
    constraints = spec.tune.constraints or {}
    if metric in constraints and metric not in (spec.metric, *dict(spec.several_objectives)):
        instead = "..." if instead in constraints else instead
        replaced = {instead if name == metric else name: constraints[name] for name in constraints}
        return "constraints", repr(replaced)
    if len(spec.tune.objectives) > 1:
        instead = "..." if instead in dict(spec.tune.objectives) else instead
        names = [instead if name == metric else name for name, _ in spec.tune.objectives]
        return "metric", repr(names)
    parts = (("search_alg", spec.searcher), ("scheduler", spec.scheduler))
    named_by = next((name for name, part in parts if len(part.objectives) > 1), "")
    named_by = named_by or next((name for name, part in reversed(parts) if part.metric), "")
    if spec.tune.metric or not named_by:
        return "metric", repr(meant) if meant else "..."
    return named_by, named_by
