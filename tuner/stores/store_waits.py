"""Lines that say how many trials wait for an object store that does not answer, and how long."""

from __future__ import annotations

import logging
from typing import Final, final

from tuner.driver.storage_retry import waiting_line

_FIRST_S: Final = 10.0
PERIOD_S: Final = 5.0
"""How often to look while trials wait, in seconds."""

_log = logging.getLogger("tuner")


@final
class StoreWaits:
    """Prints a line after 10 s without an answer, 20 s, 40 s and so on, while trials wait.

    The store itself prints when it has begun and when it is over, see `Outage`.

    Args:
        url: The store, for messages.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._next_s = _FIRST_S

    def look(self, outage_s: float, num_trials: int) -> None:
        """Print a line if one is due.

        Args:
            outage_s: For how long the store has not answered; 0 if it does.
            num_trials: How many trials wait for it.
        """
        if not outage_s:
            self._next_s = _FIRST_S
        if not num_trials or outage_s < self._next_s:
            return
        _log.warning("%s", waiting_line(self._url, num_trials, outage_s))
        while self._next_s <= outage_s:
            self._next_s *= 2.0
