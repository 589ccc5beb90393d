"""Modules that the first worker imported are preloaded for the next (small ones, not torch)."""

import socket
import sys
import types
from unittest import mock

import pytest

import tuner as tune
from tuner.execution import preload
from tuner.execution.local import zygote_supervisor
from tuner.execution.local.zygote_protocol import Preload, receive_request, send_request


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """Keep this process from collecting and freezing all objects of all tests."""
    monkeypatch.setattr(preload, "gc", mock.Mock(spec=("collect", "freeze")))


def test_only_modules_known_to_be_safe_are_preloaded(monkeypatch):
    monkeypatch.setattr(preload, "MODULES", ("colorsys",))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    were_missing = preload.missing()
    assert were_missing == ("colorsys",)
    preload.import_module("turtle")
    assert preload.imported_since(were_missing) == []
    preload.import_module("colorsys")
    assert isinstance(sys.modules["colorsys"], types.ModuleType)
    assert preload.imported_since(were_missing) == ["colorsys"]
    assert preload.missing() == ()


def test_a_module_that_cannot_be_imported_is_ignored(monkeypatch):
    monkeypatch.setattr(preload, "MODULES", ("no_such_module_at_all",))
    preload.import_module("no_such_module_at_all")


def test_a_preload_request_is_encoded_and_decoded(socket_pair):
    ours, theirs = socket_pair
    send_request(ours, Preload(3))
    assert receive_request(theirs) == Preload(3)


@pytest.fixture
def socket_pair():

    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.heavy
def test_the_second_worker_need_not_import_the_module(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    # One that serves from an earlier experiment may have the module already.
    monkeypatch.setattr(zygote_supervisor, "_kept", None)

    def train(config):
        is_there = "torch._dynamo" in sys.modules
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        tune.report({"was_there": is_there})

    grid = tune.Tuner(
        train,
        tune_config=tune.TuneConfig(num_samples=4, max_concurrent_trials=1),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()
    was_there = [result.metrics["was_there"] for result in grid]
    # A standby worker may have been forked before the zygote got the request.
    assert (was_there[0], was_there[-1]) == (False, True)
