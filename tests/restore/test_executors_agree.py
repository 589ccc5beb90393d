"""An experiment has the same decisions and tables inline, in processes and in virtual time."""

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from searchers import BasicVariantGenerator, OptunaSearch
from tuner.journal import reader, records
from tuner.testing import simulate

pytestmark = pytest.mark.process

TIMES_AND_PLACES = [
    "date",
    "timestamp",
    "time_this_iter_s",
    "time_total_s",
    "time_since_restore",
    "pid",
    "hostname",
    "node_ip",
]
SPACE = {
    "start": tune.uniform(0.0, 1.0),
    "length": tune.randint(4, 12),
    "nested": {"act": tune.choice(["relu", "tanh"])},
}
NUM_SAMPLES = 8


def learn(config):
    for step in range(1, config["length"] + 1):
        if config["length"] % 3 == 0 and step == 2:
            raise ValueError("no length for training")
        yield {
            "loss": config["start"] / step,
            "nested": {"nan": float("nan") if step == 2 else 1.0},
            "done": step == 10,
        }


def arguments(*, scheduler, searcher, num_concurrent):
    tune_config = tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=NUM_SAMPLES,
        seed=11,
        scheduler=scheduler(),
        search_alg=searcher(),
        max_concurrent_trials=num_concurrent,
    )
    return {"param_space": SPACE, "tune_config": tune_config}


def run_really(executor, directory, **declared):
    run_config = tune.RunConfig(
        name=executor,
        storage_path=directory,
        executor=executor,
        verbose=0,
        durability="process",
        resources={"cpu": 2},
        failure_config=tune.FailureConfig(max_failures=1),
    )
    grid = tune.Tuner(learn, **arguments(**declared), run_config=run_config).fit()
    bodies = [body for body in reader.read(directory / executor) if records.is_event(body)]
    return grid, [said.decision for body in bodies for said in records.decode(body)[2]]


def run_virtually(**declared):
    run_config = tune.RunConfig(failure_config=tune.FailureConfig(max_failures=1))
    simulation = simulate(learn, **arguments(**declared), run_config=run_config, num_slots=2)
    return simulation.grid, list(simulation.decisions)


def story_of(result, trial):
    frame = result.metrics_dataframe.drop(columns=TIMES_AND_PLACES)
    failures = [(failure.kind, failure.message) for failure in trial.failures]
    return {
        "table": frame.sort_index(axis="columns").to_csv(),
        "end": (str(trial.status), str(trial.ending), trial.reason, trial.attempt, failures),
        "config": result.config,
        "tag": trial.experiment_tag,
    }


def stories(grid):
    return [story_of(result, trial) for result, trial in zip(grid, grid.trials, strict=True)]


def asha():
    return ASHAScheduler(max_t=9, grace_period=1, reduction_factor=2, type="stopping")


@pytest.mark.parametrize("searcher", [BasicVariantGenerator, OptunaSearch])
def test_one_after_the_other_trials_are_judged_alike_everywhere(tmp_path, searcher):
    declared = {"scheduler": asha, "searcher": searcher, "num_concurrent": 1}
    virtual, virtual_decisions = run_virtually(**declared)
    assert {"asha.rung", "asha.max_t"} <= {decision.reason.rule for decision in virtual_decisions}
    assert {str(trial.status) for trial in virtual.trials} == {"TERMINATED", "ERROR"}
    for executor in ("inline", "process"):
        grid, decisions = run_really(executor, tmp_path, **declared)
        assert decisions == virtual_decisions
        assert stories(grid) == stories(virtual)


def test_two_at_a_time_trials_come_to_the_same_tables_everywhere(tmp_path):
    declared = {"scheduler": FIFOScheduler, "searcher": BasicVariantGenerator, "num_concurrent": 2}
    virtual, _ = run_virtually(**declared)
    for executor in ("inline", "process"):
        grid, _ = run_really(executor, tmp_path, **declared)
        assert stories(grid) == stories(virtual)
