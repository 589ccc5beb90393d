"""Signals and the time limit end experiments without lost results or leftover processes."""

import json
import os
import pty
import re
import signal
import sys

import pytest

from tests.end_to_end.interruption import (
    FAULTS,
    INTERRUPTIBLE,
    ROOT,
    Script,
    observe,
    once,
    start_interruptible,
    still_alive,
    twice,
)
from tuner import Callback

INTERRUPTED = "['TERMINATED interrupted', 'TERMINATED interrupted']"
HOUR_S = 3600.0
ROUNDS = range(int(os.environ.get("TUNER_FAULT_ROUNDS", "1")))
"""How often each of the slow cases is run."""


@pytest.fixture
def executor():
    return "process"


@pytest.fixture
def closing():
    """Return a function that has a script ended after the test."""
    started = []

    def close_later(script):
        started.append(script)
        return script

    yield close_later
    for script in started:
        script.close()


@pytest.fixture
def start(closing, tmp_path):
    """Return a function that starts an experiment and waits until both trials have reported."""

    def run(kind, **options):
        script = closing(start_interruptible(tmp_path, kind, **options))
        script.wait_for("READY")
        return script

    return run


# What every interruption has in common.


@pytest.mark.parametrize("round_number", ROUNDS)
@pytest.mark.parametrize("name", FAULTS)
def test_nothing_acknowledged_is_lost_no_process_is_left_and_the_restore_continues(
    name, round_number, tmp_path
):
    fault = FAULTS[name]
    observed = observe(tmp_path, fault, after=1 + 50 * round_number)
    assert observed.exit_code in fault.exit_codes
    assert observed.num_acknowledged > 0
    assert observed.num_lost == 0
    assert set(observed.left_over) <= set(fault.may_leave)
    assert observed.left_over_after_restore == []
    assert observed.restored == "['TERMINATED completed', 'TERMINATED completed']"
    assert observed.num_wrong_rows == 0
    assert observed.num_restore_lines in ((0, 1) if observed.exit_code < 0 else (1,))


# Once.


def test_after_one_ctrl_c_trials_save_fit_returns_and_the_script_goes_on_to_its_end(
    start, tmp_path
):
    script = start("function")
    born = script.descendants()
    assert len(born) >= 3
    script.signal(signal.SIGINT)
    assert script.end() == 130
    assert script.errors == ""
    assert "WENT ON" in script.printed
    assert script.said("ENDED") == INTERRUPTED
    assert "interrupted by SIGINT; continue with" in script.printed
    assert (
        f"Tuner.restore('{tmp_path}/interrupted', count, callbacks=callbacks).fit()\nor in a "
        "shell with\n" in script.printed
    )
    (command,) = re.findall(
        r"^ +(?:cd \S+ && )?TUNER_RESUME=(\S+) (.+)$", script.printed, re.MULTILINE
    )
    assert command[0] == str(tmp_path / "interrupted")
    assert "interruptible.py" in command[1]
    assert re.search(
        r"^interrupted: 0/2 trials in \S+  interrupted 2$", script.printed, re.MULTILINE
    )
    assert (tmp_path / "interrupted" / "t00000" / "stdout").read_text() == "cleaned up\n"
    assert still_alive(born) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_another_signal_ends_the_script_where_it_is(start, number):
    script = start("function")
    script.signal(number)
    assert script.end() == 128 + number
    assert "WENT ON" not in script.printed
    assert script.said("ENDED") == INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_an_interactive_interpreter_fit_returns_the_results_so_far(start, number):
    script = start("function", flags=["-i"])
    script.signal(number)
    assert script.end() == 0
    assert "WENT ON" in script.printed
    assert script.said("ENDED") == INTERRUPTED


def test_classes_save_themselves_when_they_are_interrupted_and_go_on_from_there(start, tmp_path):
    script = start("class")
    script.signal(signal.SIGINT)
    assert script.end() == 130
    counts, saved = re.findall(r"\[.*?\]", script.said("COUNTS"))
    assert saved == "[True, True]"
    reached = json.loads(counts)
    assert [
        int((tmp_path / "interrupted" / f"t0000{n}" / "checkpoint_000000" / "count").read_text())
        for n in (0, 1)
    ] == reached

    again = start("class")
    again.signal(signal.SIGINT)
    assert again.end() == 130
    counts, saved = re.findall(r"\[.*?\]", again.said("COUNTS"))
    assert all(after > before for after, before in zip(json.loads(counts), reached, strict=True))
    rows = [
        json.loads(line)
        for line in (tmp_path / "interrupted" / "t00000" / "result.json").read_text().splitlines()
    ]
    assert (
        [row["count"] for row in rows]
        == [row["training_iteration"] for row in rows]
        == list(range(1, len(rows) + 1))
    )


def test_a_signal_to_every_process_of_the_job_does_not_keep_trials_from_saving(start, tmp_path):
    script = start("class")
    FAULTS["SIGTERM to all processes"].deliver(script)
    assert script.end() == 143
    assert script.said("ENDED") == INTERRUPTED
    assert "[True, True]" in script.said("COUNTS")
    assert not (tmp_path / "interrupted" / "t00000" / "error.txt").exists()


def test_the_echo_of_a_signal_is_not_a_second_one(closing, tmp_path):
    # It tells the script by itself and then with its whole group.
    script = closing(
        start_interruptible(tmp_path, "class", prefix=["timeout", "--signal=TERM", "1000"])
    )
    script.wait_for("READY")
    script.process.terminate()
    assert script.end() == 143
    assert "[True, True]" in script.said("COUNTS")


