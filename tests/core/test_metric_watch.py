"""Warnings about a metric that no trial reports, and the end of the experiment."""

from dataclasses import replace

import pytest

from tests.core.conversation import BOOM, Conversation, result
from tuner.core.commands import MetricMissed
from tuner.core.events import DriverRestarted, Outcome, TurnEnded, WorkerExited, WorkerStarted
from tuner.core.experiment import Experiment
from tuner.core.metric_watch import METRIC_NOT_REPORTED, warning_for
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import TerminationReason, trial_fields, trial_from

WANTED = {"metric": "val_accuracy", "mode": "max", "is_metric_required": True}


def missed(talk):
    return [
        (notice.trial.trial_id, notice.metric)
        for notice in talk.notices
        if isinstance(notice, MetricMissed)
    ]


def rule(talk):
    return talk.experiment.stop_reason and talk.experiment.stop_reason.rule


def test_ten_results_of_one_trial_without_the_metric_warn_once():
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    for iteration in range(1, 10):
        talk.report("t00000", iteration, loss=1.0)
        talk.report("t00001", iteration, loss=1.0)
    assert missed(talk) == []
    talk.report("t00000", 10, loss=1.0)
    talk.report("t00001", 10, loss=1.0)
    assert missed(talk) == [("t00000", "val_accuracy")]
    assert rule(talk) is None


def test_a_completed_trial_without_the_metric_ends_the_experiment_with_what_was_meant():
    talk = Conversation(max_trials=9, **WANTED)
    talk.begin(2)
    talk.report("t00000", 1, val_acc=0.5, train={"loss": 1.0})
    assert rule(talk) is None
    talk.exit("t00000", Outcome.COMPLETED)
    assert rule(talk) == METRIC_NOT_REPORTED
    assert talk.experiment.fatal_error == (
        "trial t00000 completed, and no trial has reported the metric 'val_accuracy'; "
        "reported were train/loss, val_acc; "
        "did you mean 'val_acc'?"
    )
    talk.report("t00001", 1, val_acc=0.5)
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.experiment.is_finished
    # So that it goes on when the metric is mended.
    assert talk.trial("t00001").ending is TerminationReason.INTERRUPTED


def test_a_trial_that_reported_nothing_is_named_as_such():
    talk = Conversation(max_trials=5, capacity={"cpu": 5.0}, **WANTED)
    talk.begin(5)
    for number in range(5):
        assert rule(talk) is None  # a few may have had nothing to report
        talk.exit(f"t0000{number}", Outcome.COMPLETED)
    assert talk.experiment.fatal_error.endswith(
        "the trial reported nothing: call tune.report(metrics), or return the metrics"
    )


@pytest.mark.parametrize("value", [0.5, float("nan"), 3])
def test_a_metric_that_comes_late_or_now_and_then_is_reported(value):
    talk = Conversation(max_trials=1, **WANTED)
    talk.begin(1)
    for iteration in range(1, 12):
        talk.report(
            "t00000", iteration, loss=1.0, **({"val_accuracy": value} if iteration == 4 else {})
        )
    talk.exit("t00000", Outcome.COMPLETED)
    assert missed(talk) == []
    assert rule(talk) is None


@pytest.mark.parametrize(
    ("value", "shown"), [("0.5", "'0.5'"), (None, "None"), (True, "True"), ([0.5], "[0.5]")]
)
def test_a_metric_that_is_never_a_number_is_not_reported(value, shown):
    talk = Conversation(max_trials=1, **WANTED)
    talk.begin(1)
    for iteration in range(1, 11):
        talk.report("t00000", iteration, val_accuracy=value, loss=1.0)
    (warned,) = [notice for notice in talk.notices if isinstance(notice, MetricMissed)]
    assert warning_for(warned.metric, warned.trial, warned.value) == (
        "trial t00000 has reported 10 results, and no trial has reported a number for the "
        "metric 'val_accuracy' so far; "
        f"it was {shown}, which is no number"
    )
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.experiment.fatal_error == (
        "trial t00000 completed, and no trial has reported a number for the metric "
        f"'val_accuracy'; it was {shown}, which is no number"
    )


def test_the_first_trial_that_completes_without_a_result_warns_once():
    talk = Conversation(max_trials=3, capacity={"cpu": 3.0}, **WANTED)
    talk.begin(3)
    talk.exit("t00001", Outcome.COMPLETED)
    talk.exit("t00000", Outcome.COMPLETED)
    assert missed(talk) == [("t00001", "val_accuracy")]
    assert rule(talk) is None
    assert warning_for("val_accuracy", talk.trial("t00001")) == (
        "trial t00001 completed, and no trial has reported the metric 'val_accuracy' so far; "
        "the trial reported nothing: call tune.report(metrics), or return the metrics"
    )


