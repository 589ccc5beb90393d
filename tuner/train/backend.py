"""Backends of trainers: how workers are connected, and hooks that run code on all of them.

A `BackendConfig` is called in each worker. A `Backend`, as Ray Train has them, is called once for
the whole group, with an object that runs functions on its workers: rank 0 calls it, and the others
carry out what it asks for.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from tuner.execution.attempt import current_attempt
from tuner.execution.session import get_context

from .exchange import gather, own_address

__all__ = ["Backend", "BackendConfig"]

_HOOKS: Final = ("on_start", "on_training_start", "on_shutdown")


class Backend:
    """Hooks around the training code, each called once for a group; the base does nothing.

    They run in the process of rank 0, while the other workers wait for what they are to execute.
    """

    def on_start(self, worker_group: BackendWorkers, backend_config: BackendConfig) -> None:
        """Handle the start of the workers; their process group does not exist yet."""

    def on_training_start(
        self, worker_group: BackendWorkers, backend_config: BackendConfig
    ) -> None:
        """Handle the moment before the training code, when the workers are connected."""

    def on_shutdown(self, worker_group: BackendWorkers, backend_config: BackendConfig) -> None:
        """Handle the end, after the training code has returned or was asked to stop.

        It is not called after a failure, which ends the other workers at once.
        """


class BackendConfig:
    """How the workers of a trainer find each other; the base does nothing.

    Derived classes are `TorchConfig` and `TensorflowConfig`.

    Attributes:
        preloaded_modules: Modules that all workers need and that start no threads when they are
            imported; they are imported once, before the workers are forked.

    Departures:
        In Ray Train all work is that of `backend_cls`, whose hooks run in the driver.
    """

    preloaded_modules: ClassVar[tuple[str, ...]] = ()

    @property
    def backend_cls(self) -> type[Backend]:
        """The class with hooks for the whole group."""
        return Backend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        """Returns a context manager in which the training code runs, in each worker."""
        return contextlib.nullcontext

    def on_start(self) -> None:
        """Connect this worker with the others; called in each worker before the training code."""

    def on_end(self) -> None:
        """Disconnect; called after the training code has returned or was asked to stop."""


def check_backend(config: BackendConfig) -> None:
    """Check the class with hooks.

    Raises:
        TypeError: If it has none.
    """
    found = config.backend_cls
    if not (
        isinstance(found, type) and all(callable(getattr(found, name, None)) for name in _HOOKS)
    ):
        raise TypeError(
            f"{type(config).__name__}.backend_cls must be a subclass of Backend, got "
            f"{found!r:.200}; derive it from tuner.train.backend.Backend"
        )


@dataclass(frozen=True, slots=True)
class BackendWorkerMetadata:
    """Where a worker runs.

    Attributes:
        node_id: Number of its machine in the group, as a text.
        node_ip: Address of its machine.
        hostname: Name of its machine.
        pid: Its process id.
    """

    node_id: str
    node_ip: str
    hostname: str
    pid: int


@dataclass(frozen=True, slots=True)
class BackendWorker:
    """A worker, as hooks see it.

    Attributes:
        metadata: Where it runs.
    """

    metadata: BackendWorkerMetadata


@final
class BackendWorkers:
    """The workers of a group; runs functions in them for hooks of a `Backend`.

    Arguments are sent to the workers, and results back. Over several machines results have to be
    values that JSON can represent.
    """

    def __len__(self) -> int:
        return get_context().get_world_size()

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return len(self)

    @property
    def workers(self) -> list[BackendWorker]:
        """The workers, by rank."""
        found = self.execute(_metadata)
        return [BackendWorker(BackendWorkerMetadata(*each)) for each in found]

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function in all workers; return what it has returned, by rank.

        Raises:
            RuntimeError: If it has raised an exception in one of them.
        """
        return self._call(range(len(self)), func, args, kwargs)

    def execute_single(
        self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function in one worker; return what it has returned.

        Raises:
            RuntimeError: If it has raised an exception.
            IndexError: If there is no such worker.
        """
        if not 0 <= worker_index < len(self):
            raise IndexError(
                f"worker_index must be from 0 to {len(self) - 1}, got {worker_index!r}"
            )
        return self._call([worker_index], func, args, kwargs)[0]

    def execute_async(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Refuse: there are no futures of Ray.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("execute_async returns futures of Ray; use execute, which waits")

    def execute_single_async(
        self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Refuse: there are no futures of Ray.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "execute_single_async returns futures of Ray; use execute_single, which waits"
        )

    def _call(
        self, ranks: Iterable[int], func: Callable[..., Any], args: Any, kwargs: Any
    ) -> list[Any]:
        import cloudpickle  # noqa: PLC0415  (hardly any backend has hooks)

        wanted = list(ranks)
        outcomes = _carry_out(_text(cloudpickle.dumps((wanted, func, args, kwargs))))
        for rank in wanted:
            is_returned, value = outcomes[rank]
            if not is_returned:
                name = getattr(func, "__name__", repr(func))
                raise RuntimeError(f"{name} failed in rank {rank}:\n{value}")
        return [outcomes[rank][1] for rank in wanted]


@final
class BackendHooks:
    """Calls the hooks of a group's backend; used alike in all its workers.

    Args:
        config: The configuration that names the backend.
    """

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        found = config.backend_cls
        self._has_hooks = any(getattr(found, name) is not getattr(Backend, name) for name in _HOOKS)
        is_caller = get_context().get_world_rank() == 0
        self._backend = found() if self._has_hooks and is_caller else None

    def call(self, name: str) -> None:
        """Call a hook in rank 0, and carry out in the others what it executes."""
        if not self._has_hooks:
            return
        if self._backend:
            # If it raises, the executor ends the others.
            getattr(self._backend, name)(BackendWorkers(), self._config)
            gather(None)
        else:
            while (order := gather(None)[0]) is not None:
                _run(order)


def _carry_out(order: str) -> list[Any]:
    """Have all workers carry out an order of rank 0, which calls this; return the outcomes."""
    gather(order)
    return _run(order)


def _run(order: str) -> list[Any]:
    ranks, func, args, kwargs = pickle.loads(base64.b64decode(order))  # noqa: S301  (of rank 0)
    outcome: list[Any] = [True, None]
    if get_context().get_world_rank() in ranks:
        try:
            outcome = [True, func(*args, **kwargs)]
        except Exception:  # noqa: BLE001  (raised in rank 0)
            outcome = [False, traceback.format_exc()]
    return gather(outcome)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _metadata() -> list[Any]:
    address, node = "127.0.0.1", "0"
    attempt = current_attempt()
    if attempt and (rank := attempt.assignment.rank):
        address, node = own_address(rank), str(rank.node_rank)
    return [node, address, socket.gethostname(), os.getpid()]
