import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import Exploit, Pause, Reason, Resume, Save
from schedulers.population.members import MAX_POINTS, CurvePoint, Member, ScoreCurve, compare
from schedulers.population.pbt import PopulationBasedTraining
from searchers.space import loguniform, uniform
from tests.schedulers.members import Engine, Toy, View
from tests.tiers import examples

NAN = math.nan


def pbt(seed=0, **arguments):
    scheduler = PopulationBasedTraining(
        **{
            "time_attr": "training_iteration",
            "metric": "score",
            "mode": "max",
            "perturbation_interval": 2,
            "hyperparam_mutations": {"lr": uniform(0, 1)},
        }
        | arguments
    )
    scheduler.set_search_properties(None, None, seed=seed)
    return scheduler


def population(scheduler, *names, slots=None, **view):
    """Give the scheduler running trials, and return them by name."""
    scheduler.experiment = View(len(names), slots or len(names), **view)
    for name in names:
        trial = Toy(name, {"lr": 0.5, "name": name})
        scheduler.experiment.trials[name] = trial
        scheduler.on_trial_add(trial)
        trial.status = "RUNNING"
    return scheduler.experiment.trials


def report_one(scheduler, name, time, score, **more):
    return list(
        scheduler.on_trial_result(
            scheduler.experiment.trials[name], {"training_iteration": time, "score": score} | more
        )
    )


def kinds(decisions):
    return [(type(decision).__name__, decision.trial_id) for decision in decisions]


def saved(trial, iteration):
    trial.checkpoints.append((iteration, None))


# ---- a conversation by hand


def test_a_small_asynchronous_history_goes_as_worked_out_by_hand():
    scheduler = pbt()
    trials = population(scheduler, "a", "b", "c", "d")
    for name, score in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True):
        assert report_one(scheduler, name, 1, score) == []  # no interval is over
    # Each trial at 2 is compared with the others at 1 until they reach 2: a is the worst of four.
    exploit, resume = report_one(scheduler, "a", 2, 0.9)[1:]
    assert (exploit.trial_id, exploit.donor_id, exploit.checkpoint) == ("a", "d", None)
    assert exploit.reason == Reason(
        "pbt.exploit",
        {
            "step": 1.0,
            "score": 0.1,
            "donor_score": 0.4,
            "rank": 4,
            "donor_rank": 1,
            "num_compared": 4,
            "time": 2.0,
            "donor_time": 1.0,
            "num_in_quantile": 1,
            "donor": "d",
            "turn": 1,
        },
    )
    assert kinds([resume]) == [("Resume", "a")]
    # a now has the state of d, and no newer result.
    assert kinds(report_one(scheduler, "b", 2, 0.25)) == [
        ("Save", "d"),
        ("Exploit", "b"),
        ("Resume", "b"),
    ]
    assert kinds(report_one(scheduler, "c", 2, 0.35)) == [
        ("Save", "d"),
        ("Exploit", "c"),
        ("Resume", "c"),
    ]
    assert kinds(report_one(scheduler, "d", 2, 0.5)) == [("Save", "d")]  # the others are its clones
    saved(trials["d"], 2)
    assert report_one(scheduler, "d", 3, 0.6) == []


def test_the_new_configuration_varies_the_donors():
    scheduler = pbt(resample_probability=0)
    trials = population(scheduler, "a", "b")
    trials["b"].config = {"lr": 0.3, "name": "b"}
    saved(trials["b"], 1)
    report_one(scheduler, "a", 1, 0.1)
    report_one(scheduler, "b", 1, 0.2)
    exploit, _ = report_one(scheduler, "a", 2, 0.3)
    assert exploit.config["lr"] in (pytest.approx(0.5), pytest.approx(0.1))
    assert exploit.config["name"] == "b"
    assert exploit.checkpoint == 0
    assert exploit.reason.numbers["checkpoint_iteration"] == 1
    assert trials["b"].config == {"lr": 0.3, "name": "b"}


