"""The driver's one rule: events are written before they have effects."""

from pathlib import Path

import pytest

from schedulers.decisions import Pause, Reason, Resume, Save
from searchers import BasicVariantGenerator
from tests.core.conversation import ScriptedScheduler
from tuner.callbacks import Callback
from tuner.callbacks.callback_list import CallbackList
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.commands import AnswerReport, DeleteCheckpoint, KillWorker, StartWorker
from tuner.core.events import (
    TIME_LIMIT,
    CheckpointLost,
    ResultReported,
    StopRequested,
    TurnEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import Status
from tuner.driver.assembly import assemble
from tuner.driver.driver import Timing
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.restore.search_adapter import SearchAdapter
from tuner.virtual.executor import SimulatedExecutor

WHY = Reason("test")


def losses(config):
    for step in range(1, 6):
        yield {"loss": 1.0 / step}


class Record(Callback):
    """Records what is appended, written, notified and done, as log, executor, callback and disk."""

    def __init__(self, curves=losses, duration_s=1.0, num_slots=1):
        self.done = []
        self.waits = []
        capacity = {"cpu": float(num_slots)}
        self._executor = SimulatedExecutor(curves, capacity=capacity, duration_s=duration_s)

    def append(self, event, at_s, recorded):
        self.done.append(("take", event))

    def flush(self):
        self.done.append(("write", None))

    def delete(self, trial_id, checkpoint):
        self.done.append(("do", DeleteCheckpoint(trial_id, checkpoint)))

    def find_damage(self, trial_id, checkpoint):
        return ""

    def discard_unfinished(self, trial_id, attempt):
        pass

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.done.append(("tell", result["training_iteration"]))

    def carry_out(self, commands):
        self.done += [("do", command) for command in commands]
        self._executor.carry_out(commands)

    def wait(self, timeout_s):
        self.waits.append(timeout_s)
        return self._executor.wait(timeout_s)

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def unwritten_before(self, index):
        """Return what had been appended but not written when the entry at this place was made."""
        last_write = max(
            (place for place, (kind, _) in enumerate(self.done[:index]) if kind == "write"),
            default=-1,
        )
        return [event for kind, event in self.done[last_write + 1 : index] if kind == "take"]


def driver_of(
    record,
    scheduler=None,
    *,
    elapsed_s=0.0,
    tick_s=None,
    num_to_keep=1,
    num_trials=1,
    leave_at_s=None,
    take_snapshot=None,
    in_microseconds=False,
    **settings,
):
    policy = CheckpointPolicy(
        can_save_on_demand=True, retention=RetentionPolicy(num_to_keep=num_to_keep)
    )
    declared = ExperimentSettings(
        capacity={"cpu": float(num_trials)},
        max_trials=num_trials,
        checkpoints=policy,
        **settings,
    )
    experiment = Experiment(declared, scheduler or ScriptedScheduler(), NoopStopper())
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, {}, seed=0, num_samples=num_trials)
    suggestions = SuggestionQueue(SearchAdapter(searcher, {}, lambda config: {"cpu": 1.0}))
    return assemble(
        experiment,
        record,
        record,
        suggestions,
        CallbackList([record]),
        Path("nowhere"),
        timing=Timing(tick_s, in_microseconds, leave_at_s),
        elapsed_s=elapsed_s,
        checkpoint_files=record,
        take_snapshot=take_snapshot,
    ).driver


@pytest.fixture
def record():
    """Run an experiment that starts, saves, pauses, deletes and stops."""
    script = {("t00000", time): [Save("t00000", WHY)] for time in (1, 2)} | {
        ("t00000", 4): [Pause("t00000", WHY)]
    }
    record = Record()
    driver_of(record, ScriptedScheduler(script)).run()
    return record


