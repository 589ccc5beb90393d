import contextlib
import itertools
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.execution.conversation import CONTINUE, STOP, Script, assignment, converse
from tuner.execution import session
from tuner.execution.session import StopTraining, checkpoint_dir, report, run_attempt
from tuner.storage.checkpoints import Checkpoint

# Reports and their answers.


def test_an_attempt_starts_reports_and_exits(tmp_path):
    def train(config):
        report({"loss": config["x"]})

    said = converse(train, tmp_path).said
    assert [message["kind"] for message in said] == ["started", "result", "exited"]
    assert said[1]["metrics"]["loss"] == 1
    assert said[1]["checkpoint"] is None
    assert said[2] == {"kind": "exited", "outcome": "completed", "failure": None}


def test_a_checkpoint_may_be_given_by_its_place(tmp_path):
    def train(config):
        report({"loss": 1.0}, None)
        report({}, None)

    assert [result["training_iteration"] for result in converse(train, tmp_path).results] == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"validation": True},
        {"checkpoint_dir_name": "best"},
        {"delete_local_checkpoint_after_upload": True},
    ],
)
def test_an_option_of_train_report_is_no_metric(tmp_path, options):
    def train(config):
        with pytest.raises(TypeError, match=r"an option of tuner\.train\.report"):
            report({"loss": 1.0}, **options)
        report({"loss": 1.0}, validation=0.5)

    (result,) = converse(train, tmp_path).results
    assert result["validation"] == 0.5  # an older script's metric


def test_results_are_numbered_from_the_checkpoint_on(tmp_path):
    def train(config):
        for _ in range(3):
            report({"timesteps_this_iter": 10})

    results = converse(
        train, tmp_path, iteration=4, time_total_s=100.0, counters={"timesteps_total": 40}
    ).results
    assert [result["training_iteration"] for result in results] == [5, 6, 7]
    assert [result["timesteps_total"] for result in results] == [50, 60, 70]
    assert all(result["time_total_s"] >= 100.0 for result in results)


@pytest.mark.parametrize("verdict", ["stop", "pause"])
def test_a_verdict_is_raised_in_report_and_again_in_every_later_one(tmp_path, verdict):
    cleaned = []

    def train(config):
        try:
            report({})
        except StopTraining:
            cleaned.append("first")
        try:
            report({})
        finally:
            cleaned.append("second")

    script = converse(train, tmp_path, {"verdict": verdict, "save": False})
    assert cleaned == ["first", "second"]
    assert len(script.results) == 1
    assert script.outcome == "stopped"


def test_a_function_that_returns_after_a_stop_has_stopped(tmp_path):
    def train(config):
        with contextlib.suppress(BaseException):  # such code exists
            report({})

    assert converse(train, tmp_path, STOP).outcome == "stopped"


def test_a_clean_up_that_raises_after_a_stop_is_a_failure(tmp_path):
    def train(config):
        try:
            report({})
        finally:
            raise OSError("disk full")

    exit_ = converse(train, tmp_path, STOP).exit
    assert (exit_["outcome"], exit_["failure"]["message"]) == ("failed", "disk full")


def test_done_is_passed_along(tmp_path):
    assert converse(lambda config: {"done": True}, tmp_path).results[0]["done"] is True


@pytest.mark.parametrize("metrics", [None, 0.5, "loss", [1]])
def test_report_requires_a_dictionary(tmp_path, metrics):
    exit_ = converse(lambda config: report(metrics), tmp_path).exit
    assert exit_["failure"]["kind"] == "TypeError"


def test_a_refused_report_does_not_count(tmp_path):
    def train(config):
        with pytest.raises(ValueError, match="trial_id"):
            report({"trial_id": 1})
        report({})

    assert [result["training_iteration"] for result in converse(train, tmp_path).results] == [1]


