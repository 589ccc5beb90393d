"""A whole experiment: one driver after the other, until nothing is left to be done."""

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

from . import cross_trial_invariants, invariants, log_file_invariants, lost_segments
from .acknowledgement_log import Transcript
from .coverage import UNDISTURBED
from .driver_process import Session, is_interrupted
from .environment import World
from .fault_injection import DriverDied, Fault, PluginBroke
from .invariants import Violation
from .scenario import Scenario

_MAX_SESSIONS: Final = 60
_LATE_S: Final = 1e9
_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Story:
    """What a simulated experiment came to.

    Attributes:
        num_drivers: How many drivers it took.
        num_turns: How many turns they took.
        num_records: How many records the journal holds.
        fingerprint: SHA-256 of the journal: equal for equal courses.
        outcome: What became of each trial.
        seen: What has occurred.
    """

    num_drivers: int
    num_turns: int
    num_records: int
    fingerprint: str
    outcome: list[dict[str, Any]]
    seen: Counter[str]


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep to itself what the engine says of the trouble that it is put to."""
    was_disabled, _log.disabled = _log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _log.disabled = was_disabled


def play(scenario: Scenario, check_every: int = 8) -> Story:
    """Simulate an experiment and check every invariant.

    Args:
        scenario: What to simulate.
        check_every: At every how many turns to check what costs time; 1 for every turn.

    Raises:
        Violation: If the engine breaks a promise, or raises what it must not raise.
    """
    with silence():
        try:
            return _play(scenario, check_every)
        except Violation:
            raise
        except Exception as defect:
            raise Violation("defect", f"{type(defect).__name__}: {defect}") from defect


def _play(scenario: Scenario, check_every: int) -> Story:
    with contextlib.closing(World(scenario, check_every)) as world:
        return _lived_through(world)


def _lived_through(world: World) -> Story:
    before: dict[str, Any] | None = None
    chance = world.scenario.chance("losses")
    num_visits = 1 + (
        world.scenario.seed % 8 == 0
    )  # a finished experiment is opened once more now and then
    while num_visits:
        invariants.require("I9", world.session < _MAX_SESSIONS, "no driver gets to the end")
        world.begin_session()
        session = Session(world, before)
        is_known = _live(session, world)
        left = world.end_session()
        _check_left(world, left)
        lost_segments.a_lost_segment_is_missed(world, chance)
        num_visits -= session.is_over
        before = _as_restarted(session, world) if is_known and num_visits else None
    return _end(world, session, left)


def _live(session: Session, world: World) -> bool:
    """Let a driver live; return whether what it has in memory is what the journal must give back."""
    num_refusals = world.disk.num_refusals
    try:
        session.live()
    except DriverDied:
        if session.scheduler.has_raised:
            return False
        world.seen["killed again before anything was written"] += world.journal is None
    except PluginBroke:
        world.seen["plug-in raised, driver gave up"] += 1
        return False
    except StorageLost as loss:
        invariants.require("I9", world.disk.put_back(), "%s, though it was not", loss)
        world.seen["journal moved away, driver gave up"] += 1
        return False
    except DamagedJournal as damage:
        raise Violation("I14", str(damage)) from damage
    except StorageError as refusal:
        if world.disk.num_refusals == num_refusals:
            raise Violation("I9", f"refused for no reason: {refusal}") from refusal
        world.seen["disk refused, driver gave up"] += 1
    invariants.require(
        "I15",
        not world.disk.put_back() or world.fate.is_dead,
        "the journal was moved away, and its driver has gone on",
    )
    journal = world.journal
    return (
        journal is not None
        and journal.written_sequence == journal.last_sequence
        and not world.fate.is_power_out
    )


def _as_restarted(session: Session, world: World) -> dict[str, Any]:
    """Return the state in which a driver would begin that remembers all that this one has seen."""
    experiment = session.experiment
    world.seen["interrupted and resumed"] += any(map(is_interrupted, experiment.trials))
    world.seen["opened by a driver that found nothing to do"] += session.is_over
    session.scheduler.is_calm = True
    experiment.handle(ResumeConfig().event(world.scenario.settings()), _LATE_S)
    return invariants.portrait(experiment, session.scheduler)


def _check_left(world: World, left: Transcript) -> None:
    invariants.journal_is_in_order(left)
    invariants.acknowledged_results_survive(world, left)
    if world.fate.is_power_out:
        world.ledger.forget_all_but(left)


def _is_comparable(world: World) -> bool:
    """Return whether an undisturbed run has to come to the same.

    A trial that is interrupted by a signal saves first, and population-based training clones from the latest checkpoint.
    """
    struck = world.fate.struck
    has_extra_checkpoints = struck[Fault.SIGNAL] + struck[Fault.URGENT_SIGNAL] > 0
    return world.scenario.is_comparable and not (
        has_extra_checkpoints and world.scenario.scheduler == "pbt"
    )


def _end(world: World, session: Session, left: Transcript) -> Story:
    experiment = session.experiment
    invariants.transitions_are_legal(experiment)
    invariants.all_samples_are_used(world, experiment)
    invariants.rows_are_whole(experiment, left, world.scenario.stride)
    if world.logs:
        world.seen["log files compared with the table"] += 1
        table = invariants.table_of(experiment.trials, left)
        log_file_invariants.log_files_are_the_table(
            world.directory, experiment.trials, table, has_tensorboard=world.logs.has_tensorboard
        )
    invariants.scheduler_facts_are_kept(world, session.scheduler)
    invariants.nothing_superseded_is_left(world, experiment)
    cross_trial_invariants.leases_have_readers(experiment)
    cross_trial_invariants.nobody_is_left_to_the_engine(world, experiment)
    outcome = invariants.outcome(experiment)
    if world.scenario.num_strikes and _is_comparable(world):
        world.seen[UNDISTURBED] += 1
        invariants.deaths_change_nothing(
            _play(world.scenario.without_trouble(), world.check_every).outcome, outcome
        )
    world.seen.update({f"fault: {fault}": num for fault, num in world.fate.struck.items()})
    world.seen.update(world.disk.seen)
    digest = hashlib.sha256()
    for name, data in sorted(world.journal_files().items()):
        if not name.startswith(STAGING_PREFIX):  # such names are drawn from the system's chance
            digest.update(name.encode() + b"\0" + data)
    return Story(
        world.session, world.num_turns, len(left.records), digest.hexdigest(), outcome, world.seen
    )
