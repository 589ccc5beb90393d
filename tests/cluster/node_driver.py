"""A driver of one node, which is a process of this machine, without any engine between them."""

import sys
import time
from collections import defaultdict, deque
from pathlib import Path

from tests.execution.local.conftest import DEADLINE_S
from tuner.cluster.agent import Agent
from tuner.cluster.file_messages import FILE_KINDS, read_file_record
from tuner.cluster.files_on_nodes import FilesOnNodes
from tuner.cluster.link import Link, beat_within
from tuner.cluster.node_messages import (
    KINDS,
    Hello,
    Ready,
    Remark,
    Setup,
    SetupRefused,
    SharedStorage,
    blob_messages,
    read_node_message,
)
from tuner.cluster.service_messages import (
    REQUESTS,
    ExpectExit,
    Kill,
    Listen,
    Preload,
    Send,
    Start,
    Validate,
    read_record,
)
from tuner.cluster.shared_directory import SharedProof
from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import ResultReported, ValidationEnded, WorkerExited
from tuner.core.worker_records import CheckpointRecord, ReportReply, ValidationRequest
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.pickling import pickle_trainable
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import Gone, Unstarted
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.execution.validation_payloads import Payloads
from tuner.storage import strict_json
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore
from tuner.stores.uploading import UploadingExecutor

TOKEN = "secret"  # noqa: S105  (of a test)


class ProcessesOf:
    """The processes of a node, as the executor's process service, and the node itself.

    Attributes:
        files: What moves the files there; None where they are in a shared directory.
    """

    isolates = True

    def __init__(self, driver):
        self._driver = driver
        self._trials, self._said, self._calls = {}, [], deque()
        self.files = None

    def _ask(self, request):
        self._driver.link.send(REQUESTS.encode(request))

    def listen(self, key, node="", *, is_local=True):
        self._ask(Listen(key, is_local))

    def start(self, key, assignment):
        is_validation = isinstance(assignment, ValidationAssignment)
        self._ask((Validate if is_validation else Start)(key, assignment))
        self._trials[key] = assignment.trial_id

    def send(self, key, line):
        self._ask(Send(key, line.decode()))

    def kill(self, key, grace_s=0.0):
        self._ask(Kill(key, grace_s))

    def expect_exit(self, key):
        self._ask(ExpectExit(key))

    def preload(self, modules):
        self._ask(Preload(list(modules)))

    def watch(self, readable, on_readable):
        self.on_readable = on_readable

    def wait(self, timeout_s):
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        said, self._said = self._said, []
        return said

    # What files ask for, see `files_on_nodes.Nodes`.

    def say(self, node, message):
        self._driver.link.send(message)
        return True

    def runs(self, node, trial_id):
        return trial_id in self._trials.values()

    def call_soon(self, call):
        self._calls.append(call)

    def on_remark(self, text):
        self._driver.told.append(Remark(text))

    # What the node says.

    def take(self, message):
        if self.files and message["kind"] in FILE_KINDS:
            self.files.on_told("node", read_file_record(message))
            return
        record = read_record(message)
        if isinstance(record, Gone | Unstarted):
            self._trials.pop(record.key, None)
        self._said.append(record)


