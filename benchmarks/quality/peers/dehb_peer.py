"""DEHB through ask and tell; a promoted configuration continues where it stopped."""

from __future__ import annotations

import tempfile
from typing import Any

from dehb import DEHB

from .dialogue import CONTINUE, Order, Setting, serve
from .spaces import configuration_space, plain


class DehbOptimizer:
    """Adapter of an optimizer of DEHB."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        space = configuration_space(setting.space, setting.seed)
        self._dehb = DEHB(
            cs=space,
            dimensions=len(setting.space),
            min_fidelity=1,
            max_fidelity=setting.max_epochs,
            eta=3,
            seed=setting.seed,
            # Ask and tell does not use its workers, and allows any number of open jobs.
            n_workers=1,
            save_freq="end",
            output_path=tempfile.mkdtemp(dir="."),
            log_level="ERROR",
        )
        self._running: dict[str, Any] = {}

    def ask(self) -> Order:
        """Return the next evaluation."""
        job = self._dehb.ask()
        name = str(job["config_id"])
        # The same configuration may be asked for while it runs; the second trial starts anew.
        while name in self._running:
            name += "+"
        self._running[name] = job
        return Order(name, plain(job["config"], self._setting.space), round(job["fidelity"]))

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Continue: DEHB receives only the value at the end of a fidelity."""
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Report the value at the end of a fidelity."""
        self._dehb.tell(self._running.pop(trial), {"fitness": value, "cost": cost_s})


if __name__ == "__main__":
    serve(DehbOptimizer, ("DEHB", "ConfigSpace"))
