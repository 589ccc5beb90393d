"""Validations of checkpoints in the state machine, as a conversation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedulers.decisions import Exploit, Pause, Reason, Resume, Stop
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    Validating,
    answers,
    started,
    starts,
)
from tuner.core import commands as cmd
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointLost,
    CheckpointsRequested,
    DriverRestarted,
    Outcome,
    ResultReported,
    ResumeType,
    StopRequested,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.settings import ValidationPolicy
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.errors import InvalidTransition
from tuner.validation.records import (
    VALIDATION_TABLE,
    Validation,
    ValidationMove,
    ValidationState,
    move_validation,
)

WHY = Reason("test")


class ListeningScheduler(ScriptedScheduler):
    """Records the metrics with which it is called."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.results = []
        self.completed = []
        self.seen_checkpoints = []
        self.decide = lambda trial, result: ()

    def on_trial_result(self, trial, result):
        super().on_trial_result(trial, result)
        self.results.append((result["training_iteration"], result.get("acc")))
        self.seen_checkpoints.append(trial.checkpoint_index)
        return self.decide(trial, result)

    def on_trial_complete(self, trial, result):
        self.completed.append((trial.trial_id, result and result.get("acc")))
        return super().on_trial_complete(trial, result)


def validations(commands):
    """Return the started validations as (trial, checkpoint, try)."""
    return [(c.trial_id, c.checkpoint.index, c.num_try) for c in started(commands)]


def killed(commands):
    return [(c.trial_id, c.index, c.num_try) for c in commands if isinstance(c, cmd.KillValidation)]


def deleted(commands):
    return [c.checkpoint.index for c in commands if isinstance(c, cmd.DeleteCheckpoint)]


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize("state", ValidationState)
@pytest.mark.parametrize("move", ValidationMove)
def test_a_move_that_the_table_does_not_list_is_refused(state, move):
    validation = Validation(CheckpointRecord(0, 1), ValidationRequest(), state, is_open=True)
    after = VALIDATION_TABLE.get((state, move))
    if after is not None:
        move_validation(validation, move)
        assert validation.state is after
        return
    with pytest.raises(InvalidTransition, match="is not possible"):
        move_validation(validation, move)
    assert validation.state is state


@pytest.mark.parametrize("state", ValidationState)
def test_an_ended_validation_never_moves_again(state):
    moves = [move for origin, move in VALIDATION_TABLE if origin is state]
    assert bool(moves) == (state in {ValidationState.QUEUED, ValidationState.RUNNING})


# ------------------------------------------------------------------ order and resources


def test_a_validation_starts_at_once_and_training_goes_on():
    talk = Validating()
    said = talk.validate("t00000", 1, loss=0.5)
    assert validations(said) == [("t00000", 0, 1)]
    assert answers(said) == [("t00000", "continue", False)]
    assert talk.trial("t00000").validations[0].status == "PENDING_VALIDATION"


def test_validations_of_one_trial_run_one_after_the_other():
    talk = Validating()
    talk.validate("t00000", 1)
    assert validations(talk.validate("t00000", 2)) == []
    assert validations(talk.validate("t00000", 3)) == []
    assert validations(talk.end("t00000", 0, {"acc": 0.1})) == [("t00000", 1, 1)]
    assert validations(talk.end("t00000", 1, {"acc": 0.2})) == [("t00000", 2, 1)]


def test_validations_of_several_trials_start_in_the_order_of_their_requests():
    talk = Validating(num_trials=3, capacity={"cpu": 4.0})
    assert validations(talk.validate("t00002", 1)) == [("t00002", 0, 1)]
    assert validations(talk.validate("t00000", 1)) == []
    assert validations(talk.validate("t00001", 1)) == []
    assert validations(talk.end("t00002", 0, {"acc": 1.0})) == [("t00000", 0, 1)]
    assert validations(talk.end("t00000", 0, {"acc": 1.0})) == [("t00001", 0, 1)]


def test_one_validation_by_cpu_runs_even_where_trials_hold_every_cpu():
    talk = Validating(num_trials=2, capacity={"cpu": 2.0})
    assert validations(talk.validate("t00000", 1)) == [("t00000", 0, 1)]
    assert talk.experiment.trial_table.nodes.used == {"cpu": 2.0}
    assert validations(talk.validate("t00001", 1)) == []
    assert validations(talk.end("t00000", 0, {"acc": 0.1})) == [("t00001", 0, 1)]


