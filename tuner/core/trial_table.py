"""Table of all trials: by status, with the queue and the resources that they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from schedulers.decisions import Reason
from tuner import capabilities
from tuner.errors import InvalidTransition

from .events import ResumeType
from .lifecycle import TrialMove, WorkerMove, is_coupled, move_trial, move_worker
from .ready_queue import ReadyQueue
from .resources import THIS_NODE, Demand, Grant, Machine, Request
from .trial import Status, TerminationReason, Trial, WaitsFor, WorkerState
from .worker_records import CheckpointRecord, Failure, WorkerGroup

_NUM_QUICK_RETRIES: Final = 3
_MAX_REST_S: Final = 60.0
_MAX_DOUBLINGS: Final = 6
"""Doublings of one second that reach the longest delay; an unlimited power would overflow."""


class TrialTable:
    """All trials of an experiment, the collections they are found in, and the resources they hold.

    A trial that is suggested before there is a slot for it waits in `backlog`, unknown to the
    scheduler, until it is *admitted*. From then on it is in `ready` while it is PENDING, in `live`
    while RUNNING, and in `paused` while PAUSED; while it waits to be resumed, in `ready` as well.
    One that the user has paused (`WaitsFor.USER`) is also in `held`, and neither in `backlog` nor
    in `ready` until the user resumes it. One without results, when the experiment stops, is in
    `left` and nowhere else until a restored driver queues it again. Every method keeps status,
    collections and resources consistent; none of them scans all trials.

    Attributes:
        trials: All trials in the order they were added.
        by_id: The same by their ids.
        admitted: Trials that the scheduler knows, by id.
        num_by_status: Number of trials by status.
        num_by_ending: Number of trials that are over, by reason.
        num_failed_attempts: How many attempts have failed, those that were tried again included.
        backlog: PENDING trials that are not yet admitted, by id, in the order of their admission.
        ready: Trials to be started.
        live: Trials with a worker, by id.
        paused: Paused trials, by id, in the order they were paused.
        held: Trials that the user has paused, by id.
        left: PENDING trials that wait for the next session, since this one stops, by id.
        num_forked: How many trials the user has forked.
        nodes: The resources of this machine, or of the nodes of a cluster.
        lent: What others than trials occupy, and what was granted to them, by holder.
        reserved: Names of resources that no trial is started with, since something that precedes
            trials waits until there is enough of them; by node.
    """

    def __init__(self, capacity: Mapping[str, float], max_concurrent: int | None) -> None:
        """Create an empty table."""
        self.trials: list[Trial] = []
        self.num_by_status: Counter[Status] = Counter()
        self.num_by_ending: Counter[TerminationReason] = Counter()
        self.num_failed_attempts = 0
        self.backlog: dict[str, Trial] = {}
        self.ready = ReadyQueue()
        self.live: dict[str, Trial] = {}
        self.paused: dict[str, Trial] = {}
        self.held: dict[str, Trial] = {}
        self.left: dict[str, Trial] = {}
        self.num_forked = 0
        self.nodes = Machine(capacity)
        self.lent: dict[str, tuple[Request, Grant]] = {}
        self._nodes_lent: dict[str, tuple[str, ...]] = {}
        """The nodes of what was lent before a restore."""
        self.reserved: dict[str, frozenset[str]] = {}
        self._max_concurrent = max_concurrent
        self._max_overtaken_s: float | None = None
        self.by_id: dict[str, Trial] = {}
        self.admitted: dict[str, Trial] = {}

    def set_resources(
        self,
        capacity: Mapping[str, float] | None,
        max_concurrent: int | None,
        max_overtaken_s: float | None = None,
    ) -> None:
        """Replace the resources; nothing may hold any.

        Args:
            capacity: Total amount by name; None where nodes join and leave.
            max_concurrent: How many trials may run at once; None for as many as fit.
            max_overtaken_s: See `ExperimentSettings`.
        """
        self.nodes = capabilities.Nodes() if capacity is None else Machine(capacity)
        self.lent.clear()
        self.reserved = {}
        self._max_concurrent = max_concurrent
        self._max_overtaken_s = max_overtaken_s

    def on_node(self, name: str) -> list[Trial]:
        """Return the trials of which a worker is on a node."""
        return [trial for trial in self.live.values() if name in trial.nodes]

    def __getitem__(self, trial_id: str) -> Trial:
        """Return a trial by its id."""
        return self.by_id[trial_id]

    def find(self, trial_id: str) -> Trial | None:
        """Return the trial with this id, None if there is none."""
        return self.by_id.get(trial_id)

    @property
    def is_finished(self) -> bool:
        """Whether every trial is over, or left for the next session."""
        return not (self.live or self.ready or self.backlog or self.paused or self.held)

    @property
    def idle(self) -> list[Trial]:
        """Paused trials that the user does not hold."""
        return [trial for trial in self.paused.values() if WaitsFor.USER not in trial.waits_for]

    def add(self, trial: Trial) -> None:
        """Add a new trial; it is PENDING, and neither admitted nor queued.

        Raises:
            InvalidTransition: If there is a trial with its id.
        """
        if trial.trial_id in self.by_id:
            raise InvalidTransition(f"trial {trial.trial_id} is suggested a second time")
        trial.number = len(self.trials)
        self.trials.append(trial)
        self.by_id[trial.trial_id] = trial
        self.num_by_status[trial.status] += 1

    def admit(self, trial: Trial) -> None:
        """Make the trial known to the scheduler."""
        self.backlog.pop(trial.trial_id, None)
        self.admitted[trial.trial_id] = trial

    @property
    def num_not_started(self) -> int:
        """How many trials were interrupted before there was a slot for them."""
        # Nearly always so; otherwise all trials have to be looked at.
        if len(self.admitted) + len(self.backlog) == len(self.trials):
            return 0
        return sum(
            trial.ending is TerminationReason.INTERRUPTED and not self.is_admitted(trial)
            for trial in self.trials
        )

    def is_admitted(self, trial: Trial) -> bool:
        """Return whether the scheduler knows the trial."""
        return trial.trial_id in self.admitted

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the trials do not contain, as JSON values."""
        return {
            "admitted": list(self.admitted),
            "backlog": list(self.backlog),
            "ready": [trial.trial_id for trial in self.ready.in_order()],
            "resting": self.ready.resting_until_s,
            "live": list(self.live),
            "paused": list(self.paused),
            "held": list(self.held),
            "num_forked": self.num_forked,
            "num_failed_attempts": self.num_failed_attempts,
        } | self._optional_state()

    def _optional_state(self) -> dict[str, Any]:
        """Return what most experiments do not have."""
        state: dict[str, Any] = {}
        if self.left:
            state["left"] = list(self.left)
        if self.ready.overtaken:
            state["overtaken"] = list(self.ready.overtaken)
        if not self.nodes.is_local:
            state["nodes"] = self.nodes.state_dict()
            state["nodes_lent"] = {
                holder: list(grant.nodes) for holder, (_, grant) in self.lent.items()
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any], trials: Iterable[Trial]) -> None:
        """Restore all trials, and what `state_dict` returned, in an empty table."""
        for trial in trials:
            self.add(trial)
            if trial.ending is not None:
                self.num_by_ending[trial.ending] += 1
        self.admitted = {trial_id: self[trial_id] for trial_id in state["admitted"]}
        self.backlog = {trial_id: self[trial_id] for trial_id in state["backlog"]}
        for trial_id in state["ready"]:
            self[trial_id].waits_for &= ~WaitsFor.DECISION
            self.ready.push(self[trial_id])
        if overtaken := state.get("overtaken"):
            self.ready.overtaken = (str(overtaken[0]), float(overtaken[1]))
        for trial_id, until_s in state["resting"].items():
            self.ready.rest(self[trial_id], until_s)
        self.live = {trial_id: self[trial_id] for trial_id in state["live"]}
        self.paused = {trial_id: self[trial_id] for trial_id in state["paused"]}
        self.held = {trial_id: self[trial_id] for trial_id in state["held"]}
        for trial in self.held.values():
            trial.waits_for |= WaitsFor.USER
        self.left = {trial_id: self[trial_id] for trial_id in state.get("left", ())}
        self.num_forked = state["num_forked"]
        self.num_failed_attempts = state["num_failed_attempts"]
        self.nodes.load_state_dict(state.get("nodes", ()))
        self._nodes_lent = {
            holder: tuple(names) for holder, names in state.get("nodes_lent", {}).items()
        }
        for trial in self.live.values():
            self.nodes.hold(trial.request, _granted(trial))

    def misfit(self, trial: Trial) -> Failure | None:
        """Return why the trial could never run here, None if it could."""
        why = self.nodes.misfit(trial.request)
        return Failure("ResourcesUnavailable", why) if why else None

    def misfit_of_admitted(self, trial: Trial) -> Failure | None:
        """Return why an admitted trial that is not over could never run here, None if it could."""
        if trial.is_finished or not self.is_admitted(trial):
            return None
        if trial.group and trial.group.is_decided and self.nodes.misfit(trial.group):
            # The scheduler has decided on it for a larger machine.
            undecided = replace(trial.group, is_decided=False)
            self._set_request(trial, trial.resources, undecided)
        return self.misfit(trial)

    @property
    def num_may_start(self) -> int | None:
        """How many more trials may run at once, whatever there is room for; None for no limit."""
        return None if self._max_concurrent is None else self._max_concurrent - len(self.live)

    def num_free_slots(self, demand: Demand, limit: int = 64) -> int:
        """Return how many more trials that ask for this could run now, at most `limit`."""
        if (may_start := self.num_may_start) is not None:
            limit = min(limit, may_start)
        request, labels = demand
        return self.nodes.num_fitting(request, limit, labels, self._reserved_from(request))

    def lend(
        self,
        holder: str,
        request: Request,
        preferred: Sequence[str] = (),
        only: str | None = None,
    ) -> Grant | None:
        """Book resources for what is no trial; return what was granted, None for no room now.

        Args:
            holder: Name of the holder.
            request: What is asked for.
            preferred: Names of nodes that are tried first.
            only: The node on which it must be; None for any.
        """
        grant = self.nodes.acquire(request, preferred=preferred, only=only)
        if grant is not None:
            self.lent[holder] = request, grant
        return grant

    def reserve(self, node: str, names: frozenset[str]) -> None:
        """Keep trials from taking resources of a node."""
        self.reserved[node] = self.reserved.get(node, frozenset()) | names

    def hold_lent(self, holder: str, request: Request, gpu_ids: tuple[int, ...]) -> None:
        """Book what `lend` granted before a restore."""
        grant = Grant(self._nodes_lent.get(holder, (THIS_NODE,)), gpu_ids)
        self.nodes.hold(request, grant)
        self.lent[holder] = request, grant

    def take_back(self, holder: str) -> None:
        """Release what a holder was lent."""
        self.nodes.release(*self.lent.pop(holder))

    def _reserved_from(self, request: Request) -> list[str]:
        """Return the names of the nodes that have nothing for a trial with this request."""
        if not self.reserved:
            return []
        share = request.resources_per_worker if isinstance(request, WorkerGroup) else request
        wanted = {name for name, amount in share.items() if amount}
        return [node for node, names in self.reserved.items() if names & wanted]

    def pop_startable(self, now_s: float) -> Trial | None:
        """Take the next ready trial that fits, and acquire its resources; None if there is none.

        What the oldest ready trial waits for is held for it once it has been overtaken for long.
        """
        if self._max_concurrent is not None and len(self.live) >= self._max_concurrent:
            return None
        oldest = None if self._max_overtaken_s is None else self.ready.oldest
        awaited = oldest if oldest and self._is_overtaken_for_long(oldest, now_s) else None
        started = self.ready.pop_first(lambda trial: self._acquire(trial, awaited))
        if started and oldest and started is not oldest:
            self.ready.note_overtaken(oldest, now_s)
        return started

    def _is_overtaken_for_long(self, trial: Trial, now_s: float) -> bool:
        since_s = self.ready.overtaken_since_s(trial)
        return since_s is not None and now_s - since_s >= (self._max_overtaken_s or 0.0)

    def _held_for(self, awaited: Trial | None, trial: Trial) -> list[str]:
        """Return the nodes where starting a trial would take what is held for another one."""
        if awaited is None or trial is awaited:
            return []
        sized = trial.group and self.nodes.largest_fitting(trial.group, trial.labels)
        return self.nodes.held_for(awaited.request, sized or trial.request, awaited.labels)

    def misfit_of_resize(self, trial: Trial, resources: Mapping[str, float]) -> str:
        """Return why the trial could never continue with these resources; empty if it could."""
        group = trial.group
        if group is None:
            return self.nodes.misfit(resources)
        num_workers = group.num_workers_for(resources)
        if num_workers is None:
            return (
                f"it trains over {group.min_workers} to {group.max_workers} workers with "
                f"{dict(group.resources_per_worker)} each; ask for what a whole number of them "
                "takes"
            )
        return self.nodes.misfit(group.decided(num_workers))

    def has_node_for(self, trial: Trial, resources: Mapping[str, float]) -> bool:
        """Return whether nodes that are present could grant a trial these resources."""
        group = trial.group
        num_workers = group.num_workers_for(resources) if group else None
        request = group.decided(num_workers) if group and num_workers else resources
        return not self.nodes.shortage(request)

    def start(self, trial: Trial, now_s: float) -> None:
        """Start the trial from its latest checkpoint, with the resources that were acquired."""
        self.paused.pop(trial.trial_id, None)
        self._move(trial, TrialMove.START)
        move_worker(trial, WorkerMove.LAUNCH)
        # From here on events of earlier attempts are recognised by their number, and dropped.
        trial.attempt += 1
        trial.start_time_s = now_s
        trial.go_back_to_source()
        self.live[trial.trial_id] = trial

    def release_worker(self, trial: Trial) -> None:
        """Free what the trial's worker held; one of the moves below has to follow."""
        move_worker(trial, WorkerMove.EXIT)
        del self.live[trial.trial_id]
        self.nodes.release(trial.request, _granted(trial))
        trial.gpu_ids = ()
        trial.owes_save = False
        trial.intention = None

    def pause(self, trial: Trial, reason: Reason) -> None:
        """Pause the trial, whose worker is gone."""
        self._move(trial, TrialMove.PAUSE)
        trial.reason = reason
        self.paused[trial.trial_id] = trial

    def retry(self, trial: Trial, now_s: float, *, is_counted: bool = True) -> None:
        """Put a trial back in the queue whose attempt has failed.

        The first retries start at once, since many causes are temporary. If the trial makes
        no progress, later ones are delayed exponentially, so that a trial that fails again
        and again neither fills the disk nor keeps the machine busy.

        Args:
            trial: The trial.
            now_s: The present time in seconds.
            is_counted: Whether it uses up one of the trial's retries.
        """
        trial.num_failures += is_counted
        trial.num_vain_attempts += 1
        self.num_failed_attempts += 1
        num_slow = trial.num_vain_attempts - _NUM_QUICK_RETRIES
        if num_slow > 0 and WaitsFor.USER not in trial.waits_for:
            self.ready.rest(
                trial, now_s + min(2.0 ** min(num_slow - 1, _MAX_DOUBLINGS), _MAX_REST_S)
            )
        self.requeue(trial, TrialMove.RETRY)

    def requeue(self, trial: Trial, move: TrialMove) -> None:
        """Put the trial back in the queue, to continue from its latest checkpoint."""
        self.paused.pop(trial.trial_id, None)
        self._move(trial, move)
        trial.waits_for &= ~WaitsFor.DECISION
        trial.go_back_to_source()
        self.make_ready(trial)

    def make_ready(self, trial: Trial) -> None:
        """Queue the trial for its start or admission, unless the user holds it."""
        if WaitsFor.USER not in trial.waits_for:
            self._enqueue(trial)

    def hold(self, trial: Trial) -> None:
        """Hold the trial: it is not started until `unhold` is called."""
        self.held[trial.trial_id] = trial
        trial.waits_for |= WaitsFor.USER
        self.dequeue(trial)

    def dequeue(self, trial: Trial) -> None:
        """Remove the trial from the queue."""
        self.backlog.pop(trial.trial_id, None)
        self.ready.discard(trial)

    def unhold(self, trial: Trial) -> None:
        """Hold the trial no longer; one that is PENDING is queued."""
        trial.waits_for &= ~WaitsFor.USER
        if self.held.pop(trial.trial_id, None) and trial.status is Status.PENDING:
            self._enqueue(trial)

    def resize(self, trial: Trial, resources: Mapping[str, float]) -> None:
        """Change the resources of a trial without a worker."""
        num_workers = trial.group.num_workers_for(resources) if trial.group else None
        group = trial.group.decided(num_workers) if trial.group and num_workers else trial.group
        self._set_request(trial, resources, group)

    def _set_request(
        self, trial: Trial, resources: Mapping[str, float], group: WorkerGroup | None
    ) -> None:
        # The queue groups trials by their requests, so it must not contain it while they change.
        is_ready = trial in self.ready
        self.ready.discard(trial)
        trial.resources, trial.group = resources, group
        if group:
            trial.labels = group.labels
        if is_ready:
            self.ready.push(trial)

    def redeclare(self, trial: Trial, declared: WorkerGroup) -> None:
        """Let a trial without a worker train over the workers that are declared now."""
        group = trial.group.redeclared(declared) if trial.group else declared
        self._set_request(trial, group.total, group)

    def revive(self, trial: Trial) -> None:
        """Resume a trial that was over, with all its retries left."""
        if trial.ending is not None:
            self.num_by_ending[trial.ending] -= 1
        trial.ending = trial.reason = None
        trial.num_failures = trial.num_vain_attempts = 0
        trial.losses = ()
        self.requeue(trial, TrialMove.REVIVE)

    def readmit(self, trial: Trial, treatment: ResumeType) -> list[CheckpointRecord]:
        """Resume or restart the trial, which has no worker, after a restart of the driver.

        Returns:
            The checkpoints that no longer count.
        """
        if self.left.pop(trial.trial_id, None):
            trial.num_failures = trial.num_vain_attempts = 0
            self.make_ready(trial)
        if treatment is ResumeType.RESTART:
            return self._restart(trial)
        if treatment is ResumeType.RESUME and trial.is_finished:
            self.revive(trial)
        return []

    def treatments_of_never_admitted(
        self, max_trials: int | None, left_out: Sequence[str] = ()
    ) -> Mapping[Trial, ResumeType]:
        """Return what a restarted driver does with trials that the scheduler has not seen.

        They count like suggestions that have not been made yet: all are resumed, except that the
        last ones are skipped where fewer trials are wanted now.

        Args:
            max_trials: How many trials are wanted now, forks not counted; None for no limit.
            left_out: Trials that are skipped in any case.
        """
        unwanted = frozenset(left_out)
        open_trials = [
            trial
            for trial in self.trials
            if not self.is_admitted(trial) and trial.ending in {None, TerminationReason.INTERRUPTED}
        ]
        never_admitted = [trial for trial in open_trials if trial.trial_id not in unwanted]
        num_sampled = len(self.trials) - self.num_forked
        num_surplus = 0 if max_trials is None else max(num_sampled - max_trials, 0)
        num_resumed = max(len(never_admitted) - num_surplus, 0)
        return {
            trial: ResumeType.RESUME if index < num_resumed else ResumeType.SKIP
            for index, trial in enumerate(never_admitted)
        } | {trial: ResumeType.SKIP for trial in open_trials if trial.trial_id in unwanted}

    def leave(self, trial: Trial) -> None:
        """Leave a trial without a worker for the next session: it stays, or becomes, PENDING."""
        self._forget(trial)
        if trial.status is not Status.PENDING:
            self._move(trial, TrialMove.REQUEUE)
            trial.go_back_to_source()
        self.left[trial.trial_id] = trial

    def end(self, trial: Trial, ending: TerminationReason, reason: Reason | None) -> None:
        """Terminate the trial."""
        self._move(trial, TrialMove.END)
        self._forget(trial)
        trial.ending = ending
        trial.reason = reason
        self.num_by_ending[ending] += 1

    def fail(self, trial: Trial) -> None:
        """Move the trial to ERROR."""
        self._move(trial, TrialMove.FAIL)
        self._forget(trial)
        trial.ending = TerminationReason.FAILED
        trial.num_failures += 1
        self.num_by_ending[TerminationReason.FAILED] += 1
        self.num_failed_attempts += 1

    def check(self) -> None:
        """Assert every invariant; for tests, since it looks at all trials."""
        standing: dict[Status, set[str]] = {status: set() for status in Status}
        for trial in self.trials:
            standing[trial.status].add(trial.trial_id)
            assert is_coupled(trial), "a worker without a running trial, or the reverse"
            assert (trial.ending is not None) == trial.is_finished, (
                "a termination reason without an end"
            )
            must_decide = WaitsFor.DECISION in trial.waits_for
            assert not must_decide or trial.status is Status.PAUSED or trial.intention, (
                "a trial that neither is paused nor will be waits for a decision to resume it"
            )
            assert (WaitsFor.DONOR in trial.waits_for) == (
                trial.exploit is not None and trial.exploit.checkpoint is None
            ), "waits for a donor without an exploit that lacks its checkpoint, or the reverse"
            assert (WaitsFor.USER in trial.waits_for) == (trial.trial_id in self.held), (
                "waits for the user and is not held, or the reverse"
            )
            assert trial.worker is WorkerState.ABSENT or trial.trial_id in self.live, (
                "a worker of a trial that is not live"
            )
        assert {
            status: len(ids) for status, ids in standing.items() if ids
        } == +self.num_by_status, "miscounted"
        assert set(self.live) == standing[Status.RUNNING], "live differs from RUNNING"
        assert set(self.paused) == standing[Status.PAUSED], "paused differs from PAUSED"
        ready = {trial.trial_id for trial in self.ready}
        held, backlog, left = set(self.held), set(self.backlog), set(self.left)
        assert (
            standing[Status.PENDING] - held - backlog - left
            <= ready
            <= standing[Status.PENDING] | standing[Status.PAUSED]
        ), f"ready is not what can start: {ready}, {standing}"
        assert backlog <= standing[Status.PENDING], "in the backlog, and not PENDING"
        assert left <= standing[Status.PENDING], "left for the next session, and not PENDING"
        assert not left & (ready | held | backlog), "left for the next session, and queued"
        assert not backlog & (ready | held | self.admitted.keys()), "in the backlog and elsewhere"
        assert ready | standing[Status.RUNNING] | standing[Status.PAUSED] <= self.admitted.keys(), (
            "running, ready or paused, and not admitted"
        )
        assert not any(trial.waits_for for trial in self.ready), "queued, and waits for something"
        assert not held & (standing[Status.TERMINATED] | standing[Status.ERROR]), (
            "held after the end"
        )
        assert all(trial.source or trial.exploit for trial in self.paused.values()), (
            "a pause without a checkpoint"
        )
        self._check_resources()

    def _check_resources(self) -> None:
        for name, used in self.nodes.used.items():
            held = sum(self._held_by(trial).get(name, 0.0) for trial in self.live.values())
            held += sum(
                (lent.total if isinstance(lent, WorkerGroup) else lent).get(name, 0.0)
                for lent, _ in self.lent.values()
            )
            assert round(used - held, 6) == 0, f"{name}: {used} in use, {held} held"
        assert self._max_concurrent is None or len(self.live) <= self._max_concurrent, (
            "more live trials than max_concurrent"
        )

    def _held_by(self, trial: Trial) -> Mapping[str, float]:
        """Return what a trial with a worker occupies; not what it had on nodes that have left."""
        if trial.group is None or len(trial.nodes) <= 1:
            return trial.resources
        return trial.group.resized(sum(name in self.nodes for name in trial.nodes)).total

    def _acquire(self, trial: Trial, awaited: Trial | None) -> bool:
        reserved = [*self._reserved_from(trial.request), *self._held_for(awaited, trial)]
        if trial.group:
            sized = self.nodes.largest_fitting(trial.group, trial.labels, without=reserved)
            if sized is None:
                return False
            trial.group, trial.resources = sized, sized.total
        # Where it has run, its latest checkpoint is; that of a donor is where the donor has run.
        donor = self.by_id[trial.source_id]
        preferred = (*trial.nodes, *donor.nodes)
        grant = self.nodes.acquire(trial.request, trial.labels, preferred, without=reserved)
        if grant is None:
            return False
        trial.nodes = () if self.nodes.is_local else grant.nodes
        trial.gpu_ids = grant.devices
        return True

    def _restart(self, trial: Trial) -> list[CheckpointRecord]:
        dropped = trial.restart()
        if trial.status is not Status.PENDING:
            self._forget(trial)
            self.revive(trial)
        return dropped

    def _enqueue(self, trial: Trial) -> None:
        if self.is_admitted(trial):
            self.ready.push(trial)
        else:
            self.backlog[trial.trial_id] = trial

    def _forget(self, trial: Trial) -> None:
        self.backlog.pop(trial.trial_id, None)
        self.paused.pop(trial.trial_id, None)
        self.held.pop(trial.trial_id, None)
        self.left.pop(trial.trial_id, None)
        self.ready.discard(trial)
        # A trial that is interrupted keeps its exploit for the next session.
        trial.waits_for &= WaitsFor.DONOR

    def _move(self, trial: Trial, move: TrialMove) -> None:
        before = trial.status
        move_trial(trial, move)
        self.num_by_status[before] -= 1
        self.num_by_status[trial.status] += 1


def _granted(trial: Trial) -> Grant:
    return Grant(trial.nodes or (THIS_NODE,), trial.gpu_ids)
