"""What a Ray cluster is given as."""

import pickle

import pytest

from tuner.cluster.cluster import RayCluster


def test_all_fields_have_defaults():
    assert RayCluster().settings() == {
        "address": "auto",
        "agent_resources": None,
        "max_nodes": None,
        "runtime_env": None,
        "namespace": None,
        "label_selector": {},
        "lease_s": 20.0,
    }


def test_settings_are_plain_and_in_the_names_of_ray():
    cluster = RayCluster(
        "10.0.0.1:6379",
        agent_resources={"cpu": 16, "GPU": 4, "licence": 1, "spare": 0},
        max_nodes=20,
        runtime_env={"working_dir": "."},
        namespace="tuning",
        label_selector={"zone": "in(a, b)", "spot": "!true"},
    )
    settings = cluster.settings()
    assert settings["agent_resources"] == {"CPU": 16.0, "GPU": 4.0, "licence": 1.0}
    assert settings["label_selector"] == {"zone": "in(a, b)", "spot": "!true"}
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301  (made here)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("auto", "the Ray cluster at auto"),
        (None, "the Ray cluster at auto"),
        ("local", "a Ray cluster of this machine"),
        ("head:6379", "the Ray cluster at head:6379"),
        ("[::1]:6379", "the Ray cluster at [::1]:6379"),
    ],
)
def test_messages_name_the_cluster(address, text):
    assert RayCluster(address).describe() == text


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"address": 6379}, TypeError, "or an address such as '10.0.0.1:6379', got 6379"),
        ({"address": "head"}, ValueError, "got 'head'"),
        ({"address": "ray://head:10001"}, ValueError, "ray job submit"),
        ({"max_nodes": 0}, ValueError, "max_nodes must be at least 1"),
        ({"max_nodes": 2.0}, TypeError, "max_nodes must be a whole number"),
        ({"agent_resources": 4}, TypeError, "or None for whole nodes, got 4"),
        ({"agent_resources": {}}, ValueError, "must contain 'CPU' or 'GPU', got {}"),
        ({"agent_resources": {"CPU": -1}}, ValueError, "-1"),
        ({"agent_resources": {"CPU": 1, "cpu": 2}}, ValueError, "cpu"),
        ({"agent_resources": {"CPU": 4, "GPU": 0.5}}, ValueError, "must ask for whole GPUs"),
        ({"runtime_env": "."}, TypeError, "such as {'working_dir': '.'} or None, got '.'"),
        ({"namespace": ""}, TypeError, "namespace must be a text or None, got ''"),
        ({"label_selector": {1: "a"}}, TypeError, "label_selector must be a dictionary"),
        ({"label_selector": {"zone": "in()"}}, ValueError, "got 'zone': 'in()'"),
        ({"label_selector": {"zone": None}}, ValueError, "got 'zone': None"),
    ],
)
def test_values_are_checked_at_construction(arguments, error, says):
    with pytest.raises(error) as refused:
        RayCluster(**arguments)
    assert says in str(refused.value)
