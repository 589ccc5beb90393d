"""Client side of the protocol with a search in another environment; see `peers.dialogue`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
_MAX_OUTPUT_CHARS = 2_000


class PeerFailed(RuntimeError):
    """A search has exited or sent an invalid reply; the message holds its last output."""


class Conversation:
    """A search of another project, running in a process.

    Args:
        python: The interpreter of its environment.
        module: Name of its file in `peers`.

    Raises:
        PeerFailed: From `ask`, if the process exits or its reply is not JSON.
    """

    def __init__(self, python: Path, module: str) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed with the conversation)
        self._home = tempfile.TemporaryDirectory()
        # Searches write files to their home or working directory, so both are a temporary one. Each
        # gets one thread, so that their CPU seconds can be compared.
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "HOME": self._home.name,
        }
        self._process = subprocess.Popen(  # noqa: S603  (our own modules)
            [str(python), "-m", f"benchmarks.quality.peers.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=self._home.name,
        )

    def ask(self, do: str, **facts: Any) -> Mapping[str, Any]:
        """Send a request and return the reply."""
        assert self._process.stdin is not None  # noqa: S101  (a pipe was asked for)
        assert self._process.stdout is not None  # noqa: S101  (a pipe was asked for)
        try:
            print(json.dumps({"do": do, **facts}), file=self._process.stdin, flush=True)
            answer: Mapping[str, Any] = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise PeerFailed(
                f"the search did not answer {do!r}; its last output: {self._last_output()}"
            ) from error
        return answer

    def close(self) -> None:
        """Kill the process and delete its files."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe and not pipe.closed:
                pipe.close()
        self._errors.close()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _last_output(self) -> str:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        return self._errors.read()[-_MAX_OUTPUT_CHARS:]
