"""Exchange of small values among the workers of a group, without PyTorch or a process group.

On one machine the values are files in the trial's directory. Each exchange takes a few
milliseconds: workers look for the files of the others every `_POLL_S` seconds.

Over several machines they go through rank 0, which listens on the socket that the launcher has
bound: with an object store no directory is shared, and others show new files late.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

from tuner.execution.assignment import Rank
from tuner.execution.attempt import Attempt, current_attempt
from tuner.execution.session import take_master_socket
from tuner.storage.directories import make_folder
from tuner.storage.disk import write_bytes
from tuner.storage.layout import STAGING_PREFIX

_POLL_S: Final = 0.005
_HELLO_S: Final = 10.0
"""How long a connection may take to say whose it is; others than workers may connect."""
_counters: dict[str, Iterator[int]] = {}
"""Numbers of the exchanges of each group; workers count alike."""
_stars: dict[str, Star] = {}
"""Connections of this process, by group."""


def gather(value: Any) -> list[Any]:
    """Return what each worker of the group has passed, by rank; all of them have to call this.

    Args:
        value: A value that can be pickled; over several machines, one that JSON can represent.

    Raises:
        RuntimeError: Outside a trial.
        TypeError: If JSON cannot represent the value, and the workers are on several machines.
        ConnectionError: If another worker is gone, and the workers are on several machines.
    """
    attempt = current_attempt()
    if attempt is None:
        raise RuntimeError("workers can only exchange values in a trial")
    rank = attempt.assignment.rank
    if rank is None or rank.world_size == 1:
        return [value]
    if rank.local_world_size < rank.world_size:
        if rank.run_id not in _stars:
            _stars[rank.run_id] = Star(rank, take_master_socket())
        return _stars[rank.run_id].gather(value)
    return _gather_in_directory(value, attempt, rank)


def own_address(rank: Rank) -> str:
    """Return the address at which the other workers of the group reach this one."""
    family, _, _, _, place = socket.getaddrinfo(
        rank.master_addr, rank.master_port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)  # sends nothing: it only chooses the interface
        return str(probe.getsockname()[0])


def _gather_in_directory(value: Any, attempt: Attempt, rank: Rank) -> list[Any]:
    # Of this prefix, so that it is removed when no worker of the trial is alive.
    number = next(_counters.setdefault(rank.run_id, itertools.count()))
    folder = _folder(attempt, number)
    make_folder(folder)
    write_bytes(folder / str(rank.world_rank), pickle.dumps(value), sync=False)
    paths = [folder / str(number) for number in range(rank.world_size)]
    while not all(path.exists() for path in paths):
        time.sleep(_POLL_S)  # the executor kills the group if one of them has died
    if number and rank.world_rank == 0:
        # All have come to this exchange, so none reads the one before it any more.
        shutil.rmtree(_folder(attempt, number - 1), ignore_errors=True)
    return [pickle.loads(path.read_bytes()) for path in paths]  # noqa: S301  (the group's own)


def _folder(attempt: Attempt, number: int) -> Path:
    assignment = attempt.assignment
    name = f"{STAGING_PREFIX}exchange-{assignment.attempt}-{number}"
    return Path(assignment.trial_dir) / name


@final
class Star:
    """Connections of all workers with rank 0.

    Values are JSON: unlike pickles, they cannot make a worker run what a stranger on the network
    has sent.

    Args:
        rank: The worker's place in the group.
        listening: Descriptor of the socket on which rank 0 listens; None on the others.

    Raises:
        RuntimeError: If rank 0 has no such socket any more.
    """

    def __init__(self, rank: Rank, listening: int | None) -> None:
        self._rank = rank
        if rank.world_rank:
            connection = socket.create_connection((rank.master_addr, rank.master_port))
            self._peers = {0: connection.makefile("rwb")}
            connection.close()  # once its file is closed
            self._send(0, {"run": rank.run_id, "rank": rank.world_rank})
        elif listening is None:
            raise RuntimeError(
                "rank 0 has given away the socket on which it listens for the others; use the "
                "operations of the process group that has it"
            )
        else:
            with socket.socket(fileno=listening) as listener:
                self._peers = {}
                while len(self._peers) < rank.world_size - 1:
                    self._admit(listener)

    def gather(self, value: Any) -> list[Any]:
        """Return what each worker has passed; see the function of this name."""
        if not _is_json(value):
            raise TypeError(
                f"workers on several machines can exchange values that JSON can represent, got "
                f"{value!r:.80}; use the operations of a process group, such as that of "
                "TorchTrainer"
            )
        if self._rank.world_rank:
            self._send(0, value)
            values: list[Any] = self._receive(0)
            return values
        values = [value, *map(self._receive, range(1, self._rank.world_size))]
        for rank in self._peers:
            self._send(rank, values)
        return values

    def _admit(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            connection.settimeout(_HELLO_S)
            # Unbuffered: what follows the first line must stay for the file that reads on.
            with connection.makefile("rb", buffering=0) as incoming:
                hello = json.loads(incoming.readline(1000))
            number = hello["rank"]
            is_expected = number in range(1, self._rank.world_size) and number not in self._peers
            if hello["run"] == self._rank.run_id and is_expected:
                connection.settimeout(None)
                self._peers[number] = connection.makefile("rwb")
        connection.close()

    def _send(self, rank: int, value: Any) -> None:
        self._peers[rank].write(json.dumps(value).encode() + b"\n")
        self._peers[rank].flush()

    def _receive(self, rank: int) -> Any:
        line = self._peers[rank].readline()
        if not line.endswith(b"\n"):
            raise ConnectionError(f"rank {rank} of the group is gone")
        return json.loads(line)


def _is_json(value: Any) -> bool:
    """Return whether JSON keeps the value as it is."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
