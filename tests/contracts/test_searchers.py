"""Contract tests of the searchers."""

import warnings

import pytest

from searchers import (
    AutoSearch,
    AxSearch,
    BasicVariantGenerator,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    HyperOptSearch,
    NevergradSearch,
    OptunaSearch,
    Repeater,
    TreeSearch,
)
from searchers.space import choice, grid_search, loguniform, quniform, randint, sample_from, uniform
from searchers.wrappers.repeater import TRIAL_INDEX
from tuner.testing.searcher_contract import SearcherContract


class TestRandomSearch(SearcherContract):
    def make_searcher(self):
        return BasicVariantGenerator()


class TestGridSearch(SearcherContract):
    def make_searcher(self):
        return BasicVariantGenerator(
            points_to_evaluate=[{"lr": 0.5}], max_concurrent=2, constant_grid_search=True
        )

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


class OptunaContract(SearcherContract):
    num_samples = 10

    @pytest.fixture(autouse=True)
    def _needs_optuna(self):
        pytest.importorskip("optuna")

    def make_searcher(self):
        return OptunaSearch(sampler=self.make_sampler())

    def make_sampler(self):
        return None


class TestOptunaSearch(OptunaContract):
    pass


class TestOptunaSearchWithStorage(OptunaContract):
    def make_searcher(self):
        from optuna.storages import InMemoryStorage  # noqa: PLC0415  (an extra)

        return OptunaSearch(storage=InMemoryStorage(), constraints=["score"])


class TestOptunaSearchInAConcurrencyLimiter(OptunaContract):
    def make_searcher(self):
        return ConcurrencyLimiter(OptunaSearch(), max_concurrent=2, batch=True)


class TestTPESampler(OptunaContract):
    def make_sampler(self):
        return samplers().TPESampler(seed=1)


class TestUnseededTPESampler(OptunaContract):
    def make_sampler(self):
        return samplers().TPESampler()


@pytest.mark.heavy
class TestGPSampler(OptunaContract):
    @pytest.fixture(autouse=True)
    def _needs_torch(self):
        pytest.importorskip("torch")

    def space(self):
        # Each suggestion takes the longer the more parameters there are.
        return {
            "lr": uniform(0, 1),
            "epochs": 10,
        }

    def make_sampler(self):
        return samplers().GPSampler(seed=1, n_startup_trials=16)


class TestCmaEsSampler(OptunaContract):
    @pytest.fixture(autouse=True)
    def _needs_cmaes(self):
        pytest.importorskip("cmaes")

    def make_sampler(self):
        return samplers().CmaEsSampler(seed=1)


class TestNSGAIISampler(OptunaContract):
    def make_sampler(self):
        return samplers().NSGAIISampler(seed=1, population_size=4)


class TestNSGAIIISampler(OptunaContract):
    def make_sampler(self):
        return experimental("NSGAIIISampler", seed=1, population_size=4)


class TestQMCSampler(OptunaContract):
    def make_sampler(self):
        return experimental("QMCSampler", seed=1, scramble=True)


class TestRandomSampler(OptunaContract):
    def make_sampler(self):
        return samplers().RandomSampler(seed=1)


class TestPartialFixedSampler(OptunaContract):
    def make_sampler(self):
        return experimental(
            "PartialFixedSampler", {"activation": "gelu"}, samplers().TPESampler(seed=1)
        )


class TestGridSampler(OptunaContract):
    def space(self):
        return {"lr": choice([0.1, 0.2, 0.3]), "layer": {"units": randint(8, 65)}, "epochs": 10}

    def make_sampler(self):
        return samplers().GridSampler(
            {"lr": [0.1, 0.2, 0.3], "layer/units": [8, 16, 24, 32, 40, 48]}
        )


class TestBruteForceSampler(OptunaContract):
    def space(self):
        return {"lr": choice([0.1, 0.2, 0.3]), "layer": {"units": randint(8, 12)}, "epochs": 10}

    def make_sampler(self):
        return experimental("BruteForceSampler", seed=1)


