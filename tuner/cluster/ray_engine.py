"""Engine for Ray: one actor per node starts the processes that run its trials.

Of Ray only the core is used. The actors belong to the gateway: Ray ends them when it is gone. When
the head of the cluster is gone, Ray ends the gateway itself, after a minute by default; the driver
sees that, and starts another one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import ClusterError

from .agent import Agent
from .engine import Relay, Unmet
from .link import hang_within
from .ray_placement import Ask, Held, Placement, RayNode, from_ray, node_of

_CONNECT_S: Final = 10.0
_KILL_S: Final = 2.0
"""How long it may take a host to end its trials."""
_LOST_AFTER_S: Final = 60.0
_LOOK_S: Final = 1.0
_MAX_PENDING_CALLS: Final = 1_000
_NAME_LENGTH: Final = 50
_NUM_CHECKED: Final = 64
_REOPEN_S: Final = 0.2
_TAKE_S: Final = 1.0
_TELL: Final = "tell"
_STREAM: Final = "stream"

_logger = logging.getLogger(__name__)


# In the actors.


@final
class AgentActor:
    """An agent inside a Ray actor.

    Ray calls its methods in several threads: `tell` in one, `stream` in another, so that neither
    waits for the other.
    """

    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._taking = threading.Lock()
        self._stream = 0

    def where(self) -> dict[str, Any]:
        """Return on which node this is, once it is there."""
        import ray  # noqa: PLC0415  (an extra)

        context = ray.get_runtime_context()
        return {
            "node_id": context.get_node_id(),
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
            "labels": dict(context.get_node_labels()),
        }

    def begin(self, name: str, token: str, facts: Mapping[str, Any], silent_s: float) -> None:
        """Start the agent."""
        _forget_variables()
        self._agent = Agent(name, token, facts, silent_s=silent_s)

    def tell(self, lines: Sequence[str]) -> None:
        """Pass lines on to the agent."""
        if self._agent:
            self._agent.tell(lines)

    def stream(self, number: int) -> Iterator[list[str]]:
        """Yield the agent's lines as they come, until a stream with a higher number begins."""
        self._stream = max(number, self._stream)
        while self._agent:
            with self._taking:
                if number < self._stream:
                    return
                lines = self._agent.take(_TAKE_S)
            if lines:
                yield lines

    def close(self, within_s: float) -> None:
        """End the agent and all that runs on its node."""
        if self._agent:
            self._agent.close(within_s)


def _forget_variables() -> None:
    """Remove variables that Ray has set for its own workers, and trials would inherit."""
    at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    # The number of all CPUs of the agent, whose trials would start as many threads each.
    if not any(each.startswith(b"OMP_NUM_THREADS=") for each in at_start):
        os.environ.pop("OMP_NUM_THREADS", None)
    if os.environ.get("PYTHONBREAKPOINT", "").startswith("ray."):
        del os.environ["PYTHONBREAKPOINT"]


# In the gateway.


@dataclass(slots=True, eq=False)
class _Member:
    """An agent, from the moment that Ray is asked for its actor.

    Attributes:
        number: Unique.
        ask: What was asked for.
        actor: Ray's handle.
        asked_s: When it was asked for.
        place: What its actor said about the node; empty until it runs.
        up_s: Since when its actor runs.
        name: Its name, once it was reported.
        heard_s: When it said something last.
        is_ended: Whether it was ended on purpose.
        is_draining: Whether it was reported that its node is going to leave.
        tell: Its actor's method for lines, with options, which take long to make.
        calls: Calls whose results have not been looked at.
    """

    number: int
    ask: Ask
    actor: Any
    asked_s: float
    place: dict[str, Any] = field(default_factory=dict)
    up_s: float | None = None
    name: str = ""
    heard_s: float = 0.0
    is_ended: bool = False
    is_draining: bool = False
    tell: Any = field(init=False)
    calls: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tell = self.actor.tell.options(concurrency_group=_TELL)

    @property
    def node_id(self) -> str:
        """Of its node, empty if that is not known yet."""
        return str(self.place.get("node_id") or self.ask.node_id)

    @property
    def held(self) -> Held:
        """What placement needs of it."""
        return Held(self.number, self.ask, self.node_id, self.up_s, self.asked_s)