def test_a_generation_is_decided_when_all_have_come():
    scheduler = pbt(synch=True)
    trials = population(scheduler, "a", "b", "c")
    for name, score in (("a", 0.3), ("b", 0.1), ("c", 0.2)):
        assert (
            scheduler.on_idle([trial for trial in trials.values() if trial.status == "PAUSED"], 3)
            == []
        )
        (pause,) = report_one(scheduler, name, 2, score)
        assert pause == Pause(
            name, Reason("pbt.generation", {"time": 2.0, "score": score, "turn": 1})
        )
        assert report_one(scheduler, name, 2, score) == [pause]  # lost before it could pause
        trials[name].status = "PAUSED"
        saved(trials[name], 2)
    decisions = scheduler.on_idle(list(trials.values()), 3)
    assert kinds(decisions) == [("Exploit", "b"), ("Resume", "a"), ("Resume", "b"), ("Resume", "c")]
    assert (decisions[0].donor_id, decisions[0].checkpoint) == ("a", 0)
    assert decisions[0].reason.numbers["step"] == 2


@pytest.mark.parametrize("end", ["ERROR", "TERMINATED"])
def test_a_generation_does_not_wait_for_ended_members(end):
    scheduler = pbt(synch=True)
    trials = population(scheduler, "a", "b", "c")
    for name, score in (("a", 0.1), ("b", 0.3)):
        report_one(scheduler, name, 2, score)
        trials[name].status = "PAUSED"
        saved(trials[name], 2)
    assert scheduler.on_idle([trials["a"], trials["b"]], 1) == []
    trials["c"].status = end
    over = (
        scheduler.on_trial_error(trials["c"])
        if end == "ERROR"
        else scheduler.on_trial_complete(trials["c"], None)
    )
    assert over == ()
    decisions = scheduler.on_idle([trials["a"], trials["b"]], 1)
    assert kinds(decisions) == [("Exploit", "a"), ("Resume", "a"), ("Resume", "b")]


def test_a_failure_in_each_generation_blocks_no_member():
    engine = Engine(
        pbt(synch=True),
        [{"lr": number / 6} for number in range(6)],
        curve,
        fails=[("t0", 2), ("t3", 5), ("t5", 11)],
    )
    engine.run()
    assert Counter(trial.status for trial in engine.trials.values()) == {
        "TERMINATED": 3,
        "ERROR": 3,
    }


# ---- equal resource


def curve(state, config, trial):
    state = (state or 0.0) + config["lr"]
    return state, {"score": state}


def test_two_identical_members_in_a_fixed_order_exploit_each_other():
    engine = Engine(
        pbt(perturbation_interval=1),
        [{"lr": 0.5}] * 2,
        lambda state, config, trial: (None, {"score": float(trial.time)}),
    )
    engine.ends_at = 60
    engine.run()
    targets = Counter(trial_id for trial_id, *_ in engine.exploits())
    assert min(targets["t0"], targets["t1"]) >= 5


@pytest.mark.parametrize("order", ["abcd", "dcba"])
def test_who_reports_last_does_not_look_best(order):
    # Everybody gets better all the time, a fastest; at their own latest steps the last to report
    # would be best.
    scheduler = pbt(quantile_fraction=0.25)
    trials = population(scheduler, *order)
    slopes = dict(zip("abcd", (1.0, 0.99, 0.98, 0.97), strict=True))
    for trial in trials.values():
        saved(trial, 1)
    targets = set()
    for time in (1, 2):
        for name in order:
            decisions = report_one(scheduler, name, time, slopes[name] * time)
            targets |= {
                (each.trial_id, each.donor_id) for each in decisions if isinstance(each, Exploit)
            }
    assert ("d", "a") in targets
    assert not any(target == "a" for target, _ in targets)


def test_slow_members_are_compared_where_they_are():
    fast, slow = Member("fast", 0), Member("slow", 1)
    for time in range(1, 101):
        fast.record(CurvePoint(time, float(time)))
    for time in (1, 2):
        slow.record(CurvePoint(time, 10.0 * time))
    slow.stride = fast.stride = 1
    assert compare(slow, [fast], "max", "").members == (slow, fast)
    assert compare(slow, [fast], "max", "").step == 2
    assert compare(fast, [slow], "max", "").members == (fast,)


