"""What the driver is told, and when, while checkpoints are uploaded and downloaded."""

import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tuner.core.commands import (
    AnswerReport,
    KillValidation,
    KillWorker,
    StartValidation,
    StartWorker,
)
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointLost,
    CheckpointSaved,
    CheckpointStarted,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply, ValidationRequest
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.stores.checkpoint_cache import CheckpointCache
from tuner.stores.file_service import StoreFiles
from tuner.stores.uploading import UploadingExecutor

pytestmark = pytest.mark.process

STOPPED = WorkerExited("t00000", 1, Outcome.STOPPED)
GIB = 1 << 30


class ScriptedExecutor:
    """Returns the events that a test gives it, and keeps the commands that it gets."""

    def __init__(self):
        self.events, self.commands, self.is_woken = [], [], threading.Event()

    def carry_out(self, commands):
        self.commands += commands

    def wait(self, timeout_s):
        if not self.events:
            self.is_woken.wait(timeout_s)
        self.is_woken.clear()
        events, self.events = self.events, []
        return events

    def wake(self):
        self.is_woken.set()

    def clock(self):
        return time.monotonic()

    def shutdown(self, deadline_s):
        pass


class SlowCheckpoints:
    """A store whose uploads and downloads end when a test lets them."""

    url, outage_s = "s3://bucket/run", 0.0

    def __init__(self, tmp_path):
        self.cache = CheckpointCache(tmp_path, GIB)
        self.outcomes, self.begun, self.wanted = {}, [], []
        self.local_damage, self.changed = {}, threading.Condition()

    def remote_name(self, index, attempt):
        return f"checkpoint_{index:06d}.e7a{attempt}"

    def end(self, index, outcome=None):
        with self.changed:
            self.outcomes[index] = outcome
            self.changed.notify_all()

    def upload(self, trial_id, record, remote, is_wanted):
        outcome = self._wait("upload", record.index)
        self.wanted.append(is_wanted())
        if outcome:
            raise outcome
        return 10

    def download(self, trial_id, record):
        outcome = self._wait("download", record.index)
        if outcome:
            raise outcome
        self.local_damage.clear()
        return 10

    def _wait(self, what, index):
        with self.changed:
            self.begun.append((what, index))
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: index in self.outcomes, 30)
            return self.outcomes.pop(index)

    def await_begun(self, *begun):
        with self.changed:
            assert self.changed.wait_for(lambda: sorted(self.begun) == sorted(begun), 30)

    def find_local_damage(self, trial_id, record, *, with_hashes):
        return self.local_damage.get(record.index, "")

    def add_copy(self, trial_id, record, size_bytes):
        self.cache.add((trial_id, record.remote), Path("x"), record.index, size_bytes)


class Moving:
    """Something that a node moves until a test ends it."""

    def __init__(self, then):
        self.end, self.is_given_up = then, False

    def give_up(self):
        self.is_given_up = True


class FilesOfNodes:
    """A file service of nodes, each of which does what a test says.

    Attributes:
        moving: What was begun, by name, node, and what it is about.
        asked: What else was asked for.
    """

    url, outage_s = "s3://bucket/run", 0.0

    def __init__(self):
        self.moving, self.asked, self.checkpoints = {}, [], self

    def end(self, *which, failure=None):
        """End something that was begun."""
        self.moving.pop(which).end(failure)

    def take_asked(self):
        asked, self.asked = self.asked, []
        return asked

    def remote_name(self, index, attempt):
        return f"checkpoint_{index:06d}.e7a{attempt}"

    def fetch(self, node, source, then):
        return self._begin(then, "fetch", node, source.holder)

    def upload(self, node, trial_id, record, holder, then):
        return self._begin(then, "upload", node, record.index)

    def put_payload(self, node, trial_id, name, then):
        return self._begin(then, "put_payload", node, name)

    def get_payload(self, node, trial_id, name, then):
        return self._begin(then, "get_payload", node, name)

    def put_files(self, node, trial_id, then):
        return self._begin(then, "put_files", node, trial_id)

    def release(self, node, holders):
        self.asked.append(("release", node, *holders))

    def drop_payload(self, node, trial_id, name):
        self.asked.append(("drop_payload", node, trial_id, name))

    def close(self):
        self.asked.append(("close",))

    def _begin(self, then, *which):
        self.moving[which] = moving = Moving(then)
        return moving


