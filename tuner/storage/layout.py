"""Names of all files and directories that the engine writes.

::

    <storage_path>/<name>/
      lock                         flock'd for the driver's life
      experiment.json              the declaration
      environment.json             script, arguments, versions and git commit of each session
      storage.json                 URL of the object store that the experiment is in, if it is
      storage_epoch.json           of the local copy of an experiment in an object store: by which
                                   driver, counted there, it was last driven
      journal/<first sequence>.log segments of checksummed lines
      journal/torn-<segment>-<byte> what a recovery has cut off
      snapshot/<last sequence>.json the newest two
      objects/<sha256>.npy         large constants of configurations
      requests/                    what others ask of the driver, and its replies
      pbt_global.txt  pbt_policy_<trial_id>.txt   exploits
      <trial_id>/
        params.json  result.json  progress.csv  events.out.tfevents.*  error.txt  stdout  stderr
        validations.json  validation_<index>.log  .validation-<index>-<sha256>.pkl
        stdout.rank1  stderr.rank1 ...  of the other workers of a group
        checkpoint_000000/ ...
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import StorageError

if TYPE_CHECKING:
    from .disk import Disk

DEFAULT_STORAGE_PATH = "~/tuner_results"
LOCK = "lock"
DECLARATION = "experiment.json"
ORIGIN = "storage.json"
"""Names the object store that an experiment is in; stays on its machine."""
ENVIRONMENT = "environment.json"
"""Script, arguments, versions and git commit of each session; nothing depends on it."""
STORAGE_EPOCH = "storage_epoch.json"
"""Stays on its machine, and tells whether a local copy is the newest one."""
JOURNAL = "journal"
SNAPSHOT = "snapshot"
OBJECTS = "objects"
REQUESTS = "requests"
FOLDERS_WITH_STAGING = (JOURNAL, SNAPSHOT)
"""Folders that a driver which dies may leave unfinished files in."""
PARAMS = "params.json"
RESULTS = "result.json"
PROGRESS = "progress.csv"
VALIDATIONS = "validations.json"
"""How the checkpoints of a trial were validated; there is none without validations."""
ERROR = "error.txt"
STARTED_AGAIN = "Started again"
"""First words of a paragraph of `ERROR`: the trial has continued after the failures before it."""
RAY_STATES = "experiment_state-*.json"
"""Pattern of the files in which Ray Tune keeps the state of an experiment; of what is in them plain
JSON alone is read."""
RAY_PARAMS = "params.pkl"
"""Lies in the directory of a trial that Ray Tune has run, and is never opened."""
PBT_GLOBAL = "pbt_global.txt"
RETURN_VALUE = "return_value.json"
"""What the training function of a trainer returned in the process of rank 0, as JSON."""
STDOUT = "stdout"
STDERR = "stderr"
TRIAL_FILES = frozenset(
    {PARAMS, RESULTS, PROGRESS, VALIDATIONS, ERROR, RETURN_VALUE, STDOUT, STDERR}
)
"""Names of files in a trial's directory, which no checkpoint can have."""
STAGING_PREFIX = ".tmp-"
NODE_PROOF_PREFIX = f"{STAGING_PREFIX}node-proof-"
"""Of files that nodes of a cluster look for, there as long as nodes may be working."""
"""Directories under this prefix are unfinished and may be swept whenever no worker of the trial is
alive."""
VALIDATION_PREFIX = ".validation-"
"""Beginning of the name of a file with a pickled validation function and its arguments, which only
the driver whose worker has written it uses."""
CHECKPOINT_PREFIX = "checkpoint_"
"""Beginning of the name of a committed checkpoint."""
MANIFEST = ".manifest.json"
"""Written last into a checkpoint; a directory without it is not a checkpoint."""
PART_MANIFEST = ".manifest-part.json"
"""What one worker of a group has staged for a checkpoint; gone once that is committed."""
METADATA = ".metadata.json"
"""The user's metadata of a checkpoint; may change after the commit, so the manifest leaves it out.
"""

MAX_NAME_DEPTH = 4
"""How many folders the name of an experiment may have: as deep as ``tuner ls`` looks for
experiments."""
_MAX_FOLDER_LETTERS = 100
_MAX_FOLDER_BYTES = 200
"""File systems take 255; what is unfinished has a longer name."""
_PUNCTUATION = frozenset("_=,+@#()[]-")
"""What a folder's name may contain and end in, beside letters and digits."""
_INNER = frozenset(" .:")
"""What it may contain and not end in."""

_DEVICES = frozenset(
    {
        "CON",
        "PRN",
        "AUX",
        "NUL",
        *(f"{port}{number}" for port in ("COM", "LPT") for number in range(10)),
    }
)
_TRIAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SEGMENT = re.compile(r"(\d{20})\.log")
_OWN_TRIAL = re.compile(r"[tf]\d{5,}")
"""Ids that the engine gives: those of trials, and of copies of them with another configuration."""