def test_equal_scores_are_ordered_by_the_seed():
    members = [
        Member(name, number, ScoreCurve([CurvePoint(1, 0.5)])) for number, name in enumerate("abcd")
    ]
    firsts = Counter(
        compare(members[0], members[1:], "min", str(seed)).members[0].trial_id
        for seed in range(400)
    )
    assert all(70 <= firsts[name] <= 130 for name in "abcd")


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_has_diverged_is_worst_whatever_it_was_before(mode):
    good, bad = (
        Member("good", 0, ScoreCurve([CurvePoint(1, 1.0), CurvePoint(2, 1.0)])),
        Member("bad", 1, ScoreCurve([CurvePoint(1, 1.0), CurvePoint(2, NAN)])),
    )
    assert compare(good, [bad], mode, "").members == (good, bad)
    assert compare(bad, [good], mode, "").members == (good, bad)


def test_diverged_members_are_not_cloned():
    scheduler = pbt()
    population(scheduler, "a", "b")
    report_one(scheduler, "a", 2, NAN)
    assert kinds(report_one(scheduler, "b", 2, None)) == [("Save", "b")]


@pytest.mark.parametrize(
    ("num", "fraction", "size"),
    [(2, 0.25, 1), (3, 0.5, 1), (3, 0.25, 1), (30, 0.1, 3), (5, 0.25, 2), (1, 0.5, 0), (4, 0, 0)],
)
def test_the_best_and_the_worst_never_overlap(num, fraction, size):
    members = [
        Member(str(number), number, ScoreCurve([CurvePoint(1, float(number))]))
        for number in range(num)
    ]
    assert compare(members[0], members[1:], "min", "").quantile_size(fraction) == size


def test_a_clone_is_judged_by_results_of_its_own():
    scheduler = pbt(perturbation_interval=1)
    trials = population(scheduler, "a", "b")
    saved(trials["b"], 1)
    report_one(scheduler, "a", 1, 0.1)
    report_one(scheduler, "b", 1, 0.9)
    assert kinds(report_one(scheduler, "a", 2, 0.2)) == [("Exploit", "a"), ("Resume", "a")]
    # "a" has only inherited scores.
    assert kinds(report_one(scheduler, "b", 2, 0.95)) == [("Save", "b")]
    assert report_one(scheduler, "a", 1, 0.9) == []  # a repetition
    assert kinds(report_one(scheduler, "a", 2, 0.99))[-1] == ("Save", "a")  # b is the worse one now
    assert Exploit in {type(decision) for decision in report_one(scheduler, "b", 3, 0.97)}


def test_a_checkpoint_of_abandoned_weights_is_not_used():
    scheduler = pbt(perturbation_interval=1)
    trials = population(scheduler, "a", "b", "c")
    for name in "abc":
        saved(trials[name], 1)
    for name, score in (("a", 0.1), ("b", 0.9), ("c", 0.5)):
        report_one(scheduler, name, 1, score)
    assert report_one(scheduler, "a", 2, 0.1)[0].donor_id == "b"
    report_one(scheduler, "b", 2, 0.9)
    report_one(scheduler, "a", 2, 2.0)
    save, exploit, _ = report_one(scheduler, "c", 2, 0.5)
    assert (save.trial_id, exploit.donor_id, exploit.checkpoint) == ("a", "a", None)
    saved(trials["a"], 3)
    report_one(scheduler, "a", 3, 2.5)
    exploit, _ = report_one(scheduler, "b", 3, 0.9)
    assert (exploit.donor_id, exploit.checkpoint) == ("a", 1)


# ---- donors


def test_a_member_that_has_ended_stays_a_donor_one_that_failed_does_not():
    for status, expected in (("TERMINATED", "a"), ("ERROR", "b")):
        scheduler = pbt()
        trials = population(scheduler, "a", "b", "c")
        for name, score in (("a", 0.9), ("b", 0.8), ("c", 0.1)):
            report_one(scheduler, name, 1, score)
            saved(trials[name], 1)
        trials["a"].status = status
        assert (
            next(
                each for each in report_one(scheduler, "c", 2, 0.2) if isinstance(each, Exploit)
            ).donor_id
            == expected
        )