@pytest.mark.process
def test_report_works_from_any_thread_of_the_trial(tmp_path):
    def train(config):
        threads = [
            threading.Thread(target=report, args=({"thread": number},)) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    script = converse(train, tmp_path)
    assert [result["training_iteration"] for result in script.results] == list(range(1, 9))
    assert {result["thread"] for result in script.results} == set(range(8))
    assert script.outcome == "completed"


@pytest.mark.process
def test_reporting_after_the_end_is_an_error(tmp_path):
    errors = []
    goes_on, reported = threading.Event(), threading.Event()

    def late():
        goes_on.wait()
        try:
            report({})
        except RuntimeError as error:
            errors.append(str(error))
        reported.set()

    converse(lambda config: threading.Thread(target=late).start(), tmp_path)
    goes_on.set()
    assert reported.wait(60)
    assert errors == [
        "trial t00000 is over, nothing can be reported any more; join threads before returning"
    ]


@pytest.mark.process
def test_the_end_waits_for_a_report_that_is_under_way(tmp_path):
    asked, answered = threading.Event(), threading.Event()

    class Slow(Script):
        def receive(self, timeout_s=None):
            asked.set()
            answered.wait(60)
            return super().receive()

    def train(config):
        threading.Thread(target=report, args=({},)).start()
        asked.wait(60)
        threading.Timer(0.0, answered.set).start()

    script = Slow()
    run_attempt(train, assignment(tmp_path), script)
    assert script.kinds == ["started", "result", "exited"]


def test_a_child_process_of_the_trial_cannot_report_for_it(tmp_path, monkeypatch):
    def train(config):
        monkeypatch.setattr("os.getpid", lambda: -1)  # what a forked child would see
        with pytest.raises(RuntimeError, match="child process"):
            report({})

    assert converse(train, tmp_path).kinds == ["started"]


def test_an_interrupted_answer_is_not_taken_for_the_next_one(tmp_path):
    class AlarmError(Exception):
        pass

    class Interrupted(Script):
        def receive(self, timeout_s=None):
            if len(self.results) == 1 and not self.interrupted:
                self.interrupted = True
                raise AlarmError
            return super().receive()

        interrupted = False

    def train(config):
        with pytest.raises(AlarmError):
            report({"number": 1})
        report({"number": 2})
        report({"number": 3})

    script = Interrupted(CONTINUE, STOP)
    run_attempt(train, assignment(tmp_path), script)
    assert [result["number"] for result in script.results] == [1, 2]
    assert script.outcome == "stopped"


def test_waiting_for_the_driver_is_no_training_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    # The clock is bound when the class is made, so that the report itself is fast.
    monkeypatch.setitem(
        session.Attempt.__init__.__globals__["AutoFill"].__init__.__kwdefaults__,
        "clock",
        lambda: now[0],
    )

    class Slow(Script):
        def receive(self, timeout_s=None):
            now[0] += 1000
            return super().receive()

    def train(config):
        now[0] += 2
        report({})
        now[0] += 3
        report({})

    script = Slow()
    run_attempt(train, assignment(tmp_path), script)
    assert [result["time_this_iter_s"] for result in script.results] == [2, 3]
    assert script.results[-1]["time_total_s"] == 5


# What functions return.


@pytest.mark.parametrize(
    ("returned", "reported"),
    [({"loss": 1}, {"loss": 1}), (0.5, {"_metric": 0.5}), (2, {"_metric": 2})],
)
def test_a_returned_dictionary_or_number_is_one_more_report(tmp_path, returned, reported):
    def train(config):
        report({})
        return returned

    results = converse(train, tmp_path).results
    assert len(results) == 2
    assert reported.items() <= results[-1].items()


def test_none_is_no_report(tmp_path):
    assert converse(lambda config: None, tmp_path).kinds == ["started", "exited"]


def test_anything_else_that_is_returned_is_ignored_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="returned a object, which is not a result"):
        script = converse(lambda config: object(), tmp_path)
    assert (script.results, script.outcome) == ([], "completed")


def test_each_thing_a_generator_yields_is_a_report_and_what_it_returns_is_one_more(tmp_path):
    def train(config):
        yield {"loss": 1}
        yield 2.0
        return {"loss": 3}

    first, second, third = converse(train, tmp_path).results
    assert (first["loss"], second["_metric"], third["loss"]) == (1, 2.0, 3)


