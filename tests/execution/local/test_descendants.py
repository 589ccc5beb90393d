"""A trial that ends leaves no process behind, even if the zygote is dead."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def keeps_zygote():
    return False


def with_loaders(config):
    import os
    import subprocess

    import psutil

    loaders = [
        subprocess.Popen(["sleep", "600"], start_new_session=leaves).pid for leaves in (False, True)
    ]
    print(os.getppid(), os.getpid(), *loaders, flush=True)
    wait_until(lambda: psutil.Process(os.getppid()).status() == psutil.STATUS_STOPPED)


def test_processes_of_a_trial_die_with_it_while_the_zygote_is_stopped(
    start_executor, still_alive, start_method
):
    one = start_executor(with_loaders, start_method=start_method)
    one.start("t00001")
    output = one.directory / "t00001" / "stdout"
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
    zygote, worker, *loaders = map(int, output.read_text().split())
    os.kill(zygote, signal.SIGSTOP)
    try:
        assert still_alive([worker, *loaders]) == []
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert one.exit_of("t00001").failure is None


def test_processes_of_a_trial_die_with_the_zygote_even_if_its_pipe_stays_open_for_a_moment(
    start_executor, still_alive
):
    def train(config):
        import os
        import signal
        import subprocess

        print(os.getppid(), os.getpid(), subprocess.Popen(["sleep", "600"]).pid, flush=True)
        signal.pause()

    one = start_executor(train, start_method="zygote")
    one.start("t00001")
    output = one.directory / "t00001" / "stdout"
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
    zygote, worker, loader = map(int, output.read_text().split())
    # Like a worker that is just being forked: it holds a copy of all descriptors of the zygote.
    holders = [os.open(path, os.O_WRONLY | os.O_NONBLOCK) for path in writing_ends(zygote)]
    os.kill(zygote, signal.SIGKILL)
    wait_until(lambda: psutil.Process(zygote).status() == psutil.STATUS_ZOMBIE)
    for liveness_writer in holders:
        os.close(liveness_writer)
    assert still_alive([worker, loader]) == []


def writing_ends(pid):
    """Return the pipes that a process could write to."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the process may close it meanwhile
            info = Path(f"/proc/{pid}/fdinfo", path.name).read_text()
            flags = int(info.split("flags:")[1].split()[0], 8)
            if str(path.readlink()).startswith("pipe:") and flags & os.O_ACCMODE == os.O_WRONLY:
                yield path
