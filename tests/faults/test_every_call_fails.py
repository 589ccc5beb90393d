"""Each call to the disk fails in turn: the experiment ends with all results or can be restored.

Without ``--full`` a case takes every fourth call, another one of four than the case before it.
"""

import errno
import math
import warnings

import pytest

from tests.tiers import examples
from tuner.errors import StorageError
from tuner.journal.reader import read
from tuner.journal.rows import JournalRows

pytestmark = pytest.mark.property

CODES = {"full": errno.ENOSPC, "failing": errno.EIO, "read-only": errno.EROFS}
EXPECTED = {
    "t00000": [1.0 / epoch for epoch in (1, 2, 3, 4)],
    "t00001": [2.0 / epoch for epoch in (1, 2, 3, 4)],
}
MAX_CALLS = 300
STEP = 1 if examples(MAX_CALLS) == MAX_CALLS else 4


def results_in(short):
    """Return the results of each trial; data frames of them would take most of the time."""
    rows = JournalRows(short.directory)
    return {trial_id: rows.of(trial_id) for trial_id in EXPECTED}


def check_nothing_acknowledged_is_lost(short):
    if not short.acknowledged:
        return
    known = {
        (trial_id, row["training_iteration"])
        for trial_id, rows in results_in(short).items()
        for row in rows
    }
    assert short.acknowledged <= known


def check_it_ended_rightly(short, grid):
    losses = {
        trial_id: [row["loss"] for row in rows] for trial_id, rows in results_in(short).items()
    }
    assert losses == EXPECTED
    assert {result.trial_id: result.metrics["loss"] for result in grid} == {
        trial_id: expected[-1] for trial_id, expected in EXPECTED.items()
    }
    assert grid.num_errors == 0
    sequence = [record["q"] for record in read(short.directory)]
    assert sequence == list(range(1, len(sequence) + 1))


def attempt(run):
    """Run an experiment; return its results, or None if a storage error ended it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return run()
        except StorageError:
            return None


def finish(short):
    """Finish an experiment on a disk that has recovered."""
    is_there = (short.directory / "experiment.json").exists()
    assert is_there or not short.acknowledged
    assert is_there or not short.directory.exists(), (
        "an experiment that never began has left something behind"
    )
    grid = attempt(short.restore if is_there else short.fit)
    assert grid is not None
    check_it_ended_rightly(short, grid)


ONCE, A_WHILE, FOR_EVER = 0.0, 3.5, math.inf
"""For how many seconds of waiting a fault lasts; for space trials would wait for ever."""
TROUBLES = [
    ("full", ONCE),
    ("full", A_WHILE),
    *(("failing", for_s) for for_s in (ONCE, A_WHILE, FOR_EVER)),
    *(("read-only", for_s) for for_s in (ONCE, FOR_EVER)),
]
CASES = (
    [("strict", *trouble) for trouble in TROUBLES]
    + [("process", kind, ONCE) for kind in CODES]
    + [("group", "failing", FOR_EVER)]
)


@pytest.mark.parametrize(
    ("number", "durability", "kind", "for_s"),
    [pytest.param(number, *case, id="-".join(map(str, case))) for number, case in enumerate(CASES)],
)
def test_whichever_call_fails_nothing_acknowledged_is_lost_and_nothing_is_double(  # noqa: PLR0917
    short, sabotage, number, durability, kind, for_s
):
    for first in range(1 + number % STEP, MAX_CALLS, STEP):
        experiment = short(first, durability=durability)
        sabotage.fail(first, CODES[kind], for_s=for_s)
        grid = attempt(experiment.fit)
        was_hit = sabotage.num_faults > 0
        sabotage.heal()
        check_nothing_acknowledged_is_lost(experiment)
        if grid is None:
            finish(experiment)
        else:
            check_it_ended_rightly(experiment, grid)
        if not was_hit:
            assert first > 20
            return
    pytest.fail("the fault fired for ever")


def interrupted(short, sabotage, first):
    """Return an experiment whose storage failed for good at a call in its middle."""
    sabotage.fail(first, errno.EIO, for_s=math.inf)
    assert attempt(short.fit) is None
    sabotage.heal()
    return short


# Each call of the restore fails in one of three ways, behind the other first fault in another one.
@pytest.mark.parametrize(
    ("offset", "kind", "for_s"),
    [(0, "full", ONCE), (1, "failing", FOR_EVER), (2, "read-only", ONCE)],
)
# Behind the first acknowledged report, with some calls to spare: on a machine under load a thread
# may make a few more calls before it.
@pytest.mark.parametrize("first", [30, 38])
def test_a_fault_while_a_fault_is_mended_changes_nothing_of_that(  # noqa: PLR0917  (a table)
    short, sabotage, first, offset, kind, for_s
):
    for second in range(1 + (first + offset) % 3, MAX_CALLS, 3 * STEP):
        experiment = interrupted(short(second), sabotage, first)
        assert experiment.acknowledged
        sabotage.fail(second, CODES[kind], for_s=for_s)
        grid = attempt(experiment.restore)
        was_hit = sabotage.num_faults > 0
        sabotage.heal()
        check_nothing_acknowledged_is_lost(experiment)
        if grid is None:
            finish(experiment)
        else:
            check_it_ended_rightly(experiment, grid)
        if not was_hit:
            return
    pytest.fail("the fault fired for ever")
