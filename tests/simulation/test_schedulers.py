"""Every scheduler with a contract serves experiments in which driver, workers and disk fail."""

import dataclasses
import inspect

import pytest

from tests.contracts import test_schedulers
from tests.simulation.run import run_scenario
from tests.simulation.scenario import scenario

CONTRACTS = [
    contract
    for name, contract in inspect.getmembers(test_schedulers, inspect.isclass)
    if name.startswith("Test") and contract.__module__ == test_schedulers.__name__
]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_no_invariant_is_violated(contract):
    test = contract()
    for seed in range(8):
        drawn = scenario(seed, test.make_scheduler)
        run_scenario(dataclasses.replace(drawn, num_trials=min(drawn.num_trials, test.num_trials)))
