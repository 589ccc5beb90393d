"""Runs a simulated experiment: one driver after the other, until the experiment is over."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tuner.errors import DamagedJournal, StorageError, StorageLost
from tuner.spec.config import ResumeConfig
from tuner.storage.layout import STAGING_PREFIX

from . import cross_trial_invariants, invariants, log_file_invariants, validation_invariants
from .acknowledgement_log import Transcript
from .coverage import COMPARED
from .driver_process import DriverProcess, is_interrupted
from .environment import Environment
from .fault_injection import DriverKilled, Fault, PluginError
from .invariants import Violation
from .scenario import Scenario

_MAX_SESSIONS: Final = 60
_LATE_S: Final = 1e9
_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Summary of a simulated experiment.

    Attributes:
        num_drivers: How many drivers it took.
        num_turns: How many turns they took.
        num_records: How many records the journal holds.
        fingerprint: SHA-256 of the journal.
        snapshots: SHA-256 of all snapshots that were taken.
        outcome: Outcome of each trial.
        seen: What has occurred.
    """

    num_drivers: int
    num_turns: int
    num_records: int
    fingerprint: str
    snapshots: str
    outcome: list[dict[str, Any]]
    seen: Counter[str]


@contextlib.contextmanager
def silent_log() -> Iterator[None]:
    """Discard what the engine logs about injected faults."""
    was_disabled, _log.disabled = _log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _log.disabled = was_disabled


def run_scenario(scenario: Scenario, check_every: int = 8) -> SimulatedRun:
    """Simulate an experiment and check every invariant.

    Args:
        scenario: What to simulate.
        check_every: Number of turns between two expensive checks; 1 for every turn.

    Raises:
        Violation: If an invariant is violated, or the engine raises an unexpected exception.
    """
    with silent_log():
        try:
            return _run(scenario, check_every)
        except Violation:
            raise
        except Exception as defect:
            raise Violation("defect", f"{type(defect).__name__}: {defect}") from defect


def _run(scenario: Scenario, check_every: int) -> SimulatedRun:
    with contextlib.closing(Environment(scenario, check_every)) as env:
        return _run_drivers(env)


def _run_drivers(env: Environment) -> SimulatedRun:
    before: dict[str, Any] | None = None
    rng = env.scenario.rng("losses")
    # A finished experiment is opened once more now and then.
    num_runs_left = 1 + (env.scenario.seed % 8 == 0)
    while num_runs_left:
        invariants.require("I9", env.driver_number < _MAX_SESSIONS, "no driver gets to the end")
        env.start_driver()
        driver = DriverProcess(env, before)
        is_known = _run_driver(driver, env)
        left = env.end_driver()
        _check_journal(env, left)
        invariants.lost_segments_are_detected(env, rng)
        num_runs_left -= driver.is_over
        before = _state_after_restart(driver, env) if is_known and num_runs_left else None
    return _finish(env, driver, left)


def _run_driver(driver: DriverProcess, env: Environment) -> bool:
    """Run a driver; return whether the journal holds everything that it has in memory."""
    num_refusals = env.disk.num_refusals
    try:
        driver.run()
    except DriverKilled:
        if driver.scheduler.has_raised:
            return False
        env.seen["killed again before anything was written"] += env.journal is None
    except PluginError:
        env.seen["plug-in raised, driver stopped"] += 1
        return False
    except StorageLost as loss:
        invariants.require("I9", env.disk.put_back(), "%s, though it was not", loss)
        env.seen["journal moved away, driver stopped"] += 1
        return False
    except DamagedJournal as damage:
        raise Violation("I14", str(damage)) from damage
    except StorageError as error:
        if env.disk.num_refusals == num_refusals:
            raise Violation("I9", f"refused for no reason: {error}") from error
        env.seen["disk failed, driver stopped"] += 1
    invariants.require(
        "I15",
        not env.disk.put_back() or env.faults.is_dead,
        "the journal was moved away, and its driver continued",
    )
    journal = env.journal
    return (
        journal is not None
        and journal.written_sequence == journal.last_sequence
        and not env.faults.is_power_out
    )


def _state_after_restart(driver: DriverProcess, env: Environment) -> dict[str, Any]:
    """Return the state that a restore has to reach."""
    experiment = driver.experiment
    env.seen["interrupted and resumed"] += any(map(is_interrupted, experiment.trials))
    env.seen["opened by a driver that found nothing to do"] += driver.is_over
    driver.scheduler.is_calm = True
    experiment.handle(ResumeConfig().event(env.scenario.settings()), _LATE_S)
    return invariants.comparable_state(experiment, driver.scheduler)


def _check_journal(env: Environment, left: Transcript) -> None:
    invariants.journal_is_in_order(left)
    invariants.acknowledged_results_survive(env, left)
    if env.faults.is_power_out:
        env.ack_log.forget_all_but(left)


def _has_comparable_outcome(env: Environment) -> bool:
    """Return whether a run without faults has to have the same outcome.

    A trial that is interrupted by a signal saves first, and population-based training clones from
    the latest checkpoint.
    """
    injected = env.faults.injected
    has_extra_checkpoints = injected[Fault.SIGNAL] + injected[Fault.URGENT_SIGNAL] > 0
    return env.scenario.is_comparable and not (
        has_extra_checkpoints and env.scenario.scheduler == "pbt"
    )


def _finish(env: Environment, driver: DriverProcess, left: Transcript) -> SimulatedRun:
    experiment = driver.experiment
    if env.violations:
        raise env.violations[0]
    invariants.transitions_are_legal(experiment)
    invariants.all_samples_are_used(env, experiment)
    invariants.rows_are_whole(experiment, left, env.scenario.stride)
    if env.logs:
        env.seen["log files compared with the table"] += 1
        table = invariants.table_of(experiment.trials, left)
        log_file_invariants.log_files_are_the_table(
            env.directory, experiment.trials, table, has_tensorboard=env.logs.has_tensorboard
        )
    invariants.rungs_are_complete(env, driver.scheduler)
    validation_invariants.no_validation_is_lost(env, experiment, left)
    invariants.superseded_checkpoints_are_deleted(env, experiment)
    cross_trial_invariants.leases_have_readers(experiment)
    cross_trial_invariants.paused_trials_are_resumed(env, experiment)
    outcome = invariants.outcome(experiment)
    if env.scenario.num_faults and _has_comparable_outcome(env):
        env.seen[COMPARED] += 1
        invariants.crashes_change_no_outcome(
            _run(env.scenario.without_faults(), env.check_every).outcome, outcome
        )
    env.seen.update({f"fault: {fault}": num for fault, num in env.faults.injected.items()})
    env.seen.update(env.disk.seen)
    digest = hashlib.sha256()
    for name, data in sorted(env.journal_files().items()):
        if not name.startswith(STAGING_PREFIX):  # such names are random
            digest.update(name.encode() + b"\0" + data)
    return SimulatedRun(
        env.driver_number,
        env.num_turns,
        len(left.records),
        digest.hexdigest(),
        env.snapshots.hexdigest(),
        outcome,
        env.seen,
    )
