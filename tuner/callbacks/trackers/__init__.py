"""Callbacks that report trials to experiment trackers: MLflow, Weights & Biases, Comet.

A tracker's library is imported in its own module alone, when the callback is used; calls are queued
so that a slow service does not stall the experiment. Log files are in `tuner.callbacks.files`.
"""
