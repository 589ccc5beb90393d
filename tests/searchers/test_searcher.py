"""The registry of searchers, evaluated trials of other experiments, and numbers of trials."""

from types import SimpleNamespace

import pytest

import searchers
import tuner as tune
from searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    DuplicateGuard,
    Repeater,
    Searcher,
    create_searcher,
)
from searchers.searcher import pass_search_properties
from tuner.core.trial import Status, TerminationReason


class Learner(Searcher):
    def __init__(self):
        self.points = []
        self.limits = []

    def suggest(self, trial_id):
        return {}

    def add_evaluated_point(
        self, parameters, value, error=False, pruned=False, intermediate_values=None
    ):
        self.points.append((parameters, value, error, pruned))

    def set_max_concurrency(self, max_concurrent):
        self.limits.append(max_concurrent)
        return True


def trial(config, last_result, status=Status.TERMINATED, ending=TerminationReason.COMPLETED):
    return SimpleNamespace(config=config, last_result=last_result, status=status, ending=ending)


TRIALS = [
    trial({"x": 1}, {"a": {"loss": 3}}),
    trial({"x": 2}, {"a/loss": 2.0}, ending=TerminationReason.STOPPED_EARLY),
    trial({"x": 3}, {"a": {"loss": 1.0}}, Status.ERROR, TerminationReason.FAILED),
    trial({"x": 4}, None),
    trial({"x": 5}, {"a": "text"}),
    trial({"x": 6}, {"a": {"loss": True}}),
]


@pytest.mark.parametrize("given", [TRIALS, SimpleNamespace(trials=TRIALS)])
def test_trials_of_another_experiment_are_added_as_points(given):
    searcher = Learner()
    searcher.add_evaluated_trials(given, "a/loss")
    assert searcher.points == [
        ({"x": 1}, 3.0, False, False),
        ({"x": 2}, 2.0, False, True),
        ({"x": 3}, 1.0, True, False),
    ]


def test_a_searcher_that_does_not_learn_refuses_points():
    with pytest.raises(
        NotImplementedError,
        match=r"BasicVariantGenerator takes no evaluated points, got {'x': 1}; give it "
        r"points_to_evaluate",
    ):
        BasicVariantGenerator().add_evaluated_point({"x": 1}, 0.5)


def test_a_limiter_sets_the_limit_of_its_searcher_and_passes_points_on():
    inner = Learner()
    limiter = ConcurrencyLimiter(inner, 3)
    assert limiter.set_max_concurrency(2)
    limiter.add_evaluated_point({"x": 1}, 0.5)
    assert (inner.limits, limiter.max_concurrent, inner.points) == (
        [3, 2],
        2,
        [({"x": 1}, 0.5, False, False)],
    )
    assert not BasicVariantGenerator().set_max_concurrency(2)


@pytest.mark.parametrize("name", ["variant_generator", "random"])
def test_random_search_has_two_names(name):
    searcher = create_searcher(name, max_concurrent=3)
    assert isinstance(searcher, BasicVariantGenerator)
    assert searcher.max_concurrent == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("optuna", "OptunaSearch"),
        pytest.param("hyperopt", "HyperOptSearch", marks=pytest.mark.heavy),
        pytest.param("bayesopt", "BayesOptSearch", marks=pytest.mark.heavy),
        pytest.param("ax", "AxSearch", marks=pytest.mark.heavy),
    ],
)
def test_searchers_that_wrap_a_library_have_its_name(name, kind):
    assert isinstance(create_searcher(name, metric="loss", mode="min"), getattr(searchers, kind))


@pytest.mark.heavy
@pytest.mark.usefixtures("nevergrad")
def test_nevergrad_has_its_name():
    assert isinstance(create_searcher("nevergrad", optimizer="CMA"), searchers.NevergradSearch)


@pytest.mark.parametrize(
    ("name", "remedy"), [("optunna", "; did you mean 'optuna'?"), ("xyz", "'xyz'"), (None, "None")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, remedy):
    with pytest.raises(
        ValueError,
        match=r"name must be one of 'variant_generator', 'random', 'auto', 'tree'.* got ",
    ) as caught:
        create_searcher(name)
    assert str(caught.value).endswith(remedy)


def test_an_unknown_argument_is_refused_with_the_nearest_one():
    with pytest.raises(
        TypeError,
        match=r"BasicVariantGenerator takes the arguments .*, got 'max_concurent'; did you mean "
        r"'max_concurrent'\?",
    ):
        create_searcher("random", max_concurent=3)


def test_a_bad_value_is_refused_by_the_searcher_itself():
    with pytest.raises(ValueError, match="max_concurrent must be 0 or more, got -1"):
        create_searcher("random", max_concurrent=-1)


SPACE = {"x": tune.uniform(0, 1), "depth": tune.grid_search([1, 2, 3])}


class Ones(Searcher):
    def suggest(self, trial_id):
        return {"x": 1.0}


class AsInRay(Ones):
    def set_search_properties(self, metric, mode, config):
        return True


class OneMore(Ones):
    def num_trials_for(self, num_samples):
        return num_samples + 1


class WithAttribute(Ones):
    def __init__(self, total_samples):
        super().__init__()
        self.total_samples = total_samples


def configured(searcher, num_samples):
    assert pass_search_properties(
        searcher, "loss", "min", SPACE, {"seed": 0, "num_samples": num_samples, "experiment": "e"}
    )
    return searcher


@pytest.mark.parametrize(
    ("make", "num_samples", "total"),
    [
        (BasicVariantGenerator, 4, 12),
        (BasicVariantGenerator, -1, None),
        (lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2), 4, 12),
        (lambda: Repeater(BasicVariantGenerator(), repeat=2), 4, 12),
        (lambda: DuplicateGuard(BasicVariantGenerator()), 4, 12),
        (Ones, 4, 4),
        (AsInRay, 4, 4),
        (lambda: ConcurrencyLimiter(OneMore(), 2), 4, 5),
    ],
)
def test_total_samples_is_a_number_once_an_experiment_has_the_searcher(make, num_samples, total):
    searcher = make()
    assert searcher.total_samples == 0
    assert configured(searcher, num_samples).total_samples == total
    assert searcher.num_trials_for(num_samples) == total


def test_a_subclass_may_use_total_samples_for_another_purpose():
    searcher = configured(WithAttribute(7), 4)
    assert (searcher.total_samples, searcher.num_trials_for(4)) == (7, 4)


@pytest.mark.process
def test_total_samples_can_be_read_after_the_experiment(tmp_path):
    searcher = BasicVariantGenerator()
    settings = tune.TuneConfig(num_samples=2, search_alg=searcher)
    run = tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
    results = tune.Tuner(
        lambda config: {"loss": config["x"]},
        param_space=SPACE,
        tune_config=settings,
        run_config=run,
    ).fit()
    assert searcher.total_samples == len(results) == 6
