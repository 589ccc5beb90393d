"""Requests of the user about single trials: whether they are possible, and what they change.

A trial that the user has paused is *held*: it is not started until the user resumes it, whatever
the scheduler decides meanwhile. A decision that ends it takes effect, any other one has to wait. An
experiment in which all remaining trials are held waits for the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schedulers.decisions import Exploit, Reason, Stop

from . import commands as cmd
from . import events as ev
from .exploits import in_tag
from .result import DELIMITER, flatten
from .trial import USER_PAUSE, Status, Trial
from .trial_table import TrialTable

if TYPE_CHECKING:
    from .experiment import Experiment


def why_rejected(
    request: ev.ManualRequest, trial_table: TrialTable, stop_reason: Reason | None
) -> str:
    """Return why a request cannot be carried out, and what can be done instead; empty if it can.

    Args:
        request: The request.
        trial_table: All trials.
        stop_reason: Why the experiment is ending; None if it is not.
    """
    trial_id = request.donor_id if isinstance(request, ev.TrialForked) else request.trial_id
    trial = trial_table.find(trial_id)
    if trial is None:
        return f"there is no trial {trial_id!r:.100}; {_known(trial_table.trials)}"
    if stop_reason is not None:
        return f"the experiment is ending ({stop_reason}); restore it to go on"
    if isinstance(request, ev.TrialForked):
        return _why_not_forked(trial, request)
    if trial.is_finished:
        return (
            f"trial {trial.trial_id} is {trial.status} already; "
            "fork it to go on from its checkpoint"
        )
    return _why_not_held_or_resumed(trial, request, is_held=trial.trial_id in trial_table.held)


def carry_out(request: ev.ManualRequest, core: Experiment) -> None:
    """Carry out a request that is possible."""
    match request:
        case ev.TrialStopRequested(trial_id):
            core.apply([Stop(trial_id, Reason(ev.USER_STOP))])
        case ev.PauseRequested(trial_id):
            trial = core.trial_table[trial_id]
            core.trial_table.hold(trial)
            if trial.status is Status.RUNNING:
                core.intend_pause(trial, Reason(USER_PAUSE))
        case ev.ResumeRequested(trial_id):
            core.paused.resume_by_user(core.trial_table[trial_id])
        case ev.TrialForked():
            _fork(request, core)


def _fork(request: ev.TrialForked, core: Experiment) -> None:
    table = core.trial_table
    donor = table[request.donor_id]
    config = with_changes(donor.config, request.changes)
    tag = fork_tag(donor, request.changes)
    trial = Trial(request.trial_id, config, request.resources, tag)
    trial.group = request.group
    trial.labels = request.group.labels if request.group else request.labels
    table.add(trial)
    table.admit(trial)
    table.num_forked += 1
    core.out.notices.append(cmd.TrialAdded(trial))
    core.apply(core.policies.on_trial_add(trial))
    if trial.is_finished:
        return
    if failure := table.misfit(trial):
        trial.failures.append(failure)
        core.give_up(trial)
        return
    reason = Reason(ev.USER_FORK, {"checkpoint": request.checkpoint})
    exploit = Exploit(trial.trial_id, donor.trial_id, config, reason, request.checkpoint)
    core.exploits.accept(trial, exploit, can_save_on_demand=False)
    core.paused.apply_exploit(trial)
    trial.experiment_tag = tag
    table.make_ready(trial)


def with_changes(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which some hyperparameters have other values.

    Args:
        config: The configuration.
        changes: The values, by the flattened names of hyperparameters that it has.

    Example:
        >>> with_changes({"lr": 0.1, "net": {"depth": 3, "width": 8}}, {"net/depth": 4})
        {'lr': 0.1, 'net': {'depth': 4, 'width': 8}}
    """
    return {key: _changed(value, str(key), changes) for key, value in config.items()}


def unknown_names(config: Mapping[str, Any], changes: Mapping[str, Any]) -> list[str]:
    """Return the flattened names among the changes that the configuration does not have."""
    known = _names(config, "")
    return [name for name in changes if name not in known]


def fork_tag(donor: Trial, changes: Mapping[str, Any]) -> str:
    """Return the tag of a trial that is forked with some hyperparameters changed."""
    changed = ",".join(
        f"{name.rpartition(DELIMITER)[2]}={in_tag(value)}" for name, value in changes.items()
    )
    return f"{donor.experiment_tag.partition('@')[0]}@forked[{changed}]"


def next_fork_id(num_forked: int) -> str:
    """Return the id of the next fork; trials that the searcher suggested have other ids."""
    return f"f{num_forked:05d}"


def _changed(value: Any, name: str, changes: Mapping[str, Any]) -> Any:
    if name in changes:
        return changes[name]
    if isinstance(value, dict):
        return {
            key: _changed(part, f"{name}{DELIMITER}{key}", changes) for key, part in value.items()
        }
    return value


def _names(node: Mapping[str, Any], prefix: str) -> set[str]:
    """Return the flattened names of all values in a configuration, and of whole branches."""
    names: set[str] = set()
    for key, value in node.items():
        names.add(f"{prefix}{key}")
        if isinstance(value, dict):
            names |= _names(value, f"{prefix}{key}{DELIMITER}")
    return names


def _why_not_held_or_resumed(trial: Trial, request: ev.ManualRequest, *, is_held: bool) -> str:
    if isinstance(request, ev.PauseRequested) and is_held:
        return f"trial {trial.trial_id} has been paused by hand already; resume or stop it"
    is_paused = is_held or trial.status is Status.PAUSED
    if isinstance(request, ev.ResumeRequested) and not is_paused:
        return f"trial {trial.trial_id} is {trial.status} and not paused"
    return ""


def _why_not_forked(donor: Trial, request: ev.TrialForked) -> str:
    if not donor.has_checkpoint:
        return f"trial {donor.trial_id} has no checkpoint to go on from"
    indices = [kept.index for kept in donor.checkpoints if not kept.is_placeholder]
    if request.checkpoint not in indices:
        return (
            f"trial {donor.trial_id} has no checkpoint {request.checkpoint}; "
            f"it has {', '.join(map(str, indices))}"
        )
    if unknown := unknown_names(donor.config, request.changes):
        return (
            f"trial {donor.trial_id} has no hyperparameter {', '.join(map(repr, unknown))}; "
            f"it has {', '.join(flatten(donor.config))}"
        )
    return ""


def _known(trials: Sequence[Trial]) -> str:
    if not trials:
        return "there are none yet"
    return f"there are {len(trials)}, {trials[0].trial_id} to {trials[-1].trial_id}"
