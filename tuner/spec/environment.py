"""Record of the environment of an experiment: script, versions of packages, git commit.

It is gathered in a thread shortly after the start, so that the start takes no longer, and written
to ``environment.json``: an entry for each run of the driver that differs from the one before. No
environment variable is written, and no argument that looks like a secret.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import json
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from tuner.background import BackgroundJobs
from tuner.storage import layout
from tuner.storage.declaration import read_environments
from tuner.storage.disk import has_content, write_bytes
from tuner.version import __version__

WITHHELD: Final = "***"
"""Replaces an argument, or the part of one, that looks like a secret."""
_DELAY_S: Final = 0.2
"""How long after the start the facts are gathered, unless the experiment ends before."""
_LAST_WAIT_S: Final = 1.0
_GIT_TIMEOUT_S: Final = 10.0
_OWN: Final = frozenset({"tuner", "schedulers", "searchers"})

_SECRET_WORDS: Final = frozenset({
    "password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "apikey", "accesskey",
    "privatekey", "credential", "credentials", "auth", "authorization",
})  # fmt: skip
_SECRET_ENDINGS: Final = ("password", "passwd", "secret")
"""Ends of words that were written together, as in ``PGPASSWORD``."""
_SECRET_PAIRS: Final = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
)
_SERVICES: Final = frozenset(
    {"wandb", "comet", "neptune", "huggingface", "hf", "openai", "github", "kaggle"}
)
"""An option with the name of a service may be followed by its key."""
_ATTACHED: Final = re.compile(r"-p(?P<value>[^=]+)")
"""A password as database clients take it, or another short option."""
_NO_SECRET: Final = re.compile(
    r"[a-z]+(?:[-_][a-z]+)*|[-+\d.,:eE]+|(?i:true|false|none|yes|no|on|off)"
)
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_NAMED: Final = re.compile(r"(?P<name>[-+~\w.:/@]+)=(?P<value>.*)", re.DOTALL)
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_KNOWN_TOKEN: Final = re.compile(
    r"(?:sk|pk|rk)[-_][\w-]{16,}|hf_\w{16,}"  # OpenAI, Stripe; Hugging Face
    r"|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"  # GitHub, GitLab
    r"|xox[abps]-[\w-]{10,}|AKIA[A-Z0-9]{12,}"  # Slack, AWS
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # a JSON web token
    r"|\b[0-9a-f]{40,}\b"  # W&B, and other keys in hexadecimal
)
_MIN_SECRET_LENGTH: Final = 4
"""Shorter values of the environment are not looked for in arguments, where they would occur by
chance."""

_log = logging.getLogger("tuner")


@final
class EnvironmentRecorder:
    """Writes ``environment.json`` while an experiment runs.

    Args:
        directory: The experiment's directory.
        secrets: Names of environment variables whose values are never written.
        values: Further texts that are never written.
    """

    def __init__(
        self, directory: Path, secrets: Iterable[str] = (), values: Iterable[str] = ()
    ) -> None:
        self._directory = directory
        self._facts = {
            "began": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            **_invocation(secrets, values),
        }
        self._from_workers: dict[str, str] = {}
        self._earlier: Sequence[Mapping[str, Any]] | None = None
        """What earlier sessions have recorded, once that is known."""
        self._has_started = False
        self._jobs = BackgroundJobs(
            "tuner-environment",
            self._write,
            on_error=lambda error: _log.info(
                "%s could not be written: %s", layout.ENVIRONMENT, error
            ),
        )

    @property
    def withheld(self) -> list[str]:
        """The arguments of which something is not recorded, each with the option before it."""
        arguments = self._facts["arguments"]
        return [
            f"{before} {argument}" if argument == WITHHELD and before else argument
            for before, argument in itertools.pairwise(["", *arguments])
            if WITHHELD in argument
        ]

    def start(self) -> None:
        """Begin to gather the facts."""
        # Written twice: soon, in case the driver is killed, and at the end, when workers have
        # reported what they have imported.
        self._has_started = True
        self._jobs.wake(_DELAY_S)

    def add_packages(self, versions: Mapping[str, str]) -> None:
        """Add versions of packages that a worker has imported."""
        self._from_workers.update(versions)

    def close(self) -> None:
        """Write the facts known by now; waits a second at most."""
        if self._has_started:
            self._jobs.submit(self._write)
            self._jobs.close(_LAST_WAIT_S)

    def _write(self) -> None:
        if self._earlier is None:
            self._earlier = read_environments(self._directory)
        earlier = self._earlier
        now = {**self._facts, **_surroundings(self._facts, dict(self._from_workers))}
        if earlier and _without_time(earlier[-1]) == _without_time(now):
            return  # a restore under the same conditions
        data = (json.dumps([*earlier, now], indent=1, ensure_ascii=False) + "\n").encode()
        path = self._directory / layout.ENVIRONMENT
        if not has_content(path, data):
            write_bytes(path, data, sync=False)


def _without_time(session: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name != "began"}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return which of Python, packages and git commit differ.

    Packages that only one of the two has loaded do not count.

    Example:
        >>> differences({"python": {"version": "3.12.1"}}, {"python": {"version": "3.12.4"}})
        ['Python was 3.12.1 and is 3.12.4']
    """
    found = []
    old, new = then.get("python", {}).get("version"), now.get("python", {}).get("version")
    if old != new:
        found.append(f"Python was {old} and is {new}")
    packages, loaded = then.get("packages") or {}, now.get("packages") or {}
    found += [
        f"{name} was {packages[name]} and is {loaded[name]}"
        for name in sorted(packages)
        if name in loaded and packages[name] != loaded[name]
    ]
    before, after = then.get("git") or {}, now.get("git") or {}
    if before.get("commit") != after.get("commit"):
        found.append(f"the git commit was {_short(before)} and is {_short(after)}")
    if before.get("dirty"):
        found.append("the working tree had changes then that were not committed")
    return found


