"""Many random experiments in virtual time: they all end, well-ordered, and the same each time."""

import math
from collections import Counter

import pytest

from tests.properties.scenarios import scenario
from tests.tiers import examples
from tuner.core.events import ResultReported, TrialSuggested, WorkerExited, WorkerStarted
from tuner.core.recorded_decisions import StopExperiment
from tuner.core.trial import Status, TerminationReason

pytestmark = pytest.mark.usefixtures("quiet")
NUM_SCENARIOS = 16 * examples(125)
BATCH = NUM_SCENARIOS // 8


@pytest.mark.parametrize("first", range(0, NUM_SCENARIOS, BATCH))
def test_every_experiment_ends_with_every_trial_over(first):
    for seed in range(first, first + BATCH):
        planned = scenario(seed)
        try:
            check(planned, planned.simulate())
        except Exception as error:
            error.add_note(f"in the experiment scenario({seed})")
            raise


def check(planned, simulation):
    events = [entry.event for entry in simulation.history]
    trials = simulation.grid.trials
    is_interrupted = any(
        isinstance(said.decision, StopExperiment)
        for entry in simulation.history
        for said in entry.recorded
    )
    is_interrupted |= planned.run["failure_config"].fail_fast and any(
        trial.status is Status.ERROR for trial in trials
    )
    may_go_on = {Status.PAUSED, Status.PENDING} if is_interrupted else set()
    assert all(trial.is_finished or trial.status in may_go_on for trial in trials)
    assert simulation.stall == ""
    starts = Counter(
        (event.trial_id, event.attempt) for event in events if isinstance(event, WorkerStarted)
    )
    exits = Counter(
        (event.trial_id, event.attempt) for event in events if isinstance(event, WorkerExited)
    )
    assert starts == exits
    assert set(exits.values()) <= {1}
    assert len(trials) == sum(isinstance(event, TrialSuggested) for event in events)
    assert len(trials) == planned.tune["num_samples"] or (
        planned.may_end_early and len(trials) < planned.tune["num_samples"]
    )
    assert [entry.at_s for entry in simulation.history] == sorted(
        entry.at_s for entry in simulation.history
    )
    assert math.isfinite(simulation.elapsed_s)
    check_trials(planned, trials)
    if planned.seed % 8 == 0:
        check_tables(simulation, events)


def check_trials(planned, trials):
    max_failures = planned.run["failure_config"].max_failures
    for trial in trials:
        assert max_failures < 0 or trial.num_failures <= max_failures + 1
        assert (trial.status is Status.ERROR) == (trial.ending is TerminationReason.FAILED)
        assert trial.status is not Status.ERROR or trial.failures
        num_to_keep = planned.run["checkpoint_config"].num_to_keep
        assert num_to_keep is None or len(trial.checkpoints) <= num_to_keep + 1


def iterations_of(trial):
    """Return the iterations of a trial's rows; they are gapless except at exploits."""
    found, first = [], 1
    for graft in trial.grafts:
        found += range(first, first + graft.num_rows - len(found))
        first = graft.from_iteration + 1
    return found + list(range(first, first + trial.num_rows - len(found)))


def check_tables(simulation, events):
    reported = {event.trial_id for event in events if isinstance(event, ResultReported)}
    for result in simulation.grid:
        frame = result.metrics_dataframe
        iterations = list(frame["training_iteration"]) if len(frame) else []
        assert iterations == iterations_of(simulation.grid.trials[int(result.trial_id[1:])])
        assert bool(iterations) == (result.trial_id in reported)
        assert not iterations or result.metrics["training_iteration"] == iterations[-1]


@pytest.mark.parametrize("seed", range(0, NUM_SCENARIOS, 40))
def test_the_same_seed_gives_the_same_history(seed):
    first, second = scenario(seed).simulate(), scenario(seed).simulate()
    assert repr(first.history) == repr(second.history)
    assert first.elapsed_s == second.elapsed_s


def test_the_scenarios_cover_what_can_happen():
    seen = Counter()
    for seed in range(0, 2_000, 7):
        simulation = scenario(seed).simulate()
        seen.update(str(trial.ending) for trial in simulation.grid.trials)
        seen.update(type(decision).__name__ for decision in simulation.decisions)
        seen.update(trial.reason.rule for trial in simulation.grid.trials if trial.reason)
        seen["retries"] += sum(
            trial.num_failures > 0 and trial.status is Status.TERMINATED
            for trial in simulation.grid.trials
        )
    endings = {"completed", "stopped early", "interrupted", "failed", "retries"}
    rules = {
        "asha.rung",
        "whim",
        "idle",
        "time_budget",
        "stopper.stop_all",
        "stop",
        "trainable.done",
        "fail_fast",
    }
    missing = (endings | rules | {"Stop", "Pause", "Resume", "Save", "Exploit", "Resize"}) - set(
        +seen
    )
    assert not missing
