"""Libraries that are refused proposals, since these violate the relation of the space."""

import json

import pytest

from searchers.libraries.library_search import IncrementalSearch, LibrarySearch
from searchers.space import Float, Integer, Space, choice, randint, uniform
from searchers.space.linear_parts import linear_parts
from searchers.space.relations import MAX_DRAWS, Relation

ENTRIES = {"low": uniform(0, 1), "high": uniform(0, 1), "fixed": 7}


class Scripted(LibrarySearch):
    """Proposes what it is given, and remembers what was refused."""

    extra = library = "math"  # any module that is there
    searchable = (Float, Integer)
    remedy = ""

    def __init__(self, *proposals, **given):
        defaults = dict.fromkeys(["space", "points_to_evaluate", "evaluated_rewards", "seed"])
        super().__init__(**{**defaults, **given}, metric="x", mode="min", failed_trials="worst")
        self.proposals = list(proposals)
        self.seeds = []
        self.num_refused = 0

    def _propose(self, seed):
        self.seeds.append(seed)
        low, high = self.proposals.pop(0) if len(self.proposals) > 1 else self.proposals[0]
        return {"low": low, "high": high}

    def _refuse_proposal(self):
        self.num_refused += 1


def scripted(*proposals, where="low < high", **given):
    searcher = Scripted(*proposals, **given)
    searcher.set_search_properties(None, None, Space(ENTRIES, where), seed=4)
    return searcher


def test_what_satisfies_the_relation_is_taken():
    searcher = scripted((0.1, 0.2))
    assert searcher.suggest("a") == {"low": 0.1, "high": 0.2, "fixed": 7}
    assert (searcher.num_refused, searcher.explain_suggestion()) == (0, "")


def test_the_library_is_asked_again_with_another_seed_and_the_refusals_are_told():
    searcher = scripted((0.9, 0.2), (0.5, 0.4), (0.1, 0.2))
    assert searcher.suggest("a")["low"] == 0.1
    assert searcher.num_refused == 2
    assert len(set(searcher.seeds)) == 3
    assert searcher.explain_suggestion() == "after 2 proposals that violated where='low < high'"
    searcher.suggest("b")
    assert searcher.explain_suggestion() == ""


@pytest.mark.parametrize("where", ["low < high", lambda config: config.low < config["high"]])
def test_after_many_refusals_the_suggestion_is_drawn_at_random(where):
    searcher = scripted((0.9, 0.2), where=where)
    configs = [searcher.suggest(str(number)) for number in range(5)]
    assert all(config["low"] < config["high"] for config in configs)
    assert len({config["low"] for config in configs}) == 5
    assert searcher.num_refused == 5 * (Scripted.num_tries + 1)
    assert searcher.explain_suggestion().endswith("; drawn at random")


@pytest.mark.process  # all draws take longer than a unit test may
def test_a_relation_that_nothing_satisfies_is_refused_after_many_draws():
    with pytest.raises(ValueError, match=rf"after {MAX_DRAWS:,} draws; relax it, or narrow"):
        scripted((0.9, 0.2), where="low < high - 2")


def test_a_saved_search_goes_on_as_one_that_was_never_interrupted():
    one = scripted((0.9, 0.2))
    for number in range(3):
        one.suggest(str(number))
        one.on_trial_complete(str(number), {"x": number})
    other = scripted((0.9, 0.2))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert [one.suggest(str(n)) for n in range(3, 6)] == [
        other.suggest(str(n)) for n in range(3, 6)
    ]


def test_points_to_evaluate_are_completed_or_refused():
    searcher = scripted((0.1, 0.2), points_to_evaluate=[{"low": 0.9}])
    config = searcher.suggest("a")
    assert config["low"] == 0.9 < config["high"]
    with pytest.raises(ValueError, match=r"points_to_evaluate\[0\].* must satisfy where="):
        scripted((0.1, 0.2), points_to_evaluate=[{"low": 0.9, "high": 0.1}])


class Numbered(IncrementalSearch):
    """Proposes descending numbers, and records what it is told."""

    extra = library = "math"
    searchable = (Float, Integer)
    remedy = ""

    def __init__(self):
        super().__init__(
            **dict.fromkeys(["space", "points_to_evaluate", "evaluated_rewards", "seed"]),
            metric="x",
            mode="min",
            failed_trials="worst",
        )
        self.told = []

    def _propose(self, seed):
        self._report_new_results()
        self._record_proposal(number := len(self.told))
        self.told.append("proposed")
        return {"low": 1.0 - number / 4, "high": 0.6}

    def _attach(self, values):
        self.told.append("attached")
        return len(self.told) - 1

    def _finish(self, index, library_id):
        self.told[library_id] = "dropped" if index is None else self._history[index].value


def test_an_incremental_library_is_told_of_refusals_and_of_results():
    searcher = Numbered()
    searcher.set_search_properties(None, None, Space(ENTRIES, "low < high"), seed=0)
    assert searcher.suggest("a")["low"] == 0.5
    searcher.on_trial_complete("a", {"x": 3.0})
    searcher.suggest("b")
    assert searcher.told == ["dropped", "dropped", 3.0, "proposed"]


def test_a_relation_has_linear_parts():
    space = {
        "a": uniform(0, 1),
        "deep": {"b": uniform(0, 1)},
        "n": randint(1, 9),
        "gap": 0.5,
        "kind": choice(["x", "y"]),
    }

    def parts(where):
        Relation(where, space)  # it is one
        return [
            ({".".join(path): each for path, each in part.factors.items()}, part.most)
            for part in linear_parts(where, space)
        ]

    assert parts("a < deep.b") == [({"a": 1.0, "deep.b": -1.0}, 0.0)]
    assert parts("a + gap <= 3 * deep.b / 2 - (-n)") == [
        ({"a": 1.0, "deep.b": -1.5, "n": -1.0}, -0.5)
    ]
    assert parts("0.25 < a < n and deep.b > gap") == [
        ({"a": -1.0}, -0.25),
        ({"a": 1.0, "n": -1.0}, 0.0),
        ({"deep.b": -1.0}, -0.5),
    ]
    assert parts("config['a'] * gap >= 2") == [({"a": -0.5}, -2.0)]
    for where in (
        "a * n < 1",
        "a < 0.5 or n < 3",
        "not a < 0.5",
        "a == 0.5",
        "abs(a) < n",
        "a / n < 1",
        "a ** 2 < 1",
        "kind == 'x'",
        "gap < 1",
        "a - a < 1",
        "True",
    ):
        assert parts(where) == [], where
