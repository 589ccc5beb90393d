"""Every searcher fulfils the contract of searchers."""

import pytest

from searchers import (
    AxSearch,
    BasicVariantGenerator,
    BayesOptSearch,
    ConcurrencyLimiter,
    DuplicateGuard,
    HyperOptSearch,
    OptunaSearch,
    Repeater,
)
from searchers.repeater import TRIAL_INDEX
from searchers.space import choice, grid_search, loguniform, quniform, randint, sample_from, uniform
from tuner.testing.searcher_contract import SearcherContract


class TestRandomSearch(SearcherContract):
    def make_searcher(self):
        return BasicVariantGenerator()


class TestGridSearch(SearcherContract):
    def make_searcher(self):
        return BasicVariantGenerator(points_to_evaluate=[{"lr": 0.5}], max_concurrent=2, constant_grid_search=True)

    def space(self):
        return {
            "lr": uniform(0, 1),
            "layer": {"units": grid_search([8, 16]), "kind": choice(["a", "b"])},
            "twice": sample_from(lambda config: 2 * config["lr"]),
        }


class TestConcurrencyLimiter(SearcherContract):
    def make_searcher(self):
        return ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=2)


class TestConcurrencyLimiterInBatches(SearcherContract):
    def make_searcher(self):
        return ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=2, batch=True)


class TestOptunaSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_optuna(self):
        pytest.importorskip("optuna")

    def make_searcher(self):
        return OptunaSearch()


class TestRepeater(SearcherContract):
    def make_searcher(self):
        return Repeater(BasicVariantGenerator(), repeat=4)

    def space(self):
        return super().space() | {TRIAL_INDEX: choice(range(4))}

    def conditional_space(self):
        return super().conditional_space() | {TRIAL_INDEX: choice(range(4))}


class TestRepeaterWithinALimit(TestRepeater):
    def make_searcher(self):
        return ConcurrencyLimiter(Repeater(ConcurrencyLimiter(BasicVariantGenerator(), 1), repeat=4), max_concurrent=2)


class TestSkippedDuplicates(SearcherContract):
    def make_searcher(self):
        return DuplicateGuard(BasicVariantGenerator(), "skip")

    def space(self):
        return {"depth": choice([2, 3, 4]), "width": choice([(8, 8), (16, 16)]), "layer": {"units": randint(8, 12)}}


class TestReusedDuplicates(TestSkippedDuplicates):
    def make_searcher(self):
        return DuplicateGuard(BasicVariantGenerator(), "reuse")


class TestReusedDuplicatesOfOptuna(TestReusedDuplicates):
    @pytest.fixture(autouse=True)
    def _needs_optuna(self):
        pytest.importorskip("optuna")

    def make_searcher(self):
        return DuplicateGuard(OptunaSearch(), "reuse")


class TestHyperOptSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_hyperopt(self):
        pytest.importorskip("hyperopt")

    def make_searcher(self):
        return HyperOptSearch(n_initial_points=5)


class TestBayesOptSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_bayes_opt(self):
        pytest.importorskip("bayes_opt")

    num_samples = 5

    def make_searcher(self):
        return BayesOptSearch(random_search_steps=4)

    def space(self):
        return {"lr": loguniform(1e-4, 1e-1), "layer": {"units": randint(8, 65), "dropout": quniform(0.0, 0.5, 0.1)}, "epochs": 10}


class TestAxSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_ax(self):
        pytest.importorskip("ax")

    num_samples = 6

    def make_searcher(self):
        return AxSearch(method="random_search")  # its models take seconds; they have a test of their own