def test_a_generator_that_is_stopped_cleans_up(tmp_path):
    cleaned = []

    def train(config):
        try:
            while True:
                yield {}
        finally:
            cleaned.append(True)

    script = converse(train, tmp_path, CONTINUE, STOP)
    assert (len(script.results), script.outcome, cleaned) == (2, "stopped", [True])


def test_a_generator_must_yield_metrics(tmp_path):
    def train(config):
        yield

    assert converse(train, tmp_path).exit["failure"]["kind"] == "TypeError"


def test_an_awaitable_is_a_mistake(tmp_path):
    async def inner():
        pass

    assert "asyncio.run" in converse(lambda config: inner(), tmp_path).exit["failure"]["message"]


# Ends.


class BadTextError(Exception):
    def __str__(self):
        raise ZeroDivisionError

    __repr__ = __str__


class BadReduceError(Exception):
    def __init__(self, one, two):
        self.both = one, two

    def __reduce__(self):
        raise TypeError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), "ValueError"),
        (BadTextError(), "BadTextError"),
        (BadReduceError(1, 2), "BadReduceError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseExceptionGroup("all", [SystemExit(0)]), "BaseExceptionGroup"),
        (StopIteration(), "StopIteration"),
        (MemoryError(), "MemoryError"),
        (SystemExit(3), "SystemExit"),
        (SystemExit("no data"), "SystemExit"),
    ],
)
def test_any_exception_is_one_failed_exit(tmp_path, error, kind):
    def train(config):
        raise error

    exit_ = converse(train, tmp_path).exit
    assert (exit_["outcome"], exit_["failure"]["kind"]) == ("failed", kind)


def test_a_failure_has_its_traceback(tmp_path):
    def train(config):
        return config["missing"]

    failure = converse(train, tmp_path).exit["failure"]
    assert failure["message"] == "'missing'"
    assert 'return config["missing"]' in failure["traceback"]
    assert "execution/session.py" not in failure["traceback"]


@pytest.mark.parametrize("code", [None, 0, False])
def test_leaving_with_code_zero_is_completion(tmp_path, code):
    assert converse(lambda config: sys.exit(code), tmp_path).outcome == "completed"


def test_leaving_with_another_code_is_a_failure(tmp_path):
    assert (
        converse(lambda config: sys.exit(7), tmp_path).exit["failure"]["message"]
        == "exited with code 7"
    )


def test_the_training_code_may_change_its_configuration(tmp_path):
    given = assignment(tmp_path)
    run_attempt(lambda config: config.clear(), given, Script())
    assert given.config == {"x": 1}


@given(
    steps=st.lists(st.sampled_from(["report", "refused", "checkpoint"]), max_size=6),
    num_before_stop=st.integers(0, 6),
    verdict=st.sampled_from(["stop", "pause"]),
)
def test_every_conversation_keeps_its_order(tmp_path_factory, steps, num_before_stop, verdict):
    trial_dir = tmp_path_factory.mktemp("trial")

    def train(config):
        for step in steps:
            with checkpoint_dir() as directory:
                try:
                    report(
                        {"done": "no"} if step == "refused" else {},
                        checkpoint=Checkpoint(directory) if step == "checkpoint" else None,
                    )
                except ValueError:
                    assert step == "refused"

    script = converse(
        train, trial_dir, *[CONTINUE] * num_before_stop, {"verdict": verdict, "save": False}
    )
    num_reports = sum(step != "refused" for step in steps)
    kinds = [kind for kind in script.kinds if kind != "saving"]
    assert kinds == ["started", *["result"] * min(num_reports, num_before_stop + 1), "exited"]
    before = [
        first["kind"] for first, then in itertools.pairwise(script.said) if then.get("checkpoint")
    ]
    assert set(before) <= {"saving"}
    assert script.outcome == ("stopped" if num_reports > num_before_stop else "completed")
    checkpoints = [
        message["checkpoint"]["index"] for message in script.said if message.get("checkpoint")
    ]
    assert checkpoints == list(range(len(checkpoints)))
    assert sorted(path.name for path in trial_dir.iterdir()) == [
        f"checkpoint_{index:06d}" for index in checkpoints
    ]
