"""DEHB through ask and tell. A configuration that is promoted goes on where it stands."""

from __future__ import annotations

import tempfile
from typing import Any

from dehb import DEHB

from .dialogue import CONTINUE, Order, Setting, serve
from .spaces import configuration_space, plain


class DehbOptimizer:
    """An optimizer that is asked for trials."""

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
            # Its own workers are not used where it is asked and told; it takes any number of open
            # questions.
            n_workers=1,
            save_freq="end",
            output_path=tempfile.mkdtemp(dir="."),
            log_level="ERROR",
        )
        self._running: dict[str, Any] = {}

    def ask(self) -> Order:
        """Return what is to be evaluated next."""
        job = self._dehb.ask()
        name = str(job["config_id"])
        # Asked for twice at once; one of them has to start from nothing.
        while name in self._running:
            name += "+"
        self._running[name] = job
        return Order(name, plain(job["config"], self._setting.space), round(job["fidelity"]))

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Let it train: only what a fidelity comes to is of interest."""
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Tell what a fidelity has come to."""
        self._dehb.tell(self._running.pop(trial), {"fitness": value, "cost": cost_s})


if __name__ == "__main__":
    serve(DehbOptimizer, ("DEHB", "ConfigSpace"))