def test_a_validation_by_gpu_waits_for_one_and_precedes_new_trials():
    policy = ValidationPolicy({"cpu": 1.0, "gpu": 1.0})
    talk = Conversation(
        capacity={"cpu": 4.0, "gpu": 1.0}, metric="acc", mode="max", validation=policy
    )
    talk.begin(2, cpu=1.0, gpu=1.0)
    said = talk.say(
        ResultReported("t00000", 1, {"training_iteration": 1}, CheckpointRecord(0, 1),
                       validation=ValidationRequest())
    )  # fmt: skip
    assert validations(said) == []
    said = talk.exit("t00000", Outcome.COMPLETED)
    assert validations(said) == [("t00000", 0, 1)]
    assert starts(said) == []
    start = next(c for c in said if isinstance(c, cmd.StartValidation))
    assert start.gpu_ids == (0,)
    said = talk.say(ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {"acc": 1.0}))
    assert starts(said) == [("t00001", 1)]


def test_no_trial_takes_what_a_validation_waits_for():
    policy = ValidationPolicy({"gpu": 2.0})
    talk = Conversation(
        capacity={"cpu": 9.0, "gpu": 2.0}, metric="acc", mode="max", validation=policy
    )
    talk.begin(4, cpu=1.0, gpu=1.0)
    talk.say(ResultReported("t00000", 1, {"training_iteration": 1}, CheckpointRecord(0, 1),
                            validation=ValidationRequest()))  # fmt: skip
    assert starts(talk.exit("t00001", Outcome.COMPLETED)) == []
    said = talk.exit("t00000", Outcome.COMPLETED)
    assert validations(said) == [("t00000", 0, 1)]
    said = talk.say(ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {"acc": 1.0}))
    assert starts(said) == [("t00002", 1), ("t00003", 1)]


def test_resources_that_do_not_exist_fail_the_validation_and_not_the_trial():
    talk = Validating(validation=ValidationPolicy({"gpu": 1.0}))
    talk.validate("t00000", 1)
    assert talk.validated() == [("t00000", 0, "VALIDATION_FAILED", False)]
    assert "gpu" in talk.trial("t00000").validations[0].failure.message
    assert talk.trial("t00000").status is Status.RUNNING


def test_more_cpus_than_there_are_are_admitted_alone():
    talk = Validating(validation=ValidationPolicy({"cpu": 64.0}))
    assert validations(talk.validate("t00000", 1)) == [("t00000", 0, 1)]


def test_several_of_a_trial_run_at_once_and_are_passed_on_in_order():
    talk = Validating(validation=ValidationPolicy(max_in_flight=2))
    talk.validate("t00000", 1)
    assert validations(talk.validate("t00000", 2)) == [("t00000", 1, 1)]
    talk.end("t00000", 1, {"acc": 0.2})
    assert talk.validated() == []
    talk.end("t00000", 0, {"acc": 0.1})
    assert [index for _, index, _, _ in talk.validated()] == [0, 1]


def test_a_trial_waits_in_its_report_while_too_many_are_open():
    talk = Validating(validation=ValidationPolicy(max_pending=2))
    assert answers(talk.validate("t00000", 1))
    assert answers(talk.validate("t00000", 2)) == []
    talk.restore_from_snapshot()
    assert answers(talk.say()) == []
    assert answers(talk.end("t00000", 0, {"acc": 0.1})) == [("t00000", "continue", False)]


def test_a_trial_does_not_wait_for_a_validation_that_needs_what_it_holds():
    policy = ValidationPolicy({"gpu": 1.0}, max_pending=1)
    talk = Conversation(
        capacity={"cpu": 1.0, "gpu": 1.0}, metric="acc", mode="max", validation=policy
    )
    talk.begin(1, cpu=1.0, gpu=1.0)
    said = talk.say(ResultReported("t00000", 1, {"training_iteration": 1}, CheckpointRecord(0, 1),
                                   validation=ValidationRequest()))  # fmt: skip
    assert answers(said) == [("t00000", "continue", False)]


def test_a_held_trial_leaves_when_it_is_stopped():
    talk = Validating(validation=ValidationPolicy(max_pending=1))
    assert answers(talk.validate("t00000", 1)) == []
    assert answers(talk.say(StopRequested("signal.SIGINT"))) == [("t00000", "stop", False)]


# ------------------------------------------------------------------ outcomes


