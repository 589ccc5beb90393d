"""Every searcher fulfils the contract of searchers."""

import pytest

from searchers import BasicVariantGenerator, BOHBSearch, ConcurrencyLimiter, CQRSearch, OptunaSearch, TreeSearch
from searchers.space import choice, grid_search, randint, sample_from, uniform
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


class TestTreeSearch(SearcherContract):
    def make_searcher(self):
        return TreeSearch()


class TestBOHBSearch(SearcherContract):
    def make_searcher(self):
        return BOHBSearch()


class TestCQRSearch(SearcherContract):
    def make_searcher(self):
        return CQRSearch()


class TestTreeSearchInAFiniteSpace(SearcherContract):
    def make_searcher(self):
        return TreeSearch()

    def space(self):
        return {"kind": choice(["a", "b", "c"]), "depth": randint(1, 5)}