@pytest.fixture
def nodes():
    """Return an executor whose trials run on nodes, what it stands before, and their files."""
    inner, files = ScriptedExecutor(), FilesOfNodes()
    return UploadingExecutor(inner, files), inner, files


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(*, is_async=False, in_background=True):
        inner, checkpoints = ScriptedExecutor(), SlowCheckpoints(tmp_path)
        files = StoreFiles(checkpoints, inner.wake, in_background=in_background)
        stages.append(UploadingExecutor(inner, files, is_async=is_async))
        return stages[-1], inner, checkpoints

    yield make
    for executor in stages:
        executor.shutdown(0.0)


def start(trial_id="t00000", attempt=1, checkpoint=None, source_id="", nodes=()):
    return StartWorker(
        trial_id, attempt, {}, {"cpu": 1.0}, (), checkpoint, 0, source_id=source_id, nodes=nodes
    )


def report(index=None, iteration=1, trial_id="t00000", **fields):
    checkpoint = None if index is None else CheckpointRecord(index, iteration)
    metrics = {"training_iteration": iteration, "checkpoint_dir_name": "given"}
    return ResultReported(trial_id, 1, metrics, checkpoint, **fields)


def saved(index):
    return CheckpointSaved("t00000", 1, CheckpointRecord(index, index + 1))


def committed(index):
    return CheckpointCommitted("t00000", 1, CheckpointRecord(index, index + 1))


def stored(index):
    return CheckpointRecord(index, index + 1, remote=f"checkpoint_{index:06d}.e7a1")


def told(executor, inner, *events):
    """Let events arrive, and return what the driver is told."""
    inner.events += events
    return executor.wait(0.0)


def waited(executor, num):
    """Return the next events of which there are so many."""
    events, end_s = [], time.monotonic() + 60
    while len(events) < num and time.monotonic() < end_s:
        events += executor.wait(1.0)
    return events


def test_a_report_and_what_follows_wait_for_the_upload_while_others_go_on(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start(), start("t00001")])
    of_other = report(trial_id="t00001")
    assert told(executor, inner, report(0), of_other) == [
        CheckpointStarted("t00000", 1),
        of_other,
    ]
    assert told(executor, inner, STOPPED) == []
    checkpoints.end(0)
    first, last = waited(executor, 2)
    assert (first.checkpoint, last) == (stored(0), STOPPED)
    assert first.metrics["checkpoint_dir_name"] == "given"


def test_a_report_without_a_checkpoint_and_a_placeholder_pass_at_once(stage):
    executor, inner, _ = stage()
    executor.carry_out([start()])
    only = CheckpointRecord(0, 1, name="only", is_placeholder=True)
    events = [report(), ResultReported("t00000", 1, {}, only), STOPPED]
    assert told(executor, inner, *events) == events


