"""Questions to scheduler and stopper, recorded decisions, and refused ones."""

import pytest

from schedulers.decisions import Pause, Reason, Resume, Save, Stop
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, answers, starts, suggest
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.events import Outcome, WorkerStarted
from tuner.core.policies import Policies
from tuner.core.recorded_decisions import RecordedDecision, StopExperiment
from tuner.core.stoppers import (
    CombinedStopper,
    FunctionStopper,
    NoopStopper,
    TimeoutStopper,
    stopper_from,
)
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.errors import InvalidDecision

REASON = Reason("rule", {"value": 1.0})
TRIAL = Trial("t00000", {}, {"cpu": 1.0})
RESULT = {"training_iteration": 1, "loss": 0.5}


def result_of(policies, recorded=None):
    policies.begin(recorded)
    return policies.on_trial_result(TRIAL, {**RESULT, "config": {}}, RESULT)


def test_the_stop_criterion_is_asked_before_the_scheduler():
    policies = Policies(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", REASON)]}),
        FunctionStopper(lambda _, result: "config" in result),
    )
    stop, pause = result_of(policies)
    assert stop == Stop("t00000", Reason("stop", {"training_iteration": 1}), is_complete=True)
    assert pause == Pause("t00000", REASON)
    assert policies.given == [RecordedDecision(0, stop), RecordedDecision(0, pause)]


def test_the_stop_criterion_returns_the_numbers_that_were_reached():
    policies = Policies(
        ScriptedScheduler(),
        stopper_from({"loss": "<= 0.5", "accuracy": 0.9, "training_iteration": 9}),
    )
    assert result_of(policies) == [
        Stop("t00000", Reason("stop", {"training_iteration": 1, "loss": 0.5}), is_complete=True)
    ]
    several = CombinedStopper(FunctionStopper(lambda *_: False), stopper_from({"loss": 0.1}))
    assert result_of(Policies(ScriptedScheduler(), several))[0].reason.numbers == {
        "training_iteration": 1,
        "loss": 0.5,
    }


def test_recorded_decisions_count_and_scheduler_and_stopper_are_asked_nevertheless():
    scheduler = ScriptedScheduler({("t00000", 1): [Stop("t00000", REASON)]})
    seen = []
    policies = Policies(scheduler, FunctionStopper(lambda trial_id, _: seen.append(trial_id)))
    assert result_of(policies, recorded=()) == []
    recorded = (RecordedDecision(0, Pause("t00000", REASON)),)
    assert result_of(policies, recorded) == [Pause("t00000", REASON)]
    assert policies.given == list(recorded)
    assert scheduler.heard == [("result", "t00000")] * 2
    assert seen == ["t00000"] * 2


def test_deviations_are_counted_and_different_numbers_are_none():
    policies = Policies(ScriptedScheduler({("t00000", 1): [Stop("t00000", REASON)]}), NoopStopper())
    result_of(
        policies,
        recorded=(RecordedDecision(0, Stop("t00000", Reason("rule", {"value": float("nan")}))),),
    )
    assert policies.num_deviations == 0
    for recorded in (
        (),
        (RecordedDecision(0, Pause("t00000", REASON)),),
        (RecordedDecision(0, Stop("t00000", Reason("other"))),),
    ):
        result_of(policies, recorded)
    assert policies.num_deviations == 3


def test_each_question_of_an_event_gets_the_answer_it_was_given():
    policies = Policies(
        ScriptedScheduler(idle=[[Resume("t00000", REASON)], [], [Stop("t00000", REASON)]]),
        NoopStopper(),
    )
    policies.begin(None)
    first = [policies.on_idle([TRIAL], 1) for _ in range(3)]
    recorded = tuple(policies.given)
    assert [said.question for said in recorded] == [0, 2]
    forgetful = Policies(ScriptedScheduler(), NoopStopper())
    forgetful.begin(recorded)
    assert [forgetful.on_idle([TRIAL], 1) for _ in range(3)] == first


