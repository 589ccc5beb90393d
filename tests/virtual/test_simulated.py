import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import CheckpointSaved, Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.result import AUTO_FILLED, CONFIG, EXPERIMENT_TAG, NUM_EXPLOITS
from tuner.core.worker_records import CheckpointRecord, ReportReply
from tuner.virtual.executor import SimulatedExecutor


def forever(config):
    for number in itertools.count(1):
        yield {"loss": config.get("x", 1) / number}


def three(config):
    yield from ({"loss": 1.0}, 0.5, {"loss": 0.25, "timesteps_this_iter": 10})


def executor(curves=forever, **settings):
    return SimulatedExecutor(curves, capacity={"cpu": 2.0}, **settings)


def start(executor, trial_id="a", attempt=1, checkpoint=None, next_checkpoint=0, **config):
    executor.carry_out(
        [StartWorker(trial_id, attempt, config, {"cpu": 1.0}, (), checkpoint, next_checkpoint)]
    )


def answer(executor, trial_id="a", verdict=ReportReply.CONTINUE, save=False, attempt=1):
    executor.carry_out([AnswerReport(trial_id, attempt, verdict, save)])


def drain(executor):
    """Answer every report with continue until nothing runs."""
    history = []
    while executor._workers or executor._events:
        for event in executor.wait(None):
            history.append((executor.clock(), event))
            if isinstance(event, ResultReported):
                answer(executor, event.trial_id, attempt=event.attempt)
    return history


def test_a_trial_follows_its_curve_and_ends_with_it():
    simulated = executor(three, duration_s=10.0)
    start(simulated)
    history = drain(simulated)
    assert [(at_s, type(event)) for at_s, event in history] == [
        (0.0, WorkerStarted),
        (10.0, ResultReported),
        (20.0, ResultReported),
        (30.0, ResultReported),
        (30.0, WorkerExited),
    ]
    assert [
        event.metrics.get("loss", event.metrics.get("_metric")) for _, event in history[1:4]
    ] == [1.0, 0.5, 0.25]
    assert history[-1][1] == WorkerExited("a", 1, Outcome.COMPLETED)


def test_results_have_the_keys_of_the_engine_with_virtual_times():
    simulated = executor(duration_s=3661.0)
    start(simulated)
    simulated.wait(None)
    (result,) = simulated.wait(None)
    assert set(result.metrics) - {"loss"} == {
        name
        for name in AUTO_FILLED - {CONFIG, EXPERIMENT_TAG, NUM_EXPLOITS}
        if "timesteps" not in name and "episodes" not in name
    }
    assert (result.metrics["date"], result.metrics["timestamp"]) == ("1970-01-01_01-01-01", 3661)
    assert (result.metrics["time_this_iter_s"], result.metrics["time_total_s"]) == (3661.0, 3661.0)


def test_the_duration_may_depend_on_configuration_and_iteration():
    simulated = executor(three, duration_s=lambda config, iteration: config["pace"] * iteration)
    start(simulated, pace=2.0)
    assert [at_s for at_s, event in drain(simulated) if isinstance(event, ResultReported)] == [
        2.0,
        6.0,
        12.0,
    ]


def test_events_of_the_same_time_come_together_in_causal_order():
    simulated = executor()
    for trial_id in "cab":
        start(simulated, trial_id)
    assert [event.trial_id for event in simulated.wait(None)] == ["c", "a", "b"]
    assert [event.trial_id for event in simulated.wait(None)] == ["c", "a", "b"]


def test_time_passes_without_a_waiting_trial():
    simulated = executor()
    start(simulated, "a")
    simulated.wait(None)
    simulated.wait(None)
    assert simulated.wait(5.0) == []
    assert simulated.clock() == 6.0
    answer(simulated, "a")
    (result,) = simulated.wait(None)
    assert simulated.clock() == 7.0
    assert result.metrics["time_total_s"] == 2.0


