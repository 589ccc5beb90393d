"""Domains of other libraries are refused, with the line to write instead."""

import ast
import re

import numpy as np
import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from searchers import TreeSearch
from searchers.space.foreign_domains import check_no_foreign_domains, foreign_domain
from tuner import RunConfig, TuneConfig, Tuner
from tuner.maintenance.rerun import prepare_rerun


def train(config):
    tune.report({"loss": 1.0})


@pytest.fixture
def stats():
    from scipy import stats  # noqa: PLC0415  (large)

    return stats


def line_for(value):
    return foreign_domain(value).line


def check_line(value, line):
    assert line_for(value) == line
    name = "x" if line is None else re.escape(f'"x": {line}')
    with pytest.raises(ValueError, match=rf"got a domain of .* for 'x'; write .*{name}"):
        Tuner(train, param_space={"x": value})


def test_the_line_to_write_instead_of_a_distribution_of_scipy(stats):
    check_line(stats.uniform(2, 3), "tune.uniform(2.0, 5.0)")
    check_line(stats.loguniform(1e-5, 0.1), "tune.loguniform(1e-5, 0.1)")
    check_line(stats.randint(1, 5), "tune.randint(1, 5)")
    check_line(stats.norm(1, 2), "tune.randn(1.0, 2.0)")
    check_line(stats.uniform, "tune.uniform(0.0, 1.0)")
    check_line(stats.Uniform(a=2, b=3), "tune.uniform(2.0, 3.0)")
    check_line(stats.Normal(mu=1, sigma=2), "tune.randn(1.0, 2.0)")
    check_line(stats.beta(2, 3), None)
    check_line(stats.multivariate_normal([0, 0]), None)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"_type": "loguniform", "_value": [1e-5, 0.1]}, "tune.loguniform(1e-5, 0.1)"),
        ({"_type": "choice", "_value": [16, 32]}, "tune.choice([16, 32])"),
        ({"_type": "randint", "_value": [1, 5]}, "tune.randint(1, 5)"),
        ({"_type": "quniform", "_value": [0, 1, 0.1]}, "tune.quniform(0, 1, 0.1)"),
        ({"_type": "normal", "_value": [0, 1]}, "tune.randn(0, 1)"),
        ({"_type": "lognormal", "_value": [0, 1]}, None),
        ({"min": 0.0, "max": 1}, "tune.uniform(0.0, 1)"),
        ({"min": 1, "max": 8}, "tune.randint(1, 9)"),
        ({"values": ["adam", "sgd"]}, "tune.choice(['adam', 'sgd'])"),
        ({"values": [1, 2], "probabilities": [0.5, 0.5]}, "tune.choice([1, 2])"),
        ({"distribution": "uniform", "min": 0, "max": 1}, "tune.uniform(0, 1)"),
        (
            {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
            "tune.loguniform(1e-5, 0.1)",
        ),
        ({"distribution": "log_uniform", "min": 0, "max": 0}, "tune.loguniform(1.0, 1.0)"),
        ({"distribution": "q_uniform", "min": 0, "max": 8, "q": 2}, "tune.quniform(0, 8, 2)"),
        ({"distribution": "normal", "mu": 1, "sigma": 2}, "tune.randn(1, 2)"),
        ({"distribution": "beta", "a": 1, "b": 2}, None),
        ({"type": "range", "bounds": [1, 5]}, "tune.randint(1, 6)"),
        (
            {"type": "range", "bounds": [1e-3, 1.0], "log_scale": True},
            "tune.loguniform(0.001, 1.0)",
        ),
        ({"eval": "spec.config.a"}, "tune.sample_from(lambda spec: spec.config.a)"),
    ],
)
def test_the_line_to_write_instead(value, line):
    check_line(value, line)


def test_every_line_is_an_expression_that_gives_a_domain(stats):
    for value in (
        stats.loguniform(1e-5, 0.1),
        {"_type": "qloguniform", "_value": [1, 100, 1]},
        {"min": 1, "max": 8},
        {"distribution": "q_log_uniform_values", "min": 1, "max": 64},
    ):
        expression = ast.parse(line_for(value), mode="eval").body
        call = getattr(tune, expression.func.attr)
        call(*map(ast.literal_eval, expression.args))


