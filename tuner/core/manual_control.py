"""What the user's hand does to a running experiment: trials are stopped, held back, let go and forked.

What a scheduler decides about a trial that is held back is remembered where it ends the trial, and otherwise has to wait. An experiment
of which nothing is left but trials that are held back waits for the user: they are there to be let go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedulers.decisions import Exploit, Reason, Stop

from . import commands as cmd
from . import events as ev
from .exploits import in_tag
from .lives import TrialLives
from .result import DELIMITER, flatten
from .trial import USER_PAUSE, Intention, ReportReply, Status, TerminationReason, Trial, WorkerState

USER_RESUME: Final = "user.resume"
USER_FORK: Final = "user.fork"

ManualRequest = ev.TrialStopRequested | ev.PauseRequested | ev.ResumeRequested | ev.TrialForked
"""What the user may ask of a single trial."""


class SteeredLives(TrialLives):
    """Leads trials as the user wants them to be led."""

    def objection(self, wish: ManualRequest) -> str:
        """Return why a wish cannot be granted, as a sentence with what would be possible; empty where it can."""
        trial_id = wish.donor_id if isinstance(wish, ev.TrialForked) else wish.trial_id
        trial = self.trial_table.find(trial_id)
        if trial is None:
            return f"there is no trial {trial_id!r:.100}; {_known(self.trial_table.trials)}"
        if self._stopping is not None:
            return f"the experiment is ending ({self._stopping.reason}); restore it to go on"
        return (
            _objection_to_fork(trial, wish)
            if isinstance(wish, ev.TrialForked)
            else self._objection_to(trial, wish)
        )

    def _objection_to(self, trial: Trial, wish: ManualRequest) -> str:
        is_held = trial.trial_id in self.trial_table.held
        if trial.is_finished:
            return f"trial {trial.trial_id} is {trial.status} already; fork it to go on from its checkpoint"
        if isinstance(wish, ev.PauseRequested) and is_held:
            return f"trial {trial.trial_id} has been paused by hand already; resume or stop it"
        if (
            isinstance(wish, ev.ResumeRequested)
            and not is_held
            and trial.status is not Status.PAUSED
        ):
            return f"trial {trial.trial_id} is {trial.status} and not paused"
        return ""

    def _steer(self, wish: ManualRequest) -> None:
        """Grant a wish to which there is no objection; one to which there is one is let pass, since it has come too late."""
        if self.objection(wish):
            return
        match wish:
            case ev.TrialStopRequested(trial_id):
                self._apply([Stop(trial_id, Reason(ev.USER_STOP))])
            case ev.PauseRequested(trial_id):
                self._hold(self.trial_table[trial_id])
            case ev.ResumeRequested(trial_id):
                self._let_go(self.trial_table[trial_id])
            case ev.TrialForked():
                self._fork(wish)

    def _hold(self, trial: Trial) -> None:
        self.trial_table.hold(trial)
        if trial.status is Status.RUNNING:
            self._intend(
                trial,
                Intention(ReportReply.PAUSE, TerminationReason.INTERRUPTED, Reason(USER_PAUSE)),
            )

    def _let_go(self, trial: Trial) -> None:
        self.trial_table.let_go(trial)
        if trial.status is Status.PAUSED:
            self._resume(trial, Reason(USER_RESUME))
        elif trial.intention and trial.intention.reason.rule == USER_PAUSE:
            if trial.worker is WorkerState.STOPPING:
                trial.is_to_resume = True  # it has been told, and is on its way
            else:
                trial.intention = None

    def _let_all_go(self) -> None:
        """Hold nobody back any longer: another session begins, and whoever begins it wants to see something happen."""
        for trial in list(self.trial_table.held.values()):
            self.trial_table.let_go(trial)
            is_by_hand = trial.reason is not None and trial.reason.rule == USER_PAUSE
            if trial.status is Status.PAUSED and (is_by_hand or trial.is_to_resume):
                self._resume(trial, Reason(USER_RESUME))

    def _fork(self, wish: ev.TrialForked) -> None:
        donor = self.trial_table[wish.donor_id]
        config = with_changes(donor.config, wish.changes)
        trial = Trial(wish.trial_id, config, wish.resources, fork_tag(donor, wish.changes))
        self.trial_table.add(trial)
        self.trial_table.admit(trial)
        self.trial_table.num_forked += 1
        self._out.notices.append(cmd.TrialAdded(trial))
        self._apply(self.policies.on_trial_add(trial))
        if trial.is_finished:
            return
        if failure := self.trial_table.misfit(trial):
            trial.failures.append(failure)
            self._give_up(trial)
            return
        decision = Exploit(
            trial.trial_id,
            donor.trial_id,
            config,
            Reason(USER_FORK, {"checkpoint": wish.checkpoint}),
            wish.checkpoint,
        )
        self.exploits.accept(trial, decision, can_save_on_demand=False)
        self._graft(trial)
        trial.experiment_tag = fork_tag(donor, wish.changes)
        self.trial_table.make_ready(trial)


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
    """Return the flattened names among the changes that no hyperparameter of the configuration has."""
    known = _names(config, "")
    return [name for name in changes if name not in known]


def fork_tag(donor: Trial, changes: Mapping[str, Any]) -> str:
    """Return the tag of a trial that goes on from another one with some hyperparameters changed."""
    told = ",".join(
        f"{name.rpartition(DELIMITER)[2]}={in_tag(value)}" for name, value in changes.items()
    )
    return f"{donor.experiment_tag.partition('@')[0]}@forked[{told}]"


def next_fork_id(num_forked: int) -> str:
    """Return the id of the next trial that is forked; searchers' trials have others."""
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
    """Return the names of everything in a configuration, of whole branches as well."""
    names: set[str] = set()
    for key, value in node.items():
        names.add(f"{prefix}{key}")
        if isinstance(value, dict):
            names |= _names(value, f"{prefix}{key}{DELIMITER}")
    return names


def _objection_to_fork(donor: Trial, wish: ev.TrialForked) -> str:
    if not donor.checkpoints:
        return f"trial {donor.trial_id} has no checkpoint to go on from"
    indices = [kept.index for kept in donor.checkpoints]
    if wish.checkpoint not in indices:
        return f"trial {donor.trial_id} has no checkpoint {wish.checkpoint}; it has {', '.join(map(str, indices))}"
    if unknown := unknown_names(donor.config, wish.changes):
        return f"trial {donor.trial_id} has no hyperparameter {', '.join(map(repr, unknown))}; it has {', '.join(flatten(donor.config))}"
    return ""


def _known(trials: Sequence[Trial]) -> str:
    return (
        f"there are {len(trials)}, {trials[0].trial_id} to {trials[-1].trial_id}"
        if trials
        else "there are none yet"
    )
