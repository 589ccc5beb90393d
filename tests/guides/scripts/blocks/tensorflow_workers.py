"""TensorFlow: two workers with `MultiWorkerMirroredStrategy`, of which the chief saves."""

import os
import sys

import tensorflow as tf

from tuner import train
from tuner.train.tensorflow import TensorflowTrainer


def _chief_worker(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def train_func(config):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    resolver = strategy.cluster_resolver
    is_chief = _chief_worker(resolver.task_type, resolver.task_id)
    own = os.path.join(train.get_context().get_trial_dir(), f"manager-{resolver.task_id}")
    manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=3)
    for _ in range(4):
        # Saving variables of this strategy is a collective: all workers save, the chief's counts.
        path = manager.save()
        reported = train.Checkpoint.from_directory(own) if is_chief else None
        train.report({"saved": os.path.basename(path), "chief": is_chief}, reported)


if __name__ == "__main__":
    result = TensorflowTrainer(
        train_func,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="workers", storage_path=sys.argv[1]),
    ).fit()
    print("chief:", result.metrics["chief"], "last:", result.metrics["saved"])
    with result.checkpoint.as_directory() as directory:
        print(os.path.basename(tf.train.latest_checkpoint(directory)))
        print(sum(name.endswith(".index") for name in os.listdir(directory)), "kept")
