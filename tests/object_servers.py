"""Fixtures of S3 servers on loopback, and a proxy that lets them fail."""

import http.client
import importlib.util
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from benchmarks.faults.s3_servers import ceph_gateway, moto_server, why_no_ceph


@pytest.fixture(scope="session")
def moto():
    """Return moto's S3 server."""
    for module in ("s3fs", "moto", "flask", "flask_cors"):
        if not importlib.util.find_spec(module):
            pytest.skip(f"{module} is not installed")
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def ceph():
    """Return Ceph's S3 server, where it is installed."""
    if reason := why_no_ceph():
        pytest.skip(reason)
    pytest.importorskip("s3fs")
    with ceph_gateway() as server:
        yield server


@pytest.fixture
def s3_url(moto, monkeypatch):
    """Return the URL of an empty bucket, which this process and its children can reach."""
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    return moto.make_bucket()


@pytest.fixture
def s3_proxy(moto, s3_url, monkeypatch):
    """Return a proxy with faults, through which the server is reached from now on."""
    with FaultProxy(moto.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@dataclass
class FaultProxy:
    """An HTTP proxy before an S3 server, which fails as it is told.

    Attributes:
        target: URL of the server.
        fault: Called with the number of the request, from 1, its method and path; returns None or
            the name of a fault: "503" answers so without forwarding, "cut" ends the answer in the
            middle of its body, "lose" forwards and closes without an answer, "stall" forwards and
            never answers. A status and an S3 code answer with those.
        requests: Method and path of every request.
    """

    target: str
    fault: object = lambda number, method, path: None
    requests: list = field(default_factory=list)

    def __post_init__(self):
        self._server = None
        self._port = 0
        self._lock = threading.Lock()
        self._connections = set()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self):
        self._server = _Listener(("127.0.0.1", self._port), _handler_of(self))
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        """Refuse connections from now on, and break those that are open."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(2)

    def next_fault(self, method, path):
        with self._lock:
            self.requests.append((method, path))
            return self.fault(len(self.requests), method, path)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # connections break on purpose


def _handler_of(proxy):
    return type("Handler", (_Handler,), {"proxy": proxy})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def setup(self):
        super().setup()
        self.proxy._connections.add(self.request)

    def finish(self):
        self.proxy._connections.discard(self.request)
        with suppress(OSError):
            super().finish()

    def _handle(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.next_fault(self.command, self.path)
        if fault == "503":
            fault = 503, "SlowDown"
        if isinstance(fault, tuple):
            self._answer(
                fault[0], "Error", [], b"<Error><Code>%s</Code></Error>" % fault[1].encode()
            )
            return
        status, reason, headers, content = self._forward(body)
        if fault == "stall":
            self.connection.recv(1)  # until the client gives up, or the proxy ends
        if fault in ("lose", "stall"):
            self.close_connection = True
            return
        self._answer(status, reason, headers, content, is_cut=fault == "cut")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle  # noqa: N815

    def _forward(self, body):
        server = http.client.HTTPConnection(urlsplit(self.proxy.target).netloc)
        # Host as the client has signed it.
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                server.putheader(name, value)
        server.endheaders(body)
        answer = server.getresponse()
        content = answer.read()
        server.close()
        return answer.status, answer.reason, answer.getheaders(), content

    def _answer(self, status, reason, headers, content, *, is_cut=False):
        self.send_response_only(status, reason)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # that of a HEAD is the object's
            elif name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.close_connection |= is_cut
        self.wfile.write(content[: len(content) // 2] if is_cut else content)

    def log_message(self, *arguments):
        pass
