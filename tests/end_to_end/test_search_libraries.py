"""Restored experiments with library searchers continue as if never interrupted."""

import pytest

import tuner as tune
from searchers import (
    AxSearch,
    BayesOptSearch,
    ConcurrencyLimiter,
    DuplicateGuard,
    HyperOptSearch,
    NevergradSearch,
    Repeater,
)
from tuner import Tuner

pytestmark = pytest.mark.heavy

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "deep": {"n": tune.randint(1, 5)}, "epochs": 2}
SEARCHERS = {
    "hyperopt": lambda: HyperOptSearch(n_initial_points=3),
    "bayesopt": lambda: BayesOptSearch(random_search_steps=3, points_to_evaluate=[{"lr": 0.01}]),
    "ax": lambda: AxSearch(method="random_search"),
    "nevergrad": lambda: NevergradSearch("CMA"),
    "repeated": lambda: Repeater(HyperOptSearch(n_initial_points=2), 2),
    "limited": lambda: ConcurrencyLimiter(
        DuplicateGuard(HyperOptSearch(n_initial_points=2), "reuse"), 1
    ),
}


def train(config):
    for step in range(1, config["epochs"] + 1):
        tune.report({"loss": config["lr"] * config["deep"]["n"] / step})


@pytest.fixture(params=SEARCHERS)
def name(request):
    if request.param == "nevergrad":
        request.getfixturevalue("nevergrad")
    return request.param


@pytest.mark.parametrize("has_snapshots", [False, True])
def test_a_restored_search_goes_on_as_if_uninterrupted(
    fit, tmp_path, monkeypatch, name, has_snapshots
):
    if has_snapshots:
        monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0.000001")
    settings = {"metric": "loss", "mode": "min", "seed": 1, "max_concurrent_trials": 1}
    whole, cut = (
        fit(
            train,
            SPACE,
            tune={**settings, "search_alg": SEARCHERS[name](), "num_samples": num},
            executor="inline",
            name=f"of{num}",
        )
        for num in (8, 4)
    )
    restored = Tuner.restore(tmp_path / "of4", train, num_samples=8).fit()
    assert [result.config for result in cut] == [result.config for result in whole][:4]
    assert [result.config for result in restored] == [result.config for result in whole]
    if has_snapshots and name not in ("ax", "nevergrad"):
        assert list((tmp_path / "of4" / "snapshot").iterdir())


def trade(config):
    tune.report({"size": config["lr"] * 100})
    tune.report({"accuracy": config["lr"], "latency": config["lr"] * config["deep"]["n"]})


def test_a_restored_search_of_trade_offs_goes_on_with_ax(fit, tmp_path):
    settings = {
        "metric": ["accuracy", "latency"],
        "mode": ["max", "min"],
        "constraints": {"size": "<= 1"},
        "seed": 1,
        "max_concurrent_trials": 1,
    }
    whole, _ = (
        fit(
            trade,
            SPACE,
            tune={
                **settings,
                "search_alg": AxSearch(method="random_search"),
                "num_samples": num,
            },
            executor="inline",
            name=f"of{num}",
        )
        for num in (6, 3)
    )
    restored = Tuner.restore(tmp_path / "of3", trade, num_samples=6).fit()
    assert [result.config for result in restored] == [result.config for result in whole]
    assert [result.feasible for result in restored] == [
        result.config["lr"] <= 0.01 for result in restored
    ]
    stricter = Tuner.restore(tmp_path / "of3", trade, constraints={"size": "<= 0.5"}, num_samples=7)
    assert [result.feasible for result in stricter.fit()][:6] == [
        result.config["lr"] <= 0.005 for result in restored
    ]
