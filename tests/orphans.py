"""Processes that outlive the one that made them."""

import contextlib
import os


@contextlib.contextmanager
def orphan_of(hold):
    """Call `hold` in a process that forks a child and dies; the child lives until the context ends.

    Args:
        hold: Called in that process; what it returns is kept.
    """
    ready, tell = os.pipe()
    gone, leave = os.pipe()
    parent = os.fork()
    if not parent:
        os.close(leave)
        held = hold()  # noqa: F841  (until the process ends)
        if not os.fork():
            os.write(tell, b"x")
            os.read(gone, 1)
        os._exit(0)
    os.read(ready, 1)
    os.waitpid(parent, 0)
    try:
        yield
    finally:
        for descriptor in (ready, tell, gone, leave):
            os.close(descriptor)
