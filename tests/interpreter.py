"""Runs Python as a user does: in a fresh interpreter, with a home directory of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_python(*arguments, cwd, timeout_s=None, **variables):
    """Run an interpreter that has to succeed, and return it with what it printed.

    Args:
        *arguments: Of the interpreter.
        cwd: Its working and home directory.
        timeout_s: How long it may take.
        **variables: Further variables of its environment.
    """
    done = subprocess.run(  # noqa: S603  (our own interpreter and files)
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"HOME": str(cwd), "PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