class NodeDriver:
    """A driver of one node, on which it runs processes.

    Attributes:
        events: The events of each trial.
        told: What hosts have said about themselves and their node.
        packages: The versions of packages that processes have imported.
        unloadable: Why processes could not load the trainable.
        lines: What the agent has said itself.
        is_mute: Whether nothing is sent.
    """

    def __init__(
        self,
        directory,
        trainable,
        *,
        validator=None,
        storage=None,
        payloads=None,
        assign=None,
        **options,
    ):
        self.directory = directory
        self.proof = None
        if storage is None:
            self.proof = SharedProof(directory, 0.01)
            storage = SharedStorage(str(directory), self.proof.proof)
        settings = {"environ": {}, **options}
        self.setup = Setup(storage=storage, sys_path=sys.path, argv=["train.py"], **settings)
        self.code = list(
            blob_messages(
                pickle_trainable(trainable), pickle_trainable(validator) if validator else b""
            )
        )
        self.events, self.told, self.lines = defaultdict(list), [], []
        self.packages, self.unloadable = {}, []
        self.is_mute = False
        self.number = 1
        beat_s = beat_within(self.setup.lease_s)
        self.link = Link(TOKEN, time.monotonic(), beat_s=beat_s)
        facts = {"resources": {"cpu": 4.0}, "labels": {"zone": "a"}, "address": "127.0.0.1"}
        self.agent = Agent("node", TOKEN, facts)
        self.processes = ProcessesOf(self)
        assign = assign or assigning(directory)
        self.executor = ProcessExecutor(
            self.processes,
            assign,
            capacity={},
            on_packages=self.packages.update,
            on_unloadable=self.note_unloadable,
            assign_validation=assign.validation,
            payloads=payloads,
        )

    # Saying.

    def send(self, *messages):
        for message in messages:
            self.link.send(message)
        self.flush()

    def flush(self):
        if not self.is_mute:
            frames = self.link.take_frames(time.monotonic())
            self.agent.tell([f"[{self.number},{frame}]" for frame in frames])

    def set_up(self):
        """Send the setup and the code; return the answer."""
        self.send(self.setup.message, *self.code)
        return self.wait_for(lambda: self.first(Ready | SetupRefused))

    def start(self, trial_id="t00001", attempt=1, checkpoint=None, **config):
        next_checkpoint = 3 if checkpoint else 0
        self.do(
            StartWorker(
                trial_id, attempt, config, {"cpu": 1.0}, (), checkpoint, next_checkpoint,
                nodes=("node",),
            )
        )  # fmt: skip

    def do(self, command):
        self.executor.carry_out([command])
        self.flush()

    def answer(self, reply=ReportReply.CONTINUE, trial_id="t00001", attempt=1, **options):
        self.do(AnswerReport(trial_id, attempt, reply, **options))

    def kill(self, trial_id="t00001", attempt=1):
        self.do(KillWorker(trial_id, attempt, "enough"))

    def start_validation(self, record=None, request=None):
        record = record or CheckpointRecord(0, 1)
        request = request or ValidationRequest()
        self.do(StartValidation("t00001", record, 1, request, {"cpu": 1.0}, node="node"))

    # Hearing.

    def step(self, timeout_s=0.2):
        lines = self.agent.take(timeout_s)
        for line in map(strict_json.loads, lines):
            if isinstance(line, dict):
                self.lines.append(line)
                self.number = line["next"]
                self.link = Link(TOKEN, time.monotonic())
                continue
            number, frame = line
            if number == self.number:
                for message in self.link.receive(frame, time.monotonic()):
                    self.take(message)
        self.flush()

        self.hear_events()

    def take(self, message):
        if message["kind"] in KINDS:
            self.told.append(read_node_message(message))
        else:
            self.processes.take(message)

    def hear_events(self):
        for event in self.executor.wait(0.0):
            self.note(event)
        self.flush()

    def note(self, event):
        self.events[getattr(event, "owner", event).trial_id].append(event)

    def note_unloadable(self, _node, why):
        self.unloadable.append(why)
        return False

    def first(self, kind):
        return next((each for each in self.told if isinstance(each, kind)), None)

    def first_event(self, kind, trial_id="t00001"):
        return next((each for each in self.events[trial_id] if isinstance(each, kind)), None)

    def wait_for(self, found):
        deadline_s = time.monotonic() + DEADLINE_S
        while not (result := found()):
            assert time.monotonic() < deadline_s, (dict(self.events), self.told, self.lines)
            self.step()
        return result

    def next_event(self, kind, trial_id="t00001"):
        """Wait for the first event of a kind, without answering reports."""
        return self.wait_for(lambda: self.first_event(kind, trial_id))

    def exit_of(self, trial_id="t00001"):
        """Wait for the end of a trial, answering all reports with continue."""
        num_answered = 0
        deadline_s = time.monotonic() + DEADLINE_S
        while not (ended := self.first_event(WorkerExited, trial_id)):
            assert time.monotonic() < deadline_s, (dict(self.events), self.told)
            self.step()
            results = [each for each in self.events[trial_id] if isinstance(each, ResultReported)]
            for each in results[num_answered:]:
                self.answer(trial_id=trial_id, attempt=each.attempt)
            num_answered = len(results)
        return ended

    def end_of_validation(self):
        return self.next_event(ValidationEnded)

    @property
    def hello(self):
        return self.wait_for(lambda: self.first(Hello))

    def close(self):
        self.agent.close()
        if self.proof:
            self.proof.close()


class StoredNodeDriver(NodeDriver):
    """A driver of one node that shares nothing with it but an object store.

    Attributes:
        files: Moves the files of the node.
    """

    def __init__(self, directory, trainable, *, storage, is_async=False, **options):
        assign = assigning(
            directory,
            stored_in=storage.url,
            directory_on=lambda _: Path(self.first(Ready).directory),
        )
        self._payloads = Payloads(are_kept=True)
        super().__init__(
            directory,
            trainable,
            storage=storage,
            payloads=self._payloads,
            assign=assign,
            **options,
        )
        checkpoints = ObjectCheckpoints(ObjectStore(storage.url), directory, storage.epoch)
        self.files = self.processes.files = FilesOnNodes(self.processes, checkpoints, directory)
        self.executor = UploadingExecutor(self.executor, self.files, is_async=is_async)

    def learn_payloads_of(self, other):
        """Know what processes of another node have written, as one driver of both does."""
        self._payloads._paths |= other._payloads._paths
        self.executor._payloads |= other.executor._payloads


def assigning(directory, **options):
    """Return what makes the assignments of an experiment in a directory."""
    return AssignmentBuilder(directory, "exp", lambda _: 17, sync_checkpoints=False, **options)


def children_of(pid):
    """Return the ids of a process's children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(child) for child in file.read().split()]


def descendants_of(pid):
    """Return the ids of all processes below a process."""
    found = children_of(pid)
    for child in list(found):
        found += descendants_of(child)
    return found
