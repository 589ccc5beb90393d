"""State of an experiment that a snapshot contains: saved while it runs, loaded at a restore."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import capabilities
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial, trial_fields, trial_from
from tuner.journal.snapshot_files import Snapshot, load_newest
from tuner.spec.argument_codec import note
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage import strict_json
from tuner.storage.checkpoints import locate
from tuner.storage.config_codec import ConfigCodec, missing
from tuner.storage.layout import trial_path
from tuner.wire.declared import Translate
from tuner.wire.record import record

from .search_adapter import SearchAdapter


@record
class ExperimentState:
    """An experiment with the parts whose states are saved.

    Attributes:
        experiment: The state machine, with scheduler and stopper.
        search: The searcher; None where the experiment is only looked at. Then scheduler and
            stopper are not those with which it was run, so their states are not loaded.
        configs: How configurations are written down.
    """

    experiment: Experiment
    search: SearchAdapter | None
    configs: ConfigCodec

    @classmethod
    def new(
        cls, spec: ExperimentSpec, declared: ExperimentSettings, configs: ConfigCodec
    ) -> ExperimentState:
        """Return an experiment without trials that is going to be driven.

        Args:
            spec: What is declared now, connected.
            declared: The settings with which the experiment began.
            configs: How configurations are written down.
        """
        experiment = Experiment(declared, spec.scheduler, spec.stopper)
        return cls(experiment, search_adapter_for(spec), configs)

    @property
    def search_adapter(self) -> SearchAdapter:
        """The searcher of an experiment that is driven."""
        if self.search is None:
            raise ValueError("an experiment that is only looked at has no searcher")
        return self.search

    @property
    def keeps_state(self) -> bool:
        """Whether every part can tell its state; else the whole journal has to be replayed."""
        policies = self.experiment.policies
        parts = (policies.scheduler, policies.stopper, self.search)
        return all(part is not None and part.keeps_state for part in parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all parts as JSON values, without the trials; see `trial_json`."""
        policies = self.experiment.policies
        return {
            "experiment": self.experiment.state_dict(),
            "scheduler": policies.scheduler.state_dict(),
            "stopper": policies.stopper.state_dict(),
            # The key is part of the format on disk.
            "proposer": self.search_adapter.state_dict(),
        }

    def snapshot(self, elapsed_s: float) -> dict[str, Any]:
        """Return all that `load_state_dict` takes, the trials included.

        Args:
            elapsed_s: The experiment's running time, in seconds.
        """
        trials = [strict_json.loads(self.trial_json(trial)) for trial in self.experiment.trials]
        return {**self.state_dict(), "elapsed_s": elapsed_s, "trials": trials}

    def load_state_dict(
        self, state: Mapping[str, Any], directory: Path, decode: Translate
    ) -> float:
        """Load what a snapshot holds, and return the experiment's running time then, in seconds.

        Args:
            state: What `state_dict` returned, with ``"trials"`` and ``"elapsed_s"``.
            directory: The experiment's directory.
            decode: How configurations are read.

        Raises:
            Exception: Any that a part raises because the snapshot does not fit; the state is
                unusable then.
        """
        policies = self.experiment.policies
        trials = [trial_from(fields, decode) for fields in state["trials"]]
        self.experiment.load_state_dict(state["experiment"], trials)
        if self.search:
            for trial in trials:
                if objects := missing(trial.config):
                    raise ValueError(f"the configuration of {trial.trial_id} holds {objects}")
            policies.scheduler.load_state_dict(state["scheduler"])
            policies.stopper.load_state_dict(state["stopper"])
            self.search.load_state_dict(state["proposer"])
        for trial in trials:
            locate(trial, trial_path(directory, trial.trial_id))
        return float(state["elapsed_s"])

    def trial_json(self, trial: Trial) -> bytes:
        """Return all that is known about a trial as JSON text."""
        text = strict_json.to_bytes(trial_fields(trial, self.configs.encode), strict_json.opaque)
        # Copied, since orjson returns it in a buffer of ten times its size, and this text is kept.
        return bytes(memoryview(text))


@record
class Restored:
    """An experiment restored from its directory.

    Attributes:
        state: The experiment with its scheduler, stopper and searcher.
        elapsed_s: Its running time so far.
        recent: Ids of trials of which something happened shortly before the end, so that the log
            files, which are written after the journal, may lack it.
        callbacks: States of callbacks at the newest snapshot.
        misfit: Why the snapshot was not used; None where it was, or there is none.
    """

    state: ExperimentState
    elapsed_s: float
    recent: Sequence[str]
    callbacks: Sequence[Mapping[str, Any]] = ()
    misfit: Exception | None = None


def usable_snapshot(spec: ExperimentSpec, directory: Path) -> Snapshot | None:
    """Return the newest snapshot from which the declared experiment can go on.

    Returns:
        The snapshot; None where the whole journal has to be replayed, since scheduler, searcher,
        stop criterion, space, metric or constraints were replaced: the new ones need all earlier
        results.
    """
    snapshot = load_newest(directory)
    if snapshot is None:
        return None
    now, then = identity(spec), snapshot.state.get("identity")
    # By their text where they differ: NaN does not equal itself.
    is_same = now == then or strict_json.dumps(now) == strict_json.dumps(then)
    return snapshot if is_same else None


def search_adapter_for(spec: ExperimentSpec) -> SearchAdapter:
    """Return the adapter of the searcher of an experiment that is going to be driven."""
    key = _search_key(spec)
    if spec.may_stop_search:
        stoppable: SearchAdapter = capabilities.StoppableSearch(spec, key)
        return stoppable
    return SearchAdapter(
        spec.searcher,
        spec.space,
        spec.request_for,
        spec.group_for,
        spec.labels_for,
        declaration=key,
    )


def _search_key(spec: ExperimentSpec) -> str:
    """Return a short text that differs where space, searcher, number of samples or end do.

    Whether the search ends also depends on the metrics and constraints.
    """
    declared = [spec.declared_space, spec.searcher, spec.tune.num_samples]
    if spec.may_stop_search:
        declared += [spec.tune.stop_search, spec.metric, spec.mode, *_goals(spec)]
    return hashlib.sha256(strict_json.to_bytes([note(part) for part in declared])).hexdigest()[:8]


def identity(spec: ExperimentSpec) -> dict[str, Any]:
    """Return what has to be equal for an experiment to continue from an earlier snapshot."""
    parts = {
        "space": spec.declared_space,
        "scheduler": spec.scheduler,
        "searcher": spec.searcher,
        "stop": spec.run.stop,
    }
    identity = {name: note(part) for name, part in parts.items()} | {
        "objective": [spec.metric, spec.mode]
    }
    if spec.may_stop_search:
        identity["stop_search"] = note(spec.tune.stop_search)
    if goals := _goals(spec):
        identity["goals"] = goals
    return identity


def _goals(spec: ExperimentSpec) -> list[Any]:
    return [*map(list, spec.several_objectives), *map(str, spec.constraints)]
