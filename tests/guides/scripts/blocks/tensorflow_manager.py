"""TensorFlow: a manager that keeps three checkpoints, inside the scope of a strategy."""

import os
import tempfile

import tensorflow as tf

directory = tempfile.mkdtemp(dir=".")
strategy = tf.distribute.MirroredStrategy(["cpu:0"])
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((10,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, directory=directory, max_to_keep=3)


def _chief_worker(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


for _ in range(5):
    if _chief_worker(None, None):
        manager.save()
print([os.path.basename(path) for path in manager.checkpoints])
print([_chief_worker(kind, 0) for kind in (None, "chief", "worker", "evaluator")])
print(_chief_worker("worker", 1))

status = checkpoint.restore(manager.latest_checkpoint)
status.assert_consumed()

tf.keras.mixed_precision.set_global_policy("mixed_float16")
print(tf.keras.layers.Dense(1).compute_dtype)
tf.keras.mixed_precision.set_global_policy("float32")

tf.saved_model.save(model, os.path.join(directory, "whole"))
loaded = tf.saved_model.load(os.path.join(directory, "whole"))
(output,) = loaded.signatures["serving_default"](tf.ones((1, 10))).values()
print(output.shape)
