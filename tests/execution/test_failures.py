import json
import linecache

import pytest

from tuner.core.failure_causes import cause_of
from tuner.core.worker_records import Failure
from tuner.execution import attempt
from tuner.execution.failures import (
    MAX_MESSAGE_LENGTH,
    MAX_TRACEBACK_LENGTH,
    as_message,
    describe,
    with_notebook_source,
)
from tuner.execution.metric_conversion import Converter


class UnprintableError(Exception):
    def __str__(self):
        raise KeyError("no text")

    __repr__ = __str__


class UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)

    def __reduce__(self):
        raise TypeError("not to be pickled")


class NotesError(Exception):
    @property
    def __notes__(self):
        raise SystemExit(3)


def raised(error):
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("lr must be positive"), "ValueError", "lr must be positive"),
        (ValueError(), "ValueError", ""),
        (ValueError("two\n  lines"), "ValueError", "two lines"),
        (ValueError("\ud800"), "ValueError", "\\ud800"),
        (UnprintableError(), "UnprintableError", "<UnprintableError whose text cannot be read>"),
        (UnpicklableError(1, 2), "UnpicklableError", "(1, 2)"),
        (NotesError("n"), "NotesError", "n"),
        (SystemExit(3), "SystemExit", "exited with code 3"),
        (SystemExit("bye"), "SystemExit", "exited with code bye"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (
            ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup",
            "two (2 sub-exceptions)",
        ),
    ],
)
def test_any_exception_can_be_described(error, kind, message):
    failure = describe(raised(error))
    assert (failure.kind, failure.message) == (kind, message)
    assert json.dumps(as_message(failure)).isascii()
    assert failure.traceback


def test_the_traceback_shows_the_users_line_and_the_cause():
    def load():
        try:
            return {}["weights"]
        except KeyError as cause:
            raise ValueError("no weights") from cause

    with pytest.raises(ValueError, match="no weights") as caught:
        load()
    traceback = describe(caught.value).traceback
    assert '{}["weights"]' in traceback
    assert "KeyError: 'weights'" in traceback
    assert traceback.rstrip().endswith("ValueError: no weights")


def test_frames_of_the_engine_above_the_users_are_left_out():
    def broken():
        raise ValueError("mine")

    namespace = {"broken": broken}
    code = compile("def engine():\n    broken()\n", attempt.__file__, "exec")
    exec(code, namespace)  # noqa: S102
    with pytest.raises(ValueError, match="mine") as caught:
        namespace["engine"]()
    error = caught.value
    engines = error.with_traceback(error.__traceback__.tb_next)
    assert attempt.__file__ not in describe(engines).traceback
    assert "in broken" in describe(engines).traceback


def test_messages_and_tracebacks_have_a_limit():
    failure = describe(raised(ValueError("x" * 100_000)))
    assert len(failure.message) == MAX_MESSAGE_LENGTH
    assert len(failure.traceback) < MAX_TRACEBACK_LENGTH + 100
    assert "characters left out" in failure.traceback


def test_endless_recursion_can_be_described():
    def endless(depth):
        return endless(depth + 1)

    with pytest.raises(RecursionError) as caught:
        endless(0)
    failure = describe(caught.value)
    assert failure.kind == "RecursionError"
    assert "endless" in failure.traceback


def test_a_failure_is_sent_as_strings():
    expected = {
        "kind": "E",
        "message": "m",
        "traceback": "t",
        "bases": ["B"],
        "place": "train.py:3",
    }
    assert as_message(Failure("E", "m", "t", ("B",), "train.py:3")) == expected


def test_a_failure_is_placed_at_the_users_line_that_called_the_engine():
    def train():
        Converter().convert({"time_this_iter_s": -1})

    with pytest.raises(ValueError, match="time_this_iter_s") as caught:
        train()
    failure = describe(caught.value)
    assert "metric_conversion.py" in failure.traceback
    line = train.__code__.co_firstlineno + 1
    assert failure.place == f"test_failures.py:{line} in train"
    assert str(cause_of(failure)) == f"ValueError at {failure.place}"


def test_the_place_is_known_even_if_the_traceback_is_shortened():
    def train():
        raise ValueError("x" * 100_000)

    with pytest.raises(ValueError, match="xxx") as caught:
        train()
    assert (
        describe(caught.value).place
        == f"test_failures.py:{train.__code__.co_firstlineno + 1} in train"
    )


def test_a_traceback_is_completed_with_lines_of_a_notebook(monkeypatch):
    cell = "/cells/ipykernel_1/2.py"
    monkeypatch.setitem(
        linecache.cache, cell, (9, None, ["def train(config):\n", "    fail()\n"], cell)
    )
    head, frame = "Traceback (most recent call last):\n", f'  File "{cell}", line 2, in train\n'
    rest = '  File "/other.py", line 7, in fail\n    raise ValueError\nValueError\n'
    bare, completed = f"{head}{frame}{rest}", f"{head}{frame}    fail()\n{rest}"
    assert with_notebook_source(bare) == completed
    assert with_notebook_source(completed) == completed
    assert with_notebook_source("") == ""
    unknown = '  File "/nowhere.py", line 2, in train\nValueError\n'
    assert with_notebook_source(unknown) == unknown


def test_base_classes_are_listed_nearest_first():
    assert describe(raised(UnpicklableError(1, 2))).bases == ("Exception", "BaseException")
    assert describe(raised(FileNotFoundError("x"))).bases == (
        "OSError",
        "Exception",
        "BaseException",
    )