def test_the_validation_value_overwrites_that_of_its_own_checkpoint():
    talk = Validating(metric="loss", mode="min")
    talk.validate("t00000", 1, loss=1.0)
    talk.validate("t00000", 2, loss=0.9)
    talk.validate("t00000", 3, loss=0.8)
    talk.end("t00000", 0, {"loss": -1.0, "acc": 0.3})
    trial = talk.trial("t00000")
    results = trial.validation_part.checkpoint_results
    assert results[0] == {
        "training_iteration": 1,
        "loss": -1.0,
        "acc": 0.3,
    }
    assert results[2] == {"training_iteration": 3, "loss": 0.8}
    assert trial.last_result["loss"] == 0.8
    assert trial.objective.last.value == 0.8
    assert (trial.objective.best.value, trial.objective.best.iteration) == (-1.0, 1)
    assert trial.summary["loss"].min == -1.0
    assert trial.summary["loss"].max == 0.9
    assert trial.summary["loss"].last == 0.8
    assert trial.summary["acc"].last == 0.3


def test_the_last_result_is_corrected_when_its_own_checkpoint_is_validated():
    talk = Validating()
    talk.validate("t00000", 1, loss=1.0)
    talk.end("t00000", 0, {"acc": 0.7})
    trial = talk.trial("t00000")
    assert trial.last_result["acc"] == 0.7
    assert trial.last_result["config"] == {"x": 1}
    assert talk.experiment.best.trial is trial
    assert talk.experiment.best.value == 0.7


def test_names_that_the_engine_fills_in_are_not_taken_from_a_validation():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.end("t00000", 0, {"acc": 0.7, "training_iteration": 99})
    assert talk.trial("t00000").iteration == 1
    replaced = [n.names for n in talk.notices if isinstance(n, cmd.KeysReplaced)]
    assert replaced == [("training_iteration",)]


@pytest.mark.parametrize(
    ("outcome", "metrics"),
    [(Outcome.FAILED, None), (Outcome.KILLED, None), (Outcome.COMPLETED, None)],
)
def test_a_failed_validation_keeps_the_reported_metrics_and_training_goes_on(outcome, metrics):
    talk = Validating()
    talk.validate("t00000", 1, loss=1.0)
    talk.end("t00000", 0, metrics, outcome, BOOM if outcome is not Outcome.COMPLETED else None)
    assert talk.validated() == [("t00000", 0, "VALIDATION_FAILED", False)]
    assert talk.trial("t00000").validation_part.checkpoint_results[0]["loss"] == 1.0
    assert talk.trial("t00000").validations[0].failure is not None
    assert talk.trial("t00000").status is Status.RUNNING


def test_a_failed_validation_is_tried_again_while_retries_remain():
    talk = Validating(validation=ValidationPolicy(max_retries=1))
    talk.validate("t00000", 1)
    assert validations(talk.end("t00000", 0, outcome=Outcome.FAILED, failure=BOOM)) == [
        ("t00000", 0, 2)
    ]
    assert talk.validated() == []
    talk.end("t00000", 0, outcome=Outcome.FAILED, failure=BOOM)
    assert talk.validated() == [("t00000", 0, "VALIDATION_FAILED", False)]


@pytest.mark.parametrize(
    ("max_retries", "are_last"), [(0, [True]), (1, [False, True]), (-1, [False] * 3)]
)
def test_the_last_try_is_told_that_it_is(max_retries, are_last):
    talk = Validating(validation=ValidationPolicy(max_retries=max_retries))
    starts = started(talk.validate("t00000", 1))
    while len(starts) < len(are_last):
        starts += started(talk.end("t00000", 0, outcome=Outcome.FAILED, failure=BOOM))
    assert [start.is_last_try for start in starts] == are_last


def test_a_lost_process_is_no_failure():
    talk = Validating()
    talk.validate("t00000", 1)
    assert validations(talk.end("t00000", 0, outcome=Outcome.LOST)) == [("t00000", 0, 2)]


def test_the_end_of_an_earlier_try_is_dropped():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.end("t00000", 0, outcome=Outcome.LOST)
    talk.say(ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {"acc": 0.1}))
    assert talk.state("t00000", 0) is ValidationState.RUNNING
    talk.end("t00000", 0, {"acc": 0.2})
    talk.say(ValidationEnded("t00000", 0, 2, Outcome.COMPLETED, {"acc": 0.3}))
    assert talk.trial("t00000").validations[0].metrics == {"acc": 0.2}
    assert len(talk.validated()) == 1


def test_a_validation_that_takes_too_long_is_killed():
    talk = Validating(validation=ValidationPolicy(timeout_s=10.0))
    talk.validate("t00000", 1)
    assert talk.experiment.next_deadline_s() == 10.0
    assert killed(talk.say(after_s=9.0)) == []
    assert killed(talk.say(after_s=1.0)) == [("t00000", 0, 1)]
    assert killed(talk.say(after_s=1.0)) == []
    talk.end("t00000", 0, outcome=Outcome.KILLED, failure=Failure("killed", "too long"))
    assert talk.validated() == [("t00000", 0, "VALIDATION_TIMEOUT", False)]


