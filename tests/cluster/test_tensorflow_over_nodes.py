"""TensorFlow's processes on several nodes know each other, which needs no TensorFlow."""

import json
import os

import pytest

from tuner.core.events import Outcome, ResultReported, WorkerExited
from tuner.execution.session import report
from tuner.train import exchange
from tuner.train.collective import broadcast_from_rank_zero
from tuner.train.tensorflow import TensorflowConfig

pytestmark = pytest.mark.heavy


def tell_addresses(config):
    # No directory is shared by nodes whose experiment is in an object store.
    exchange._gather_in_directory = None
    TensorflowConfig().on_start()
    known = json.loads(os.environ["TF_CONFIG"])
    token = broadcast_from_rank_zero(known["task"]["index"])
    report({"task": known["task"], "addresses": known["cluster"]["worker"], "token": token})


def test_workers_on_several_nodes_know_each_others_addresses(few_nodes):
    nodes = few_nodes(tell_addresses)
    nodes.start()
    result = nodes.wait_for(ResultReported)
    assert [own["task"]["index"] for own in result.rank_metrics] == [0, 1, 2, 3]
    assert {own["token"] for own in result.rank_metrics} == {0}
    addresses = result.rank_metrics[0]["addresses"]
    assert all(own["addresses"] == addresses for own in result.rank_metrics)
    assert len(set(addresses)) == 4
    assert nodes.wait_for(WorkerExited).outcome is Outcome.COMPLETED
