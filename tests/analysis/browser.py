"""A headless browser that is controlled through a pipe."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress


class Browser:
    """Opens one page; to be used as a context.

    Args:
        program: Chromium's.
        profile: An empty directory for what it wants to keep.
    """

    def __init__(self, program, profile):
        self._program = program
        self._profile = profile
        self._number = 0
        self._session = None
        self._left = b""
        self.complaints = []

    def __enter__(self):
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
        ]
        # Its ends of the pipes have to be its descriptors 3 and 4.
        command = [
            "bash",
            "-c",
            f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
            "sh",
            self._program,
            *flags,
        ]
        self._process = subprocess.Popen(  # noqa: S603  (a browser on files of ours)
            command,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(self._profile)},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            self._begin()
        except BaseException:
            self._process.kill()
            self._process.wait(60)
            raise
        return self

    def _begin(self):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def __exit__(self, *error):
        self._session = None
        with suppress(OSError, EOFError):
            self.ask("Browser.close")
        os.close(self._out)
        os.close(self._in)
        self._process.wait(60)

    def ask(self, method, **params):
        """Send a command of the DevTools protocol and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (said := self._next()).get("id") != self._number:
            self._hear(said)
        assert "error" not in said, said
        return said["result"]

    def resize(self, width, height):
        """Give the window another size, as that of a telephone below 600 pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, uri):
        """Open a page and wait until its charts are drawn."""
        self.resize(1300, 900)
        self.ask("Page.navigate", url=uri)
        assert self.comes("document.body?.dataset.drawn"), "the charts are not drawn"

    def comes(self, condition):
        """Return whether a condition becomes true within a minute."""
        wait = (
            "const end = Date.now() + 60000; "
            f"const wait = () => ({condition}) || Date.now() > end ? done() : setTimeout(wait, 20);"
        )
        self.run(f"new Promise(done => {{ {wait} wait(); }})")
        return bool(self.run(condition))

    def run(self, script):
        """Return the value of an expression once it is available."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _next(self):
        while b"\0" not in self._left:
            received = os.read(self._in, 1 << 16)
            if not received:
                raise EOFError("the browser has gone")
            self._left += received
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _hear(self, said):
        match said.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(said["params"])
            case "Runtime.consoleAPICalled" if said["params"]["type"] in (
                "error",
                "warning",
                "assert",
            ):
                self.complaints.append(said["params"])
            case _:
                pass
