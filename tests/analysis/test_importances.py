import builtins
import math

import numpy as np
import pytest

from tuner.analysis.importances import EVALUATORS, MIN_TRIALS
from tuner.analysis.result_grid import ResultGrid
from tuner.journal.rows import MemoryRows

pytest.importorskip("optuna")
pytestmark = pytest.mark.process  # since Optuna imports scikit-learn for them


@pytest.fixture
def grid_of(make):
    """Return a function that makes a grid of trials with these configurations and losses."""

    def grid(configs, losses, metric="loss", mode="min"):
        trials = [
            make.trial(
                f"t{number:05d}", [{"loss": loss}] if loss is not None else [], config=config
            )
            for number, (config, loss) in enumerate(zip(configs, losses, strict=True))
        ]
        return ResultGrid(trials, "/nowhere", MemoryRows({}), metric, mode)

    return grid


def configs(num=60):
    rng = np.random.Generator(np.random.PCG64(0))
    return [
        {
            "lr": float(10 ** rng.uniform(-5, -1)),
            "model": {"depth": int(rng.integers(1, 9)), "act": ["relu", "tanh"][rng.integers(2)]},
            "noise": float(rng.uniform()),
            "epochs": 5,
        }
        for _ in range(num)
    ]


def by_lr(config):
    return (math.log10(config["lr"]) + 3) ** 2 + 0.01 * config["model"]["depth"]


def by_act(config):
    return (config["model"]["act"] == "tanh") * 5.0 + config["noise"] / 10


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_the_most_important_parameter_comes_first_by_its_flattened_name(grid_of, evaluator):
    pytest.importorskip("sklearn")
    found = grid_of(configs(), [by_lr(config) for config in configs()]).get_param_importances(
        evaluator=evaluator
    )
    assert found.index[0] == "lr"
    assert set(found.index) == {"lr", "model/depth", "model/act", "noise", "epochs"}
    assert found.sum() == pytest.approx(1.0)
    assert list(found) == sorted(found, reverse=True)
    assert found["epochs"] == 0.0


@pytest.mark.parametrize("evaluator", ["fanova", "mdi"])
def test_categories_count_like_numbers(grid_of, evaluator):
    pytest.importorskip("sklearn")
    assert (
        grid_of(configs(), [by_act(config) for config in configs()])
        .get_param_importances(evaluator=evaluator)
        .index[0]
        == "model/act"
    )


def test_the_direction_says_which_trials_are_the_best(grid_of):
    def only_matters_where_low(config):
        return min(config["noise"], 0.3) + 0.0001 * config["model"]["depth"]

    grid = grid_of(configs(200), [only_matters_where_low(config) for config in configs(200)])
    assert grid.get_param_importances(mode="min").index[0] == "noise"
    assert grid.get_param_importances(mode="max").index[0] == "model/depth"


@pytest.mark.parametrize("value", [None, True, [1, 2], math.nan, math.inf, "x", (3,), object()])
def test_any_value_in_a_configuration_can_be_a_category(grid_of, value):
    mixed = [{"x": value if number % 2 else 1, "y": number} for number in range(20)]
    found = grid_of(mixed, [number % 2 for number in range(20)]).get_param_importances()
    assert found.index[0] == "x"


def test_parameters_that_only_some_trials_have_are_judged_by_ped_anova_and_left_out_by_forests(
    grid_of,
):
    pytest.importorskip("sklearn")
    some = [
        {"kind": "a", "rate": number / 40} if number % 2 else {"kind": "b"} for number in range(40)
    ]
    grid = grid_of(some, [config.get("rate", 2.0) for config in some])
    assert set(grid.get_param_importances().index) == {"kind", "rate"}
    assert list(grid.get_param_importances(evaluator="fanova").index) == ["kind"]


def test_trials_without_a_finite_value_do_not_count(grid_of):
    values = [by_lr(config) for config in configs()]
    odd = [*values, math.nan, math.inf, None]
    found = grid_of([*configs(), *configs(3)], odd).get_param_importances()
    assert found.equals(grid_of(configs(), values).get_param_importances())


def test_another_metric_can_be_named(grid_of):
    grid = grid_of(configs(), [by_lr(config) for config in configs()], metric=None, mode=None)
    assert grid.get_param_importances("loss", "min").index[0] == "lr"
    with pytest.raises(ValueError, match="metric must be given"):
        grid.get_param_importances()