def test_the_time_limit_of_a_request_precedes_the_declared_one():
    talk = Validating(validation=ValidationPolicy(timeout_s=10.0))
    talk.validate("t00000", 1, request=ValidationRequest(timeout_s=2.0))
    assert killed(talk.say(after_s=2.0)) == [("t00000", 0, 1)]


def test_a_validation_that_returned_just_before_it_was_killed_counts():
    talk = Validating(validation=ValidationPolicy(timeout_s=1.0))
    talk.validate("t00000", 1)
    talk.say(after_s=1.0)
    talk.end("t00000", 0, {"acc": 0.5})
    assert talk.validated() == [("t00000", 0, "VALIDATED", True)]


def test_a_lost_checkpoint_fails_its_validation_once_the_process_is_gone():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.validate("t00000", 2)
    assert killed(talk.say(CheckpointLost("t00000", 0, "gone"))) == [("t00000", 0, 1)]
    assert talk.state("t00000", 0) is ValidationState.RUNNING
    talk.say(CheckpointLost("t00000", 1, "gone"))
    assert talk.state("t00000", 1) is ValidationState.FAILED
    talk.end("t00000", 0, {"acc": 0.5})
    assert [status for _, _, status, _ in talk.validated()] == ["VALIDATION_FAILED"] * 2


# ------------------------------------------------------------------ delivery


def test_the_scheduler_hears_a_late_metric_with_the_iteration_of_its_checkpoint():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler)
    talk.validate("t00000", 1, loss=1.0)
    talk.validate("t00000", 2, loss=0.9)
    talk.end("t00000", 0, {"acc": 0.3})
    assert scheduler.results == [(1, None), (2, None), (1, 0.3)]
    assert talk.validated() == [("t00000", 0, "VALIDATED", True)]


def test_what_was_judged_on_time_is_not_judged_again():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler)
    talk.validate("t00000", 1, acc=0.1)
    talk.end("t00000", 0, {"acc": 0.9})
    assert scheduler.results == [(1, 0.1)]
    assert talk.validated() == [("t00000", 0, "VALIDATED", False)]
    assert talk.trial("t00000").last_result["acc"] == 0.9


def test_schedulers_see_the_checkpoint_whose_score_they_know():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler, checkpoints=CheckpointPolicy(retention=RetentionPolicy(1)))
    for iteration in (1, 2, 3):
        talk.validate("t00000", iteration)
    assert talk.trial("t00000").checkpoint_index is None
    talk.end("t00000", 0, {"acc": 0.3})
    assert talk.trial("t00000").checkpoint_index == 0
    assert talk.trial("t00000").latest_checkpoint.index == 2
    assert deleted(talk.end("t00000", 1, {"acc": 0.4})) == [0]
    assert talk.trial("t00000").checkpoint_index == 1
    talk.restore_from_snapshot()
    assert talk.trial("t00000").checkpoint_index == 1
    assert talk.trial("t00000").checkpoint_iteration == 2


def test_a_metric_reported_on_time_again_makes_the_latest_checkpoint_the_judged_one():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.report("t00000", 2, CheckpointRecord(1, 2), acc=0.5)
    assert talk.trial("t00000").checkpoint_index == 1


def test_a_late_decision_takes_effect_at_the_next_report():
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Stop(trial.trial_id, WHY)] if result.get("acc") == 0.3 else []
    )
    talk = Validating(scheduler)
    talk.validate("t00000", 1)
    assert answers(talk.end("t00000", 0, {"acc": 0.3})) == []
    assert answers(talk.report("t00000", 2)) == [("t00000", "stop", False)]


def pausing_at(score):
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Pause(trial.trial_id, WHY)] if result.get("acc") == score else []
    )
    return scheduler


def test_results_after_the_one_that_paused_a_trial_are_judged_when_it_continues():
    scheduler = pausing_at(0.3)
    talk = Validating(scheduler)
    for iteration in (1, 2):
        talk.validate("t00000", iteration)
    talk.end("t00000", 0, {"acc": 0.3})
    talk.end("t00000", 1, {"acc": 0.4})
    assert scheduler.results == [(1, None), (2, None), (1, 0.3)]
    assert answers(talk.validate("t00000", 3)) == [("t00000", "pause", False)]
    talk.exit("t00000", Outcome.STOPPED)
    talk.restore_from_snapshot()
    scheduler.idle = [[Resume("t00000", WHY)]]
    assert starts(talk.end("t00000", 2, {"acc": 0.5})) == [("t00000", 2)]
    # It would not have reported these, had the first one been judged at once.
    assert scheduler.results == [(1, None), (2, None), (1, 0.3)]
    assert talk.trial("t00000").checkpoint_index == 0
    talk.say(WorkerStarted("t00000", 2, 1))
    talk.report("t00000", 4)
    assert scheduler.results[3:] == [(2, 0.4), (3, 0.5), (4, None)]
    assert talk.trial("t00000").checkpoint_index == 2