def test_no_second_record_says_that_a_worker_saves(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    saving = CheckpointStarted("t00000", 1)
    assert told(executor, inner, saving, saved(0)) == [saving]
    assert told(executor, inner, report(iteration=2)) == [saving]
    checkpoints.end(0)
    first, second = waited(executor, 2)
    assert (first.checkpoint, second) == (stored(0), report(iteration=2))


def test_reports_overtake_a_checkpoint_that_counts_later_but_the_exit_does_not(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    first, second = report(upload=0), report(iteration=2)
    assert told(executor, inner, first, committed(0), second) == [first, second]
    assert told(executor, inner, STOPPED) == []
    checkpoints.end(0)
    (late, last) = waited(executor, 2)
    assert (late.checkpoint, last) == (stored(0), STOPPED)


def test_checkpoints_count_in_the_order_of_their_reports(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    told(executor, inner, committed(0), committed(1), saved(2))
    checkpoints.await_begun(("upload", 0), ("upload", 1), ("upload", 2))
    for index in (2, 1):
        checkpoints.end(index)
    assert told(executor, inner) == []
    checkpoints.end(0)
    assert [event.checkpoint.index for event in waited(executor, 3)] == [0, 1, 2]


def test_an_asynchronous_upload_holds_only_the_next_report_with_a_checkpoint(stage):
    executor, inner, checkpoints = stage(is_async=True)
    executor.carry_out([start()])
    (first,) = told(executor, inner, report(0))
    assert (first.checkpoint, first.upload) == (None, 0)
    plain = report(iteration=2)
    assert told(executor, inner, plain) == [plain]
    assert told(executor, inner, report(1, 3)) == [CheckpointStarted("t00000", 1)]
    checkpoints.end(0)
    late, next_one = waited(executor, 2)
    assert late == CheckpointCommitted("t00000", 1, stored(0))
    assert (next_one.upload, next_one.metrics["training_iteration"]) == (1, 3)
    assert told(executor, inner, STOPPED) == []
    checkpoints.end(1)
    assert [type(event) for event in waited(executor, 2)] == [CheckpointCommitted, WorkerExited]


@pytest.mark.parametrize(
    ("event", "instead"),
    [
        (report(0, validation=ValidationRequest("f", {}, None)), ResultReported),
        (saved(0), CheckpointFailed),
        (committed(0), CheckpointLost),
    ],
)
def test_a_trial_goes_on_without_a_checkpoint_that_cannot_be_uploaded(
    event, instead, stage, caplog
):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    told(executor, inner, event)
    checkpoints.end(0, StorageUnreachable("s3://bucket/run could not be reached for 60 s"))
    with caplog.at_level(logging.WARNING):
        (came,) = waited(executor, 1)
    assert isinstance(came, instead)
    if instead is ResultReported:
        assert (came.checkpoint, came.validation) == (None, None)
        assert came.metrics["checkpoint_dir_name"] is None
    # Of a failed save the core tells.
    assert len(caplog.records) == (instead is not CheckpointFailed)
    assert told(executor, inner, STOPPED) == [STOPPED]


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_trial_is_not_paused_without_any_checkpoint(has_earlier, stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start(checkpoint=CheckpointRecord(0, 1) if has_earlier else None)])
    executor.carry_out([AnswerReport("t00000", 1, ReportReply.PAUSE, save=True)])
    told(executor, inner, saved(1), STOPPED)
    checkpoints.end(1, CheckpointError("it was replaced"))
    _, exited = waited(executor, 2)
    assert exited.outcome is (Outcome.STOPPED if has_earlier else Outcome.UNSAVED)
    assert (exited.failure is None) is has_earlier


@pytest.mark.parametrize(
    ("event", "term_grace_s", "is_kept"),
    [
        (report(0), 0.5, False),
        (report(0), 0.0, False),
        (saved(0), 0.5, True),
        (saved(0), 0.0, False),
        (committed(0), 0.5, True),
        (committed(0), 0.0, False),
    ],
)
def test_the_exit_of_a_killed_worker_waits_for_what_still_counts_unless_urgent(
    event, term_grace_s, is_kept, stage
):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    told(executor, inner, event)
    checkpoints.await_begun(("upload", 0))
    executor.carry_out([KillWorker("t00000", 1, "test", term_grace_s)])
    assert isinstance(inner.commands[-1], KillWorker)
    killed = WorkerExited("t00000", 1, Outcome.KILLED, Failure("killed", "test"))
    came = told(executor, inner, killed)
    checkpoints.end(0)
    if is_kept:
        assert came == []
        kept, last = waited(executor, 2)
        assert (kept.checkpoint, last) == (stored(0), killed)
    else:
        assert came[-1] == killed
        assert not any(getattr(each, "checkpoint", None) for each in came)
    wait_until(lambda: checkpoints.wanted)
    assert checkpoints.wanted == [is_kept]


def test_a_shutdown_waits_for_no_upload(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    told(executor, inner, report(0))
    checkpoints.await_begun(("upload", 0))
    executor.shutdown(10.0)
    checkpoints.end(0)
    wait_until(lambda: checkpoints.wanted)
    assert checkpoints.wanted == [False]


def test_a_worker_starts_at_once_where_the_local_copy_was_made_by_this_driver(stage):
    executor, inner, checkpoints = stage()
    executor.carry_out([start()])
    told(executor, inner, report(0), STOPPED)
    checkpoints.end(0)
    waited(executor, 2)
    again = start("t00001", 1, stored(0), "t00000")
    executor.carry_out([again])
    assert inner.commands[-1] == again


def test_a_worker_starts_when_its_checkpoint_has_been_downloaded(stage):
    executor, inner, checkpoints = stage()
    checkpoints.local_damage[0] = "it is not there"
    command, other = start(checkpoint=stored(0)), start("t00001")
    executor.carry_out([command, other])
    assert inner.commands == [other]
    checkpoints.end(0)
    while command not in inner.commands:
        assert executor.wait(1.0) == []
    assert checkpoints.begun == [("download", 0)]
    executor.carry_out([start("t00002", 1, stored(0), "t00000")])
    assert len(inner.commands) == 3


def test_damage_in_the_store_loses_the_checkpoint_and_the_attempt(stage):
    executor, inner, checkpoints = stage()
    checkpoints.local_damage[0] = "it is not there"
    executor.carry_out([start("t00001", 1, stored(0), "t00000")])
    checkpoints.end(0, CheckpointError("model.pt has another SHA-256"))
    lost, exited = waited(executor, 2)
    assert lost == CheckpointLost("t00000", 0, "model.pt has another SHA-256")
    assert (exited.trial_id, exited.outcome) == ("t00001", Outcome.LOST)
    assert inner.commands == []


def test_a_store_that_is_away_loses_no_checkpoint(stage, caplog, monkeypatch):
    monkeypatch.setattr("tuner.stores.file_service.PAUSE_S", 0.0)
    executor, inner, checkpoints = stage()
    checkpoints.local_damage[0] = "it is not there"
    command = start(checkpoint=stored(0))
    executor.carry_out([command])
    checkpoints.end(0, StorageUnreachable("s3://bucket/run could not be reached"))
    checkpoints.await_begun(("download", 0), ("download", 0))
    checkpoints.end(0)
    while not inner.commands:
        assert executor.wait(1.0) == []
    assert "waits for a checkpoint" in caplog.text


def test_a_worker_that_is_killed_before_its_checkpoint_is_there_never_starts(stage):
    executor, inner, checkpoints = stage()
    checkpoints.local_damage[0] = "it is not there"
    executor.carry_out([start(checkpoint=stored(0))])
    checkpoints.await_begun(("download", 0))
    executor.carry_out([KillWorker("t00000", 1, "test")])
    (exited,) = executor.wait(0.0)
    assert exited == WorkerExited("t00000", 1, Outcome.KILLED, Failure("killed", "test"))
    checkpoints.end(0)
    assert executor.wait(0.05) == []
    assert inner.commands == []


@pytest.mark.parametrize("end", ["killed", "damaged", "there"])
def test_a_validation_waits_for_its_checkpoint(end, stage):
    executor, inner, checkpoints = stage()
    checkpoints.local_damage[0] = "it is not there"
    request = ValidationRequest("f", {}, None)
    command = StartValidation("t00000", stored(0), 1, request, {"cpu": 1.0})
    executor.carry_out([command])
    checkpoints.await_begun(("download", 0))
    if end == "killed":
        executor.carry_out([KillValidation("t00000", 0, 1, "test")])
        checkpoints.end(0)
    else:
        checkpoints.end(0, CheckpointError("it is gone") if end == "damaged" else None)
    if end == "there":
        while not inner.commands:
            assert executor.wait(1.0) == []
        assert inner.commands == [command]
        return
    (ended,) = waited(executor, 1)
    outcome = Outcome.KILLED if end == "killed" else Outcome.FAILED
    failure = (
        Failure("killed", "test") if end == "killed" else Failure("CheckpointError", "it is gone")
    )
    assert ended == ValidationEnded("t00000", 0, 1, outcome, failure=failure)
    assert inner.commands == []


def test_in_the_foreground_everything_is_there_at_once(stage):
    executor, inner, checkpoints = stage(in_background=False)
    executor.carry_out([start()])
    checkpoints.end(0)
    (first,) = told(executor, inner, report(0))
    assert first.checkpoint == stored(0)


VALIDATED = ValidationRequest(payload="payload.pkl")


def validation(num_try=1, **fields):
    fields = {"node": "b", **fields}
    return StartValidation("t00000", stored(0), num_try, VALIDATED, {"cpu": 1.0}, **fields)


def reported_with_payload(executor, inner, files):
    """Have a worker on node a report what a validation needs, and all of it be stored."""
    executor.carry_out([start(nodes=("a",))])
    told(executor, inner, report(0, validation=VALIDATED))
    files.end("upload", "a", 0)
    files.end("put_payload", "a", "payload.pkl")
    (result,) = told(executor, inner)
    return result


@pytest.mark.parametrize("over", [("a",), ("a", "b")])
def test_an_exit_waits_until_what_the_trial_has_left_on_its_nodes_is_stored(nodes, over):
    executor, inner, files = nodes
    executor.carry_out([start(nodes=over)])
    assert told(executor, inner, STOPPED) == []
    for node in over:
        assert told(executor, inner) == []
        # A file that cannot be stored is no reason to keep the trial from its end.
        files.end("put_files", node, "t00000", failure=Failure("OSError", "disk full"))
    assert told(executor, inner) == [STOPPED]


def test_an_exit_waits_for_no_files_of_a_worker_that_stays(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(nodes=("a",))])
    executor.carry_out([AnswerReport("t00000", 1, ReportReply.STOP, stay=True)])
    assert told(executor, inner, STOPPED) == [STOPPED]
    files.end("put_files", "a", "t00000")
    assert told(executor, inner) == []


def test_a_result_waits_until_its_payload_is_stored_too(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(nodes=("a",))])
    requested = report(0, validation=VALIDATED)
    assert told(executor, inner, requested) == [CheckpointStarted("t00000", 1)]
    files.end("upload", "a", 0)
    assert told(executor, inner) == []
    files.end("put_payload", "a", "payload.pkl")
    assert told(executor, inner) == [replace(requested, checkpoint=stored(0))]


def test_without_its_checkpoint_a_report_leaves_no_payload(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(nodes=("a",))])
    told(executor, inner, report(0, validation=VALIDATED))
    files.end("put_payload", "a", "payload.pkl")
    files.end("upload", "a", 0, failure=Failure("StorageUnreachable", "away"))
    (event,) = told(executor, inner)
    assert (event.checkpoint, event.validation) == (None, None)
    assert ("drop_payload", "a", "t00000", "payload.pkl") in files.take_asked()


