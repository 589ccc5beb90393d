"""Where agents are asked for on a Ray cluster, without one."""

import pytest

from tuner.cluster.ray_placement import (
    Ask,
    Held,
    Placement,
    RayNode,
    from_ray,
    is_match,
    node_of,
    num_fitting,
    to_ray,
    usable_amounts,
)

NOW_S = 1_000.0
CPUS = {"CPU": 4.0}


def node(name, total=CPUS, available=None, labels=(), *, is_draining=False):
    total = {**total, "memory": 1e9, "object_store_memory": 1e8, f"node:{name}": 1.0}
    free = total if available is None else available
    return RayNode(name, name, "10.0.0.1", total, free, dict(labels), is_draining)


class Cluster:
    """Agents as they are asked for, come up and go, on nodes whose room is kept account of."""

    def __init__(self, *nodes, shape=None, max_nodes=None, selector=()):
        self.placement = Placement(shape, max_nodes, dict(selector))
        self.nodes = {each.node_id: each for each in nodes}
        self.held, self.unmet, self.now_s, self.number = {}, [], NOW_S, 0
        self.remarks = []

    def step(self, after_s=0.0):
        """Decide, carry it out as far as there is room, and return what was asked for."""
        self.now_s += after_s
        plan = self.placement.decide(
            list(self.nodes.values()), list(self.held.values()), self.unmet, self.now_s
        )
        self.remarks += [*plan.remarks, *plan.refusals]
        for number in plan.withdraw:
            del self.held[number]
        for ask in plan.create:
            self.number += 1
            self.held[self.number] = Held(self.number, ask, ask.node_id, None, self.now_s)
        return plan

    def start(self, number, place=None):
        """Have an agent come up."""
        ask = self.held[number].ask
        place = place or ask.node_id
        self.held[number] = Held(number, ask, place, self.now_s, self.now_s)
        self._take(place, ask.shape, 1)

    def start_all(self):
        for number, held in list(self.held.items()):
            if held.up_s is None and held.ask.node_id:
                self.start(number)

    def end(self, number, *, is_release=False):
        held = self.held.pop(number)
        if held.up_s is not None and held.node_id in self.nodes:
            self._take(held.node_id, held.ask.shape, -1)
        if is_release:
            self.placement.note_release(held, self.now_s)
        else:
            self.placement.note_end(held, self.now_s, "it died")

    def _take(self, place, shape, sign):
        known = self.nodes[place]
        free = {
            name: amount - sign * shape.get(name, 0) for name, amount in known.available.items()
        }
        self.nodes[place] = RayNode(place, place, "", known.total, free, known.labels)

    @property
    def waiting(self):
        return [held.ask for held in self.held.values() if held.up_s is None]


# What there is room for.


def test_each_node_gets_an_agent_of_its_own_size():
    cluster = Cluster(node("a"), node("b", {"CPU": 8.0, "GPU": 2.0, "licence": 3.0}))
    assert cluster.step().create == [
        Ask({"CPU": 4.0}, "a"),
        Ask({"CPU": 8.0, "GPU": 2.0, "licence": 3.0}, "b"),
    ]
    assert cluster.step(1).create == []
    cluster.start_all()
    assert cluster.step(60).create == []


def test_a_node_that_can_run_nothing_gets_none():
    assert Cluster(node("head", {"licence": 1.0})).step().create == []


def test_a_node_that_joins_later_gets_one_too():
    cluster = Cluster(node("a"))
    cluster.step()
    cluster.start_all()
    cluster.nodes["b"] = node("b")
    assert cluster.step(1).create == [Ask(CPUS, "b")]


def test_there_are_no_more_than_the_limit():
    cluster = Cluster(node("a"), node("b"), node("c"), max_nodes=2)
    assert [ask.node_id for ask in cluster.step().create] == ["a", "b"]
    assert cluster.step(1).create == []