@pytest.mark.heavy
def test_expressions_of_hyperopt():
    hp = pytest.importorskip("hyperopt").hp
    assert line_for(hp.uniform("x", 0, 1)) == "tune.uniform(0, 1)"
    assert line_for(hp.loguniform("x", 0, 0)) == "tune.loguniform(1.0, 1.0)"
    assert line_for(hp.quniform("x", 0, 8, 2)) == "tune.quniform(0, 8, 2)"
    assert line_for(hp.uniformint("x", 1, 5)) == "tune.randint(1, 6)"
    assert line_for(hp.randint("x", 5)) == "tune.randint(0, 5)"
    assert line_for(hp.randint("x", 2, 5)) == "tune.randint(2, 5)"
    assert line_for(hp.normal("x", 0, 1)) == "tune.randn(0, 1)"
    assert line_for(hp.choice("x", ["a", "b"])) == "tune.choice(['a', 'b'])"
    assert line_for(hp.choice("x", [{"y": hp.uniform("y", 0, 1)}])) is None
    with pytest.raises(ValueError, match="hyperopt for 'x/0'"):
        Tuner(train, param_space={"x": tune.choice([hp.uniform("y", 0, 1), "auto"])})


def test_distributions_of_optuna():
    distributions = pytest.importorskip("optuna").distributions
    assert line_for(distributions.FloatDistribution(1e-5, 0.1, log=True)) == (
        "tune.loguniform(1e-5, 0.1)"
    )
    assert line_for(distributions.FloatDistribution(0, 1, step=0.5)) == (
        "tune.quniform(0.0, 1.0, 0.5)"
    )
    assert line_for(distributions.IntDistribution(1, 5)) == "tune.randint(1, 6)"
    assert line_for(distributions.IntDistribution(1, 5, log=True)) == "tune.lograndint(1, 6)"
    assert line_for(distributions.CategoricalDistribution(["a"])) == "tune.choice(['a'])"


def test_domains_of_ray_tune_and_of_its_kin():
    class LogUniform:
        pass

    class Float:
        lower, upper = 1e-4, 1.0

        def get_sampler(self):
            return LogUniform()

    class Integer(Float):
        lower, upper = 1, 5

    for module, line in (
        ("ray.tune.search.sample", "tune.lograndint(1, 5)"),
        ("syne_tune.config_space", "tune.lograndint(1, 6)"),
    ):
        Float.__module__ = Integer.__module__ = module
        assert line_for(Float()) == "tune.loguniform(0.0001, 1.0)"
        assert line_for(Integer()) == line


def test_domains_of_libraries_that_name_their_bounds():
    def made(module, kind, **attributes):
        return type(kind, (), {**attributes, "__module__": module})()

    assert line_for(made("skopt.space.space", "Real", low=1, high=2, prior="log-uniform")) == (
        "tune.loguniform(1, 2)"
    )
    assert line_for(made("skopt.space.space", "Integer", low=1, high=2, prior="uniform")) == (
        "tune.randint(1, 3)"
    )
    assert line_for(
        made("ConfigSpace.hyperparameters", "UniformIntegerHyperparameter", lower=1, upper=2)
    ) == ("tune.randint(1, 3)")
    assert line_for(made("ConfigSpace.hyperparameters", "Odd")) is None


@pytest.mark.parametrize(
    "constant",
    [
        {"low": 0, "high": 1},
        {"min": 0, "max": 1, "clip": True},
        {"min": "a", "max": "b"},
        {"min": 1, "max": 0},
        {"values": 3},
        {"values": [1], "weights": [2]},
        {"type": "range", "start": 1},
        {"distribution": "exotic", "min": 0},
        {"distribution": "uniform", "seed": 3},
        {"eval": 3},
        {"_type": "model"},
        np.random.default_rng(1),
        [1, 2],
    ],
)
def test_other_constants_stay_constants(constant):
    check_no_foreign_domains({"x": constant, "nested": {"y": [constant]}}, "param_space")


