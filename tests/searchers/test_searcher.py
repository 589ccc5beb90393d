from types import SimpleNamespace

import pytest

from searchers import BasicVariantGenerator, ConcurrencyLimiter, Searcher
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
def test_trials_of_another_experiment_are_taken_as_points(given):
    searcher = Learner()
    searcher.add_evaluated_trials(given, "a/loss")
    assert searcher.points == [
        ({"x": 1}, 3.0, False, False),
        ({"x": 2}, 2.0, False, True),
        ({"x": 3}, 1.0, True, False),
    ]


def test_a_searcher_that_learns_nothing_says_so():
    with pytest.raises(
        NotImplementedError,
        match=r"BasicVariantGenerator takes no evaluated points, got {'x': 1}; give it points_to_evaluate",
    ):
        BasicVariantGenerator().add_evaluated_point({"x": 1}, 0.5)


def test_a_limit_tells_the_searcher_and_passes_points_on():
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
