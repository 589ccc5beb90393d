"""A trial that ends leaves nobody behind, even if nobody is left to bury it."""

import os
import signal


def with_loaders(config):
    import os
    import subprocess

    import psutil

    loaders = [subprocess.Popen(["sleep", "600"], start_new_session=leaves).pid for leaves in (False, True)]
    print(os.getppid(), os.getpid(), *loaders, flush=True)
    while psutil.Process(os.getppid()).status() != psutil.STATUS_STOPPED:
        os.sched_yield()


def test_a_trial_takes_its_processes_along_while_the_zygote_stands_still(stage, all_die, start_method):
    one = stage(with_loaders, start_method=start_method)
    one.start("t00001")
    output = one.directory / "t00001" / "stdout"
    while not (output.exists() and output.read_text().endswith("\n")):
        os.sched_yield()
    zygote, worker, *loaders = map(int, output.read_text().split())
    os.kill(zygote, signal.SIGSTOP)
    try:
        assert all_die([worker, *loaders]) == []
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert one.exit_of("t00001").failure is None
