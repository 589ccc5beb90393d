"""Waiting for what another process or thread is going to do."""

import time

DEADLINE_S = 60.0
"""Long enough for a machine under load: only what fails takes as long."""
_EVERY_S = 0.01


def wait_until(is_so, what="what is waited for"):
    """Return what `is_so` returns once that is true; fail after a minute."""
    ends_s = time.monotonic() + DEADLINE_S
    while not (result := is_so()):
        if time.monotonic() > ends_s:
            raise AssertionError(f"{what} has not come within {DEADLINE_S:.0f} s")
        time.sleep(_EVERY_S)
    return result
