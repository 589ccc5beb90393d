import json
import math
import re

import numpy as np
import pytest

from searchers import AutoSearch, BOHBSearch, CQRSearch, GPSearch, TreeSearch
from searchers.models.branches import starved_branch
from searchers.models.candidates import mutants
from searchers.models.encoding import Encoding
from searchers.models.observations import Observations
from searchers.space import choice, only_if, randint, uniform

TWO_LEARNERS = {
    "learner": choice(
        [
            {"name": "forest", "depth": randint(1, 20), "leaf": uniform(0, 1)},
            {"name": "network", "rate": uniform(0, 1), "width": uniform(0, 1)},
        ]
    )
}
FORESTS, NETWORKS = (0, 0.0), (0, 1.0)


def encoding_of(space):
    return Encoding(space, "me")


def table_of(options, losses):
    """Return the vectors of trials in these branches, and their table."""
    observations = Observations()
    for number, (option, loss) in enumerate(zip(options, losses, strict=True)):
        observations.add(f"t{number}", [float(option)] + [math.nan] * 4)
        observations.record(f"t{number}", 1, loss)
    return observations.table(), observations.vectors()


def starved(options, losses):
    return starved_branch(*table_of(options, losses), encoding_of(TWO_LEARNERS))


def learned(kind, space, loss, num_trials, **arguments):
    """Return a searcher that was told the losses of so many suggestions, and why it made each."""
    searcher = kind(metric="loss", mode="min", **arguments)
    searcher.set_search_properties(None, None, space, seed=0)
    told = []
    for number in range(num_trials):
        config = searcher.suggest(f"t{number}")
        told.append((config, searcher.explain_suggestion()))
        result = {"loss": loss(config), "training_iteration": 1}
        searcher.on_trial_complete(f"t{number}", result)
    return searcher, told


def test_options_with_several_parameters_of_their_own_are_branches():
    space = {
        "kind": choice(["forest", "network", "mean"]),
        "depth": only_if({"kind": "forest"}, randint(1, 9)),
        "leaf": only_if({"kind": "forest"}, randint(1, 9)),
        "rate": only_if({"kind": lambda kind: kind == "network"}, uniform(0, 1)),
        "width": only_if({"kind": ["network"]}, uniform(0, 1)),
        "scaler": choice(["none", "ranks"]),
        "ties": only_if({"scaler": "ranks"}, choice(["first", "mean"])),
    }
    encoding = encoding_of(space)
    names = [(encoding.columns[place].name, entry) for place, entry in encoding.branches]
    assert names == [("kind", 0.0), ("kind", 1.0)]


def test_a_branch_as_good_as_the_leading_one_was_after_as_many_trials_gets_its_share():
    improving = list(np.linspace(2, 1, 40))
    assert starved([1] * 5 + [0] * 35, [1.9] * 5 + improving[:35]) == NETWORKS
    assert starved([0] * 5 + [1] * 35, [1.9] * 5 + improving[:35]) == FORESTS
    assert starved([1] * 12 + [0] * 28, [1.5] * 12 + improving[:28]) is None


def test_the_more_trials_show_that_a_branch_is_worse_the_smaller_is_its_share():
    shares = []
    for num_forests in (20, 60, 180):
        num_networks = 1
        while True:
            options = [0] * num_forests + [1] * num_networks
            losses = [*np.linspace(1, 2, num_forests), *np.linspace(2, 3, num_networks)]
            if starved(options, losses) is None:
                break
            num_networks += 1
        shares.append(num_networks / (num_forests + num_networks))
    assert 0.25 > shares[0] > shares[1] > shares[2]
    assert shares[2] < 0.1


def test_without_branches_none_is_starved():
    encoding = encoding_of({"kind": choice(["a", "b"])})
    assert starved_branch(*table_of([0] * 50, range(50)), encoding) is None


def test_random_and_changed_vectors_of_a_branch_are_in_it():
    encoding, rng = encoding_of(TWO_LEARNERS), np.random.default_rng(0)
    network = encoding.within(NETWORKS)
    drawn = network.from_cube(rng.random((50, 5)))
    forests = encoding.within(FORESTS).from_cube(rng.random((50, 5)))
    changed = mutants(rng, network, forests, np.full(50, 0.2), 0.3)
    for vectors in (drawn, changed):
        assert (vectors[:, 0] == 1.0).all()
        assert np.isnan(vectors[:, 1:3]).all()
        assert not np.isnan(vectors[:, 3:]).any()
    assert encoding.branch is None


def loss_of(config):
    learner = config["learner"]
    if learner["name"] == "forest":
        return abs(learner["leaf"] - 0.3)
    return 0.4 + abs(learner["rate"] - 0.7)


@pytest.mark.parametrize("kind", [AutoSearch, GPSearch, TreeSearch, BOHBSearch, CQRSearch])
def test_a_starved_branch_is_searched_by_a_model_of_its_own_trials(kind):
    searcher = kind(metric="loss", mode="min", n_initial_points=0, random_fraction=0.0)
    searcher.set_search_properties(None, None, TWO_LEARNERS, seed=0)
    for number in range(24):
        network = {"name": "network", "rate": number / 5, "width": 0.5}
        forest = {"name": "forest", "depth": 5, "leaf": number / 24}
        point = {"learner": network if number < 5 else forest}
        searcher.add_evaluated_point(point, 1.0 - 0.01 * number)
    assert searcher.suggest("a")["learner"]["name"] == "network"
    assert re.search(
        r"fitted to 5 trials.*; within learner=1, which had too few", searcher.explain_suggestion()
    )
    assert searcher.observations.num_observed == 24


def test_a_branch_without_trials_begins_with_random_points():
    own = [{"depth": randint(1, 20), "leaf": uniform(0, 1)}, {"rate": uniform(0, 1, prior=0.3)}]
    space = {"learner": choice([*own, {"width": randint(1, 9), "gain": uniform(0, 1)}])}
    searcher = TreeSearch(metric="loss", mode="min", n_initial_points=0, random_fraction=0.0)
    searcher.set_search_properties(None, None, space, seed=0)
    for number in range(20):
        point = {"learner": {"depth": 5, "leaf": number / 20}}
        searcher.add_evaluated_point(point, 1.0 - 0.01 * number)
    assert "width" in searcher.suggest("a")["learner"]
    assert "within learner=2, which had too few" in searcher.explain_suggestion()


@pytest.mark.property
@pytest.mark.parametrize("kind", [AutoSearch, CQRSearch])
def test_a_restored_search_of_branches_continues_as_if_uninterrupted(kind):
    original, _ = learned(kind, TWO_LEARNERS, loss_of, 23)
    restored = kind(metric="loss", mode="min")
    restored.set_search_properties(None, None, TWO_LEARNERS, seed=9)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict())))
    for number in range(23, 29):
        assert restored.suggest(f"t{number}") == original.suggest(f"t{number}")


@pytest.mark.property
def test_an_exhausted_branch_leaves_the_suggestions_to_the_others():
    space = {
        "kind": choice(["few", "many"]),
        "a": only_if({"kind": "few"}, choice([1, 2])),
        "b": only_if({"kind": "few"}, choice([1, 2])),
        "x": only_if({"kind": "many"}, uniform(0, 1)),
        "y": only_if({"kind": "many"}, uniform(0, 1)),
    }
    _, told = learned(
        TreeSearch, space, lambda config: config.get("x", 2.0), 40, random_fraction=0.0
    )
    assert sum(config["kind"] == "few" for config, _ in told) == 4
    assert all("randomised trees" in why for _, why in told[-10:])
