import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import Exploit, Reason, Save
from schedulers.population.patient_pbt import PatientPopulationBasedTraining
from searchers.space import uniform
from tests.schedulers.members import Engine, Toy, View
from tests.tiers import examples


def patient(seed=0, max_t=100, **arguments):
    scheduler = PatientPopulationBasedTraining(
        max_t,
        **{"hyperparam_mutations": {"lr": uniform(0, 1)}, "metric": "score", "mode": "max"}
        | arguments,
    )
    scheduler.set_search_properties(None, None, seed=seed)
    return scheduler


def rate(state, config, trial):
    state = (state or 0.0) + config["lr"]
    return state, {"score": state}


def turns(scheduler, ends_at):
    """Return the times at which a member that is never cloned is saved."""
    engine = Engine(scheduler, [{"lr": 1.0}, {"lr": 0.0}], rate, ends_at=ends_at).run()
    return [time for trial_id, time in engine.moments_of(Save) if trial_id == "t0"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [1, 2, 4, 8, 16, 32, 46, 57, 66, 73, 79, 84, 88, 91, 93, 95, 96, 97, 98, 99, 100]),
        ({"perturbation_interval": 10}, [10, 20, 36, 49, 60, 70, 80, 90, 100]),
        ({"max_t": 10}, [1, 2, 4, *range(6, 101)]),
    ],
)
def test_intervals_double_and_later_are_a_fifth_of_what_is_left(arguments, expected):
    assert turns(patient(quantile_fraction=0, **arguments), ends_at=100) == expected


def test_an_interval_of_a_clone_begins_at_its_checkpoint():
    engine = Engine(
        patient(synch=True), [{"lr": number / 4} for number in range(4)], rate, ends_at=30
    ).run()
    exploits = [exploit for *_, exploit in engine.exploits()]
    assert [exploit.reason.numbers["time"] for exploit in exploits] == [1, 2, 4, 8, 16]
    assert [exploit.reason.numbers["interval"] for exploit in exploits] == [1, 1, 2, 4, 8]


def test_a_reason_tells_how_long_the_interval_was():
    scheduler = patient()
    scheduler.experiment = View(2, 2)
    for name in "ab":
        trial = scheduler.experiment.trials[name] = Toy(name, {"lr": 0.5}, status="RUNNING")
        scheduler.on_trial_add(trial)
    trials = scheduler.experiment.trials
    scheduler.on_trial_result(trials["a"], {"training_iteration": 1, "score": 0.2})
    trials["a"].keep(1, None)
    scheduler.on_trial_result(trials["a"], {"training_iteration": 1.5, "score": 0.2})
    (exploit, _) = (
        decision
        for decision in scheduler.on_trial_result(
            trials["b"], {"training_iteration": 1.5, "score": 0.1}
        )
        if not isinstance(decision, Save)
    )
    assert isinstance(exploit, Exploit)
    assert exploit.reason == Reason(
        "patient_pbt.exploit",
        {
            "step": 1.5,
            "score": 0.1,
            "donor_score": 0.2,
            "rank": 2,
            "donor_rank": 1,
            "num_compared": 2,
            "time": 1.5,
            "donor_time": 1.5,
            "num_in_quantile": 1,
            "interval": 1.5,
            "donor": "a",
            "turn": 1,
        },
    )


@pytest.mark.parametrize("can_save", [True, False])
def test_a_donor_that_has_trained_since_its_checkpoint_saves_if_it_can(can_save):
    def step(state, config, trial):
        if not can_save and trial.time % 3 == 0:
            trial.keep(trial.time, state)
        return rate(state, config, trial)

    engine = Engine(
        patient(),
        [{"lr": number / 4} for number in range(4)],
        step,
        ends_at=60,
        # Members that report late have their turns between those of the others.
        is_slow=lambda trial_id, turn: trial_id == "t0" and turn % 3 == 0,
        can_save=can_save,
    ).run()
    exploits = [exploit for *_, exploit in engine.exploits()]
    assert exploits
    behind = [
        exploit.reason.numbers["donor_time"] - exploit.reason.numbers["checkpoint_iteration"]
        for exploit in exploits
        if exploit.checkpoint is not None
    ]
    assert (max(behind, default=0) == 0) == can_save


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"max_t": -1}, ValueError, "max_t must be at least 0 and finite, got -1"),
        ({"max_t": float("inf")}, ValueError, "max_t must be at least 0 and finite, got inf"),
        ({"max_t": "long"}, TypeError, "max_t must be a number, got 'long'"),
    ],
)
def test_a_length_of_training_that_makes_no_sense_is_refused(arguments, error, complaint):
    with pytest.raises(error) as caught:
        patient(**arguments)
    assert str(caught.value).startswith(complaint)


@pytest.mark.property
@settings(max_examples=examples(80))
@given(
    num=st.integers(1, 8),
    slots=st.integers(1, 8),
    synch=st.booleans(),
    can_save=st.booleans(),
    max_t=st.integers(0, 40),
    cut=st.integers(1, 20),
    data=st.data(),
)
def test_every_population_ends_and_survives_a_restart(
    *, num, slots, synch, can_save, max_t, cut, data
):
    fails = data.draw(
        st.sets(
            st.tuples(st.sampled_from([f"t{number}" for number in range(num)]), st.integers(1, 15)),
            max_size=4,
        )
    )
    gaps = data.draw(st.lists(st.integers(1, 4), min_size=num, max_size=num))

    def sparse(state, config, trial):
        if not can_save and trial.time % 3 == 0:
            trial.keep(trial.time, state)
        state, metrics = rate(state, config, trial)
        return state, {} if trial.time % gaps[int(trial.trial_id[1:])] else metrics

    def restart(engine):
        if engine.num_turns == cut:
            saved = json.loads(json.dumps(engine.scheduler.state_dict(), allow_nan=False))
            engine.scheduler = patient(3, max_t, synch=synch)
            engine.scheduler.load_state_dict(saved)
            engine.scheduler.experiment = engine.view

    def play(after_turn):
        options = {"slots": min(slots, num), "ends_at": 25, "fails": fails, "can_save": can_save}
        engine = Engine(
            patient(0, max_t, synch=synch),
            [{"lr": number / num} for number in range(num)],
            sparse,
            **options,
        )
        engine.after_turn = after_turn
        return engine.run()

    engine = play(lambda engine: None)
    assert all(exploit.donor_id != trial_id for trial_id, _, exploit in engine.exploits())
    assert repr(play(restart).decided) == repr(engine.decided)
