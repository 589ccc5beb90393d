"""Parts of the state machine exist only once something of their capability has happened."""

from tests.core.conversation import Conversation, cluster
from tuner.core.events import LeaseOwner, LeaseRequested, Outcome, StopRequested
from tuner.core.part import Part
from tuner.core.worker_records import WorkerGroup
from tuner.leases.part import Leases
from tuner.nodes.part import NodeEvents


def ask(talk):
    owner = LeaseOwner("t00000", 1)
    return talk.say(LeaseRequested(owner, "a", WorkerGroup(1, {"cpu": 1.0}, 1, 1)))


def kinds(talk):
    return [type(part) for part in talk.experiment.parts]


def test_a_search_on_one_machine_has_no_parts():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00000", Outcome.STOPPED)
    assert kinds(talk) == []


def test_the_first_event_of_a_capability_brings_its_part():
    talk = Conversation(capacity={"cpu": 2.0}, max_trials=1)
    talk.begin(1)
    ask(talk)
    assert kinds(talk) == [Leases]
    talk.restore_from_snapshot()
    assert kinds(talk) == [Leases]


def test_a_setting_brings_the_part_of_its_capability():
    assert NodeEvents in kinds(cluster(1))


def test_a_part_that_comes_while_the_experiment_is_interrupted_starts_nothing(monkeypatch):
    interrupted = []

    def interrupt(part):
        interrupted.append(part)

    monkeypatch.setattr(Leases, "interrupt", interrupt)
    talk = Conversation(capacity={"cpu": 2.0}, max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    ask(talk)
    assert interrupted == [*talk.experiment.parts]


def test_a_part_that_overrides_nothing_changes_nothing():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    plain = Part(talk.experiment)
    talk.experiment.parts.append(plain)
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.experiment.is_finished
    assert "validations" not in talk.experiment.state_dict()
