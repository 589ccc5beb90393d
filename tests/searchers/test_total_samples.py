"""How many trials there will be is a number that a script can read, and a method that experiments call."""

import pytest

import tuner as tune
from searchers import BasicVariantGenerator, ConcurrencyLimiter, DuplicateGuard, Repeater, Searcher
from searchers.searcher import pass_search_properties

SPACE = {"x": tune.uniform(0, 1), "depth": tune.grid_search([1, 2, 3])}


class Ones(Searcher):
    def suggest(self, trial_id):
        return {"x": 1.0}


class AsInRay(Ones):
    def set_search_properties(self, metric, mode, config):
        return True


class WithMethod(Ones):
    """Has the method that experiments called in earlier releases."""

    def total_samples(self, num_samples):
        return num_samples + 1


class WithAttribute(Ones):
    def __init__(self, total_samples):
        super().__init__()
        self.total_samples = total_samples


def told(searcher, num_samples):
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
        (WithMethod, 4, 5),
        (lambda: ConcurrencyLimiter(WithMethod(), 2), 4, 5),
    ],
)
def test_it_is_a_number_once_an_experiment_has_the_searcher(make, num_samples, total):
    searcher = make()
    assert searcher.total_samples == 0
    assert told(searcher, num_samples).total_samples == total
    assert searcher.num_trials_for(num_samples) == total


def test_an_attribute_of_that_name_is_the_searchers_own():
    searcher = told(WithAttribute(7), 4)
    assert (searcher.total_samples, searcher.num_trials_for(4)) == (7, 4)


def test_a_script_can_read_it_after_the_experiment(tmp_path):
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
