"""A trial that fails again and again is tried again ever more slowly, unless it gets on."""

from tests.core.conversation import BOOM, Conversation, starts
from tuner.core.events import Outcome, StopRequested, WorkerStarted
from tuner.core.trial import Status, TerminationReason


def fail(talk):
    """Let the trial fail, and return after how many seconds it is started again."""
    commands = talk.exit("t00000", Outcome.FAILED, BOOM)
    before_s = talk.now_s
    while not starts(commands):
        assert talk.trial("t00000").status is Status.PENDING
        due_s = talk.experiment.next_deadline_s()
        assert due_s is not None
        commands = talk.say(after_s=due_s - talk.now_s)
    talk.say(WorkerStarted("t00000", talk.trial("t00000").attempt, 1))
    return talk.now_s - before_s


def test_the_first_retries_come_at_once_and_later_ones_ever_more_slowly_for_ever():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    assert [fail(talk) for _ in range(12)] == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    talk.trial("t00000").num_vain_attempts = 10_000
    assert fail(talk) == 60


def test_a_trial_that_gets_on_is_tried_again_at_once():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    for iteration in range(1, 10):
        talk.report("t00000", iteration)
        assert fail(talk) == 0


def test_repeating_what_it_had_reached_before_is_not_getting_on():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    rests = []
    for _ in range(5):
        talk.report("t00000", 1)
        rests.append(fail(talk))
    assert rests == [0, 0, 0, 1, 2]


def test_others_go_on_while_one_rests():
    talk = Conversation(max_trials=3, max_failures=-1, max_concurrent=2)
    talk.begin(2)
    for _ in range(3):
        fail(talk)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.report("t00001", 1)
    assert talk.trial("t00001").status is Status.RUNNING
    assert talk.trial("t00000").status is Status.PENDING


def test_an_experiment_can_be_interrupted_while_a_trial_rests():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    for _ in range(3):
        fail(talk)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.say(StopRequested("signal.SIGINT"))
    assert talk.trial("t00000").ending is TerminationReason.INTERRUPTED
    assert talk.experiment.is_finished
