import pytest

from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import CheckpointSaved, Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply
from tuner.virtual.executor import Curve, CurvePoint, ReplayExecutor


def points(*times_s, checkpoints=()):
    totals = [sum(times_s[: number + 1]) for number in range(len(times_s))]
    return [
        CurvePoint(
            {"loss": 1 / number, "training_iteration": number, "time_total_s": total_s},
            took_s,
            has_checkpoint=number in checkpoints,
        )
        for number, (took_s, total_s) in enumerate(zip(times_s, totals, strict=True), start=1)
    ]


def executor(curve, **settings):
    return ReplayExecutor({"a": curve}, capacity={"cpu": 1.0}, **settings)


def start(executor, checkpoint=None, attempt=1, next_checkpoint=0):
    executor.carry_out(
        [StartWorker("a", attempt, {}, {"cpu": 1.0}, (), checkpoint, next_checkpoint)]
    )


def answer(executor, verdict=ReportReply.CONTINUE, save=False):
    executor.carry_out([AnswerReport("a", 1, verdict, save)])


def drain(executor):
    history = []
    while executor._workers or executor._events:
        for event in executor.wait(None):
            history.append((executor.clock(), event))
            if isinstance(event, ResultReported):
                answer(executor)
    return history


def test_a_trial_reports_and_ends_at_the_recorded_times():
    history = drain(executor(Curve(points(1.0, 2.5), start_s=0.5, exit_s=0.25)))
    assert history == []
    recorded = executor(Curve(points(1.0, 2.5), start_s=0.5, exit_s=0.25))
    start(recorded)
    history = drain(recorded)
    assert [(at_s, type(event)) for at_s, event in history] == [
        (0.5, WorkerStarted),
        (1.5, ResultReported),
        (4.0, ResultReported),
        (4.25, WorkerExited),
    ]
    assert [event.metrics["loss"] for _, event in history[1:3]] == [1.0, 0.5]
    assert history[-1][1] == WorkerExited("a", 1, Outcome.COMPLETED)


def test_events_that_took_no_time_happen_at_once():
    recorded = executor(Curve(points(0.0)))
    start(recorded)
    assert [(at_s, type(event)) for at_s, event in drain(recorded)] == [
        (0.0, WorkerStarted),
        (0.0, ResultReported),
        (0.0, WorkerExited),
    ]


def test_a_failure_comes_at_its_recorded_time():
    failure = Failure("ValueError", "diverged")
    recorded = executor(Curve(points(1.0), exit_s=3.0, failure=failure))
    start(recorded)
    assert drain(recorded)[-1] == (4.0, WorkerExited("a", 1, Outcome.FAILED, failure))


def test_a_trial_that_never_reported_ends_at_its_recorded_time():
    recorded = executor(Curve((), exit_s=3.0))
    start(recorded)
    assert drain(recorded)[-1] == (3.0, WorkerExited("a", 1, Outcome.COMPLETED))


@pytest.mark.parametrize("verdict", [ReportReply.STOP, ReportReply.PAUSE])
def test_saving_and_exiting_take_time(verdict):
    recorded = executor(Curve(points(1.0, 1.0), exit_s=9.0), leave_s=0.5, save_s=2.0)
    start(recorded, next_checkpoint=3)
    recorded.wait(None)
    recorded.wait(None)
    answer(recorded, verdict, save=True)
    assert recorded.wait(None) == [CheckpointSaved("a", 1, CheckpointRecord(3, 1, 1.0))]
    assert recorded.wait(None) == [WorkerExited("a", 1, Outcome.STOPPED)]
    assert recorded.clock() == 3.5


def test_a_save_on_the_way_is_part_of_the_recorded_times():
    recorded = executor(Curve(points(1.0, 1.0)), save_s=2.0)
    start(recorded)
    recorded.wait(None)
    recorded.wait(None)
    answer(recorded, save=True)
    recorded.wait(None)
    recorded.wait(None)
    assert recorded.clock() == 2.0


def test_a_resumed_trial_continues_after_its_checkpoint():
    recorded = executor(Curve(points(1.0, 1.0, 1.0, 1.0), start_s=9.0), restart_s=5.0)
    start(recorded, CheckpointRecord(0, 2, 2.0), attempt=2)
    recorded.wait(None)
    (result,) = recorded.wait(None)
    assert (recorded.clock(), result.metrics["training_iteration"]) == (6.0, 3)
    assert (result.metrics["time_since_restore"], result.metrics["iterations_since_restore"]) == (
        1.0,
        1,
    )
    assert result.metrics["time_total_s"] == 3.0


def test_reported_checkpoints_come_with_their_results():
    recorded = executor(Curve(points(1.0, 1.0, 1.0, checkpoints={2, 3})))
    start(recorded, next_checkpoint=7)
    checkpoints = [
        event.checkpoint for _, event in drain(recorded) if isinstance(event, ResultReported)
    ]
    assert checkpoints == [None, CheckpointRecord(7, 2, 2.0), CheckpointRecord(8, 3, 3.0)]


def test_a_trial_that_is_killed_while_it_exits_is_gone_at_once():
    recorded = executor(Curve(points(1.0)), leave_s=60.0)
    start(recorded)
    recorded.wait(None)
    recorded.wait(None)
    answer(recorded, ReportReply.STOP)
    recorded.carry_out([KillWorker("a", 1, "too slow")])
    assert [event.outcome for event in recorded.wait(None)] == [Outcome.KILLED]
    assert recorded.wait(100.0) == []


def test_results_are_copies():
    curve = Curve(points(1.0))
    recorded = executor(curve)
    start(recorded)
    drain(recorded)[1][1].metrics["loss"] = "changed"
    assert curve.points[0].metrics["loss"] == 1.0