def test_an_agent_of_a_given_size_leaves_the_rest_of_its_node_to_others():
    cluster = Cluster(node("a"), node("b", {"CPU": 1.0}), node("c"), shape={"CPU": 2.0})
    assert [ask.node_id for ask in cluster.step().create] == ["a", "c"]
    cluster.start_all()
    assert cluster.step(60).create == []


def test_another_agent_is_asked_for_on_other_nodes_only():
    cluster = Cluster(node("a"), shape={"CPU": 2.0})
    cluster.step()
    cluster.start_all()
    cluster.unmet = [({"cpu": 1.0}, {}, 2)]
    (ask,) = cluster.step(60).create
    assert ask == Ask({"CPU": 2.0}, "", {"ray.io/node-id": "!in(a)"})


def test_a_node_that_leaves_or_has_other_labels_gets_none():
    cluster = Cluster(
        node("a", is_draining=True, labels={"zone": "x"}),
        node("b", labels={"zone": "x"}),
        node("c", labels={"zone": "y"}),
        selector={"zone": "x"},
    )
    assert [ask.node_id for ask in cluster.step().create] == ["b"]


def test_what_others_leave_of_a_node_is_taken_after_some_seconds():
    cluster = Cluster(node("a", available={"CPU": 2.5}))
    assert cluster.step().create == []
    assert cluster.step(5).create == []
    assert cluster.step(5).create == [Ask({"CPU": 2.0}, "a")]
    (remark,) = cluster.remarks
    assert "trials get 2 CPU of 4 CPU" in remark


def test_a_node_that_is_in_use_for_a_moment_is_waited_for():
    cluster = Cluster(node("a", available={"CPU": 2.5}))
    cluster.step()
    cluster.nodes["a"] = node("a")
    assert cluster.step(9).create == [Ask(CPUS, "a")]
    assert cluster.remarks == []


def test_nothing_is_taken_where_nothing_is_left():
    cluster = Cluster(node("a", available={"CPU": 0.5}))
    cluster.step()
    assert cluster.step(60).create == []


# Agents that end.


def test_a_lost_agent_is_asked_for_again():
    cluster = Cluster(node("a"))
    cluster.step()
    cluster.start_all()
    cluster.now_s += 100
    cluster.end(1)
    assert cluster.step().create == [Ask(CPUS, "a")]


def test_one_that_keeps_ending_at_once_is_tried_after_growing_pauses_and_never_given_up():
    cluster = Cluster(node("a"))
    pauses_s = []
    for number in range(1, 12):
        cluster.now_s += 1.0  # it takes this long to start it
        began_s = cluster.now_s
        while not cluster.step().create:
            cluster.now_s += 1.0
        pauses_s.append(cluster.now_s - began_s)
        cluster.start_all()
        cluster.end(number)
    assert pauses_s == [0, 0, 4, 9, 19, 39, 79, 159, 319, 599, 599]
    (remark,) = cluster.remarks
    assert "3 agents in a row ended at once on node a" in remark
    assert "tried again after pauses of up to 10 minutes; the last one: it died" in remark


@pytest.mark.parametrize("shape", [None, CPUS])
def test_one_bad_node_does_not_end_asking_for_others(shape):
    cluster = filled(shape=shape)
    cluster.nodes["bad"] = node("bad")
    for number in range(3, 8):
        while not cluster.step(1).create:
            pass
        cluster.end(number)
    cluster.unmet = [({"cpu": 1.0}, {}, 4)]
    (ask,) = cluster.step(1).create
    assert (ask.node_id, ask.selector) == ("", {"ray.io/node-id": "!in(bad)"})


def test_what_ray_could_not_start_anywhere_is_asked_for_again_and_a_success_ends_the_pauses():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 4.0}, {}, 1)]
    for number in range(3, 9):
        while not cluster.step(1).create:
            pass
        cluster.end(number)  # no node is known
    assert "nodes that Ray adds" in cluster.remarks[0]
    while not cluster.step(1).create:
        pass
    cluster.nodes["c"] = node("c")
    cluster.start(9, "c")
    cluster.placement.note_up(cluster.held[9])
    cluster.unmet = [({"cpu": 4.0}, {}, 2)]
    assert len(cluster.step(20).create) == 2


