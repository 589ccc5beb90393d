"""A small network in Keras on PyTorch, whose learning rate a callback changes."""

import json
import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

import tuner as tune
from tuner.integration.keras import TuneReportCheckpointCallback, resume


class Witness(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        Path(tune.get_context().get_trial_dir(), "closed.json").write_text(json.dumps("success"))


def data():
    x = np.random.default_rng(0).random((32, 4), dtype="float32")
    return x, x.sum(1)


def hide_tensorflow():
    """Keep Keras from loading TensorFlow, which takes seconds, in each process that saves."""
    sys.modules.setdefault("tensorflow", None)


def loss_of(checkpoint):
    """Return the loss of the model in a checkpoint."""
    hide_tensorflow()
    return TuneReportCheckpointCallback.get_model(checkpoint).evaluate(*data(), verbose=0)


def train(config):
    hide_tensorflow()
    keras.utils.set_random_seed(0)
    x, y = data()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(config["lr"]), loss="mse")
    halving = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    report = TuneReportCheckpointCallback(metrics={"loss": "val_loss", "rate": "learning_rate"})
    options = {
        "validation_data": (x, y),
        "shuffle": False,
        "verbose": 0,
        "callbacks": [halving, Witness(), report],
    }
    model.fit(x, y, epochs=4, initial_epoch=resume(model), **options)
