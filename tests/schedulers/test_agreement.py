import json
import math
import random
import re

import pytest

from schedulers import ASHAScheduler
from schedulers.halving.agreement import MAX_TRIALS, PROBE_SHARE, RankAgreement
from tests.schedulers.play import Actor

NUM_TRIALS = 90


def asha(**arguments):
    fixed = {
        "metric": "loss",
        "mode": "min",
        "max_t": 27,
        "reduction_factor": 3,
        "later_grace_period": "auto",
        "type": "stopping",
    }
    return ASHAScheduler(**fixed | arguments)


def random_losses(num_trials=NUM_TRIALS, seed=0):
    rng = random.Random(seed)  # noqa: S311
    return {f"t{number}": rng.random() for number in range(num_trials)}


def reliable(loss, time):
    return loss + 1 / time


def misleading(loss, time):
    """Curves that cross when two thirds of the training are over."""
    return (loss - 1) * (time - 18) / 9 + 1


def noisy_below_9(loss, time):
    return loss if time >= 9 else random.Random(f"{loss}/{time}").random()  # noqa: S311


def train(scheduler, losses, curve, sign=1):
    """Train one trial after the other; return all decisions with their times."""
    decided = []
    for name, loss in losses.items():
        actor = Actor(name, status="RUNNING")
        scheduler.on_trial_add(actor)
        for time in range(1, 28):
            result = {"training_iteration": time, "loss": sign * curve(loss, time)}
            decisions = list(scheduler.on_trial_result(actor, result))
            decided += [(name, time, decision.reason) for decision in decisions]
            if decisions:
                break
        scheduler.on_trial_complete(actor, result)
    return decided


def stops_at(decided, time):
    return [name for name, at, reason in decided if at == time and reason.rule == "asha.rung"]


def test_with_little_evidence_trials_are_compared_at_the_usual_level():
    decided = train(asha(), random_losses(8), reliable)
    assert stops_at(decided, 9)
    assert not stops_at(decided, 1) + stops_at(decided, 3)


def test_where_the_order_holds_from_the_beginning_new_trials_are_compared_there():
    scheduler = asha()
    decided = train(scheduler, random_losses(), reliable)
    assert stops_at(decided[-10:], 1)
    assert "compared from 1 on" in scheduler.debug_string()
    remarks = list(scheduler.remarks)
    assert [remark.split(":")[0] for remark in remarks] == [
        "ASHA compares new trials from 1 training_iteration on, instead of 9"
    ]


def test_where_low_levels_are_noise_the_usual_one_is_kept():
    scheduler = asha()
    decided = train(scheduler, random_losses(), noisy_below_9)
    assert stops_at(decided[-10:], 9)
    assert not stops_at(decided, 1) + stops_at(decided, 3)
    assert not scheduler.remarks


def test_the_reason_for_a_lower_level_is_what_speaks_for_it():
    agreement = RankAgreement((1, 3, 9, 27), reduction_factor=3)
    for number in range(60):
        for index, value in enumerate([-number, number, number]):
            agreement.note(f"t{number}", index, float(value), first=2)
    index, evidence = agreement.first_comparison(usual=2)
    assert index == 1
    assert agreement.described(evidence) == "20 of the 20 best at 9 were among the best at 3"


def test_where_the_usual_level_misleads_new_trials_are_trained_to_the_end():
    scheduler = asha()
    decided = train(scheduler, random_losses(), misleading)
    assert stops_at(decided[:20], 9)
    assert [time for _, time, _ in decided[-10:]] == [27] * 10
    assert scheduler.remarks[-1].startswith(
        "ASHA compares new trials from 27 training_iteration on, instead of 9: 0 of the "
    )


def test_a_level_that_agrees_with_a_misleading_one_is_not_believed():
    # From 1 to 9 the order is the same, and reversed at the end.
    scheduler = asha()
    decided = train(scheduler, random_losses(), misleading)
    assert not stops_at(decided, 1) + stops_at(decided, 3)


def test_evidence_of_a_change_for_the_worse_revises_the_choice():
    scheduler = asha()
    train(scheduler, random_losses(), reliable)
    assert "compared from 1 on" in scheduler.debug_string()
    losses = {f"later {name}": loss for name, loss in random_losses(300, seed=1).items()}
    train(scheduler, losses, noisy_below_9)
    assert "compared from 1 on" not in scheduler.debug_string()


def test_decisions_say_from_where_on_a_trial_is_compared_and_why():
    decided = train(asha(type="promotion"), random_losses(), noisy_below_9)
    first, *_, last = [reason.numbers for _, time, reason in decided if time == 9]
    assert (first["compared_from"], first["evidence"]) == (9, "none yet")
    assert last["compared_from"] == 9
    assert last["evidence"].endswith("best at 9 were among the best at 3")