def test_a_donor_without_a_checkpoint_is_skipped_if_no_trial_saves_on_demand():
    scheduler = pbt()
    trials = population(scheduler, "a", "b", "c", can_save=False)
    for name, score in (("a", 0.9), ("b", 0.5), ("c", 0.1)):
        assert report_one(scheduler, name, 1, score) == []
    assert report_one(scheduler, "c", 2, 0.2) == []
    assert scheduler.remarks == [
        (
            "no trial can be paused or cloned, since none has saved a checkpoint so far; save "
            "one at "
            "every perturbation_interval"
        )
    ]
    saved(trials["a"], 1)
    assert kinds(report_one(scheduler, "c", 4, 0.2)) == [("Exploit", "c"), ("Resume", "c")]


def test_a_donor_that_ends_without_a_checkpoint_leaves_its_clone_as_it_was():
    scheduler = pbt()
    trials = population(scheduler, "a", "b")
    report_one(scheduler, "a", 1, 0.1)
    report_one(scheduler, "b", 1, 0.9)
    assert kinds(report_one(scheduler, "a", 2, 0.2)) == [
        ("Save", "b"),
        ("Exploit", "a"),
        ("Resume", "a"),
    ]
    trials["b"].status = "ERROR"
    scheduler.on_trial_error(trials["b"])
    assert scheduler.state_dict()["members"][0]["curve"] == [[1.0, 0.1, 1], [2.0, 0.2, 2]]
    assert report_one(scheduler, "a", 3, 0.3) == []


# ---- intervals


def test_the_interval_counts_from_the_result_that_ended_the_last_one():
    scheduler = pbt(perturbation_interval=10, burn_in_period=25)
    population(scheduler, "a", "b")
    times = [
        time for time in (4, 9, 13, 22, 23, 31, 33, 34, 60) if report_one(scheduler, "a", time, 1.0)
    ]
    # 13 and 23 end intervals, but at 13 not even the next turn lies after the burn-in.
    assert times == [
        23,
        33,
        60,
    ]


def test_there_are_no_clones_before_the_burn_in():
    engine = Engine(
        pbt(perturbation_interval=1, burn_in_period=8), [{"lr": 0.1}, {"lr": 0.9}], curve
    ).run()
    assert min(time for _, time, _ in engine.exploits()) == 8


# ---- shared slots


def members_drift(engine):
    times = [trial.time for trial in engine.trials.values() if not trial.is_over]
    return max(times) - min(times) if times else 0


def test_no_member_pauses_if_all_fit_in():
    engine = Engine(pbt(), [{"lr": number / 4} for number in range(4)], curve).run()
    assert engine.moments_of(Pause) == []
    assert engine.moments_of(Save) != []


def test_members_pause_for_each_other_and_new_ones_come_first():
    engine = Engine(pbt(quantile_fraction=0), [{"lr": 0.5}] * 3, curve, slots=1, ends_at=4).run()
    assert engine.moments_of(Pause)[:3] == [("t0", 2), ("t1", 2), ("t2", 2)]
    assert engine.moments_of(Resume)[:3] == [("t0", 2), ("t1", 2), ("t2", 2)]
    reason = engine.decided[0][2].reason
    assert reason == Reason("pbt.share", {"time": 2.0, "score": 1.0, "turn": 1})


@settings(max_examples=examples(150))
@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 4), st.data())
def test_while_one_waits_no_other_trains_much_more_than_an_interval(num, slots, interval, data):
    slow = data.draw(st.sets(st.sampled_from(range(num))))
    engine = Engine(
        pbt(quantile_fraction=0, perturbation_interval=interval),
        [{"lr": 0.5}] * num,
        curve,
        slots=min(slots, num),
        is_slow=lambda trial_id, turn: int(trial_id[1:]) in slow and turn % 3 > 0,
        ends_at=12,
    )
    began = {}

    def check(engine):
        for trial in engine.alive("PAUSED"):
            then = began.setdefault(
                (trial.trial_id, trial.time),
                {other.trial_id: other.time for other in engine.trials.values()},
            )
            for other in engine.trials.values():
                assert other.time <= max(then.get(other.trial_id, 0), trial.time) + interval + 1

    engine.after_turn = check
    engine.run()


