import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import Exploit, Pause, Save
from schedulers.population.mf_pbt import MFPopulationBasedTraining
from searchers.space import uniform
from tests.schedulers.members import Engine, Toy, View
from tests.tiers import examples


def mf_pbt(seed=0, **arguments):
    given = {
        "hyperparam_mutations": {"lr": uniform(0, 1)},
        "frequencies": (1, 2),
        "perturbation_interval": 2,
    }
    scheduler = MFPopulationBasedTraining(
        **{"time_attr": "training_iteration", "metric": "score", "mode": "max"} | given | arguments
    )
    scheduler.set_search_properties(None, None, seed=seed)
    return scheduler


def population(scheduler, num):
    scheduler.experiment = View(num, num)
    for number in range(num):
        trial = Toy(f"t{number}", {"lr": number / 10, "name": number})
        scheduler.experiment.trials[trial.trial_id] = trial
        scheduler.on_trial_add(trial)
        trial.status = "RUNNING"
    return scheduler.experiment.trials


def report(scheduler, time, scores):
    """Let each trial report, and keep a checkpoint if it saves or pauses; return all decisions."""
    decided = []
    for name, score in scores.items():
        trial = scheduler.experiment.trials[name]
        decisions = list(
            scheduler.on_trial_result(trial, {"training_iteration": time, "score": score})
        )
        for decision in decisions:
            if isinstance(decision, Save | Pause):
                scheduler.experiment.trials[decision.trial_id].keep(time, None)
            if isinstance(decision, Pause):
                trial.status = "PAUSED"
        decided += decisions
    return decided


def wake(scheduler):
    paused = [trial for trial in scheduler.experiment.trials.values() if trial.status == "PAUSED"]
    decisions = scheduler.on_idle(paused, 8)
    for trial in paused:
        trial.status = "RUNNING"
    return [decision for decision in decisions if isinstance(decision, Exploit)]


FIRST = {"t0": 0.8, "t2": 0.6, "t4": 0.4, "t6": 0.2, "t1": 0.7, "t3": 0.9, "t5": 0.1, "t7": 0.05}


def test_two_generations_match_a_calculation_by_hand():
    scheduler = mf_pbt(synch=True)
    population(scheduler, 8)
    decided = report(scheduler, 2, FIRST)
    assert {
        type(decision) for decision in decided if decision.trial_id in ("t1", "t3", "t5", "t7")
    } == {Save}
    migration, clone = sorted(wake(scheduler), key=lambda exploit: exploit.trial_id)
    # The fast sub-population: third of four takes all of the slower t3, the last becomes a varied
    # clone of the first.
    assert (migration.trial_id, migration.donor_id, migration.config) == (
        "t4",
        "t3",
        {"lr": 0.3, "name": 3},
    )
    assert migration.reason.rule == "mf_pbt.migrate"
    assert (clone.trial_id, clone.donor_id, clone.config["name"], clone.reason.rule) == (
        "t6",
        "t0",
        0,
        "mf_pbt.exploit",
    )
    assert 0 <= clone.config["lr"] <= 1
    later = {name: score + 0.5 for name, score in FIRST.items()} | {"t0": 1.6}
    report(scheduler, 4, later)
    exploits = {exploit.trial_id: exploit for exploit in wake(scheduler)}
    # The slow one: t5, third, takes the weights of the faster t0 with the hyperparameters of its
    # own best, t3; t7 is cloned from t3.
    assert (exploits["t5"].donor_id, exploits["t5"].config) == ("t0", {"lr": 0.3, "name": 3})
    expected = {
        "donor": "t0",
        "config_from": "t3",
        "sub_population": 1,
        "donor_sub_population": 0,
        "rank": 5,
        "donor_rank": 1,
    }
    assert expected.items() <= exploits["t5"].reason.numbers.items()
    assert (exploits["t7"].donor_id, exploits["t7"].reason.rule) == ("t3", "mf_pbt.exploit")


def test_no_member_migrates_to_worse_weights():
    scheduler = mf_pbt(synch=True)
    population(scheduler, 8)
    report(scheduler, 2, FIRST | {"t1": 0.3, "t3": 0.3})
    assert [exploit.trial_id for exploit in wake(scheduler)] == ["t6"]


def test_the_best_of_all_others_go_one_each_to_the_third_quarter():
    scheduler = mf_pbt(synch=True, frequencies=(1, 9), hyperparam_mutations=None)
    population(scheduler, 16)
    scores = {
        f"t{number}": 1 - number / 100 if number % 2 else 0.5 - number / 100 for number in range(16)
    }
    report(scheduler, 2, scores)
    exploits = {
        exploit.trial_id: (exploit.donor_id, exploit.config["name"]) for exploit in wake(scheduler)
    }
    assert exploits == {"t8": ("t1", 1), "t10": ("t3", 3), "t12": ("t0", 0), "t14": ("t2", 2)}


