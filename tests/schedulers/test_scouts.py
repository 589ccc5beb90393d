import json

import pytest

from schedulers import ASHAScheduler
from tests.schedulers.play import Actor, Play


def asha(**arguments):
    fixed = {
        "metric": "loss",
        "mode": "min",
        "max_t": 9,
        "reduction_factor": 3,
        "later_grace_period": 3,
        "num_scouts": 3,
    }
    return ASHAScheduler(**{"type": "promotion"} | fixed | arguments)


def play(scheduler, **losses):
    return Play(
        scheduler,
        {name: lambda time, loss=loss: loss for name, loss in losses.items()},
        num_slots=1,
    ).run()


def is_scout(scheduler, name):
    actor = Actor(name, status="RUNNING")
    scheduler.on_trial_add(actor)
    return bool(scheduler.on_trial_result(actor, {"training_iteration": 1, "loss": 0.5}))


def test_only_the_first_trials_wait_at_the_lowest_level():
    told = play(asha(), a=0.5, b=0.4, c=0.6, d=0.7, e=0.3)
    pauses = [
        (
            decision.trial_id,
            decision.reason.numbers["rung"],
            decision.reason.numbers["num_recorded"],
        )
        for decision in told.decisions
        if decision.reason.rule == "asha.rung"
    ]
    # Whoever comes later is compared at 3 for the first time, with the scout that was promoted
    # there.
    assert pauses == [("a", 1, 1), ("b", 1, 2), ("c", 1, 3), ("b", 3, 1), ("d", 3, 2), ("e", 3, 3)]
    assert told.stage.trials["e"].time == 9


def test_trials_that_stop_are_judged_as_late():
    scheduler = asha(type="stopping", num_scouts=1)
    answers = []
    for name in ("scout", "late"):
        actor = Actor(name, status="RUNNING")
        scheduler.on_trial_add(actor)
        for time in (1, 3):
            loss = 0.1 if name == "scout" else 0.9
            answers.append(
                [
                    said.reason.rule
                    for said in scheduler.on_trial_result(
                        actor, {"training_iteration": time, "loss": loss}
                    )
                ]
            )
    assert answers == [[], [], [], ["asha.rung"]]


def test_whoever_begins_before_the_scouts_are_back_is_one():
    scheduler = asha(num_scouts=1)
    early = [Actor(name, status="RUNNING") for name in "abc"]
    for actor in early:
        scheduler.on_trial_add(actor)
    assert all(
        scheduler.on_trial_result(actor, {"training_iteration": 1, "loss": 0.5}) for actor in early
    )
    assert not is_scout(scheduler, "late")


def test_levels_that_later_trials_pass_are_not_skipped():
    scheduler = asha(num_scouts=0)
    play(scheduler, a=0.5, b=0.4, c=0.6)
    assert "level 1: 0 recorded, 0 skipped" in scheduler.debug_string()


def test_a_grace_period_between_levels_is_that_of_the_next():
    scheduler = asha(later_grace_period=2, num_scouts=0)
    told = play(scheduler, a=0.5, b=0.4, c=0.6)
    assert [
        decision.reason.numbers["rung"]
        for decision in told.decisions
        if decision.reason.rule == "asha.rung"
    ] == [3, 3, 3]


def test_scouts_are_known_again_after_a_restore():
    first = asha()
    results = {"training_iteration": 1, "loss": 0.5}
    first.on_trial_add(Actor("a", status="RUNNING"))
    first.on_trial_result(Actor("a", status="RUNNING"), results)
    second = asha()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert [is_scout(second, name) for name in "bcd"] == [True, True, False]
    with pytest.raises(ValueError, match="num_scouts"):
        asha(num_scouts=4).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"later_grace_period": 10}, ValueError, "between grace_period=1 and max_t=9, got 10"),
        (
            {"later_grace_period": 2, "grace_period": 3},
            ValueError,
            "between grace_period=3 and max_t=9, got 2",
        ),
        ({"later_grace_period": "3"}, TypeError, "later_grace_period must be a number"),
        ({"num_scouts": -1}, ValueError, "num_scouts must be at least 0"),
    ],
)
def test_nonsense_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        asha(**arguments)
