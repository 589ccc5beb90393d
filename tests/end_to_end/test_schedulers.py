"""Schedulers that pause, clone and resize trials, in threads and on real processes."""

import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandScheduler,
    MFPopulationBasedTraining,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)
from searchers import OptunaSearch
from tests.waiting import wait_until
from tuner.core.trial import TerminationReason
from tuner.errors import CannotPause

NUM_STEPS = 9


def learn(config):
    """Walk along a line; the state is the position and the rates so far."""
    rates = []
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            rates = json.loads(Path(directory, "rates.json").read_text())
    while len(rates) < NUM_STEPS:
        rates.append(config["lr"])
        with tune.checkpoint_dir() as directory:
            Path(directory, "rates.json").write_text(json.dumps(rates))
            metrics = {
                "way": sum(rates),
                "cpus": tune.get_context().get_trial_resources()["cpu"],
                "rates": ",".join(map(str, rates)),
            }
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def forgets(config):
    for _ in range(NUM_STEPS):
        tune.report({"way": config["lr"]})


@pytest.fixture
def fit(tmp_path):
    """Return a function that runs an experiment; larger is better."""

    def fit(scheduler, trainable=learn, rates=(1.0, 2.0, 3.0, 4.0), slots=2, **run):
        config = {
            "name": "e",
            "storage_path": tmp_path,
            "verbose": 0,
            "resources": {"cpu": slots},
            "executor": "inline",
            **run,
        }
        return tune.Tuner(
            trainable,
            param_space={"lr": tune.grid_search(list(rates))},
            tune_config=tune.TuneConfig(metric="way", mode="max", scheduler=scheduler, seed=1),
            run_config=tune.RunConfig(**config),
        ).fit()

    return fit


def pbt(**options):
    return PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"lr": tune.uniform(0.5, 8.0)},
        quantile_fraction=0.5,
        **options,
    )


@pytest.mark.parametrize(("kind", "executor"), [("promotion", "process"), ("auto", "inline")])
def test_only_the_best_train_to_the_end_and_go_on_from_where_they_were(fit, kind, executor, capsys):
    scheduler = ASHAScheduler(max_t=NUM_STEPS, reduction_factor=2, type=kind)
    grid = fit(scheduler, slots=1, executor=executor)
    best = grid.get_best_result()
    assert (best.config["lr"], best.metrics["way"]) == (4.0, 36.0)
    assert list(best.metrics_dataframe["training_iteration"]) == list(range(1, NUM_STEPS + 1))
    assert sum(len(result.metrics_dataframe) for result in grid) < 4 * NUM_STEPS
    assert max(trial.attempt for trial in grid.trials) > 1
    grid.explain(best.trial_id)
    story = capsys.readouterr().out
    assert "is paused: asha.rung (" in story
    assert "is resumed: asha.promotion (" in story


def test_a_function_without_checkpoints_is_stopped_where_the_choice_is_left_to_the_scheduler(
    fit, capsys
):
    grid = fit(
        ASHAScheduler(max_t=NUM_STEPS, reduction_factor=2), trainable=forgets, slots=1, verbose=1
    )
    assert {trial.attempt for trial in grid.trials} == {1}
    assert "ASHA stops trials at its levels for good" in capsys.readouterr().out


def test_hyperband_waits_for_its_rungs_and_ends(fit):
    grid = fit(
        HyperBandScheduler(max_t=NUM_STEPS, reduction_factor=3),
        rates=(1.0, 5.0, 2.0, 3.0, 4.0, 6.0),
    )
    assert all(trial.is_finished for trial in grid.trials)
    assert grid.get_best_result().config["lr"] == 6.0


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize(("slots", "executor"), [(2, "process"), (4, "inline")])
def test_a_population_hands_on_weights_and_its_policies_can_be_replayed(
    fit, synch, slots, executor, tmp_path
):
    grid = fit(pbt(synch=synch), slots=slots, executor=executor)
    clones = [trial for trial in grid.trials if trial.grafts]
    assert clones
    assert all(trial.ending is TerminationReason.COMPLETED for trial in grid.trials)
    policies = (tmp_path / "e" / "pbt_global.txt").read_text().splitlines()
    assert len(policies) == sum(len(trial.grafts) for trial in clones)
    # What a clone has trained with is, step by step, what its policy file says; some end with an
    # exploit behind which they train no more.
    for clone in (trial for trial in clones if trial.num_rows > trial.grafts[-1].num_rows):
        replay = PopulationBasedTrainingReplay(
            str(tmp_path / "e" / f"pbt_policy_{clone.trial_id}.txt")
        )
        lived = [float(rate) for rate in clone.last_result["rates"].split(",")]
        changes = {change.iteration: change.config["lr"] for change in replay.changes}
        expected = [replay.config["lr"]]
        for step in range(1, NUM_STEPS):
            expected.append(changes.get(step, expected[-1]))
        assert lived == expected


