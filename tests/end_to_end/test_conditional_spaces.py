"""Experiments over conditional spaces: valid configurations, same suggestions after a restore."""

import contextlib
import functools
import json
import shutil
import signal
import threading

import pytest

import tuner as tune
from schedulers import PB2, ASHAScheduler, PopulationBasedTraining, ResourceChangingScheduler
from searchers import Searcher
from searchers.space import SearchSpace
from tests.end_to_end.interruption import Script
from tests.end_to_end.scripts import conditional
from tuner import Tuner
from tuner.errors import StorageError

SPACE = {
    "opt": tune.choice(
        [
            {"name": "sgd", "momentum": tune.uniform(0, 1, prior=0.9)},
            {"name": "adam", "beta": tune.uniform(0.8, 1)},
            "none",
        ]
    ),
    "lr": tune.only_if(
        {"opt": [0, 1]}, tune.loguniform(1e-4, 1, prior=1e-2, prior_confidence="high")
    ),
    "depth": tune.randint(1, 5),
    "skip": tune.only_if({"depth": {3, 4}}, tune.choice(["add", "concat"])),
    "epochs": 3,
}


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config.get("lr", 0.5) * config["depth"] / step})


@pytest.fixture
def declare(tmp_path):
    """Return a function that declares an experiment in `tmp_path`, run within this process."""

    def build(space=SPACE, trainable=train, *, executor="inline", **tune_config):
        run_config = tune.RunConfig(name="exp", storage_path=tmp_path, verbose=0, executor=executor)
        settings = tune.TuneConfig(
            **{"metric": "loss", "mode": "min", "seed": 3, "num_samples": 6, **tune_config}
        )
        return Tuner(trainable, param_space=space, tune_config=settings, run_config=run_config)

    return build


@pytest.fixture
def path(tmp_path):
    return tmp_path / "exp"


def configs(grid):
    return [result.config for result in grid]


def check_complete(grid, space=SPACE):
    taken = SearchSpace(space)
    for config in configs(grid):
        assert taken.config_of(taken.values_of(config), None) == config


POINTS = [
    {"opt": {"name": "sgd", "momentum": 0.25}, "depth": 4},
    {"opt/beta": 0.9, "lr": 0.1},
    {"opt": "none"},
]


@pytest.mark.parametrize("searcher", conditional.SEARCHERS)
def test_every_trial_has_what_belongs_together_and_points_come_first(declare, path, searcher):
    pytest.importorskip("optuna")
    grid = declare(search_alg=conditional.SEARCHERS[searcher](points_to_evaluate=POINTS)).fit()
    check_complete(grid)
    first, second, third, *_ = configs(grid)
    assert (first["opt"], first["depth"]) == ({"name": "sgd", "momentum": 0.25}, 4)
    assert {"lr", "skip"} <= set(first)
    assert (second["opt"], second["lr"]) == ({"name": "adam", "beta": 0.9}, 0.1)
    assert third["opt"] == "none"
    assert "lr" not in third
    assert json.loads((path / "t00000" / "params.json").read_text()) == first


@pytest.mark.parametrize("searcher", conditional.SEARCHERS)
def test_more_samples_after_a_restore_are_those_that_a_larger_experiment_would_have_had(
    declare, path, searcher
):
    pytest.importorskip("optuna")
    whole = configs(declare(search_alg=conditional.SEARCHERS[searcher](), num_samples=12).fit())
    shutil.rmtree(path)
    declare(search_alg=conditional.SEARCHERS[searcher]()).fit()
    grid = Tuner.restore(path, train, num_samples=12).fit()
    assert configs(grid) == whole
    check_complete(grid)