def test_a_part_of_the_trials_is_compared_late_nevertheless():
    scheduler = asha()
    train(scheduler, random_losses(), reliable)
    bad = {f"bad{number}": 5.0 + number for number in range(60)}
    decided = train(scheduler, bad, lambda loss, time: loss)
    levels = [time for _, time, _ in decided if time < 27]
    assert set(levels) == {1, 9}
    assert 0.5 * PROBE_SHARE < levels.count(9) / len(bad) < 2 * PROBE_SHARE


def stagnating(loss, time):
    return loss if loss < 1 else loss + time


def test_the_longer_nothing_better_is_found_the_more_trials_are_spared_all_comparisons():
    scheduler = asha()
    train(scheduler, random_losses(20), reliable)
    losses = {f"bad{number}": 5.0 + number for number in range(400)}
    times = [time for _, time, _ in train(scheduler, losses, stagnating)]
    shares = [times[begin : begin + 100].count(27) / 100 for begin in range(0, 400, 100)]
    assert shares[0] < shares[-1]
    assert 0.2 < shares[-1] < 0.6


def test_a_decision_says_that_a_trial_was_spared_comparisons():
    scheduler = asha()
    train(scheduler, random_losses(20), reliable)
    decided = train(scheduler, {f"bad{number}": 5.0 + number for number in range(99)}, stagnating)
    why = [reason.numbers["evidence"] for _, time, reason in decided if time == 27]
    assert re.search(r"trained to the end, since the latest \d\d% of all training had", why[-1])


def test_trials_are_compared_later_if_the_best_of_those_that_were_spared_would_have_been_dropped():
    agreement = RankAgreement((1, 3, 9), reduction_factor=3)
    for number in range(30):
        for index in range(3):
            agreement.note(f"t{number}", index, float(number), first=1)
    for number in range(4):
        assert agreement.first_comparison(usual=1)[0] == 0
        for index, value in enumerate([0.5, 99.0, -1.0]):
            agreement.note(f"spared{number}", index, value, first=2)
    index, evidence = agreement.first_comparison(usual=1)
    assert index == 2
    assert agreement.described(evidence) == (
        "0 of the 4 best at 9 that were not compared at 3 were among the best at 3"
    )


def test_large_values_are_good_in_mode_max():
    small = train(asha(), random_losses(), reliable)
    large = train(asha(mode="max"), random_losses(), reliable, sign=-1)
    assert [(name, time) for name, time, _ in small] == [(name, time) for name, time, _ in large]


def test_a_metric_that_is_not_defined_at_first_is_no_evidence():
    decided = train(
        asha(), random_losses(), lambda loss, time: math.nan if time < 9 else reliable(loss, time)
    )
    assert not stops_at(decided, 1) + stops_at(decided, 3)


def test_equal_values_are_no_evidence():
    decided = train(asha(max_t=27), random_losses(), lambda loss, time: 0.5)
    assert {time for _, time, _ in decided} == {27}  # all tie, and survive
    scheduler = asha()
    train(scheduler, random_losses(), lambda loss, time: 0.5)
    assert "compared from 9 on" in scheduler.debug_string()


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
@pytest.mark.parametrize("curve", [reliable, misleading])
def test_a_restored_scheduler_decides_the_same(kind, curve):
    losses = random_losses()
    first_half = dict(list(losses.items())[:50])
    second_half = dict(list(losses.items())[50:])
    first = asha(type=kind, num_scouts=3, brackets=2)
    train(first, first_half, curve)
    second = asha(type=kind, num_scouts=3, brackets=2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    assert second.state_dict() == first.state_dict()
    assert train(first, second_half, curve) == train(second, second_half, curve)
    assert second.state_dict() == first.state_dict()


def test_evidence_comes_from_the_latest_trials():
    agreement = RankAgreement((1, 3), reduction_factor=3)
    for number in range(2 * MAX_TRIALS):
        agreement.note(f"t{number}", 0, float(number), first=1)
    assert len(agreement.state_dict()) == MAX_TRIALS
    assert agreement.state_dict()[0][0] == f"t{MAX_TRIALS}"


def test_the_first_value_at_a_level_counts():
    agreement = RankAgreement((1, 3), reduction_factor=3)
    agreement.note("a", 0, 0.5, first=1)
    agreement.note("a", 0, 0.1, first=1)
    assert agreement.state_dict() == [["a", 1, [[0, 0.5]]]]


def test_a_state_of_an_earlier_version_is_restored():
    first = asha()
    train(first, random_losses(30), reliable)
    state = first.state_dict()
    for added in ("stagnation", "spared", "freeze_thaw"):
        del state[added]
    second = asha()
    second.load_state_dict(state)
    assert second.state_dict()["agreement"] == first.state_dict()["agreement"]
