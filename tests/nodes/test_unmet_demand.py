"""What waits for room on nodes."""

from __future__ import annotations

import pytest

from tests.core.conversation import Conversation, cluster, suggest, validate
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.events import (
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    SearchEnded,
    StopRequested,
    SuggestionPostponed,
)
from tuner.core.settings import ValidationPolicy
from tuner.core.worker_records import WorkerGroup
from tuner.nodes.unmet_demand import unmet_demand

A, B = "t00000", "t00001"
CPU = {"cpu": 1.0}


def demand(talk):
    """Return resources and number of what waits, which asks for no labels."""
    unmet = unmet_demand(talk.experiment)
    assert all(not labels for _, labels, _ in unmet)
    return [(resources, num) for resources, _, num in unmet]


def test_on_one_machine_nothing_waits_for_nodes():
    talk = Conversation(max_trials=9)
    talk.begin(2)
    assert unmet_demand(talk.experiment) == []


def test_the_trials_that_the_searcher_could_be_asked_for_wait_for_room():
    talk = cluster(2, max_trials=10)
    assert demand(talk) == [(CPU, 8)]
    talk.say(NodeJoined("c", {"cpu": 3.0}))  # for which three are asked for
    assert demand(talk) == [(CPU, 5)]


def test_without_a_node_as_many_wait_as_are_counted_at_most():
    talk = cluster(0, nodes=(), max_trials=None)
    talk.say()
    assert demand(talk) == [(CPU, 64)]


def test_no_more_wait_than_may_run_at_once():
    assert demand(cluster(2, max_trials=10, max_concurrent=3)) == [(CPU, 1)]
    assert demand(cluster(2, max_trials=10, max_concurrent=2)) == []


def test_nothing_waits_where_the_searcher_waits_for_results_or_has_ended():
    talk = cluster(1, max_trials=10)
    talk.say(SuggestionPostponed(B))
    assert demand(talk) == []
    talk.report(A, 1)
    talk.say(SearchEnded())
    assert demand(talk) == []


def test_trials_that_are_ready_wait_by_their_requests():
    talk = cluster(2, max_trials=4)
    talk.say(NodeJoined("c", {"cpu": 8.0}))
    talk.say(suggest("t00002", gpu=1.0), suggest("t00003", gpu=1.0))
    assert demand(talk) == [({"gpu": 1.0}, 2)]
    talk.say(NodeLeft("c", "gone"), NodeLeft("a", "gone"))
    assert demand(talk) == [({"gpu": 1.0}, 2), (CPU, 1)]
    talk.say(NodeJoined("d", {"gpu": 1.0}))
    assert demand(talk) == [({"gpu": 1.0}, 1), (CPU, 1)]
    talk.restore_from_snapshot()
    assert demand(talk) == [({"gpu": 1.0}, 1), (CPU, 1)]


def test_what_drains_has_no_room():
    talk = cluster(1, nodes=("a", "b"), max_trials=2)
    talk.say(NodeDraining("b"), suggest(B))
    assert demand(talk) == [(CPU, 1)]


def test_trials_suggested_ahead_wait_as_well():
    talk = cluster(0, nodes=(), max_trials=5, max_pending=2)
    talk.say()
    talk.say(suggest(A), suggest(B))
    assert demand(talk) == [(CPU, 5)]


@pytest.mark.parametrize(
    ("strategy", "waits"),
    [
        ("PACK", [(CPU, 2)]),
        ("SPREAD", [(CPU, 2)]),
        ("STRICT_PACK", [({"cpu": 3.0}, 1)]),
        ("STRICT_SPREAD", [(CPU, 3)]),
    ],
)
def test_groups_wait_as_their_workers(strategy, waits):
    group = WorkerGroup(4, CPU, 3, 4, strategy)
    talk = cluster(0, nodes=(), max_trials=1, default_group=group, default_request=group.total)
    talk.say(NodeJoined("a", {"cpu": 2.0}))
    assert demand(talk) == waits


def test_validations_wait_as_many_at_once_as_may_run():
    policy = ValidationPolicy({"gpu": 1.0})
    talk = cluster(2, validation=policy, checkpoints=CheckpointPolicy(can_save_on_demand=True))
    assert demand(talk) == []
    validate(talk, A, 1)
    validate(talk, A, 2)
    validate(talk, B, 1)
    assert demand(talk) == [({"gpu": 1.0}, 2)]
    talk.say(NodeJoined("g", {"gpu": 1.0}))
    assert demand(talk) == [({"gpu": 1.0}, 1)]
    talk.say(StopRequested("signal.SIGINT"))
    assert demand(talk) == []


def test_nothing_waits_once_the_experiment_stops():
    talk = cluster(2, max_trials=10, fail_fast=True)
    talk.say(StopRequested("signal.SIGINT"))
    assert demand(talk) == []
    talk.exit(A, Outcome.STOPPED)
    assert demand(talk) == []
