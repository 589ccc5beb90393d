"""Engine for Dask distributed: one agent in each worker, beside the tasks of the Dask cluster.

The gateway is a client of the scheduler, which tells it of workers that come and go. It puts a
plugin into each worker, see `dask_plugin`, by the worker's own handler for plugins: the scheduler
keeps nothing of ours, and a worker that cannot import this package is merely reported. Lines travel
both ways over one connection from the gateway to each worker, and never through the scheduler.

A connection that breaks or is refused says nothing about what runs on the worker's machine, nor
does the scheduler, which has lost a connection like ours: a firewall does that as well. An agent
has ended for certain where its worker says so, or another process has taken the worker's place.

Only the gateway imports this module, as it needs the library ``distributed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import pickle
import re
import secrets
import threading
import warnings
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar, final

import distributed
from distributed.comm import connect, get_address_host
from distributed.security import Security

from tuner.errors import ClusterError

from .dask_plugin import AgentPlugin, about_handler, stream_handler
from .engine import Relay, Unmet, back_off_s

_Result = TypeVar("_Result")

_START_S: Final = 30.0
"""How long a worker may take to accept a connection and to start an agent."""
_RECONNECT_S: Final = 3.0
"""How long a connection that broke is tried again once the scheduler has lost the worker, too, and
at a time while it still has it."""
_PAUSE_S: Final = 0.2
_RETRY_S: Final = 10.0
"""How long at least until a worker is tried again that could not be reached, refused an agent, or
whose agent was evicted."""
_STABLE_S: Final = 600.0
"""How long an agent has to live so that earlier failures of its worker do not count."""
_LIST_S: Final = 10.0
"""How often the scheduler's workers are compared with ours, in case a notice was lost."""
_BUSY_S: Final = 30.0
"""How often a scheduler gets a task, as it may be set to close where there are none."""
_STOP_S: Final = 1.0
_MAX_OUTBOX_CHARACTERS: Final = 64 << 20
_NAME_LENGTH: Final = 52  # leaves room for a number
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


class _Refused(Exception):
    """A worker answered that it cannot do something."""


