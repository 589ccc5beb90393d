"""One run of a program: what it is told, what it reports, and whether it has failed."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import CheckpointError
from tuner.execution.assignment import Assignment
from tuner.execution.attempt import StopTraining, current_attempt
from tuner.execution.session import checkpoint_dir, get_checkpoint, report
from tuner.spec.environment import without_secrets
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.layout import STAGING_PREFIX
from tuner.storage.readable_json import plain
from tuner.storage.trees import copy_tree
from tuner.utils import flatten_dict

from .declaration import Declaration
from .failure_text import cause_of_failure, end_of_output
from .file_tail import Contents, FileTail
from .process import Asked, Event, Looked, Printed, Program, Told
from .reports import JsonReports, OutputReports, Progress, compiled, nearest_number
from .template import Template, as_text, variable_names

CHECKPOINT: Final = "checkpoint"
"""In a line of JSON: the directory of the result's checkpoint, or true for the usual one."""
_BEGINS_ANEW: Final = ".tuner-begins-anew"
"""File of a checkpoint without a state: how many results were reported before it."""
_MAX_SHOWN: Final = 500
"""Letters of a command in a message."""
_SAME_CLOCK_S: Final = 0.5
_SESSION: Final = "tuner.command.program"
_ALONE: Final = Assignment(
    trial_id="trial",
    attempt=1,
    config={},
    experiment_name="",
    trial_dir=os.curdir,
    experiment_tag="",
    resources={},
    gpu_ids=(),
    checkpoint_dir=None,
    iteration=0,
    time_total_s=0.0,
    counters={},
    next_checkpoint=0,
    seed=0,
)
"""What a command has that is called outside all trials."""
_log = logging.getLogger("tuner")


class CommandFailed(RuntimeError):
    """The program of a trial has failed.

    Attributes:
        program_output: The end of what it has printed, which stands in ``error.txt``.
    """

    def __init__(self, message: str, program_output: str = "") -> None:
        super().__init__(message)
        self.program_output = program_output