class TestRepeater(SearcherContract):
    def make_searcher(self):
        return Repeater(BasicVariantGenerator(), repeat=4)

    def space(self):
        return super().space() | {TRIAL_INDEX: choice(range(4))}

    def conditional_space(self):
        return super().conditional_space() | {TRIAL_INDEX: choice(range(4))}


class TestRepeaterWithinALimit(TestRepeater):
    def make_searcher(self):
        return ConcurrencyLimiter(
            Repeater(ConcurrencyLimiter(BasicVariantGenerator(), 1), repeat=4), max_concurrent=2
        )


class TestSkippedDuplicates(SearcherContract):
    def make_searcher(self):
        return DuplicateGuard(BasicVariantGenerator(), "skip")

    def space(self):
        return {
            "depth": choice([2, 3, 4]),
            "width": choice([(8, 8), (16, 16)]),
            "layer": {"units": randint(8, 12)},
        }


class TestReusedDuplicates(TestSkippedDuplicates):
    def make_searcher(self):
        return DuplicateGuard(BasicVariantGenerator(), "reuse")


class TestReusedDuplicatesOfOptuna(TestReusedDuplicates):
    num_samples = 14

    @pytest.fixture(autouse=True)
    def _needs_optuna(self):
        pytest.importorskip("optuna")

    def make_searcher(self):
        return DuplicateGuard(OptunaSearch(), "reuse")


@pytest.mark.heavy
class TestHyperOptSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_hyperopt(self):
        pytest.importorskip("hyperopt")

    def make_searcher(self):
        return HyperOptSearch(n_initial_points=5)


@pytest.mark.heavy
class TestBayesOptSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_bayes_opt(self):
        pytest.importorskip("bayes_opt")

    num_samples = 5

    def make_searcher(self):
        return BayesOptSearch(random_search_steps=4)

    def space(self):
        return {
            "lr": loguniform(1e-4, 1e-1),
            "layer": {"units": randint(8, 65), "dropout": quniform(0.0, 0.5, 0.1)},
            "epochs": 10,
        }


@pytest.mark.heavy
class TestAxSearch(SearcherContract):
    @pytest.fixture(autouse=True)
    def _needs_ax(self):
        pytest.importorskip("ax")

    num_samples = 6

    def make_searcher(self):
        # Its models take seconds; they have a test of their own.
        return AxSearch(method="random_search")


@pytest.mark.heavy
@pytest.mark.usefixtures("nevergrad")
class TestNevergradSearch(SearcherContract):
    def make_searcher(self):
        return NevergradSearch("TwoPointsDE")


class TestTreeSearch(SearcherContract):
    num_samples = 14

    def make_searcher(self):
        return TreeSearch()


class TestGPSearch(SearcherContract):
    num_samples = 8

    def make_searcher(self):
        return GPSearch()


class TestAutoSearch(SearcherContract):
    num_samples = 8

    def make_searcher(self):
        return AutoSearch()


class TestAutoSearchInAFiniteSpace(SearcherContract):
    num_samples = 8

    def make_searcher(self):
        return AutoSearch()

    def space(self):
        return {"kind": choice(["a", "b", "c"]), "depth": randint(1, 5)}


class TestBOHBSearch(SearcherContract):
    def make_searcher(self):
        return BOHBSearch()


class TestCQRSearch(SearcherContract):
    num_samples = 8

    def make_searcher(self):
        return CQRSearch(n_initial_points=5)


class TestTreeSearchInAFiniteSpace(SearcherContract):
    num_samples = 8

    def make_searcher(self):
        return TreeSearch()

    def space(self):
        return {"kind": choice(["a", "b", "c"]), "depth": randint(1, 5)}


def samplers():
    return pytest.importorskip("optuna.samplers")


def experimental(name, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(samplers(), name)(*arguments, **keywords)
