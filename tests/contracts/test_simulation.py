"""Experiments in virtual time."""

import copy
import itertools

import pytest

import tuner as tune
from schedulers import ASHAScheduler, Pause, Reason, Resume, Scheduler, Stop, create_scheduler
from searchers import BasicVariantGenerator
from tuner.core.events import CheckpointSaved, ResultReported, TurnEnded, WorkerExited
from tuner.core.trial import Status, TerminationReason
from tuner.testing import simulate


def losses(config):
    for step in range(1, 9):
        yield {"loss": config["x"] / step}


def endless(config):
    for step in itertools.count(1):
        yield {"loss": 1.0 / step}


def grid_of(*values):
    return {"x": tune.grid_search(list(values))}


def minimising(**changes):
    return tune.TuneConfig(metric="loss", mode="min", seed=0, **changes)


def test_every_trial_runs_to_its_end_and_the_best_one_is_found():
    simulation = simulate(losses, param_space=grid_of(2.0, 1.0, 3.0), tune_config=minimising())
    assert [trial.status for trial in simulation.grid.trials] == [Status.TERMINATED] * 3
    assert simulation.grid.get_best_result().config == {"x": 1.0}
    assert simulation.grid.get_best_result().metrics["loss"] == 0.125
    assert len(simulation.grid.get_best_result().metrics_dataframe) == 8


def test_time_follows_from_the_iterations_and_the_slots():
    def take(num_slots, duration_s):
        simulation = simulate(
            losses,
            param_space=grid_of(1.0, 2.0, 3.0),
            tune_config=minimising(),
            num_slots=num_slots,
            duration_s=duration_s,
        )
        return simulation.elapsed_s

    assert take(num_slots=3, duration_s=10.0) == 80.0
    assert take(num_slots=1, duration_s=10.0) == 240.0
    assert take(num_slots=2, duration_s=lambda config, iteration: config["x"]) == 8.0 + 24.0


def test_decisions_carry_their_reasons_and_the_same_ones_stand_in_the_history():
    scheduler = ASHAScheduler(max_t=8, reduction_factor=2, type="stopping")
    simulation = simulate(
        losses,
        param_space=grid_of(1.0, 2.0, 3.0),
        tune_config=minimising(scheduler=scheduler),
        num_slots=1,
    )
    assert [(decision.trial_id, decision.reason.rule) for decision in simulation.decisions] == [
        ("t00000", "asha.max_t"),
        ("t00001", "asha.rung"),
        ("t00002", "asha.rung"),
    ]
    assert simulation.decisions == tuple(
        decision for entry in simulation.history for decision in entry.decisions
    )
    assert [trial.reason for trial in simulation.grid.trials] == [
        decision.reason for decision in simulation.decisions
    ]


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"time_budget_s": 3600.0}, "time_budget"),
        ({"budget": {"cpu_hours": 1.0}}, "budget"),
        ({"budget": {"iterations": 60}}, "budget"),
    ],
)
def test_budgets_are_those_of_virtual_time(settings, rule):
    simulation = simulate(endless, tune_config=minimising(**settings), duration_s=60.0)
    assert simulation.elapsed_s == 3600.0
    [trial] = simulation.grid.trials
    assert (trial.reason.rule, trial.iteration) == (rule, 60)


def test_a_curve_that_raises_is_retried_and_finally_fails():
    def breaking(config):
        yield {"loss": 1.0}
        raise ValueError("boom")

    run_config = tune.RunConfig(failure_config=tune.FailureConfig(max_failures=2))
    simulation = simulate(breaking, tune_config=minimising(), run_config=run_config)
    assert [type(event).__name__ for event in (entry.event for entry in simulation.history)].count(
        "WorkerExited"
    ) == 3
    assert "boom" in str(simulation.grid.errors[0])


class PausesOnce(Scheduler):
    """Pauses every trial at its second result and resumes it when a slot is free."""

    def __init__(self):
        self.resumed = set()

    def on_trial_result(self, trial, result):
        is_due = result["training_iteration"] == 2 and trial.trial_id not in self.resumed
        return [Pause(trial.trial_id, Reason("once"))] if is_due else ()

    def on_idle(self, trials, num_free_slots):
        self.resumed.update(trial.trial_id for trial in trials)
        return [Resume(trial.trial_id, Reason("again")) for trial in trials]


def test_trials_pause_and_continue_where_they_were():
    simulation = simulate(
        losses,
        param_space=grid_of(1.0, 2.0),
        tune_config=minimising(scheduler=PausesOnce()),
        num_slots=1,
    )
    events = [entry.event for entry in simulation.history]
    assert [
        event.checkpoint.iteration for event in events if isinstance(event, CheckpointSaved)
    ] == [2, 2]
    for trial_id in ("t00000", "t00001"):
        reports = [
            event.metrics
            for event in events
            if isinstance(event, ResultReported) and event.trial_id == trial_id
        ]
        assert [metrics["training_iteration"] for metrics in reports] == list(range(1, 9))
    assert [trial.attempt for trial in simulation.grid.trials] == [2, 2]


