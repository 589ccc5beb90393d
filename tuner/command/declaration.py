"""A declared command: its words, how it reports, and what is checked before it runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from searchers.space import flat_name, leaves
from tuner.utils import flatten_dict

from .program import OUTER_RANKS, ranks
from .template import Template, variable_names

_INTERPRETERS: Final = frozenset(
    {"bash", "dash", "julia", "ksh", "lua", "node", "perl", "ruby", "Rscript", "sh", "zsh"}
)
_SCRIPTS: Final = frozenset({".R", ".jl", ".js", ".lua", ".pl", ".py", ".rb", ".sh"})
_ACTIVATED: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables by which an environment of Python tells that it has been activated."""
_OPERATORS: Final = frozenset({"|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1"})
_BUILTINS: Final = frozenset({"cd", "source", ".", "export", "set", "ulimit", "for", "if", "while"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_HEAD_BYTES: Final = 1 << 10
_MAX_GRACE_S: Final = 1e9


@final
@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of `Command`, checked; see there.

    Attributes:
        template: The command.
        report: The regular expressions of its metrics.
        report_file: The file with its results, None for none.
        progress: The metric that counts its iterations.
        checkpoints: Whether it was declared to save its state.
        environ: Further variables.
        variables: Whether each parameter is a variable.
        cwd: The working directory, absolute.
        grace_s: How many seconds it has to end.
        allow_unused: Whether parameters may be named nowhere.
    """

    template: Template
    report: Sequence[str]
    report_file: str | None
    progress: str | None
    checkpoints: bool
    environ: Mapping[str, str]
    variables: bool
    cwd: str
    grace_s: float
    allow_unused: bool

    def __post_init__(self) -> None:
        grace_s = self.grace_s
        is_number = isinstance(grace_s, int | float) and not isinstance(grace_s, bool)
        if not (is_number and 0 <= grace_s <= _MAX_GRACE_S):
            raise ValueError(f"grace_s must be at least 0 seconds, got {grace_s!r}")
        if not os.path.isabs(self.cwd):  # noqa: PTH117
            raise ValueError(f"cwd must be an absolute path, got {self.cwd!r}")

    @property
    def name(self) -> str:
        """Name of the script, or else of the program."""
        words = self.template.words
        if self.template.is_line:
            words = shlex.split(words[0])
        scripts = [word for word in words[1:] if Path(word).suffix in _SCRIPTS]
        return Path((scripts or words)[0]).name

    @property
    def saves(self) -> bool:
        """Whether the program saves its state, so that it can be paused and continued."""
        return self.checkpoints or bool({"checkpoint_dir", "resume_dir"} & self.template.names)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Check the placeholders against a search space.

        Raises:
            ValueError: If one names no parameter, or a parameter is used nowhere.
        """
        self.template.check(space, allow_unused=self.allow_unused or self.variables)
        if self.variables:
            variable_names(flat_name(path) for path, _ in leaves(dict(space)))
        if self.report_file is not None:
            Template([self.report_file]).check(space, allow_unused=True)

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Check that a configuration is used, which may come from a space that was not checked.

        Raises:
            ValueError: If a parameter is used nowhere.
        """
        if not (self.allow_unused or self.variables):
            self.template.check_used(list(flatten_dict(config)))

    def check_report_file(self) -> None:
        """Check that each trial has a file with results of its own.

        Raises:
            ValueError: If all have the same one.
        """
        path = self.report_file
        if path is not None and not Template([path]).names:
            raise ValueError(
                f"report_file {path!r} would be the same file for all trials that run at once; "
                "write a placeholder into it and into the command, such as {trial_dir}/"
                f"{Path(path).name}, or run one trial at a time with max_concurrent_trials=1"
            )

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program: that of this process with further variables."""
        # Of a trial around this one, which may itself run in a program.
        inherited = {
            name: value for name, value in os.environ.items() if name != "TUNER_RESUME_DIR"
        }
        # Or the lines that Python prints would come in blocks, long after they were printed.
        environ = {**inherited, "PYTHONUNBUFFERED": "1", **self.environ, **more}
        environ[OUTER_RANKS] = json.dumps(ranks(environ))
        if not any(environ.get(name) for name in _ACTIVATED):
            # With `.venv/bin/tuner run`, `python` is meant to be that of the same environment.
            here = os.path.dirname(sys.executable)  # noqa: PTH120
            environ["PATH"] = os.pathsep.join([here, environ.get("PATH") or os.defpath])
        return environ

    def check_program(self) -> None:
        """Check that the program is there, and the script that an interpreter is to run.

        Raises:
            ValueError: If one is not found, or the program cannot be executed.
        """
        if not os.path.isdir(self.cwd):  # noqa: PTH112
            raise ValueError(
                f"cwd must be a directory, got {self.cwd!r}; create it, or name another"
            )
        if self.template.is_line:
            return
        program, *others = self.template.words
        self._check_words(program, others)
        if Template([program]).names:
            return
        self._check_executable(program)
        name = Path(program).name
        if not others or not (name in _INTERPRETERS or name.startswith("python")):
            return
        script = others[0]
        if not (
            script.startswith("-") or Template([script]).names or Path(self.cwd, script).exists()
        ):
            raise ValueError(
                f"the script {script!r} of the command is not in {self.cwd!r}; give its path, or "
                "another working directory as cwd (--cwd)"
            )

    def _check_words(self, program: str, others: Sequence[str]) -> None:
        """Check that nothing in the command is meant for a shell."""
        if not others and len(program.split()) > 1 and not Path(self.cwd, program).exists():
            raise ValueError(
                f"the command is one word, {program!r}; leave out the quotes around it, or, if it "
                "is a line for a shell, say so with shell=True (--shell)"
            )
        operator = next(filter(_OPERATORS.__contains__, others), None)
        if operator is not None or program in _BUILTINS:
            raise ValueError(
                f"{operator or program!r} means something to a shell only, which does not read "
                "this command; write it as one line in quotes, with shell=True (--shell)"
            )
        if _ASSIGNMENT.match(program):
            raise ValueError(
                f"{program!r} is no program; give variables as environ (--env {program})"
            )

    def _check_executable(self, program: str) -> None:
        place = os.fspath(Path(self.cwd, program)) if os.sep in program else program
        found = shutil.which(place, path=self.environment({}).get("PATH"))
        if found is not None:
            _check_interpreter(program, found)
            return
        here = Path(self.cwd, program)
        if not here.is_file():
            raise ValueError(
                f"the program {program!r} is not found in "
                f"{repr(self.cwd) if os.sep in program else 'PATH'}; give its path, or install it"
            )
        if os.access(here, os.X_OK):
            raise ValueError(f"the program {program!r} is not in PATH; write ./{program}")
        with_python = f"write python {program}, or " if here.suffix == ".py" else ""
        raise ValueError(
            f"{program!r} is not executable; {with_python}make it so with chmod +x {program}"
        )


def _check_interpreter(program: str, path: str) -> None:
    """Check that a program that is a script names an interpreter that is there."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(_HEAD_BYTES)
    except OSError:  # it may be executed, but not read
        return
    if b"\0" in head:  # compiled
        return
    first = head.partition(b"\n")[0].decode("utf-8", "replace")
    if not first.startswith("#!"):
        raise ValueError(
            f"{program!r} has no first line that names its interpreter; begin it with #!/bin/sh or "
            f"the like, or write sh {program}"
        )
    if first.endswith("\r"):
        raise ValueError(
            f"the lines of {program!r} end as on Windows, which the system cannot execute; convert "
            f"it, for example with sed -i 's/\\r$//' {program}"
        )
    interpreter = next(iter(first[2:].split()), "")
    if not Path(interpreter).exists():
        raise ValueError(
            f"the first line of {program!r} names the interpreter {interpreter!r}, which is not "
            "there; correct the line, or install it"
        )
