"""Save and restore TensorFlow trainings by `tf.train.Checkpoint` and by Keras, as checkpoints.

The first training is a loop of its own, in two processes, with `MultiWorkerMirroredStrategy`. It
saves through a `tf.train.CheckpointManager` that keeps three, beside ``num_to_keep=3``, of which
only the chief's directory is reported. It fails on purpose, and continues from the latest
checkpoint, where ``assert_consumed`` makes sure that every variable was restored. The second is a
Keras model whose callback reports and saves. Run it with ``python
examples/tensorflow_checkpoints.py``; it takes a minute on two cores and downloads nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tensorflow as tf
from sklearn.datasets import load_digits

from tuner import train
from tuner.integration.keras import resume
from tuner.train import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
)
from tuner.train.tensorflow import TensorflowTrainer
from tuner.train.tensorflow.keras import RayReportCallback

NUM_IMAGES = 1200


def network() -> Any:
    """Return a network with one hidden layer."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((64,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def is_chief(strategy: Any) -> bool:
    """Return whether this process is the one that saves; the same as rank 0."""
    resolver = strategy.cluster_resolver
    kind, number = resolver.task_type, resolver.task_id
    return kind is None or kind == "chief" or (kind == "worker" and number == 0)


def train_loop(config: dict[str, Any]) -> None:
    """Train in one of the workers, with a loop of one's own."""
    tf.keras.utils.set_random_seed(config["seed"])
    images, labels = load_digits(return_X_y=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():  # variables that all workers share are made here
        model = network()
        optimizer = tf.keras.optimizers.Adam(learning_rate=0.003)
        optimizer.build(model.trainable_variables)
        epochs_done = tf.Variable(0)
        saved = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    # Each worker writes into its own directory: on saving, the workers wait for each other.
    rank = train.get_context().get_world_rank()
    directory = Path(train.get_context().get_trial_dir(), f"manager-{rank}")
    manager = tf.train.CheckpointManager(saved, str(directory), max_to_keep=3)
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as path:
            saved.restore(tf.train.latest_checkpoint(path)).assert_consumed()
    is_first = checkpoint is None

    batches = tf.data.Dataset.from_tensor_slices(
        ((images[:NUM_IMAGES] / 16).astype("float32"), labels[:NUM_IMAGES])
    ).batch(64, drop_remainder=True)
    batches = strategy.experimental_distribute_dataset(batches)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(batch: Any) -> Any:
        def on_replica(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], model(batch[0]))
                loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(on_replica, args=(batch,)), axis=None)

    for epoch in range(int(epochs_done.numpy()), config["num_epochs"]):
        for batch in batches:
            loss = step(batch)
        epochs_done.assign_add(1)
        manager.save()
        reported = Checkpoint.from_directory(directory) if is_chief(strategy) else None
        train.report({"loss": float(loss), "epoch": epoch}, checkpoint=reported)
        if is_first and epoch == 1:
            raise RuntimeError("a failure on purpose")


def train_keras(config: dict[str, Any]) -> None:
    """Train with `model.fit`, whose callback reports and saves after each epoch."""
    tf.keras.utils.set_random_seed(config["seed"])
    images, labels = load_digits(return_X_y=True)
    model = network()
    model.compile(
        tf.keras.optimizers.Adam(0.003),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        images[:NUM_IMAGES] / 16,
        labels[:NUM_IMAGES],
        validation_data=(images[NUM_IMAGES:] / 16, labels[NUM_IMAGES:]),
        batch_size=64,
        epochs=config["num_epochs"],
        initial_epoch=resume(model),  # loads the latest checkpoint, if there is one
        callbacks=[RayReportCallback()],
        verbose=0,
    )


def fit(options: argparse.Namespace, name: str, loop: Any, workers: int) -> train.Result:
    """Train with one of the two functions, and return the result."""
    trainer: DataParallelTrainer = TensorflowTrainer(
        loop,
        train_loop_config={"num_epochs": options.epochs, "seed": options.seed},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name=f"tensorflow_{name}",
            storage_path=options.storage_path,
            checkpoint_config=CheckpointConfig(num_to_keep=3),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    return trainer.fit()


def main(options: argparse.Namespace) -> None:
    """Run both trainings, and print what was saved."""
    result = fit(options, "loop", train_loop, options.workers)
    losses = result.metrics_dataframe["loss"]
    print("\nLoss by epoch:", ", ".join(f"{loss:.3f}" for loss in losses))
    assert result.checkpoint is not None  # noqa: S101  (each epoch has saved one)
    with result.checkpoint.as_directory() as directory:
        state = tf.train.get_checkpoint_state(directory)
        names = [Path(path).name for path in state.all_model_checkpoint_paths]
        model, epochs_done = network(), tf.Variable(0)
        saved = tf.train.Checkpoint(model=model, epochs_done=epochs_done)
        saved.restore(tf.train.latest_checkpoint(directory)).expect_partial()
    print("Kept by the manager:", ", ".join(names))
    print("Checkpoints kept:", len(result.best_checkpoints))
    print("Epochs of the model restored:", int(epochs_done.numpy()))
    # The whole model, for serving, rather than only its variables.
    serving = Path(result.path, "serving")
    tf.saved_model.save(model, str(serving))
    print("For serving:", serving)

    result = fit(options, "keras", train_keras, 1)
    print("Keras:", ", ".join(sorted({"loss", "val_accuracy"} & set(result.metrics))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train")
    parser.add_argument("--epochs", type=int, default=5, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument(
        "--storage-path", help="where the runs' directories are made; default: ~/tuner_results"
    )
    main(parser.parse_args())
