"""Manifest of a checkpoint: its files and the result it belongs to.

It is written last, so that its presence says that the checkpoint is complete.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

from tuner.errors import CheckpointError
from tuner.wire.declared import OPTIONAL, Malformed, decode, encode
from tuner.wire.record import record

from . import strict_json
from .directories import make_folder
from .disk import SMALL_BYTES, open_file, read_file, write_text
from .layout import MANIFEST, METADATA, PART_MANIFEST
from .trees import Contents, replace_link, target_inside

FORMAT: Final = 1
GROUP_FORMAT: Final = 2
"""Format of the manifests of checkpoints that the workers of a group have written together."""
HASH_LIMIT_BYTES: Final = 64 << 20
"""Files above this size are known by their size alone: hashing them would hold the trial up for too
long."""


@record
class Provenance:
    """Where a checkpoint comes from.

    Attributes:
        trial_id: The trial that saved it.
        attempt: In which attempt.
        index: Zero-based count of the trial's checkpoints, of which the directory's name is made.
        iteration: ``training_iteration`` of the result it belongs to.
        metrics: That result, nested as reported.
        name: Name that the training code has chosen for the directory, if the engine has made it;
            empty for the numbered one, and for a directory that the training code has made.
    """

    trial_id: str
    attempt: int
    index: int
    iteration: int
    metrics: Mapping[str, Any] = field(default_factory=dict)
    name: Annotated[str, OPTIONAL] = ""


@record
class FileEntry:
    """One file of a checkpoint.

    Attributes:
        size_bytes: Its size.
        sha256: Its SHA-256 in hexadecimal digits, None for a file above `HASH_LIMIT_BYTES`.
        rank: Which worker of a group has stored it; None for a single process, and for a file of a
            directory that the workers have in common.
    """

    size_bytes: int
    sha256: str | None
    rank: int | None = None


@record
class PartContents:
    """What is in a directory of a group's checkpoint.

    Attributes:
        files: Its files by name, without the user's metadata.
        links: Its symbolic links and where they lead.
        directories: Its folders.
        has_metadata: Whether the user's metadata is there.
    """

    files: Mapping[str, FileEntry]
    links: Mapping[str, str]
    directories: Sequence[str]
    has_metadata: bool = False


@record
class Manifest:
    """All that is known of a committed checkpoint; see `Provenance` for the first five.

    Attributes:
        files: Its files by name, relative to the checkpoint.
        links: Its symbolic links and where they lead.
        directories: Its folders.
        world_size: How many workers the group had that has written it, 1 for a single process.
        name: See `Provenance`.
    """

    trial_id: str
    attempt: int
    index: int
    iteration: int
    metrics: dict[str, Any]
    files: dict[str, FileEntry]
    links: dict[str, str]
    directories: list[str]
    world_size: int = 1
    name: str = ""


def write_manifest(
    directory: Path, contents: Contents, provenance: Provenance, *, sync: bool
) -> None:
    """Measure the files and write the manifest into the directory.

    Raises:
        OSError: If a file could not be read or the manifest not written.
    """
    body = {
        "format": FORMAT,
        **encode(provenance),
        "files": _measured(directory, contents),
        "links": contents.links,
        "directories": contents.directories,
    }
    _write(directory / MANIFEST, body, sync=sync)


def write_group_manifest(
    directory: Path,
    contents: Contents,
    provenance: Provenance,
    *,
    world_size: int,
    parts: Mapping[str, FileEntry],
    sync: bool,
) -> None:
    """Write the manifest of a checkpoint of a group into the directory.

    Args:
        directory: The directory.
        contents: What is in it.
        provenance: Of which result it is.
        world_size: How many workers the group has.
        parts: The files that a worker has measured; the others are measured here.
        sync: Return only when the manifest is on disk.

    Raises:
        OSError: If a file could not be read or the manifest not written.
    """
    found = part_contents(directory, contents, parts)
    text = group_manifest(found, provenance, world_size=world_size)
    write_text(directory / MANIFEST, text, sync=sync)


def part_contents(
    directory: Path, contents: Contents, parts: Mapping[str, FileEntry]
) -> PartContents:
    """Return what is in a directory, with the entries of its files.

    Args:
        directory: The directory.
        contents: What is in it.
        parts: The files that a worker has measured; the others are measured here.

    Raises:
        OSError: If a file could not be read.
    """
    rest = {name: size for name, size in contents.files.items() if name not in parts}
    files = {name: entry for name, entry in parts.items() if name in contents.files}
    unmeasured = _measured(directory, Contents(files=rest))
    files |= {name: FileEntry(**fields) for name, fields in unmeasured.items()}
    return PartContents(
        dict(sorted(files.items())),
        contents.links,
        contents.directories,
        has_metadata=METADATA in contents.files,
    )


def group_manifest(contents: PartContents, provenance: Provenance, *, world_size: int) -> str:
    """Return the manifest of a checkpoint of a group as text; see `write_group_manifest`."""
    body = {
        "format": GROUP_FORMAT,
        **encode(provenance),
        "world_size": world_size,
        "files": {name: encode(entry) for name, entry in contents.files.items()},
        "links": contents.links,
        "directories": contents.directories,
    }
    return strict_json.seal(body, default=strict_json.opaque)


def write_part_manifest(directory: Path, contents: Contents, *, rank: int, sync: bool) -> None:
    """Measure the files that a worker of a group has staged, and write them down beside them.

    Raises:
        OSError: If a file could not be read or the manifest not written.
    """
    body = {"format": GROUP_FORMAT, "rank": rank, "files": _measured(directory, contents)}
    _write(directory / PART_MANIFEST, body, sync=sync)


def read_part_manifest(directory: Path) -> dict[str, FileEntry]:
    """Return the files that a worker has staged in this directory.

    Raises:
        CheckpointError: If the file is missing, damaged or not as `write_part_manifest` writes it.
    """
    path = directory / PART_MANIFEST
    try:
        body = strict_json.unseal(read_file(path, SMALL_BYTES))
        rank = body["rank"]
        return {
            name: decode(FileEntry, {**entry, "rank": rank})
            for name, entry in body["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CheckpointError(f"{path} cannot be read: {cause!r}") from cause


def _write(path: Path, body: Mapping[str, Any], *, sync: bool) -> None:
    write_text(path, strict_json.seal(body, default=strict_json.opaque), sync=sync)


def _measured(directory: Path, contents: Contents) -> dict[str, dict[str, Any]]:
    """Return the fields of the `FileEntry` of each file that a manifest lists."""
    return {
        name: _measure(f"{directory}/{name}")
        for name in contents.files
        if name not in (MANIFEST, METADATA)
    }


def _measure(path: str) -> dict[str, Any]:
    """Return the fields of the file's `FileEntry`."""
    size_bytes = os.stat(path).st_size  # noqa: PTH116  (20,000 Paths are slow)
    return {
        "size_bytes": size_bytes,
        "sha256": _sha256(path) if size_bytes <= HASH_LIMIT_BYTES else None,
    }


