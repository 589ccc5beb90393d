"""Invariants that hold under all faults, one function each; its first line states the invariant.

When they are checked: I3, I4, I5, I8, I10, I12, I13, I15 and I20 at the moment at which they could
be violated; I3, I11, I12, I13 and I16 in full at every few turns; I1, I6, I7 and I14 after each
crash and restore; I2, I6, I7, I9, I14, I16, I17 and I20 at the end. I19 is in
`log_file_invariants`, and checked at the end of the experiments that write log files. I22 is in
`faulty_nodes`, and checked with each start and each answer.

Not checked here: I18, the share of time that persistence takes, since simulated experiments last
seconds; ``tests/properties/test_persistence_share.py`` checks it in virtual time. Nor the lock,
which is kept by the kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, cast, final

from schedulers import ASHAScheduler, Scheduler
from tuner.core.commands import StartWorker
from tuner.core.events import ResultReported
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import WORKER_LOST
from tuner.core.result import CONFIG, SHOULD_CHECKPOINT, is_same_report
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.errors import DamagedJournal
from tuner.journal.completeness import check_end
from tuner.journal.result_records import Numbering
from tuner.journal.rows import History, MemoryRows, histories_of
from tuner.storage.disk import Disk
from tuner.storage.layout import JOURNAL
from tuner.validation.records import TrialValidations

from .acknowledgement_log import STALE, ReportKey, Transcript
from .environment import TICK_S, Environment
from .fault_injection import Fault
from .plugins import FragileScheduler

_LOSS_RATE: Final = 0.2
"""Probability that a segment is removed between two drivers."""
MAX_TURNS: Final = 5_000
"""Far more turns than an experiment that ends takes."""
_LEAVING_CHECKPOINTS: Final = frozenset(
    {Fault.WORKER_CRASHES_BEHIND_RENAME, Fault.CHECKPOINT_CUT, Fault.CHECKPOINT_DELETED}
)
_NOT_COMPARED: Final = {
    "__weakref__",
    "config",
    "last_result",
    "local_path",
    "open_checkpoint",
    "summary",
    "trainable_name",
    "validation_part",
}
_COMPARED: Final = tuple(name for name in Trial.__slots__ if name not in _NOT_COMPARED)


NO_RESOURCES: Final = "ResourcesUnavailable"


class Violation(AssertionError):
    """An invariant was violated.

    Attributes:
        invariant: Which, e.g. ``"I5"``.
    """

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def require(invariant: str, holds: object, what: str, *about: object) -> None:
    """Raise a `Violation` unless it holds; the message is formatted only then.

    Args:
        invariant: Which.
        holds: Whether it holds.
        what: The message, with a ``%s`` for each of `about`.
        *about: Its arguments.
    """
    if not holds:
        raise Violation(invariant, what % about)


def acknowledged_results_survive(env: Environment, left: Transcript) -> None:
    """I1: acknowledged results are in the journal; after a power cut, the durable ones."""
    surviving, ack_log = left.reports(), env.ack_log
    if not env.faults.is_power_out:
        for report in ack_log.acknowledged:
            require(
                "I1", report in surviving, "%s was acknowledged and is not in the journal", report
            )
        return
    num_promised = (
        len(ack_log.acknowledged) if env.scenario.durability == "strict" else ack_log.num_safe
    )
    kept = [report in surviving for report in ack_log.acknowledged]
    require("I1", all(kept[:num_promised]), "a power cut has lost results that were durable")
    require(
        "I1",
        kept == sorted(kept, reverse=True),
        "a power cut has kept a later result and lost an earlier one",
    )


def rows_are_whole(experiment: Experiment, left: Transcript, stride: int) -> None:
    """I2: a trial's rows have no gap and no duplicate, and include all that callbacks were given.

    After an exploit the rows continue from the iteration of the donor's checkpoint.
    """
    rows = table_of(experiment.trials, left)
    for trial in experiment.trials:
        iterations = [row["training_iteration"] for row in rows.of(trial.trial_id)]
        should = _iterations_of(trial, stride)
        require(
            "I2",
            iterations == should,
            "rows of %s are %s, and should be %s",
            trial,
            iterations,
            should,
        )
        newest = rows.of(trial.trial_id)[-1].get("loss") if iterations else None
        last = trial.last_result.get("loss")
        is_same = last == newest or newest is None  # a validation may have supplied it
        require("I2", is_same, "the last result of %s is %s, not %s", trial, last, newest)


def table_of(trials: Sequence[Trial], left: Transcript) -> MemoryRows:
    """Return the table: the results in the journal that count.

    Also checks that their rows are those that a journal without rows is read with.
    """
    histories = histories_of(trials)
    reported: dict[str, list[dict[str, Any]]] = {trial.trial_id: [] for trial in trials}
    branches: dict[str, list[int]] = {trial.trial_id: [] for trial in trials}
    numberings = {
        trial.trial_id: Numbering(histories.get(trial.trial_id, History())) for trial in trials
    }
    for record in left.records:
        if record["k"] == "result" and STALE not in record["m"]:
            results, numbering = reported[record["id"]], numberings[record["id"]]
            if numbering.is_late(record["a"]):
                continue
            unnumbered = {name: value for name, value in record.items() if name != "row"}
            branch, row = numbering.place(unnumbered)
            require("I2", row == record["row"], "row %d, recorded as %s", row, record)
            del results[row - 1 :], branches[record["id"]][row - 1 :]
            results.append(record["m"])
            branches[record["id"]].append(branch)
    return MemoryRows(reported, branches)


def _iterations_of(trial: Trial, stride: int) -> list[int]:
    """Return the iterations that a trial's rows should have."""
    found: list[int] = []
    first = stride
    for graft in trial.grafts:
        found += [first + stride * number for number in range(graft.num_rows - len(found))]
        first = graft.from_iteration + stride
    return found + [first + stride * number for number in range(trial.num_rows - len(found))]


