"""An engine whose only agent says what it is told, for tests of the gateway."""

import os
import sys

from tuner.errors import ClusterError


class EchoEngine:
    """See `Engine`."""

    def __init__(self, settings, token, relay):
        self.settings, self.token, self.relay = settings, token, relay

    def open(self, known):
        if why := self.settings.get("fails"):
            raise ClusterError(why)
        self.relay.agent_up("a", {"token": self.token, "known": list(known)})
        return {"address": "here", "version": "1"}

    def tell(self, agent, lines):
        if lines == ["die"]:
            sys.stderr.write("a library's last words\n")
            sys.stderr.flush()
            os._exit(3)
        self.relay.received(agent, lines)

    def demand(self, unmet):
        self.relay.remark(f"{unmet}")

    def evict(self, agent, why):
        self.relay.agent_gone(agent, why)

    def close(self, deadline_s):
        pass
