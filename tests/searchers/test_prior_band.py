"""Priors in searches; the domains here have them as attributes, which is all that is needed."""

import numpy as np
import pytest

from searchers import BOHBSearch, TreeSearch
from searchers.models.encoding import Encoding
from searchers.models.observations import Observations
from searchers.models.prior_band import PriorBand
from searchers.space import choice, uniform
from searchers.space.domains import Domain


class Expected(Domain):
    """A domain that delegates to another one, with a prior."""

    def __init__(self, domain, prior, prior_confidence="medium"):
        self.domain, self.prior, self.prior_confidence = domain, prior, prior_confidence

    def sample(self, rng):
        return self.domain.sample(rng)

    def contains(self, value):
        return self.domain.contains(value)

    def cast(self, value):
        return self.domain.cast(value)

    def clip(self, value):
        return self.domain.clip(value)

    def to_unit(self, value):
        return self.domain.to_unit(value)

    def from_unit(self, unit):
        return self.domain.from_unit(unit)

    def perturb(self, value, rng, *, factor=None):
        return self.domain.perturb(value, rng, factor=factor)


def space_of(prior, confidence="medium"):
    return {
        f"x{number}": uniform(0, 1) if prior is None else Expected(uniform(0, 1), prior, confidence)
        for number in range(6)
    }


def loss_of(config):
    return sum((value - 0.8) ** 2 for value in config.values())


def best_after(kind, prior, num_trials, seed, confidence="medium"):
    searcher = kind()
    searcher.set_search_properties(
        "loss", "min", space_of(prior, confidence), seed=seed, num_samples=-1
    )
    losses = []
    for number in range(num_trials):
        losses.append(loss_of(searcher.suggest(f"t{number}")))
        searcher.on_trial_complete(f"t{number}", {"loss": losses[-1], "training_iteration": 1})
    return min(losses)


def median_after(kind, prior, num_trials, **arguments):
    return float(
        np.median([best_after(kind, prior, num_trials, seed, **arguments) for seed in range(5)])
    )


@pytest.mark.property
@pytest.mark.parametrize("kind", [TreeSearch, BOHBSearch])
def test_a_good_prior_helps_at_once(kind):
    assert median_after(kind, 0.75, 10) < 0.2 * median_after(kind, None, 10)


@pytest.mark.property
@pytest.mark.parametrize("kind", [TreeSearch, BOHBSearch])
def test_a_bad_prior_is_recovered_from(kind):
    early, late = (
        median_after(kind, 0.05, 10, confidence="high"),
        median_after(kind, 0.05, 80, confidence="high"),
    )
    assert late < 0.5 * early
    assert late < median_after(kind, None, 10)


def test_the_first_point_is_the_prior():
    searcher = TreeSearch()
    searcher.set_search_properties(
        "loss", "min", {"x": Expected(uniform(0, 1), 0.25), "y": uniform(0, 1)}, seed=0
    )
    assert searcher.suggest("a")["x"] == 0.25


def band_and_table(values, prior=0.9):
    encoding = Encoding({"x": Expected(uniform(0, 1), prior), "kind": choice(["a", "b"])}, "me")
    observations = Observations()
    for number, (place, curve) in enumerate(values):
        observations.add(str(number), [place, 0.0])
        for time, value in curve.items():
            observations.record(str(number), time, value)
    return PriorBand(encoding), observations.table()


def test_at_first_half_is_random_and_half_follows_the_prior():
    band, table = band_and_table([(0.1, {1: 0.5})])
    assert band.shares(table) == (0.5, 0.5, 0.0)


@pytest.mark.parametrize(("best", "is_followed"), [(0.88, True), (0.05, False)])
def test_later_the_prior_has_the_share_that_the_best_trials_give_it(best, is_followed):
    trials = [
        (abs(best - 0.01 * rank), {1: rank, 9: rank} if rank < 4 else {1: rank})
        for rank in range(12)
    ]
    band, table = band_and_table(trials)
    shares = band.shares(table)
    assert sum(shares) == pytest.approx(1.0)
    assert (shares.prior > 0.15) is is_followed
    assert shares.incumbent > 0


@pytest.mark.parametrize(
    ("confidence", "spread"), [("low", 0.22), ("medium", 0.16), ("high", 0.08)]
)
def test_a_higher_confidence_gives_a_narrower_prior(confidence, spread):
    encoding = Encoding({"x": Expected(uniform(0, 1), 0.5, confidence)}, "me")
    drawn = PriorBand(encoding).prior.sample(np.random.default_rng(0), 4000)
    # The median distance from the expected value.
    assert np.median(np.abs(drawn - 0.5)) == pytest.approx(spread, abs=0.03)


def test_densities_of_numbers_average_to_one():
    encoding = Encoding({"x": Expected(uniform(0, 1), 0.1), "y": uniform(0, 1)}, "me")
    points = np.random.default_rng(0).random((20000, 2))
    assert PriorBand(encoding).prior.densities(points).mean() == pytest.approx(1.0, abs=0.02)


def test_samples_follow_the_prior_and_lie_in_the_space():
    encoding = Encoding({"x": Expected(uniform(2, 3), 2.9), "y": uniform(0, 1)}, "me")
    drawn = PriorBand(encoding).prior.sample(np.random.default_rng(0), 500)
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert np.median(drawn[:, 0]) > 0.7
    assert abs(np.median(drawn[:, 1]) - 0.5) < 0.1
