"""The trainable `Command`: runs a program for each trial."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from tuner.execution.resources import ResourceRequest, total_amounts
from tuner.spec.config import RunConfig, TuneConfig
from tuner.spec.environment import WITHHELD, is_name_of_secret, without_secrets
from tuner.spec.record import read_record

from .declaration import Declaration
from .program_run import ProgramRun
from .reports import AUTO, compiled
from .template import Template


@final
class Command:
    r"""A trainable that runs a program for each trial.

    The program is told its configuration by placeholders in the command, see `Template`, and by the
    file that ``TUNER_CONFIG`` names. It reports in one of four ways:

    1. A Python program calls `tuner.report`, which waits for the answer and may end it. Outside a
       trial the same call prints.
    2. Any program writes lines of JSON, ``{"loss": 0.5}``, to the file that ``TUNER_REPORT`` names.
       ``"checkpoint"`` in a line is the directory of a checkpoint, or true for
       ``TUNER_CHECKPOINT_DIR``.
    3. `report` finds the metrics in the lines that it prints.
    4. `report_file` is a CSV file, or one with lines of JSON, that it writes.

    A program that saves its state into the directory ``TUNER_CHECKPOINT_DIR`` before it reports can
    be paused and continued: it finds its latest state there when it starts again, and
    ``TUNER_RESUME_DIR`` names the checkpoint it continues from. It should write a file under
    another name and rename it, so that no half of it is taken.

    A trial that is stopped or paused gets SIGTERM, and is killed with all its processes after
    `grace_s`.

    Args:
        command: The words, or one string that is split as a shell does it.
        report: Regular expressions with a named group for each metric, searched for in each line of
            output. What several find is one result, which the last one completes.
        report_file: Path of the file with results, relative to `cwd`. It holds placeholders, so
            that trials that run at once have different ones.
        progress: Metric that becomes ``training_iteration``: ``"auto"`` for ``epoch``, or else
            ``step``, where the program reports it; None for none.
        checkpoints: Whether the program saves into ``TUNER_CHECKPOINT_DIR``. A command with
            ``{checkpoint_dir}`` or ``{resume_dir}`` does.
        shell: Whether `command` is a line for ``/bin/sh``, with pipes and variables. Values are
            quoted in it.
        environ: Further variables for the program.
        variables: Whether each parameter is a variable as well, ``TUNER_PARAM_LR``.
        cwd: The working directory, by default that of this process.
        grace_s: How many seconds the program has to end after SIGTERM.
        allow_unused: Whether parameters may be named nowhere in the command.
        resources: What each trial occupies, by default one CPU; see `tuner.with_resources`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the command is empty, is not found or cannot be executed, or a regular
            expression has no named group.

    Example:
        >>> command = Command("echo {lr} {args}")
        >>> command.words_for({"lr": 0.1, "model": {"width": 64}})
        ['echo', '0.1', '--model.width', '64']
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        report: str | Sequence[str] = (),
        report_file: str | None = None,
        progress: str | None = AUTO,
        checkpoints: bool = False,
        shell: bool = False,
        environ: Mapping[str, str] | None = None,
        variables: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        grace_s: float = 5.0,
        allow_unused: bool = False,
        resources: ResourceRequest | None = None,
    ) -> None:
        self._declaration = Declaration(
            template=_template(command, is_line=shell),
            report=[pattern.pattern for pattern in compiled(report)],
            report_file=report_file,
            progress=progress,
            checkpoints=checkpoints,
            environ={str(name): str(value) for name, value in (environ or {}).items()},
            variables=variables,
            cwd=os.path.abspath(os.curdir if cwd is None else cwd),  # noqa: PTH100
            grace_s=grace_s,
            allow_unused=allow_unused,
        )
        self.requested_resources = None if resources is None else total_amounts(resources)
        self.__name__ = self._declaration.name

    def __call__(self, config: dict[str, Any]) -> None:
        """Run the program with this configuration, and report what it tells.

        Raises:
            CommandFailed: If it fails, or ends without having reported anything.
            StopTraining: If the trial is to end.
        """
        with contextlib.ExitStack() as closing:
            ProgramRun(self._declaration, config, closing).run()

    @property
    def saves(self) -> bool:
        """Whether the program saves its state, so that it can be paused and continued."""
        return self._declaration.saves

    @property
    def names_all(self) -> bool:
        """Whether the words of the command show the whole configuration."""
        declared = self._declaration
        return not (
            declared.allow_unused or declared.variables or "json" in declared.template.names
        )

    def words_for(self, config: Mapping[str, Any]) -> list[str]:
        """Return the command of a configuration, with names in the place of directories."""
        names = ("trial_id", "trial_dir", "seed", "json", "checkpoint_dir")
        facts = {name: f"<{name}>" for name in names}
        return self._declaration.template.filled(config, {**facts, "resume_dir": None})

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Check the placeholders against a search space.

        Raises:
            ValueError: If one names no parameter, or a parameter is used nowhere.
        """
        self._declaration.check_space(space)

    def check_run(self, run: RunConfig) -> None:
        """Check that the program is there, unless it is to run on other machines.

        Raises:
            ValueError: If it is not found, or cannot be executed.
        """
        if run.cluster is None:
            self._declaration.check_program()

    def check_tune(self, tune: TuneConfig) -> None:
        """Check that trials that run at once report in different files.

        Raises:
            ValueError: If it is one file.
        """
        if tune.max_concurrent_trials != 1:
            self._declaration.check_report_file()

    def as_record(self) -> dict[str, Any]:
        """Return the arguments as JSON; see `from_record`.

        What looks like a secret is left out. Of such a variable the name is kept.
        """
        declared = self._declaration
        template = declared.template
        words = without_secrets(template.words)
        return {
            "command": words[0] if template.is_line else words,
            "report": list(declared.report),
            "report_file": declared.report_file,
            "progress": declared.progress,
            "checkpoints": declared.checkpoints,
            "shell": template.is_line,
            "environ": {
                name: None if is_name_of_secret(name) else value
                for name, value in declared.environ.items()
            },
            "variables": declared.variables,
            "cwd": declared.cwd,
            "grace_s": declared.grace_s,
            "allow_unused": declared.allow_unused,
            "resources": self.requested_resources,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Command:
        """Return the command that `as_record` has told of.

        Variables whose values were left out are those of this process.

        Raises:
            TypeError: If the record is of no command.
            ValueError: If a secret was left out of it, or is not in the environment.
        """
        words = record["command"]
        if any(WITHHELD in word for word in ([words] if isinstance(words, str) else words)):
            raise ValueError(
                f"the command {words!r} held what looked like a secret, which was not recorded; "
                "give the whole command again, with tuner run --resume or Tuner.restore, and put "
                "the secret into a variable of the environment"
            )
        environ = dict(record["environ"])
        for name in [name for name, value in environ.items() if value is None]:
            if name not in os.environ:
                raise ValueError(
                    f"the variable {name} was given to the command and looked like a secret, so it "
                    "was not recorded; set it in the environment"
                )
            environ[name] = os.environ[name]
        return cls(**{**record, "environ": environ})

    def resume_line(self, address: str) -> str:
        """Return the command that continues an experiment."""
        return f"tuner resume {shlex.quote(address)}"


def recorded_command(directory: Path) -> Command | None:
    """Return the command whose experiment this is, None if it is of another trainable.

    Raises:
        StorageError: If the experiment cannot be read.
        ValueError: If its command cannot be made again, see `Command.from_record`.
    """
    trainable = read_record(directory).trainable
    if trainable.get("module") != Command.__module__ or "record" not in trainable:
        return None
    return Command.from_record(trainable["record"])


def _template(command: str | Sequence[str], *, is_line: bool) -> Template:
    if isinstance(command, str):
        try:
            words = [command] if is_line else shlex.split(command)
        except ValueError as cause:
            raise ValueError(
                f"command must be a command line, got {command!r}: {cause}; close the quotes"
            ) from cause
    elif is_line:
        raise TypeError(f"command must be a string with shell=True, got {command!r:.80}")
    else:
        words = list(command)
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"command must be a string or words, got {command!r:.80}")
    if not words or not words[0].strip():
        raise ValueError("command must name a program, got nothing; write 'python train.py {args}'")
    return Template(words, is_line)