def test_all_that_one_turn_deletes_is_deleted():
    trial_ids = [f"t{number:05}" for number in range(3)]
    script = {(trial_id, time): [Save(trial_id, WHY)] for trial_id in trial_ids for time in (1, 2)}
    record = Record(num_slots=3)
    driver_of(record, ScriptedScheduler(script), num_trials=3).run()
    deleted = [each.trial_id for _, each in record.done if isinstance(each, DeleteCheckpoint)]
    assert sorted(deleted) == trial_ids


def test_everything_that_was_taken_in_is_written_before_anything_is_done_about_it(record):
    places = [place for place, (kind, _) in enumerate(record.done) if kind == "do"]
    kinds = {type(record.done[place][1]) for place in places}
    assert {StartWorker, AnswerReport, DeleteCheckpoint} <= kinds
    # Only that a turn has ended from which nothing followed may be written later, with whatever
    # comes next.
    unwritten = [event for place in places for event in record.unwritten_before(place)]
    assert unwritten
    assert set(unwritten) == {TurnEnded(is_noop=True)}


def test_results_are_recorded_with_their_rows(record):
    events = [event for kind, event in record.done if kind == "take"]
    assert [event.row for event in events if isinstance(event, ResultReported)] == [1, 2, 3, 4]


def test_observers_are_notified_of_nothing_that_is_not_written(record):
    places = [place for place, (kind, _) in enumerate(record.done) if kind == "tell"]
    assert len(places) == 4
    assert all(record.unwritten_before(place) == [] for place in places)


def test_observers_find_a_trial_as_it_was_when_it_happened():
    def failing(config):
        raise ValueError
        yield

    class Watching(Record):
        def on_trial_recover(self, iteration, trials, trial, **info):
            self.done.append(("tell", (trial.attempt, trial.status)))

    record = Watching(failing)
    driver_of(record, max_failures=1).run()
    assert [told for kind, told in record.done if kind == "tell"] == [(1, Status.PENDING)]


def test_a_turn_without_effects_is_written_with_the_next_one(record):
    [started] = [
        place for place, (_, event) in enumerate(record.done) if isinstance(event, WorkerStarted)
    ]
    kinds = [kind for kind, _ in record.done[started:]]
    # That it started and the turn ended, then its first result.
    assert kinds[:4] == [
        "take",
        "take",
        "take",
        "write",
    ]


def test_a_turn_without_effects_is_written_at_the_next_tick():
    record = Record(duration_s=5.0)
    driver_of(record, tick_s=2.0).run()
    [started] = [
        place for place, (_, event) in enumerate(record.done) if isinstance(event, WorkerStarted)
    ]
    [first, *_] = [
        place for place, (_, event) in enumerate(record.done) if isinstance(event, ResultReported)
    ]
    assert ("write", None) in record.done[started:first]


def test_in_the_end_everything_is_written(record):
    assert record.unwritten_before(len(record.done)) == []


def test_the_driver_does_not_wait_beyond_a_deadline():
    record = Record(duration_s=50.0)
    driver_of(record, time_budget_s=120.0, stop_grace_s=7.0).run()
    assert record.clock() == 127.0
    assert [
        command for kind, command in record.done if kind == "do" and isinstance(command, KillWorker)
    ]


def test_a_driver_whose_time_is_nearly_over_interrupts_the_experiment_by_itself():
    record = Record(duration_s=50.0)
    driver_of(record, leave_at_s=120.0, interrupt_grace_s=7.0).run()
    assert record.clock() == 127.0
    assert [
        event.rule
        for kind, event in record.done
        if kind == "take" and isinstance(event, StopRequested)
    ] == [TIME_LIMIT]


def test_a_driver_that_ticks_looks_at_the_clock_meanwhile():
    record = Record(duration_s=5.0)
    driver_of(record, tick_s=2.0).run()
    assert max(record.waits) == 2.0


def test_the_time_of_earlier_sessions_counts():
    record = Record()
    driver = driver_of(record, elapsed_s=100.0, time_budget_s=102.0)
    assert driver.elapsed_s == 100.0
    driver.run()
    assert driver.elapsed_s == 102.0


