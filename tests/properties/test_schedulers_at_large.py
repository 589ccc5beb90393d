"""Random whole experiments with every scheduler end, with every trial over and valid decisions.

``python -m tests.properties.schedulers_at_large`` runs many more of them.
"""

import functools
import itertools
from collections import Counter

import pytest

import schedulers
from tests.properties.every_scheduler import KINDS
from tests.properties.schedulers_at_large import counted, experiment
from tests.properties.test_simulated_experiments import check_tables
from tests.properties.watched import Troubles, Watch
from tests.tiers import examples
from tuner.core.commands import StartWorker
from tuner.core.worker_records import CheckpointRecord

pytestmark = pytest.mark.usefixtures("quiet")
NUM_OF_EACH = 28


@functools.cache
def played(kind):
    """Play experiments with one scheduler; return what has happened in them."""
    seen = Counter()
    for seed in range(8 if kind == "pb2" else examples(NUM_OF_EACH)):
        try:
            watch, outcome = experiment(seed, kind).simulate()
            if seed % 4 == 0:
                check_tables(outcome, [entry.event for entry in outcome.history])
        except Exception as error:
            error.add_note(f"in the experiment experiment({seed}, {kind!r})")
            raise
        seen.update(counted(seed, kind, watch, outcome))
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_every_experiment_ends_with_every_trial_over(kind):
    seen = played(kind)
    assert seen[f"with {kind}"] > 0
    left = [name for name in seen if name.startswith("left to the engine")]
    assert left == [], "a scheduler resumes or stops what it has paused"


def test_all_that_may_happen_has_happened():
    seen = sum((played(kind) for kind in KINDS), Counter())
    decisions = {
        f"decision: {name}" for name in ("Stop", "Pause", "Resume", "Save", "Exploit", "Resize")
    }
    endings = {
        f"trial {ending}" for ending in ("completed", "stopped early", "interrupted", "failed")
    }
    troubles = {
        "damaged",
        "save failed",
        "interrupted",
        "deleted",
        "stay",
        "started from a donor",
        "started from its own",
    }
    assert not (decisions | endings | troubles | {"ended with a reason why it cannot"}) - set(+seen)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_number_gives_the_same_history(kind):
    for seed in (1, 2):
        (_, first), (_, second) = (
            experiment(seed, kind).simulate(),
            experiment(seed, kind).simulate(),
        )
        assert repr(first.history) == repr(second.history)


def test_every_exported_scheduler_takes_part():
    exported = {
        value for name in schedulers.__all__ if isinstance(value := getattr(schedulers, name), type)
    }
    wanted = {
        kind
        for kind in exported
        if issubclass(kind, schedulers.Scheduler) and kind is not schedulers.Scheduler
    }
    found = set()
    for kind, seed in itertools.product(KINDS, range(60)):
        made = experiment(seed, kind).make_scheduler()
        found |= {type(made), type(getattr(made, "base_scheduler", made))}
    assert found == wanted


class TestTheWatch:
    """The watch detects violations."""

    @pytest.fixture
    def watch(self):
        watch = Watch(Troubles(seed=0))
        watch._there = {("a", 0): 3}
        return watch

    @staticmethod
    def start(trial_id="b", checkpoint=None, next_checkpoint=0, source_id="a"):
        return StartWorker(
            trial_id, 1, {}, {"cpu": 1.0}, (), checkpoint, next_checkpoint, source_id=source_id
        )

    def test_a_checkpoint_is_kept_while_a_worker_starts_from_it(self, watch):
        watch._check_start(self.start(checkpoint=CheckpointRecord(0, 3)))
        with pytest.raises(AssertionError, match="is deleted while"):
            watch.delete("a", CheckpointRecord(0, 3))

    def test_a_start_from_what_was_deleted(self, watch):
        watch.delete("a", CheckpointRecord(0, 3))
        with pytest.raises(AssertionError, match="which is not there"):
            watch._check_start(self.start(checkpoint=CheckpointRecord(0, 3)))

    def test_a_second_deletion(self, watch):
        watch.delete("a", CheckpointRecord(0, 3))
        with pytest.raises(AssertionError, match="was not there"):
            watch.delete("a", CheckpointRecord(0, 3))

    def test_a_checkpoint_that_is_overwritten(self, watch):
        with pytest.raises(AssertionError, match="going to overwrite"):
            watch._check_start(self.start("a"))

    def test_two_attempts_at_once(self, watch):
        watch._check_start(self.start())
        with pytest.raises(AssertionError, match="two live attempts"):
            watch._check_start(self.start())
