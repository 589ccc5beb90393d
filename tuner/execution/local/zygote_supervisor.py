"""Keeps a zygote running for the executor: another one when it dies, and which kind of one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, final

from tuner.errors import TunerError

from .launcher import Launcher
from .trainable_blob import TrainableBlob

_MAX_DEATHS: Final = 3
"""After this many deaths in a row, with no trial ending in between, there is no further zygote."""

_log = logging.getLogger(__name__)


@final
class ZygoteSupervisor:
    """Starts zygotes, one after the other.

    Attributes:
        launcher: The current zygote.
    """

    def __init__(self, blob: TrainableBlob, method: str, environ: Mapping[str, str]) -> None:
        """Start the first one, without waiting for it; for the arguments see `Launcher`."""
        self._blob, self._method, self._environ = blob, method, environ
        self._num_deaths = self._exit_code = 0
        self.launcher = self._launch()

    def _launch(self) -> Launcher:
        return Launcher(self._blob, self._method, self._environ)

    def note_progress(self) -> None:
        """Note that a process has ended as it should; earlier deaths of zygotes no longer count."""
        self._num_deaths = 0

    def spawn_from_now_on(self, reason: str) -> None:
        """Have further zygotes spawn workers, and say why if they have forked them so far."""
        if self._method == "fork":
            self._method = "spawn"
            _log.warning(
                "each trial loads the trainable anew, which takes longer, "
                "because a process cannot be forked with it: %s",
                reason,
            )

    def close_dead(self) -> None:
        """Reap a zygote that has died, and warn of its death."""
        self._exit_code = self.launcher.close()
        self._num_deaths += 1
        _log.warning(
            "the process that starts the trials died (exit code %d); "
            "running trials are lost, another is started",
            self._exit_code,
        )
        if not self.launcher.is_ready:
            # Forking again would load it again in the zygote, with the same result.
            self.spawn_from_now_on("loading it ends the process")

    def replace(self) -> None:
        """Start another zygote.

        Raises:
            TunerError: If several have died in a row.
        """
        if self._num_deaths >= _MAX_DEATHS:
            raise TunerError(
                f"the process that starts the trials died {self._num_deaths} times in a row, "
                f"at last with exit code {self._exit_code}"
            )
        self.launcher = self._launch()
