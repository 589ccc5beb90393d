"""Sweeps of any program: `Command` is a trainable that runs a command for each trial.

It is built on what any training function may call, and the engine does not know of it. What it does
not contain: the subcommands ``tuner run`` and ``tuner init``, which are in `tuner.cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .command import Command as Command
    from .program_run import CommandFailed as CommandFailed

__all__ = ["Command", "CommandFailed"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a program that reports needs none of them."""
    if name == "Command":
        from .command import Command  # noqa: PLC0415

        return Command
    if name == "CommandFailed":
        from .program_run import CommandFailed  # noqa: PLC0415

        return CommandFailed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