def test_a_wish_to_stop_ends_the_experiment_and_comes_first_in_its_turn():
    record = Record()
    driver = driver_of(record)
    driver.request_stop(StopRequested("signal.SIGINT"))
    driver.run()
    events = [event for kind, event in record.done if kind == "take"]
    assert [type(event).__name__ for event in events[:4]] == [
        "TurnEnded",
        "StopRequested",
        "TrialSuggested",
        "TurnEnded",
    ]
    assert not any(isinstance(event, WorkerExited) for event in events)


def test_a_worker_whose_checkpoint_is_damaged_is_not_started_from_it():
    def find_damage(trial_id, checkpoint):
        return "torn" if checkpoint.index == 1 else ""

    script = {("t00000", 1): [Save("t00000", WHY)], ("t00000", 2): [Pause("t00000", WHY)]}
    record = Record()
    record.find_damage = find_damage
    driver_of(
        record,
        ScriptedScheduler(script, idle=[[Resume("t00000", WHY)]]),
        num_to_keep=None,
    ).run()
    started = [
        command
        for kind, command in record.done
        if kind == "do" and isinstance(command, StartWorker)
    ]
    assert [(start.attempt, start.checkpoint and start.checkpoint.index) for start in started] == [
        (1, None),
        (3, 0),
    ]
    taken = [event for kind, event in record.done if kind == "take"]
    assert CheckpointLost("t00000", 1, "torn") in taken


def test_what_happened_before_the_first_turn_is_taken_in_first():
    record = Record()
    driver_of(record).run([StopRequested("test")])
    assert next(event for kind, event in record.done if kind == "take") == StopRequested("test")


def test_one_driver_begins_exactly_where_the_one_before_it_ended():
    record = Record()
    record._executor._now_s = 1e5 / 3
    assert driver_of(record, elapsed_s=0.1).elapsed_s == 0.1


class Stamps(Record):
    """Records the stamps."""

    def __init__(self, **options):
        super().__init__(**options)
        self.stamps = []

    def append(self, event, at_s, recorded):
        super().append(event, at_s, recorded)
        self.stamps.append(at_s)


def test_where_time_goes_by_in_microseconds_all_stamps_are_whole_ones():
    record = Stamps(duration_s=1 / 3)
    driver = driver_of(record, elapsed_s=0.290001, in_microseconds=True)
    assert driver.elapsed_s == 0.290001
    driver.run()
    assert record.stamps == sorted(record.stamps)
    assert [float(f"{stamp:.6f}") for stamp in record.stamps] == record.stamps
    assert record.stamps[-1] == driver.elapsed_s == 1.956668


class Stuck(Record):
    """A log that cannot be written for a hundred seconds once a trial is to pause."""

    is_stuck = False

    def append(self, event, at_s, recorded):
        super().append(event, at_s, recorded)
        self.is_stuck |= bool(recorded)

    def flush(self):
        super().flush()
        if self.is_stuck:
            self._executor._now_s += 100.0
            self.is_stuck = False


def test_deadlines_do_not_pass_while_the_log_cannot_be_written():
    record = Stuck()
    script = {("t00000", 2): [Pause("t00000", WHY)]}
    scheduler = ScriptedScheduler(script, idle=[[Resume("t00000", WHY)]])
    driver_of(record, scheduler, stop_grace_s=7.0, report_timeout_s=5.0).run()
    assert record.clock() > 100.0
    assert not any(isinstance(command, KillWorker) for _, command in record.done)


def test_deadlines_do_not_pass_while_a_snapshot_takes_long():
    record = Record()

    def take_snapshot(elapsed_s):
        record._executor._now_s += 100.0

    driver_of(record, stop_grace_s=7.0, report_timeout_s=5.0, take_snapshot=take_snapshot).run()
    assert not any(isinstance(command, KillWorker) for _, command in record.done)