def test_results_after_the_one_that_stopped_a_trial_are_not_judged():
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Stop(trial.trial_id, WHY)] if result.get("acc") == 0.3 else []
    )
    talk = Validating(scheduler)
    for iteration in (1, 2):
        talk.validate("t00000", iteration)
    talk.end("t00000", 0, {"acc": 0.3})
    talk.report("t00000", 3)
    talk.exit("t00000", Outcome.STOPPED)
    talk.end("t00000", 1, {"acc": 0.4})
    assert scheduler.results == [(1, None), (2, None), (1, 0.3)]
    assert talk.trial("t00000").validation_part.checkpoint_results[1]["acc"] == 0.4
    assert scheduler.completed == [("t00000", 0.4)]


def test_all_results_of_a_trial_that_is_done_are_judged():
    scheduler = pausing_at(0.3)
    talk = Validating(scheduler)
    for iteration in (1, 2):
        talk.validate("t00000", iteration)
    talk.end("t00000", 0, {"acc": 0.3})
    talk.exit("t00000", Outcome.COMPLETED)
    talk.end("t00000", 1, {"acc": 0.4})
    assert scheduler.results == [(1, None), (2, None), (1, 0.3), (2, 0.4)]
    assert scheduler.completed == [("t00000", 0.4)]


def test_a_late_pause_of_a_trial_that_has_lost_its_worker_pauses_it_at_its_next_report():
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Pause(trial.trial_id, WHY)] if result.get("acc") == 0.3 else []
    )
    talk = Validating(scheduler, max_failures=9)
    talk.validate("t00000", 1)
    for _ in range(4):
        talk.exit("t00000", Outcome.FAILED, BOOM)
        if talk.trial("t00000").status is Status.RUNNING:
            talk.say(WorkerStarted("t00000", talk.trial("t00000").attempt, 1))
    assert talk.trial("t00000").status is Status.PENDING
    talk.end("t00000", 0, {"acc": 0.3})
    talk.restore_from_snapshot()
    talk.say(after_s=100.0)
    talk.say(WorkerStarted("t00000", talk.trial("t00000").attempt, 1))
    assert answers(talk.report("t00000", 2)) == [("t00000", "pause", False)]


def test_the_end_of_a_trial_waits_for_its_validations_and_its_slot_does_not():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler)
    talk.validate("t00000", 1, loss=0.5)
    talk.validate("t00000", 2, loss=0.4)
    talk.exit("t00000", Outcome.COMPLETED)
    assert not talk.experiment.trial_table.live
    assert talk.trial("t00000").status is Status.TERMINATED
    assert (talk.ended, scheduler.completed) == ([], [])
    talk.end("t00000", 0, {"acc": 0.3})
    talk.restore_from_snapshot()
    assert talk.ended == []
    talk.end("t00000", 1, outcome=Outcome.FAILED, failure=BOOM)
    assert talk.ended == ["t00000"]
    # The newest result that has the metric, and not the last one.
    assert scheduler.completed == [("t00000", 0.3)]


def test_the_experiment_ends_when_the_last_validation_has():
    talk = Validating(max_trials=1)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    assert not talk.experiment.is_finished
    talk.end("t00000", 0, {"acc": 0.3})
    assert talk.experiment.is_finished


def test_a_trial_in_error_is_announced_at_once_and_its_validations_finish():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler, max_trials=1)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    assert scheduler.heard[-1] == ("error", "t00000")
    assert not talk.experiment.is_finished
    talk.end("t00000", 0, {"acc": 0.3})
    assert talk.validated() == [("t00000", 0, "VALIDATED", False)]
    assert scheduler.heard[-1] == ("error", "t00000")
    assert talk.trial("t00000").last_result["acc"] == 0.3
    assert talk.experiment.is_finished


def test_a_metric_that_only_validations_supply_is_not_missing():
    talk = Validating(max_trials=1, is_metric_required=True)
    for iteration in range(1, 13):
        talk.validate("t00000", iteration)
    talk.exit("t00000", Outcome.COMPLETED)
    assert not talk.experiment.fatal_error
    talk.end("t00000", 0, {"acc": 0.3})
    for index in range(1, 12):
        talk.end("t00000", index, outcome=Outcome.FAILED, failure=BOOM)
    assert not talk.experiment.fatal_error
    assert not any(isinstance(notice, cmd.MetricMissed) for notice in talk.notices)