def _short(git: Mapping[str, Any]) -> str:
    return str(git.get("commit") or "none")[:12]


def environment_now() -> dict[str, Any]:
    """Return Python, platform, packages and git commit of this process."""
    return _surroundings(_invocation(()), {})


def _surroundings(invocation: Mapping[str, Any], from_workers: Mapping[str, str]) -> dict[str, Any]:
    """Return Python, platform, packages and git commit of a process.

    Args:
        invocation: How it was started, see `_invocation`.
        from_workers: Versions of packages that its workers have imported, empty if unknown.
    """
    packages = loaded_packages()
    packages |= {
        name: known
        for name, reported in from_workers.items()
        if (known := reported or _version_of(name))
    }
    return {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
        "git": git_state(invocation["script"] or invocation["directory"]),
    }


# The command line.


def _invocation(secrets: Iterable[str], values: Iterable[str] = ()) -> dict[str, Any]:
    """Return how the process was started: script or module, arguments, working directory."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    module = spec.name.removesuffix(".__main__") if spec is not None else None
    is_file = bool(file) and Path(str(file)).is_file()
    arguments = without_secrets(sys.argv[1:], secrets, values=values) if is_file else []
    return {
        "script": str(Path(str(file)).absolute()) if is_file else None,
        "module": module if is_file else None,
        "arguments": arguments,
        "directory": os.getcwd(),  # noqa: PTH109  (a str, for JSON)
    }


def without_secrets(
    arguments: Sequence[str],
    secrets: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    values: Iterable[str] = (),
) -> list[str]:
    """Return the arguments of a command with what looks like a secret replaced by `WITHHELD`.

    Secrets are values of options with names such as ``--password`` or ``--api-key``, of those named
    after a service and of ``-p`` where they are neither words nor numbers, passwords in URLs,
    tokens of well-known services, and values of environment variables with such names.

    Args:
        arguments: What follows the script on its command line.
        secrets: Names of further environment variables whose values are secret.
        environ: The environment.
        values: Further texts that are secret.

    Example:
        >>> command = ["--lr", "0.1", "--api-key", "k1", "password=x", "--url=https://me:pw@host/"]
        >>> without_secrets(command, environ={})
        ['--lr', '0.1', '--api-key', '***', 'password=***', '--url=https://***@host/']
    """
    # The shell's working directory is no password.
    names = {*secrets, *filter(is_name_of_secret, environ.keys() - {"PWD"})}
    # Longest first: a secret may be part of another one.
    texts = sorted(
        (
            text
            for text in {*values, *(environ.get(name, "") for name in names)}
            if len(text) >= _MIN_SECRET_LENGTH
        ),
        key=len,
        reverse=True,
    )
    return [
        _masked(argument, previous, texts)
        for previous, argument in itertools.pairwise(["", *arguments])
    ]


def _masked(argument: str, previous: str, values: Iterable[str]) -> str:
    if (
        previous.startswith("-")
        and "=" not in previous
        and not argument.startswith("-")
        and (is_name_of_secret(previous) or (_is_service(previous) and _is_like_secret(argument)))
    ):
        return WITHHELD
    if (named := _NAMED.fullmatch(argument)) and (
        is_name_of_secret(named["name"])
        or (_is_service(named["name"]) and _is_like_secret(named["value"]))
    ):
        return f"{named['name']}={WITHHELD}"
    if (short := _ATTACHED.fullmatch(argument)) and _is_like_secret(short["value"]):
        return f"-p{WITHHELD}"
    for value in values:
        argument = argument.replace(value, WITHHELD)
    return _KNOWN_TOKEN.sub(WITHHELD, _IN_URL.sub(WITHHELD, argument))


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    Example:
        >>> words_of("--hubToken"), words_of("db_password")
        (['hub', 'token'], ['db', 'password'])
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_name_of_secret(name: str) -> bool:
    """Return whether an option, a variable or a parameter with this name holds a secret.

    Example:
        >>> [is_name_of_secret(name) for name in ("WANDB_KEY", "PGPASSWORD", "max_tokens")]
        [True, True, False]
    """
    words = words_of(name)
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or any(word.endswith(_SECRET_ENDINGS) for word in words)
        or any(
            pair in _SECRET_PAIRS or (pair[0] in _SERVICES and pair[1] == "key")
            for pair in itertools.pairwise(words)
        )
    )


def _is_service(name: str) -> bool:
    words = words_of(name)
    return len(words) == 1 and words[0] in _SERVICES


def _is_like_secret(text: str) -> bool:
    """Return whether a text is none of those that an option usually has: words, numbers, paths."""
    return len(text) >= _MIN_SECRET_LENGTH and "/" not in text and not _NO_SECRET.fullmatch(text)


# Versions.


def loaded_packages() -> dict[str, str]:
    """Return the versions of the packages that this process has imported, by import name."""
    tops = (
        name
        for name in list(sys.modules)
        if "." not in name and name not in sys.stdlib_module_names and name not in _OWN
    )
    found = {name: version for name in tops if (version := _version_of(name))}
    return {**found, "tuner-hpo": __version__}


def _version_of(name: str) -> str | None:
    # Not by getattr, which may run a module's `__getattr__`, and that may import anything.
    names = vars(sys.modules[name]) if name in sys.modules else {}
    version = names.get("__version__")
    if isinstance(version, str):
        return version
    return _distributed_version(name) if "__path__" in names or not names else None


@functools.cache
def _distributed_version(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415  (slow, and no trial waits for it)

    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return None


# Git.


@functools.cache
def git_state(place: str) -> Mapping[str, Any] | None:
    """Return commit and dirty flag of the repository of a script or directory.

    A script that git does not track makes the tree dirty; other untracked files do not.

    Returns:
        A dictionary of ``commit``, None before the first one, and ``dirty``; None without a
        repository, or if git cannot be run.
    """
    # Cached: what the process runs was loaded at its start, so later commits do not count.
    path = Path(place)
    folder = path if path.is_dir() else path.parent
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if status is None:
        return None
    lines = status.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    is_dirty = any(not line.startswith("#") for line in lines)
    if path.is_file() and not is_dirty:
        is_dirty = _git(folder, "ls-files", "--error-unmatch", "--", path.name) is None
    return {"commit": None if commit == "(initial)" else commit, "dirty": is_dirty}


def _git(folder: Path, *arguments: str) -> str | None:
    # The repository may configure a program as file system monitor, which must not be run. Without
    # locks, the user's own git commands are not disturbed.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603
            command,
            env=environ,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
        return done.stdout if done.returncode == 0 else None
    return None
