"""Brings a stored experiment back to where it was: from its newest snapshot and what follows it, or from the whole journal."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.errors import StorageError
from tuner.journal.snapshot_files import Snapshot
from tuner.spec.experiment_spec import Plan
from tuner.storage.config_codec import ConfigCodec

from .replay import Replayed, replay
from .search_adapter import Proposer
from .snapshot_state import State, take_up

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """An experiment as it was left.

    Attributes:
        plan: What was declared, with the scheduler, searcher and stopper that know the past.
        state: The experiment.
        past: Where the journal leaves it.
        callbacks: States of callbacks, as they were at the newest snapshot.
    """

    plan: Plan
    state: State
    past: Replayed
    callbacks: Sequence[Mapping[str, Any]] = ()


def rebuild(
    plan: Plan,
    directory: Path,
    declared: ExperimentSettings,
    snapshot: Snapshot | None,
    configs: ConfigCodec,
) -> Rebuilt:
    """Return the experiment as its directory tells it; a new one where nothing has happened.

    Args:
        plan: What is declared now, connected.
        directory: The experiment's directory; a torn end of its journal is passed over.
        declared: The settings with which the experiment began.
        snapshot: Where to start; None for the beginning.
        configs: How configurations are written down.

    Raises:
        StorageError: If it cannot be rebuilt.
    """
    if snapshot and (spare := _copy(plan)):
        try:
            return _from_snapshot(plan, directory, declared, snapshot, configs)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  (a scheduler or searcher may raise anything; the journal still holds everything)
            _log.warning(
                "the newest snapshot does not fit (%s: %s); the whole journal is replayed",
                type(error).__name__,
                error,
            )
            plan = spare
    state = _new_state(plan, declared, configs)
    return Rebuilt(plan, state, replay(directory, state.experiment, state.proposer, configs))


def _from_snapshot(
    plan: Plan,
    directory: Path,
    declared: ExperimentSettings,
    snapshot: Snapshot,
    configs: ConfigCodec,
) -> Rebuilt:
    state = _new_state(plan, declared, configs)
    elapsed_s = take_up(snapshot, state, directory)
    past = replay(
        directory,
        state.experiment,
        state.proposer,
        configs,
        after=snapshot.last_sequence,
        elapsed_s=elapsed_s,
    )
    return Rebuilt(plan, state, past, snapshot.state["callbacks"])


def _new_state(plan: Plan, declared: ExperimentSettings, configs: ConfigCodec) -> State:
    experiment = Experiment(declared, plan.scheduler, plan.stopper)
    return State(experiment, Proposer(plan.searcher, plan.space, plan.request_for), configs)


def _copy(plan: Plan) -> Plan | None:
    """Return a copy to fall back on, None where a part cannot be copied."""
    try:
        return plan.copy()
    except Exception:  # noqa: BLE001  (a lock or a connection of the user's)
        return None
