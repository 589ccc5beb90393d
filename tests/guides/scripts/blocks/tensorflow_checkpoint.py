"""TensorFlow: what `tf.train.Checkpoint` writes is a checkpoint of a run, and is restored.

The model of the guide has `input_shape` in its layer; Keras now asks for an `Input`.
"""

import os
import shutil
import sys
import tempfile

import tensorflow as tf

import tuner.train
from tuner import train
from tuner.train.tensorflow import TensorflowTrainer


def build():
    model = tf.keras.Sequential([tf.keras.Input((10,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
    return model, optimizer, tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_func(config):
    model, optimizer, checkpoint = build()
    optimizer.build(model.trainable_variables)
    start = 0
    if latest := train.get_checkpoint():
        with latest.as_directory() as checkpoint_dir:
            latest_checkpoint = tf.train.latest_checkpoint(checkpoint_dir)
            checkpoint.restore(latest_checkpoint).assert_consumed()
        start = int(optimizer.iterations.numpy())
    print("starts with step", start)
    for step in range(start, 4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((1, 10))) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        with tempfile.TemporaryDirectory() as checkpoint_dir:
            checkpoint_prefix = f"{checkpoint_dir}/ckpt"
            checkpoint.save(file_prefix=checkpoint_prefix)
            train.report({"loss": float(loss)}, train.Checkpoint.from_directory(checkpoint_dir))
        if step == 1 and start == 0:
            raise RuntimeError("a failure, to show how it is survived")


if __name__ == "__main__":
    result = TensorflowTrainer(
        train_func,
        run_config=train.RunConfig(
            name="checkpoint",
            storage_path=sys.argv[1],
            failure_config=tuner.train.FailureConfig(max_failures=1),
        ),
    ).fit()
    print("rows:", len(result.metrics_dataframe))
    with result.checkpoint.as_directory() as directory:
        model, optimizer, checkpoint = build()
        optimizer.build(model.trainable_variables)
        checkpoint.restore(tf.train.latest_checkpoint(directory)).assert_consumed()
    print("steps saved:", int(optimizer.iterations.numpy()))
    copy = os.path.join(tempfile.mkdtemp(dir="."), "copy")
    result.checkpoint.to_directory(copy)
    print("a copy is found:", tf.train.latest_checkpoint(copy) == os.path.join(copy, "ckpt-4"))
    shutil.rmtree(os.path.dirname(copy))
