"""What scheduler and stopper have said counts, and is read back rather than asked again."""

from schedulers.decisions import Pause, Reason, Resume, Stop
from tests.core.conversation import ScriptedScheduler
from tuner.core.policies import Policies, RecordedDecision, StopExperiment
from tuner.core.stoppers import (
    CombinedStopper,
    FunctionStopper,
    NoopStopper,
    TimeoutStopper,
    stopper_from,
)
from tuner.core.trial import Trial

WHY = Reason("rule", {"value": 1.0})
TRIAL = Trial("t00000", {}, {"cpu": 1.0})
RESULT = {"training_iteration": 1, "loss": 0.5}


def result_of(policies, recorded=None):
    policies.begin(recorded)
    return policies.on_trial_result(TRIAL, {**RESULT, "config": {}}, RESULT)


def test_the_stop_criterion_is_heard_before_the_scheduler():
    policies = Policies(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}),
        FunctionStopper(lambda _, result: "config" in result),
    )
    stop, pause = result_of(policies)
    assert stop == Stop("t00000", Reason("stop", {"training_iteration": 1}), is_complete=True)
    assert pause == Pause("t00000", WHY)
    assert policies.given == [RecordedDecision(0, stop), RecordedDecision(0, pause)]


def test_the_stop_criterion_says_which_of_its_numbers_were_reached():
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


def test_what_was_recorded_counts_and_scheduler_and_stopper_hear_of_it_all_the_same():
    scheduler = ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]})
    seen = []
    policies = Policies(scheduler, FunctionStopper(lambda trial_id, _: seen.append(trial_id)))
    assert result_of(policies, recorded=()) == []
    recorded = (RecordedDecision(0, Pause("t00000", WHY)),)
    assert result_of(policies, recorded) == [Pause("t00000", WHY)]
    assert policies.given == list(recorded)
    assert scheduler.heard == [("result", "t00000")] * 2
    assert seen == ["t00000"] * 2


def test_changes_of_mind_are_counted_and_other_numbers_are_none():
    policies = Policies(ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]}), NoopStopper())
    result_of(
        policies,
        recorded=(RecordedDecision(0, Stop("t00000", Reason("rule", {"value": float("nan")}))),),
    )
    assert policies.num_deviations == 0
    for recorded in (
        (),
        (RecordedDecision(0, Pause("t00000", WHY)),),
        (RecordedDecision(0, Stop("t00000", Reason("other"))),),
    ):
        result_of(policies, recorded)
    assert policies.num_deviations == 3


def test_each_question_of_an_event_gets_the_answer_it_was_given():
    policies = Policies(
        ScriptedScheduler(idle=[[Resume("t00000", WHY)], [], [Stop("t00000", WHY)]]), NoopStopper()
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
    policies.begin((RecordedDecision(0, StopExperiment(WHY)),))
    assert policies.reason_to_end(1.0) == WHY
    policies.begin(None)
    assert policies.reason_to_end(20.0) == Reason("stopper.stop_all")
