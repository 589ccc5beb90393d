"""Benchmark of population methods: its problems, and populations in virtual time."""

import numpy as np
import pytest

from benchmarks.quality.peers.dialogue import CONTINUE, STOP
from benchmarks.quality.populations.peer import run_peer_population
from benchmarks.quality.populations.problems import (
    Digits,
    NoisyNetwork,
    NoisyQuadratic,
    Problem,
    cancer_batches,
    diabetes_input_noise,
    friedman_batches,
    mislabelled_digits,
)
from benchmarks.quality.populations.running import Outcome, durations_of, run_population
from schedulers import PopulationBasedTraining

SMALL = {"num_dimensions": 10, "num_epochs": 20}


def pbt(**options):
    return PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations=NoisyQuadratic.space,
        **options,
    )


def test_the_best_constant_scores_one_and_no_schedule_less_than_zero():
    problem = NoisyQuadratic(**SMALL)
    constants = [problem.expected_score([rate] * 20) for rate in np.geomspace(1e-3, 1.0, 100)]
    assert min(constants) == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    falling = (np.sort(rng.uniform(-7, 0, 20))[::-1] for _ in range(50))
    assert min(problem.expected_score(np.exp(logs).tolist()) for logs in falling) >= 0


def test_the_expected_loss_is_that_of_many_trainings():
    problem = NoisyQuadratic(**SMALL)
    rng = np.random.default_rng(0)
    losses, state = [], problem.start(rng)
    for _ in range(2000):
        state = problem.start(rng)
        for rate in (0.5, 0.1):
            state = problem.train(state, {"lr": rate}, rng)
        losses.append(problem.loss(state))
    expected = 0.5 * (problem._curvatures * state[1]).sum()
    assert np.mean(losses) == pytest.approx(expected, abs=4 * np.std(losses) / np.sqrt(2000))


def test_the_gradients_of_the_network_are_those_of_its_loss():
    problem = Digits()
    rng = np.random.default_rng(0)
    state = problem.start(rng)
    before = problem.loss(state)
    for _ in range(5):
        state = problem.train(state, {"lr": 0.05, "weight_decay": 1e-6}, rng)
    assert problem.loss(state) < before / 5
    assert problem.score(state) == pytest.approx(problem.loss(state), rel=0.5)


@pytest.mark.parametrize(
    "make_problem",
    [mislabelled_digits, friedman_batches, diabetes_input_noise, cancer_batches],
)
def test_a_noisy_network_learns_what_is_true_of_other_examples(make_problem):
    problem = make_problem()
    rng = np.random.default_rng(0)
    state = problem.start(rng)
    loss, score = problem.loss(state), problem.score(state)
    for _ in range(10):
        state = problem.train(state, {"lr": 0.01, "weight_decay": 0.01}, rng)
    assert problem.loss(state) < loss
    assert problem.score(state) < 0.8 * score


@pytest.mark.parametrize("targets", [np.eye(3)[[0, 1, 2, 2] * 4], np.arange(16.0)[:, None] / 8])
def test_the_updates_of_a_noisy_network_go_down_the_slope_of_its_loss(targets):
    inputs = np.random.default_rng(1).standard_normal((16, 5))
    problem = NoisyNetwork(inputs, targets, {}, is_classification=targets.shape[1] > 1)
    state = problem.start(np.random.default_rng(0))
    rate = 1e-3
    config = {"lr": rate, "weight_decay": 0.0, "batch_size": 4}
    after = problem.train(state, config, np.random.default_rng(0))

    def training_loss(bias):
        # The slope of the squared error is twice that of which updates go down.
        half = 1 if problem._is_classification else 0.5
        weights = [*state[:3], bias]
        return half * problem._loss(weights, problem._inputs, problem._targets)

    for place in range(targets.shape[1]):
        step = 1e-5 * np.eye(targets.shape[1])[place]
        slope = (training_loss(state[3] + step) - training_loss(state[3] - step)) / 2e-5
        assert (after[3] - state[3])[place] == pytest.approx(-rate * slope, rel=1e-4)


def test_small_batches_make_epochs_long():
    problem = friedman_batches()
    epochs = [problem.duration({"batch_size": size}) for size in (4, 16, 64)]
    assert epochs == [2.5, 1.0, 0.625]
    assert mislabelled_digits().duration({}) == 1.0


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_a_population_clones_and_the_same_seed_gives_the_same_outcome(is_asynchronous):
    outcomes = [
        run_population(
            NoisyQuadratic(**SMALL),
            pbt(synch=not is_asynchronous),
            3,
            num_members=4,
            is_asynchronous=is_asynchronous,
        )
        for _ in range(2)
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].num_clones
    assert (outcomes[0].duration == 20) != is_asynchronous


class Counting(Problem):
    """Counts the epochs of weights, of which those with the largest sum of rates are the best."""

    num_epochs = 20
    space = NoisyQuadratic.space

    def start(self, rng):
        return np.zeros(1), np.zeros(1)

    def train(self, state, config, rng):
        return state[0] + 1, state[1] + config["lr"]

    def loss(self, state):
        return -float(state[1][0])

    def score(self, state):
        return float(state[0][0])


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_clone_continues_with_the_weights_of_its_donor(seed, is_asynchronous):
    outcome = run_population(
        Counting(),
        pbt(synch=not is_asynchronous),
        seed,
        num_members=6,
        is_asynchronous=is_asynchronous,
    )
    assert outcome.num_clones
    assert outcome.score == Counting.num_epochs


class Replacing:
    """A method of another project that replaces the first trial after ten epochs by a fourth."""

    def __init__(self):
        self.setting = None
        self.reports = []
        self._orders = [(str(number), None) for number in range(3)]

    def ask(self, do, **facts):
        if do == "begin":
            self.setting = facts["setting"]
            return {}
        if do == "ask":
            name, source = self._orders.pop(0)
            return {"trial": name, "config": {"lr": 0.1 + int(name)}, "source": source}
        self.reports.append((facts["trial"], facts["epoch"], facts["value"]))
        if (facts["trial"], facts["epoch"]) == ("0", 10):
            self._orders.append(("3", "2"))
            return {"verdict": STOP}
        return {"verdict": CONTINUE}


def run_replacing(method, *, is_asynchronous):
    return run_peer_population(
        method.ask, "any", Counting(), 0, interval=5, num_members=3, is_asynchronous=is_asynchronous
    )


def test_a_trial_of_another_project_continues_with_the_state_of_its_source():
    method = Replacing()
    outcome = run_replacing(method, is_asynchronous=False)
    assert outcome == Outcome(score=20, duration=21, num_clones=1)
    values = {(name, epoch): -value for name, epoch, value in method.reports}
    # In step, the third trial has been trained for nine epochs when the first is replaced at ten.
    assert ("0", 11) not in values
    assert ("3", 9) not in values
    assert values["3", 10] == pytest.approx(9 * 2.1 + 3.1)
    assert values["3", 20] == pytest.approx(9 * 2.1 + 11 * 3.1)
    axis = {"name": "lr", "scale": "float", "log": True, "low": 1e-3, "high": 1.0}
    assert method.setting["space"] == [axis]


def test_workers_of_another_project_are_as_fast_as_members_of_ours():
    outcome = run_replacing(Replacing(), is_asynchronous=True)
    first, second, third = durations_of(0, 3, is_asynchronous=True)
    num_donor_epochs = min(int(10 * first / third), 20)
    ends = [10 * first + (20 - num_donor_epochs) * first, 20 * second, 20 * third]
    assert outcome.duration == pytest.approx(max(ends))
