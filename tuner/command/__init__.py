"""Sweeps of any program: `Command` is a trainable that runs a command for each trial.

It is built on what any training function may call, and the engine does not know of it. What it does
not contain: the subcommands ``tuner run`` and ``tuner init``, which are in `tuner.cli`.
"""

from __future__ import annotations

from .command import Command as Command
from .program_run import CommandFailed as CommandFailed

__all__ = ["Command", "CommandFailed"]