def outcome(grid):
    return [
        f"{each.trial_id} {each.status} {each.metrics['training_iteration']} "
        f"{each.metrics['loss']} {each.config}"
        for each in grid
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a function that returns how a search ends with which nothing interferes."""
    return functools.cache(
        lambda searcher: outcome(
            conditional.declare(tmp_path_factory.mktemp("whole"), searcher).fit()
        )
    )


@pytest.mark.parametrize("searcher", conditional.SEARCHERS)
@pytest.mark.parametrize("snapshots", ["0", "1000000"])
def test_an_experiment_that_was_killed_ends_as_if_it_had_not_been(
    tmp_path, monkeypatch, undisturbed, searcher, snapshots
):
    pytest.importorskip("optuna")
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", snapshots)
    with contextlib.closing(
        Script(conditional.__file__, tmp_path, searcher, directory=tmp_path)
    ) as script:
        assert script.end() == -signal.SIGKILL, script.errors
    # In another process than the one that began it.
    restored = Tuner.restore(
        tmp_path / "exp", conditional.train, param_space=conditional.SPACE, callbacks=[]
    ).fit()
    assert outcome(restored) == undisturbed(searcher)
    text = str(undisturbed(searcher))
    assert [word for word in ("'sgd'", "'adam'", "'opt': 'none'") if word not in text] == []


def test_a_path_is_enough_where_conditions_are_values(declare, path):
    first = configs(declare().fit())
    noted = json.loads((path / "experiment.json").read_text())
    assert noted["param_space"]["skip"]["conditions"] == {"depth": [3, 4]}
    assert noted["param_space"]["lr"]["node"]["prior"] == 0.01
    assert configs(Tuner.restore(path, train).fit()) == first


def test_a_function_as_condition_is_asked_for_again(declare, path):
    space = {
        "depth": tune.randint(1, 5),
        "skip": tune.only_if({"depth": lambda depth: depth > 2}, tune.uniform(0, 1)),
    }
    first = configs(declare(space).fit())
    with pytest.raises(
        ValueError,
        match=r"has to be given again: param_space\['skip'\].conditions\['depth'\].*pass "
        r"param_space= to",
    ):
        Tuner.restore(path, train)
    assert configs(Tuner.restore(path, train, param_space=space).fit()) == first


class Bare(Searcher):
    """Suggests parameters alone."""

    def suggest(self, trial_id):
        return {"opt": {"momentum": 0.5}, "lr": 0.1, "depth": 1}


def test_the_constants_of_what_a_searcher_has_chosen_come_along(declare):
    (result,) = declare(search_alg=Bare(), num_samples=1).fit()
    assert result.config == {
        "opt": {"name": "sgd", "momentum": 0.5},
        "lr": 0.1,
        "depth": 1,
        "epochs": 3,
    }
    assert result.metrics["experiment_tag"] == "0_depth=1,lr=0.1000,opt=0,momentum=0.5000"


def test_a_searcher_that_knows_no_conditions_refuses_before_anything_is_written(declare, path):
    class Flat(Bare):
        def set_search_properties(self, metric, mode, config, **spec):
            self.domains = SearchSpace(config).domains
            return super().set_search_properties(metric, mode, config, **spec)

    with pytest.raises(
        ValueError,
        match="a space must be flat for this searcher, got the conditional parameter "
        "'opt/0/momentum'",
    ):
        declare(search_alg=Flat()).fit()
    assert not path.exists()


def test_a_grid_decides_what_else_there_is(declare):
    space = {
        "opt": tune.grid_search(["sgd", "adam"]),
        "momentum": tune.only_if({"opt": "sgd"}, tune.uniform(0, 1)),
        "depth": 1,
    }
    grid = declare(space, num_samples=2).fit()
    assert [set(config) for config in configs(grid)] == [
        {"opt", "momentum", "depth"},
        {"opt", "depth"},
    ] * 2


def test_what_cannot_be_carried_to_a_worker_is_found_inside_options(declare, tmp_path):
    space = {"opt": tune.choice([{"lock": threading.Lock(), "x": tune.uniform(0, 1)}, 1])}
    with pytest.raises(
        TypeError, match=r'config\["opt"\]\[0\]\["lock"\] \(_thread.lock\) cannot be carried'
    ):
        declare(space, executor="process")
    with pytest.raises(
        TypeError,
        match=r'param_space\["opt"\]\[0\] has the key \(1, 2\), which must be a text or a number',
    ):
        declare({"opt": tune.choice([{(1, 2): tune.uniform(0, 1)}, 1])})


def test_objects_inside_options_are_known_by_their_place(declare, path):
    def space():
        same = [lambda x, power=power: x**power for power in range(2)]
        return {
            "opt": tune.choice(
                [{"f": same[0], "x": tune.uniform(0, 1)}, {"f": same[1], "y": tune.uniform(0, 1)}]
            ),
            "depth": 1,
        }

    grid = declare(space()).fit()
    chosen = [result.config["opt"]["f"](2) for result in grid]
    assert set(chosen) == {1, 2}
    assert [
        result.config["opt"]["f"](2)
        for result in Tuner.restore(path, train, param_space=space()).fit()
    ] == chosen
    with pytest.raises(
        StorageError,
        match=r'param_space\["opt"\]\[[01]\]\["f"\] \(.*lambda.*\).*give the param_space again',
    ):
        Tuner.restore(path, train, param_space={"depth": 1}).fit()


def population(**mutations):
    return PopulationBasedTraining(
        "training_iteration", perturbation_interval=1, hyperparam_mutations=mutations
    )


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (lambda: population(lr=tune.uniform(0, 1)), "lr"),
        (lambda: population(depth=[1, 2, 3]), "depth"),
        (lambda: population(opt={"momentum": tune.uniform(0, 1)}), "opt/momentum"),
        (lambda: population(opt=["none"]), "opt"),
        (lambda: ResourceChangingScheduler(population(skip=["add", "concat"])), "skip"),
        (
            lambda: PB2(
                "training_iteration", perturbation_interval=1, hyperparam_bounds={"lr": [0, 1]}
            ),
            "lr",
        ),
    ],
)
def test_a_population_does_not_vary_what_is_conditional(declare, scheduler, name):
    with pytest.raises(
        ValueError,
        match="must not mutate parameters that are conditional in param_space or that conditions "
        f"depend on, got '{name}'; mutate",
    ):
        declare(scheduler=scheduler())


def test_a_population_varies_what_is_in_every_configuration(declare):
    class Counter(tune.Trainable):
        def setup(self, config):
            self.steps = 0

        def step(self):
            self.steps += 1
            return {"loss": self.config["rate"] / self.steps, "done": self.steps == 6}

        def save_checkpoint(self, checkpoint_dir):
            with open(f"{checkpoint_dir}/steps", "w") as file:  # noqa: PTH123  (a path as text is given)
                file.write(str(self.steps))

        def load_checkpoint(self, checkpoint):
            with open(f"{checkpoint}/steps") as file:  # noqa: PTH123
                self.steps = int(file.read())

    space = {**SPACE, "rate": tune.uniform(0, 1)}
    grid = declare(space, Counter, scheduler=population(rate=tune.uniform(0, 1))).fit()
    assert not grid.errors
    assert any(trial.grafts for trial in grid.trials)
    check_complete(grid, space)


def test_mutations_that_are_conditional_themselves_are_refused():
    for mutation in (
        tune.choice([tune.uniform(0, 1), 1]),
        tune.only_if({"a": 1}, 5),
        [tune.uniform(0, 1), 3],
    ):
        with pytest.raises(
            ValueError,
            match=r"hyperparam_mutations must have no conditional space, got .* for 'lr'; "
            r"name hyperparameters that every trial has",
        ):
            population(lr=mutation)


def test_asha_stops_trials_of_a_conditional_space(declare):
    grid = declare(scheduler=ASHAScheduler(max_t=3), num_samples=8).fit()
    check_complete(grid)
