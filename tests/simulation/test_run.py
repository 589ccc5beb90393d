"""Simulated experiments violate no invariant; ``python -m tests.simulation`` runs many more."""

import inspect
import re

import pytest

from tests.simulation import invariants, log_file_invariants, validation_invariants
from tests.simulation.campaign import run_campaign
from tests.simulation.coverage import RECOVERIES
from tests.simulation.fault_injection import Fault
from tests.simulation.run import run_scenario
from tests.simulation.scenario import scenario
from tests.tiers import examples

NUM_EXPERIMENTS = 20 * examples(100)
OFTEN = set(RECOVERIES) - {
    "journal vanished in a power cut",
    "journal lacked what a power cut had taken",
    "log file torn by a crash",
    "log files verified before a crash",
}


@pytest.fixture(scope="module")
def campaign():
    return run_campaign(0, NUM_EXPERIMENTS, shrinks=False)


def test_no_invariant_is_violated(campaign):
    assert campaign.violation is None
    assert campaign.num_experiments == NUM_EXPERIMENTS


def test_every_fault_was_injected(campaign):
    assert {fault for fault in Fault if not campaign.seen[f"fault: {fault}"]} == set()


def test_restores_have_covered_every_kind_of_recovery(campaign):
    assert {name for name in OFTEN if not campaign.seen[name]} == set()
    assert campaign.num_drivers > 1.5 * campaign.num_experiments


def test_nearly_every_transition_has_been_made(campaign):
    assert len(campaign.missing) <= 5, campaign.missing


@pytest.mark.parametrize("seed", range(0, 10 * examples(20), 10))
def test_the_same_seed_leaves_the_same_journal(seed):
    first, second = run_scenario(scenario(seed)), run_scenario(scenario(seed), check_every=1)
    assert first.fingerprint == second.fingerprint
    assert (first.num_drivers, first.outcome) == (second.num_drivers, second.outcome)


def test_other_seeds_leave_other_journals():
    assert len({run_scenario(scenario(seed)).fingerprint for seed in range(20)}) == 20


def test_without_faults_one_driver_is_enough():
    for seed in range(1, 8):
        run = run_scenario(scenario(seed).without_faults())
        assert run.num_drivers == 1
        assert not any(name.startswith("fault") for name in +run.seen)


def test_each_invariant_is_checked_or_documented_as_unchecked():
    checks = [
        function
        for module in (invariants, log_file_invariants, validation_invariants)
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    ]
    checked = {
        found[1] for check in checks if (found := re.match(r"(I\d+): ", check.__doc__ or ""))
    }
    assert checked == {f"I{number}" for number in range(1, 22)} - {"I18"}
    assert "I18" in invariants.__doc__