def test_no_policies_are_written_where_none_are_asked_for_not_even_by_a_restore(fit, tmp_path):
    grid = fit(pbt(log_config=False), slots=2)
    assert any(trial.grafts for trial in grid.trials)
    tune.Tuner.restore(tmp_path / "e", learn).fit()
    assert not list((tmp_path / "e").glob("pbt_*"))


def test_a_policy_is_replayed_by_one_trial(fit):
    steps = [
        ["0_lr=1.0", "1_lr=2.0", 3, 3, {"lr": 2.0}, {"lr": 5.0}],
        ["0_lr=1.0", "0_lr=1.0", 6, 6, {"lr": 5.0}, {"lr": 7.0}],
    ]
    replay = PopulationBasedTrainingReplay(steps)
    grid = fit(replay, rates=(replay.config["lr"],), slots=1)
    assert grid[0].metrics["rates"] == "2.0,2.0,2.0,5.0,5.0,5.0,7.0,7.0,7.0"


@pytest.mark.parametrize(
    "scheduler",
    [lambda: HyperBandScheduler(max_t=9, reduction_factor=3), pbt, lambda: pbt(synch=True)],
)
def test_trials_that_never_save_end_the_experiment_with_an_error_that_names_the_remedy(
    fit, scheduler, tmp_path
):
    with pytest.raises(
        CannotPause,
        match=r"(?s)report one with each result at which it may be paused.*Tuner\.restore\(",
    ):
        fit(scheduler(), trainable=forgets)
    tune_config = tune.TuneConfig(
        metric="way", mode="max", scheduler=ASHAScheduler(max_t=9, type="stopping")
    )
    grid = tune.Tuner.restore(tmp_path / "e", forgets, tune_config=tune_config).fit()
    assert not grid.errors
    assert all(trial.is_finished for trial in grid.trials)


def leaves_traces(config):
    """Learn; the best waits until the others have ended, each leaving a file."""
    folder = Path(tune.get_context().get_trial_dir()).parent
    if config["lr"] == 9.0:
        wait_until(lambda: len(list(folder.glob("over-*"))) == 2)
    try:
        learn(config)
    finally:
        if config["lr"] != 9.0:
            (folder / f"over-{config['lr']}").touch()


def test_what_ends_leaves_its_resources_to_those_that_go_on(fit):
    grid = fit(
        ResourceChangingScheduler(),
        trainable=leaves_traces,
        rates=(9.0, 1.0, 2.0),
        slots=3,
        executor="process",
    )
    best = grid.get_best_result()
    assert best.metrics["rates"] == ",".join(["9.0"] * NUM_STEPS)
    assert best.metrics["cpus"] > 1.0
    assert not grid.errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_samples": -1},
            "num_samples must be the size of the population with PopulationBasedTraining, got -1",
        ),
        (
            {"search_alg": OptunaSearch()},
            "search_alg must be None with PopulationBasedTraining, got OptunaSearch",
        ),
    ],
)
def test_a_population_needs_a_size_and_no_searcher(options, message):
    config = tune.TuneConfig(metric="way", mode="max", scheduler=pbt(), **options)
    with pytest.raises(ValueError, match=message):
        tune.Tuner(learn, param_space={"lr": tune.uniform(0, 1)}, tune_config=config)


