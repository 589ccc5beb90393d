"""Benchmarks of the engine's overhead on this machine: ``python -m benchmarks``.

Each benchmark is one file, runs in a separate process (``python -m benchmarks.trial_rate``) and
prints its figures next to their goals, which are never asserted. Where Ray Tune is installed,
``python -m benchmarks.ray_tune`` runs the same workloads with it.
"""

import os

# Byte code is installed with a package or written by the first import, so the time to compile
# modules must not be part of the measurement.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
