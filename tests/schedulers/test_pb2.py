import importlib.util
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.population import pb2 as module
from schedulers.population.explore import named_generator
from schedulers.population.pb2 import PB2
from schedulers.population.time_varying_gp import FadingKernel, propose
from tests.schedulers.members import Engine, Toy, View
from tests.tiers import examples

pytestmark = pytest.mark.property  # It fits models of scikit-learn.
BOUNDS = {"lr": [0.0, 2.0], "model": {"width": (1, 64)}}


def pb2(seed=0, **arguments):
    given = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_bounds": BOUNDS,
    }
    scheduler = PB2(**given | arguments)
    scheduler.set_search_properties(None, None, seed=seed)
    return scheduler


def configs(num):
    return [
        {"lr": 2 * number / num, "model": {"width": 1 + number, "kind": "mlp"}}
        for number in range(num)
    ]


def step(state, config, trial):
    """Gain most with lr at 1.5, lose with lr below 0.5."""
    state = (state or 0.0) + 1 - (config["lr"] - 1.5) ** 2
    return state, {"score": state}


@pytest.mark.parametrize("synch", [False, True])
def test_what_is_chosen_stays_within_its_bounds_and_keeps_its_kind(synch):
    engine = Engine(pb2(synch=synch), configs(4), step, ends_at=16).run()
    assert engine.exploits()
    for *_, exploit in engine.exploits():
        assert 0 <= exploit.config["lr"] <= 2
        assert type(exploit.config["lr"]) is float
        assert 1 <= exploit.config["model"]["width"] <= 64
        assert type(exploit.config["model"]["width"]) is int
        assert exploit.config["model"]["kind"] == "mlp"


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_it_learns_which_hyperparameters_improve_the_score(mode, sign):
    def signed(state, config, trial):
        state, metrics = step(state, config, trial)
        return state, {"score": sign * metrics["score"]}

    scheduler = pb2(mode=mode, hyperparam_bounds={"lr": [0.0, 2.0]})
    engine = Engine(scheduler, configs(4), signed, ends_at=24).run()
    late = [exploit.config["lr"] for _, time, exploit in engine.exploits() if time >= 14]
    assert np.median(np.abs(np.array(late) - 1.5)) < 0.35