def transitions_are_legal(experiment: Experiment) -> None:
    """I3: trials, workers, queues and resources are consistent."""
    try:
        experiment.check()
    except AssertionError as broken:
        raise Violation("I3", str(broken) or "the experiment's own check failed") from broken


def one_worker_per_trial(start: StartWorker, live: Mapping[str, int]) -> None:
    """I4: there is at most one worker per trial."""
    require(
        "I4",
        start.trial_id not in live,
        "%s is started although attempt %s of it is running",
        start.trial_id,
        live.get(start.trial_id),
    )


def size_is_allowed(start: StartWorker) -> None:
    """I4: a trial is started with one of the numbers of processes that are possible for it."""
    group = start.group
    require(
        "I4",
        group is None or group.min_workers <= group.num_workers <= group.max_workers,
        "%s is started with %s",
        start.trial_id,
        group,
    )


class Occupied(NamedTuple):
    """What a trial or a lease occupies.

    Attributes:
        share: What each of its processes does, by name.
        num: How many processes it has.
        gpu_ids: Devices of all of them.
    """

    share: Mapping[str, float]
    num: int
    gpu_ids: tuple[int, ...]


def nothing_is_granted_twice(capacity: Mapping[str, float], occupied: Sequence[Occupied]) -> None:
    """I4: trials and leases occupy no more than there is, and no device is given away twice."""
    for name, amount in capacity.items():
        used = sum(part.share.get(name, 0.0) * part.num for part in occupied)
        require("I4", used <= amount + 1e-6, "%s of %s %s are occupied", used, amount, name)
    load = Counter[int]()
    for share, num, gpu_ids in occupied:
        gpus = share.get("gpu", 0.0)
        num_devices = num * max(int(gpus), 1) if gpus else 0
        require("I4", len(gpu_ids) == num_devices, "%s has the devices %s", share, gpu_ids)
        for device in gpu_ids:
            load[device] += round(min(gpus, 1.0) * 1000)
    require("I4", max(load.values(), default=0) <= 1000, "devices are given away twice: %s", load)