def test_without_generations_each_evolves_in_its_own_turn():
    scheduler = mf_pbt(perturbation_interval=1)
    engine = Engine(
        scheduler,
        [{"lr": number / 8} for number in range(8)],
        lambda state, config, trial: (0, {"score": config["lr"] * trial.time}),
    )
    reasons = [exploit.reason for *_, exploit in engine.run().exploits()]
    assert {reason.rule for reason in reasons} == {"mf_pbt.exploit", "mf_pbt.migrate"}
    assert all(
        reason.numbers["turn"] % (1, 2)[reason.numbers["sub_population"]] == 0 for reason in reasons
    )
    assert all(reason.numbers["step"] >= reason.numbers["time"] - 2 for reason in reasons)


def test_fast_sub_populations_lend_no_hyperparameters():
    """A rate that pays at once but is poor in the end stays in the fast sub-population.

    This is the purpose of the asymmetry.
    """

    def step(state, config, trial):
        state = (state or 0.0) + config["lr"]
        return state, {"score": state}

    scheduler = mf_pbt(hyperparam_mutations=None, frequencies=(1, 4))
    engine = Engine(
        scheduler,
        [{"lr": 1.0 if number % 2 == 0 else 0.1 + number / 100} for number in range(8)],
        step,
        ends_at=40,
    ).run()
    migrations = [
        exploit for *_, exploit in engine.exploits() if exploit.reason.rule == "mf_pbt.migrate"
    ]
    assert migrations
    assert all(
        trial.config["lr"] < 1 for number, trial in enumerate(engine.trials.values()) if number % 2
    )


def test_a_population_too_small_for_sub_populations_is_one_and_the_user_is_told():
    scheduler = mf_pbt(synch=True)
    population(scheduler, 7)
    (remark,) = scheduler.remarks
    assert remark.startswith(
        "sub-populations at the frequencies (1, 2) need 8 members, 4 each, to be ranked in "
        "quarters, got 7, which evolve at (1,); set"
    )
    report(scheduler, 2, {f"t{number}": number / 10 for number in range(7)})
    (exploit,) = wake(scheduler)
    assert (exploit.trial_id, exploit.donor_id) == ("t0", "t6")
    scheduler = mf_pbt()
    population(scheduler, 8)
    assert scheduler.remarks == ()


@pytest.mark.parametrize(
    ("frequencies", "error", "complaint"),
    [
        ((), TypeError, "frequencies must be a list of whole numbers, got ()"),
        ("12", TypeError, "frequencies must be a list of whole numbers, got '12'"),
        ((1, 2.5), TypeError, "frequencies must be whole numbers, got 2.5"),
        ((0, 2), ValueError, "frequencies must grow, from 1 at least, got (0, 2)"),
        ((2, 2), ValueError, "frequencies must grow, from 1 at least, got (2, 2)"),
    ],
)
def test_frequencies_that_make_no_sense_are_refused(frequencies, error, complaint):
    with pytest.raises(error) as caught:
        mf_pbt(frequencies=frequencies)
    assert str(caught.value).startswith(complaint)


def test_the_state_of_other_sub_populations_is_refused():
    with pytest.raises(ValueError, match="state must come from a scheduler with"):
        mf_pbt().load_state_dict(mf_pbt(frequencies=(1, 3)).state_dict())


@pytest.mark.property
@settings(max_examples=examples(60))
@given(
    num=st.integers(8, 12),
    slots=st.integers(1, 12),
    synch=st.booleans(),
    can_save=st.booleans(),
    cut=st.integers(1, 20),
    data=st.data(),
)
def test_every_population_ends_and_survives_a_restart(*, num, slots, synch, can_save, cut, data):
    fails = data.draw(
        st.sets(
            st.tuples(st.sampled_from([f"t{number}" for number in range(num)]), st.integers(1, 15)),
            max_size=6,
        )
    )

    def step(state, config, trial):
        state = (state or 0.0) + config["lr"]
        if not can_save and trial.time % 3 == 0:
            trial.keep(trial.time, state)
        return state, {"score": None if trial.time % 7 == 0 else state}

    def restart(engine):
        if engine.num_turns == cut:
            saved = json.loads(json.dumps(engine.scheduler.state_dict(), allow_nan=False))
            engine.scheduler = mf_pbt(3, synch=synch)
            engine.scheduler.load_state_dict(saved)
            engine.scheduler.experiment = engine.view

    def play(after_turn):
        options = {"slots": min(slots, num), "ends_at": 15, "fails": fails, "can_save": can_save}
        engine = Engine(
            mf_pbt(synch=synch), [{"lr": number / num} for number in range(num)], step, **options
        )
        engine.after_turn = after_turn
        return engine.run()

    engine = play(lambda engine: None)
    assert all(exploit.donor_id != trial_id for trial_id, _, exploit in engine.exploits())
    assert repr(play(restart).decided) == repr(engine.decided)


def test_members_stay_in_their_sub_populations_if_a_restored_experiment_gets_more():
    scheduler = mf_pbt()
    population(scheduler, 7)
    restored = mf_pbt()
    restored.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    restored.experiment = View(12, 12)
    restored.on_trial_add(Toy("t7", {}))
    assert {restored._group(member) for member in restored._members.values()} == {
        "sub-population 0"
    }