def test_the_end_of_the_experiment_is_a_decision_too():
    policies = Policies(ScriptedScheduler(), TimeoutStopper(10.0), time_budget_s=5.0)
    assert policies.next_s == 5.0
    policies.begin(None)
    assert policies.reason_to_end(4.0) is None
    assert policies.reason_to_end(5.0) == Reason("time_budget", {"budget_s": 5.0, "elapsed_s": 5.0})
    policies.time_budget_s = None
    policies.begin(())
    assert policies.reason_to_end(20.0) is None, "it was not over then"
    policies.begin((RecordedDecision(0, StopExperiment(REASON)),))
    assert policies.reason_to_end(1.0) == REASON
    policies.begin(None)
    assert policies.reason_to_end(20.0) == Reason("stopper.stop_all")


WHY, LATER = Reason("test"), Reason("later")
SAVES = CheckpointPolicy(can_save_on_demand=True)


class ResumesAtAnEnd(ScriptedScheduler):
    """Resumes t00001 when t00000 ends."""

    def on_trial_complete(self, trial, result):
        return [Resume("t00001", WHY)] if trial.trial_id == "t00000" else ()


def pause(talk, trial_id, iteration=1, index=0):
    """Let a trial pause; return what follows from its exit."""
    assert answers(talk.report(trial_id, iteration)) == [(trial_id, "pause", True)]
    talk.saved(trial_id, index, iteration)
    return talk.exit(trial_id, Outcome.STOPPED)


@pytest.mark.parametrize("decision", [Pause, Resume, Save, Stop])
def test_a_decision_about_a_trial_that_is_over_changes_nothing(decision):
    talk = Conversation(
        ScriptedScheduler({("t00001", 1): [decision("t00000", LATER)]}), max_trials=2
    )
    talk.begin(2)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.report("t00001", 1)
    trial = talk.trial("t00000")
    assert (trial.status, trial.ending, trial.reason, trial.intention) == (
        Status.TERMINATED,
        TerminationReason.COMPLETED,
        None,
        None,
    )
    assert talk.decisions == [decision("t00000", LATER)]


@pytest.mark.parametrize("decision", [Pause, Resume, Save])
def test_only_a_stop_means_anything_to_a_trial_that_has_not_begun(decision):
    talk = Conversation(ScriptedScheduler({("t00000", 0): [decision("t00000", WHY)]}), max_trials=1)
    talk.say()
    assert starts(talk.say(suggest("t00000"))) == [("t00000", 1)]
    talk.say(WorkerStarted("t00000", 1, 1))
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]


def test_a_trial_that_is_resumed_twice_is_started_once():
    script = {
        ("t00000", 1): [Pause("t00000", WHY)],
        ("t00001", 1): [Resume("t00000", WHY), Resume("t00000", LATER)],
    }
    talk = Conversation(ScriptedScheduler(script), max_trials=2, checkpoints=SAVES)
    talk.begin(2)
    pause(talk, "t00000")
    assert starts(talk.report("t00001", 1)) == [("t00000", 2)]
    assert starts(talk.say()) == []
    assert talk.trial("t00000").reason == LATER


def test_a_trial_that_was_resumed_may_be_stopped_before_it_is_started():
    script = {
        ("t00000", 1): [Pause("t00000", WHY)],
        ("t00001", 1): [Resume("t00000", WHY), Stop("t00000", LATER)],
    }
    talk = Conversation(ScriptedScheduler(script), max_trials=2, checkpoints=SAVES)
    talk.begin(2)
    pause(talk, "t00000")
    assert starts(talk.report("t00001", 1)) == []
    assert (talk.trial("t00000").status, talk.trial("t00000").reason) == (Status.TERMINATED, LATER)


