import math

import pytest

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from schedulers.decisions import Reason
from searchers import BasicVariantGenerator
from searchers.objectives.outcome_constraint import outcome_constraints
from tuner.core.commands import AttemptFailed, TrialEnded, TrialPaused
from tuner.core.events import SKIPPED, SearchEnded
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import Failure
from tuner.spec.experiment_spec import make_spec
from tuner.stopping.stop_search import StopSearch
from tuner.stopping.telling import why_search_ended
from tuner.stopping.watch import Goals, SearchWatch, Turn, turn_of
from tuner.testing import simulate

LOSS = Goals((("loss", "min"),))


def ended(loss, ending=TerminationReason.COMPLETED, **others):
    trial = Trial("t0", {}, {}, "")
    trial.last_result = {"loss": loss, **others}
    trial.summarise(trial.last_result)
    trial.ending = ending
    return trial


def curve(config):
    for epoch in range(1, 4):
        loss = config["x"] ** 2 + 1 / epoch
        yield {"loss": loss, "score": -loss, "size": config["x"]}


def run(train=curve, **settings):
    given = {
        "metric": "loss",
        "mode": "min",
        "num_samples": 200,
        "seed": 1,
        "search_alg": BasicVariantGenerator(),
        "stop_search": "auto",
    }
    return simulate(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(**(given | settings)),
    )


def end_of(simulation):
    return next(
        (each.event.why for each in simulation.history if isinstance(each.event, SearchEnded)), None
    )


@pytest.mark.parametrize("num_samples", [200, -1])
def test_a_search_ends_before_its_last_sample_and_says_why(num_samples):
    simulation = run(num_samples=num_samples)
    why = end_of(simulation)
    assert 60 <= len(simulation.grid) == why.numbers["num_trials"] < 200
    assert why.numbers["gain"] + why.numbers["deviation"] <= why.numbers["worth"]
    of = " of 200" if num_samples > 0 else ""
    assert f"stopped after {len(simulation.grid)}{of} trials: the next 20" in why_search_ended(why)
    assert {str(trial.ending) for trial in simulation.grid.trials} == {"completed"}


def test_a_larger_value_is_better_with_mode_max():
    assert len(run(metric="score", mode="max").grid) == len(run().grid) < 200


@pytest.mark.parametrize("never", [None, "never"])
def test_without_it_all_samples_are_run(never):
    simulation = run(stop_search=never, num_samples=100)
    assert len(simulation.grid) == 100
    assert end_of(simulation) is None


def test_patience_ends_a_search():
    simulation = run(stop_search=StopSearch(patience=10, min_trials=15))
    assert 15 <= len(simulation.grid) < 60
    assert "the last 10 trials have gained 0 loss" in why_search_ended(end_of(simulation))


def a_trade_off(config):
    yield {"loss": config["x"] ** 2, "cost": (config["x"] - 0.5) ** 2, "size": config["x"]}


BOTH = {"metric": ["loss", "cost"], "mode": "min", "constraints": {"size": "<= 0.25"}}


def test_a_search_with_several_metrics_ends_when_its_front_no_longer_grows():
    simulation = run(a_trade_off, stop_search=StopSearch(min_delta=0.05), num_samples=120, **BOTH)
    why, num = end_of(simulation), len(simulation.grid)
    assert 60 <= num == why.numbers["num_trials"] < 120
    assert why.numbers["metrics"] == "loss, cost"
    told = why_search_ended(why)
    assert f"stopped after {num} of 120 trials: the next 20 trials are expected to gain " in told
    assert " % of the hypervolume of loss, cost, and 5 % would be worth them" in told


def test_patience_ends_a_search_with_several_metrics_by_its_feasible_trials():
    simulation = run(a_trade_off, stop_search=StopSearch(patience=20, min_trials=20), **BOTH)
    last = [result.config["x"] for result in simulation.grid][-20:]
    assert end_of(simulation).numbers["gain"] == 0.0
    # All trials between the best of both metrics are on the front; those beyond are infeasible.
    assert not any(0 <= x <= 0.25 for x in last)
    assert any(0.25 < x < 0.5 for x in last)


def test_a_scheduler_may_pause_trials_beside_it():
    simulation = run(
        scheduler=ASHAScheduler(max_t=3, reduction_factor=2),
        stop_search=StopSearch(patience=10, min_trials=20),
    )
    assert end_of(simulation)
    assert any(trial.iteration == 3 for trial in simulation.grid.trials)
    assert all(trial.is_finished for trial in simulation.grid.trials)


def test_only_a_full_training_has_a_value():
    assert turn_of(TrialEnded(ended(2.0)), LOSS) == Turn("t0", (2.0,), (2.0,))
    assert turn_of(TrialEnded(ended(2.0)), Goals((("loss", "max"),))) == Turn(
        "t0", (-2.0,), (-2.0,)
    )
    stopped = ended(2.0, TerminationReason.STOPPED_EARLY)
    failure = Failure("ValueError", "bad")
    for notice in (
        AttemptFailed(ended(2.0), failure, will_retry=False),
        TrialEnded(ended(math.nan)),
        TrialEnded(ended("text")),
    ):
        assert turn_of(notice, LOSS) == Turn("t0", None)
    for notice in (TrialEnded(stopped), TrialPaused(ended(2.0, None))):
        assert turn_of(notice, LOSS) == Turn("t0", None, (2.0,))


