"""The tiers of the tests, and what holds for the fastest of them.

A test belongs to the tier of its folder, or to the one with which its file or it itself is marked.
Tests of Hypothesis belong to ``property`` as well.
"""

import contextlib
import functools
import gc
import importlib
import os
import re
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, is_hypothesis_test, settings, strategies
from hypothesis.internal.conjecture import providers

from tuner.callbacks.files.event_file import import_alone

ROOT = Path(__file__).parent
TIERS = {
    "unit": "no process, thread, sleep or heavy import, and at most 200 ms of CPU time",
    "property": "random inputs and simulated experiments",
    "process": "real processes, threads and servers",
    "guides": "the code of the pages and guides",
    "heavy": "large libraries, cluster engines, object stores, browsers, benchmarks",
}
FOLDERS = {
    "benchmarks": "heavy",
    "end_to_end": "process",
    "faults": "process",
    "guides": "guides",
    "integration": "heavy",
    "properties": "property",
    "simulation": "property",
}
"""Tiers of folders, where it is not ``unit``."""
HEAVY = {
    "IPython", "accelerate", "ax", "bayes_opt", "botocore", "botorch", "comet_ml", "dask",
    "distributed", "flask", "hyperopt", "keras", "lightgbm", "lightning", "matplotlib", "mlflow",
    "moto", "nevergrad", "pytorch_lightning", "ray", "sklearn", "tensorboard", "tensorflow",
    "torch", "transformers", "wandb", "xgboost",
}  # fmt: skip
"""Modules that no unit test imports."""
WARM = ("joblib", "optuna", "pandas", "rich.console", "scipy.optimize", "scipy.stats")
"""Modules that unit tests may import; none of them shall pay for being the first."""
FORBIDDEN = {
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "subprocess.Popen": "starts a process",
}
"""Events of `sys.audit` that no unit test causes."""
MAX_CPU_S = 0.2
USUAL_S = 0.025
"""What `_slowness` takes where unit tests take what is said here."""
NUM_EXAMPLES = 15
FULL_TIMEOUT_S = 1_800
"""How long a test may take with ``--full``; the usual limit would be short on a busy machine."""

_MARK = re.compile(rf"\bpytest\.mark\.({'|'.join(TIERS)})\b")
_FILE_MARK = re.compile(rf"^pytestmark = [^\n]*?{_MARK.pattern}", re.MULTILINE)
_is_full = False


def is_full():
    """Return whether tests are run with ``--full``, as in a night."""
    return _is_full


def examples(full):
    """Return how many examples a property is tried with: `full` of them with ``--full``."""
    return full if _is_full else min(full, NUM_EXAMPLES)