def test_a_long_life_makes_up_for_earlier_failures():
    cluster = Cluster(node("a"))
    for number in range(1, 9):
        assert len(cluster.step(10).create) == 1
        cluster.start_all()
        cluster.now_s += 100 if number % 2 else 0
        cluster.end(number)


def test_a_released_node_gets_an_agent_again_when_something_waits():
    cluster = Cluster(node("a"), node("b"))
    cluster.step()
    cluster.start_all()
    cluster.now_s += 100
    cluster.end(1, is_release=True)
    assert cluster.step().create == []
    cluster.unmet = [({"cpu": 1.0}, {}, 1)]
    assert cluster.step(1).create == [Ask(CPUS, "a")]


# More than there is room for.


def filled(**settings):
    cluster = Cluster(node("a"), node("b"), **settings)
    cluster.step()
    cluster.start_all()
    cluster.now_s += 100
    return cluster


def test_what_waits_makes_ray_add_nodes_up_to_the_limit():
    cluster = filled(shape=CPUS, max_nodes=4)
    cluster.unmet = [({"cpu": 1.0}, {}, 100)]
    assert cluster.step().create == [Ask(CPUS, "", {})] * 2
    assert cluster.step(1).create == []


def test_no_more_is_asked_for_than_what_waits_needs():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 1.0}, {}, 5), ({"cpu": 2.0}, {"zone": "x"}, 1)]
    assert cluster.step().create == [Ask(CPUS, "", {})] * 2 + [Ask(CPUS, "", {"zone": "x"})]


def test_what_fits_no_agent_asks_for_none():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 5.0}, {}, 1), ({"cpu": 1.0, "gpu": 1.0}, {}, 1)]
    assert cluster.step().create == []


def test_an_agent_that_just_came_takes_what_waits():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 1.0}, {}, 4)]
    cluster.step()
    cluster.nodes["c"] = node("c")
    cluster.start(3, "c")
    assert cluster.step().create == []
    assert len(cluster.step(20).create) == 1  # it still waits


def test_what_is_no_longer_needed_is_withdrawn_after_some_seconds():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 4.0}, {}, 3)]
    cluster.step()
    cluster.unmet = [({"cpu": 4.0}, {}, 1)]
    assert cluster.step(10).withdraw == []
    assert cluster.step(30).withdraw == [4, 5]
    cluster.unmet = []
    assert cluster.step(10).withdraw == []
    assert cluster.step(30).withdraw == [3]


def test_a_node_that_comes_goes_to_those_that_wait_already():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 4.0}, {}, 1)]
    cluster.step()
    cluster.nodes["c"] = node("c")
    assert cluster.step(1).create == []


def test_a_node_that_comes_instead_of_what_was_waited_for_is_used():
    cluster = filled(shape=CPUS, max_nodes=3)
    cluster.unmet = [({"cpu": 4.0}, {"zone": "x"}, 1)]
    cluster.step()
    cluster.nodes["c"] = node("c", labels={"zone": "y"})
    plan = cluster.step(1)
    assert plan.create == [Ask(CPUS, "c")]
    assert plan.withdraw == [3]


def test_with_whole_nodes_a_probe_of_the_size_of_a_node_asks_for_one():
    cluster = filled(max_nodes=5)
    cluster.unmet = [({"cpu": 1.0}, {"zone": "x"}, 6)]
    cluster.nodes["a"] = node("a", available={}, labels={"zone": "x"})
    probe = Ask({"CPU": 4.0}, "", {"zone": "x"}, is_probe=True)
    assert cluster.step().create == [probe] * 2
    assert cluster.step(1).create == []


