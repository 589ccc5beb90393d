"""Messages of training code, in any order, are never a reason for the executor to fail."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import CheckpointStarted, Outcome, ResultReported, WorkerExited
from tuner.core.worker_records import Failure, ReportReply, WorkerGroup
from tuner.execution.failures import ExitInfo, as_message
from tuner.execution.remote_process import RemoteWorker
from tuner.groups.group import Patience, RemoteGroup
from tuner.groups.group_checkpoint import DirectoryStorage

NUM_RANKS = 2
ENDED = ExitInfo(0, 0, False)


class Host:
    """Does what an executor does for a group, without processes; jobs run when told to."""

    def __init__(self):
        self.events, self.jobs, self.sent = [], [], []

    def emit(self, event):
        self.events.append(event)

    def submit(self, job, then, what):
        self.jobs.append((job, then))

    def run_job(self):
        if self.jobs:
            job, then = self.jobs.pop(0)
            try:
                done = job()
            except Exception as error:  # noqa: BLE001  (what it raises is its result)
                done = error
            then(done)

    def send(self, worker, data):
        self.sent.append((worker.rank, data))

    kill = dump_stack = expect_exit = lambda self, worker: None


class Group:
    """A group whose ranks say what a test has them say."""

    def __init__(self, directory):
        group = WorkerGroup(NUM_RANKS, {"cpu": 1.0}, NUM_RANKS, NUM_RANKS)
        command = StartWorker("t00001", 1, {}, group.total, (), None, 0, group=group)
        self.host = Host()
        self.members = [RemoteWorker(number, command, number) for number in range(NUM_RANKS)]
        storage = DirectoryStorage(Path(directory), self.host.submit, sync=False)
        self.group = RemoteGroup(
            command, self.members, directory, storage, self.host, patience=Patience()
        )

    def say(self, rank, message):
        worker = self.members[rank]
        try:
            news = worker.read([message])
        except ValueError:
            self.group.on_violation(worker)
        else:
            self.group.on_messages(worker, news)

    def answer(self):
        self.group.answer(AnswerReport("t00001", 1, ReportReply.CONTINUE))

    def end(self, exit_info=ENDED):
        """Have all processes end and all jobs run; return the end of the attempt."""
        for worker in self.members:
            self.group.on_gone(worker, exit_info)
        while self.host.jobs:
            self.host.run_job()
        (ended,) = [event for event in self.host.events if isinstance(event, WorkerExited)]
        return ended


def result(part=None, **fields):
    return {"kind": "result", "metrics": METRICS, "part": part, **fields}


METRICS = {"training_iteration": 1, "time_total_s": 1.0}
PENDING = {"kind": "pending", "name": ""}
PLACED = {"kind": "placeholder", "name": "epoch"}
STAGED = {"kind": "staged", "name": ".tmp-000000-1-0a1b2c3d"}
DROPPED = {"kind": "dropped", "name": "", "why": "no space left"}
DONE = {"kind": "exited", "outcome": "completed", "failure": None}
FAILED = {**DONE, "outcome": "failed", "failure": as_message(Failure("KeyError", "x"))}

parts = st.sampled_from([None, PENDING, PLACED, STAGED, DROPPED])
stored = st.builds(
    lambda index, part: {"kind": "part", "index": index, "part": part},
    st.integers(0, 1),
    st.sampled_from([PLACED, STAGED, DROPPED]),
)
messages = st.one_of(
    st.builds(result, parts, source=st.sampled_from(["", "0-1-2"])),
    st.sampled_from([DONE, FAILED, {"kind": "started", "pid": 7}, {"kind": "saving"}]),
    st.sampled_from([{"kind": "committed", "checkpoint": {"index": 0, "iteration": 1}}, 3]),
)
steps = st.one_of(
    st.sampled_from(["answer", "job", "kill", ((0, 1), result(PENDING))]),
    st.tuples(st.sampled_from([(0,), (1,), (0, 1)]), st.one_of(stored, messages)),
)


@settings(max_examples=examples(300))
@given(st.lists(steps, max_size=25))
def test_whatever_ranks_send_the_group_ends_once_and_nothing_raises(script):
    with TemporaryDirectory() as directory:
        group = Group(directory)
        for step in script:
            if step == "kill":
                group.group.kill("it took too long")
            elif step == "answer":
                group.answer()
            elif step == "job":
                group.host.run_job()
            else:
                ranks, message = step
                for rank in ranks:
                    group.say(rank, message)
        group.end()


@pytest.mark.parametrize("second", [PLACED, DROPPED])
def test_a_second_part_for_a_checkpoint_has_no_effect(tmp_path, second):
    group = Group(tmp_path)
    for rank in range(NUM_RANKS):
        group.say(rank, result(PENDING))
    group.answer()
    for rank in range(NUM_RANKS):
        group.say(rank, {"kind": "part", "index": 0, "part": PLACED})
    group.say(1, {"kind": "part", "index": 0, "part": second})  # while the commit is under way
    group.host.run_job()
    names = [type(event).__name__ for event in group.host.events]
    assert names == [ResultReported.__name__, "CheckpointCommitted"]


def test_what_a_rank_raises_when_the_zygote_dies_does_not_count_as_a_failure(tmp_path):
    group = Group(tmp_path)
    group.say(1, FAILED)
    assert group.end(exit_info=None).outcome is Outcome.LOST


@pytest.mark.parametrize("last", [DONE, FAILED])
def test_ranks_that_are_asked_to_end_leave_when_all_have_returned_or_died(tmp_path, last):
    group = Group(tmp_path)
    group.group.kill("it took too long")
    group.say(0, DONE)
    assert group.host.sent == []
    group.say(1, last)
    assert [rank for rank, data in group.host.sent if b"leave" in data] == [0, 1]
    ended = group.end()
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "it took too long")

    group = Group(tmp_path)
    group.group.kill("it took too long")
    group.say(0, DONE)
    group.group.on_gone(group.members[1], ExitInfo(-9, 0, False))
    assert [rank for rank, data in group.host.sent if b"leave" in data] == [0]


@pytest.mark.parametrize("rest", [{"kind": "saving"}, None])
def test_the_report_timeout_runs_until_no_rank_trains_any_more(tmp_path, rest):
    group = Group(tmp_path)
    group.say(0, {"kind": "saving"})
    group.say(0, result(STAGED))
    assert group.host.events == []
    group.say(1, rest or result())
    assert group.host.events == [CheckpointStarted("t00001", 1)]