def test_wait_advances_the_clock_by_the_timeout_at_most():
    simulated = executor(duration_s=10.0)
    start(simulated)
    simulated.wait(None)
    assert simulated.wait(4.0) == []
    assert simulated.clock() == 4.0
    assert len(simulated.wait(6.0)) == 1
    assert simulated.clock() == 10.0


def test_waiting_without_trials_or_timeout_is_an_error():
    simulated = executor()
    with pytest.raises(RuntimeError, match="no simulated trial is running"):
        simulated.wait(None)
    start(simulated)
    simulated.wait(None)
    simulated.wait(None)
    with pytest.raises(RuntimeError, match="answer one"):
        simulated.wait(None)


def test_wake_ends_the_next_wait():
    simulated = executor()
    simulated.wake()
    assert simulated.wait(None) == []
    assert simulated.wait(1.0) == []
    assert simulated.clock() == 1.0


@pytest.mark.parametrize("verdict", [ReportReply.STOP, ReportReply.PAUSE])
def test_a_trial_follows_answers_at_once(verdict):
    closed = []

    def curve(config):
        try:
            yield from forever(config)
        finally:
            closed.append(True)

    simulated = executor(curve)
    start(simulated)
    simulated.wait(None)
    simulated.wait(None)
    answer(simulated, verdict=verdict)
    assert simulated.wait(None) == [WorkerExited("a", 1, Outcome.STOPPED)]
    assert (simulated.clock(), closed) == (1.0, [True])


def test_saves_are_answered_at_once_and_before_the_exit():
    simulated = executor(lambda config: ({"timesteps_this_iter": 10} for _ in range(9)))
    start(simulated, next_checkpoint=4)
    simulated.wait(None)
    simulated.wait(None)
    answer(simulated, save=True)
    assert simulated.wait(None) == [
        CheckpointSaved("a", 1, CheckpointRecord(4, 1, 1.0, {"timesteps_total": 10}))
    ]
    simulated.wait(None)
    answer(simulated, verdict=ReportReply.PAUSE, save=True)
    saved, exited = simulated.wait(None)
    assert saved.checkpoint == CheckpointRecord(5, 2, 2.0, {"timesteps_total": 20})
    assert exited.outcome is Outcome.STOPPED


def test_an_attempt_continues_from_its_checkpoint():
    simulated = executor(duration_s=2.0)
    start(
        simulated,
        attempt=3,
        checkpoint=CheckpointRecord(0, 4, 100.0, {"episodes_total": 7}),
        x=10.0,
    )
    simulated.wait(None)
    (result,) = simulated.wait(None)
    assert (result.attempt, result.metrics["training_iteration"], result.metrics["loss"]) == (
        3,
        5,
        2.0,
    )
    assert (result.metrics["time_total_s"], result.metrics["iterations_since_restore"]) == (
        102.0,
        1,
    )
    assert result.metrics["episodes_total"] == 7


def test_a_checkpoint_at_the_end_of_the_curve_completes():
    simulated = executor(three)
    start(simulated, checkpoint=CheckpointRecord(0, 3))
    assert simulated.wait(None)[-1] == WorkerExited("a", 1, Outcome.COMPLETED)


def raises_late(config):
    yield {"loss": 1}
    raise ValueError("diverged")


def leaves(config):
    raise SystemExit(3)


def not_to_be_read(config):
    yield {"done": 1}


@pytest.mark.parametrize(
    ("curves", "message", "at_s"),
    [
        (raises_late, "diverged", 2.0),
        (leaves, "exited with code 3", 0.0),
        (not_to_be_read, "done must be True or False", 1.0),
        (lambda config: 1 / 0, "division by zero", 0.0),
        (lambda config: None, "not iterable", 0.0),
    ],
)
def test_a_curve_that_raises_is_a_failed_trial(curves, message, at_s):
    simulated = executor(curves)
    start(simulated)
    ended_s, exited = drain(simulated)[-1]
    assert exited.outcome is Outcome.FAILED
    assert message in exited.failure.message
    assert ended_s == at_s