def test_a_probe_without_a_node_to_go_by_asks_for_one_trial():
    cluster = Cluster()
    cluster.unmet = [({"cpu": 2.0, "gpu": 1.0}, {}, 1)]
    assert cluster.step().create == [Ask({"CPU": 2.0, "GPU": 1.0}, "", {}, is_probe=True)]


def test_a_probe_does_not_take_a_part_of_a_node_that_is_there():
    cluster = filled()
    cluster.nodes["c"] = node("c", {"CPU": 8.0}, available={"CPU": 4.0})
    cluster.unmet = [({"cpu": 4.0}, {}, 1)]
    (probe,) = cluster.step().create
    assert probe.selector == {"ray.io/node-id": "!in(c)"}
    assert cluster.step(1).withdraw == []


def test_a_probe_makes_room_for_the_agent_of_the_node_that_has_come():
    cluster = filled(max_nodes=3)
    cluster.unmet = [({"cpu": 4.0}, {}, 9)]
    assert [ask.is_probe for ask in cluster.step().create] == [True]
    cluster.nodes["c"] = node("c")
    plan = cluster.step(1)
    assert plan.create == [Ask(CPUS, "c")]
    assert plan.withdraw == [3]


def test_the_number_of_those_that_wait_is_limited():
    cluster = filled(shape=CPUS)
    cluster.unmet = [({"cpu": 4.0}, {}, 10_000)]
    assert len(cluster.step().create) == 100
    assert cluster.step(1).create == []


def test_one_that_waits_in_vain_on_its_node_is_withdrawn_at_last():
    cluster = Cluster(node("a"))
    cluster.step()
    cluster.nodes["a"] = node("a", available={})
    assert cluster.step(200).withdraw == []
    assert cluster.step(200).withdraw == [1]


# Arithmetic and labels.


def test_a_request_fits_as_often_as_its_scarcest_resource():
    assert num_fitting({"CPU": 2, "GPU": 0.5}, {"CPU": 16, "GPU": 3}) == 6
    assert num_fitting({"CPU": 0.1}, {"CPU": 0.3}) == 3  # in binary 0.3 is less than 3 x 0.1
    assert num_fitting({"CPU": 1, "licence": 1}, {"CPU": 16}) == 0
    assert num_fitting({"CPU": 0}, {}) == 1


def test_names_are_translated():
    assert to_ray({"cpu": 1.0, "gpu": 2.0, "licence": 3.0}) == {"CPU": 1, "GPU": 2, "licence": 3}
    assert from_ray({"CPU": 4, "licence": 1}) == {"cpu": 4.0, "gpu": 0.0, "licence": 1.0}


def test_what_trials_cannot_use_is_left_out():
    total = {
        "CPU": 4.0, "GPU": 1.0, "licence": 2.0, "memory": 1e9, "object_store_memory": 1e8,
        "node:10.0.0.1": 1.0, "node:__internal_head__": 1.0, "accelerator_type:A100": 1.0,
        f"bundle_group_1_{'ab' * 18}": 1000.0, f"CPU_group_{'ab' * 18}": 2.0,
    }  # fmt: skip
    assert usable_amounts(total) == {"CPU": 4.0, "GPU": 1.0, "licence": 2.0}


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [
        ("a", True), ("b", False), ("!a", False), ("!b", True), ("in(a, b)", True),
        ("in(b,c)", False), ("!in(a,b)", False), ("!in(b)", True),
    ],
)  # fmt: skip
def test_selectors_are_those_of_ray(wanted, is_met):
    assert is_match({"zone": "a"}, {"zone": wanted}) is is_met
    assert is_match({}, {"zone": wanted}) is wanted.startswith("!")


def test_a_node_is_read_from_what_ray_says():
    info = {
        "NodeID": "ab", "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "one",
        "Resources": {"CPU": 4.0}, "Labels": {"zone": "a"}, "Alive": True,
    }  # fmt: skip
    read = node_of(info, {"CPU": 1.0}, is_draining=True)
    assert read == RayNode("ab", "one", "10.0.0.1", CPUS, {"CPU": 1.0}, {"zone": "a"}, True)
