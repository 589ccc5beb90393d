"""Placement of requests on nodes, compared with a naive model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.resources import Grant, Machine, ResourcePool
from tuner.core.worker_records import WorkerGroup
from tuner.nodes.nodes import Nodes, matches

AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
GPUS = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 2.0])
REQUESTS = st.builds(lambda cpu, gpu: {"cpu": cpu, "gpu": gpu}, AMOUNTS, GPUS)
STRATEGIES = st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
GROUPS = st.builds(
    lambda share, fewest, more, strategy: WorkerGroup(
        fewest + more, share, fewest, fewest + more, strategy
    ),
    REQUESTS.filter(lambda share: any(share.values())),
    st.integers(1, 3),
    st.integers(0, 2),
    STRATEGIES,
)
RESOURCES = st.builds(lambda cpu, gpu: {"cpu": cpu, "gpu": gpu}, AMOUNTS, st.integers(0, 3))


def cluster(**resources):
    """Return nodes with so many CPUs each."""
    nodes = Nodes()
    for name, cpu in resources.items():
        nodes.join(name, {"cpu": cpu}, {})
    return nodes


def test_this_machine_grants_what_a_pool_grants():
    nodes, pool = Machine({"cpu": 2.0, "gpu": 1}), ResourcePool({"cpu": 2.0, "gpu": 1})
    for request in ({"cpu": 1.0, "gpu": 0.5}, {"cpu": 1.0, "gpu": 0.5}, {"cpu": 1.0}):
        assert nodes.num_fitting(request, 9) == pool.num_fitting(request, 9)
        granted, devices = nodes.acquire(request), pool.acquire(request)
        assert granted == (None if devices is None else Grant(("",), devices))
    assert (nodes.used, nodes.capacity) == (pool.used, pool.capacity)
    assert nodes.misfit({"cpu": 3.0}) == pool.misfit({"cpu": 3.0})
    assert nodes.state_dict() == []


def test_a_request_is_granted_on_a_preferred_node_and_else_on_the_least_loaded():
    nodes = cluster(a=4, b=4, c=4)
    assert nodes.acquire({"cpu": 3}, preferred=("b", "c")).nodes == ("b",)
    assert nodes.acquire({"cpu": 2}, preferred=("b", "c")).nodes == ("c",)
    assert nodes.acquire({"cpu": 1}).nodes == ("a",)
    assert nodes.acquire({"cpu": 1}, preferred=("gone",)).nodes == ("a",)


def test_a_request_is_not_split_between_nodes():
    nodes = cluster(a=2, b=2)
    assert nodes.num_fitting({"cpu": 3}, 5) == 0
    assert nodes.acquire({"cpu": 3}) is None
    assert "no node" in nodes.shortage({"cpu": 3})
    assert nodes.misfit({"cpu": 3}) == ""  # a larger one may join
    assert nodes.misfit({"gpu": 1.5})


def test_a_node_must_have_the_labels_that_are_asked_for():
    nodes = cluster(a=4)
    nodes.join("b", {"cpu": 1}, {"accelerator": "A100"})
    wanted = {"accelerator": "A100"}
    assert nodes.num_fitting({"cpu": 1}, 9, wanted) == 1
    assert nodes.acquire({"cpu": 1}, wanted).nodes == ("b",)
    assert nodes.acquire({"cpu": 1}, wanted) is None
    assert nodes.shortage({"cpu": 1}, wanted) == ""
    shortage = nodes.shortage({"cpu": 2}, wanted)
    assert "on a node with the labels {'accelerator': 'A100'}, which no node has" in shortage
    assert "a: {'cpu': 4.0} {}; b: {'cpu': 1.0} {'accelerator': 'A100'}" in shortage


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        ("A100", "a"),
        ("in(A100, H100)", "ah"),
        ("!A100", "hn"),
        ("!in(A100,H100)", "n"),
        ("in()", ""),
        ("a100", ""),
    ],
)
def test_labels_are_matched_as_rays_selectors(wanted, matching):
    nodes = {"a": {"gpu": "A100"}, "h": {"gpu": "H100"}, "n": {}}
    assert "".join(n for n, labels in nodes.items() if matches(labels, {"gpu": wanted})) == matching


def test_nothing_is_granted_on_a_node_that_is_draining_and_what_is_held_is_released():
    nodes = cluster(a=2)
    grant = nodes.acquire({"cpu": 1})
    nodes.drain("a")
    assert nodes.num_fitting({"cpu": 1}, 9) == 0
    assert nodes.acquire({"cpu": 1}) is None
    assert "no node is present" in nodes.shortage({"cpu": 1})
    nodes.release({"cpu": 1}, grant)
    assert nodes.used == {"cpu": 0.0}
    nodes.leave("a")
    nodes.release({"cpu": 1}, grant)
    assert nodes.capacity == {}


def group(num_workers, strategy, fewest=None):
    return WorkerGroup(
        num_workers, {"cpu": 1.0}, fewest or num_workers, num_workers, strategy, is_decided=True
    )


@pytest.mark.parametrize(
    ("strategy", "num_workers", "placed"),
    [
        ("PACK", 2, ("a",)),
        ("PACK", 3, ("b",)),
        ("PACK", 4, ("a", "b", "b", "b")),
        ("PACK", 7, None),
        ("STRICT_PACK", 3, ("b",)),
        ("STRICT_PACK", 4, None),
        ("SPREAD", 3, ("a", "b", "c")),
        ("SPREAD", 5, ("a", "a", "b", "b", "c")),
        ("STRICT_SPREAD", 3, ("a", "b", "c")),
        ("STRICT_SPREAD", 4, None),
    ],
)
def test_a_group_is_placed_by_its_strategy(strategy, num_workers, placed):
    nodes = cluster(a=2, b=3, c=1)
    asked = group(num_workers, strategy)
    granted = nodes.acquire(asked)
    assert (granted and granted.nodes) == placed
    if granted:
        assert nodes.used["cpu"] == num_workers
        nodes.release(asked, granted)
        assert nodes.used["cpu"] == 0


def test_each_worker_of_a_group_has_the_devices_of_its_node():
    nodes = Nodes()
    nodes.join("a", {"gpu": 2}, {})
    nodes.join("b", {"gpu": 4}, {})
    asked = WorkerGroup(3, {"gpu": 2}, 3, 3, is_decided=True)
    granted = nodes.acquire(asked)
    assert granted == Grant(("a", "b", "b"), (0, 1, 0, 1, 2, 3))
    nodes.release(asked, granted)
    nodes.hold(asked, granted)
    assert nodes.used == {"gpu": 6.0}


def test_nodes_outlast_a_snapshot():
    nodes = cluster(a=2, b=1)
    nodes.join("c", {"cpu": 1.0, "gpu": 2}, {"zone": "x"})
    nodes.drain("b")
    other = Nodes()
    other.load_state_dict(nodes.state_dict())
    assert other.state_dict() == nodes.state_dict()
    assert [node.name for node in other.usable] == ["a", "c"]


@dataclass
class NaiveNode:
    """What a node has, and all that is held on it: CPUs and the GPU share on each device."""

    cpu: float
    num_gpus: int
    is_draining: bool = False
    held: list[tuple[float, dict[int, float]]] = field(default_factory=list)

    def load_of(self, device):
        return sum(devices.get(device, 0.0) for _, devices in self.held)

    def fits(self, request):
        if sum(cpu for cpu, _ in self.held) + request["cpu"] > self.cpu + 1e-9:
            return False
        gpu, free = request["gpu"], [1 - self.load_of(each) for each in range(self.num_gpus)]
        if gpu >= 1:
            return sum(each > 1 - 1e-9 for each in free) >= gpu
        return not gpu or any(each > gpu - 1e-9 for each in free)

    def check(self):
        assert sum(cpu for cpu, _ in self.held) <= self.cpu + 1e-9
        assert all(self.load_of(each) <= 1 + 1e-9 for each in range(self.num_gpus))
        assert all(0 <= each < self.num_gpus for _, devices in self.held for each in devices)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from("abcdef"), RESOURCES),
        st.tuples(st.just("drain"), st.sampled_from("abcdef")),
        st.tuples(st.just("leave"), st.sampled_from("abcdef")),
        st.tuples(st.just("acquire"), REQUESTS, st.sampled_from("abcdef")),
        st.tuples(st.just("acquire"), REQUESTS, st.sampled_from("abcdef")),
        st.tuples(st.just("group"), GROUPS),
        st.tuples(st.just("release"), st.integers(0, 9)),
    ),
    min_size=5,
    max_size=30,
)


@given(steps=STEPS)
def test_grants_are_those_of_a_naive_model(steps):
    nodes, model, grants, joined = Nodes(), {}, [], set()
    for step in steps:
        match step:
            # What was granted on a node may be released after it has left: no name comes back.
            case ("join", name, resources) if name not in joined:
                joined.add(name)
                nodes.join(name, resources, {})
                model[name] = NaiveNode(resources["cpu"], resources["gpu"])
            case ("drain", name) if name in model:
                nodes.drain(name)
                model[name].is_draining = True
            case ("leave", name) if name in model:
                nodes.leave(name)
                del model[name]
            case ("acquire", request, preferred):
                acquire_one(nodes, model, grants, request, preferred)
            case ("group", asked):
                acquire_group(nodes, model, grants, asked)
            case ("release", index) if grants:
                request, granted, parts = grants.pop(index % len(grants))
                nodes.release(request, granted)
                for node, part in parts:
                    node.held.remove(part)
        for node in model.values():
            node.check()
        cpus = sum(cpu for node in model.values() for cpu, _ in node.held)
        assert nodes.used.get("cpu", 0.0) == pytest.approx(cpus)
        assert [node.name for node in nodes] == list(model)


def acquire_one(nodes, model, grants, request, preferred):
    fitting = [name for name, node in model.items() if not node.is_draining and node.fits(request)]
    assert nodes.num_fitting(request, 1) == bool(fitting)
    granted = nodes.acquire(request, preferred=(preferred,))
    assert (granted is not None) == bool(fitting)
    if granted is None:
        return
    assert granted.nodes[0] in fitting
    assert preferred not in fitting or granted.nodes == (preferred,)
    grants.append((request, granted, [book(model, granted.nodes[0], request, granted.devices)]))


def acquire_group(nodes, model, grants, asked):
    could, sized = nodes.num_fitting(asked, 1), nodes.largest_fitting(asked)
    assert could == (sized is not None)
    if sized is None:
        return
    assert asked.fewest <= sized.num_workers <= asked.most
    if sized.num_workers < asked.most:
        assert nodes.acquire(asked.resized(sized.num_workers + 1)) is None
    granted = nodes.acquire(sized)
    assert granted is not None
    placed = granted.nodes * sized.num_workers if len(granted.nodes) == 1 else granted.nodes
    assert len(placed) == sized.num_workers
    assert not any(model[name].is_draining for name in placed)
    if asked.strategy == "STRICT_PACK":
        assert len(set(placed)) == 1
    if asked.strategy == "STRICT_SPREAD":
        assert len(set(placed)) == sized.num_workers
    num_each = len(granted.devices) // sized.num_workers
    share, parts = asked.resources_per_worker, []
    for rank, name in enumerate(placed):
        devices = granted.devices[rank * num_each : (rank + 1) * num_each]
        parts.append(book(model, name, share, devices))
    grants.append((sized, granted, parts))


def book(model, name, request, devices):
    assert len(devices) == -(-request["gpu"] // 1)
    part = request["cpu"], {device: min(request["gpu"], 1.0) for device in devices}
    model[name].held.append(part)
    return model[name], part
