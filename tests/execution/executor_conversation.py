"""A conversation with an executor whose processes do what a test says."""

import errno

from tests.execution.conversation import assignment
from tests.execution.fake_processes import FakeProcesses
from tuner import capabilities
from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import WorkerExited
from tuner.core.worker_records import (
    CheckpointRecord,
    Failure,
    ReportReply,
    ValidationRequest,
    WorkerGroup,
)
from tuner.execution.failures import ExitInfo, as_message
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.validation_assignment import ValidationAssignment

STARTED = {"kind": "started", "pid": 4711}
DONE = {"kind": "exited", "outcome": "completed", "failure": None}
STAYS = {**DONE, "outcome": "stopped", "stays": True}
FAILED = {**DONE, "outcome": "failed", "failure": as_message(Failure("KeyError", "x"))}
UNFIT = {"kind": "unfit"}
SHORTAGE = OSError(errno.EMFILE, "too many open files")
CRASHED = ExitInfo(-11)


def result(number=1, **fields):
    metrics = {"training_iteration": number, "time_total_s": 1.0, "loss": 0.5}
    return {"kind": "result", "metrics": metrics, "checkpoint": None, **fields}


class ImmediateCommits:
    """Commits checkpoints of groups at once."""

    def submit(self, job, then, what):
        try:
            done = job()
        except Exception as error:  # noqa: BLE001  (what it raises is its result)
            done = error
        then(done)

    def run_done(self):
        pass

    def close(self, within_s):
        return []


class Conversation:
    """An executor whose processes do what a test says."""

    def __init__(self, directory, environ=None, group_storage=None):
        self.directory, self.processes = directory, FakeProcesses()
        self.packages, self.unloadable, self._early = {}, [], []
        self.gives_nodes_up = False
        self.executor = ProcessExecutor(
            self.processes,
            lambda command: assignment(
                directory, trial_id=command.trial_id, gpu_ids=command.gpu_ids
            ),
            capacity={"cpu": 4.0},
            environ=environ,
            groups=lambda service, environ: capabilities.Groups(
                service, environ, storage=group_storage, commit_pool=ImmediateCommits
            ),
            on_packages=self.packages.update,
            on_unloadable=self._on_unloadable,
            assign_validation=lambda command: ValidationAssignment.of(
                command, str(directory), {}, 0
            ),
        )

    def _on_unloadable(self, node, why):
        self.unloadable.append((node, why))
        return self.gives_nodes_up

    def start(self, trial_id="t00001", attempt=1, *, num_workers=0, cpus=1.0, nodes=(), gpu_ids=()):
        """Start an attempt; return the key of its process, or the keys of its ranks."""
        earlier = set(self.processes.keys)
        group = WorkerGroup(num_workers, {"cpu": 1.0}, 1, 4) if num_workers else None
        command = StartWorker(
            trial_id,
            attempt,
            {},
            {"cpu": cpus},
            gpu_ids,
            None,
            attempt - 1,
            group=group,
            nodes=nodes,
        )
        self.executor.carry_out([command])
        if num_workers:
            self._early += self.executor.wait(0.0)  # until rank 0 can listen
        new = [key for key in self.processes.keys if key not in earlier]
        return new if num_workers > 1 else next(iter(new), None)

    def validate(self, index=0, num_try=1, request=None, *, is_last_try=False):
        earlier = set(self.processes.keys)
        checkpoint, request = CheckpointRecord(index, index + 1), request or ValidationRequest()
        command = StartValidation(
            "t00001", checkpoint, num_try, request, {"cpu": 1.0}, (), {}, is_last_try
        )
        self.executor.carry_out([command])
        return next((key for key in self.processes.keys if key not in earlier), None)

    def answer(self, reply=ReportReply.CONTINUE, attempt=1, **options):
        self.executor.carry_out([AnswerReport("t00001", attempt, reply, **options)])

    def kill(self, attempt=1, **options):
        self.executor.carry_out([KillWorker("t00001", attempt, "the test says so", **options)])

    def events(self, timeout_s=0.0):
        early, self._early = self._early, []
        return early + self.executor.wait(0.0 if early else timeout_s)

    def exit(self):
        """Return the only event, which is the end of an attempt."""
        (event,) = self.events()
        assert isinstance(event, WorkerExited)
        return event
