"""A replay decides what a real run decides, at the same time and for the same reasons."""

import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PASHAScheduler,
)
from searchers.random_search import BasicVariantGenerator
from tuner.journal.reader import read_events

STOPPING = {
    "asha": lambda: ASHAScheduler(max_t=9, reduction_factor=3),
    "asha in brackets": lambda: ASHAScheduler(
        max_t=9, reduction_factor=2, type="stopping", brackets=2
    ),
    "median": lambda: MedianStoppingRule(grace_period=1, min_samples_required=2),
    "fifo": FIFOScheduler,
}
PAUSING = {
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "pasha": lambda: PASHAScheduler(max_t=9),
}


def texts(decisions):
    # NaN compares unequal to itself, its text does not.
    return [repr(decision) for decision in decisions]


def assert_same(answer, ran):
    assert texts(answer.decisions) == texts(ran.decisions)
    assert answer.replayed.wall_clock_s == pytest.approx(ran.end_s)
    assert [trial.iterations for trial in answer.trials] == [
        trial.farthest_iteration for trial in ran.grid.trials
    ]


@pytest.mark.parametrize("name", STOPPING)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "run", [{"slots": 1}, {"slots": 3}, {"slots": 2, "stop": {"training_iteration": 4}}], ids=str
)
def test_a_recording_is_judged_as_the_scheduler_would_have_judged_it(
    record, worlds, name, seed, run
):
    world = worlds.of(seed)
    recorded = record(world, **run)
    assert_same(
        tune.what_if(recorded.path, STOPPING[name]()), record(world, STOPPING[name](), **run)
    )


@pytest.mark.parametrize("name", ["median", "fifo"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_recorded_validations_are_delivered_again(record, worlds, name, seed):
    world = worlds.of(seed)
    recorded = record(world, validation_s=0.005)
    ran = record(world, STOPPING[name](), validation_s=0.005)
    answer = tune.what_if(recorded.path, STOPPING[name]())
    assert_same(answer, ran)
    assert answer.recorded.best_value == pytest.approx(
        recorded.grid.get_best_result().metrics["loss"]
    )


@pytest.mark.parametrize("name", ["asha", *PAUSING])
@pytest.mark.parametrize(("seed", "slots"), [(1, 1), (2, 3), (5, 2)])
def test_pauses_and_promotions_are_those_of_a_real_run(record, worlds, name, seed, slots):
    world, make = worlds.of(seed), (STOPPING | PAUSING)[name]
    recorded = record(world, slots=slots, can_save=True)
    ran = record(world, make(), slots=slots, can_save=True)
    assert any(type(decision).__name__ == "Pause" for decision in ran.decisions)
    assert_same(tune.what_if(recorded.path, make()), ran)


@pytest.mark.parametrize("name", [*STOPPING, *PAUSING])
@pytest.mark.parametrize(("seed", "slots"), [(1, 1), (2, 3)])
def test_an_experiment_decides_again_what_it_decided(record, worlds, name, seed, slots):
    ran = record(worlds.of(seed), (STOPPING | PAUSING)[name](), slots=slots, can_save=True)
    answer = tune.what_if(ran.grid, (STOPPING | PAUSING)[name]())
    assert_same(answer, ran)
    assert answer.num_run_out == 0


@pytest.mark.process
def test_forecasts_for_paused_trials_are_made_again_with_the_recorded_space(record, worlds):
    curves = [
        [(1 - x) + 3 * x / time for time in range(1, 10)] for x in (i / 40 for i in range(40))
    ]
    scheduler = ASHAScheduler(
        max_t=9,
        reduction_factor=3,
        later_grace_period="auto",
        num_scouts=8,
        num_full_scouts=3,
    )
    ran = record(
        worlds.World(curves, [1.0] * len(curves)),
        scheduler,
        space={"number": tune.randint(0, len(curves))},
        search_alg=BasicVariantGenerator(),
        num_samples=14,
        can_save=True,
    )
    assert "asha.thaw" in [decision.reason.rule for decision in ran.decisions]
    assert_same(tune.what_if(ran.path, scheduler), ran)


def test_the_answer_is_the_same_each_time_and_leaves_the_scheduler_alone(record, worlds):
    recorded = record(worlds.of(2), slots=3)
    scheduler = STOPPING["asha in brackets"]()
    before = scheduler.debug_string()
    first, second = (tune.what_if(recorded.path, scheduler) for _ in range(2))
    assert first.as_dict() == second.as_dict()
    assert (scheduler.debug_string(), scheduler.metric) == (before, None)


def test_a_scheduler_that_has_run_is_asked_as_if_it_were_new(record, worlds):
    world = worlds.of(2)
    recorded, scheduler = record(world), STOPPING["asha"]()
    ran = record(world, scheduler)
    assert_same(tune.what_if(recorded.path, scheduler), ran)


def saves_now_and_then(config):
    """Report a checkpoint with every third result, and begin behind the latest."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "step.json").read_text())
    for step in range(start + 1, 10):
        metrics = {"loss": config["x"] / step}
        if step % 3 != 1:
            tune.report(metrics)
            continue
        with tune.checkpoint_dir() as directory:
            Path(directory, "step.json").write_text(json.dumps(step))
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def run_inline(directory, scheduler):
    grid = tune.Tuner(
        saves_now_and_then,
        param_space={"x": tune.grid_search([3.0, 1.0, 2.0, 5.0, 4.0, 0.5])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=scheduler, max_concurrent_trials=1
        ),
        run_config=tune.RunConfig(
            name=type(scheduler).__name__, storage_path=directory, verbose=0, executor="inline"
        ),
    ).fit()
    return grid, [
        said.decision for each in read_events(Path(grid.experiment_path)) for said in each.recorded
    ]


@pytest.mark.process
def test_training_code_that_saves_now_and_then_is_paused_where_it_has_saved(tmp_path):
    recorded, _ = run_inline(tmp_path, FIFOScheduler())
    grid, decisions = run_inline(tmp_path, HyperBandScheduler(max_t=9))
    answer = tune.what_if(recorded, HyperBandScheduler(max_t=9))
    assert texts(answer.decisions) == texts(decisions)
    assert [trial.iterations for trial in answer.trials] == [
        trial.farthest_iteration for trial in grid.trials
    ]
    assert not answer.supposes_saves
    assert answer.num_resumes > 0
    assert tune.what_if(grid, HyperBandScheduler(max_t=9)).decisions == answer.decisions