def test_an_attempt_that_was_killed_before_it_began_has_left_nothing(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(checkpoint=stored(0), nodes=("a",))])
    executor.carry_out([KillWorker("t00000", 1, "test")])
    killed = WorkerExited("t00000", 1, Outcome.KILLED, Failure("killed", "test"))
    assert told(executor, inner) == [killed]
    again = start(attempt=2, checkpoint=stored(0), nodes=("a",))
    executor.carry_out([again])
    files.end("fetch", "a", "source t00000 2")
    told(executor, inner)
    stopped = WorkerExited("t00000", 2, Outcome.STOPPED)
    assert told(executor, inner, stopped) == []  # what has begun may have
    files.end("put_files", "a", "t00000")
    assert told(executor, inner) == [stopped]


@pytest.mark.parametrize("is_written_now", [False, True])
def test_a_validation_gets_its_payload_if_a_worker_of_this_session_wrote_it(nodes, is_written_now):
    executor, inner, files = nodes
    if is_written_now:
        reported_with_payload(executor, inner, files)
    command = validation()
    executor.carry_out([command])
    files.end("fetch", "b", "validation t00000 0 1")
    assert told(executor, inner) == []
    if is_written_now:
        assert command not in inner.commands
        files.end("get_payload", "b", "payload.pkl")
        assert told(executor, inner) == []
    assert inner.commands[-1] == command
    assert files.moving == {}


