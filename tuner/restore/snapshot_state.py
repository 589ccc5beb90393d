"""The state that a snapshot holds, and how an experiment goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.experiment import Experiment
from tuner.core.trial import Trial
from tuner.core.trial_json import trial_fields, trial_from
from tuner.journal.snapshot_files import Snapshot, load_newest
from tuner.spec.argument_codec import note
from tuner.spec.experiment_spec import Plan
from tuner.storage import strict_json
from tuner.storage.checkpoints import locate
from tuner.storage.config_codec import ConfigCodec, missing
from tuner.storage.declaration import read_declaration
from tuner.storage.layout import trial_path

from .search_adapter import Proposer


@dataclass(frozen=True, slots=True)
class State:
    """The parts of an experiment that change, beside its trials.

    Attributes:
        experiment: The fold, with scheduler and stopper.
        proposer: The searcher's desk.
        configs: How configurations are written down.
    """

    experiment: Experiment
    proposer: Proposer
    configs: ConfigCodec

    @property
    def can_be_put_down(self) -> bool:
        """Whether each of them can tell its state; else it has to be rebuilt from the whole journal."""
        policies = self.experiment.policies
        return (
            policies.scheduler.keeps_state
            and policies.stopper.keeps_state
            and self.proposer.keeps_state
        )

    def put_down(self) -> dict[str, Any]:
        """Return it as JSON values, without the trials."""
        policies = self.experiment.policies
        return {
            "experiment": self.experiment.state_dict(),
            "scheduler": policies.scheduler.state_dict(),
            "stopper": policies.stopper.state_dict(),
            "proposer": self.proposer.state_dict(),
        }

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Bring it back from what `put_down` returned, and the trials.

        Raises:
            Exception: Whatever a part raises that is not the one whose state was put down.
        """
        policies = self.experiment.policies
        self.experiment.load_state_dict(state["experiment"], map(self.trial_from, state["trials"]))
        policies.scheduler.load_state_dict(state["scheduler"])
        policies.stopper.load_state_dict(state["stopper"])
        self.proposer.load_state_dict(state["proposer"])

    def words_for(self, trial: Trial) -> bytes:
        """Return all that is known about a trial as JSON text."""
        text = strict_json.to_bytes(trial_fields(trial, self.configs.encode), strict_json.opaque)
        return bytes(
            memoryview(text)
        )  # orjson leaves it in a buffer of ten times its size, and this text is kept

    def trial_from(self, fields: Mapping[str, Any]) -> Trial:
        """Return the trial that was put into words.

        Raises:
            ValueError: If its configuration holds objects that are found nowhere in the search space.
        """
        trial = trial_from(fields, self.configs.decode)
        if objects := missing(trial.config):
            raise ValueError(f"the configuration of {trial.trial_id} holds {objects}")
        return trial


def usable(plan: Plan, directory: Path) -> Snapshot | None:
    """Return the newest snapshot from which this plan can go on; None where the whole journal has to be replayed.

    That is so where another scheduler, searcher, stop criterion or space is to take over, or another metric counts: they have to hear of
    the past.
    """
    snapshot = load_newest(directory)
    if snapshot is None:
        return None
    now, then = identity(plan), snapshot.state.get("identity")
    if isinstance(then, dict) and "objective" not in then:  # an earlier release has written it
        then = {"objective": _declared_objective(directory), **then}
    return snapshot if now == then else None


def _declared_objective(directory: Path) -> Any:
    """Return metric and mode as the directory declares them; None where it was begun with others, so that it is not known which count."""
    declared = read_declaration(directory)
    now = [declared.get("metric"), declared.get("mode")]
    began = declared.get("settings", {})
    return now if now == [began.get("metric"), began.get("mode")] else None


def take_up(snapshot: Snapshot, state: State, directory: Path) -> float:
    """Bring the experiment into the state of the snapshot, and return its running time then, in seconds.

    Raises:
        Exception: If it does not fit; the state is unusable then.
    """
    state.take_up(snapshot.state)
    for trial in state.experiment.trials:
        locate(trial, trial_path(directory, trial.trial_id))
    return float(snapshot.state["elapsed_s"])


def identity(plan: Plan) -> dict[str, Any]:
    """Return what has to be the same for one plan to go on from the state of another."""
    parts = {
        "space": dict(plan.declared_space),
        "scheduler": plan.scheduler,
        "searcher": plan.searcher,
        "stop": plan.run.stop,
    }
    return {name: note(part) for name, part in parts.items()} | {
        "objective": [plan.metric, plan.mode]
    }