def fail_validations(talk, trial_id, num):
    for iteration in range(1, num + 1):
        talk.validate(trial_id, iteration)
    talk.exit(trial_id, Outcome.COMPLETED)
    for index in range(num):
        assert not talk.experiment.fatal_error
        talk.end(trial_id, index, outcome=Outcome.FAILED, failure=BOOM)


def test_a_metric_is_missing_if_every_validation_fails_that_was_to_supply_it():
    talk = Validating(num_trials=2, max_trials=2, is_metric_required=True)
    fail_validations(talk, "t00000", 3)
    fail_validations(talk, "t00001", 1)
    assert talk.experiment.stop_reason.rule == "metric_not_reported"
    assert talk.experiment.fatal_error == (
        "trial t00000 completed, and no trial has reported the metric 'acc'"
    )


def test_enough_failed_validations_end_a_search_with_trials_left_to_run():
    talk = Validating(num_trials=2, max_trials=2, is_metric_required=True)
    fail_validations(talk, "t00000", 19)
    talk.restore_from_snapshot()
    talk.validate("t00001", 1)
    assert not talk.experiment.fatal_error
    talk.end("t00001", 0, outcome=Outcome.FAILED, failure=BOOM)
    assert talk.experiment.stop_reason.rule == "metric_not_reported"


def test_one_successful_validation_lets_the_search_go_on():
    talk = Validating(num_trials=2, max_trials=2, is_metric_required=True)
    talk.validate("t00001", 1)
    talk.end("t00001", 0, {"other": 1.0})
    fail_validations(talk, "t00000", 21)
    assert not talk.experiment.fatal_error


def test_validations_that_return_another_metric_leave_it_missing():
    talk = Validating(max_trials=1, is_metric_required=True)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.end("t00000", 0, {"f1": 0.3})
    assert "'acc'" in talk.experiment.fatal_error


# ------------------------------------------------------------------ retention


def test_retention_keeps_a_checkpoint_whose_validation_is_open():
    talk = Validating(checkpoints=CheckpointPolicy(retention=RetentionPolicy(1, "acc", "max")))
    for iteration in (1, 2, 3):
        assert deleted(talk.validate("t00000", iteration)) == []
    assert deleted(talk.end("t00000", 0, {"acc": 0.9})) == []
    # It has the best score, the other is the one that was judged last.
    assert deleted(talk.end("t00000", 1, {"acc": 0.5})) == []
    assert deleted(talk.end("t00000", 2, {"acc": 0.4})) == [1]
    kept = {checkpoint.index: checkpoint.score for checkpoint in talk.trial("t00000").checkpoints}
    assert kept == {0: 0.9, 2: 0.4}


def test_a_checkpoint_whose_validation_failed_ranks_last():
    talk = Validating(checkpoints=CheckpointPolicy(retention=RetentionPolicy(1, "acc", "max")))
    for iteration in (1, 2, 3):
        talk.validate("t00000", iteration)
    talk.end("t00000", 0, {"acc": -5.0})
    assert deleted(talk.end("t00000", 1, outcome=Outcome.FAILED, failure=BOOM)) == [1]
    assert [kept.index for kept in talk.trial("t00000").checkpoints] == [0, 2]


def test_what_was_judged_late_is_deleted_once_the_metric_comes_on_time_again():
    talk = Validating(checkpoints=CheckpointPolicy(retention=RetentionPolicy(1)))
    for iteration in (1, 2):
        talk.validate("t00000", iteration)
    talk.end("t00000", 0, {"acc": 0.1})
    talk.end("t00000", 1, outcome=Outcome.FAILED, failure=BOOM)
    assert [kept.index for kept in talk.trial("t00000").checkpoints] == [0, 1]
    assert deleted(talk.report("t00000", 3, acc=0.5)) == [0]


# ------------------------------------------------------------------ interruptions and restores


def test_an_interruption_kills_validations_and_a_restore_runs_them_again_in_order():
    scheduler = ListeningScheduler()
    talk = Validating(scheduler, num_trials=2, max_trials=2)
    talk.validate("t00001", 1)
    talk.validate("t00000", 1)
    talk.exit("t00001", Outcome.COMPLETED)
    said = talk.say(StopRequested("signal.SIGINT"))
    assert killed(said) == [("t00001", 0, 1), ("t00000", 0, 1)]
    talk.exit("t00000", Outcome.STOPPED)
    assert not talk.experiment.is_finished
    assert validations(talk.end("t00001", 0, outcome=Outcome.KILLED, failure=BOOM)) == []
    talk.end("t00000", 0, outcome=Outcome.KILLED, failure=BOOM)
    assert talk.experiment.is_finished
    assert talk.ended == ["t00000"]
    talk.restore_from_snapshot()
    said = talk.say(DriverRestarted(talk.experiment.settings))
    assert validations(said) == [("t00001", 0, 2), ("t00000", 0, 2)]
    talk.end("t00001", 0, {"acc": 0.3})
    assert talk.ended == ["t00000", "t00001"]
    assert scheduler.completed == [("t00001", 0.3)]