@final
class _Worker:
    """A worker of the Dask cluster, as the gateway knows it.

    Attributes:
        address: Of the worker.
        agent: Name of its agent; empty while there is none.
        plugin: Name of the plugin that keeps the agent.
        nanny: Address of what starts the worker again; empty for nothing.
        gpus: GPUs that the agent offers, by machine and name.
        task: Serves the worker.
        up_s: When the agent was there first.
        removed_s: When the scheduler has lost the worker; None while it has it.
        num_failures: How often in a row it has refused an agent, or had one evicted that had not
            lived for long.
        has_lines: Whether lines wait to be sent.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.agent = ""
        self.plugin = ""
        self.nanny = ""
        self.gpus: set[tuple[str, str]] = set()
        self.task: asyncio.Task[Any] | None = None
        self.up_s = 0.0
        self.removed_s: float | None = None
        self.num_failures = 0
        self.has_lines = asyncio.Event()
        self._lines: deque[str] = deque()
        self._size = 0

    def put(self, lines: Sequence[str]) -> None:
        self._lines.extend(lines)
        self._size += sum(map(len, lines))
        # The connection's ends repeat what is lost; but a long line would be lost each time.
        while self._size > _MAX_OUTBOX_CHARACTERS and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
        self.has_lines.set()

    def take(self) -> list[str]:
        self.has_lines.clear()
        lines = list(self._lines)
        self._lines.clear()
        self._size = 0
        return lines


@final
class DaskEngine:
    """See `Engine`; the settings are those of `tuner.cluster.cluster.DaskCluster`."""

    def __init__(self, settings: Mapping[str, Any], token: str, relay: Relay) -> None:
        self._settings = settings
        self._token = token
        self._relay = relay
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run_loop, name="dask", daemon=True)
        self._client: Any = None
        self._connection_args: dict[str, Any] = {}
        self._known: frozenset[str] = frozenset()
        self._names: set[str] = set()
        self._lease_s = settings["lease_s"]
        self._workers: dict[str, _Worker] = {}
        self._removed: dict[str, _Worker] = {}
        """Workers that the scheduler has lost, of which it is not known whether they live."""
        self._missing: dict[str, str] = {}
        """The nannies of agents that were reported as gone, though they may live."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._remarks: set[str] = set()
        self._is_closing = False

    def open(self, known: Sequence[str]) -> dict[str, Any]:
        self._known = frozenset(known)
        self._names.update(known)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            return self._run(self._open()).result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def tell(self, agent: str, lines: Sequence[str]) -> None:
        self._loop.call_soon_threadsafe(self._tell, agent, lines)

    def demand(self, unmet: Sequence[Unmet]) -> None:
        """See `Engine.demand`; how many workers there are is decided by Dask and its user."""

    def evict(self, agent: str, why: str) -> None:
        """See `Engine.evict`; the worker stays in the Dask cluster."""
        self._loop.call_soon_threadsafe(self._evict, agent)

    def close(self, deadline_s: float) -> None:
        """See `Engine.close`.

        Raises:
            TimeoutError: If it is not known that all agents have ended.
        """
        if self._thread.is_alive():
            closing = self._run(self._close(deadline_s))
            try:
                closing.result(deadline_s)
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(_STOP_S)

    def _run_loop(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # What follows runs in the loop.

    async def _open(self) -> dict[str, Any]:
        address = scheduler_address(self._settings)
        connect_s = self._settings["connect_timeout_s"]
        given = self._settings["security"]
        try:
            security = Security() if given is None else Security(**given)
            self._connection_args = security.get_connection_args("client")
            scheduler = await connect(address, timeout=connect_s, **self._connection_args)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._client = await distributed.Client(
                    address,
                    security=security,
                    timeout=connect_s,
                    asynchronous=True,
                    set_as_default=False,
                    name="tuner",
                )
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler can be reached at {address}: {error}; check that it runs, "
                "that this machine may connect to it, and that security has its certificates"
            ) from error
        for warning in caught:
            if warning.category.__name__ == "VersionMismatchWarning":
                self._remark(str(warning.message).strip())
        self._warn_of_open_network(address)
        await self._subscribe(connect_s)
        self._list(await self._client.nthreads())
        self._start(self._watch(scheduler))
        self._start(self._keep_busy())
        return {"address": address, "version": distributed.__version__, "reattaches": True}

    def _warn_of_open_network(self, address: str) -> None:
        if not address.startswith(("tls://", "wss://")) and not _is_loopback(address):
            self._remark(
                f"the Dask cluster at {address} does not use TLS: all who can connect to its "
                "scheduler or its workers can run programs there; see "
                "https://distributed.dask.org/en/stable/tls.html"
            )

    async def _subscribe(self, timeout_s: float) -> None:
        """Have the scheduler tell of workers that come and go; return once it does so."""
        is_subscribed = asyncio.Event()
        topic = f"tuner-{self._token}"
        self._client.subscribe_topic("all", self._on_event)
        self._client.subscribe_topic(topic, lambda _: is_subscribed.set())
        # The event may overtake the subscriptions, which arrive in order.
        async with asyncio.timeout(timeout_s):
            while not is_subscribed.is_set():
                await self._client.log_event(topic, "subscribed")
                await asyncio.sleep(0.01)

    def _on_event(self, event: tuple[float, Any]) -> None:
        match event[1]:
            case {"action": "add-worker", "worker": str(address)}:
                self._add(address)
            case {"action": "remove-worker", "worker": str(address)}:
                self._remove(address)

    def _list(self, addresses: Iterable[str]) -> None:
        listed = set(addresses)
        for address in self._workers.keys() - listed:
            self._remove(address)
        for address in sorted(listed):
            self._add(address)

    async def _watch(self, scheduler: Any) -> None:
        """Report when a connection to the scheduler, which sends nothing over it, is closed."""
        closed = asyncio.ensure_future(scheduler.read())
        while not (await asyncio.wait({closed}, timeout=_LIST_S))[0]:
            with contextlib.suppress(OSError):
                self._list(await asyncio.wait_for(self._client.nthreads(), _LIST_S))
        closed.exception()
        self._relay.lost("the connection to the Dask scheduler is closed")

    async def _keep_busy(self) -> None:
        """Keep the scheduler from closing by its ``idle-timeout``, as trials are no tasks."""
        while True:
            # A task that waits for a worker keeps it from closing as well.
            task = self._client.submit(int, pure=False) if self._has_agents() else None
            await asyncio.sleep(_BUSY_S)
            del task

    def _has_agents(self) -> bool:
        return any(worker.agent for worker in self._workers.values())

    def _add(self, address: str) -> None:
        if address in self._workers or self._is_closing:
            return
        if worker := self._removed.pop(address, None):
            worker.removed_s = None
            self._workers[address] = worker
            return
        worker = self._workers[address] = _Worker(address)
        worker.task = self._start(self._serve(worker))

    def _remove(self, address: str) -> None:
        if worker := self._workers.pop(address, None):
            if worker.agent:
                worker.removed_s = self._loop.time()
                self._removed[address] = worker
            else:
                self._stop(worker)

    async def _serve(self, worker: _Worker) -> None:
        """Start or find the worker's agent, and carry lines until the task is cancelled."""
        while True:
            try:
                async with asyncio.timeout(_START_S):
                    comm = await self._attach(worker)
            except _Refused as error:
                text = f"the Dask worker {worker.address} runs no trials: {error}"
                self._remark(text, is_refusal=True)
                worker.num_failures += 1
                await asyncio.sleep(_pause_s(worker))
                continue
            except OSError as error:
                self._remark(
                    f"the Dask worker {worker.address} cannot be reached: {_text(error)}; the "
                    "machine of the driver has to reach the port of each worker",
                    is_refusal=True,
                )
            else:
                if await self._carry_on(worker, comm):
                    worker.plugin = ""
                    self._report_gone(worker, "its Dask worker has ended it")
                else:
                    why = "the connection to its Dask worker is closed"
                    self._report_gone(worker, why, may_live=True)
            if worker.removed_s is not None:
                self._removed.pop(worker.address, None)
                return
            # As a rule, a worker that has ended its agent is about to end itself.
            await asyncio.sleep(_RETRY_S)

    async def _carry_on(self, worker: _Worker, comm: Any) -> bool:
        """Carry lines, over further connections if one breaks; return whether the agent ended."""
        while not await self._carry(worker, comm):
            comm = await self._attach_again(worker)
            if comm is None:
                return False
        return True

    async def _attach_again(self, worker: _Worker) -> Any:
        """Return another connection; None once the trials of the worker must have ended."""
        broken_s = self._loop.time()
        while True:
            until_s = broken_s + self._lease_s
            if worker.removed_s is not None:
                until_s = min(until_s, max(broken_s, worker.removed_s) + _RECONNECT_S)
            if (left_s := until_s - self._loop.time()) <= 0.0:
                return None
            try:
                async with asyncio.timeout(min(left_s, _RECONNECT_S)):
                    return await self._attach(worker)
            except _Refused:
                return None
            except OSError:
                await asyncio.sleep(_PAUSE_S)

    def _report_gone(self, worker: _Worker, why: str, *, may_live: bool = False) -> None:
        if agent := worker.agent:
            worker.agent = ""
            worker.take()
            if may_live and worker.nanny:
                self._missing[agent] = worker.nanny
            self._relay.agent_gone(agent, why, may_live=may_live)

    def _note_started_again(self, nanny: str, worker: _Worker) -> None:
        """Report agents of whose worker a nanny has started another process: the last is dead."""
        why = "its Dask worker has died, and was started again"
        for other in [*self._workers.values(), *self._removed.values()]:
            if other is not worker and other.nanny == nanny:
                self._stop(other)
                self._report_gone(other, why)
                self._removed.pop(other.address, None)
        for agent in [agent for agent, of in self._missing.items() if of == nanny]:
            del self._missing[agent]
            self._relay.agent_gone(agent, why)

    async def _attach(self, worker: _Worker) -> Any:
        """Return a connection that carries lines."""
        comm = await self._connect(worker)
        try:
            name = f"tuner-{self._token}-{secrets.token_hex(4)}"
            plugin = AgentPlugin(self._token, name, self._lease_s)
            worker.plugin = plugin.name
            await _ask(comm, "plugin-add", plugin=pickle.dumps(plugin), name=plugin.name)
            about = await _ask(comm, about_handler(self._token))
            agent = about["agent"] or self._new_name(about["hostname"])
            await comm.write({"op": stream_handler(self._token), "reply": False, "agent": agent})
            answer = await comm.read()
        except BaseException:
            comm.abort()
            raise
        if agent != worker.agent:
            if worker.agent:
                self._report_gone(worker, "its Dask worker has ended it")
            if nanny := about.get("nanny", ""):
                self._note_started_again(nanny, worker)
            worker.agent, worker.nanny = agent, nanny
            worker.up_s = self._loop.time()
            worker.gpus = {(about["hostname"], gpu) for gpu in answer["gpus"]}
            self._warn_of_shared_gpus(worker)
            attached = {"attached": True} if agent in self._known else {}
            self._relay.agent_up(agent, answer["facts"] | attached)
        return comm

    def _warn_of_shared_gpus(self, worker: _Worker) -> None:
        others = [other for other in self._workers.values() if other is not worker and other.agent]
        shared = set().union(*(worker.gpus & other.gpus for other in others))
        for host in sorted({host for host, _ in shared}):
            self._remark(
                f"several Dask workers on {host} offer trials the same GPUs, which would be used "
                "twice; start one worker on each machine, or give each worker GPUs of its own by "
                "CUDA_VISIBLE_DEVICES"
            )

    def _new_name(self, hostname: str) -> str:
        base = _NOT_IN_NAMES.sub("-", hostname)[:_NAME_LENGTH] or "worker"
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base}-{number}"
        self._names.add(name)
        return name

    async def _carry(self, worker: _Worker, comm: Any) -> bool:
        """Carry lines until the connection is closed; return whether the agent has ended."""
        sending = self._start(_send_lines(worker, comm))
        try:
            while True:
                message = await comm.read()
                if "lines" in message:
                    self._relay.received(worker.agent, list(message["lines"]))
                elif "draining" in message:
                    self._relay.draining(worker.agent, message["draining"])
                else:
                    return True
        except OSError:
            return False
        finally:
            sending.cancel()
            comm.abort()

    def _find(self, agent: str) -> _Worker | None:
        workers = (*self._workers.values(), *self._removed.values())
        return next((worker for worker in workers if worker.agent == agent), None)

    def _tell(self, agent: str, lines: Sequence[str]) -> None:
        if worker := self._find(agent):
            worker.put(lines)

    def _evict(self, agent: str) -> None:
        if worker := self._find(agent):
            self._stop(worker)
            worker.agent = ""
            worker.take()
            self._removed.pop(worker.address, None)
            is_stable = self._loop.time() - worker.up_s >= _STABLE_S
            worker.num_failures = 1 if is_stable else worker.num_failures + 1
            worker.task = self._start(self._replace(worker))

    async def _replace(self, worker: _Worker) -> None:
        """End the agent of a worker, which may hang, and start another after a while."""
        while not await self._end_agent(worker):
            if worker.removed_s is not None:
                return
            await asyncio.sleep(_RETRY_S)
        await asyncio.sleep(_pause_s(worker))
        if worker.removed_s is None:
            await self._serve(worker)

    async def _end_agent(self, worker: _Worker) -> bool:
        """End the agent of a worker, and return whether the worker has answered."""
        within_s = _START_S if worker.removed_s is None else _RECONNECT_S
        try:
            async with asyncio.timeout(within_s):
                comm = await self._connect(worker)
                try:
                    await _ask(comm, "plugin-remove", name=worker.plugin)
                finally:
                    comm.abort()
        except OSError:
            return False
        except _Refused:  # it has no such plugin any more
            pass
        return True

    async def _connect(self, worker: _Worker) -> Any:
        # Nothing that a worker sends is unpickled.
        return await connect(
            worker.address, timeout=_START_S, deserialize=False, **self._connection_args
        )

    async def _close(self, deadline_s: float) -> None:
        self._is_closing = True
        ends = []
        for worker in [*self._workers.values(), *self._removed.values()]:
            self._stop(worker)
            worker.agent = ""
            if worker.plugin:
                worker.task = self._start(self._end_agent(worker))
                ends.append(worker.task)
        if ends:
            await asyncio.wait(ends, timeout=0.8 * deadline_s)
        late = [end for end in ends if not end.done() or not (end.cancelled() or end.result())]
        # Otherwise the scheduler logs that it cannot tell this client of the client's own end.
        self._client.unsubscribe_topic("all")
        await self._client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if late:
            raise TimeoutError(f"{len(late)} Dask workers have not ended their agents in time")

    def _stop(self, worker: _Worker) -> None:
        if worker.task:
            worker.task.cancel()

    def _remark(self, text: str, *, is_refusal: bool = False) -> None:
        if text not in self._remarks:
            self._remarks.add(text)
            self._relay.remark(text, is_refusal=is_refusal)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _pause_s(worker: _Worker) -> float:
    return max(_RETRY_S, back_off_s(worker.num_failures))


def scheduler_address(settings: Mapping[str, Any]) -> str:
    """Return the address of the scheduler, read from its file if one was given.

    Raises:
        ClusterError: If the file cannot be read.
    """
    file = settings["scheduler_file"]
    if file is None:
        return str(settings["address"])
    try:
        return str(json.loads(Path(file).read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{file} cannot be read as a Dask scheduler file: {_text(error)}; start the scheduler "
            f"by: dask scheduler --scheduler-file {file}"
        ) from error


async def _ask(comm: Any, operation: str, **arguments: Any) -> Any:
    """Have a handler of a worker called, and return its answer.

    Raises:
        _Refused: If the handler failed.
    """
    await comm.write({"op": operation, "reply": True, **arguments})
    answer = await comm.read()
    if isinstance(answer, dict) and answer.get("status") in ("error", "uncaught-error"):
        raise _Refused(answer["exception_text"])
    return answer


async def _send_lines(worker: _Worker, comm: Any) -> None:
    with contextlib.suppress(OSError):  # noticed by `_carry`, which reads
        while True:
            await worker.has_lines.wait()
            await comm.write({"lines": worker.take()})


def _is_loopback(address: str) -> bool:
    host = get_address_host(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