def test_a_trial_that_misses_a_constraint_has_no_value():
    goals = Goals((("loss", "min"),), outcome_constraints({"size": "<= 4"}))
    assert turn_of(TrialEnded(ended(2.0, size=3.0)), goals).point == (2.0,)
    assert turn_of(TrialEnded(ended(2.0, size=5.0)), goals).point is None
    assert turn_of(TrialEnded(ended(2.0)), goals).point is None


def test_with_several_metrics_a_trial_needs_a_value_of_each():
    goals = Goals((("loss", "min"), ("score", "max")), outcome_constraints({"size": "<= 4"}))
    assert turn_of(TrialEnded(ended(2.0, score=7.0, size=3.0)), goals) == Turn(
        "t0", (2.0, -7.0), (2.0, -7.0)
    )
    for others in ({"size": 3.0}, {"score": math.nan, "size": 3.0}, {"score": 7.0, "size": 5.0}):
        assert turn_of(TrialEnded(ended(2.0, **others)), goals) == Turn("t0", None)


def test_a_trial_that_goes_on_later_has_had_no_turn():
    interrupted = ended(2.0, TerminationReason.INTERRUPTED)
    assert turn_of(TrialEnded(interrupted), LOSS) is None
    assert turn_of(AttemptFailed(ended(2.0), Failure("E", ""), will_retry=True), LOSS) is None
    interrupted.reason = Reason(SKIPPED)
    assert turn_of(TrialEnded(interrupted), LOSS) == Turn("t0", None, (2.0,))


def watch_after(num, **arguments):
    watch = SearchWatch(StopSearch(**arguments))
    for number in range(num):
        watch.take(Turn(f"t{number}", (max(10.0 - number, 0.0),)))
    return watch


def test_a_search_that_was_continued_goes_on_for_a_while():
    watch = watch_after(70)
    assert watch.reason_to_stop()
    watch.note_end()
    restored = SearchWatch(StopSearch())
    restored.load_state_dict(watch.state_dict())
    for each in (watch, restored):
        for number in range(20):
            assert each.reason_to_stop() is None
            each.take(Turn(f"later{number}", (1.0,) if number else None))
        assert each.reason_to_stop()


def watch_beside_early_stopping(newest):
    """One that has seen 25 good trials trained to the end, and 75 stopped early."""
    watch = SearchWatch(StopSearch())
    for number in range(100):
        value = 1.0 + 0.002 * (number > 3) + 0.001 * (number > 20)
        point = None if number % 4 else (value,)
        watch.take(Turn(f"t{number}", point, (newest,) if point is None else point))
    return watch


def test_what_was_gained_is_not_judged_by_the_survivors_of_early_stopping_alone():
    assert watch_beside_early_stopping(1.1).reason_to_stop() is None
    watch = watch_beside_early_stopping(3.0)
    restored = SearchWatch(StopSearch())
    restored.load_state_dict(watch.state_dict())
    for each in (watch, restored):
        assert each.reason_to_stop().numbers["worth"] == pytest.approx(0.002 * 2)


def test_the_newest_values_of_the_first_trials_are_kept():
    watch = watch_beside_early_stopping(9.0)
    for number in range(20):
        watch.take(Turn(f"t{number}", None, (3.0,)))
    assert watch.reason_to_stop().numbers["worth"] == pytest.approx(0.002 * 2, rel=0.01)


def test_a_trial_that_was_paused_counts_where_it_was_trained_to_the_end():
    watch = watch_after(70)
    watch.take(Turn("t3", (-1.0,)))
    assert watch.reason_to_stop() is None


def test_a_search_does_not_end_soon_after_the_first_points_of_a_model():
    watch = SearchWatch(StopSearch(), num_first=30)
    for number in range(80):
        assert watch.reason_to_stop() is None
        watch.take(Turn(f"t{number}", (0.0,)))
    assert watch.reason_to_stop()


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        (
            {"x": tune.grid_search([1, 2])},
            {},
            "stop_search must be None with grid_search, got 'auto' and a grid over x; every point",
        ),
        (
            {},
            {"scheduler": PopulationBasedTraining(hyperparam_mutations={"x": [1, 2]})},
            "stop_search must be None with PopulationBasedTraining, got 'auto'; all members",
        ),
        (
            {},
            {"metric": None, "mode": None},
            "stop_search needs a metric and its mode, got 'auto' without; set TuneConfig",
        ),
    ],
)
def test_searches_that_cannot_end_early_are_refused(space, settings, message):
    given = {"metric": "loss", "mode": "min", "num_samples": 9, "stop_search": "auto"}
    with pytest.raises(ValueError, match=message):
        make_spec(
            curve,
            {"x": tune.uniform(0, 1), **space},
            tune.TuneConfig(**(given | settings)),
            None,
        )


@pytest.mark.parametrize("given", [True, "soon", 30])
def test_something_else_is_refused(given):
    with pytest.raises(TypeError, match=f"stop_search must be 'auto', .* got {given!r}; e.g. "):
        tune.TuneConfig(stop_search=given)
