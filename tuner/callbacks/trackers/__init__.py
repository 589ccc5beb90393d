"""Callbacks that report trials to experiment trackers: MLflow, Weights & Biases, Comet.

Only the module of a tracker imports its library, when the callback is used; calls are queued
so that a slow service does not stall the experiment. Log files are in `tuner.callbacks.files`.
"""