@pytest.mark.parametrize("duration_s", [-1.0, math.inf, math.nan])
def test_an_impossible_duration_is_a_failed_trial(duration_s):
    simulated = executor(three, duration_s=lambda config, iteration: duration_s)
    start(simulated)
    assert (
        "duration_s must be a finite number of at least 0"
        in drain(simulated)[-1][1].failure.message
    )


def test_a_killed_trial_has_no_more_events():
    simulated = executor()
    start(simulated, "a")
    start(simulated, "b")
    simulated.wait(None)
    simulated.carry_out([KillWorker("a", 1, "too slow")])
    (event,) = simulated.wait(None)
    assert (event.outcome, str(event.failure)) == (Outcome.KILLED, "killed: too slow")
    assert [event.trial_id for event in simulated.wait(None)] == ["b"]


def test_commands_for_attempts_that_are_gone_or_do_not_wait_are_ignored():
    simulated = executor()
    answer(simulated, "a")
    simulated.carry_out([KillWorker("a", 1, "")])
    start(simulated, "a")
    answer(simulated, "a", ReportReply.STOP)
    answer(simulated, "a", ReportReply.STOP, attempt=2)
    assert [type(event) for event in simulated.wait(None) + simulated.wait(None)] == [
        WorkerStarted,
        ResultReported,
    ]


def test_a_clean_up_that_raises_is_ignored():
    def curve(config):
        try:
            yield {}
        finally:
            raise ValueError("clean-up")

    simulated = executor(curve)
    start(simulated)
    simulated.wait(None)
    simulated.wait(None)
    answer(simulated, verdict=ReportReply.STOP)
    assert simulated.wait(None) == [WorkerExited("a", 1, Outcome.STOPPED)]


def test_a_curve_cannot_change_the_drivers_configuration():
    layers = [1]
    simulated = executor(lambda config: config["layers"].append(2) or [])
    start(simulated, layers=layers)
    drain(simulated)
    assert layers == [1]


def test_a_trial_that_has_ended_is_not_kept_in_memory():
    simulated = executor(three)
    for number in range(50):
        start(simulated, f"t{number}")
    drain(simulated)
    assert not simulated._workers
    assert not simulated._due
    assert not simulated._events


def test_shutdown_forgets_everything_and_may_be_called_again():
    simulated = executor()
    start(simulated)
    simulated.shutdown(0.0)
    simulated.shutdown(0.0)
    assert simulated.wait(1.0) == []


def test_the_capacity_is_what_was_given():
    assert executor().capacity() == {"cpu": 2.0}


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    pace=st.sampled_from([0.0, 0.5, 1.0]),
    breaks=st.sets(st.integers(0, 5)),
)
def test_every_trial_starts_once_ends_once_and_time_never_runs_backwards(lengths, pace, breaks):
    def curve(config):
        yield from ({"number": number} for number in range(config["length"]))
        if config["index"] in breaks:
            raise ValueError

    def run():
        simulated = executor(
            curve, duration_s=lambda config, iteration: pace * (config["index"] % 3)
        )
        for index, length in enumerate(lengths):
            start(simulated, f"t{index}", index=index, length=length)
        return drain(simulated)

    history = run()
    assert history == run()
    times = [at_s for at_s, _ in history]
    assert times == sorted(times)
    for index, length in enumerate(lengths):
        started, *results, exited = [event for _, event in history if event.trial_id == f"t{index}"]
        assert isinstance(started, WorkerStarted)
        assert [result.metrics["number"] for result in results] == list(range(length))
        assert exited.outcome is (Outcome.FAILED if index in breaks else Outcome.COMPLETED)


def test_a_curve_that_numbers_its_results_continues_after_the_checkpoint():
    simulated = executor(
        lambda config: (
            {"loss": 1.0 / epoch, "training_iteration": epoch} for epoch in range(10, 60, 10)
        )
    )
    start(simulated, checkpoint=CheckpointRecord(0, 20, 2.0))
    reported = [
        event.metrics["training_iteration"]
        for _, event in drain(simulated)
        if isinstance(event, ResultReported)
    ]
    assert reported == [30, 40, 50]
