"""What the engine costs on this machine: ``python -m benchmarks``.

Each benchmark is one file, runs in a separate process (``python -m benchmarks.trial_rate``) and
prints its figures; goals stand beside them and are never asserted. Where Ray Tune is installed,
``python -m benchmarks.ray_tune`` measures the same for it.
"""

import os

# An installation brings the byte code of its modules, or the first import writes it: compiling them
# is not what is measured here.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
