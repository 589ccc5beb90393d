"""Shrinking of a failing scenario, and the command line."""

import dataclasses

import pytest

from tests.simulation import __main__
from tests.simulation.campaign import command, shrink
from tests.simulation.fault_injection import Fault
from tests.simulation.invariants import Violation
from tests.simulation.scenario import scenario


def test_everything_that_is_not_needed_is_taken_away():
    needed = {Fault.POWER_CUT, Fault.SIGNAL}

    def breaks(candidate):
        return (
            Violation("I1", "lost")
            if candidate.num_trials >= 2 and not needed & candidate.without
            else None
        )

    drawn = dataclasses.replace(scenario(5), num_trials=8, without=frozenset())
    small = shrink(drawn, Violation("I1", "lost"), breaks)
    assert (small.num_trials, small.num_iterations, small.num_slots, small.num_faults) == (
        2,
        1,
        1,
        0,
    )
    assert set(Fault) - small.without == needed


def test_another_violation_is_not_taken_for_the_same():
    drawn = scenario(5)
    assert shrink(drawn, Violation("I1", "lost"), lambda _: Violation("I2", "a hole")) == drawn


@pytest.mark.parametrize("seed", range(5))
def test_the_command_gives_the_scenario_back(seed):
    drawn = scenario(seed)
    small = dataclasses.replace(
        drawn, num_trials=1, num_faults=0, without=drawn.without | {Fault.SIGNAL}
    )
    words = command(small).split()
    assert words[:3] == ["python", "-m", "tests.simulation"]
    options = __main__._parser().parse_args(words[3:])
    assert options.seed == seed
    again, same = __main__._changed(scenario(seed), options), {"make_scheduler": None}
    assert dataclasses.replace(again, **same) == dataclasses.replace(small, **same)


def test_a_scenario_is_replayed_from_the_command_line(capsys):
    assert __main__.main(["--seed", "3", "--trials", "1"]) == 0
    assert "num_trials=1" in capsys.readouterr().out


def test_many_are_simulated_from_the_command_line(capsys):
    assert __main__.main(["--experiments", "5", "--first-seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("from seed 3: 5 experiments, ")