def test_a_second_interruption_of_an_experiment_that_was_stopped_ends_its_validations():
    talk = Validating(max_trials=1)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.say(StopRequested("signal.SIGINT"))
    talk.end("t00000", 0, outcome=Outcome.KILLED, failure=BOOM)
    assert talk.experiment.is_finished
    assert talk.ended == []


def test_a_restarted_driver_validates_again_what_was_running():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.validate("t00000", 2)
    said = talk.say(DriverRestarted(talk.experiment.settings))
    assert validations(said) == [("t00000", 0, 2)]
    talk.say(ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {"acc": 9.0}))
    assert talk.validated() == []


def test_a_trial_that_starts_from_the_beginning_forgets_its_validations():
    talk = Validating()
    talk.validate("t00000", 1)
    said = talk.say(DriverRestarted(talk.experiment.settings, unfinished=ResumeType.RESTART))
    assert validations(said) == []
    assert deleted(said) == [0]
    assert not talk.trial("t00000").validations


def test_a_trial_that_is_restarted_after_its_end_is_not_announced_twice():
    talk = Validating(max_trials=1)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.say(DriverRestarted(talk.experiment.settings, finished=ResumeType.RESTART))
    assert talk.trial("t00000").status is Status.RUNNING
    assert talk.ended == []


def test_an_ended_trial_that_waits_for_validations_stays_ended_at_a_restore():
    talk = Validating(max_trials=1)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    said = talk.say(DriverRestarted(talk.experiment.settings))
    assert validations(said) == [("t00000", 0, 2)]
    assert talk.trial("t00000").ending is TerminationReason.COMPLETED
    talk.end("t00000", 0, {"acc": 0.1})
    assert talk.ended == ["t00000"]


def test_no_validation_starts_after_an_interruption_whatever_the_snapshot():
    talk = Validating()
    talk.say(StopRequested("signal.SIGINT"))
    talk.restore_from_snapshot()
    assert validations(talk.validate("t00000", 1)) == []


# ------------------------------------------------------------------ checkpoints stored later


def upload(talk, iteration):
    """Report a checkpoint that is still being stored, and ask for its validation."""
    metrics, index = {"training_iteration": iteration}, iteration - 1
    return talk.say(
        ResultReported("t00000", 1, metrics, upload=index, validation=ValidationRequest())
    )


def stored(talk, iteration):
    record = CheckpointRecord(iteration - 1, iteration)
    return talk.say(CheckpointCommitted("t00000", 1, record))


def test_a_validation_starts_once_its_checkpoint_is_stored():
    talk = Validating()
    assert validations(upload(talk, 1)) == []
    talk.restore_from_snapshot()
    assert validations(stored(talk, 1)) == [("t00000", 0, 1)]
    talk.end("t00000", 0, {"acc": 0.5})
    assert talk.trial("t00000").last_result["acc"] == 0.5


def test_a_checkpoint_that_is_stored_after_a_later_one_is_kept_until_it_is_validated():
    talk = Validating(checkpoints=CheckpointPolicy(retention=RetentionPolicy(1)))
    upload(talk, 1)
    upload(talk, 2)
    assert validations(stored(talk, 2)) == [("t00000", 1, 1)]
    assert deleted(stored(talk, 1)) == []
    talk.end("t00000", 1, {"acc": 0.2})
    assert validations(talk.say()) == []
    assert talk.state("t00000", 0) is ValidationState.RUNNING
    assert deleted(talk.end("t00000", 0, {"acc": 0.1})) == [0]


def test_a_checkpoint_that_was_never_stored_is_not_validated():
    talk = Validating(max_trials=1)
    upload(talk, 1)
    talk.exit("t00000", Outcome.COMPLETED)
    assert not talk.trial("t00000").validations
    assert talk.ended == ["t00000"]


# ------------------------------------------------------------------ lists of checkpoints


def lists(commands):
    return [(c.token, list(map(shown, c.checkpoints))) for c in commands if is_list(c)]


def is_list(command):
    return isinstance(command, cmd.ListCheckpoints)