def starts_from_a_good_checkpoint(env: Environment, start: StartWorker) -> None:
    """I5: a start uses the latest intact checkpoint, and never overwrites a recorded one."""
    trial = _experiment(env).trial_table[start.trial_id]
    recorded = trial.checkpoints
    if start.source_id == start.trial_id and trial.graft is None:
        real = [kept for kept in recorded if not kept.is_placeholder]
        latest = trial.source if trial.grafts else real[-1] if real else None
        require(
            "I5", start.checkpoint == latest, "%s does not use the latest of %s", start, recorded
        )
    else:
        donor = _experiment(env).trial_table[start.source_id]
        # By the index: a validation may have changed the score since.
        known = {kept.index for kept in donor.checkpoints}
        require(
            "I5",
            start.checkpoint is not None and start.checkpoint.index in known,
            "%s starts from what %s does not have",
            start,
            donor,
        )
        is_leased = (
            start.checkpoint is not None
            and donor.leases.get(start.trial_id) == start.checkpoint.index
        )
        require("I5", is_leased, "%s starts from what it has not leased", start)
    taken = {checkpoint.index for checkpoint in recorded}
    require(
        "I5",
        start.next_checkpoint not in taken,
        "%s is going to overwrite checkpoint %s",
        start.trial_id,
        start.next_checkpoint,
    )
    if start.checkpoint:
        checkpoint_is_readable(env, start)
    if env.scenario.num_to_keep is None and not trial.grafts:
        _is_latest(env, start)


def _is_latest(env: Environment, start: StartWorker) -> None:
    known = [
        name
        for name in env.checkpoints.intact(start.trial_id)
        if (start.trial_id, name) in env.ack_log.saved
    ]
    latest = start.checkpoint.directory if start.checkpoint else None
    require(
        "I5",
        latest == (known[-1] if known else None),
        "%s starts from %s, there are %s",
        start.trial_id,
        latest,
        known,
    )


def checkpoint_is_readable(env: Environment, start: StartWorker) -> None:
    """I5: the checkpoint that a worker is given is intact, and of the stated iteration."""
    if start.checkpoint is None:
        return
    saved = env.checkpoints.find(start.source_id, start.checkpoint)
    if saved is None:
        raise Violation(
            "I5", f"{start.trial_id} starts from {start.checkpoint.directory}, which is not there"
        )
    require(
        "I5",
        not saved.damage,
        "%s starts from %s, although %s",
        start.trial_id,
        start.checkpoint.directory,
        saved.damage,
    )
    require(
        "I5",
        saved.num_steps * env.scenario.stride == start.checkpoint.iteration,
        "%s holds %s steps",
        start.checkpoint,
        saved.num_steps,
    )


def rungs_are_complete(env: Environment, scheduler: Scheduler) -> None:
    """I6: each rung holds each trial that reached it once, with the value that it reported."""
    inner = scheduler.inner if isinstance(scheduler, FragileScheduler) else scheduler
    if not isinstance(inner, ASHAScheduler) or not env.ack_log.told:
        return
    state, ack_log = inner.state_dict(), env.ack_log
    if env.scenario.validating and env.scenario.validating.is_late:
        return  # what a validation has yet to supply, or fails to, is missing
    if ack_log.has_forks:
        return  # a fork begins beyond levels that it never stood on
    if (
        state["settings"]["time_attr"] != "training_iteration"
        or len(state["brackets"]) != 1
        or env.scenario.stride > 1
    ):
        return
    [bracket] = state["brackets"]
    for level, rung in zip(inner.levels, bracket["rungs"], strict=True):
        owed = Counter(
            ack_log.values[trial_id, int(level)]
            for trial_id, told in ack_log.told.items()
            if told >= level
        )
        known = Counter(
            value for (_, iteration), value in ack_log.values.items() if iteration == level
        )
        # Where trials are only stopped, values are kept in their order; where they are promoted,
        # with their trials.
        has_promotions = "recorded" in rung
        values = (
            [float(value) for _, value in rung["recorded"]] if has_promotions else rung["values"]
        )
        stands = Counter(values)
        require(
            "I6",
            has_promotions or values == sorted(values),
            "the rung at %s is out of order: %s",
            level,
            values,
        )
        # A trial that failed before its pause and was retried is not compared at the levels it
        # passes.
        require(
            "I6",
            has_promotions or owed <= stands,
            "the rung at %s has forgotten %s",
            level,
            owed - stands,
        )
        require(
            "I6",
            stands <= known,
            "the rung at %s holds %s, which was not reported",
            level,
            stands - known,
        )


