import math

import pytest

from schedulers.halving.asha import ASHAScheduler
from schedulers.halving.rungs import RushThresholds
from tests.schedulers.play import Actor, Play, Stage


def asha(kind, **arguments):
    return ASHAScheduler(
        **{
            "metric": "loss",
            "mode": "min",
            "max_t": 9,
            "reduction_factor": 3,
            "type": kind,
            "num_threshold_candidates": 2,
        }
        | arguments
    )


def started(kind, names="abcdef", **arguments):
    scheduler, stage = asha(kind, **arguments), Stage()
    scheduler.experiment = stage
    for trial_id in names:
        stage.trials[trial_id] = Actor(trial_id, status="RUNNING")
        scheduler.on_trial_add(stage.trials[trial_id])
    return scheduler, stage


def reported(scheduler, stage, trial_id, time, loss):
    said = scheduler.on_trial_result(
        stage.trials[trial_id], {"training_iteration": time, "loss": loss}
    )
    return [(type(decision).__name__, decision.trial_id, decision.reason.rule) for decision in said]


def test_stopping_takes_the_best_known_value_for_a_bar():
    scheduler, stage = started("stopping", reduction_factor=2)
    assert reported(scheduler, stage, "a", 1, 0.5) == []
    assert reported(scheduler, stage, "c", 1, 0.5) == []  # as good as the bar
    assert reported(scheduler, stage, "d", 1, 0.6) == [("Stop", "d", "asha.rung")]
    assert reported(scheduler, stage, "b", 1, 0.3) == []  # lowers the bar
    assert reported(scheduler, stage, "e", 1, 0.4) == [
        ("Stop", "e", "asha.known_good")
    ]  # second of five
    assert reported(scheduler, stage, "f", 1, 0.2) == []


def test_a_stop_at_the_bar_tells_where_it_was():
    scheduler, stage = started("stopping", reduction_factor=1.1)
    reported(scheduler, stage, "a", 1, 0.5)
    (stop,) = scheduler.on_trial_result(stage.trials["c"], {"training_iteration": 1, "loss": 0.6})
    assert {
        "threshold": 0.5,
        "value": 0.6,
        "rank": 2,
        "num_kept": 2,
    }.items() <= stop.reason.numbers.items()
    assert list(
        scheduler.on_trial_result(stage.trials["c"], {"training_iteration": 2, "loss": 0.1})
    ) == [stop]


def test_known_trials_are_compared_as_all_others():
    scheduler, stage = started("stopping")
    reported(scheduler, stage, "c", 1, 0.1)
    assert reported(scheduler, stage, "a", 1, 0.5) == [("Stop", "a", "asha.rung")]


def test_large_values_clear_the_bar_in_mode_max():
    scheduler, stage = started("stopping", mode="max", reduction_factor=1.1)
    reported(scheduler, stage, "a", 1, 0.5)
    assert reported(scheduler, stage, "c", 1, 0.6) == []
    assert reported(scheduler, stage, "d", 1, 0.4) == [("Stop", "d", "asha.known_good")]


def test_each_level_has_a_bar_of_its_own():
    scheduler, stage = started("stopping", reduction_factor=1.1, max_t=2)
    reported(scheduler, stage, "a", 1, 0.5)
    assert reported(scheduler, stage, "c", 1, 0.5) == []
    assert reported(scheduler, stage, "c", 1.5, 0.9) == []


def test_promotion_stops_whoever_waits_below_the_bar():
    scheduler, stage = started("promotion", reduction_factor=1.5)
    assert reported(scheduler, stage, "c", 1, 0.5) == [("Pause", "c", "asha.rung")]
    assert reported(scheduler, stage, "a", 1, 0.4) == [
        ("Stop", "c", "asha.known_good"),
        ("Pause", "a", "asha.rung"),
    ]
    assert reported(scheduler, stage, "d", 1, 0.6) == [("Stop", "d", "asha.known_good")]
    assert reported(scheduler, stage, "b", 1, 0.6) == [
        ("Pause", "b", "asha.rung")
    ]  # known: it need not clear the bar
    assert reported(scheduler, stage, "e", 1, 0.4) == [("Pause", "e", "asha.rung")]


@pytest.mark.parametrize("kind", ["promotion", "stopping"])
def test_known_good_trials_save_training_where_they_are_good(kind):
    losses = {"a": 0.2, "b": 0.3} | {f"t{number:02d}": 1 - number / 40 for number in range(20)}
    curves = {name: lambda time, loss=loss: loss for name, loss in losses.items()}
    spent = {}
    for known in (0, 2):
        ends = (
            Play(asha(kind, num_threshold_candidates=known), curves, 2, max_trials=22)
            .run()
            .stopped()
        )
        assert ends["a"][0] == 9
        spent[known] = sum(time for time, _ in ends.values())
    assert spent[2] < spent[0]


def test_nan_sets_no_bar_and_clears_none():
    known_good = RushThresholds(1)
    for name in ("a", "b"):
        known_good.join(name)
    known_good.record("a", 1, math.nan, "min")
    assert known_good.admits("b", 1, math.nan, "min")
    assert math.isnan(known_good.threshold(1))
    known_good.record("a", 1, 0.5, "min")
    assert not known_good.admits("b", 1, math.nan, "min")
    assert known_good.admits("a", 1, math.nan, "min")


def test_the_state_goes_on_where_it_was():
    known_good, restored = RushThresholds(2), RushThresholds(2)
    for name in ("a", "b", "c"):
        known_good.join(name)
    known_good.record("b", 3, 0.5, "max")
    known_good.record("c", 3, 0.9, "max")
    restored.load_state_dict(known_good.state_dict())
    assert restored.state_dict() == {"names": ["a", "b"], "thresholds": [[3, 0.5]]}
