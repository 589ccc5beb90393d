"""The searcher is called in one order, however long its answers take.

It is notified, then asked, and notified again only when all answers have been taken.
"""

import itertools
from collections import deque
from pathlib import Path
from random import Random as Chance

import pytest

import tuner as tune
from searchers import BasicVariantGenerator, Searcher
from tests.tiers import examples
from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import ResultRecorded
from tuner.core.events import SearchEnded, StopRequested, SuggestionPostponed, TrialSuggested
from tuner.core.experiment import Experiment
from tuner.core.trial import Trial
from tuner.driver.assembly import assemble
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.driver import Timing
from tuner.driver.journal_log import JournalLog
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.journal import snapshot_files
from tuner.journal.writer import Journal
from tuner.restore.experiment import restore_experiment
from tuner.restore.search_adapter import SearchAdapter
from tuner.restore.snapshot_state import ExperimentState
from tuner.spec.experiment_spec import make_spec
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.virtual.executor import SimulatedExecutor

SPACE = {"x": tune.uniform(0.0, 1.0)}


class Listens(Searcher):
    """Makes proposals that depend on all earlier calls, postpones some, and records the calls."""

    def __init__(self, postpones=(), ends_at=None, raises_at=None):
        self.made_calls = []
        self.postpones, self.ends_at, self.raises_at = set(postpones), ends_at, raises_at

    def suggest(self, trial_id):
        self.made_calls.append(f"asked {trial_id}")
        num = sum(each.startswith("asked") for each in self.made_calls)
        if num == self.raises_at:
            raise ZeroDivisionError("a defect")
        if num in self.postpones:
            return None
        if num == self.ends_at:
            return self.FINISHED
        return {"x": Chance(repr(self.made_calls)).random()}  # noqa: S311  (no secret)

    def on_trial_result(self, trial_id, result):
        self.made_calls.append(f"{trial_id} at {result['training_iteration']}")

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.made_calls.append(f"{trial_id} over")

    def state_dict(self):
        return {"made_calls": self.made_calls}

    def load_state_dict(self, state):
        self.made_calls = list(state["made_calls"])


class HeldCaller:
    """Makes a call only on request, or while it is waited for and willing."""

    def __init__(self, is_willing=lambda: False):
        self.calls = deque()
        self.is_willing = is_willing

    def submit(self, call):
        self.calls.append(call)

    def wait(self, timeout_s):
        while self.calls and (timeout_s is None or self.is_willing()):
            self.go_on()
        return not self.calls

    def close(self, timeout_s, *, drops_queued):
        return not self.calls

    def go_on(self, num_calls=1):
        for _ in range(num_calls):
            self.calls.popleft()()


def held(**options):
    searcher, caller = Listens(**options), HeldCaller()
    return (
        searcher,
        caller,
        SuggestionQueue(SearchAdapter(searcher, {}, lambda config: {"cpu": 1.0}), caller),
    )


def result(trial_id, time):
    return ResultRecorded(Trial(trial_id, {}, {}), {}, {"training_iteration": time})


def kinds(answers):
    return [(type(answer).__name__, getattr(answer, "trial_id", None)) for answer in answers]


def test_results_and_questions_wait_behind_a_question_that_is_not_answered():
    searcher, caller, queue = held()
    assert queue.ask(["t0"]) == []
    queue.notify(result("t9", 1))
    assert queue.ask(["t1", "t2"]) == []
    assert len(caller.calls) == 1
    caller.go_on()
    assert kinds(queue.take()) == [("TrialSuggested", "t0")]
    queue.notify(result("t9", 2))
    assert queue.ask([]) == []
    caller.go_on(2)
    assert searcher.made_calls == ["asked t0", "t9 at 1", "t9 at 2", "asked t1", "asked t2"]
    assert kinds(queue.take()) == [("TrialSuggested", "t1"), ("TrialSuggested", "t2")]


def test_the_next_question_waits_for_the_end_of_the_turn_that_takes_the_answer():
    _, caller, queue = held()
    queue.ask(["t0"])
    caller.go_on()
    assert kinds(queue.ask(["t1"])) == [("TrialSuggested", "t0")]
    assert not caller.calls  # notices of this turn come before the question for t1
    queue.ask([])
    assert len(caller.calls) == 1


def test_a_searcher_that_answers_at_once_is_waited_for():
    _, caller, queue = held()
    caller.is_willing = lambda: True
    assert kinds(queue.ask(["t0", "t1"])) == [("TrialSuggested", "t0"), ("TrialSuggested", "t1")]
    assert not queue.is_answering


def test_a_searcher_without_use_for_results_is_not_called_with_them():
    searcher = BasicVariantGenerator()
    assert SearchAdapter(searcher, {}, lambda config: {}).call_for(result("t0", 1)) is None
    searcher.on_trial_result = lambda trial_id, result: None
    assert SearchAdapter(searcher, {}, lambda config: {}).call_for(result("t0", 1)) is not None


def test_what_the_searcher_refuses_it_refuses_for_all_that_wait_in_one_piece():
    for options, kind in (({"postpones": [2]}, SuggestionPostponed), ({"ends_at": 2}, SearchEnded)):
        searcher, caller, queue = held(**options)
        queue.ask(["t0", "t1", "t2"])
        queue.ask(["t3"])
        caller.go_on()
        answers = queue.take()
        assert [type(answer) for answer in answers] == [TrialSuggested, kind, kind, kind]
        assert searcher.made_calls == ["asked t0", "asked t1"]
        assert not queue.is_answering