def _sha256(path: Path | str) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of the checkpoint in this directory.

    Raises:
        CheckpointError: If there is none, it is damaged, or a newer version wrote it.
    """
    directory = Path(path)
    try:
        body = strict_json.unseal(read_file(directory / MANIFEST, SMALL_BYTES))
    except FileNotFoundError as cause:
        raise CheckpointError(
            f"{directory} is no complete checkpoint: it has no {MANIFEST}"
        ) from cause
    except (OSError, ValueError) as cause:
        raise CheckpointError(
            f"the manifest {directory / MANIFEST} cannot be read: {cause}"
        ) from cause
    try:
        if body.pop("format") not in (FORMAT, GROUP_FORMAT):
            raise CheckpointError(
                f"the checkpoint {directory} was written by a newer version; read it with that one"
            )
        return decode(Manifest, body)
    except (KeyError, TypeError, AttributeError, Malformed) as cause:
        raise CheckpointError(
            f"the manifest {directory / MANIFEST} is not as this version writes it: {cause!r}"
        ) from cause


def check_names(contents: PartContents) -> None:
    """Raise a ValueError if a manifest of this content could not be read."""
    _check_names(contents)


def make_folders(directory: Path, manifest: Manifest) -> None:
    """Make the folders of a checkpoint, of which an object store holds the files alone.

    Raises:
        ValueError: If a name in the manifest would lead out of the directory; nothing is made then.
        OSError: If one cannot be made.
    """
    _check_names(manifest)
    for name in manifest.directories:
        make_folder(directory / name)


def make_links(directory: Path, manifest: Manifest) -> None:
    """Make the links of a checkpoint, after its folders and files: none is written through a link.

    Raises:
        CheckpointError: If one would lead out of the directory; none is left then.
        OSError: If one cannot be made.
    """
    try:
        for name, leads_to in manifest.links.items():
            replace_link(directory / name, leads_to)
        # When all are there, since one may lead through another.
        for name in manifest.links:
            target_inside(directory / name, directory)
    except CheckpointError:
        for name in manifest.links:
            (directory / name).unlink()
        raise


def _check_names(manifest: Manifest | PartContents) -> None:
    """Raise a ValueError if a name would lead out of the checkpoint, or through one of its links.

    The manifest may come from an object store, where others may have written to it.
    """
    names = [*manifest.files, *manifest.links, *manifest.directories]
    if len({*names}) != len(names):
        raise ValueError("its manifest lists a name twice")
    folders = {"", *manifest.directories}
    for name in names:
        parts = name.split("/")
        is_plain = "\0" not in name and {"", ".", ".."}.isdisjoint(parts) and name != MANIFEST
        if not is_plain or name.rpartition("/")[0] not in folders:
            raise ValueError(f"its manifest lists {name!r}, which is no name inside it")


def verify(path: str | os.PathLike[str], *, with_hashes: bool = True) -> Manifest:
    """Check that a checkpoint is as it was committed, and return its manifest.

    Files that were added later are ignored.

    Args:
        path: Its directory.
        with_hashes: Read every file up to `HASH_LIMIT_BYTES` and compare its SHA-256; else only
            names and sizes are compared.

    Raises:
        CheckpointError: If it is not; names the file and the difference.
    """
    directory = Path(path)
    if directory.is_symlink():
        _damaged(directory, "it is a link")
    manifest = read_manifest(directory)
    try:
        for name, entry in manifest.files.items():
            _verify_file(directory, name, entry, with_hashes=with_hashes)
        for name, leads_to in manifest.links.items():
            _verify_link(directory, name, leads_to)
        for name in manifest.directories:
            if not stat.S_ISDIR((directory / name).lstat().st_mode):
                _damaged(directory, f"{name} is no directory")
    except OSError as cause:
        raise CheckpointError(f"checkpoint {directory} is damaged: {cause}") from cause
    return manifest


def _verify_file(directory: Path, name: str, entry: FileEntry, *, with_hashes: bool) -> None:
    status = (directory / name).lstat()
    if not stat.S_ISREG(status.st_mode):
        _damaged(directory, f"{name} is no regular file")
    if status.st_size != entry.size_bytes:
        _damaged(
            directory, f"{name} has {status.st_size} bytes, its manifest says {entry.size_bytes}"
        )
    if with_hashes and entry.sha256 is not None and _sha256(directory / name) != entry.sha256:
        _damaged(directory, f"{name} has another SHA-256 than its manifest says")


def _verify_link(directory: Path, name: str, leads_to: str) -> None:
    found = os.readlink(directory / name)  # noqa: PTH115  (the text as it stands)
    if found != leads_to:
        _damaged(directory, f"link {name} leads to {found}, its manifest says {leads_to}")


def _damaged(directory: Path, difference: str) -> NoReturn:
    raise CheckpointError(f"checkpoint {directory} is damaged: {difference}")