@final
class RayEngine:
    """Agents in Ray actors, see `Engine`.

    Args:
        settings: What `RayCluster.settings` returned.
        token: Of the driver.
        relay: Where to report to.
    """

    def __init__(self, settings: Mapping[str, Any], token: str, relay: Relay) -> None:
        self._settings = settings
        self._token = token
        self._relay = relay
        self._placement = Placement(
            settings.get("agent_resources"),
            settings.get("max_nodes"),
            settings.get("label_selector") or {},
        )
        self._lease_s = settings["lease_s"]
        self._lock = threading.Lock()
        self._members: dict[int, _Member] = {}
        self._by_name: dict[str, _Member] = {}
        self._names: set[str] = set()
        self._numbers = itertools.count(1)
        self._unmet: Sequence[Unmet] = ()
        self._remarks: set[str] = set()
        self._has_to_look = threading.Event()
        self._ending = threading.Event()

    # What the gateway calls, see `Engine`.

    def open(self, known: Sequence[str]) -> Mapping[str, Any]:
        """See `Engine`; earlier agents cannot be found again, since they end with their gateway."""
        ray = _import_ray()
        self._names.update(known)
        address = self._settings.get("address")
        os.environ.setdefault("RAY_USAGE_STATS_PROMPT_ENABLED", "0")
        try:
            _check_reachable(address)
            with _default_signals():
                context = ray.init(
                    address,
                    namespace=self._settings.get("namespace"),
                    runtime_env=self._settings.get("runtime_env"),
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    include_dashboard=False,
                )
        except Exception as error:
            raise ClusterError(_advice(address, error)) from error
        found = str(context.address_info.get("gcs_address") or "")
        if not _is_protected(found):
            self._remark(
                f"the Ray cluster is reached at {found}, and whoever reaches that can run code on "
                "all its nodes; set RAY_AUTH_MODE=token, and RAY_USE_TLS=1 since the token is sent "
                "in clear otherwise, or keep others out of the network"
            )
        threading.Thread(target=self._look_after, name="ray-nodes", daemon=True).start()
        # Where others use the cluster too, what is idle is theirs.
        is_elastic = address != "local"
        return {"address": found, "version": ray.__version__, "is_elastic": is_elastic}

    def tell(self, agent: str, lines: Sequence[str]) -> None:
        if not (member := self._by_name.get(agent)):
            return
        import ray  # noqa: PLC0415  (an extra)

        # Where an actor does not answer, lines are dropped: what they carry is sent again.
        with contextlib.suppress(ray.exceptions.PendingCallsLimitExceeded):
            member.calls.append(member.tell.remote(lines))
        if len(member.calls) >= _NUM_CHECKED:
            self._check_calls(member)

    def demand(self, unmet: Sequence[Unmet]) -> None:
        self._unmet = [(dict(request), dict(labels), count) for request, labels, count in unmet]
        self._has_to_look.set()

    def evict(self, agent: str, why: str) -> None:
        with self._lock:
            if not (member := self._by_name.get(agent)):
                return
            self._remove(member)
            self._placement.note_release(member.held, time.monotonic())
        _kill(member.actor)

    def close(self, deadline_s: float) -> None:
        import ray  # noqa: PLC0415  (an extra)

        until_s = time.monotonic() + deadline_s
        with self._lock:
            self._ending.set()
            members = list({*self._members.values(), *self._by_name.values()})
            for member in members:
                self._remove(member)
        self._has_to_look.set()
        closing = [member.actor.close.remote(deadline_s / 2) for member in members if member.name]
        with contextlib.suppress(Exception):
            ray.wait(closing, num_returns=max(len(closing), 1), timeout=deadline_s / 2)
        for member in members:
            _kill(member.actor)
        if time.monotonic() < until_s:
            ray.shutdown()

    # A thread that looks at the nodes.

    def _look_after(self) -> None:
        failing_since_s: float | None = None
        while not self._ending.is_set():
            try:
                self._look()
                failing_since_s = None
            except Exception as error:
                now_s = time.monotonic()
                failing_since_s = now_s if failing_since_s is None else failing_since_s
                _logger.warning("Ray does not tell its nodes", exc_info=True)
                if now_s - failing_since_s >= _LOST_AFTER_S and not self._ending.is_set():
                    self._relay.lost(f"Ray does not tell its nodes: {error}")
                    return
            self._has_to_look.wait(_LOOK_S)
            self._has_to_look.clear()

    def _look(self) -> None:
        nodes = _alive_nodes()
        self._report_draining({node.node_id for node in nodes if node.is_draining})
        with self._lock:
            if self._ending.is_set():
                return
            held = [member.held for member in self._members.values()]
            plan = self._placement.decide(nodes, held, self._unmet, time.monotonic())
            withdrawn = [self._members[number] for number in plan.withdraw]
            for member in withdrawn:
                self._remove(member)
            for ask in plan.create:
                self._ask(ask)
        for member in withdrawn:
            _kill(member.actor)
        for remark in plan.remarks:
            self._remark(remark)
        for refusal in plan.refusals:
            self._remark(refusal, is_refusal=True)

    def _report_draining(self, node_ids: set[str]) -> None:
        if not node_ids:
            return
        deadlines = _draining()
        with self._lock:
            for member in self._by_name.values():
                if member.node_id in node_ids and not member.is_draining:
                    member.is_draining = True
                    self._relay.draining(member.name, deadlines.get(member.node_id))

    def _ask(self, ask: Ask) -> None:
        """Ask Ray for an actor, and begin to attend to it."""
        actor = _actor_class().options(**_options(ask)).remote()
        member = _Member(next(self._numbers), ask, actor, time.monotonic())
        self._members[member.number] = member
        threading.Thread(
            target=self._attend, args=(member,), name=f"ray-{member.number}", daemon=True
        ).start()

    # A thread for each agent.

    def _attend(self, member: _Member) -> None:
        """Wait until an agent is there, pass on its lines, and report its end."""
        try:
            if self._begin(member):
                self._pass_on(member)
                why = "its actor has ended"
            else:
                why = ""
        except Exception as error:  # noqa: BLE001  (Ray's errors are many)
            why = _why(error)
        if why and not member.node_id:
            member.place = {"node_id": _node_id_of(member.actor)}
        now_s = time.monotonic()
        with self._lock:
            if member.is_ended:
                return
            self._members.pop(member.number)
            if why:
                self._placement.note_end(member.held, now_s, why)
        _kill(member.actor)
        self._has_to_look.set()
        if not member.name:
            if why:
                _logger.warning("an agent could not be started: %s", why)
            return
        # The host ends its trials when its agent has ended, or after it has missed the driver.
        is_dead = self._is_surely_dead(member)
        lived_s = now_s if is_dead else member.heard_s + self._lease_s
        self._ending.wait(max(lived_s + _KILL_S - now_s, 0.0))
        with self._lock:
            if member.is_ended:
                return
            self._remove(member)
        self._relay.agent_gone(member.name, why)

    def _is_surely_dead(self, member: _Member) -> bool:
        """Return whether Ray has seen that an agent's process has ended.

        When a node does not answer, Ray regards it as dead after some seconds. If it is merely cut
        off, its trials run until its host misses the driver.
        """
        try:
            node = _all_nodes().get(member.node_id)
        except Exception:  # noqa: BLE001  (Ray's errors are many)
            return False
        return node is not None and (node["Alive"] or node.get("DeathReason") in _ORDERLY)

    def _begin(self, member: _Member) -> bool:
        """Start an agent when its actor runs; return whether it is there."""
        import ray  # noqa: PLC0415  (an extra)

        place = ray.get(member.actor.where.remote())
        with self._lock:
            member.place, member.up_s = place, time.monotonic()
            self._placement.note_up(member.held)
            if member.is_ended or member.ask.is_probe or self._is_taken(member):
                return False  # its node has come, and gets an agent of its own size
            name = self._new_name(place["host"])
        facts = {
            "resources": from_ray(member.ask.shape),
            "labels": place["labels"],
            "address": place["address"],
        }
        silent_s = hang_within(self._lease_s)
        ray.get(member.actor.begin.remote(name, self._token, facts, silent_s))
        with self._lock:
            if member.is_ended:
                return False
            member.name, member.heard_s = name, time.monotonic()
            self._by_name[name] = member
            self._relay.agent_up(name, facts)
        return True

    def _pass_on(self, member: _Member) -> None:
        """Pass on an agent's lines until its actor is gone."""
        import ray  # noqa: PLC0415  (an extra)

        for number in itertools.count(1):
            stream = member.actor.stream.options(
                num_returns="streaming", concurrency_group=_STREAM
            ).remote(number)
            # An actor is unavailable for as long as Ray does not know whether its node is gone.
            # What was under way is lost perhaps, and is sent again.
            with contextlib.suppress(ray.exceptions.ActorUnavailableError):
                for lines in stream:
                    member.heard_s = time.monotonic()
                    self._relay.received(member.name, ray.get(lines))
                return
            if member.is_ended:
                return
            time.sleep(_REOPEN_S)

    # Called with the lock held.

    def _remove(self, member: _Member) -> None:
        member.is_ended = True
        self._members.pop(member.number, None)
        self._by_name.pop(member.name, None)

    def _is_taken(self, member: _Member) -> bool:
        """Return whether a member's node has another one."""
        return any(
            other is not member and other.node_id == member.node_id
            for other in self._members.values()
        )

    def _new_name(self, host: str) -> str:
        """Return a name that no agent of this driver has had."""
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", host)[:_NAME_LENGTH] or "node"
        numbered = (f"{stem}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([stem], numbered) if name not in self._names)
        self._names.add(name)
        return name

    def _check_calls(self, member: _Member) -> None:
        """Note errors of calls that have ended; the newest ones are looked at later."""
        import ray  # noqa: PLC0415  (an extra)

        done, member.calls = ray.wait(
            member.calls, num_returns=len(member.calls), timeout=0, fetch_local=False
        )
        for call in done:
            try:
                ray.get(call)
            except ray.exceptions.RayActorError:
                continue  # the actor is gone or unavailable, which its stream tells
            except Exception as error:  # noqa: BLE001  (Ray's errors are many)
                _logger.warning("agent %s refused lines: %s", member.name, error)
        # Of an actor that does not answer no more is kept than Ray keeps.
        del member.calls[:-_NUM_CHECKED]

    def _remark(self, text: str, *, is_refusal: bool = False) -> None:
        if text not in self._remarks:
            self._remarks.add(text)
            self._relay.remark(text, is_refusal=is_refusal)


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ClusterError(
            f"RayCluster needs ray, which cannot be imported ({error}); "
            'pip install "tuner-hpo[ray]"'
        ) from error
    return ray


@functools.cache
def _actor_class() -> Any:
    import ray  # noqa: PLC0415  (an extra)

    # Nodes import the class by its name. A restarted actor would be an agent without a name.
    return ray.remote(
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups={_TELL: 1, _STREAM: 2},
        max_pending_calls=_MAX_PENDING_CALLS,
        enable_task_events=False,  # each call would be recorded by the head
    )(AgentActor)


def _options(ask: Ask) -> dict[str, Any]:
    """Return Ray's options of an actor."""
    from ray.util.scheduling_strategies import (  # noqa: PLC0415  (an extra)
        NodeAffinitySchedulingStrategy,
    )

    others = {name: amount for name, amount in ask.shape.items() if name not in _NAMED}
    options: dict[str, Any] = {
        "num_cpus": ask.shape.get("CPU", 0),
        "num_gpus": ask.shape.get("GPU", 0),
        "resources": others,
    }
    if "memory" in ask.shape:
        options["memory"] = ask.shape["memory"]
    if ask.node_id:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(ask.node_id, soft=False)
    elif ask.selector:
        options["label_selector"] = dict(ask.selector)
    return options


_NAMED: Final = ("CPU", "GPU", "memory")


_ORDERLY: Final = (1, 4)
"""Ray's reasons for the end of a node whose processes have ended: on purpose, or as it was idle."""


def _all_nodes() -> dict[str, dict[str, Any]]:
    import ray  # noqa: PLC0415  (an extra)

    return {info["NodeID"]: info for info in ray.nodes()}


def _alive_nodes() -> list[RayNode]:
    import ray  # noqa: PLC0415  (an extra)

    available = ray._private.state.available_resources_per_node()  # noqa: SLF001  (only here)
    draining = _draining()
    return [
        node_of(info, available.get(node_id, {}), is_draining=node_id in draining)
        for node_id, info in _all_nodes().items()
        if info["Alive"]
    ]


def _node_id_of(actor: Any) -> str:
    """Return on which node an actor is that could not be started; empty if Ray does not tell."""
    try:
        from ray._private.state import actors  # noqa: PLC0415  (an extra)

        node_id = str(actors(actor._actor_id.hex())["Address"]["NodeID"])  # noqa: SLF001
    except Exception:  # noqa: BLE001  (private: another release may not have it)
        return ""
    return "" if set(node_id) <= {"f"} else node_id  # of an actor that was never on a node


def _draining() -> dict[str, float | None]:
    """Return in how many seconds nodes leave, by identifier; None where that is not known."""
    try:
        from ray._private.state import state  # noqa: PLC0415  (an extra)

        deadlines_ms = state.get_draining_nodes()
    except (ImportError, AttributeError):  # private: another release may not have it
        return {}
    # Ray gives a time of day.
    now_s = time.time()
    return {
        node_id: max(deadline_ms / 1e3 - now_s, 0.0) if deadline_ms else None
        for node_id, deadline_ms in deadlines_ms.items()
    }


def _kill(actor: Any) -> None:
    import ray  # noqa: PLC0415  (an extra)

    with contextlib.suppress(Exception):
        ray.kill(actor)


@contextlib.contextmanager
def _default_signals() -> Iterator[None]:
    """Have what Ray starts here not ignore signals, and keep Ray from handling them here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, signal.SIG_DFL)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _check_reachable(address: str | None) -> None:
    """Raise an error if nothing listens where a cluster is said to be."""
    # Ray itself would try for several minutes.
    try:
        from ray._private.services import (  # noqa: PLC0415  (an extra)
            canonicalize_bootstrap_address,
        )
    except ImportError:  # private: another release may not have it
        return
    if found := canonicalize_bootstrap_address(address):
        host, _, port = found.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


def _is_protected(address: str) -> bool:
    """Return whether only this machine, or who has a token or certificate, reaches the cluster."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return True
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _advice(address: str | None, error: Exception) -> str:
    """Return what to do when a cluster cannot be reached."""
    where = f"the Ray cluster at {address!r}" if address else "a Ray cluster"
    reason = _first_line(error)
    if (cause := _root_cause(error)) and cause not in reason:
        reason = f"{reason.rstrip('.')}: {cause.rstrip('.')}"
    if "AuthToken" in reason or "AuthenticationError" in reason:
        return (
            f"{where} cannot be reached: {reason}; give this machine the token of the cluster: set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH"
        )
    return (
        f"{where} cannot be reached: {reason}; this machine has to be one of its "
        "nodes: run `ray start --address=HOST:6379` here first, or submit the program as a Ray job"
    )


def _root_cause(error: BaseException) -> str:
    """Return what an error was raised for in the end, in a line; empty if it is said nowhere."""
    text = ""
    while error := error.__cause__ or error.__context__:  # type: ignore[assignment]
        text = str(error).strip()
    # Ray puts the traceback of the first error into the text of the next one.
    raised = _RAISED.findall(text)
    return raised[-1].strip() if raised else text.partition("\n")[0]


_RAISED: Final = re.compile(r"^[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)


def _why(error: BaseException) -> str:
    """Return the reason that is in an error of Ray's, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False) and lines:
        return lines[-1]  # the text ends with what was raised
    told = " ".join(line for line in lines if not _DETAIL.match(line))
    told = told.removeprefix("The actor died unexpectedly before finishing this task.")
    # What follows are guesses that are not about this actor.
    return told.partition(" Some common causes include")[0].strip() or type(error).__name__


_DETAIL: Final = re.compile(r"(class_name|actor_id|pid|name|namespace|ip):")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