def test_a_validation_without_its_payload_fails_and_waits_no_more_for_its_checkpoint(nodes):
    executor, inner, files = nodes
    reported_with_payload(executor, inner, files)
    executor.carry_out([validation()])
    missing = Failure("CheckpointError", "payload.pkl is missing in s3://bucket/run")
    files.end("get_payload", "b", "payload.pkl", failure=missing)
    (ended,) = told(executor, inner)
    assert ended == ValidationEnded("t00000", 0, 1, Outcome.FAILED, failure=missing)
    assert files.moving["fetch", "b", "validation t00000 0 1"].is_given_up
    assert validation() not in inner.commands


@pytest.mark.parametrize(
    ("outcome", "is_last_try", "is_over"),
    [
        (Outcome.COMPLETED, False, True),
        (Outcome.KILLED, False, True),
        (Outcome.FAILED, True, True),
        (Outcome.FAILED, False, False),
        (Outcome.LOST, True, False),
    ],
)
def test_a_payload_is_dropped_when_its_validation_is_over_for_good(
    nodes, outcome, is_last_try, is_over
):
    executor, inner, files = nodes
    reported_with_payload(executor, inner, files)
    executor.carry_out([validation(is_last_try=is_last_try)])
    for which in (("fetch", "b", "validation t00000 0 1"), ("get_payload", "b", "payload.pkl")):
        files.end(*which)
    ended = ValidationEnded("t00000", 0, 1, outcome)
    assert told(executor, inner, ended) == [ended]
    dropped = ("drop_payload", "b", "t00000", "payload.pkl")
    assert files.take_asked() == ([dropped] if is_over else [])
    executor.carry_out([validation(2)])
    assert (("get_payload", "b", "payload.pkl") in files.moving) is not is_over


