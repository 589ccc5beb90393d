"""What scheduler and stopper have said counts, and is read back rather than asked again."""

from schedulers.decisions import Pause, Reason, Resume, Stop
from tests.core.conversation import ScriptedScheduler
from tuner.core.policies import Advice, Counsel, StopAll
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


def result_of(counsel, recorded=None):
    counsel.begin(recorded)
    return counsel.on_trial_result(TRIAL, {**RESULT, "config": {}}, RESULT)


def test_the_stop_criterion_is_heard_before_the_scheduler():
    counsel = Counsel(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}),
        FunctionStopper(lambda _, result: "config" in result),
    )
    stop, pause = result_of(counsel)
    assert stop == Stop("t00000", Reason("stop", {"training_iteration": 1}), is_complete=True)
    assert pause == Pause("t00000", WHY)
    assert counsel.given == [Advice(0, stop), Advice(0, pause)]


def test_the_stop_criterion_says_which_of_its_numbers_were_reached():
    counsel = Counsel(
        ScriptedScheduler(),
        stopper_from({"loss": "<= 0.5", "accuracy": 0.9, "training_iteration": 9}),
    )
    assert result_of(counsel) == [
        Stop("t00000", Reason("stop", {"training_iteration": 1, "loss": 0.5}), is_complete=True)
    ]
    several = CombinedStopper(FunctionStopper(lambda *_: False), stopper_from({"loss": 0.1}))
    assert result_of(Counsel(ScriptedScheduler(), several))[0].reason.numbers == {
        "training_iteration": 1,
        "loss": 0.5,
    }


def test_what_was_recorded_counts_and_scheduler_and_stopper_hear_of_it_all_the_same():
    scheduler = ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]})
    seen = []
    counsel = Counsel(scheduler, FunctionStopper(lambda trial_id, _: seen.append(trial_id)))
    assert result_of(counsel, recorded=()) == []
    recorded = (Advice(0, Pause("t00000", WHY)),)
    assert result_of(counsel, recorded) == [Pause("t00000", WHY)]
    assert counsel.given == list(recorded)
    assert scheduler.heard == [("result", "t00000")] * 2
    assert seen == ["t00000"] * 2


def test_changes_of_mind_are_counted_and_other_numbers_are_none():
    counsel = Counsel(ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]}), NoopStopper())
    result_of(
        counsel, recorded=(Advice(0, Stop("t00000", Reason("rule", {"value": float("nan")}))),)
    )
    assert counsel.num_changes_of_mind == 0
    for recorded in (
        (),
        (Advice(0, Pause("t00000", WHY)),),
        (Advice(0, Stop("t00000", Reason("other"))),),
    ):
        result_of(counsel, recorded)
    assert counsel.num_changes_of_mind == 3


def test_each_question_of_an_event_gets_the_answer_it_was_given():
    counsel = Counsel(
        ScriptedScheduler(idle=[[Resume("t00000", WHY)], [], [Stop("t00000", WHY)]]), NoopStopper()
    )
    counsel.begin(None)
    first = [counsel.on_idle([TRIAL], 1) for _ in range(3)]
    recorded = tuple(counsel.given)
    assert [said.question for said in recorded] == [0, 2]
    forgetful = Counsel(ScriptedScheduler(), NoopStopper())
    forgetful.begin(recorded)
    assert [forgetful.on_idle([TRIAL], 1) for _ in range(3)] == first


def test_the_end_of_the_experiment_is_a_decision_too():
    counsel = Counsel(ScriptedScheduler(), TimeoutStopper(10.0), time_budget_s=5.0)
    assert counsel.next_s == 5.0
    counsel.begin(None)
    assert counsel.reason_to_end(4.0) is None
    assert counsel.reason_to_end(5.0) == Reason("time_budget", {"budget_s": 5.0, "elapsed_s": 5.0})
    counsel.time_budget_s = None
    counsel.begin(())
    assert counsel.reason_to_end(20.0) is None, "it was not over then"
    counsel.begin((Advice(0, StopAll(WHY)),))
    assert counsel.reason_to_end(1.0) == WHY
    counsel.begin(None)
    assert counsel.reason_to_end(20.0) == Reason("stopper.stop_all")
