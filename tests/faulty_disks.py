"""Disks that fail, and a disk that forgets what was not synced."""

import errno
from collections import Counter
from pathlib import Path

import pytest

from tuner.storage.disk import LocalDisk, Whereabouts


class FaultyDisk:
    """A disk, the local one unless another is given, on which chosen calls fail.

    Syncing a file again after a failed sync of it fails the test.

    Args:
        faults: Numbers of the calls that fail, counted from 1, of each kind of call.
        code: What the system says then.
        partial_bytes: A failing write takes so many bytes, and the next one raises.
        disk: The disk beneath.
    """

    def __init__(self, faults=(), *, code=errno.EIO, partial_bytes=0, disk=None):
        self._disk = disk or LocalDisk()
        self._faults = dict(faults)
        self._code = code
        self._partial_bytes = partial_bytes
        self._condemned = set()
        self.num_calls = Counter()
        self.num_faults = 0
        self._is_partial = False

    def __getattr__(self, name):
        call = getattr(self._disk, name)
        return lambda *arguments: self._perhaps(name, call, arguments)

    def sync(self, descriptor):
        assert descriptor not in self._condemned, "a file was synced again after a failed sync"
        try:
            self.__getattr__("sync")(descriptor)
        except OSError:
            self._condemned.add(descriptor)
            raise

    def close(self, descriptor):
        self._condemned.discard(descriptor)
        self.__getattr__("close")(descriptor)

    def _perhaps(self, name, call, arguments):
        self.num_calls[name] += 1
        if name == "write" and self._is_partial:
            self._is_partial = False
            raise OSError(self._code, "injected")
        if self.num_calls[name] not in self._faults.get(name, ()):
            return call(*arguments)
        self.num_faults += 1
        if name == "write" and self._partial_bytes:
            self._is_partial = True
            return self._disk.write(arguments[0], arguments[1][: self._partial_bytes])
        raise OSError(self._code, "injected")


class _File:
    def __init__(self):
        self.content = bytearray()
        self.num_safe = 0


class MemoryDisk:
    """A disk in memory. A power cut keeps what was synced, and a chosen part of the rest."""

    def __init__(self):
        self._names = {}
        self._safe_names = {}
        self._open = {}
        self._num_opened = 0

    def names(self, directory):
        return [path.name for path in self._names if path.parent == directory]

    def read(self, path):
        return bytes(self._names[path].content)

    def create(self, path):
        assert path not in self._names
        self._names[path] = _File()
        self._num_opened += 1
        descriptor = self._num_opened
        self._open[descriptor] = self._names[path]
        return descriptor

    def write(self, descriptor, data):
        self._open[descriptor].content += data
        return len(data)

    def sync(self, descriptor):
        self._open[descriptor].num_safe = len(self._open[descriptor].content)

    def truncate(self, descriptor, size_bytes):
        file = self._open[descriptor]
        del file.content[size_bytes:]
        file.num_safe = min(file.num_safe, size_bytes)

    def close(self, descriptor):
        del self._open[descriptor]

    def hold(self, descriptor):
        pass

    def whereabouts(self, descriptor, path):
        return Whereabouts()

    def rename(self, source, target):
        self._names[target] = self._names.pop(source)

    def remove(self, path):
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(path)

    def make_directory(self, path):
        pass

    def sync_directory(self, path):
        inside = {name: file for name, file in self._names.items() if name.parent == path}
        self._safe_names = {
            name: file for name, file in self._safe_names.items() if name.parent != path
        } | inside

    def power_cut(self, choose):
        """Lose power; `choose(n)` returns how many of the n unsynced steps survive."""
        survivors = {}
        # In the order in which they came, since temporary names are random.
        for path in dict.fromkeys((*self._names, *self._safe_names)):
            outcomes = [self._safe_names.get(path), self._names.get(path)]
            file = outcomes[choose(1)]
            if file is not None:
                survivors[path] = file
        for file in survivors.values():
            size = file.num_safe + choose(len(file.content) - file.num_safe)
            num_zeros = choose(1) * choose(size - file.num_safe)
            file.content[size - num_zeros :] = bytes(num_zeros)
            file.num_safe = len(file.content)
        self._names, self._safe_names, self._open = survivors, dict(survivors), {}


@pytest.fixture(scope="session")
def faulty_disk():
    return FaultyDisk


@pytest.fixture(scope="session")
def memory_disk():
    return MemoryDisk


@pytest.fixture(scope="session")
def names_in():
    """Return the sorted names in a directory."""
    return lambda directory: sorted(path.name for path in Path(directory).iterdir())


@pytest.fixture(scope="session")
def tree_of():
    """Return every file of a tree with its bytes, and every link with its text."""

    def read(root):
        root = Path(root)
        paths = sorted(root.rglob("*"))
        return {path.relative_to(root).as_posix(): _what(path) for path in paths}

    return read


def _what(path):
    if path.is_symlink():
        return path.readlink()
    return "directory" if path.is_dir() else path.read_bytes()