def test_the_names_of_parameters_are_free():
    check_no_foreign_domains({"min": 0, "max": 1}, "param_space")


def test_other_objects_of_scipy_stay_constants(stats):
    check_no_foreign_domains({"x": stats.gaussian_kde([1.0, 2.0, 4.0])}, "param_space")


@pytest.mark.process
@pytest.mark.parametrize("library", ["wandb", "scipy"])
def test_a_choice_with_one_option_says_that_it_is_a_constant(library, stats, tmp_path):
    constant = {"min": 0, "max": 1} if library == "wandb" else stats.uniform(0, 1)
    space = {"clip": tune.choice([constant]), "grid": tune.grid_search([constant])}
    with pytest.raises(ValueError, match=r"or tune.choice.* where it is a constant"):
        Tuner(train, param_space={"clip": constant})
    run_config = RunConfig(storage_path=tmp_path, name="x", verbose=0, executor="inline")
    results = Tuner(train, param_space=space, run_config=run_config).fit()
    assert results[0].config["clip"] is constant
    if isinstance(constant, dict):
        assert prepare_rerun(tmp_path / "x", "t00000", train).spec.space["clip"] == constant


def test_domains_inside_an_option_are_refused(stats):
    with pytest.raises(ValueError, match="SciPy for 'opt/0/lr'"):
        Tuner(train, param_space={"opt": tune.choice([{"lr": stats.uniform(0, 1)}, "none"])})
    with pytest.raises(ValueError, match="W&B for 'opt/0/lr'"):
        Tuner(
            train,
            param_space={
                "opt": tune.choice([{"lr": {"values": [1]}, "m": tune.uniform(0, 1)}, "none"])
            },
        )
    with pytest.raises(ValueError, match="W&B for 'opt'"):
        Tuner(
            train,
            param_space={
                "kind": tune.choice([1, 2]),
                "opt": tune.only_if({"kind": 1}, {"values": [1, 2]}),
            },
        )


def test_all_lines_are_named_at_once():
    space = {"a": {"values": [1, 2]}, "model": {"b": {"_type": "uniform", "_value": [0, 1]}}}
    with pytest.raises(ValueError, match="'a'; write") as caught:
        TreeSearch(space=space)
    assert '"a": tune.choice([1, 2]), "model/b": tune.uniform(0, 1)' in str(caught.value)


def test_mutations_hold_no_foreign_domains():
    with pytest.raises(
        ValueError, match=r'hyperparam_mutations .* W&B for \'lr\'; write "lr": tune.choice'
    ):
        PopulationBasedTraining(hyperparam_mutations={"lr": {"values": [0.1, 0.2]}})


@pytest.mark.process
def test_an_experiment_with_such_a_constant_is_restored(tmp_path, monkeypatch):
    space = {"x": tune.uniform(0, 1), "clip": {"min": 0, "max": 1}}
    run_config = RunConfig(storage_path=tmp_path, name="x", verbose=0, executor="inline")
    config = TuneConfig(metric="loss", mode="min", num_samples=1)
    with monkeypatch.context() as patched:
        patched.setattr(
            "tuner.spec.experiment_spec.check_no_foreign_domains", lambda *_, **__: None
        )
        Tuner(train, param_space=space, tune_config=config, run_config=run_config).fit()
    results = Tuner.restore(tmp_path / "x", train, num_samples=2, executor="inline").fit()
    assert [result.config["clip"] for result in results] == [{"min": 0, "max": 1}] * 2


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (tune.loguniform, (1e-4, 1.0)),
        (tune.qloguniform, (1, 100, 1)),
        (tune.lograndint, (1, 100)),
        (tune.qlograndint, (8, 64, 8)),
    ],
)
def test_any_base_gives_the_same_distribution(function, arguments):
    assert function(*arguments, base=2) == function(*arguments, 2.7) == function(*arguments)
    with pytest.raises(ValueError, match=r"base must be a number above 1, got 0.5; leave it out"):
        function(*arguments, base=0.5)
