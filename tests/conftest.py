"""Settings and fixtures of all tests."""

import atexit
import contextlib
import importlib
import importlib.util
import signal
import sys

import cloudpickle
import pytest

from tests.object_servers import ceph, moto, s3_proxy, s3_url
from tuner import FailureConfig, RunConfig, TuneConfig, Tuner
from tuner.driver import signals
from tuner.execution import pickling
from tuner.execution.local.process_setup import TERMINATION_SIGNALS

__all__ = ["ceph", "moto", "s3_proxy", "s3_url"]

pytest_plugins = ["tests.tiers"]


def pytest_configure():
    """Let tests interrupt experiments wherever pytest was started."""
    # A shell starts what runs in the background (`pytest &`) with SIGINT ignored, and nohup ignores
    # SIGHUP. Children inherit that, and an experiment leaves an ignored signal ignored: a test that
    # interrupts one would wait in vain. A handler, unlike SIG_IGN, does not survive exec, so
    # children start with the default; pytest itself still outlives a hangup.
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            is_ctrl_c = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_ctrl_c else _do_nothing)


def _do_nothing(number, frame):
    pass


@contextlib.contextmanager
def _tests_pickled_by_value(definition):
    module = sys.modules["tests"]
    cloudpickle.register_pickle_by_value(module)
    try:
        with _pickling_by_value(definition):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


_pickling_by_value = pickling.pickling_by_value


@pytest.fixture(scope="session", autouse=True)
def light_trainables():
    """Send processes the code of a trainable; to import its test module takes them longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickling, "pickling_by_value", _tests_pickled_by_value)
        yield


@pytest.fixture(scope="session")
def empty_mlflow_store(tmp_path_factory):
    """Return an SQLite store of MLflow without runs; to make its tables takes seconds."""
    mlflow = pytest.importorskip("mlflow")
    mlflow_logger = importlib.import_module("tuner.callbacks.trackers.mlflow_logger")
    path = tmp_path_factory.mktemp("store") / "deep" / "mlflow.db"
    mlflow_logger.make_sqlite_store(f"sqlite:///{path}", mlflow.MlflowClient)
    return path


@pytest.fixture
def nevergrad():
    """Return the module of Nevergrad, imported as its searcher imports it.

    Alone, the import fails beside current versions of bayesian-optimization.
    """
    if not importlib.util.find_spec("nevergrad"):
        pytest.skip("Nevergrad is not installed")
    from searchers import NevergradSearch  # noqa: PLC0415

    return NevergradSearch._module()


def pytest_sessionfinish():
    """Let pytest's exit code stand even if a script run in this process got a SIGINT."""
    atexit.unregister(signals._leave)


@pytest.fixture
def executor():
    """Return where trials of `build` and `fit` run; folders and modules may override it."""
    return "process"


@pytest.fixture
def build(tmp_path, executor):
    """Return a function that declares an experiment under ``tmp_path``."""

    def declare(trainable, space=None, *, tune=None, failure=None, **run):
        given = {
            "name": "experiment",
            "storage_path": tmp_path,
            "verbose": 0,
            "executor": executor,
            # Waiting for the disk takes an inline experiment longer than all the rest.
            "durability": "process" if executor == "inline" else "group",
            "failure_config": FailureConfig(**(failure or {})),
        }
        run_config = RunConfig(**(given | run))
        return Tuner(
            trainable,
            param_space=space,
            tune_config=TuneConfig(**(tune or {})),
            run_config=run_config,
        )

    return declare


@pytest.fixture
def fit(build):
    """Return a function that runs an experiment and returns its results."""
    return lambda *arguments, **options: build(*arguments, **options).fit()