def check_name(name: str) -> str:
    """Return the experiment name if it is safe as the path of a directory below the storage path.

    Example:
        >>> check_name("lr=0.1"), check_name("digits/my exp"), check_name("größe 12:30")
        ('lr=0.1', 'digits/my exp', 'größe 12:30')

    Raises:
        ValueError: If it could leave the storage path, trouble a file system, or be taken for a
            folder of an experiment.
    """
    folders = name.split("/") if isinstance(name, str) else [""]
    if len(folders) > MAX_NAME_DEPTH or not all(map(_is_folder_name, folders)):
        raise ValueError(
            f"name must be 1 to {_MAX_FOLDER_LETTERS} letters, digits, spaces or any of "
            ". : _ - = , + @ # ( ) [ ], with letters of any alphabet and at most "
            f"{_MAX_FOLDER_BYTES} bytes in UTF-8, beginning with a letter or digit, not ending in "
            f"a space, '.' or ':' and without '::', or up to {MAX_NAME_DEPTH} of these joined by "
            f"'/', got {name!r}"
        )
    try:
        os.fsencode(name)
    except UnicodeEncodeError as cause:
        raise ValueError(
            f"name must be in the encoding of file names, here {sys.getfilesystemencoding()}, got "
            f"{name!r}; set PYTHONUTF8=1"
        ) from cause
    for folder in folders:
        if folder.partition(".")[0].strip().upper() in _DEVICES:
            raise ValueError(
                f"name must not be that of a device, got {name!r}; there are file systems that "
                "cannot hold it"
            )
    if len(folders) > 1 and JOURNAL in folders:
        raise ValueError(
            f"name must not have a folder {JOURNAL!r}, got {name!r}; the folder above it would be "
            "taken for an experiment"
        )
    return name


def _is_folder_name(name: str) -> bool:
    if not name or len(name) > _MAX_FOLDER_LETTERS:
        return False
    kinds = [unicodedata.category(letter) for letter in name]
    # Marks are parts of letters, as in Hindi, or where accents are written apart.
    is_letter = [kind[0] in "LM" or kind == "Nd" for kind in kinds]
    return (
        is_letter[0]
        and kinds[0][0] != "M"
        and name[-1] not in _INNER
        and all(
            known or letter in _PUNCTUATION or letter in _INNER
            for known, letter in zip(is_letter, name, strict=True)
        )
        and "::" not in name  # joins the URLs of several file systems
        and len(name.encode()) <= _MAX_FOLDER_BYTES
    )


def is_own(name: str) -> bool:
    """Return whether the engine makes files of this name directly in an experiment's directory."""
    kept = (
        LOCK,
        DECLARATION,
        ENVIRONMENT,
        ORIGIN,
        STORAGE_EPOCH,
        JOURNAL,
        SNAPSHOT,
        OBJECTS,
        REQUESTS,
        PBT_GLOBAL,
        "logged",  # of directories of earlier releases
    )
    is_policy = name.startswith("pbt_policy_") and name.endswith(".txt")
    return name in kept or is_policy or name.startswith(STAGING_PREFIX) or is_trial(name)


def is_trial(name: str) -> bool:
    """Return whether a directory of this name, directly in an experiment's, is that of a trial."""
    return _OWN_TRIAL.fullmatch(name) is not None


def of_rank(name: str, rank: int) -> str:
    """Return the name of one of a worker's files, such as its output; rank 0 has the plain name.

    Example:
        >>> of_rank(STDOUT, 0), of_rank(STDOUT, 1)
        ('stdout', 'stdout.rank1')
    """
    return f"{name}.rank{rank}" if rank else name


def ranks_of(trial_dir: str | os.PathLike[str], name: str) -> list[int]:
    """Return the ranks of the workers that have a file of this name, see `of_rank`, in order."""
    pattern = re.compile(rf"{re.escape(name)}(?:\.rank([1-9]\d{{0,8}}))?")
    try:
        names = os.listdir(trial_dir)  # noqa: PTH208  (names are enough)
    except FileNotFoundError:
        return []
    return sorted(int(found[1] or 0) for one in names if (found := pattern.fullmatch(one)))


def pbt_policy(trial_id: str) -> str:
    """Return the name of the file with a trial's ancestry."""
    return f"pbt_policy_{trial_id}.txt"


def validation_log(index: int) -> str:
    """Return the name of the file in a trial's directory with the output of a validation."""
    return f"validation_{index:06d}.log"


def is_trial_id(name: str) -> bool:
    """Return whether this is well-formed as the id of a trial, and stays inside the experiment."""
    return _TRIAL_ID.fullmatch(name) is not None


def trial_directory(experiment: str | os.PathLike[str], trial_id: str) -> Path:
    """Return the directory of a trial.

    Raises:
        StorageError: If the id is not well-formed, and might lead out of the experiment.
    """
    return Path(trial_path(experiment, trial_id))


def trial_path(experiment: str | os.PathLike[str], trial_id: str) -> str:
    """Return the path of a trial's directory; see `trial_directory`."""
    if not is_trial_id(trial_id):
        raise StorageError(
            f"trial_id must be letters, digits, '_' or '-', got {trial_id!r}; the experiment is "
            "damaged"
        )
    return os.path.join(experiment, trial_id)  # noqa: PTH118  (a Path for each trial is slow)


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment that begins with this record."""
    return directory / f"{first:020d}.log"


def segments_in(directory: Path, disk: Disk) -> list[tuple[int, Path]]:
    """Return number of the first record and path of each segment, in order."""
    names = (_SEGMENT.fullmatch(name) for name in disk.names(directory))
    return sorted((int(name[1]), directory / name[0]) for name in names if name)


def journal_directory(experiment: str | os.PathLike[str]) -> Path:
    """Return the directory of an experiment's journal."""
    return (experiment if isinstance(experiment, Path) else Path(experiment)) / JOURNAL