def some_of(cases):
    """Return a sequence, without ``--full`` at most `NUM_EXAMPLES` of it, spread evenly."""
    return cases[:: -(-len(cases) // examples(len(cases))) or 1] if cases else cases


def tier_of(path, text):
    """Return the tier of a file."""
    if found := _FILE_MARK.search(text):
        return found[1]
    return next((FOLDERS[name] for name in path.parts if name in FOLDERS), "unit")


@functools.cache
def _within_tests(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()


def pytest_addoption(parser):
    parser.addoption(
        "--full",
        action="store_true",
        help="try all examples, simulate all experiments, and leave out no variant",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads its option
def pytest_configure(config):
    global _is_full  # noqa: PLW0603  (asked for where tests are decorated)
    _is_full = config.option.full
    if _is_full and config.getoption("timeout", None) is None:
        config.option.timeout = FULL_TIMEOUT_S
    for name, what in TIERS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    # How fast a machine is says nothing about the code: nothing may fail because another job was
    # using the processor.
    settings.register_profile(
        "house",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples(100),
    )
    settings.load_profile("house")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Run tests in one process more than there are cores, unless none of them waits."""
    if (
        config.option.markexpr in {"unit", "property"}
        or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    ):
        return None
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    ) + 1


def pytest_ignore_collect(collection_path, config):
    """Import no file without tests that ``-m`` asks for, which takes longer than to run them."""
    asked = config.option.markexpr
    is_known = set(re.findall(r"\w+", asked)) <= {*TIERS, "and", "or", "not"}
    if not asked or not is_known or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    path = _within_tests(collection_path)
    expression = Expression.compile(asked)
    possible = [{tier_of(path, text)}, *({mark} for mark in _MARK.findall(text))]
    if "hypothesis" in text:
        possible += [{*marks, "property"} for marks in possible]
    is_asked = any(
        expression.evaluate(lambda name, marks=marks, **_: name in marks) for marks in possible
    )
    return None if is_asked else True


def pytest_itemcollected(item):
    tiers = {mark.name for mark in item.iter_markers()} & TIERS.keys()
    if len(tiers) > 1:
        raise pytest.UsageError(
            f"{item.nodeid} is marked as {' and '.join(sorted(tiers))}; keep one"
        )
    if not tiers:
        item.add_marker(tier_of(_within_tests(item.path), ""))
    if is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("property")


class _Watch:
    """Notes what the main thread does in a unit test."""

    def __init__(self):
        self.is_on = False
        self.found = []
        self.uncounted_s = 0.0
        self.loaded = set()
        sys.addaudithook(self._hear)
        # Python tells of these two from 3.12 on.
        threading.Thread.start = self._noted(threading.Thread.start, "starts a thread")
        time.sleep = self._noted(time.sleep, "sleeps")

    def _hear(self, event, arguments):
        if event in FORBIDDEN:
            self.note(FORBIDDEN[event])

    def _noted(self, function, what):
        @functools.wraps(function)
        def call(*arguments, **options):
            self.note(what)
            return function(*arguments, **options)

        return call

    def note(self, what):
        if self.is_on and threading.current_thread() is threading.main_thread():
            where = "".join(traceback.format_stack(limit=12)[:-2])
            self.found.append(f"{what}, and is no unit test; mark it\n{where}")


_watch = None


@contextlib.contextmanager
def made_once():
    """Make what many tests read; the one that happens to need it first does not answer for it."""
    if not _watch or not _watch.is_on:
        yield
        return
    began_s, _watch.is_on = time.thread_time(), False
    try:
        yield
    finally:
        _watch.is_on = True
        _watch.uncounted_s += time.thread_time() - began_s


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        return (yield)
    with made_once():
        return (yield)


def pytest_collection_finish(session):
    global _watch  # noqa: PLW0603  (an audit hook stays for ever)
    if any(item.get_closest_marker("unit") for item in session.items):
        _watch = _watch or _Watch()
        for name in WARM:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        with contextlib.suppress(ImportError):
            import_alone("tensorboardX.proto.event_pb2")
        _have_hypothesis_read_the_code()
        # The tests, some ten thousand, stay to the end; no search for garbage has to look at them.
        gc.collect()
        gc.freeze()


def _have_hypothesis_read_the_code():
    """Have it collect now what it tries later: characters, and constants of the code."""
    # It keeps them in a folder; in a new checkout the first test that needs them takes a second.
    strategies.text().validate()
    with contextlib.suppress(AttributeError):
        providers._get_local_constants()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Watch a unit test and its fixtures."""
    if not item.get_closest_marker("unit"):
        return (yield)
    _watch.is_on, _watch.found = True, []
    _watch.loaded = _heavy_modules()
    try:
        return (yield)
    finally:
        _watch.is_on = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    if not item.get_closest_marker("unit"):
        return (yield)
    gc.disable()  # else a test pays now and then for what all others have left
    began_s, _watch.uncounted_s = time.thread_time(), 0.0
    try:
        result = yield
    finally:
        used_s = time.thread_time() - began_s - _watch.uncounted_s
        gc.enable()
    if imported := _heavy_modules() - _watch.loaded:
        _watch.note(f"imports {', '.join(sorted(imported))}")
    if _watch.found:
        pytest.fail(f"the test {_watch.found[0]}", pytrace=False)
    # What other tiers have loaded and left makes everything slower beside them.
    limit_s = MAX_CPU_S if item.config.option.markexpr == "unit" else 2 * MAX_CPU_S
    if not _is_full and used_s > limit_s and used_s > limit_s * _slowness():
        told = f"the test took {used_s:.2f} s of CPU time; a unit test may take {MAX_CPU_S}"
        pytest.fail(told, pytrace=False)
    return result


def _heavy_modules():
    """Return which are imported; one that stands in for a library was found nowhere."""
    found = HEAVY & sys.modules.keys()
    return {name for name in found if getattr(sys.modules[name], "__spec__", None)}


def _slowness():
    """Return how many times longer than usual the processor takes just now."""
    began_s, number = time.thread_time(), 0
    for each in range(300_000):
        number = (31 * number + each) % 1_000_003
    return max((time.thread_time() - began_s) / USUAL_S, 1.0)