# ---- hyperparameters that only the scheduler knows


def one_report(config):
    tune.report({"way": config["lr"] * config["model"]["depth"], "seen": repr(config)})


MUTATIONS = {
    "lr": tune.uniform(0.5, 8.0),
    "model": {"depth": [1, 2, 3]},
    "decay": lambda scale=0.25: scale,
}


def members(scheduler, path, seed=1, **options):
    given = {
        "num_samples": 4,
        "metric": "way",
        "mode": "max",
        "seed": seed,
        "scheduler": scheduler,
        **options,
    }
    run_config = tune.RunConfig(name="members", storage_path=path, verbose=0, executor="inline")
    space = {"model": {"width": 8}, "lr_scale": 1.0}
    return tune.Tuner(
        one_report, param_space=space, tune_config=tune.TuneConfig(**given), run_config=run_config
    )


SCHEDULERS = {
    "PBT": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=3, hyperparam_mutations=MUTATIONS
    ),
    "MF-PBT": lambda: MFPopulationBasedTraining(
        "training_iteration", perturbation_interval=3, hyperparam_mutations=MUTATIONS
    ),
    "PB2": lambda: PB2(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_bounds={"lr": [0, 8], "model": {"depth": [1, 3]}},
    ),
    "within another": lambda: ResourceChangingScheduler(SCHEDULERS["PBT"]()),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_hyperparameters_that_the_space_lacks_are_sampled_from_their_mutations(kind, tmp_path):
    grid = members(SCHEDULERS[kind](), tmp_path / "a").fit()
    assert not grid.errors
    configs = [result.config for result in grid]
    assert all(config["model"]["width"] == 8 and config["lr_scale"] == 1.0 for config in configs)
    assert all(0 <= config["lr"] <= 8 and 1 <= config["model"]["depth"] <= 3 for config in configs)
    assert len({config["lr"] for config in configs}) == 4
    assert all(isinstance(config["lr"], float) for config in configs)
    assert all(config.get("decay") in (0.25, None) for config in configs)
    assert [result.metrics["seen"] for result in grid] == [repr(config) for config in configs]
    assert set(grid.get_dataframe()["config/lr"]) == {config["lr"] for config in configs}
    assert [
        result.config for result in members(SCHEDULERS[kind](), tmp_path / "b").fit()
    ] == configs
    assert [
        result.config for result in members(SCHEDULERS[kind](), tmp_path / "c", seed=2).fit()
    ] != configs


@pytest.mark.parametrize("kind", ["PBT", "PB2"])
def test_a_restored_experiment_samples_on(kind, tmp_path):
    expected = [
        result.config for result in members(SCHEDULERS[kind](), tmp_path / "a", num_samples=6).fit()
    ]
    members(SCHEDULERS[kind](), tmp_path / "b", num_samples=3).fit()
    # A function has to be given again.
    again = {} if kind == "PB2" else {"scheduler": SCHEDULERS[kind]()}
    grid = tune.Tuner.restore(tmp_path / "b" / "members", one_report, num_samples=6, **again).fit()
    assert [result.config for result in grid] == expected


def test_the_table_on_the_terminal_shows_what_was_sampled(tmp_path, capsys):
    run_config = tune.RunConfig(name="e", storage_path=tmp_path, verbose=1, executor="inline")
    tune_config = tune.TuneConfig(
        metric="way", mode="max", num_samples=2, scheduler=SCHEDULERS["PB2"](), seed=1
    )
    tune.Tuner(
        one_report, param_space={"model": {}}, tune_config=tune_config, run_config=run_config
    ).fit()
    header = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("trial ")
    )
    assert {"lr", "model/depth"} <= set(header.split())


def test_parameters_of_the_space_stay_unchanged():
    space = {
        "lr": 0.1,
        "model": tune.choice([{"depth": 1}, {"depth": 2}]),
        "decay": tune.grid_search([1, 2]),
    }
    assert SCHEDULERS["PBT"]().completed_space(space) == space
    assert list(SCHEDULERS["PBT"]().completed_space({})) == ["lr", "model", "decay"]
