"""The history of nodes says when they came and went, and what ran and was lost on them."""

import io

import pytest

from tests.analysis.clustered import A, B, C, conversation, write
from tests.core.conversation import suggest
from tuner.analysis import ResultGrid
from tuner.analysis.explain import explain_trial
from tuner.analysis.node_history import NodeHistory, NodeState, read_nodes
from tuner.core.events import DriverRestarted, NodeJoined, Outcome


@pytest.fixture
def history():
    return NodeHistory()


def test_nodes_come_and_go_with_what_runs_on_them(history):
    talk = conversation(history.observe)
    a, b, c = (history.nodes[name] for name in "abc")
    assert (a.state, a.joined_s, a.left_s, dict(a.labels)) == (
        NodeState.DRAINING, 0.0, None, {"zone": "x"},
    )  # fmt: skip
    assert (b.state, b.joined_s, b.left_s) == (NodeState.LEFT, 5.0, 50.0)
    assert b.why == "nothing was heard of it for 30 s"
    assert (c.state, c.joined_s) == (NodeState.PRESENT, 60.0)
    assert [node.num_losses for node in (a, b, c)] == [0, 1, 0]
    live = {trial.trial_id: trial for trial in talk.experiment.trial_table.live.values()}
    for node in (a, b, c):
        expected = {name: trial.attempt for name, trial in live.items() if node.name in trial.nodes}
        assert node.running == expected
    assert a.trials | b.trials | c.trials == {A, B, C}


def test_the_places_and_losses_of_attempts_are_known(history):
    conversation(history.observe)
    assert (history.places[A, 1], history.places[B, 1]) == (("a",), ("b",))
    [loss] = history.losses
    assert (loss.at_s, loss.trial_id, loss.attempt, loss.node) == (50.0, B, 1, "b")


def test_a_worker_that_is_lost_without_its_node_counts_as_a_loss_of_the_node(history):
    talk = conversation(history.observe)
    [trial] = [each for each in talk.experiment.trial_table.live.values() if each.node == "c"]
    talk.exit(trial.trial_id, Outcome.LOST)
    assert history.nodes["c"].num_losses == 1
    assert len(history.losses) == 1


def test_a_node_that_joins_again_has_lost_what_ran_on_it(history):
    talk = conversation(history.observe)
    running = dict(history.nodes["c"].running)
    assert running
    talk.now_s = 70.0
    talk.say(NodeJoined("c", {"cpu": 4.0}))
    c = history.nodes["c"]
    assert (c.state, c.joined_s, dict(c.resources)) == (NodeState.PRESENT, 70.0, {"cpu": 4.0})
    assert c.num_losses == 1


def test_a_new_driver_begins_without_nodes(history):
    talk = conversation(history.observe)
    talk.now_s = 80.0
    talk.say(DriverRestarted(talk.experiment.settings))
    assert {node.state for node in history.nodes.values()} == {NodeState.LEFT}
    assert history.nodes["c"].why == "the experiment was continued by a new driver"
    assert not any(node.running for node in history.nodes.values())


def test_on_one_machine_there_is_nothing_to_tell(history):
    from tests.core.conversation import Conversation  # noqa: PLC0415

    talk = Conversation(max_trials=1)
    handle = talk.experiment.handle

    def listen(event, at_s):
        effects = handle(event, at_s)
        history.observe(event, effects, at_s)
        return effects

    talk.experiment.handle = listen
    talk.say()
    talk.say(suggest(A))
    assert (history.nodes, history.places, history.losses) == ({}, {}, [])


def test_the_history_is_read_back_from_a_directory(tmp_path, history):
    talk = conversation(history.observe)
    stored, found = read_nodes(write(tmp_path / "e", talk))
    assert found.places == history.places
    assert found.losses == history.losses
    assert stored.driver is None
    assert stored.progress().num_nodes == 2
    # Without a driver there is no node.
    assert {node.state for node in found.nodes.values()} == {NodeState.LEFT}
    assert found.nodes["c"].why == "the experiment is not running"
    assert found.nodes["b"].left_s == 50.0


def test_a_trial_is_explained_with_its_nodes(tmp_path, history):
    talk = conversation(history.observe)
    lines = explain_trial(talk.trial(B), talk.records, history=history)
    assert "     5.00 s  attempt 1 begins on b" in lines
    lost = "attempt 1 is lost with node b: nothing was heard of it for 30 s"
    assert f"    50.00 s  {lost}" in lines
    told = io.StringIO()
    ResultGrid.from_directory(write(tmp_path / "e", talk)).explain(B, told)
    assert lost in told.getvalue()
