"""Plugin of Dask's workers that keeps an agent beside the tasks of a worker.

The plugin adds two handlers to the worker, which a gateway calls, see `dask_engine`. Their names
contain the token of the driver, so several experiments can use one cluster. The agent outlives the
gateway's connection: another one goes on with it, by a plugin that takes it over from the former.

Workers of Dask import this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final, final

import dask
import psutil
from distributed.comm import get_address_host
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from tuner.execution import resources

from .agent import Agent
from .link import hang_within

_LEAVING_S: Final = 60.0
"""How long before the end of a worker's ``--lifetime`` its trials are asked to save."""
_TAKE_S: Final = 1.0
_END_S: Final = 5.0


@final
class AgentPlugin(WorkerPlugin):
    """Keeps the agent of one driver in a Dask worker, for as long as the plugin is there.

    Args:
        token: Of the driver.
        name: Of the plugin; unique, as a plugin of the same name would end the agent.
        lease_s: After how long its host ends the trials if it does not hear of the driver.

    Attributes:
        seat: The agent; None before `setup`, and once another plugin has taken it over.
    """

    def __init__(self, token: str, name: str, lease_s: float) -> None:
        self.name = name
        self.token = token
        self.lease_s = lease_s
        self.seat: _Seat | None = None

    async def setup(self, worker: Any) -> None:
        """Add the handlers, or take the agent over from an earlier plugin of the same driver."""
        others = [plugin for plugin in worker.plugins.values() if plugin is not self]
        for plugin in others:
            if isinstance(plugin, AgentPlugin) and plugin.token == self.token:
                self.seat, plugin.seat = plugin.seat, None
                await worker.plugin_remove(plugin.name)
        if self.seat is None:
            self.seat = _Seat(worker, self.token, self.lease_s)
        self.seat.plugin = self.name

    async def teardown(self, worker: Any) -> None:
        """End the agent with all that it runs, and remove the handlers."""
        if self.seat:
            await self.seat.close()


@final
class _Seat:
    """An agent in a worker, with the connection to the gateway; lives in the worker's loop."""

    def __init__(self, worker: Any, token: str, lease_s: float) -> None:
        self.plugin = ""
        self._lease_s = lease_s
        # How long the agent waits for a gateway; by then its host has ended the trials.
        self._orphan_s = 1.5 * lease_s
        self._worker = worker
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._handlers = {
            about_handler(token): self._tell_about,
            stream_handler(token): self._carry,
        }
        worker.handlers.update(self._handlers)
        self._agent: Agent | None = None
        self._starting = asyncio.Lock()
        self._name = ""
        self._facts: dict[str, Any] = {}
        self._gpus: tuple[str, ...] = ()
        self._gateway: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._orphaned = self._loop.call_later(self._orphan_s, self._end)

    async def close(self) -> None:
        self._is_closed = True
        for name in self._handlers:
            self._worker.handlers.pop(name, None)
        self._orphaned.cancel()
        async with self._starting:
            if self._agent:
                await asyncio.to_thread(self._agent.close, _END_S)
        if self._gateway:
            await self._send({"ended": True})
            await self._gateway.close()

    async def _tell_about(self) -> dict[str, str]:
        nanny = str(self._worker.nanny or "")
        return {"agent": self._name, "hostname": socket.gethostname(), "nanny": nanny}

    async def _carry(self, comm: Any, agent: str) -> Status:
        """Carry lines between the agent, called `agent` if it is new, and the gateway at `comm`."""
        self._orphaned.cancel()
        if self._gateway:  # a connection whose end was not noticed
            self._gateway.abort()
        self._gateway = comm
        with contextlib.suppress(OSError):  # the connection is closed
            host = await self._start_agent(agent)
            await comm.write({"facts": self._facts, "gpus": self._gpus})
            while True:
                message = await comm.read()
                host.tell(list(message["lines"]))
        comm.abort()
        if self._gateway is comm:
            self._gateway = None
            if not self._is_closed:
                self._orphaned = self._loop.call_later(self._orphan_s, self._end)
        return Status.dont_reply

    async def _start_agent(self, name: str) -> Agent:
        async with self._starting:
            if self._is_closed:
                raise ConnectionAbortedError("the plugin was removed")
            if self._agent is None:
                environ = _agent_environment()
                self._gpus = resources.visible_gpus({**os.environ, **environ})
                self._facts = _facts_of(self._worker, len(self._gpus))
                self._name = name
                start = functools.partial(
                    Agent,
                    name,
                    self._token,
                    self._facts,
                    environ=environ,
                    silent_s=hang_within(self._lease_s),
                )
                self._agent = await asyncio.to_thread(start)
                threading.Thread(target=self._pass_on, args=(self._agent,), daemon=True).start()
                if (left_s := _left_s(self._worker)) is not None:
                    self._loop.call_later(max(0.0, left_s - _LEAVING_S), self._announce_leaving)
        return self._agent

    def _pass_on(self, agent: Agent) -> None:
        """Pass the agent's lines on, in a thread; they are lost while there is no gateway."""
        while not self._is_closed:
            if lines := agent.take(_TAKE_S):
                sent = self._send({"lines": lines})
                try:
                    asyncio.run_coroutine_threadsafe(sent, self._loop).result()
                except RuntimeError:  # the loop has ended, and the worker with it
                    sent.close()
                    return

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self._gateway:
            with contextlib.suppress(OSError):  # noticed by `_carry`, which reads
                await self._gateway.write(message)

    def _announce_leaving(self) -> None:
        self._start(self._send({"draining": _left_s(self._worker)}))

    def _end(self) -> None:
        self._start(self._worker.plugin_remove(self.plugin))

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def about_handler(token: str) -> str:
    """Return the name of the handler that tells the agent's name and the machine's."""
    return f"tuner-{token}-about"


def stream_handler(token: str) -> str:
    """Return the name of the handler that carries lines until the connection is closed."""
    return f"tuner-{token}-stream"


def _agent_environment() -> dict[str, str]:
    """Return the environment variables that trials do not inherit from the worker."""
    environ = {}
    # Dask gives the numerical libraries of a worker one thread. Empty, a variable counts as not
    # set, and a trial has as many threads as CPUs.
    for name, amount in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if name in resources.THREAD_VARIABLES and os.environ.get(name) == str(amount):
            environ[name] = ""
    # dask-cuda lists the GPUs of the whole machine for each worker, the worker's own one first.
    if "dask_cuda" in sys.modules and (gpus := resources.visible_gpus()):
        environ[resources.CUDA_VISIBLE_DEVICES] = gpus[0]
    return environ


def _facts_of(worker: Any, num_gpus: int) -> dict[str, Any]:
    amounts = {
        name: float(amount)
        for name, amount in worker.state.total_resources.items()
        if name.lower() not in ("cpu", "gpu")
    }
    amounts["cpu"] = float(worker.state.nthreads)
    if num_gpus:
        amounts["gpu"] = float(num_gpus)
    labels = {"host": socket.gethostname(), "worker": worker.name}
    labels |= dask.config.get("tuner.labels", None) or {}
    return {
        "resources": amounts,
        "labels": {str(name): str(value) for name, value in labels.items()},
        "address": get_address_host(worker.contact_address or worker.address),
    }


def _left_s(worker: Any) -> float | None:
    """Return how long until the end of the worker's ``--lifetime``, None where it has none."""
    if not worker.lifetime:
        return None
    # Dask counts from when the worker is created, soon after its process has started.
    age_s = time.time() - float(psutil.Process().create_time())
    return max(0.0, float(worker.lifetime) - age_s)
