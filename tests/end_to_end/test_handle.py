"""Experiments in the background, controlled from this process and from another one."""

import subprocess
import sys
import textwrap

import pytest

import tuner as tune
from tests.end_to_end.walking import Walker
from tests.waiting import wait_until
from tuner.core.trial import Status, TerminationReason


def endless(config):
    while True:
        tune.report({"loss": 1.0})


def status_of(handle, trial_id):
    return next(
        (str(result.status) for result in handle.results() if result.trial_id == trial_id), None
    )


@pytest.fixture
def start(build):
    """Start an experiment in the background; it is ended with the test."""
    handles = []

    def begin(trainable, space=None, **options):
        handle = build(trainable, space, **options).start()
        handles.append(handle)
        return handle

    yield begin
    for handle in handles:
        if handle.is_running:
            handle.stop(urgent=True)
            handle.wait()


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """Return a function that presses Ctrl-C once, as soon as the handle is waited for."""

    def press(handle):
        join, pressed = handle._session.join, []

        def pressing(timeout_s):
            if not pressed:
                pressed.append(True)
                raise KeyboardInterrupt
            return join(timeout_s)

        monkeypatch.setattr(handle._session, "join", pressing)

    return press


def test_a_stopped_experiment_can_be_restored(start, tmp_path):
    handle = start(Walker, {"by": 1}, tune={"num_samples": 2}, stop={"at": 10_000})
    wait_until(
        lambda: (
            len(handle.results()) == 2
            and all(result.metrics.get("at") for result in handle.results())
        )
    )
    assert handle.is_running
    handle.stop()
    grid = handle.wait()
    assert [result.ending for result in grid] == [TerminationReason.INTERRUPTED] * 2
    assert not handle.is_running
    reached = [result.metrics["at"] for result in grid]
    again = tune.Tuner.restore(
        tmp_path / "experiment", Walker, stop={"at": max(reached) + 5}, verbose=0
    ).fit()
    assert [result.metrics["at"] for result in again] == [max(reached) + 5] * 2


@pytest.mark.parametrize("executor", ["process"])
def test_a_trial_is_paused_resumed_forked_and_stopped(start):
    handle = start(Walker, {"by": 1}, stop={"at": 10**9})
    wait_until(lambda: status_of(handle, "t00000") == "RUNNING")
    handle.pause_trial("t00000")
    wait_until(lambda: status_of(handle, "t00000") == "PAUSED")
    assert handle.progress().waiting_for == "t00000 to be resumed"
    assert handle.fork_trial("t00000", {"by": 0}) == "f00000"
    wait_until(lambda: status_of(handle, "f00000") == "RUNNING")
    (paused_at,) = [each.metrics["at"] for each in handle.results() if each.trial_id == "t00000"]
    handle.resume_trial("t00000")
    wait_until(lambda: handle.results()[0].metrics["at"] > paused_at)
    handle.stop_trial("t00000")
    handle.stop_trial("f00000")
    first, second = handle.wait()
    end = first.metrics["at"]
    assert end > paused_at
    assert first.metrics_dataframe["at"].tolist() == list(range(1, end + 1))
    assert first.metrics_dataframe["training_iteration"].tolist() == list(range(1, end + 1))
    assert (second.status, second.ending, second.config) == (
        Status.TERMINATED,
        TerminationReason.STOPPED_EARLY,
        {"by": 0},
    )


def test_manual_requests_are_part_of_the_restored_experiment(start, tmp_path):
    handle = start(Walker, {"by": 1}, stop={"at": 100_000})
    wait_until(lambda: status_of(handle, "t00000") == "RUNNING")
    fork = handle.fork_trial("t00000", {"by": 0})
    wait_until(lambda: status_of(handle, fork) == "RUNNING")
    handle.pause_trial("t00000")
    wait_until(lambda: status_of(handle, "t00000") == "PAUSED")
    handle.stop()
    before = handle.wait()
    again = tune.Tuner.restore(
        tmp_path / "experiment", Walker, verbose=0, stop={"training_iteration": 1}
    )
    assert [
        (result.trial_id, result.status, result.ending, result.config)
        for result in again.get_results()
    ] == [(result.trial_id, result.status, result.ending, result.config) for result in before]
    ended = again.fit()
    assert [str(result.status) for result in ended] == ["TERMINATED"] * 2