def test_the_seed_alone_decides():
    first, second, other = (
        repr(Engine(pb2(seed), configs(4), step, ends_at=10).run().decided) for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


def test_a_restart_changes_nothing():
    def restart(engine):
        if engine.num_turns == 7:
            saved = json.loads(json.dumps(engine.scheduler.state_dict(), allow_nan=False))
            engine.scheduler = pb2(9)
            engine.scheduler.load_state_dict(saved)
            engine.scheduler.experiment = engine.view

    original, restarted = (
        Engine(pb2(), configs(5), step, slots=2, ends_at=14),
        Engine(pb2(), configs(5), step, slots=2, ends_at=14),
    )
    restarted.after_turn = restart
    assert repr(restarted.run().decided) == repr(original.run().decided)
    assert original.exploits()


def test_an_interval_is_recorded_with_its_gain_and_no_more_than_so_many(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    scheduler = pb2(mode="min", hyperparam_bounds={"lr": [0.0, 2.0]})
    scheduler.experiment = View(2, 2)
    trial = scheduler.experiment.trials["a"] = Toy("a", {"lr": 0.5}, status="RUNNING")
    for time, score in ((1, 10.0), (2, 9.0), (4, 5.0), (7, 5.0), (8, None), (9, 1.0), (11, 3.0)):
        scheduler.on_trial_result(trial, {"training_iteration": time, "score": score})
    state = scheduler.state_dict()
    # From 4 to 7 nothing was gained, and from 9 to 11 2 were lost; from 7 to 9 came 4 in 2, which
    # is one interval.
    assert state["rows"] == [[3.5, 5.0, 0.25], [4.5, 1.0, 0.25]]
    assert state["gains"] == [4.0, -2.0]


@settings(max_examples=examples(15))
@given(st.integers(3, 30), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_a_proposal_always_lies_in_the_unit_cube(num, num_dimensions, num_busy, is_flat):
    rng = np.random.default_rng(num)
    rows = rng.random((num, 2 + num_dimensions))
    gains = np.zeros(num) if is_flat else rng.standard_normal(num) * 1e6
    unit = propose(
        rows.tolist(),
        gains.tolist(),
        [1e3, -1e3],
        rows[:num_busy].tolist(),
        named_generator("test"),
    )
    assert len(unit) == num_dimensions
    assert all(0 <= each <= 1 for each in unit)


def test_what_others_try_is_avoided():
    rows = [[0.0, 0.0, place] for place in (0.0, 0.5, 1.0)]
    tried = np.array(
        [
            propose(rows, [0, 0, 0], [1, 0.0], [[1, 0.0, 0.25]] * 3, named_generator(str(seed)))[0]
            for seed in range(8)
        ]
    )
    assert (np.abs(tried - 0.25) > 0.1).all()


def test_the_gradient_of_the_kernel_is_right():
    rows = np.random.default_rng(0).random((7, 4)) * [5, 1, 1, 1]
    kernel = FadingKernel(0.3, 0.2)
    similarity, gradient = kernel(rows, eval_gradient=True)
    assert similarity == pytest.approx(kernel(rows, rows))
    assert np.diag(similarity) == pytest.approx(kernel.diag(rows))
    for place in range(2):
        moved = kernel.theta.copy()
        moved[place] += 1e-6
        assert (kernel.clone_with_theta(moved)(rows) - similarity) / 1e-6 == pytest.approx(
            gradient[:, :, place], abs=1e-5
        )


def test_older_rows_count_less():
    rows = np.array([[0.0, 0.5, 0.5], [1.0, 0.5, 0.5], [4.0, 0.5, 0.5]])
    assert FadingKernel(1.0, 0.19)(rows)[0] == pytest.approx([1, 0.9, 0.6561])


def test_the_users_function_is_applied_last():
    engine = Engine(
        pb2(custom_explore_fn=lambda config: {**config, "lr": 1.0, "seen": True}),
        configs(4),
        step,
        ends_at=6,
    ).run()
    assert {
        (exploit.config["lr"], exploit.config["seen"]) for *_, exploit in engine.exploits()
    } == {(1.0, True)}


def test_a_configuration_without_the_hyperparameter_gets_one():
    engine = Engine(
        pb2(),
        [{"number": number} for number in range(4)],
        lambda state, config, trial: (0, {"score": config["number"]}),
        ends_at=4,
    )
    engine.run()
    config = engine.exploits()[0][2].config
    assert 0 <= config["lr"] <= 2
    assert 1 <= config["model"]["width"] <= 64


def test_without_scikit_learn_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError,
        match=r"PB2 needs scikit-learn for its model; install it with: pip install "
        r'"tuner-hpo\[sklearn\]"',
    ):
        pb2()
    assert importlib.util.find_spec("sklearn")


@pytest.mark.parametrize(
    ("bounds", "error", "complaint"),
    [
        (
            None,
            ValueError,
            (
                "hyperparam_bounds must name a hyperparameter, got None; give e.g. {'lr': [1e-4, "
                "1e-1]}"
            ),
        ),
        (
            {"lr": 0.1},
            TypeError,
            "hyperparam_bounds must hold two numbers, got 0.1 for 'lr'; give [low, high]",
        ),
        (
            {"a": {"lr": [1, 2, 3]}},
            TypeError,
            "hyperparam_bounds must hold two numbers, got [1, 2, 3] for 'a/lr'",
        ),
        (
            {"lr": [2, 1]},
            ValueError,
            "hyperparam_bounds must be finite, the lower one first, got [2, 1] for 'lr'",
        ),
        (
            {"lr": [0, float("inf")]},
            ValueError,
            "hyperparam_bounds must be finite, the lower one first, got [0, inf]",
        ),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds, error, complaint):
    with pytest.raises(error) as caught:
        pb2(hyperparam_bounds=bounds)
    assert str(caught.value).startswith(complaint)


def test_the_state_for_other_hyperparameters_is_refused():
    with pytest.raises(ValueError, match="state must come from a scheduler with"):
        pb2().load_state_dict(pb2(hyperparam_bounds={"lr": [0, 1]}).state_dict())