def test_a_validation_that_is_killed_before_it_starts_drops_its_payload(nodes):
    executor, inner, files = nodes
    reported_with_payload(executor, inner, files)
    executor.carry_out([validation()])
    executor.carry_out([KillValidation("t00000", 0, 1, "test")])
    (ended,) = told(executor, inner)
    assert ended.outcome is Outcome.KILLED
    assert ("drop_payload", "b", "t00000", "payload.pkl") in files.take_asked()
    assert all(moving.is_given_up for moving in files.moving.values())


def test_a_payload_that_no_worker_of_this_session_wrote_is_not_dropped(nodes):
    executor, inner, files = nodes
    executor.carry_out([validation()])
    files.end("fetch", "b", "validation t00000 0 1")
    told(executor, inner, ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {}))
    assert files.take_asked() == []


def test_a_node_that_leaves_takes_with_it_what_is_held_of_attempts_there_alone(nodes):
    executor, inner, files = nodes
    commands = [
        start("t00000", nodes=("a",)),
        start("t00001", nodes=("b",)),
        start("t00002", nodes=("a", "b")),
    ]
    executor.carry_out(commands)
    exits = [replace(STOPPED, trial_id=command.trial_id) for command in commands]
    assert told(executor, inner, *exits) == []
    left = NodeLeft("a", "no power")
    assert told(executor, inner, left) == [left]
    gone = Failure("NodeLost", "node a is gone")
    for which in list(files.moving):
        files.end(*which, failure=gone if which[1] == "a" else None)
    assert told(executor, inner) == exits[1:]


def test_what_waits_to_start_on_a_node_that_leaves_is_forgotten(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(checkpoint=stored(0), nodes=("a",))])
    executor.carry_out([validation(node="a")])
    left = NodeLeft("a", "no power")
    assert told(executor, inner, left) == [left]
    assert all(moving.is_given_up for moving in files.moving.values())
    for which in list(files.moving):
        files.end(*which)
    assert (told(executor, inner), inner.commands) == ([], [])
    again = start(attempt=2, nodes=("b",))
    executor.carry_out([again])
    assert inner.commands == [again]