def test_impossible_requests_raise_an_error_with_the_reason(start):
    handle = start(endless, {"x": {"lr": 0.1}})
    wait_until(lambda: status_of(handle, "t00000") == "RUNNING")
    with pytest.raises(tune.TunerError, match="there is no trial 'missing'"):
        handle.stop_trial("missing")
    with pytest.raises(tune.TunerError, match="has no checkpoint to go on from"):
        handle.fork_trial("t00000", {"x": {"lr": 0.2}})
    with pytest.raises(TypeError, match="config\\['x/lr'\\] must be a plain value"):
        handle.fork_trial("t00000", {"x": {"lr": object()}})
    with pytest.raises(TimeoutError, match="it keeps running"):
        handle.wait(timeout_s=0.0)


def test_a_callback_cannot_wait_for_the_driver_that_calls_it(build):
    answered, handles = [], []

    class Impatient(tune.Callback):
        def on_trial_result(self, **info):
            if handles and not answered:
                with pytest.raises(tune.TunerError, match="from another thread"):
                    handles[0].pause_trial("t00000")
                answered.append(True)
                handles[0].stop()

    handles.append(build(endless, {"x": 1}, callbacks=[Impatient()]).start())
    handles[0].wait()
    assert answered


def test_wait_returns_when_the_driver_ends_before_ctrl_c_reaches_it(fit, press_ctrl_c):
    handle = tune.attach(fit(lambda config: tune.report({"loss": 1}), {"x": 1}).experiment_path)
    press_ctrl_c(handle)
    assert len(handle.wait()) == 1


def test_start_refuses_what_fit_refuses(build, tmp_path):
    build(endless, {"x": 1}).start().stop(urgent=True)
    with pytest.raises(tune.errors.ExperimentExists):
        build(endless, {"x": 1}).start()


def test_a_tuner_runs_once(start, build):
    tuner = build(lambda config: tune.report({"loss": 1}), {"x": 1})
    tuner.start().wait()
    with pytest.raises(RuntimeError, match="has been called before"):
        tuner.fit()
    assert len(tuner.get_results()) == 1


def test_wait_raises_what_ended_the_experiment(build):
    def fails(config):
        raise ValueError("boom")

    handle = build(fails, {"x": 1}, failure={"fail_fast": "raise"}).start()
    with pytest.raises(tune.errors.TrialFailed, match="boom"):
        handle.wait()


def test_a_script_that_ends_without_asking_is_told_what_ended_its_experiment(tmp_path):
    script = f"""
        import tuner as tune

        def fails(config):
            raise ValueError("boom")

        tune.Tuner(
            fails,
            run_config=tune.RunConfig(
                storage_path={str(tmp_path)!r},
                failure_config=tune.FailureConfig(fail_fast="raise"),
            ),
        ).start()
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    ).stderr
    assert "Exception in thread tuner-driver:" in told
    assert "TrialFailed: " in told
    assert "ValueError: boom" in told


def test_ctrl_c_in_a_wait_stops_the_experiment_and_waits_on(start, press_ctrl_c):
    handle = start(Walker, {"by": 1}, stop={"at": 10**9})
    wait_until(lambda: status_of(handle, "t00000") == "RUNNING")
    press_ctrl_c(handle)
    (result,) = handle.wait()
    assert result.ending is TerminationReason.INTERRUPTED


def test_another_process_steers_through_the_directory(start):
    handle = start(Walker, {"by": 1}, stop={"at": 100_000})
    wait_until(lambda: status_of(handle, "t00000") == "RUNNING")
    script = f"""
        import tuner as tune
        handle = tune.attach({handle.path!r})
        assert handle.is_running
        handle.pause_trial("t00000")
        try:
            handle.pause_trial("t00000")
        except tune.TunerError as refusal:
            print(refusal)
        print(handle.fork_trial("t00000", {{"by": 3}}))
        handle.stop()
        print(handle.wait()[1].ending)
    """
    answered = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    ).stdout
    refusal, fork, ending = answered.splitlines()
    assert "paused by hand already" in refusal
    assert fork == "f00000"
    assert ending == "interrupted"
    handle.wait()


def test_a_handle_of_an_ended_experiment_is_read_only(fit):
    path = fit(lambda config: tune.report({"loss": 1}), {"x": 1}).experiment_path
    handle = tune.attach(path)
    assert not handle.is_running
    assert handle.dataframe()["loss"].tolist() == [1]
    assert len(handle.wait()) == 1
    with pytest.raises(tune.errors.NotRunning):
        handle.stop()


def test_attach_refuses_a_directory_without_an_experiment(tmp_path):
    with pytest.raises(tune.errors.StorageError, match="holds no experiment"):
        tune.attach(tmp_path)