@settings(max_examples=examples(40))
@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 4))
def test_members_that_are_equally_fast_stay_within_an_interval(num, slots, interval):
    engine = Engine(
        pbt(quantile_fraction=0, perturbation_interval=interval),
        [{"lr": 0.5}] * num,
        curve,
        slots=min(slots, num),
        ends_at=12,
    )
    drifts = []
    engine.after_turn = lambda engine: drifts.append(
        members_drift(engine) if not engine.waiting else 0
    )
    engine.run()
    assert max(drifts) <= interval + 1


# ---- what users may get wrong


def test_the_size_of_the_population_must_be_known():
    scheduler = pbt()
    with pytest.raises(
        ValueError,
        match="the size of the population must be known, got a search without end; set num_samples",
    ):
        scheduler.on_trial_add(Toy("a", {}))


def test_a_population_of_one_is_remarked_upon():
    scheduler = pbt()
    population(scheduler, "a")
    assert scheduler.remarks == [
        ("a population of one has no donor; set num_samples to the size of the population")
    ]


@pytest.mark.parametrize(
    "result",
    [{}, {"score": 1.0}, {"training_iteration": 2}, {"training_iteration": 2, "score": "1"}],
)
def test_a_result_in_which_something_is_missing_decides_nothing(result):
    for require_attrs, num_remarks in ((True, 1), (False, 0)):
        scheduler = pbt(require_attrs=require_attrs)
        trials = population(scheduler, "a", "b")
        assert [*scheduler.on_trial_result(trials["a"], result)] == []
        assert "results without a number under" in scheduler.debug_string()
        assert len(scheduler.remarks) >= num_remarks
        assert bool(scheduler.remarks) == require_attrs


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"perturbation_interval": 0},
            ValueError,
            "perturbation_interval must be more than 0 and finite, got 0",
        ),
        (
            {"perturbation_interval": "5"},
            TypeError,
            "perturbation_interval must be a number, got '5'",
        ),
        (
            {"burn_in_period": -1},
            ValueError,
            "burn_in_period must be at least 0 and finite, got -1",
        ),
        (
            {"quantile_fraction": 0.6},
            ValueError,
            "quantile_fraction must be between 0 and 0.5, got 0.6",
        ),
        (
            {"hyperparam_mutations": None},
            ValueError,
            "hyperparam_mutations must name a hyperparameter, got None; say how it may change",
        ),
        ({"mode": "most"}, ValueError, "mode must be 'min', 'max' or None, got 'most'"),
        (
            {"time_attr": ""},
            ValueError,
            "time_attr must be the name of an entry of each result, got ''",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        pbt(**arguments)
    assert str(caught.value).startswith(complaint)


def test_a_missing_metric_is_refused_before_the_first_trial():
    with pytest.raises(
        ValueError,
        match="metric must be the name of a metric, got None; give it to TuneConfig or to P",
    ):
        PopulationBasedTraining(mode="min", custom_explore_fn=dict).set_search_properties(
            None, None, seed=0
        )


def test_it_needs_the_whole_population_and_has_the_defaults_of_ray_tune():
    scheduler = PopulationBasedTraining(hyperparam_mutations={"lr": loguniform(1e-4, 1)})
    assert PopulationBasedTraining.needs_population
    assert scheduler.log_config
    assert scheduler.declared_arguments.keys() == {"hyperparam_mutations"}


def test_the_state_of_another_metric_is_refused():
    with pytest.raises(ValueError, match="state must come from a scheduler with"):
        pbt().load_state_dict(pbt(metric="loss").state_dict())


# ---- the paper


def quadratic(theta, config, trial):
    """Train on the surrogate; report the true objective (Jaderberg et al. 2017, figure 2)."""
    theta = tuple(
        value - 0.01 * 2 * config[name] * value
        for name, value in zip(("h0", "h1"), theta, strict=True)
    )
    return theta, {"score": 1.2 - theta[0] ** 2 - theta[1] ** 2}


SURROGATES = [{"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 1.0}]


def best_of(engine):
    return max(1.2 - sum(value**2 for value in trial.state) for trial in engine.trials.values())


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_two_member_quadratic_of_the_paper(seed, synch):
    mutations = {"h0": uniform(0, 1), "h1": uniform(0, 1)}
    for fraction, reached in (
        (0, pytest.approx(0.39, abs=1e-3)),
        (0.25, pytest.approx(1.2, abs=0.01)),
    ):
        scheduler = pbt(
            seed,
            hyperparam_mutations=mutations,
            perturbation_interval=10,
            quantile_fraction=fraction,
            synch=synch,
        )
        engine = Engine(scheduler, SURROGATES, quadratic, start=(0.9, 0.9), ends_at=400).run()
        assert best_of(engine) == reached


# ---- for all populations


@settings(max_examples=examples(150))
@given(
    num=st.integers(1, 8),
    slots=st.integers(1, 8),
    synch=st.booleans(),
    can_save=st.booleans(),
    interval=st.integers(1, 6),
    burn_in=st.sampled_from([0, 7]),
    seed=st.integers(0, 3),
    data=st.data(),
)
def test_every_population_ends_and_donors_are_there(
    *, num, slots, synch, can_save, interval, burn_in, seed, data
):
    fails = data.draw(
        st.sets(
            st.tuples(st.sampled_from([f"t{number}" for number in range(num)]), st.integers(1, 15)),
            max_size=4,
        )
    )
    gaps = data.draw(st.lists(st.integers(1, 4), min_size=num, max_size=num))

    def make(seed):
        return pbt(seed, perturbation_interval=interval, burn_in_period=burn_in, synch=synch)

    def sparse(state, config, trial):
        state = (state or 0.0) + config["lr"]
        if not can_save and trial.time % 3 == 0:
            trial.keep(trial.time, state)
        if trial.time % gaps[int(trial.trial_id[1:])]:
            return state, {}
        return state, {"score": NAN if trial.time % 7 == 0 else state}

    def play(after_turn):
        engine = Engine(
            make(seed),
            [{"lr": number / num} for number in range(num)],
            sparse,
            slots=min(slots, num),
            ends_at=15,
            fails=fails,
            can_save=can_save,
        )
        engine.after_turn = after_turn
        return engine.run()

    def restart(engine):
        if engine.num_turns == 4:
            restored = make(seed + 1)
            restored.load_state_dict(
                json.loads(json.dumps(engine.scheduler.state_dict(), allow_nan=False))
            )
            restored.experiment = engine.view
            engine.scheduler = restored

    engine = play(lambda engine: None)
    for trial_id, _, exploit in engine.exploits():
        assert exploit.donor_id != trial_id
        json.dumps(exploit.reason.numbers, allow_nan=False)
    assert repr(play(restart).decided) == repr(engine.decided)


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=20, unique=True).map(sorted),
    st.floats(-10, 110),
)
def test_a_curve_lies_between_its_neighbours(times, step):
    curve = ScoreCurve(CurvePoint(time, time * 2 + 1) for time in times)
    expected = 2 * min(max(step, times[0]), times[-1]) + 1
    assert curve.at(step) == pytest.approx(expected)


def test_a_curve_stays_short_and_keeps_its_ends():
    curve = ScoreCurve()
    for time in range(1, 1000):
        assert curve.add(CurvePoint(time, float(time), time))
    assert not curve.add(CurvePoint(999, 0.0))
    assert len(curve.points) <= MAX_POINTS
    assert curve.points[0].time == 1
    assert curve.at(500.5) == pytest.approx(500.5)
    assert curve.until(980).time == 980
    assert ScoreCurve.from_state(json.loads(json.dumps(curve.state_dict()))).points == curve.points
