"""Points for a search from the directories of earlier experiments, this engine's and Ray Tune's."""

import json
import math
import pickle

import pytest

import tuner as tune
from searchers import OptunaSearch, TreeSearch
from searchers.objectives import outcome_constraints
from tuner import RunConfig, TuneConfig, Tuner, points_from

SPACE = {
    "lr": tune.loguniform(1e-4, 1.0),
    "model": {"size": tune.choice([(8, 8), (16, 16)]), "depth": tune.randint(1, 5)},
    "twice": tune.sample_from(lambda config: 2 * config["lr"]),
    "epochs": 3,
}


def train(config):
    for step in range(1, config["epochs"] + 1):
        loss = config["lr"] * config["model"]["depth"] + 1 / step
        tune.report({"eval": {"loss": loss}, "epochs": step})


def run(tmp_path, name, space=SPACE, **settings):
    tuned = TuneConfig(
        **({"metric": "eval/loss", "mode": "min", "num_samples": 6, "seed": 0} | settings)
    )
    return Tuner(
        train,
        param_space=space,
        tune_config=tuned,
        run_config=RunConfig(name=name, storage_path=tmp_path, verbose=0, executor="inline"),
    ).fit()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return run(tmp_path_factory.mktemp("ours"), "first")


class Trap:
    def __reduce__(self):
        return exit, (3,)


