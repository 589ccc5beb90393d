"""S3 servers on loopback: moto's, and the one that clusters run, Ceph's RADOS gateway."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()  # until the tests have ended
"""


@dataclass
class S3Server:
    """An S3 server.

    Attributes:
        endpoint: Its URL.
        key: The access key of its user.
        secret: The secret key.
    """

    endpoint: str
    key: str = "tester"
    secret: str = "tester-secret"  # noqa: S105

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which every S3 client finds the server, and no other settings."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def filesystem(self, **options: Any) -> Any:
        """Return a file system of fsspec, which needs no variables."""
        import s3fs  # noqa: PLC0415  (optional)

        return s3fs.S3FileSystem(
            endpoint_url=self.endpoint,
            key=self.key,
            secret=self.secret,
            **options,
        )

    def make_bucket(self) -> str:
        """Make a bucket of a name of its own and return its URL."""
        name = f"bucket-{secrets.token_hex(6)}"
        self.filesystem().mkdir(name)
        return f"s3://{name}"


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """Run moto's S3 server, in a process of its own that ends with this one."""
    with subprocess.Popen(  # noqa: S603  (our own interpreter)
        [sys.executable, "-W", "ignore", "-c", MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            endpoint = process.stdout.readline().strip() if process.stdout else ""
            if not endpoint:
                raise RuntimeError("moto's server has not started; is it installed, with flask?")
            yield S3Server(endpoint)
        finally:
            process.kill()


CEPH_PROGRAMS = (
    "ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin",
)  # fmt: skip
CEPH_CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
mon initial members = a
run dir = {directory}
admin socket = {directory}/$name.asok
log file = {directory}/$name.log
pid file = {directory}/$name.pid
keyring = {directory}/$name.keyring
mon data = {directory}/mon
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 2000
setuser match path =
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw data = {directory}/rgw
"""
CEPH_CAPABILITIES = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *", "mgr", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
    "client.rgw.a": ("mon", "allow rwx", "osd", "allow rwx"),
}


def why_no_ceph() -> str | None:
    """Return why Ceph cannot be started here, None if it can."""
    if os.geteuid():
        return "Ceph's servers need root"
    missing = [program for program in CEPH_PROGRAMS if not shutil.which(program)]
    return f"{', '.join(missing)} of Ceph are not installed" if missing else None


@contextmanager
def ceph_gateway() -> Iterator[S3Server]:
    """Run the gateway over one monitor and one in-memory disk; this takes about ten seconds.

    It needs root and the Debian packages ceph-common, ceph-mon, ceph-osd and radosgw.
    """
    with tempfile.TemporaryDirectory(prefix="ceph-") as directory:
        try:
            yield _start_ceph(Path(directory))
        finally:
            for file in Path(directory).glob("*.pid"):
                with suppress(ValueError, ProcessLookupError):
                    os.kill(int(file.read_text(encoding="ascii")), 9)


def _start_ceph(directory: Path) -> S3Server:
    monitor, gateway = _free_port(), _free_port()
    fsid = str(uuid.uuid4())
    (directory / "ceph.conf").write_text(
        CEPH_CONFIGURATION.format(fsid=fsid, monitor=monitor, gateway=gateway, directory=directory),
        encoding="ascii",
    )
    for folder in ("mon", "osd", "rgw"):
        (directory / folder).mkdir()

    def run(program: str, *arguments: object) -> None:
        command = [program, "--conf", str(directory / "ceph.conf"), *map(str, arguments)]
        done = subprocess.run(  # noqa: S603  (fixed programs)
            command, cwd=directory, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")

    ring = directory / "mon.a.keyring"
    for name, capabilities in CEPH_CAPABILITIES.items():
        own = ring if name == "mon." else directory / f"{name}.keyring"
        pairs = zip(capabilities[::2], capabilities[1::2], strict=True)
        given = [word for service, allowed in pairs for word in ("--cap", service, allowed)]
        run("ceph-authtool", "--create-keyring", own, "--gen-key", "-n", name, *given)
        if own != ring:
            run("ceph-authtool", ring, "--import-keyring", own)
    run("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{monitor}]", "--fsid", fsid, "map")
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "map", "--keyring", ring)
    run("ceph-mon", "-i", "a")
    disk = str(uuid.uuid4())
    run("ceph", "-n", "client.admin", "--connect-timeout", 20, "osd", "new", disk, 0)
    run("ceph-osd", "-i", 0, "--mkfs", "--osd-uuid", disk)
    run("ceph-osd", "-i", 0)
    run("radosgw", "-n", "client.rgw.a")
    server = S3Server(f"http://127.0.0.1:{gateway}")
    _await(server.endpoint)
    run(
        "radosgw-admin", "-n", "client.admin", "user", "create", "--uid=tester",
        "--display-name=tester", f"--access-key={server.key}", f"--secret={server.secret}",
    )  # fmt: skip
    return server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await(url: str, timeout_s: float = 60.0) -> None:
    until_s = time.monotonic() + timeout_s
    while True:
        try:
            urlopen(url).close()  # noqa: S310  (loopback)
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)
        else:
            return