def test_a_stop_of_a_trial_that_is_on_its_way_into_a_pause_ends_it():
    script = {("t00000", 1): [Pause("t00000", WHY)], ("t00001", 1): [Stop("t00000", LATER)]}
    talk = Conversation(ScriptedScheduler(script), max_trials=2, checkpoints=SAVES)
    talk.begin(2)
    talk.report("t00000", 1)
    talk.report("t00001", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert (talk.trial("t00000").ending, talk.trial("t00000").reason) == (
        TerminationReason.STOPPED_EARLY,
        LATER,
    )


def test_the_first_of_two_stops_gives_the_reason():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY), Stop("t00000", LATER)]}),
        max_trials=1,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").reason == WHY


def test_the_end_of_one_paused_trial_may_still_bring_another_back():
    script = {(trial_id, 1): [Pause(trial_id, WHY)] for trial_id in ("t00000", "t00001", "t00002")}
    talk = Conversation(
        ResumesAtAnEnd(script), max_trials=3, checkpoints=SAVES, capacity={"cpu": 3.0}
    )
    talk.begin(3)
    pause(talk, "t00000")
    pause(talk, "t00001")
    assert starts(pause(talk, "t00002")) == [("t00001", 2)]
    assert [trial.status for trial in talk.experiment.trials] == [
        Status.TERMINATED,
        Status.RUNNING,
        Status.PAUSED,
    ]
    assert talk.trial("t00000").reason == Reason("idle")


def test_a_pause_whose_save_fails_keeps_the_trial_only_if_an_older_checkpoint_exists():
    script = {
        ("t00000", 2): [Pause("t00000", WHY)],
        ("t00000", 1): [Save("t00000", WHY)],
        ("t00001", 1): [Pause("t00001", WHY)],
    }
    talk = Conversation(ScriptedScheduler(script), max_trials=2, checkpoints=SAVES)
    talk.begin(2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.report("t00000", 2)
    talk.exit("t00000", Outcome.STOPPED)
    talk.report("t00001", 1)
    assert (talk.trial("t00000").status, talk.trial("t00000").latest_checkpoint.iteration) == (
        Status.PAUSED,
        1,
    )
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.trial("t00001").status is Status.ERROR


def test_a_trial_whose_worker_dies_before_it_is_paused_is_retried():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}),
        max_trials=1,
        max_failures=1,
        checkpoints=SAVES,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    assert starts(talk.exit("t00000", Outcome.FAILED, BOOM)) == [("t00000", 2)]


def test_a_resumed_trial_that_does_not_fit_yet_waits_and_the_searcher_is_not_asked_in_its_place():
    script = {("t00000", 1): [Pause("t00000", WHY)], ("t00001", 1): [Resume("t00000", WHY)]}
    talk = Conversation(
        ScriptedScheduler(script), max_trials=3, checkpoints=SAVES, max_concurrent=1
    )
    talk.begin(1)
    pause(talk, "t00000")
    talk.say(suggest("t00001"))
    talk.say(WorkerStarted("t00001", 1, 1))
    assert starts(talk.report("t00001", 1)) == []
    assert starts(talk.exit("t00001", Outcome.COMPLETED)) == [("t00000", 2)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            [Stop("t00099", WHY)],
            (
                r"ScriptedScheduler decided Stop for a trial 't00099', which does not exist; it "
                r"has been shown 1 trials"
            ),
        ),
        ([Resume([], WHY)], r"ScriptedScheduler decided Resume for a trial \[\]"),
        (
            ["STOP"],
            (
                r"ScriptedScheduler must return Stop, Pause, Resume, Save, Exploit or Resize, got "
                r"'STOP'"
            ),
        ),
        ("STOP", r"ScriptedScheduler must return a list of decisions, empty for none, got 'STOP'"),
        (None, r"ScriptedScheduler must return a list of decisions, empty for none, got None"),
    ],
)
def test_what_is_no_decision_about_a_trial_is_refused_by_naming_scheduler_and_trial(said, message):
    talk = Conversation(ScriptedScheduler({("t00000", 1): said}), max_trials=1)
    talk.begin(1)
    with pytest.raises(InvalidDecision, match=message):
        talk.report("t00000", 1)
