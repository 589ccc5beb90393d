"""A harness that runs real worker processes."""

import contextlib
import importlib
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import ResultReported, ValidationEnded, WorkerExited, WorkerStarted
from tuner.core.worker_records import CheckpointRecord, ReportReply, ValidationRequest, WorkerGroup
from tuner.execution.assignment import Assignment
from tuner.execution.local.orphans import VARIABLE, DriverIdentity
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.resources import machine_capacity
from tuner.execution.validation_assignment import ValidationAssignment

DEADLINE_S = 60
"""Long enough for a machine under load; a test that needs it has failed."""


class Harness:
    """An executor, and the events of each trial."""

    def __init__(
        self, directory, trainable, validator=None, capacity=None, on_packages=None, **options
    ):
        self.directory = directory
        self.events = defaultdict(list)
        capacity = machine_capacity(capacity)
        has_gpus = bool(capacity["gpu"])
        self.processes = LocalProcesses(trainable, validator, has_gpus=has_gpus, **options)
        self.executor = ProcessExecutor(
            self.processes,
            self.assign,
            capacity=capacity,
            assign_validation=self._assign_validation,
            on_packages=on_packages,
        )

    def _assign_validation(self, command):
        trial_dir = self.directory / command.trial_id
        trial_dir.mkdir(exist_ok=True)
        return ValidationAssignment.of(command, str(trial_dir), command.config, 0)

    def assign(self, command):
        return Assignment(
            trial_id=command.trial_id,
            attempt=command.attempt,
            config=command.config,
            experiment_name="stage",
            trial_dir=self.directory / command.trial_id,
            experiment_tag=command.trial_id,
            resources=command.resources,
            gpu_ids=command.gpu_ids,
            checkpoint_dir=None,
            iteration=0,
            time_total_s=0.0,
            counters={},
            next_checkpoint=command.next_checkpoint,
            seed=int(command.trial_id[1:]),
            sync_checkpoints=False,
        )

    def start(self, trial_id, attempt=1, resources=None, gpu_ids=(), **config):
        self.executor.carry_out(
            [StartWorker(trial_id, attempt, config, resources or {"cpu": 1.0}, gpu_ids, None, 0)]
        )

    def start_validation(self, index=0, request=None, *, num_try=1, config=None, **options):
        """Start the validation of a checkpoint of trial t00001."""
        checkpoint = CheckpointRecord(index, index + 1)
        request = request or ValidationRequest()
        self.executor.carry_out(
            [
                StartValidation(
                    "t00001", checkpoint, num_try, request, options.get("resources", {"cpu": 1.0}),
                    options.get("gpu_ids", ()), config or {}, options.get("is_last_try", False),
                )
            ]
        )  # fmt: skip

    def validate(self, index=0, request=None, **options):
        """Validate a checkpoint of trial t00001."""
        self.start_validation(index, request, **options)
        return self.end_of_validation(index, options.get("num_try", 1))

    def end_of_validation(self, index=0, num_try=1):
        """Wait for the end of a validation; there is exactly one."""

        def ends():
            return [
                event
                for event in self.events["t00001"]
                if isinstance(event, ValidationEnded)
                and (event.index, event.num_try) == (index, num_try)
            ]

        ended = self._wait_for(lambda: next(iter(ends()), None), is_answering=True)
        assert len(ends()) == 1
        return ended

    def start_group(
        self,
        trial_id,
        attempt=1,
        *,
        num_workers=2,
        share=None,
        gpu_ids=(),
        next_checkpoint=0,
        nodes=(),
        **config,
    ):
        """Start workers that train a trial together."""
        (self.directory / trial_id).mkdir(exist_ok=True)
        group = WorkerGroup(num_workers, share or {"cpu": 1.0}, num_workers, num_workers)
        command = StartWorker(
            trial_id,
            attempt,
            config,
            group.total,
            gpu_ids,
            None,
            next_checkpoint,
            group=group,
            nodes=nodes,
        )
        self.executor.carry_out([command])

    def run_group(self, trial_id="t00001", **options):
        """Run one trial over several workers to its end."""
        self.start_group(trial_id, **options)
        return self.exit_of(trial_id)

    def results(self, trial_id="t00001"):
        return [event for event in self.events[trial_id] if isinstance(event, ResultReported)]

    def answer(self, trial_id, verdict=ReportReply.CONTINUE, attempt=1):
        self.executor.carry_out([AnswerReport(trial_id, attempt, verdict)])

    def kill(self, trial_id, attempt=1):
        self.executor.carry_out([KillWorker(trial_id, attempt, "the test says so")])

    def next_event(self, trial_id, kind):
        """Wait for the trial's next event of a kind, without answering reports."""
        return self._wait_for(
            lambda: next(
                (event for event in self.events[trial_id] if isinstance(event, kind)), None
            )
        )

    def exit_of(self, trial_id):
        """Wait for the end of the trial, answering all reports with continue."""
        return self._wait_for(lambda: self._exit(trial_id), is_answering=True)

    def run(self, trial_id="t00001", **config):
        """Run one trial to its end."""
        self.start(trial_id, **config)
        return self.exit_of(trial_id)

    def printed(self, trial_id="t00001", stream="stdout"):
        return Path(self.directory, trial_id, stream).read_text()

    def _exit(self, trial_id):
        return next(
            (event for event in self.events[trial_id] if isinstance(event, WorkerExited)), None
        )

    def _wait_for(self, found, *, is_answering=False):
        deadline = time.monotonic() + DEADLINE_S
        while (event := found()) is None:
            assert time.monotonic() < deadline, f"nothing came but {dict(self.events)}"
            for news in self.executor.wait(deadline - time.monotonic()):
                owner = getattr(news, "owner", news)
                self.events[owner.trial_id].append(news)
                if is_answering and isinstance(news, ResultReported):
                    self.answer(news.trial_id, attempt=news.attempt)
        return event


@pytest.fixture(params=["zygote", "spawn"])
def start_method(request):
    return request.param


@pytest.fixture
def keeps_zygote():
    """Whether a test takes over the zygote of an earlier one; to start one takes a third second.

    Modules about its start and its death override it.
    """
    return True


@pytest.fixture
def start_executor(tmp_path, keeps_zygote):
    """Return a function that starts an executor, which is shut down after the test."""
    opened = []

    def build(trainable, **options):
        if keeps_zygote:
            identity = {VARIABLE: str(DriverIdentity.current(tmp_path))}
            options = {"keeps_zygote": True, "environ": identity} | options
        opened.append(Harness(tmp_path, trainable, **options))
        return opened[-1]

    yield build
    for one in opened:
        one.executor.shutdown(10)


class ImportedOnLoading:
    """Pickles as an import of the module, which the driver itself never makes."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return importlib.import_module, (self.name,)


@pytest.fixture
def trainable_importing(tmp_path, monkeypatch):
    """Return a trainable whose loading runs the given source code."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def build(source):
        Path(tmp_path, "imported_on_loading.py").write_text(source)
        module = ImportedOnLoading("imported_on_loading")
        return lambda config: print(module)

    return build


def is_alive(pid):
    """Return whether the process exists and is not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def still_alive():
    """Wait, unless `at_once`, until none of the processes is alive; return those that stay."""

    def wait(pids, *, at_once=False):
        if not at_once:
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not any(map(is_alive, pids)))
        return [pid for pid in pids if is_alive(pid)]

    return wait


@pytest.fixture
def wait_started():
    return lambda harness, trial_id: harness.next_event(trial_id, WorkerStarted).pid
