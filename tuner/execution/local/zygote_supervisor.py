"""Keeps a zygote running for the executor: another one when it dies, and which kind of one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final, final

from tuner.errors import TunerError

from . import kept_zygote
from .launcher import Launcher
from .orphans import VARIABLE
from .trainable_blob import TrainableBlob

_MAX_DEATHS: Final = 3
"""After this many deaths in a row, with no trial ending in between, there is no further zygote."""

_PARK_S: Final = 2.0
"""How long a zygote may take to end its workers and to forget the trainable."""

_log = logging.getLogger(__name__)


@final
class ZygoteSupervisor:
    """Starts zygotes, one after the other.

    Attributes:
        launcher: The current zygote.
    """

    def __init__(
        self,
        blob: TrainableBlob,
        method: str,
        environ: Mapping[str, str],
        *,
        is_kept: bool = False,
    ) -> None:
        """Start the first one, without waiting for it.

        Args:
            blob: The trainable.
            method: See `Launcher`.
            environ: See `Launcher`.
            is_kept: Whether one is kept for the next experiment of this process at the end, and
                one of an earlier experiment is used, see `kept_zygote`.
        """
        self._blob, self._method, self._environ = blob, method, environ
        self._num_deaths = self._exit_code = 0
        self._surroundings = (
            kept_zygote.Surroundings.of_this_process(environ, blob["kill_grace_s"])
            if is_kept and method == "fork" and VARIABLE in environ
            else None
        )
        self.launcher = self._kept() or self._launch()

    def _kept(self) -> Launcher | None:
        launcher = kept_zygote.take(self._surroundings)
        if launcher and not launcher.load_again(self._blob, self._environ[VARIABLE]):
            launcher.close()
            return None
        return launcher

    def start_over(self) -> None:
        """Start a new zygote in the place of one that could not load another trainable."""
        earlier, self.launcher = self.launcher, self._launch()
        self.launcher.take_over(earlier)
        earlier.close()

    def close(self, deadline_s: float) -> None:
        """End the zygote with all its processes, or keep it for the next experiment without them.

        After an exception nothing is kept.
        """
        surroundings = self._surroundings
        if (
            surroundings
            and self._method == "fork"
            and deadline_s > 0
            and sys.exc_info()[0] is None
            and self.launcher.park(min(deadline_s, _PARK_S))
        ):
            kept_zygote.keep(surroundings, self.launcher)
        else:
            self.launcher.close(deadline_s)

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