@final
class ProgramRun:
    """One run of a program, for an attempt of a trial.

    Args:
        declaration: The command, and how it reports.
        config: The configuration.
        closing: Closes what the run uses.
    """

    def __init__(
        self, declaration: Declaration, config: Mapping[str, Any], closing: contextlib.ExitStack
    ) -> None:
        self._declaration = declaration
        self._name = declaration.name
        attempt = current_attempt()
        self._is_trial = attempt is not None
        self._assignment = attempt.assignment if attempt else _ALONE
        self._output = OutputReports(compiled(declaration.report))
        self._json = JsonReports()
        self._tail: FileTail | None = None
        self._num_results = 0
        self._progress = Progress(declaration.progress, self._assignment.iteration)
        self._place(config, closing)

    def _place(self, config: Mapping[str, Any], closing: contextlib.ExitStack) -> None:
        """Make the directory of the attempt, and fill in the command."""
        declaration, assignment = self._declaration, self._assignment
        declaration.check_config(config)
        trial_dir = os.path.abspath(assignment.trial_dir)  # noqa: PTH100
        place = f"{trial_dir}/{STAGING_PREFIX}program-{assignment.attempt}"
        shutil.rmtree(place, ignore_errors=True)
        os.mkdir(place, 0o700)  # noqa: PTH102
        closing.callback(shutil.rmtree, place, ignore_errors=True)
        self._checkpoint_dir = f"{place}/checkpoint"
        os.mkdir(self._checkpoint_dir)  # noqa: PTH102
        resumed = get_checkpoint()
        resume_dir = None if resumed is None else closing.enter_context(resumed.as_directory())
        self._is_resumed = self._has_checkpoint = resume_dir is not None
        self._num_known = _num_results_before(resume_dir)
        if self._num_known:
            resume_dir = None
        if resume_dir is not None and declaration.saves:
            copy_tree(Path(resume_dir), Path(self._checkpoint_dir))
        self._saved = Contents.of(self._checkpoint_dir)
        told = plain(config, is_strict=False)
        with open(f"{place}/config.json", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(told, file)
        # Of a file server: then the two times cannot be compared.
        written_s = os.stat(f"{place}/config.json").st_ctime  # noqa: PTH116
        self._has_other_clock = abs(time.time() - written_s) > _SAME_CLOCK_S
        facts = {
            "json": f"{place}/config.json",
            "trial_id": assignment.trial_id,
            "trial_dir": trial_dir,
            "seed": str(assignment.seed),
            "checkpoint_dir": self._checkpoint_dir,
            "resume_dir": resume_dir,
        }
        self.words = declaration.template.filled(config, facts)
        self.environ = declaration.environment(self._variables(config, facts))
        if declaration.report_file is not None:
            path = Template([declaration.report_file]).filled(config, facts)[0]
            self._tail = FileTail(os.path.join(declaration.cwd, path))  # noqa: PTH118

    def _variables(
        self, config: Mapping[str, Any], facts: Mapping[str, str | None]
    ) -> dict[str, str]:
        assignment, declaration = self._assignment, self._declaration
        variables = {
            "TUNER_CONFIG": facts["json"],
            "TUNER_CHECKPOINT_DIR": facts["checkpoint_dir"],
            "TUNER_RESUME_DIR": facts["resume_dir"],
            "TUNER_TRIAL_ID": facts["trial_id"],
            "TUNER_TRIAL_DIR": facts["trial_dir"],
            "TUNER_SEED": facts["seed"],
            "TUNER_ATTEMPT": str(assignment.attempt),
            "TUNER_EXPERIMENT": assignment.experiment_name,
            "TUNER_RESOURCES": json.dumps(dict(assignment.resources)),
            "TUNER_TRAINABLE": self._name,
            "TUNER_SESSION": _SESSION,
        }
        if declaration.variables:
            values = flatten_dict(config)
            names = variable_names(values)
            variables |= {
                names[name]: ("" if value is None else as_text(value))
                for name, value in values.items()
            }
        return {name: value for name, value in variables.items() if value is not None}

    def run(self) -> None:
        """Run the program to its end."""
        declaration = self._declaration
        is_alone = threading.current_thread() is threading.main_thread()
        try:
            program = Program(
                self.words,
                self.environ,
                declaration.cwd,
                is_line=declaration.template.is_line,
                # A worker leads a session, and trains in its main thread.
                is_worker=self._is_trial and is_alone and os.getsid(0) == os.getpid(),
                looks=self._tail is not None,
            )
        except (OSError, ValueError) as cause:
            why = str(cause)
            if isinstance(cause, OSError):  # its file may be none of the program's
                is_own = cause.filename in (None, self.words[0], declaration.cwd)
                why = f"{cause.strerror}{'' if is_own else f': {cause.filename!r}'}"
            raise CommandFailed(
                f"{shlex.join(without_secrets(self.words)):.{_MAX_SHOWN}} cannot be started in "
                f"{declaration.cwd!r}: {why}",
                f"{cause}"[:_MAX_SHOWN],
            ) from cause
        try:
            for event in program.events():
                self._follow(event, program)
            self._look(is_end=True)
        finally:
            program.end(declaration.grace_s)
        self._judge(program)

    def _follow(self, event: Event, program: Program) -> None:
        match event:
            case Printed(line):
                if metrics := self._output.read(line):
                    self._report(metrics, program.said_last_ns)
            case Told(line):
                if metrics := self._json.read(line):
                    self._report(metrics, program.said_last_ns)
            case Asked(request, answer):
                self._answer(request, answer, program)
            case Looked():
                self._look()

    def _look(self, *, is_end: bool = False) -> None:
        """Report what has been added to the file."""
        if self._tail is None:
            return
        rows = list(self._tail.read(is_end=is_end))
        if is_end and not (rows or self._num_results or self._is_resumed):
            rows = list(self._tail.read_anew())
        for number, metrics in enumerate(rows, 1):
            is_last = number == len(rows)
            self._report(metrics, self._tail.said_last_ns if is_last else lambda: None)

    def _answer(
        self,
        request: Mapping[str, Any],
        answer: Callable[[Mapping[str, Any]], None],
        program: Program,
    ) -> None:
        """Report what a Python program has reported, and pass the answer on."""
        checkpoint = request[CHECKPOINT]
        more = {CHECKPOINT: checkpoint} if checkpoint else {}
        try:
            self._report({**request["metrics"], **more}, None)
        except StopTraining:
            program.was_told = True
            answer({"stop": True})
            raise
        except Exception as error:  # noqa: BLE001  (it is raised where it belongs)
            answer({"error": {"kind": type(error).__name__, "message": str(error)}})
        else:
            answer({})

    def _report(
        self, metrics: Mapping[str, Any], said_last_ns: Callable[[], int | None] | None
    ) -> None:
        """Report a result.

        Args:
            metrics: The metrics, with a checkpoint where one was named.
            said_last_ns: Returns when the program last reported, see `Program.said_last_ns`; None
                where it waits, so that what it has saved belongs to this result.
        """
        if self._num_known:
            self._num_known -= 1
            return
        metrics = dict(metrics)
        given = metrics.pop(CHECKPOINT, None)
        counted = self._progress.counted(metrics)
        if given and not isinstance(given, bool):
            path = os.path.join(self._declaration.cwd, str(given))  # noqa: PTH118
            report(counted, checkpoint=Checkpoint.from_directory(path))
        elif given or self._declaration.saves:
            self._report_saved(counted, said_last_ns)
        else:
            report(counted)
        self._num_results += 1

    def _report_saved(
        self, metrics: Mapping[str, Any], said_last_ns: Callable[[], int | None] | None
    ) -> None:
        """Report a result with what has been saved since the one before, if it belongs to it.

        A program that does not wait may be further than the result: its state would then be that of
        a later result, and the results in between would be missing after a restart.
        """
        saved = Contents.of(self._checkpoint_dir)
        if not saved.files or saved == self._saved:
            report(metrics)
        elif not self._is_current(saved, said_last_ns):
            self._report_ahead(metrics)
        else:
            with checkpoint_dir() as copy:
                if self._copy_saved(Path(copy), saved):
                    self._saved = saved
                    self._has_checkpoint = True
                    report(metrics, checkpoint=Checkpoint.from_directory(copy))
                    return
            if Contents.of(self._checkpoint_dir) == saved:
                report(metrics)
            else:
                self._report_ahead(metrics)

    def _report_ahead(self, metrics: Mapping[str, Any]) -> None:
        """Report a result of a program that is further already, without its state.

        So that it can be paused nevertheless, the first one has a checkpoint by which the program
        begins anew, and its results up to here are not reported again.
        """
        if self._has_checkpoint:
            report(metrics)
            return
        with checkpoint_dir() as directory:
            Path(directory, _BEGINS_ANEW).write_text(str(self._num_results + 1), encoding="utf-8")
            self._has_checkpoint = True
            report(metrics, checkpoint=Checkpoint.from_directory(directory))

    def _copy_saved(self, copy: Path, saved: Contents) -> bool:
        """Copy what has been saved, and return whether the copy is whole.

        Raises:
            CheckpointError: If a link leads out of it.
        """
        try:
            copy_tree(Path(self._checkpoint_dir), copy)
        except (OSError, CheckpointError) as error:
            if Contents.of(self._checkpoint_dir) == saved:  # it is not being written
                if isinstance(error, CheckpointError):
                    raise
                _log.warning(
                    "what %s has saved could not be copied, so this result has no checkpoint: %s",
                    self._name,
                    error,
                )
            return False
        return Contents.of(self._checkpoint_dir) == saved

    def _is_current(self, saved: Contents, said_last_ns: Callable[[], int | None] | None) -> bool:
        """Return whether what is saved was there when the result was reported."""
        if said_last_ns is None:
            return True
        said_ns = said_last_ns()
        if said_ns is None:
            return False
        return saved.newest_ns <= said_ns or self._has_other_clock

    def _judge(self, program: Program) -> None:
        """Raise if the program has failed."""
        refused = [one for one in (self._json, self._tail and self._tail.json) if one]
        for one in refused:
            if one.num_refused:
                _log.warning(
                    "%d lines that %s has reported are no JSON objects, the first one is %r; "
                    'write lines such as {"loss": 0.5}',
                    one.num_refused,
                    self._name,
                    one.first_refused,
                )
        if program.code:
            lines = list(program.last_errors or program.last_output)
            cause = cause_of_failure(lines)
            raise CommandFailed(
                f"{self._name} {_how_it_ended(program.code)}{f': {cause}' if cause else ''}",
                end_of_output(lines),
            )
        if self._num_results:
            return
        why = self._why_nothing(list(program.last_output), refused)
        if self._is_resumed:  # it may have ended just before it was to be continued
            _log.warning("since it was continued, %s", why)
        else:
            raise CommandFailed(why, end_of_output(list(program.last_output)))

    def _why_nothing(self, lines: Sequence[str], refused: Sequence[JsonReports]) -> str:
        """Return that nothing was reported, and what to do, for a line on the console."""
        patterns = self._declaration.report
        never = self._output.never_found
        names = [name for pattern in never for name in pattern.groupindex]
        why = [f"{self._name} has reported nothing"]
        if never:
            shown = " or ".join(shlex.quote(pattern.pattern) for pattern in never)
            result = "" if len(never) == len(patterns) else ", with which a result is complete"
            why.append(f"no line of its output matches {shown}{result}")
        if self._tail:
            state = "holds no result" if self._tail.exists else "is not there"
            why.append(f"{self._tail.path!r} {state}")
        why += [f"{one.first_refused!r} is no JSON object" for one in refused if one.num_refused]
        found = nearest_number(lines, names)
        remedy = (
            f"--report {shlex.quote(found.pattern)} finds {found.text!r}"
            if found
            else "call tuner.report in it, write JSON to the file TUNER_REPORT, or use --report"
        )
        return f"{', '.join(why)}; {remedy}"


def _num_results_before(resume_dir: str | None) -> int:
    """Return how many results a program reports again that begins anew; 0 where it continues."""
    with contextlib.suppress(FileNotFoundError):
        if resume_dir is not None:
            return int(Path(resume_dir, _BEGINS_ANEW).read_text(encoding="utf-8"))
    return 0


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        cause = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"was killed by {name}{cause}"
    return f"was killed by signal {-code}"