@pytest.fixture
def rays(tmp_path):
    """Return a directory of Ray Tune: rows with configurations, bare NaN, and pickled files."""
    path = tmp_path / "train_2026-11-21"
    for number, (lr, losses) in enumerate(
        [(0.3, [0.9, 0.8]), (0.01, [0.7, 0.2]), (0.1, [0.5, math.nan]), (0.2, [0.4, 0.4])]
    ):
        trial = path / f"train_057b3_{number:05d}_{number}_lr={lr:.4f}_2026-11-21_05-33-04"
        trial.mkdir(parents=True)
        config = {"lr": lr, "model": {"size": [8, 8], "depth": number + 1}, "epochs": 9}
        rows = [
            {
                "eval": {"loss": loss},
                "training_iteration": step,
                "trial_id": f"057b3_{number:05d}",
                "config": config,
            }
            for step, loss in enumerate(losses, start=1)
        ]
        (trial / "params.json").write_text(json.dumps(config, indent=2, sort_keys=True))
        (trial / "params.pkl").write_bytes(pickle.dumps(Trap()))
        (trial / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (trial / "progress.csv").write_text(
            "eval/loss,training_iteration\n" + "".join(f"{loss},1\n" for loss in losses)
        )
    never_started = path / "train_057b3_00009_9_lr=0.5000_2026-11-21_05-33-04"
    never_started.mkdir()
    (never_started / "params.json").write_text('{"lr": 0.5}')
    for name in (
        "tuner.pkl",
        "experiment_state-2026-11-21_05-33-04.json",
        "basic-variant-state-2026-11-21_05-33-04.json",
    ):
        (path / name).write_bytes(pickle.dumps(Trap()))
    return path


def test_the_best_trials_of_ours_come_first_in_the_metric_that_was_declared(ours):
    ranked = sorted(ours, key=lambda result: result.metrics["eval"]["loss"])
    points, rewards = points_from(
        ours.experiment_path, num_points=3, space=SPACE, with_rewards=True
    )
    assert rewards == [result.metrics["eval"]["loss"] for result in ranked[:3]]
    assert points == [
        {
            "lr": result.config["lr"],
            "model/size": result.config["model"]["size"],
            "model/depth": result.config["model"]["depth"],
        }
        for result in ranked[:3]
    ]


def test_without_a_space_configurations_are_whole_and_as_they_were_written(ours):
    (best,) = points_from(ours.experiment_path, num_points=1)
    config = ours.get_best_result().config
    assert best == {**config, "model": {**config["model"], "size": list(config["model"]["size"])}}


def test_ray_tunes_directories_are_read_and_nothing_is_unpickled(rays):
    points, rewards = points_from(rays, "eval/loss", "min", space=SPACE, with_rewards=True)
    assert rewards == [0.2, 0.4, 0.8]
    assert points[0] == {"lr": 0.01, "model/size": (8, 8), "model/depth": 2}


def test_the_csv_table_replaces_missing_rows(rays):
    for path in rays.glob("*/result.json"):
        path.unlink()
    assert points_from(rays, "eval/loss", "min", with_rewards=True)[1] == [0.2, 0.4, 0.8]


def test_the_largest_values_come_first_where_larger_is_better(rays):
    assert [point["lr"] for point in points_from(rays, "eval/loss", "max")] == [0.3, 0.2, 0.01]


def test_points_outside_the_space_are_left_out_with_a_warning_that_names_them(rays):
    space = {**SPACE, "lr": tune.loguniform(0.05, 1.0)}
    with pytest.warns(
        RuntimeWarning,
        match=r"^trials that do not fit .*: 'train_057b3_00001_.*' \('lr' must lie in .*, got "
        r"0.01\)$",
    ):
        points = points_from(rays, "eval/loss", "min", space=space)
    assert [point["lr"] for point in points] == [0.2, 0.3]


def test_new_parameters_are_left_open_unless_rewards_are_asked_for(rays):
    space = {"lr": tune.uniform(0, 1), "new": tune.uniform(0, 1), "other": tune.grid_search([1, 2])}
    assert points_from(rays, "eval/loss", "min", num_points=1, space=space) == [{"lr": 0.01}]
    with pytest.warns(RuntimeWarning, match="'new' must have a value, got none"):
        assert points_from(rays, "eval/loss", "min", space=space, with_rewards=True) == ([], [])


def test_of_many_points_outside_the_space_the_best_ones_are_named(rays):
    for number in range(12):
        trial = rays / f"more_{number:02d}"
        trial.mkdir()
        (trial / "result.json").write_text(
            json.dumps({"eval": {"loss": 5 + number}, "config": {"lr": 7}}) + "\n"
        )
    with pytest.warns(
        RuntimeWarning,
        match=r": 'more_00' .*; 'more_09' \('lr' must lie in .*, got 7\); and 2 more$",
    ):
        assert (
            len(
                points_from(
                    rays, "eval/loss", "min", space={"lr": tune.uniform(0, 1)}, num_points=20
                )
            )
            == 3
        )


def test_equal_configurations_come_once_with_the_best_value(rays):
    space = {"model": {"size": tune.choice([(8, 8)])}}
    assert points_from(rays, "eval/loss", "min", space=space, with_rewards=True) == (
        [{"model/size": (8, 8)}],
        [0.2],
    )


def give_all(rays, config):
    """Write another configuration into each result and ``params.json`` of all trials."""
    for path in rays.glob("*/params.json"):
        path.write_text(json.dumps(config))
    for path in rays.glob("*/result.json"):
        path.write_text(
            "".join(
                json.dumps({**json.loads(line), "config": config}) + "\n"
                for line in path.read_text().splitlines()
            )
        )


def test_the_number_of_a_repeat_is_no_part_of_a_point(rays):
    give_all(rays, {"lr": 0.1, "__trial_index__": 2})
    assert points_from(rays, "eval/loss", "min") == [{"lr": 0.1}]


def test_objects_that_were_written_as_text_stand_for_those_of_the_space(rays):
    give_all(rays, {"f": "<built-in function abs>"})
    space = {"f": tune.choice([abs, len])}
    assert points_from(rays, "eval/loss", "min", space=space) == [{"f": abs}]
    with pytest.warns(RuntimeWarning, match="'f' must lie in "):
        assert points_from(rays, "eval/loss", "min", space={"f": tune.choice([max, len])}) == []


def test_a_damaged_trial_is_left_out_with_a_warning(rays):
    next(rays.glob("train_057b3_00001*/params.json")).write_text("{")
    with pytest.warns(
        RuntimeWarning, match="trial 'train_057b3_00001_.*' cannot be read and is left out"
    ):
        assert len(points_from(rays, "eval/loss", "min")) == 2


def test_what_cannot_be_answered_is_refused(rays, tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"path must be the directory of an experiment, got .*; it holds no directory of a "
        r"trial",
    ):
        points_from(tmp_path / "nowhere", "loss", "min")
    with pytest.raises(ValueError, match=r"got 'loss'; did you mean 'eval/loss'\?"):
        points_from(rays, "loss", "min")
    with pytest.raises(ValueError, match="metric must be given where the directory names none"):
        points_from(rays, mode="min")
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got None"):
        points_from(rays, "eval/loss")
    with pytest.raises(ValueError, match="num_points must be a whole number of at least 1, got 0"):
        points_from(rays, "eval/loss", "min", num_points=0)


def test_a_metric_that_is_never_finite_is_refused(tmp_path):
    (tmp_path / "t0").mkdir()
    (tmp_path / "t0" / "result.json").write_text('{"loss": NaN, "config": {}}\n')
    with pytest.raises(
        ValueError,
        match="metric must have a finite value in one trial at least, got 'loss', which has none; "
        "choose another",
    ):
        points_from(tmp_path, "loss", "min")


@pytest.mark.process
def test_a_second_experiment_begins_where_the_first_has_ended(ours, tmp_path):
    space = {name: word for name, word in SPACE.items() if name != "twice"} | {"epochs": 4}
    points, rewards = points_from(ours.experiment_path, space=space, with_rewards=True)
    told = OptunaSearch(points_to_evaluate=points, evaluated_rewards=rewards)
    run(tmp_path, "told", space, search_alg=told, num_samples=2)
    assert [trial.value for trial in told.study.get_trials()[: len(rewards)]] == rewards
    again = run(
        tmp_path,
        "again",
        space,
        search_alg=OptunaSearch(points_to_evaluate=points[:2]),
        num_samples=3,
    )
    assert [result.config["lr"] for result in again][:2] == [point["lr"] for point in points[:2]]


SGD = {"name": "sgd", "momentum": tune.uniform(0, 1), "betas": (0.9, tune.choice([(1, 2), (3, 4)]))}
CONDITIONAL = {
    "optimizer": tune.choice([SGD, {"name": "adam"}]),
    "depth": tune.randint(1, 6),
    "width": tune.only_if({"depth": [1, 2, 3]}, tune.uniform(8, 64)),
    "double": tune.sample_from(lambda spec: 2 * spec.config.depth),
    "sizes": (8, 8),
}


def weigh(config):
    tune.report({"eval": {"loss": config["depth"] + config["optimizer"].get("momentum", 0.5)}})


@pytest.fixture(scope="module")
def conditional(tmp_path_factory):
    path = tmp_path_factory.mktemp("conditional")
    config = RunConfig(name="first", storage_path=path, verbose=0, executor="inline")
    tuned = TuneConfig(metric="eval/loss", mode="min", num_samples=20, seed=1)
    return Tuner(weigh, param_space=CONDITIONAL, tune_config=tuned, run_config=config).fit()


def test_points_of_a_conditional_space_are_nested_and_have_their_tuples_back(conditional):
    points, rewards = points_from(
        conditional.experiment_path, space=CONDITIONAL, with_rewards=True, num_points=20
    )
    assert rewards == sorted(result.metrics["eval"]["loss"] for result in conditional)
    configs = [result.config for result in conditional]
    for point in points:
        assert point.keys() <= {"optimizer", "depth", "width"}
        assert any(all(config[key] == value for key, value in point.items()) for config in configs)
    assert {
        type(point["optimizer"]["betas"]) for point in points if "betas" in point["optimizer"]
    } == {tuple}


def test_searchers_begin_with_points_of_a_conditional_space(conditional):
    points, rewards = points_from(conditional.experiment_path, space=CONDITIONAL, with_rewards=True)
    told = TreeSearch(points_to_evaluate=points, evaluated_rewards=rewards)
    assert told.set_search_properties("eval/loss", "min", CONDITIONAL, seed=0, num_samples=1)
    first = TreeSearch(points_to_evaluate=points[:1])
    first.set_search_properties("eval/loss", "min", CONDITIONAL, seed=0, num_samples=1)
    suggested = first.suggest("t0")
    assert {key: suggested[key] for key in points[0]} == points[0]


def test_points_that_do_not_fit_a_conditional_space_are_left_out(conditional):
    narrower = {**CONDITIONAL, "depth": tune.randint(1, 4)}
    with pytest.warns(RuntimeWarning, match="trials that do not fit the space are left out"):
        points = points_from(conditional.experiment_path, space=narrower, num_points=20)
    assert points
    assert all(point["depth"] < 4 for point in points)


def test_a_new_parameter_of_a_conditional_space_is_left_open_unless_rewards_are_asked_for(
    conditional,
):
    wider = {**CONDITIONAL, "more": tune.uniform(0, 1)}
    assert points_from(conditional.experiment_path, space=wider)
    with pytest.warns(RuntimeWarning, match="'more' must have a value"):
        assert points_from(conditional.experiment_path, space=wider, with_rewards=True) == ([], [])


@pytest.mark.process
def test_points_of_trials_that_miss_a_constraint_come_last(tmp_path):
    def sized(config):
        tune.report({"loss": 1 / config["width"], "size_mb": config["width"]})

    path = (
        Tuner(
            sized,
            param_space={"width": tune.grid_search([8, 4, 2])},
            tune_config=TuneConfig(
                metric="loss", mode="min", constraints={"size_mb": "<= 4"}, search_alg="random"
            ),
            run_config=RunConfig(
                name="limited", storage_path=tmp_path, verbose=0, executor="inline"
            ),
        )
        .fit()
        .experiment_path
    )
    assert [point["width"] for point in points_from(path)] == [4, 2, 8]
    with pytest.warns(RuntimeWarning, match="1 of 3 trials are left out, since they miss a"):
        points, rewards = points_from(path, "loss", with_rewards=True)
    assert ([point["width"] for point in points], rewards) == ([4, 2], [0.25, 0.5])
    points, rewards = points_from(path, with_rewards=True)
    assert [point["width"] for point in points] == [4, 2, 8]
    assert rewards[2] == {"loss": 0.125, "size_mb": 8}
    for constraints in (None, {"size_mb": "<= 2"}):
        grid = Tuner(
            sized,
            param_space={"width": tune.randint(1, 9)},
            tune_config=TuneConfig(
                metric="loss",
                mode="min",
                constraints=constraints,
                num_samples=3,
                search_alg=TreeSearch(points_to_evaluate=points, evaluated_rewards=rewards),
            ),
            run_config=RunConfig(
                name=f"warm {constraints is None}",
                storage_path=tmp_path,
                verbose=0,
                executor="inline",
            ),
        ).fit()
        assert len(grid) == 3


@pytest.mark.process
def test_one_of_several_metrics_may_be_named(tmp_path):
    several = {"metric": ["eval/loss", "epochs"], "mode": ["min", "max"], "search_alg": "random"}
    path = run(tmp_path, "several", num_samples=3, **several).experiment_path
    assert points_from(path, "eval/loss") == points_from(path, "eval/loss", "min")


@pytest.mark.process
def test_points_of_several_metrics_begin_with_the_front(tmp_path):
    def trade(config):
        x = config["x"]
        tune.report({"size": x})
        tune.report({"gain": x if x < 4 else 1, "cost": x} if x != 2 else {"gain": 2})

    path = (
        Tuner(
            trade,
            param_space={"x": tune.grid_search([5, 1, 2, 3, 9])},
            tune_config=TuneConfig(
                metric=["gain", "cost"],
                mode=["max", "min"],
                constraints={"size": "<= 5"},
                search_alg="random",
            ),
            run_config=RunConfig(name="trade", storage_path=tmp_path, verbose=0, executor="inline"),
        )
        .fit()
        .experiment_path
    )
    assert [point["x"] for point in points_from(path)] == [3, 1, 2, 5, 9]
    points, rewards = points_from(path, with_rewards=True)
    assert [point["x"] for point in points] == [3, 1, 5, 9]
    assert rewards[0] == {"gain": 3, "cost": 3, "size": 3}
    searcher = TreeSearch(points_to_evaluate=points, evaluated_rewards=rewards)
    assert searcher.set_search_properties(
        None,
        None,
        {"x": tune.randint(1, 10)},
        objectives=(("gain", "max"), ("cost", "min")),
        constraints=outcome_constraints({"size": "<= 5"}),
    )
    assert len(searcher.observations.trials) == 4
