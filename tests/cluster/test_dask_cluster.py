"""Ways to name a Dask cluster, none of which connects to it or imports Dask."""

import pickle
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tuner import DaskCluster


class Security:
    """Has what a `distributed.Security` has."""

    extra_conn_args = {}  # noqa: RUF012
    require_encryption = True
    tls_ca_file = "ca"
    tls_ciphers = None
    tls_client_cert = "certificate"
    tls_client_key = "key"
    tls_max_version = tls_min_version = None
    tls_scheduler_key = tls_worker_key = "not for clients"

    def get_connection_args(self, role):
        raise AssertionError


@dataclass
class LocalCluster:
    scheduler_address: str
    security: object = None
    status: object = None


@dataclass
class Client:
    scheduler: object
    security: object = None
    status: str = "running"


@pytest.mark.parametrize(
    ("cluster", "address"),
    [
        ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786"),
        ("tls://scheduler.lab:8786", "tls://scheduler.lab:8786"),
        ("scheduler.lab:8786", "tcp://scheduler.lab:8786"),
        (LocalCluster("tcp://127.0.0.1:3"), "tcp://127.0.0.1:3"),
        (Client(SimpleNamespace(address="tcp://127.0.0.1:4")), "tcp://127.0.0.1:4"),
    ],
)
def test_an_address_may_be_given_in_several_ways(cluster, address):
    given = DaskCluster(cluster)
    settings = given.settings()
    assert settings == {
        "address": address,
        "scheduler_file": None,
        "security": None,
        "connect_timeout_s": 30.0,
        "lease_s": 20.0,
    }
    assert given.describe() == f"the Dask cluster at {address}"
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301


@pytest.mark.parametrize("as_given", [str, lambda path: path])
def test_a_scheduler_file_may_be_given(as_given, tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    cluster = DaskCluster(as_given(file))
    settings = cluster.settings()
    assert (settings["address"], settings["scheduler_file"]) == (None, str(file))
    assert cluster.describe() == f"the Dask cluster of {file}"


@pytest.mark.parametrize(
    "cluster",
    [
        DaskCluster("10.0.0.1:8786", security=Security()),
        DaskCluster(LocalCluster("tls://10.0.0.1:8786", Security())),
        DaskCluster(Client(SimpleNamespace(address="tls://10.0.0.1:8786"), Security())),
    ],
)
def test_certificates_are_passed_on_but_no_keys_of_the_cluster(cluster):
    settings = cluster.settings()
    assert settings["address"] == "tls://10.0.0.1:8786"
    assert settings["security"]["tls_client_key"] == "key"
    assert "not for clients" not in settings["security"].values()
    assert "key" not in cluster.describe()


@pytest.mark.parametrize(
    ("cluster", "options", "kind", "message"),
    [
        (3, {}, TypeError, "cluster must be an address such as .* got 3"),
        (None, {}, TypeError, "cluster must be an address"),
        (Client(None), {}, TypeError, "a connected distributed.Client"),
        ("inproc://1/2", {}, ValueError, r"got 'inproc://1/2'; use LocalCluster\(processes=True\)"),
        ("gateway://a:1/2", {}, ValueError, "; run the driver inside the cluster"),
        ("http://10.0.0.1", {}, ValueError, "must begin with one of tcp, tls, .* got 'http://10"),
        (LocalCluster("<Not Connected>"), {}, ValueError, "got '<Not Connected>'"),
        ("missing.json", {}, ValueError, r"missing.json'; start .* --scheduler-file"),
        (
            LocalCluster("tcp://127.0.0.1:3", status=SimpleNamespace(name="closed")),
            {},
            ValueError,
            "cluster must be open, got .* which is closed",
        ),
        (
            Client(SimpleNamespace(address="tcp://127.0.0.1:3"), status="closed"),
            {},
            ValueError,
            "which is closed",
        ),
        ("tcp://a:1", {"security": "key.pem"}, TypeError, "must be a distributed.Security, got 'k"),
        ("tcp://a:1", {"connect_timeout_s": 0}, ValueError, "must be above 0 seconds, got 0"),
        ("tcp://a:1", {"connect_timeout_s": "3s"}, TypeError, "a number of seconds, got '3s'"),
    ],
)
def test_arguments_are_checked(cluster, options, kind, message):
    with pytest.raises(kind, match=message):
        DaskCluster(cluster, **options)