def test_a_start_over_several_nodes_is_lost_with_one_of_them(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(checkpoint=stored(0), nodes=("a", "b"))])
    left = NodeLeft("b", "no power")
    lost = Failure("lost", "node b is gone")
    # At once: nothing has run there that could have left files.
    exited = WorkerExited("t00000", 1, Outcome.LOST, lost)
    assert told(executor, inner, left) == [left, exited]
    for node in ("a", "b"):
        assert files.moving["fetch", node, "source t00000 1"].is_given_up
    assert inner.commands == []


def test_a_start_over_two_nodes_waits_for_a_copy_on_both(nodes):
    executor, inner, files = nodes
    command = start(checkpoint=stored(0), nodes=("a", "a", "b"))
    executor.carry_out([command])
    for node in ("b", "a"):
        assert (told(executor, inner), inner.commands) == ([], [])
        files.end("fetch", node, "source t00000 1")
    told(executor, inner)
    assert inner.commands == [command]


def test_damage_on_one_of_two_nodes_ends_the_start_once(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(checkpoint=stored(0), nodes=("a", "b"))])
    damage = Failure("CheckpointError", "model.pt has another SHA-256")
    for node in ("a", "b"):
        files.end("fetch", node, "source t00000 1", failure=damage)
    lost, exited = told(executor, inner)
    assert lost == CheckpointLost("t00000", 0, damage.message)
    assert (exited.outcome, exited.failure.message) == (Outcome.LOST, damage.message)
    assert inner.commands == []


def test_copies_are_kept_until_the_commands_that_follow_an_exit(nodes):
    executor, inner, files = nodes
    executor.carry_out([start(nodes=("a", "b"))])
    told(executor, inner, STOPPED)
    for node in ("a", "b"):
        files.end("put_files", node, "t00000")
    assert told(executor, inner) == [STOPPED]
    executor.carry_out([start(attempt=2, checkpoint=stored(0), nodes=("a",))])
    assert ("fetch", "a", "source t00000 2") in files.moving
    assert files.take_asked() == []
    told(executor, inner)
    assert files.take_asked() == [
        ("release", node, "source t00000 1", "latest t00000 1") for node in ("a", "b")
    ]


def test_the_copy_of_a_validation_is_kept_as_long(nodes):
    executor, inner, files = nodes
    executor.carry_out([validation()])
    files.end("fetch", "b", "validation t00000 0 1")
    ended = ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {})
    assert told(executor, inner, ended) == [ended]
    assert files.take_asked() == []
    told(executor, inner)
    assert files.take_asked() == [("release", "b", "validation t00000 0 1")]


def test_a_shutdown_gives_up_what_is_moved_and_releases_the_copies_that_are_left(nodes):
    executor, inner, files = nodes
    executor.carry_out([start("t00000", nodes=("a",)), start("t00001", nodes=("b",))])
    told(executor, inner, STOPPED)
    files.end("put_files", "a", "t00000")
    told(executor, inner, report(0, trial_id="t00001"))
    executor.carry_out([start("t00002", checkpoint=stored(0), nodes=("b",))])
    executor.shutdown(1.0)
    assert files.moving["upload", "b", 0].is_given_up
    assert files.moving["fetch", "b", "source t00002 1"].is_given_up
    assert files.take_asked() == [
        ("release", "a", "source t00000 1", "latest t00000 1"),
        ("close",),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_checkpoint_that_is_in_the_store_already_is_not_uploaded_again(is_async):
    inner, files = ScriptedExecutor(), FilesOfNodes()
    executor = UploadingExecutor(inner, files, is_async=is_async)
    executor.carry_out([start(nodes=("a", "b"))])
    events = [replace(report(0), checkpoint=stored(0)), replace(committed(1), checkpoint=stored(1))]
    assert told(executor, inner, *events) == events
    assert files.moving == {}