def shown(entry):
    record, metrics, status = entry
    return record.index, metrics.get("acc"), status


def test_a_worker_gets_its_checkpoints_at_once_or_when_they_are_validated():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.report("t00000", 2, CheckpointRecord(1, 2), acc=0.2)
    at_once = CheckpointsRequested("t00000", 1, "a", waits_for_validation=False)
    pending = [(0, None, "PENDING_VALIDATION"), (1, None, "COMMITTED")]
    assert lists(talk.say(at_once)) == [("a", pending)]
    assert lists(talk.say(CheckpointsRequested("t00000", 1, "b"))) == []
    talk.restore_from_snapshot()
    validated = [(0, 0.1, "VALIDATED"), (1, None, "COMMITTED")]
    assert lists(talk.end("t00000", 0, {"acc": 0.1})) == [("b", validated)]


def test_a_worker_that_has_left_gets_no_list():
    talk = Validating()
    talk.validate("t00000", 1)
    talk.say(CheckpointsRequested("t00000", 1, "a"))
    talk.exit("t00000", Outcome.COMPLETED)
    assert lists(talk.end("t00000", 0, {"acc": 0.1})) == []


def test_a_validation_for_which_a_new_session_lacks_resources_fails():
    policy = ValidationPolicy(resources={"cpu": 1.0, "gpu": 1.0})
    talk = Validating(capacity={"cpu": 2.0, "gpu": 1.0}, validation=policy)
    talk.validate("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.say(DriverRestarted(replace(talk.experiment.settings, capacity={"cpu": 2.0})))
    assert talk.state("t00000", 0) is ValidationState.FAILED
    assert talk.ended == ["t00000"]
    assert talk.experiment.is_finished


@pytest.mark.parametrize("end", ["worker lost", "driver restarted"])
def test_a_pause_decided_late_outlasts_a_lost_worker(end):
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Pause("t00000", WHY)] if "acc" in result and trial.trial_id == "t00000" else ()
    )
    talk = Validating(scheduler, num_trials=2, max_failures=3)
    talk.validate("t00000", 1)
    talk.report("t00000", 2)
    talk.end("t00000", 0, {"acc": 0.1})
    if end == "worker lost":
        talk.exit("t00000", Outcome.LOST)
    else:
        talk.say(DriverRestarted(talk.experiment.settings))
    trial = talk.trial("t00000")
    talk.say(WorkerStarted("t00000", trial.attempt, pid=2))
    assert answers(talk.report("t00000", 2)) == [("t00000", "pause", False)]


@pytest.mark.parametrize("comes_first", ["validation", "failure"])
def test_an_exploit_decided_late_counts_for_a_trial_that_is_retried(comes_first):
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Exploit("t00001", "t00000", {"x": 9}, WHY), Resume("t00001", WHY)]
        if trial.trial_id == "t00001" and "acc" in result
        else ()
    )
    talk = Validating(scheduler, num_trials=2, max_failures=3)
    talk.validate("t00000", 1)
    talk.end("t00000", 0, {"acc": 0.9})
    talk.validate("t00001", 1)
    talk.report("t00001", 2)
    events = [
        ValidationEnded("t00001", 0, 1, Outcome.COMPLETED, {"acc": 0.1}),
        WorkerExited("t00001", 1, Outcome.FAILED, BOOM),
    ]
    talk.say(*(events if comes_first == "validation" else reversed(events)))
    trial = talk.trial("t00001")
    assert (trial.config, trial.source_id) == ({"x": 9}, "t00000")


def test_results_from_before_an_exploit_are_not_those_of_the_new_configuration():
    scheduler = ListeningScheduler()
    scheduler.decide = lambda trial, result: (
        [Exploit("t00001", "t00000", {"x": 9}, WHY), Resume("t00001", WHY)]
        if trial.trial_id == "t00001" and trial.attempt == 1 and "acc" in result
        else ()
    )
    talk = Validating(scheduler, num_trials=2)
    talk.validate("t00000", 1)
    talk.end("t00000", 0, {"acc": 0.9})
    talk.validate("t00001", 1)
    talk.end("t00001", 0, {"acc": 0.1})
    talk.report("t00001", 2)
    talk.exit("t00001", Outcome.STOPPED)
    talk.say(WorkerStarted("t00001", 2, pid=2))
    talk.validate("t00001", 2)
    talk.exit("t00001", Outcome.COMPLETED)
    talk.end("t00001", 1, outcome=Outcome.FAILED, failure=BOOM)
    assert talk.trial("t00001").ending is TerminationReason.COMPLETED
    assert scheduler.completed == [("t00001", None)]