def test_what_the_searcher_raises_is_raised_where_the_driver_looks_and_it_is_not_called_again():
    searcher, caller, queue = held(raises_at=1)
    queue.ask(["t0", "t1"])
    caller.go_on()
    for look in (queue.take, lambda: queue.ask([]), lambda: queue.settle(0.0)):
        with pytest.raises(ZeroDivisionError, match="a defect"):
            look()
    assert searcher.made_calls == ["asked t0"]


def test_a_searcher_is_idle_when_all_calls_are_made_and_all_answers_taken():
    searcher, _, queue = held()
    queue.notify(result("t9", 1))
    assert not queue.settle(0.0)
    assert queue.settle(None)
    assert searcher.made_calls == ["t9 at 1"]
    queue.ask(["t0"])
    assert not queue.settle(None)
    queue.take()
    assert queue.settle(0.0)


def test_where_the_experiment_stops_what_waits_is_not_asked():
    _, caller, queue = held()
    queue.ask(["t0", "t1"])
    queue.ask(["t2"])
    queue.withdraw()
    caller.go_on()
    assert kinds(queue.take()) == [("TrialSuggested", "t0")]
    assert not queue.is_answering
    queue.ask([])
    assert not caller.calls


# Whole experiments, with a searcher that answers at any moment.


class Unhurried(SimulatedExecutor):
    """Between two turns, lets the caller make some of its calls, or none."""

    def __init__(self, caller, chance, **options):
        super().__init__(losses, **options)
        self._caller, self._chance = caller, chance

    def wait(self, timeout_s):
        while self._caller.calls and self._chance.random() < 0.3:
            self._caller.go_on()
        if not self._caller.calls or self._has_work():
            return super().wait(0.0 if self._caller.calls else timeout_s)
        self._caller.go_on()
        return []

    def _has_work(self):
        return self._chance.random() < 0.9


def losses(config):
    for step in range(1, 5):
        yield {"loss": config["x"] / step}


def spec_with(searcher, num_trials):
    settings = tune.TuneConfig(
        metric="loss", mode="min", num_samples=num_trials, search_alg=searcher, seed=1
    )
    spec = make_spec(
        losses, SPACE, settings, tune.RunConfig(failure_config=tune.FailureConfig(stop_grace_s=1.0))
    )
    spec.connect()
    return spec


def new_state(spec, directory):
    experiment = Experiment(spec.settings({"cpu": 3.0}), spec.scheduler, spec.stopper)
    search_adapter = SearchAdapter(spec.searcher, spec.space, spec.request_for)
    return ExperimentState(
        experiment, search_adapter, ConfigCodec(spec.space, ArrayStore(directory))
    )


def live(directory, seed, *, options, stops_after=None):
    """Run an experiment; return the calls of its searcher, and how many snapshots were taken."""
    chance = Chance(seed)  # noqa: S311  (no secret)
    searcher, caller = Listens(**options), HeldCaller(lambda: chance.random() < 0.3)
    spec = spec_with(searcher, 12)
    state = new_state(spec, directory)
    executor = Unhurried(
        caller, chance, capacity={"cpu": 3.0}, duration_s=lambda config, _: 0.5 + config["x"]
    )
    queue = SuggestionQueue(state.search_adapter, caller, executor.wake)
    turns, num_snapshots = itertools.count(), 0
    with Journal(directory, sync="process") as journal, CheckpointDeleter(journal) as cleaner:
        log = JournalLog(journal, cleaner, configs=state.configs)

        def take_snapshot(elapsed_s):
            nonlocal num_snapshots
            if next(turns) == stops_after:
                driver.request_stop(StopRequested("test"))
            if (
                chance.random() < 0.3
                and state.experiment.trials
                and not queue.is_answering
                and queue.settle(None)
            ):
                log.settle()
                snapshot_files.write(
                    directory, state.snapshot(elapsed_s), journal.last_sequence, sync=False
                )
                num_snapshots += 1

        driver = assemble(
            state.experiment,
            executor,
            log,
            queue,
            CallbackList([]),
            Path(directory),
            timing=Timing(tick_s=0.2),
            take_snapshot=take_snapshot,
        ).driver
        driver.run()
        log.close(driver.elapsed_s)
    assert state.experiment.is_finished
    return searcher.made_calls, num_snapshots


@pytest.mark.property
@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_replayed_searcher_gets_the_same_calls_however_slow_it_was(seed, tmp_path):
    options = [{}, {"postpones": range(4, 12, 3)}, {"ends_at": 8}][seed % 3]
    is_stopped = seed % 4 == 3
    made_calls, num_snapshots = live(
        tmp_path, seed, options=options, stops_after=20 if is_stopped else None
    )
    assert sum(each.startswith("asked") for each in made_calls) >= 3

    again = Listens(**options)
    state = new_state(spec_with(again, 12), tmp_path)
    restore_experiment(tmp_path, state)
    assert state.search_adapter.excluded == {}
    # What was asked last may not have been answered before the end; and a search that has ended is
    # not asked to end again.
    unanswered = [each for each in made_calls if each not in again.made_calls]
    assert len(unanswered) <= 1
    in_order = [each for each in made_calls if each not in unanswered]
    # After a question that is given up, this session makes no more calls; the next one
    # tells it.
    assert (again.made_calls[: len(in_order)] if is_stopped else again.made_calls) == in_order

    if num_snapshots:
        third = Listens(**options)
        state = new_state(spec_with(third, 12), tmp_path)
        newest = snapshot_files.load_newest(tmp_path)
        restore_experiment(tmp_path, state, newest)
        assert [each for each in third.made_calls if each not in unanswered] == again.made_calls
        assert state.search_adapter.excluded == {}