@pytest.mark.parametrize(
    ("chosen", "losses", "evaluator", "message"),
    [
        (
            configs(MIN_TRIALS - 1),
            range(MIN_TRIALS - 1),
            "ped_anova",
            "at least 20 trials .* at iteration 1, got 19; run more",
        ),
        (
            [{"x": 1}] * 20,
            range(20),
            "ped_anova",
            "a parameter must differ between trials .*, got the same value in all trials .*: x",
        ),
        (
            configs(20),
            range(20),
            "anova",
            "evaluator must be one of ped_anova, fanova, mdi, got 'anova'",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(grid_of, chosen, losses, evaluator, message):
    with pytest.raises(ValueError, match=message):
        grid_of(chosen, list(map(float, losses))).get_param_importances(evaluator=evaluator)


def halved(num=60, iteration=2):
    """Return configurations with the losses of trials, some of which a scheduler stopped early.

    At each iteration the learning rate alone decides; but a trial that goes on is far better at its
    end than one that does not.
    """
    curves = {}
    for number, config in enumerate(configs(num)):
        chosen = {
            "lr": config["lr"],
            "batch_size": [16, 32, 64][number % 3],
            "noise": config["noise"],
        }
        steps = 5 if chosen["batch_size"] == 64 and number % 2 else iteration
        curves[f"t{number:05d}"] = (
            chosen,
            [
                {"loss": by_lr({**chosen, "model": {"depth": 1}}) / 10 + 9 / step}
                for step in range(1, steps + 1)
            ],
        )
    return curves


def grid_of_curves(make, curves):
    trials = [
        make.trial(trial_id, results, config=config)
        for trial_id, (config, results) in curves.items()
    ]
    rows = {trial_id: make.rows(trial_id, results) for trial_id, (_, results) in curves.items()}
    return ResultGrid(trials, "/nowhere", MemoryRows(rows), "loss", "min")


def test_trials_that_were_cut_at_different_iterations_are_compared_at_one_that_most_of_them_reached(
    make,
):
    grid = grid_of_curves(make, halved())
    # It tells who trained for longer.
    assert grid.get_param_importances(iteration="last").index[0] == "batch_size"
    found = grid.get_param_importances()
    assert found.index[0] == "lr"
    assert found.attrs == {"num_trials": 60, "iteration": 2}
    assert grid.get_param_importances(iteration=1).attrs == {"num_trials": 60, "iteration": 1}
    with pytest.raises(
        ValueError, match="at least 20 trials with a finite value at iteration 5, got 10; run more"
    ):
        grid.get_param_importances(iteration=5)
    with pytest.raises(
        ValueError, match="iteration must be at least 1, 'common' or 'last', got 'first'"
    ):
        grid.get_param_importances(iteration="first")


def test_where_a_result_lacks_the_metric_a_trials_newest_value_up_to_there_counts(make):
    curves = {
        name: (config, [results[0], {"other": 1.0}, *results[2:]])
        for name, (config, results) in halved().items()
    }
    assert (
        grid_of_curves(make, curves)
        .get_param_importances()
        .equals(grid_of_curves(make, halved()).get_param_importances(iteration=1))
    )


def test_a_share_comes_with_its_standard_error_which_few_trials_make_large(make):
    few, many = (
        grid_of_curves(make, halved(num)).plot.data.importances().set_index("parameter")
        for num in (24, 96)
    )
    assert (few["num_trials"].unique().tolist(), many["iteration"].unique().tolist()) == ([24], [2])
    assert 0 < many.loc["lr", "std_error"] < few.loc["lr", "std_error"] < 1
    again = grid_of_curves(make, halved(24)).plot.data.importances().set_index("parameter")
    assert again.equals(few)


@pytest.mark.parametrize(
    ("missing", "evaluator", "command"),
    [("optuna", "ped_anova", "optuna"), ("sklearn", "fanova", "optuna,sklearn")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    grid_of, monkeypatch, missing, evaluator, command
):
    imported = builtins.__import__
    grid = grid_of(configs(), [by_lr(config) for config in configs()])

    def without(name, *arguments, **keywords):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    if missing == "sklearn":
        fanova = pytest.importorskip("optuna.importance")
        monkeypatch.setattr(fanova, "FanovaImportanceEvaluator", lambda **_: without("sklearn"))
    else:
        monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=rf'pip install "tuner-hpo\[{command}\]"'):
        grid.get_param_importances(evaluator=evaluator)
