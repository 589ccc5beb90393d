"""The zygote of an experiment serves the next one of the process, where a new one would do so."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.events import Outcome, ResultReported
from tuner.execution.local import zygote, zygote_supervisor
from tuner.execution.local.loaded_files import LoadedFiles
from tuner.execution.local.orphans import VARIABLE, DriverIdentity
from tuner.execution.local.trainable_blob import CURRENT_TEST
from tuner.execution.local.zygote_protocol import Load, Park, receive_request, send_request
from tuner.execution.local.zygote_supervisor import Surroundings
from tuner.execution.session import report

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="Linux only")]


@pytest.fixture(autouse=True)
def nothing_kept():
    """End a zygote that an experiment of another test or this one has left."""

    def end():
        with zygote_supervisor._lock:
            found, zygote_supervisor._kept = zygote_supervisor._kept, None
        if found:
            found[1].close()

    end()
    yield
    end()


@pytest.fixture
def run_once(start_executor, tmp_path):
    """Return a function that runs one trial in an executor of its own, and returns its result."""

    def run(trainable=None, *, number=0, environ=None, **options):
        name = DriverIdentity.current(tmp_path)
        identity = str(dataclasses.replace(name, inode=number))
        given = {VARIABLE: identity, **(environ or {})}
        harness = start_executor(trainable or tell, environ=given, keeps_zygote=True, **options)
        trial_id = f"t{number:05d}"
        assert harness.run(trial_id, number=number).outcome is Outcome.COMPLETED
        harness.executor.shutdown(10.0)
        (result,) = harness.results(trial_id)
        return result.metrics

    return run


PRINT = f"import os; print(os.environ[{VARIABLE!r}], end='')"


def tell(config):
    report({"zygote": os.getppid(), "pid": os.getpid(), "number": config["number"]})


def kept_pid():
    return zygote_supervisor._kept and zygote_supervisor._kept[1]._process.pid


def test_the_next_experiment_has_the_same_zygote_and_none_of_the_earlier_workers(
    run_once, still_alive
):
    first = run_once(number=1)
    assert kept_pid() == first["zygote"]
    assert psutil.Process(kept_pid()).children() == []
    second = run_once(lambda config: tell({"number": -config["number"]}), number=2)
    assert (second["zygote"], second["number"]) == (first["zygote"], -2)
    assert still_alive([first["pid"], second["pid"]]) == []


def test_a_fork_of_a_worker_has_the_identity_of_its_own_experiment(run_once, tmp_path):
    def tell_identity(config):
        child = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, check=True)
        own = Path("/proc/self/environ").read_text().split("\0")
        (entry,) = [each for each in own if each.startswith(f"{VARIABLE}=")]
        fork = entry.partition("=")[2]
        report({"fork": fork, "child": child.stdout.decode(), "zygote": os.getppid()})

    first, second = (run_once(tell_identity, number=number) for number in (1, 2))
    assert first["zygote"] == second["zygote"]
    for number, told in ((1, first), (2, second)):
        assert told["fork"] == told["child"]
        assert DriverIdentity.parse(told["fork"].encode()).inode == number


def test_tests_share_a_zygote_and_their_trials_see_which_of_them_runs(run_once, monkeypatch):
    def tell_test(config):
        report({"zygote": os.getppid(), "test": os.environ.get(CURRENT_TEST)})

    told = []
    for number, test in enumerate(["test_one (call)", "test_two (call)", None]):
        if test:
            monkeypatch.setenv(CURRENT_TEST, test)
        else:
            monkeypatch.delenv(CURRENT_TEST)
        told.append(run_once(tell_test, number=number))
    assert [each["test"] for each in told] == ["test_one (call)", "test_two (call)", None]
    assert len({each["zygote"] for each in told}) == 1


def test_in_other_surroundings_there_is_a_new_zygote_and_the_old_one_ends(
    run_once, monkeypatch, still_alive
):
    first = run_once(number=1)["zygote"]
    monkeypatch.setenv("SOME_VARIABLE", "1")
    assert run_once(number=2)["zygote"] != first
    assert still_alive([first], at_once=True) == []


def test_a_module_that_may_have_been_edited_is_loaded_anew(
    run_once, trainable_importing, still_alive
):
    def loading(source):
        loads = trainable_importing(source)

        def train(config):
            loads(config)
            tell({"number": sys.modules["imported_on_loading"].NUMBER})

        return train

    first = run_once(loading("NUMBER = 1"), number=1)
    second = run_once(loading("NUMBER = 1 + 1"), number=2)  # another size: as Python sees it
    assert (first["number"], second["number"]) == (1, 2)
    assert still_alive([first["zygote"]]) == []


class Threaded:
    """Starts a thread while it is loaded into one process."""

    def __init__(self, train, pid):
        self.train, self.pid = train, pid

    def __call__(self, config):
        self.train(config)

    def __setstate__(self, state):
        self.__dict__.update(state)
        if os.getpid() == self.pid:
            threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_what_a_kept_zygote_cannot_load_a_new_one_does(run_once, caplog):
    first = run_once(number=1)
    second = run_once(Threaded(tell, first["zygote"]), number=2)
    assert second["zygote"] != first["zygote"]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_trainable_is_freed_when_its_experiment_ends(run_once, tmp_path):
    freed = tmp_path / "freed"

    class Data:
        def __del__(self):
            freed.touch()

    data = Data()
    bound = [data, tell]
    bound.append(bound)  # a cycle, which only a garbage collection frees

    def train(config):
        bound[1](config)

    run_once(train)
    assert kept_pid()
    wait_until(freed.exists)


def test_experiments_side_by_side_have_their_own_and_one_is_kept(start_executor, still_alive):
    environ = {VARIABLE: "1:2:3:4"}
    harnesses = [start_executor(tell, environ=environ, keeps_zygote=True) for _ in range(2)]
    for harness in harnesses:
        harness.start("t00001", number=1)
    zygotes = [
        harness.next_event("t00001", ResultReported).metrics["zygote"] for harness in harnesses
    ]
    for harness in harnesses:
        harness.answer("t00001")
        harness.executor.shutdown(10.0)
    assert len(set(zygotes)) == 2
    assert kept_pid() == zygotes[1]
    assert still_alive([zygotes[0]]) == []


def test_threads_take_a_kept_zygote_once():
    one, surroundings = object(), now()
    zygote_supervisor._keep(surroundings, one)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: zygote_supervisor._take(surroundings), range(4)))
    assert [each for each in taken if each] == [one]


def test_after_an_exception_and_with_helper_processes_nothing_is_kept(
    start_executor, run_once, trainable_importing, still_alive
):
    harness = start_executor(tell, environ={VARIABLE: "1:2:3:4"}, keeps_zygote=True)
    with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as stack:
        stack.callback(harness.executor.shutdown, 10.0)
        _ = 1 / 0
    assert kept_pid() is None
    loads = trainable_importing("import subprocess; P = subprocess.Popen(['sleep', '600'])")

    def train(config):
        loads(config)
        tell({"number": sys.modules["imported_on_loading"].P.pid})

    told = run_once(train)
    assert kept_pid() is None
    assert still_alive([told["zygote"], told["number"]]) == []


def test_a_fork_of_the_driver_neither_uses_nor_ends_it_and_a_dead_one_is_replaced(run_once):
    told = run_once()
    surroundings = zygote_supervisor._kept[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if zygote_supervisor._take(surroundings) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert run_once(number=1)["zygote"] == told["zygote"]
    os.kill(told["zygote"], signal.SIGKILL)
    assert run_once(number=2)["zygote"] != told["zygote"]


SCRIPT = """
import os, signal, sys, tempfile
import psutil
import tuner as tune