def test_a_trial_without_a_result_does_not_warn_if_another_reported_the_metric():
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    talk.report("t00000", 1, val_accuracy=0.5)
    talk.exit("t00001", Outcome.COMPLETED)
    assert missed(talk) == []


def test_of_another_trial_as_well():
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    talk.report("t00001", 1, val_accuracy=0.5)
    talk.exit("t00000", Outcome.COMPLETED)
    assert rule(talk) is None


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_trial_that_did_not_complete_does_not_warn_about_the_metric(outcome):
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    talk.report("t00000", 1, loss=1.0)
    talk.exit("t00000", outcome, BOOM)
    assert rule(talk) is None


@pytest.mark.parametrize(
    "settings", [{"is_metric_required": False}, {"metric": None, "mode": None}], ids=str
)
def test_it_does_not_end_where_the_metric_need_not_be_reported(settings):
    talk = Conversation(max_trials=2, **{**WANTED, **settings})
    talk.begin(2)
    talk.report("t00000", 1, loss=1.0)
    talk.exit("t00000", Outcome.COMPLETED)
    assert rule(talk) is None


def test_each_of_several_objectives_has_to_be_reported():
    talk = Conversation(
        max_trials=2, several_objectives=(("loss", "min"), ("size", "min")), is_metric_required=True
    )
    talk.begin(2)
    talk.report("t00000", 1, loss=1.0)
    talk.exit("t00000", Outcome.COMPLETED)
    assert "the metric 'size'; reported were loss" in talk.experiment.fatal_error


def test_the_next_session_watches_only_what_its_own_trials_report():
    talk = Conversation(max_trials=3, capacity={"cpu": 3.0}, **WANTED)
    talk.begin(3)
    talk.report("t00000", 1, val_acc=0.5)
    talk.exit("t00000", Outcome.COMPLETED)
    settings = talk.experiment.settings
    talk.say(DriverRestarted(settings))
    assert rule(talk) is None  # the training code may have been mended
    talk.say(WorkerStarted("t00001", attempt=2, pid=1))
    talk.report("t00001", 1, val_acc=0.4)
    talk.exit("t00001", Outcome.COMPLETED)
    assert rule(talk) == METRIC_NOT_REPORTED
    talk.say(DriverRestarted(replace(settings, metric="val_acc")))
    assert talk.experiment.best.trial is talk.trial("t00000")
    assert talk.experiment.best.value == 0.5
    assert rule(talk) is None


def test_the_end_is_written_down_as_a_decision_and_read_from_there():
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    talk.report("t00000", 1, loss=1.0)
    talk.say(result("t00001", 1, loss=1.0))
    talk.experiment.handle(WorkerExited("t00000", 1, Outcome.COMPLETED), 0.0)
    outcome = talk.experiment.handle(TurnEnded(), 0.0)
    assert [said.decision.reason.rule for said in outcome.recorded] == [METRIC_NOT_REPORTED]


def test_what_was_seen_outlasts_a_snapshot():
    talk = Conversation(max_trials=2, **WANTED)
    talk.begin(2)
    for iteration in range(1, 11):
        talk.report("t00000", iteration, val_accuracy=0.5)
    state, trials = (
        talk.experiment.state_dict(),
        [trial_from(trial_fields(trial)) for trial in talk.experiment.trials],
    )
    again = Experiment(talk.experiment.settings, talk.scheduler, NoopStopper())
    again.load_state_dict(state, trials)
    assert again.metric_watch.missing == []


def test_warnings_given_survive_a_snapshot():
    talk = Conversation(max_trials=3, capacity={"cpu": 3.0}, **WANTED)
    talk.begin(3)
    talk.report("t00000", 1, val_accuracy="n/a")
    talk.exit("t00001", Outcome.COMPLETED)
    state, trials = (
        talk.experiment.state_dict(),
        [trial_from(trial_fields(trial)) for trial in talk.experiment.trials],
    )
    again = Experiment(talk.experiment.settings, talk.scheduler, NoopStopper())
    again.load_state_dict(state, trials)
    assert again.state_dict()["metric_watch"] == state["metric_watch"]
    assert again.metric_watch.value_of("val_accuracy") == "'n/a'"
    assert not again.metric_watch.on_completed(again.trials[2])  # it was told before
