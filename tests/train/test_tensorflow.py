"""What workers of TensorFlow are told, which needs no TensorFlow."""

import json
import os

import pytest

from tuner import train
from tuner.train.tensorflow import TensorflowConfig, TensorflowTrainer

pytestmark = pytest.mark.heavy


def test_workers_know_each_others_addresses(trainer):
    def tell(config):
        known = json.loads(os.environ["TF_CONFIG"])
        addresses = known["cluster"]["worker"]
        train.report({"task": known["task"], "addresses": addresses})

    seen = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.extend(metrics)

    trainer(tell, kind=TensorflowTrainer, run={"callbacks": [Keep()]}).fit()
    assert [own["task"] for own in seen] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    first, second = (own["addresses"] for own in seen)
    assert first == second
    assert len(set(first)) == 2


def test_a_single_worker_is_told_nothing(trainer):
    def tell(config):
        train.report({"is_told": "TF_CONFIG" in os.environ})

    result = trainer(tell, kind=TensorflowTrainer, num_workers=1).fit()
    assert result.metrics["is_told"] is False


def test_the_trainer_takes_a_tensorflow_config_only():
    with pytest.raises(TypeError, match="tensorflow_config"):
        TensorflowTrainer(lambda: None, tensorflow_config={})
    assert TensorflowTrainer(lambda: None).backend_config == TensorflowConfig()
