"""The session of a Python program that a trial has started: `tuner.report` and its kin in it.

The process that has started it listens at a socket and answers each report when the driver has.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from tuner.execution.assignment import Assignment
from tuner.execution.attempt import StopTraining
from tuner.execution.metric_conversion import Converter
from tuner.storage.checkpoints import Checkpoint

ADDRESS: Final = "TUNER_SESSION_ADDRESS"
_RANKS: Final = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables by which launchers number the processes that train together."""
OUTER_RANKS: Final = "TUNER_OUTER_RANKS"
"""Variable with the numbers that were there when the program was started."""
_ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind for kind in (TypeError, ValueError, FileNotFoundError, RuntimeError)
}


class ProgramStopped(StopTraining, SystemExit):
    """Raised by `report` to end the program; where nothing catches it, it ends silently."""


@final
class ProgramSession:
    """Passes reports on to the trial, and waits for its answers.

    Of processes that train together, as a launcher starts them, only the first one reports.
    """

    def __init__(self) -> None:
        self._is_silent = not is_first(os.environ)
        self._converter = Converter()
        self._begin()
        # A forked child must not read the answers of its parent, nor wait for one of its threads.
        os.register_at_fork(after_in_child=self._begin)
        self.trainable_name = os.environ.get("TUNER_TRAINABLE", "command")
        self._checkpoint = os.environ.get("TUNER_RESUME_DIR") or None

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    @property
    def assignment(self) -> Assignment:
        """The attempt, as far as the environment tells of it."""
        environ = os.environ
        with Path(environ["TUNER_CONFIG"]).open(encoding="utf-8") as file:
            config = json.load(file)
        return Assignment(
            trial_id=environ["TUNER_TRIAL_ID"],
            attempt=int(environ["TUNER_ATTEMPT"]),
            config=config,
            experiment_name=environ["TUNER_EXPERIMENT"],
            trial_dir=environ["TUNER_TRIAL_DIR"],
            experiment_tag="",
            resources=json.loads(environ["TUNER_RESOURCES"]),
            gpu_ids=(),
            checkpoint_dir=self._checkpoint,
            iteration=0,
            time_total_s=0.0,
            counters={},
            next_checkpoint=0,
            seed=int(environ["TUNER_SEED"]),
        )

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        """Report a result and wait for the answer.

        Raises:
            ProgramStopped: If the trial is to end.
            TypeError, ValueError, FileNotFoundError, RuntimeError: As `tuner.report` raises them.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metrics must be a dictionary, got {metrics!r:.80}")
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise TypeError(f"checkpoint must be a Checkpoint, got {checkpoint!r:.80}")
        if self._is_silent:
            return
        directory = None if checkpoint is None else os.path.abspath(checkpoint.path)  # noqa: PTH100
        with self._lock:
            converted = self._converter.convert(metrics)
            # The trial says that it fills these in.
            filled_in = dict.fromkeys(self._converter.take_replaced())
            answer = self._exchange(
                {"metrics": {**converted, **filled_in}, "checkpoint": directory}
            )
        if directory is not None:
            self._checkpoint = directory
        if answer.get("stop"):
            raise ProgramStopped(0)
        if error := answer.get("error"):
            raise _ERRORS.get(error["kind"], RuntimeError)(error["message"])

    def ask_for_checkpoint(self) -> str | None:
        """Return the directory of the checkpoint to continue from."""
        return self._checkpoint

    def _exchange(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self._connect()
            connection = self._connection
            assert connection is not None  # noqa: S101  (for the type checker)
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                if not (part := connection.recv(1 << 16)):
                    raise ProgramStopped(0)  # the trial is gone
                line += part
        except OSError as error:
            raise ProgramStopped(0) from error
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _connect(self) -> None:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(os.environ[ADDRESS])
            self._connection = connection


def ranks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers that launchers have given to a process with this environment."""
    return {name: environ[name] for name in _RANKS if name in environ}


def is_first(environ: Mapping[str, str]) -> bool:
    """Return whether a process with this environment is the first of those that train together.

    Numbers that a launcher around tuner has given do not count.
    """
    outer = json.loads(environ.get(OUTER_RANKS) or "{}")
    return all(
        number == "0" or number == outer.get(name) for name, number in ranks(environ).items()
    )


def connect() -> ProgramSession | None:
    """Return the session of this process; None where no trial listens."""
    return ProgramSession() if os.environ.get(ADDRESS) else None
