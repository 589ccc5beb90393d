"""Backends of the user's own: hooks that run functions in all workers of a group."""

import contextlib
import os
from pathlib import Path

import pytest

from tuner import train
from tuner.train.backend import Backend, BackendConfig
from tuner.train.trainer import DataParallelTrainer

pytestmark = pytest.mark.process


class Connecting(Backend):
    """Chooses a word once, tells it to all workers, and notes what it is called for."""

    def on_start(self, worker_group, backend_config):
        assert worker_group.num_workers == len(worker_group) == 2
        self.caller = os.getpid()
        pids = [worker.metadata.pid for worker in worker_group.workers]
        assert worker_group.execute(os.getpid) == pids
        assert len(set(pids)) == 2
        word = worker_group.execute_single(1, lambda word: f"{word} of {rank()}", "word")
        worker_group.execute(set_variables, {"WORD": word, "FROM": backend_config.name})

    def on_training_start(self, worker_group, backend_config):
        assert os.getpid() == self.caller
        worker_group.execute(lambda **given: set_variables(given), PHASE="training")

    def on_shutdown(self, worker_group, backend_config):
        folder = train.get_context().get_trial_dir()
        for each in worker_group.execute(rank):
            Path(folder, f"ended-{each}").touch()


def set_variables(given):
    os.environ.update(given)


def rank():
    return train.get_context().get_world_rank()


class Named(BackendConfig):
    def __init__(self, backend_cls, name="config"):
        self._backend_cls, self.name = backend_cls, name

    @property
    def backend_cls(self):
        return self._backend_cls

    @property
    def train_func_context(self):
        @contextlib.contextmanager
        def inside():
            os.environ["INSIDE"] = "yes"
            yield
            os.environ["INSIDE"] = "no"

        return inside


class Keep(train.UserCallback):
    def __init__(self):
        self.seen = []

    def after_report(self, run_context, metrics, checkpoint):
        self.seen.extend(metrics)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_hooks_run_functions_in_all_workers(trainer, tmp_path, is_stopped):
    def tell(config):
        names = ("WORD", "FROM", "PHASE", "INSIDE")
        train.report({name: os.environ.get(name) for name in names})
        if is_stopped:
            train.report({})
            raise AssertionError

    keep = Keep()
    run = (
        {"callbacks": [keep], "stop": {"training_iteration": 2}}
        if is_stopped
        else {"callbacks": [keep]}
    )
    trainer(tell, backend_config=Named(Connecting), run=run).fit()
    told = {"WORD": "word of 1", "FROM": "config", "PHASE": "training", "INSIDE": "yes"}
    assert keep.seen[:2] == [told, told]
    assert sorted(path.name for path in tmp_path.glob("run/*/ended-*")) == ["ended-0", "ended-1"]


def test_a_failure_in_a_worker_reaches_the_hook_with_its_traceback(trainer):
    def fail():
        raise ValueError("on purpose")

    class Failing(Backend):
        def on_start(self, worker_group, backend_config):
            with pytest.raises(RuntimeError, match=r"(?s)fail failed in rank 1:.*on purpose"):
                worker_group.execute_single(1, fail)
            with pytest.raises(IndexError, match="worker_index must be from 0 to 1, got 2"):
                worker_group.execute_single(2, fail)
            for later in (worker_group.execute_async, worker_group.execute_single_async):
                with pytest.raises(NotImplementedError, match="use execute"):
                    later(1, fail)
            worker_group.execute(fail)

    with pytest.raises(train.WorkerGroupError, match="rank 0: fail failed in rank 0"):
        trainer(lambda: None, backend_config=Named(Failing)).fit()


def test_a_single_worker_has_hooks_too(trainer):
    class Alone(Backend):
        def on_training_start(self, worker_group, backend_config):
            assert worker_group.execute(lambda: 3) == [3]
            worker_group.execute(set_variables, {"ALONE": "yes"})

    def tell(config):
        train.report({"alone": os.environ.get("ALONE")})

    result = trainer(tell, num_workers=1, backend_config=Named(Alone)).fit()
    assert result.metrics["alone"] == "yes"


@pytest.mark.parametrize("found", [None, object, "torch", Connecting()])
def test_what_has_no_hooks_is_refused(found):
    with pytest.raises(TypeError, match=r"Named.backend_cls must be a subclass of Backend, .*; de"):
        DataParallelTrainer(lambda: None, backend_config=Named(found))
