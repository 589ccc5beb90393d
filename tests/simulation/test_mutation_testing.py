"""The simulation finds planted defects; `tests.simulation.mutation_testing` tries all."""

import pytest

from tests.simulation.mutants import ESCAPING, MUTANTS
from tests.simulation.mutation_testing import ROOT, copy_packages, hunt, is_plantable

QUICK = [
    ("tuner/driver/driver.py", "is_noop", "I15"),
    ("tuner/core/trial_table.py", "num_failures", "I12"),
    ("tuner/core/checkpoints.py", "<= policy.num_to_keep", "I16"),
    ("schedulers/halving/rungs.py", "rung.add(value, violation)", "I6"),
    ("tuner/callbacks/files/background_writer.py", "batches[addressee].append", "I19"),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copy_packages(tmp_path_factory.mktemp("packages"))


def test_every_mutant_can_be_planted_and_is_python():
    assert [mutant for mutant in (*MUTANTS, *ESCAPING) if not is_plantable(mutant)] == []
    for mutant in (*MUTANTS, *ESCAPING):
        planted = mutant.planted_in((ROOT / mutant.file).read_text(encoding="utf-8"))
        compile(planted, mutant.file, "exec")
    assert len(MUTANTS) >= 120


@pytest.mark.parametrize(("file", "part", "invariant"), QUICK)
def test_a_planted_defect_is_found(file, part, invariant, copied):
    [mutant] = [mutant for mutant in MUTANTS if mutant.file == file and part in mutant.old]
    assert hunt(mutant, copied).invariant == invariant


def test_without_a_defect_nothing_is_found(copied):
    catch = hunt(
        MUTANTS[0].__class__("tuner/driver/driver.py", "persist", "persist", ""),
        copied,
        max_experiments=20,
    )
    assert catch.invariant == ""
    assert catch.num_experiments == 20
