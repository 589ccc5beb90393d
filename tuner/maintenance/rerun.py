"""Training one trial of an experiment again, alone, with its configuration and its seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from schedulers import FIFOScheduler
from schedulers.scheduler import Scheduler
from searchers import BasicVariantGenerator
from tuner.analysis.flat_results import flat_metrics
from tuner.analysis.open_experiment import read_stored
from tuner.core.result import AUTO_FILLED
from tuner.core.stoppers import CombinedStopper, MaximumIterationStopper, stopper_from
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.execution.group_trainable import what_runs
from tuner.execution.trainable import (
    asks_for_labels,
    get_trainable,
    is_class_trainable,
    resources_for,
    with_resources,
)
from tuner.journal.rows import JournalRows, Row, histories_of
from tuner.spec import argument_codec, environment
from tuner.spec.argument_codec import Absent
from tuner.spec.config import TuneConfig
from tuner.spec.default_algorithms import full_iteration
from tuner.spec.experiment_spec import ExperimentSpec, Rerun, make_spec
from tuner.spec.param_space import RecordedSpace
from tuner.spec.record import Record, fingerprint, read_record, trainable_changes
from tuner.storage import layout
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec, require_complete
from tuner.storage.declaration import read_environments
from tuner.storage.origin import origin_of
from tuner.storage.urls import split_url

_MAX_NAME: Final = 60
_MAX_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class PreparedRerun:
    """Plan for training a trial again.

    Attributes:
        spec: An experiment of that trial alone.
        trial_id: Its id in the experiment that it comes from.
        recorded: Its results there.
        notes: What is different now, or was decided, a line each.
    """

    spec: ExperimentSpec
    trial_id: str
    recorded: Sequence[Row]
    notes: Sequence[str]


def prepare_rerun(
    path: Path,
    trial: str | int,
    trainable: Any,
    *,
    param_space: Mapping[str, Any] | None = None,
    stop: Any = None,
    **settings: Any,
) -> PreparedRerun:
    """Return the experiment in which one trial of another experiment is trained again.

    Args:
        path: Directory of the other experiment; it may be running.
        trial: The trial's id, or its number.
        trainable: What the trial runs.
        param_space: The other experiment's space; needed where the trial's configuration holds
            functions or objects from it.
        stop: When the trial ends; None for what was declared.
        **settings: Fields of the `RunConfig` that are to be different.

    Raises:
        ValueError: If there is no such trial, or it went on from another trial's checkpoint.
        StorageError: If the experiment cannot be read, or the configuration holds objects and no
            `param_space` is given.
    """
    trainable = what_runs(get_trainable(trainable) if isinstance(trainable, str) else trainable)
    record = read_record(path)
    stored = read_stored(path, ConfigCodec(param_space or {}, ArrayStore(path)).decode)
    meant = _find_trial(trial, stored.experiment.trials, path)
    require_complete(meant.config, meant.trial_id)
    require_own_checkpoints(meant, path)
    criterion, why = (
        (stop, "")
        if stop is not None
        else _criterion(record, meant, trainable, stored.experiment.trials)
    )
    given = {
        "callbacks": None,
        "stop": criterion,
        "name": f"{path.name[:_MAX_NAME]}_{meant.trial_id}_rerun",
        **_place_beside(path),
        "if_exists": "new",
        "time_limit_s": None,
        **settings,
    }
    absent: list[Absent] = []
    run = argument_codec.constructed_config(record.parts["run_config"], "run_config", given, absent)
    if absent:
        raise ValueError(
            f"what {str(path)!r} could only describe cannot be restored: "
            f"{', '.join(map(str, absent))}; use Tuner with it"
        )
    objective = (record.text.get("metric"), record.text.get("mode"))
    metric, mode = objective if all(isinstance(part, str) for part in objective) else (None, None)
    changes_directory = record.parts["tune_config"].get("chdir_to_trial_dir")
    tune = TuneConfig(
        metric=metric,
        mode=mode,
        num_samples=1,
        scheduler=FIFOScheduler(),
        search_alg=BasicVariantGenerator(),
        chdir_to_trial_dir=None if run.executor == "inline" else changes_directory,
    )
    if changes_directory and run.executor == "inline":
        why += (
            "\nit does not work in its own directory as it did, since executor='inline' has "
            "one working directory for all trials"
        )
    # Labels tell on which nodes a trial runs, and this is one machine.
    is_other = asks_for_labels(trainable) or (
        resources_for(trainable, meant.config) != dict(meant.resources)
    )
    if meant.group is None and is_other:
        trainable = with_resources(trainable, dict(meant.resources))
    spec = make_spec(trainable, RecordedSpace(meant.config), tune, run)
    rerun = Rerun(
        str(record.text.get("name", path.name)), meant.trial_id, record.seed_of(meant.trial_id)
    )
    rows = JournalRows(path, histories_of([meant])).of(meant.trial_id)
    return PreparedRerun(
        replace(spec, rerun=rerun, remark=""),
        meant.trial_id,
        rows,
        [*why.splitlines(), *_changes(record, path, spec)],
    )


def _place_beside(path: Path) -> dict[str, Any]:
    """Return the fields of `RunConfig` for an experiment beside another one."""
    origin = origin_of(path)
    if origin is None:
        return {"storage_path": path.parent}
    url = split_url(origin.url)[0]
    return {"storage_path": url} | ({} if origin.is_copy else {"local_dir": path.parent})


def require_own_checkpoints(trial: Trial, path: Path) -> None:
    """Check that a trial can be trained again alone.

    Args:
        trial: The trial.
        path: Directory of its experiment.

    Raises:
        ValueError: If it went on from another trial's checkpoint.
    """
    if trial.grafts:
        raise ValueError(
            f"trial {trial.trial_id} cannot be trained again alone, since it went on from a "
            f"checkpoint of {trial.grafts[-1].donor_id}; "
            f"PopulationBasedTrainingReplay({str(path / layout.pbt_policy(trial.trial_id))!r}) "
            f"replays a schedule of PBT"
        )


def _find_trial(trial: str | int, trials: Sequence[Trial], path: Path) -> Trial:
    by_id = {one.trial_id: one for one in trials}
    wanted = f"t{int(trial):05d}" if str(trial).isdecimal() else str(trial)
    if wanted not in by_id:
        listed = ", ".join(list(by_id)[:_MAX_SHOWN]) + (", ..." if len(by_id) > _MAX_SHOWN else "")
        raise ValueError(
            f"trial must be the id or the number of a trial in {str(path)!r}, got {trial!r}; "
            f"there are {listed or 'none'}"
        )
    return by_id[wanted]


def _criterion(
    record: Record, trial: Trial, trainable: Any, trials: Sequence[Trial]
) -> tuple[Any, str]:
    """Return when the trial ends without its scheduler, and a note for the user.

    That is where training ends that is not stopped early. Where nothing shows that it ever does, as
    after a time budget that no trial has outlived, it ends at the iteration that it had reached;
    one that failed gets one more, to fail again.
    """
    absent: list[Absent] = []
    stop = argument_codec.constructed(
        record.parts["run_config"].get("stop"), "run_config.stop", absent
    )
    is_lost = bool(absent)
    scheduler = argument_codec.constructed(
        record.parts["tune_config"].get("scheduler"), "tune_config.scheduler", absent
    )
    scheduler = scheduler if isinstance(scheduler, Scheduler) else FIFOScheduler()
    full = full_iteration(None if is_lost else stop, scheduler)
    if full is not None:
        limit = MaximumIterationStopper(full)
        return (limit if is_lost else CombinedStopper(stopper_from(stop), limit)), ""
    has_end = (
        any(one.ending is TerminationReason.COMPLETED for one in trials)
        or trial.status is Status.ERROR
    )
    if (
        has_end
        and not is_lost
        and (isinstance(scheduler, FIFOScheduler) or not is_class_trainable(trainable))
    ):
        return stop, ""
    has_failed = trial.status is Status.ERROR
    end = max(1, trial.iteration + has_failed)
    limit = MaximumIterationStopper(end)
    why = (
        f"it ends at iteration {end}, "
        f"{'the one after its last result' if has_failed else 'which it had reached'}; stop= "
        f"says otherwise"
    )
    return limit if is_lost or stop is None else CombinedStopper(stopper_from(stop), limit), why


def _changes(record: Record, path: Path, spec: ExperimentSpec) -> Iterator[str]:
    """Yield what is not as it was when the trial was trained."""
    now = fingerprint(spec.trainable, spec.name)
    yield from (f"changed since: {change}" for change in trainable_changes(record.trainable, now))
    if sessions := read_environments(path):
        yield from environment.differences(sessions[-1], environment.environment_now())


def compare_results(recorded: Sequence[Row], again: Sequence[Row]) -> list[str]:
    """Return lines that compare the results of a rerun with those that were recorded.

    Example:
        >>> again = [{"loss": 0.5, "n": 1}, {"loss": 0.2, "n": 2}, {"loss": 0.1, "n": 3}]
        >>> for line in compare_results([{"loss": 0.5, "n": 1}, {"loss": 0.25, "n": 2}], again):
        ...     print(line)
        loss differs from result 2 on: 0.2 instead of 0.25
        n is the same in 2 of 2 recorded results
        1 more result than was recorded
    """
    num_common = min(len(recorded), len(again))
    if not num_common:
        return [
            "there are no results to compare with those that were recorded"
            if recorded
            else "no results were recorded to compare with"
        ]
    then, now = ([flat_metrics(row) for row in rows[:num_common]] for rows in (recorded, again))
    names = [
        name
        for name in dict.fromkeys(name for row in (*then, *now) for name in row)
        if name not in AUTO_FILLED
    ]
    lines, same = [], []
    for name in names:
        index = next(
            (
                index
                for index in range(num_common)
                if not _is_same(then[index].get(name), now[index].get(name))
            ),
            None,
        )
        if index is None:
            same.append(name)
        else:
            lines.append(
                f"{name} differs from result {index + 1} on: {now[index].get(name)} instead of "
                f"{then[index].get(name)}"
            )
    if same:
        lines.append(
            f"{', '.join(same)} {'is' if len(same) == 1 else 'are'} the same in {num_common} of "
            f"{len(recorded)} recorded results"
        )
    if (num_more := len(again) - len(recorded)) > 0:
        lines.append(
            f"{num_more} more result{'s' if num_more > 1 else ''} than "
            f"{'were' if num_more > 1 else 'was'} recorded"
        )
    return lines


def _is_same(one: Any, other: Any) -> bool:
    are_nan = all(isinstance(value, float) and math.isnan(value) for value in (one, other))
    return are_nan or one == other