def comparable_state(experiment: Experiment, scheduler: Scheduler) -> dict[str, Any]:
    """Return everything that a restore has to bring back, as values that compare."""
    trials = [
        {name: repr(getattr(trial, name)) for name in _COMPARED}
        | {"validation_part": repr(trial.validation_part or TrialValidations())}
        | _last(trial)
        for trial in experiment.trials
    ]
    board = (experiment.best.trial and experiment.best.trial.trial_id, repr(experiment.best.value))
    return {
        "trials": trials,
        "best": board,
        "scheduler": repr(scheduler.state_dict()),
        "counts": dict(+experiment.trial_table.num_by_status),
    }


def _last(trial: Trial) -> dict[str, Any]:
    # What callbacks change in a result is not written down.
    last = {
        name: value
        for name, value in trial.last_result.items()
        if name not in {CONFIG, SHOULD_CHECKPOINT}
    }
    return {
        "last": last,
        "summary": {
            name: (each.count, each.last, each.min, each.max)
            for name, each in trial.summary.items()
        },
    }


def replay_restores_the_state(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """I7: the fold of the journal is the state that was in memory."""
    for name, value in before.items():
        if after[name] != value:
            raise Violation("I7", f"{name} was {_difference(value, after[name])} after the restart")


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            if one != other:
                changed = {
                    name: (one[name], other[name]) for name in one if one[name] != other[name]
                }
                return f"of {one['trial_id']}: {changed}"
    return f"{before} and is {after}"


def stale_results_are_dropped(trial: Trial, result: Mapping[str, Any]) -> None:
    """I8: what a callback gets is no message of an attempt that is over."""
    require(
        "I8",
        STALE not in result,
        "a message of an attempt that is over was taken for a result of %s",
        trial,
    )


def results_come_from_live_attempts(env: Environment, event: ResultReported) -> None:
    """I8: only the current attempt of a RUNNING trial adds results."""
    trial = env.experiment.trial_table.find(event.trial_id) if env.experiment else None
    if trial is None or not is_same_report(trial.last_result, event.metrics):
        return  # it was dropped
    is_live = trial.status is Status.RUNNING and trial.attempt == event.attempt
    require("I8", is_live, "a result of attempt %s was added to %s", event.attempt, trial)


def turns_are_bounded(env: Environment) -> None:
    """I9: once faults cease, all trials end within a bounded number of turns."""
    require("I9", env.num_turns < MAX_TURNS, "the experiment does not come to an end")


def training_is_deterministic(
    env: Environment, report: ReportKey, config: str, value: float
) -> None:
    """I10: a trial that repeats an iteration with the same configuration reports the same value."""
    env.ack_log.values.setdefault((report.trial_id, report.iteration), value)
    known = env.ack_log.values_by_config.setdefault(
        (report.trial_id, report.iteration, config), value
    )
    require("I10", known == value, "%s gave %s before and gives %s now", report, known, value)


def needed_checkpoints_exist(env: Environment, experiment: Experiment) -> None:
    """I11: every recorded checkpoint is on the disk, unless it was deleted from outside."""
    for trial in experiment.trials:
        for checkpoint in trial.checkpoints:
            if checkpoint.is_placeholder:
                continue
            is_there = env.checkpoints.find(
                trial.trial_id, checkpoint
            ) or env.checkpoints.is_tampered(trial.trial_id, checkpoint)
            require("I11", is_there, "%s of %s was deleted", checkpoint.directory, trial)


def pauses_have_checkpoints(experiment: Experiment) -> None:
    """I11: a paused trial has a checkpoint to resume from, or waits for one."""
    for trial in experiment.trial_table.paused.values():
        require("I11", trial.source or trial.exploit, "%s is paused without a checkpoint", trial)


def only_own_failures_are_charged(env: Environment, trial: Trial) -> None:
    """I12: only a trial's own failures count against max_failures."""
    ack_log, limit = env.ack_log, env.scenario.max_failures
    num_own = ack_log.own_failures[trial.trial_id]
    has_failed_to_save = trial.trial_id in ack_log.failed_saves
    num_unpausable = (
        sum(failure.kind == "CannotPause" for failure in trial.failures)
        if has_failed_to_save
        else 0
    )
    is_lost = _is_lost_too_often(env, trial) or _asks_for_too_much(env, trial)
    num_unpausable += is_lost
    require(
        "I12",
        trial.num_failures <= num_own + num_unpausable,
        "%s is charged %s failures, its own are %s",
        trial,
        trial.num_failures,
        num_own,
    )
    require(
        "I12",
        len(trial.failures) <= ack_log.all_failures[trial.trial_id] + num_unpausable,
        "%s is charged with %s",
        trial,
        trial.failures,
    )
    require(
        "I12",
        limit < 0 or trial.num_failures <= limit + 1,
        "%s has failed %s times and may do so %s",
        trial,
        trial.num_failures,
        limit,
    )
    if (
        trial.status is Status.ERROR
        and trial.trial_id not in ack_log.given_up_by_user
        and not is_lost
    ):
        require(
            "I12",
            0 <= limit < trial.num_failures,
            "%s was given up after %s failures of %s",
            trial,
            trial.num_failures,
            limit,
        )


def _asks_for_too_much(env: Environment, trial: Trial) -> bool:
    """I12: a trial that is given up since no node has what it asks for asks for too much."""
    clustering = env.scenario.clustering
    if clustering is None or not trial.failures or trial.failures[-1].kind != NO_RESOURCES:
        return False
    env.seen["no node has what is asked for"] += 1
    largest = -(-env.scenario.num_slots // clustering.num_nodes)
    require("I12", trial.resources["cpu"] > largest, "%s is given up, and fits a node", trial)
    return True


def losses_are_limited(env: Environment, start: StartWorker) -> None:
    """I12: a trial that was lost as often as is allowed is not started again."""
    limit, num = env.scenario.settings().max_losses, env.ack_log.lost_in_row[start.trial_id]
    # One that is lost on its way to exploit another one, which then never saves, starts once more.
    num_more = env.scenario.scheduler not in {"fifo", "asha", "laps", "promotion"}
    is_allowed = limit is None or num < limit + num_more
    require("I12", is_allowed, "%s, lost %s times in a row", start, num)


def _is_lost_too_often(env: Environment, trial: Trial) -> bool:
    """I12: a trial that is given up as lost was lost as often as is allowed."""
    if not trial.failures or trial.failures[-1].kind != WORKER_LOST:
        return False
    env.seen["given up as lost"] += 1
    limit, num = env.scenario.settings().max_losses, env.ack_log.num_lost[trial.trial_id]
    require("I12", limit is not None and num >= limit, "%s is given up, lost %s times", trial, num)
    return True


def failed_saves_are_charged(env: Environment, unsaved: Iterable[tuple[Trial, int]]) -> None:
    """I12: training code that cannot save has failed, unless it was about to exploit another trial.

    Args:
        env: What is simulated.
        unsaved: Trials to which that has happened in the last turn, with how often they had failed
            before.
    """
    exploiters = {trial_id for trial_id, _ in env.ack_log.exploits}
    for trial, num_failures in unsaved:
        is_charged = trial.num_failures > num_failures or trial.trial_id in exploiters
        require("I12", is_charged, "%s could not save itself, and is not charged with it", trial)


def running_trials_match_workers(experiment: Experiment, live: Mapping[str, int]) -> None:
    """I13: RUNNING trials are the live workers, attempt by attempt."""
    running = {
        trial.trial_id: trial.attempt
        for trial in experiment.trials
        if trial.status is Status.RUNNING
    }
    require("I13", running == live, "%s are RUNNING and %s are alive", running, live)


def journal_is_in_order(left: Transcript) -> None:
    """I14: records are numbered without gaps, and epochs and times never decrease."""
    require("I14", not left.problem, left.problem)
    stamps = [record["t"] for record in left.records]
    require("I14", stamps == sorted(stamps), "time runs backwards in the journal")
    begun = [record["e"] for record in left.records if record["k"] == "restarted"]
    require("I14", len(begun) == len(set(begun)), "two drivers wrote in the same epoch: %s", begun)


def written_before_acted(env: Environment, what: object) -> None:
    """I15: there is no effect outside before its record is written."""
    require("I15", not env.is_dirty, "%s happens before its record is written", what)


def answered_reports_are_written(env: Environment, report: ReportKey) -> None:
    """I15: a report is answered only when the disk has taken it."""
    require(
        "I15",
        report in env.ack_log.written,
        "%s is answered and nothing of it was written",
        report,
    )


def synced_before_destroyed(env: Environment, sequence: int) -> None:
    """I15: nothing is deleted before the record that makes it dispensable is synced."""
    num_safe = len(env.read_platter().records)
    require(
        "I15",
        sequence <= num_safe,
        "a checkpoint goes that record %s makes dispensable, synced are %s",
        sequence,
        num_safe,
    )


def retention_is_kept(env: Environment, experiment: Experiment) -> None:
    """I16: a trial keeps at most num_to_keep checkpoints, the latest, and those that are leased."""
    limit = env.scenario.num_to_keep
    for trial in experiment.trials:
        require(
            "I16",
            "" not in trial.leases or trial.status is Status.RUNNING,
            "%s has leased %s",
            trial,
            trial.leased,
        )
        if limit:
            num, allowed = (
                len(trial.checkpoints),
                limit + (env.scenario.is_scored or bool(env.scenario.training)) + len(trial.leased),
            )
            require(
                "I16",
                num <= allowed,
                "%s keeps %s checkpoints, num_to_keep is %s",
                trial,
                num,
                limit,
            )


def superseded_checkpoints_are_deleted(env: Environment, experiment: Experiment) -> None:
    """I16: superseded checkpoints are deleted; after a crash, by the next restore."""
    if env.driver_number > 1 or env.faults.injected.keys() & _LEAVING_CHECKPOINTS:
        return
    for trial in experiment.trials:
        kept = [
            checkpoint.directory
            for checkpoint in trial.checkpoints
            if not checkpoint.is_placeholder
        ]
        there = env.checkpoints.intact(trial.trial_id)
        require("I16", there == kept, "of %s there is %s, it counts on %s", trial, there, kept)


def outcome(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the outcome of each trial."""
    return [
        {
            "trial_id": trial.trial_id,
            "status": trial.status,
            "ending": trial.ending,
            "iteration": trial.iteration,
            "value": trial.last_result.get("loss"),
            "reason": str(trial.reason),
        }
        for trial in experiment.trials
    ]


def crashes_change_no_outcome(
    without_faults: Sequence[Mapping[str, Any]], with_faults: Sequence[Mapping[str, Any]]
) -> None:
    """I17: the outcome of trials does not depend on crashes of the driver."""
    if without_faults != with_faults:
        raise Violation(
            "I17", f"it would have been {_difference(list(without_faults), list(with_faults))}"
        )


def budget_is_kept(env: Environment, start: StartWorker) -> None:
    """I20: the time budget holds across restarts, and nothing is started once it is used up."""
    budget_s = env.scenario.time_budget_s
    # What was decided in time may have had to wait for the disk.
    if budget_s is not None and not env.disk.num_refusals:
        require(
            "I20",
            env.budget_used_s() <= budget_s + TICK_S,
            "%s starts after the time budget",
            start.trial_id,
        )


def finished_trials_stay_finished(env: Environment, start: StartWorker) -> None:
    """I20: a trial that has ended or was stopped is not started again."""
    ending = env.ack_log.over.get(start.trial_id)
    require(
        "I20",
        ending in {None, TerminationReason.INTERRUPTED},
        "%s is started although it is over: %s",
        start.trial_id,
        ending,
    )
    was_interrupted = (
        env.faults.injected[Fault.SIGNAL] + env.faults.injected[Fault.URGENT_SIGNAL] > 0
    )
    is_discarded = start.trial_id in env.ack_log.discarded
    require(
        "I20",
        was_interrupted or not is_discarded,
        "%s is started although it was stopped",
        start.trial_id,
    )


def all_samples_are_used(env: Environment, experiment: Experiment) -> None:
    """I20: there are as many trials as were asked for, unless time was up."""
    num, wanted = (
        len(experiment.trials) - experiment.trial_table.num_forked,
        env.scenario.num_trials,
    )
    is_cut_short = env.scenario.time_budget_s is not None
    require(
        "I20",
        num == wanted or (is_cut_short and num < wanted),
        "there are %s trials, %s were asked for",
        num,
        wanted,
    )
    is_over = all(
        trial.is_finished
        or (is_cut_short and trial.status is Status.PAUSED)
        or (is_cut_short and trial.trial_id in experiment.trial_table.left)
        for trial in experiment.trials
    )
    require("I9", is_over, "a trial never ends")
    require("I9", not experiment.stall_reason, experiment.stall_reason)
    require(
        "I9",
        all(math.isfinite(trial.last_result.get("loss", 0.0)) for trial in experiment.trials),
        "a value is lost",
    )


def _experiment(env: Environment) -> Experiment:
    if env.experiment is None:
        raise Violation("I15", "something happens without an experiment")
    return env.experiment


@final
class _JournalFiles:
    """The journal's directory as the next driver finds it, to be read only.

    Args:
        files: Its files by their names.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        return list(self._files) if directory.name == JOURNAL else []

    def read(self, path: Path) -> bytes:
        """See `Disk.read`."""
        return self._files[path.name]


def lost_segments_are_detected(env: Environment, rng: Random) -> None:
    """I14: a journal that lacks its newest segment, or all of them, is refused.

    Args:
        env: The environment, between two drivers.
        rng: Generator of what is lost.
    """
    mark, files = env.mark(), env.journal_files()
    segments = sorted(name for name in files if name.endswith(".log"))
    may_be_lost = env.scenario.durability == "process" and mark.boot_id != env.boot_id
    if not segments or not mark.epoch or rng.random() >= _LOSS_RATE or may_be_lost:
        return
    newest = segments[-1]
    header, *earlier = (
        env.ack_log.reader.record(files[name].partition(b"\n")[0]) for name in segments[:-3:-1]
    )
    is_first = not (header and earlier and earlier[0]) or earlier[0]["e"] < header["e"]
    # Before it was noted nothing had been written to it that stands nowhere else.
    is_noted = header is not None and (
        mark.segment == header["first"] or (mark.epoch == header["e"] and is_first)
    )
    how = rng.choice(("removed", "emptied", "zeroed")) if is_noted else "all removed"
    if how == "all removed":
        files = {}
    elif how == "removed":
        del files[newest]
    else:
        files[newest] = bytes(len(files[newest])) if how == "zeroed" else b""
    try:
        check_end(
            env.directory, mark, disk=cast("Disk", _JournalFiles(files)), current_boot=env.boot_id
        )
    except DamagedJournal:
        env.seen["journal without a segment refused"] += 1
    else:
        require("I14", False, f"{newest} was {how}, and that is not missed")