def train(config):
    tune.report({"zygote": os.getppid()})

for _ in range(2):
    run_config = tune.RunConfig(storage_path=tempfile.mkdtemp(dir=sys.argv[1]), verbose=0)
    (result,) = tune.Tuner(train, run_config=run_config).fit()
    print(result.metrics["zygote"])
(kept,) = psutil.Process().children()
print(kept.pid, flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_two_fits_of_a_script_share_one_that_ends_with_the_script(tmp_path, still_alive, end):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), end],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    first, second, kept = map(int, ended.stdout.split())
    assert first == second == kept
    assert ended.returncode == (0 if end == "exit" else -signal.SIGKILL)
    assert still_alive([kept], at_once=end != "kill") == []


def test_a_parked_zygote_ends_after_a_time(monkeypatch):
    monkeypatch.setattr(zygote, "MAX_IDLE_S", 0.0)
    driver, control = socket.socketpair()
    liveness, writer = os.pipe()
    pool = zygote.ForkPool()
    with driver, control:
        served = zygote.Zygote(control, liveness, pool, 1.0)
        served._helper_pids = frozenset()
        monkeypatch.setattr(zygote.process_groups, "children", frozenset)
        monkeypatch.setattr(served, "_kill_all", lambda: None)
        send_request(driver, Park())
        assert served.serve() == Park()
        assert served.park()
        assert served.serve() is None
    os.close(liveness)
    os.close(writer)


