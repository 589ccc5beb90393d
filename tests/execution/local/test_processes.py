"""Each attempt ends with one exit and its cause, and other trials continue."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import ReportReply
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.resources import THREAD_VARIABLES

pytestmark = pytest.mark.process


def test_a_function_that_returns_has_completed(start_executor, start_method):
    ended = start_executor(lambda config: None, start_method=start_method).run()
    assert ended == WorkerExited("t00001", 1, Outcome.COMPLETED)


def test_reports_arrive_in_order_and_each_waits_for_its_answer(start_executor, start_method):
    def train(config):
        from tuner.execution.session import report

        for step in range(3):
            report({"loss": config["start"] - step})

    harness = start_executor(train, start_method=start_method)
    harness.run(start=10)
    kinds = [type(event) for event in harness.events["t00001"]]
    assert kinds == [WorkerStarted, ResultReported, ResultReported, ResultReported, WorkerExited]
    assert [event.metrics["loss"] for event in harness.events["t00001"][1:4]] == [10, 9, 8]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such policy")
@pytest.mark.parametrize(
    ("policy_of_driver", "policy_of_trial"),
    [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")],
)
def test_training_is_batch_work_unless_the_driver_has_another_policy(
    start_executor, start_method, policy_of_driver, policy_of_trial
):
    # In another thread, because an unprivileged thread cannot leave the lowest policy.
    def ready():
        os.sched_setscheduler(0, getattr(os, policy_of_driver), os.sched_param(0))
        harnesses.append(
            start_executor(
                lambda config: print(os.sched_getscheduler(0)), start_method=start_method
            )
        )

    harnesses = []
    thread = threading.Thread(target=ready)
    thread.start()
    thread.join()
    harnesses[0].run()
    assert int(harnesses[0].printed()) == getattr(os, policy_of_trial)


def test_a_stop_unwinds_the_training_code(start_executor):
    def train(config):
        from tuner.execution.session import report

        try:
            while True:
                report({"loss": 1})
        finally:
            print("cleaned up")

    harness = start_executor(train)
    harness.start("t00001")
    harness.next_event("t00001", ResultReported)
    harness.answer("t00001", ReportReply.STOP)
    assert harness.exit_of("t00001").outcome is Outcome.STOPPED
    assert harness.printed() == "cleaned up\n"


def test_an_exception_arrives_as_text(start_executor, start_method):
    def train(config):
        raise KeyError("learning_rate")

    ended = start_executor(train, start_method=start_method).run()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "KeyError"
    assert 'raise KeyError("learning_rate")' in ended.failure.traceback


def test_an_exception_that_cannot_be_formatted_or_pickled_fails_only_its_trial(start_executor):
    def train(config):
        class Unspeakable(Exception):
            def __init__(self, first, second):
                self.lock = threading.Lock()

            def __str__(self):
                raise RuntimeError("no words")

            def __reduce__(self):
                raise RuntimeError("no pickle")

        raise Unspeakable(1, 2)

    ended = start_executor(train).run()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "Unspeakable"


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.COMPLETED), (3, Outcome.FAILED)])
def test_sys_exit_fails_unless_the_code_is_zero(start_executor, code, outcome):
    assert start_executor(lambda config: sys.exit(config["code"])).run(code=code).outcome is outcome


def test_a_process_that_vanishes_is_reported_with_exit_code_and_stderr(
    start_executor, start_method
):
    def train(config):
        print("last words", file=sys.stderr)
        os._exit(3)

    ended = start_executor(train, start_method=start_method).run()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "exited with code 3"
    assert ended.failure.traceback == "last words\n"


def test_stderr_of_an_earlier_attempt_is_not_repeated(start_executor):
    def train(config):
        print(config["words"], file=sys.stderr)
        os._exit(3)

    harness = start_executor(train)
    harness.run(words="first")
    harness.events.clear()
    harness.start("t00001", attempt=2, words="second")
    assert harness.exit_of("t00001").failure.traceback == "second\n"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGALRM])
def test_a_signal_is_named(start_executor, number):
    ended = start_executor(lambda config: os.kill(os.getpid(), config["number"])).run(number=number)
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == f"killed by {number.name}"


def test_a_segmentation_fault_shows_where_it_happened(start_executor):
    def train(config):
        import ctypes

        ctypes.string_at(0)

    assert "in train" in start_executor(train).run().failure.traceback


def spin_in_c(config):
    sum(range(10**12))


def sleep(config):
    signal.pause()


def stop_oneself(config):
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_sigterm(config):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


@pytest.mark.parametrize("behaviour", [spin_in_c, sleep, stop_oneself, ignore_sigterm])
def test_a_kill_ends_any_worker(start_executor, behaviour, wait_started):
    harness = start_executor(behaviour)
    harness.start("t00001")
    wait_started(harness, "t00001")
    harness.kill("t00001")
    ended = harness.exit_of("t00001")
    assert ended.outcome is Outcome.KILLED
    assert ended.failure.message == "the test says so"


def test_a_kill_before_the_start_is_a_kill(start_executor, trainable_importing, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    harness = start_executor(trainable_importing(f"open({str(gate)!r}).close()"))
    harness.start("t00001")
    harness.kill("t00001")
    harness.kill("t00001")
    gate.write_text("")
    assert harness.exit_of("t00001").outcome is Outcome.KILLED
    assert len(harness.events["t00001"]) == 1


@pytest.mark.parametrize("manner", ["fork", "exec", "session"])
def test_an_exit_comes_when_all_descendants_are_gone(
    start_executor, start_method, manner, still_alive
):
    def train(config):
        if config["manner"] == "exec":
            child = subprocess.Popen(["sleep", "600"]).pid
        elif (child := os.fork()) == 0:
            if config["manner"] == "session":
                os.setsid()
            print(os.getpid(), flush=True)
            signal.pause()
        print(child, flush=True)

    harness = start_executor(train, start_method=start_method)
    assert harness.run(manner=manner).outcome is Outcome.COMPLETED
    assert (
        still_alive(
            [int(line) for line in harness.printed().split()],
            at_once=manner != "session",
        )
        == []
    )


def test_a_daemon_ends_with_its_trial(start_executor, still_alive, wait_started):
    def train(config):
        if config["is_owner"]:
            # The shell exits at once, and leaves a process in its own session behind.
            subprocess.run(["sh", "-c", "setsid sleep 600 & echo $!"], check=True)
            signal.pause()

    harness = start_executor(train)
    harness.start("t00001", is_owner=True)
    wait_started(harness, "t00001")
    wait_until((harness.directory / "t00001/stdout").read_text)
    for trial_id in ("t00002", "t00003"):
        harness.run(trial_id, is_owner=False)
    daemon = int(harness.printed("t00001"))
    assert still_alive([daemon], at_once=True) == [daemon]
    harness.kill("t00001")
    harness.exit_of("t00001")
    assert still_alive([daemon]) == []


def test_a_worker_that_does_not_exit_after_its_exit_message_is_killed(start_executor):
    def train(config):
        import atexit

        atexit.register(signal.pause)

    assert start_executor(train, kill_grace_s=0.2).run().outcome is Outcome.COMPLETED


def test_exit_handlers_of_the_training_code_run(start_executor):
    def train(config):
        import atexit

        atexit.register(print, "at exit")

    harness = start_executor(train)
    harness.run()
    assert harness.printed() == "at exit\n"


def test_standard_streams_of_a_worker_and_its_children_go_to_its_directory(
    start_executor, start_method
):
    def train(config):
        print("from print")
        print("\udcff from stderr", file=sys.stderr)
        subprocess.run(["echo", "from a child"], check=True)

    harness = start_executor(train, start_method=start_method)
    harness.run()
    assert harness.printed() == "from print\nfrom a child\n"
    assert harness.printed(stream="stderr") == "\\udcff from stderr\n"


def test_a_worker_has_its_own_session_and_environment(start_executor, start_method, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")

    def train(config):
        assert os.getsid(0) == os.getpgrp() == os.getpid()
        assert os.environ["TUNER_TRIAL_ID"] == "t00007"
        assert os.environ["TUNER_TRIAL_DIR"].endswith("t00007")
        assert os.environ["TUNE_ORIG_WORKING_DIR"] == str(Path.cwd()) == config["directory"]
        assert os.environ["OMP_NUM_THREADS"] == "3"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
        assert sys.stdin.read() == ""

    harness = start_executor(train, start_method=start_method)
    harness.start(
        "t00007", resources={"cpu": 3.5, "gpu": 1.0}, gpu_ids=(1,), directory=str(Path.cwd())
    )
    assert harness.exit_of("t00007").failure is None


def test_threads_of_libraries_loaded_already_follow_the_cpus(start_executor, monkeypatch):
    import numpy as np

    def train(config):
        import threadpoolctl

        np.ones((2, 2)) @ np.ones((2, 2))
        # Where BLAS was built without threads there is none to count.
        assert all(pool["num_threads"] == 2 for pool in threadpoolctl.threadpool_info())

    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    harness = start_executor(train)
    harness.start("t00001", resources={"cpu": 2.0})
    assert harness.exit_of("t00001").failure is None


def test_random_numbers_differ_between_trials_and_not_between_attempts(
    start_executor, start_method
):
    import numpy as np

    def train(config):
        import random

        print(random.random(), np.random.rand())  # noqa: TID251, S311, NPY002

    harness = start_executor(train, start_method=start_method)
    for trial_id in ("t00001", "t00002"):
        harness.run(trial_id)
    harness.events.clear()
    harness.run("t00001")
    first, again = harness.printed("t00001").splitlines()
    assert first == again
    assert set(first.split()).isdisjoint(harness.printed("t00002").split())


def test_a_worker_inherits_no_descriptors_of_the_engine(start_executor, start_method):
    def train(config):
        print(*(entry.name for entry in Path("/proc/self/fd").iterdir()))

    harness = start_executor(train, start_method=start_method)
    harness.run("t00001")
    harness.run("t00002")
    # Standard streams, two liveness pipes, the connection, the listing itself, and in a spawned
    # worker the trainable.
    assert [len(harness.printed(trial_id).split()) for trial_id in ("t00001", "t00002")] == [
        7 if start_method == "zygote" else 8
    ] * 2


def test_a_configuration_that_cannot_be_pickled_fails_its_trial_only(start_executor):
    harness = start_executor(lambda config: None)
    harness.start("t00001", lock=threading.Lock())
    harness.start("t00002")
    assert harness.exit_of("t00001").outcome is Outcome.FAILED
    assert harness.exit_of("t00002").outcome is Outcome.COMPLETED


def test_a_large_configuration_does_not_block_the_driver(start_executor):
    harness = start_executor(lambda config: print(len(config["data"])))
    harness.run(data=b"x" * 5_000_000)
    assert harness.printed() == "5000000\n"


def test_a_trial_directory_that_cannot_be_used_fails_its_trial_only(start_executor):
    harness = start_executor(lambda config: None)
    (harness.directory / "t00001").write_text("in the way")
    assert harness.run("t00001").failure.kind == "NotADirectoryError"
    assert harness.run("t00002").outcome is Outcome.COMPLETED


def test_warnings_that_the_engine_logs_in_a_worker_go_to_the_trials_stderr(
    start_executor, start_method
):
    def train(config):
        import logging

        logging.getLogger("tuner").warning("said in a worker")

    harness = start_executor(train, start_method=start_method)
    harness.run()
    assert (harness.directory / "t00001/stderr").read_text() == "said in a worker\n"


def test_a_link_in_place_of_the_output_is_not_followed(start_executor):
    harness = start_executor(lambda config: None)
    (harness.directory / "t00001").mkdir()
    (harness.directory / "t00001/stdout").symlink_to(harness.directory / "elsewhere")
    assert harness.run("t00001").outcome is Outcome.FAILED
    assert not (harness.directory / "elsewhere").exists()


def test_a_fifo_in_place_of_the_output_is_not_waited_for(start_executor):
    harness = start_executor(lambda config: None)
    (harness.directory / "t00001").mkdir()
    os.mkfifo(harness.directory / "t00001/stdout")
    assert harness.run("t00001").outcome is Outcome.FAILED


def test_a_lack_of_descriptors_fails_no_trial(start_executor, monkeypatch):
    def refuse():
        raise OSError(errno.EMFILE, "too many open files")

    harness = start_executor(lambda config: None)
    with monkeypatch.context() as patch:
        patch.setattr("tuner.execution.local.zygote_protocol.socket.socketpair", refuse)
        harness.start("t00001")
        harness.start("t00002")
        assert harness.executor.wait(0.0) == []
        harness.kill("t00002")
    assert harness.exit_of("t00002").outcome is Outcome.KILLED
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    "frame",
    [
        b"no json\n",
        b'{"kind": "secret"}\n',
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b"x" * 3_000_000,
        b'{"pid": NaN}\n',
        b"\xff\n",
    ],
)
def test_a_worker_that_violates_the_protocol_is_killed(start_executor, frame):
    def train(config):
        from tuner.execution.attempt import Attempt

        data = config["frame"]
        while data:
            data = data[os.write(Attempt.latest._channel._descriptor, data) :]
        signal.pause()

    ended = start_executor(train).run(frame=frame)
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "malformed message"


def test_a_second_report_before_the_answer_violates_the_protocol(start_executor):
    def train(config):
        from tuner.execution.attempt import Attempt

        channel = Attempt.latest._channel
        for step in (1, 2):
            channel.send(
                {"kind": "result", "metrics": {"training_iteration": step}, "checkpoint": None}
            )
        signal.pause()

    harness = start_executor(train)
    harness.start("t00001")
    assert (
        "before the last one was answered"
        in harness.next_event("t00001", WorkerExited).failure.message
    )


def test_trials_leave_no_descriptor_open(start_executor, start_method):
    harness = start_executor(lambda config: None, start_method=start_method)
    harness.run("t00000")
    family = [psutil.Process(), psutil.Process().children()[-1]]
    before = [process.num_fds() for process in family]
    for number in range(1, 41 if start_method == "zygote" else 6):
        harness.run(f"t{number:05d}")
    assert [process.num_fds() for process in family] == before


def test_no_process_listens_on_the_network(start_executor, wait_started):
    harness = start_executor(lambda config: signal.pause())
    harness.start("t00001")
    worker = psutil.Process(wait_started(harness, "t00001"))
    for process in (worker, worker.parent(), psutil.Process()):
        assert process.net_connections(kind="inet") == []
        assert [
            connection.laddr
            for connection in process.net_connections(kind="unix")
            if connection.laddr
        ] == []


def test_a_wake_from_another_thread_ends_the_wait(start_executor):
    harness = start_executor(lambda config: None)
    while not harness.processes._launcher.is_ready:
        harness.executor.wait(0.01)
    thread = threading.Thread(target=harness.executor.wake)
    thread.start()
    assert harness.executor.wait(60) == []
    thread.join()


def test_a_wait_ends_in_time(start_executor):
    assert start_executor(lambda config: None).executor.wait(0) == []


def test_a_shutdown_kills_workers_and_may_be_repeated(start_executor, still_alive, wait_started):
    harness = start_executor(lambda config: signal.pause(), keeps_zygote=False)
    harness.start("t00001")
    pid = wait_started(harness, "t00001")
    zygote = psutil.Process(pid).ppid()
    harness.executor.shutdown(10)
    harness.executor.shutdown(10)
    assert still_alive([pid, zygote]) == []
    harness.executor.wake()
    harness.start("t00002")
    assert harness.executor.wait(None) == []


def test_capacity_is_given_or_that_of_the_machine(start_executor):
    executor = start_executor(lambda config: None, capacity={"gpu": 2, "license": 1}).executor
    assert executor.capacity()["gpu"] == 2
    assert executor.capacity()["license"] == 1
    assert executor.capacity()["cpu"] >= 1


def test_windows_is_refused_with_an_alternative(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(NotImplementedError, match="inline"):
        LocalProcesses(print)


@pytest.mark.parametrize("options", [{"start_method": "fork"}, {"kill_grace_s": 0}])
def test_bad_arguments_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        LocalProcesses(print, **options)