class RecordsCalls(tune.Callback):
    """Remembers in which order it was called."""

    def __init__(self):
        self.calls = []

    def setup(self, **info):
        self.calls.append(("setup", info["metric"], info["total_num_samples"]))

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.calls.append(("result", trial.trial_id, result["training_iteration"]))
        result["should_checkpoint"] = result["training_iteration"] == 2

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        self.calls.append(("checkpoint", trial.trial_id, trial.latest_checkpoint.iteration))

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.calls.append(("complete", trial.trial_id, str(trial.ending)))

    def on_experiment_end(self, trials, **info):
        self.calls.append(("end", len(trials)))


def test_callbacks_are_called_as_in_a_real_run_and_may_request_checkpoints():
    recorder = RecordsCalls()
    run_config = tune.RunConfig(callbacks=[recorder], stop={"training_iteration": 3})
    simulate(losses, param_space={"x": 1.0}, tune_config=minimising(), run_config=run_config)
    assert recorder.calls == [
        ("setup", "loss", 1),
        *[
            ("result", "t00000", 1),
            ("result", "t00000", 2),
            ("checkpoint", "t00000", 2),
            ("result", "t00000", 3),
        ],
        ("complete", "t00000", "completed"),
        ("end", 1),
    ]


class WaitsForNothing(BasicVariantGenerator):
    def suggest(self, trial_id):
        return None


def test_an_experiment_without_progress_ends_with_a_reason():
    simulation = simulate(
        losses, param_space={"x": 1.0}, tune_config=minimising(search_alg=WaitsForNothing())
    )
    assert "postponed" in simulation.stall
    assert len(simulation.grid) == 0


def test_resources_are_those_of_the_run_and_of_the_trials():
    run_config = tune.RunConfig(resources={"cpu": 2.0, "licence": 1.0})
    curves = tune.with_resources(losses, {"cpu": 1.0, "licence": 1.0})
    simulation = simulate(
        curves,
        param_space=grid_of(1.0, 2.0),
        tune_config=minimising(),
        run_config=run_config,
        num_slots=99,
    )
    assert simulation.elapsed_s == 16.0


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    run_config = tune.RunConfig(name="nowhere", storage_path=tmp_path)
    simulation = simulate(
        losses,
        param_space={"x": 1.0},
        tune_config=minimising(scheduler=PausesOnce()),
        run_config=run_config,
    )
    assert list(tmp_path.iterdir()) == []
    assert simulation.grid.experiment_path == "simulated"


def test_the_history_is_that_of_the_journal():
    simulation = simulate(
        losses,
        param_space={"x": 1.0},
        tune_config=minimising(),
        run_config=tune.RunConfig(stop={"loss": "<= 0.5"}),
    )
    kinds = [
        type(entry.event).__name__
        for entry in simulation.history
        if not isinstance(entry.event, TurnEnded)
    ]
    assert kinds == [
        "TrialSuggested",
        "WorkerStarted",
        "ResultReported",
        "ResultReported",
        "WorkerExited",
    ]
    assert [
        entry.at_s for entry in simulation.history if isinstance(entry.event, WorkerExited)
    ] == [2.0]
    assert simulation.grid.trials[0].ending is TerminationReason.COMPLETED


class StopsAtOnce(Scheduler):
    def on_trial_add(self, trial):
        return [Stop(trial.trial_id, Reason("test"))]

    def on_trial_result(self, trial, result):
        return ()


def test_a_trial_that_never_reports_has_no_rows_and_takes_no_time():
    simulation = simulate(
        losses, param_space={"x": 1.0}, tune_config=minimising(scheduler=StopsAtOnce())
    )
    assert simulation.elapsed_s == 0.0
    assert simulation.grid.trials[0].summary == {}
    assert simulation.grid[0].ending is TerminationReason.STOPPED_EARLY


class Class(tune.Trainable):
    def step(self):
        return {}


def test_a_class_is_refused_as_curves():
    with pytest.raises(
        TypeError, match="curves must be a function that yields metrics, got the class Class"
    ):
        simulate(Class)


@pytest.mark.parametrize("name", ["asha", "pasha", "hyperband", "median_stopping_rule"])
def test_a_copy_compares_by_the_metric_that_it_is_given(name):
    copied = copy.deepcopy(create_scheduler(name))
    simulation = simulate(
        lambda config: [config["x"] / epoch for epoch in range(1, 9)],
        param_space={"x": tune.grid_search([1.0, 2.0, 3.0])},
        tune_config=tune.TuneConfig(metric="value", mode="min", scheduler=copied),
    )
    assert all(trial.is_finished for trial in simulation.grid.trials)
