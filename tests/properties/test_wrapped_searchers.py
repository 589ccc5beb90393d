"""Wrapped searchers are called by contract: each trial id once, its results before its one end."""
# ruff: noqa: S311  (chance for tests)

import json
import random

import pytest

from searchers import ConcurrencyLimiter, DuplicateGuard, Repeater, Searcher
from searchers.space import choice, randint, uniform
from tests.tiers import examples

SPACES = [
    {"x": randint(0, 6)},
    {"x": choice([abs, (1, 2), "a"]), "deep": {"y": randint(0, 3)}},
    {"x": randint(0, 4), "z": uniform(0, 1)},
]


class Strict(Searcher):
    """Proposes or postpones at random, and asserts that it is called by the contract."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.open, self.over, self.num_asked = [], [], 0

    def set_search_properties(self, metric, mode, config, **spec):
        self.space = config
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        assert trial_id not in self.open + self.over, f"{trial_id} has been used"
        self.num_asked += 1
        mood = random.Random(self.num_asked).random()
        if self.num_asked > 150:
            return self.FINISHED
        if mood < 0.1 and self.open:
            return None
        self.open.append(trial_id)
        return self.drawn(self.space, random.Random(1000 + self.num_asked))

    def drawn(self, node, rng):
        if isinstance(node, dict):
            return {key: self.drawn(child, rng) for key, child in node.items()}
        return 0.5 if node == uniform(0, 1) else node.from_unit(rng.random())

    def on_trial_result(self, trial_id, result):
        assert trial_id in self.open, f"{trial_id} is not running"

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        assert trial_id in self.open, f"{trial_id} is not running"
        assert result is None or not error
        self.open.remove(trial_id)
        self.over.append(trial_id)

    def state_dict(self):
        return {"open": list(self.open), "over": list(self.over), "num_asked": self.num_asked}

    def load_state_dict(self, state):
        self.open, self.over, self.num_asked = (
            list(state["open"]),
            list(state["over"]),
            state["num_asked"],
        )


def stack(seed):
    """Return a searcher inside some wrappers, and the searcher."""
    rng = random.Random(seed)
    inner = searcher = Strict(seed)
    for _ in range(rng.randint(1, 3)):
        wrap = rng.choice(["limit", "batch", "repeat", "skip", "reuse"])
        if wrap in ("limit", "batch"):
            searcher = ConcurrencyLimiter(searcher, rng.randint(1, 3), batch=wrap == "batch")
        elif wrap == "repeat":
            searcher = Repeater(searcher, rng.randint(1, 3))
        else:
            searcher = DuplicateGuard(searcher, wrap, max_tries=rng.randint(1, 4))
    assert searcher.set_search_properties(
        "loss", "min", SPACES[seed % len(SPACES)], seed=seed, num_samples=1080
    )
    return searcher, inner


def restored(searcher, seed):
    again, inner = stack(seed)
    again.load_state_dict(json.loads(json.dumps(searcher.state_dict())))
    return again, inner


@pytest.mark.parametrize("seed", range(examples(100)))
def test_a_wrapped_searcher_is_talked_to_by_the_rules(seed):
    rng = random.Random(seed)
    searcher, inner = stack(seed)
    twin, twins_inner = stack(seed)
    running, number, is_over = [], 0, False
    while not is_over or running:
        if rng.random() < 0.05:
            twin, twins_inner = restored(searcher, seed)
        if not is_over and len(running) < 4 and (rng.random() < 0.5 or not running):
            answer = searcher.suggest(f"t{number}")
            assert twin.suggest(f"t{number}") == answer
            assert answer is not None or running, "nothing runs that could be waited for"
            is_over = answer == Searcher.FINISHED
            if isinstance(answer, dict):
                running.append(f"t{number}")
                number += 1
        if running:
            trial_id = rng.choice(running)
            result = {
                "loss": rng.choice([0.5, 1, float("nan"), None]),
                "training_iteration": 1,
                "host": "h",
            }
            ending = rng.choice([{}, {}, {"stopped": True}, {"error": True}, None, None])
            for each in (searcher, twin):
                if ending is None:
                    each.on_trial_result(trial_id, result)
                else:
                    each.on_trial_complete(
                        trial_id, None if "error" in ending else result, **ending
                    )
            if ending is not None:
                running.remove(trial_id)
    assert inner.state_dict() == twins_inner.state_dict()
    assert len(inner.open) <= 3, "what is left over belongs to repeats that were never given out"