@pytest.mark.parametrize(
    ("number", "prefix"),
    [
        (signal.SIGHUP, ["nohup"]),
        # As a shell starts `script &`.
        (signal.SIGINT, ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]),
    ],
)
def test_an_ignored_signal_stays_ignored(number, prefix, closing, tmp_path):
    script = closing(start_interruptible(tmp_path, "waiting", iterations=3, prefix=prefix))
    script.wait_for("READY")
    script.signal(number)
    (tmp_path / "go").touch()
    assert script.end() == 0
    assert script.said("ENDED") == "['TERMINATED completed', 'TERMINATED completed']"


def test_closing_the_terminal_ends_the_experiment_in_order(tmp_path):
    arguments = [sys.executable, str(INTERRUPTIBLE), str(tmp_path), "class", "1000000", "{}"]
    pid, terminal = pty.fork()
    if pid == 0:
        environ = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, arguments, environ)  # noqa: S606  (without a shell between it and the terminal)
    printed = b""
    while b"READY" not in printed:
        printed += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    assert (tmp_path / "interrupted" / "t00001" / "checkpoint_000000" / "count").exists()


def test_a_signal_handler_of_the_user_stays_installed(fit):
    received = []

    class Signalling(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        results = fit(lambda config: {"x": 1}, callbacks=[Signalling()])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [signal.SIGUSR1]
    assert results[0].ending == "completed"


def test_a_ctrl_c_while_the_experiment_is_being_set_up_ends_it_before_it_has_begun(build):
    class Interrupting(Callback):
        def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
            signal.raise_signal(signal.SIGINT)

    tuner = build(lambda config: {"x": 1}, tune={"num_samples": 3}, callbacks=[Interrupting()])
    results = tuner.fit()
    assert {result.status for result in results} <= {"PENDING"}
    with pytest.raises(RuntimeError, match=r"no trial reported a result"):
        results.get_best_result("x", "min")
    assert [result.metrics.get("x") for result in results] == [None] * len(results)


# Trials that do not leave.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_kills_trials_at_once(start, number):
    script = start("deaf", interrupt_grace_s=10_000)
    born = script.descendants()
    twice(number)(script)
    assert script.end() == 128 + number
    assert script.said("ENDED") == INTERRUPTED
    assert still_alive(born) == []


def test_a_trial_that_does_not_stop_in_time_can_clean_up_before_it_is_killed(start, tmp_path):
    script = start("deaf with handler", interrupt_grace_s=0.1)
    once(signal.SIGTERM)(script)
    assert script.end() == 143
    assert script.said("ENDED") == INTERRUPTED
    assert (tmp_path / "interrupted" / "t00000" / "stdout").read_text() == "cleaned up\n"


def test_a_trial_that_ignores_the_signal_is_killed(start):
    script = start("deaf", interrupt_grace_s=0.1)
    born = script.descendants()
    script.signal(signal.SIGINT)
    assert script.end() == 130
    assert still_alive(born) == []


def test_a_second_signal_ends_an_experiment_whose_trainable_is_still_being_loaded(
    closing, tmp_path
):
    source = f"""
        import os, pathlib, signal, threading
        import tuner
        from tests.waiting import wait_until
        from tuner.driver import signals

        loading = pathlib.Path({str(tmp_path / "loading")!r})

        class Slow:
            def __call__(self, config):
                pass
            def __reduce__(self):
                return exec, (
                    f"open({{str(loading)!r}}, 'w').close();"
                    "import threading; threading.Event().wait()",
                )

        class Interrupting(tuner.Callback):
            def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
                threading.Thread(target=self.press).start()

            def press(self):
                wait_until(loading.exists, "the loading of the trainable")
                signals._ECHO_S = 0.0
                taken = signal.getsignal(signal.SIGINT).__self__
                for number in (1, 2):
                    os.kill(os.getpid(), signal.SIGINT)
                    wait_until(lambda: taken._num_requests == number, "the handler")

        run_config = tuner.RunConfig(
            storage_path={str(tmp_path)!r},
            verbose=0,
            interrupt_grace_s=10_000,
            callbacks=[Interrupting()],
        )
        tuner.Tuner(Slow(), run_config=run_config).fit()
    """
    (tmp_path / "script.py").write_text("\n".join(line[8:] for line in source.splitlines()))
    script = closing(Script(tmp_path / "script.py", directory=tmp_path))
    assert script.end() == 130


# The time limit.


def test_a_time_limit_interrupts_early_enough_and_has_a_distinct_exit_code(start, tmp_path):
    script = start("class", time_limit_s=HOUR_S, interrupt_grace_s=0.5, jump_s=HOUR_S)
    born = script.descendants()
    assert script.end() == 124
    assert script.said("ENDED") == INTERRUPTED
    assert "[True, True]" in script.said("COUNTS")
    assert (
        script.printed.count("interrupted by the time limit; continue with\n    Tuner.restore(")
        == 1
    )
    assert still_alive(born) == []


def test_the_time_limit_starts_anew_with_each_restore(start):
    reached = []
    for _ in range(2):
        script = start("class", time_limit_s=HOUR_S, interrupt_grace_s=1.0, jump_s=HOUR_S)
        assert script.end() == 124
        reached.append(json.loads(re.findall(r"\[.*?\]", script.said("COUNTS"))[0]))
    assert all(after > before for before, after in zip(*reached, strict=True))


def test_verbose_0_prints_nothing(closing, tmp_path):
    script = closing(
        Script(
            ROOT / "tests/end_to_end/scripts/quiet.py",
            tmp_path,
            directory=tmp_path,
            flags=["-X", "dev"],
        )
    )
    assert script.end() == 130
    assert (script.printed, script.errors) == ("", "")
    assert (tmp_path / "quiet" / "t00002" / "stdout").read_text() == "on stdout\n" * 3
    assert "ValueError: raised" in (tmp_path / "quiet" / "t00000" / "error.txt").read_text()
