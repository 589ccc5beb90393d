"""The command ``tuner``: looks at experiments, and looks after them, from a shell.

Each command has its module, which is imported when the command is used; ``tuner --help`` imports
none of them.
"""

from .app import main

__all__ = ["main"]
