"""Options of a Python script, found by reading it: argparse's, click's and typer's.

The script is parsed, never imported or run. What it computes at run time, such as choices from a
registry of models, is not known then.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .argparse_options import ArgparseOptions
from .decorated_options import DecoratedOptions
from .python_source import Constants, imported_files, parse_file
from .script_option import Option

_CLI_LIBRARIES: Final = {
    "hydra": "hydra",
    "LightningCLI": "lightning",
    "jsonargparse": "jsonargparse",
    "fire": "fire",
    "tyro": "tyro",
    "simple_parsing": "simple_parsing",
    "HfArgumentParser": "transformers",
    "absl": "absl",
    "docopt": "docopt",
}


@dataclass(frozen=True, slots=True)
class Script:
    """What a script accepts.

    Attributes:
        options: Its options, in their order.
        commands: Its subcommands, in their order.
        unread: Lines that declare options whose names are computed.
        library: The library for its command line that is not read but known, empty for none.
        files: The file, and those beside it that it imports and whose options these are.
    """

    options: tuple[Option, ...] = ()
    commands: tuple[str, ...] = ()
    unread: tuple[int, ...] = ()
    library: str = ""
    files: tuple[Path, ...] = ()


def read_script(path: Path) -> Script:
    """Return the options of a script; if it declares none, those of a module beside it.

    Raises:
        ValueError: If the file is no Python; says where.
        OSError: If it cannot be read.
    """
    tree = parse_file(path)
    found = options_of(tree)
    if found.options or found.unread:
        return replace(found, files=(path,))
    for module in imported_files(tree, path.parent):
        try:
            beside = options_of(parse_file(module))
        except ValueError:
            continue  # the script itself is fine
        if beside.options:
            return replace(beside, library=beside.library or found.library, files=(path, module))
    return replace(found, files=(path,))


def options_of(tree: ast.Module) -> Script:
    """Return the options that a file declares."""
    constants = Constants(tree)
    argparse = ArgparseOptions(constants)
    argparse.read(tree)
    click = DecoratedOptions(constants, tree)
    click.read(tree)
    options = [*argparse.options, *click.options]
    commands = [*argparse.commands, *click.commands]
    return Script(
        options=tuple(options),
        commands=tuple(dict.fromkeys(commands)),
        unread=tuple(argparse.unread),
        library=_library_of(tree),
    )


def _library_of(tree: ast.Module) -> str:
    """Return the library for command lines that a script imports, empty for none or another."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module.split(".")[0], *(alias.name for alias in node.names)]
        for name in names:
            if name in _CLI_LIBRARIES:
                return _CLI_LIBRARIES[name]
    return ""