def test_requests_of_a_parked_zygote_are_encoded_and_decoded():
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(__file__).open() as file:
        send_request(ours, Park())
        send_request(ours, Load(file.fileno(), "1:2:3:4"))
        assert receive_request(theirs) == Park()
        received = receive_request(theirs)
        assert received.identity == "1:2:3:4"
        assert os.fstat(received.descriptor).st_ino == os.fstat(file.fileno()).st_ino
        os.close(received.descriptor)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "module_of_a_test.py"
    path.write_text("x = 1")
    __import__("module_of_a_test")
    yield path
    del sys.modules["module_of_a_test"]


def test_edited_and_removed_files_are_noticed(module):
    files = LoadedFiles(time.time() + 3600.0)  # nothing has been written since then
    files.note_new()
    assert files.are_unchanged()
    os.utime(module, (1, 1))
    assert not files.are_unchanged()
    again = LoadedFiles(time.time() + 3600.0)
    again.note_new()
    module.unlink()
    assert not again.are_unchanged()


def test_a_file_written_while_modules_were_loaded_is_in_doubt(module):
    files = LoadedFiles(time.time())
    files.note_new()
    assert not files.are_unchanged()


def now(**environ):
    return Surroundings.of_this_process(environ, 5.0)


def test_surroundings_are_equal_if_nothing_has_changed(monkeypatch):
    assert now() == now(**{VARIABLE: "1:2:3:4", CURRENT_TEST: "test_another (call)"}) is not None
    monkeypatch.setattr(zygote_supervisor, "lease_holder", object)  # in a trial
    assert now() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, folder: patch.setenv("SOME_VARIABLE", "1"),
        lambda patch, folder: patch.delenv("PATH"),
        lambda patch, folder: patch.syspath_prepend(str(folder)),
        lambda patch, folder: patch.chdir(folder),
        lambda patch, folder: patch.setattr(sys, "argv", ["other"]),
        lambda patch, folder: patch.setattr(sys, "__stdout__", None),
        lambda patch, folder: patch.setattr(zygote_supervisor, "_umask", lambda: "Umask:\t0777"),
        lambda patch, folder: patch.setattr(os, "sched_getaffinity", lambda pid: {99}),
        lambda patch, folder: patch.setattr(os, "getgroups", lambda: [4711]),
        lambda patch, folder: patch.setattr("resource.getrlimit", lambda limit: (1, 1)),
    ],
)
def test_what_a_process_inherits_makes_other_surroundings(monkeypatch, tmp_path, change):
    before = now()
    change(monkeypatch, tmp_path)
    assert now() != before
