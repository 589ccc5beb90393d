"""The loop that runs an experiment, and what stands around it.

The driver waits for events, folds them, writes them down, tells observers, and acts. Here are also
the snapshots, control requests, signals, and `run`, which puts an experiment together; the state
machine is in `tuner.core`, and processes are in `tuner.execution`.
"""
