"""Compiles what is written in C, where a compiler is; without one everything works all the same, in Python."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

SOURCES = {
    "tuner.callbacks._rows": "tuner/callbacks/_rows.c",
    "tuner.storage._lines": "tuner/storage/_lines.c",
    "tuner.storage._plain": "tuner/storage/_plain.c",
}


class ExtensionsBuildHook(BuildHookInterface):
    """Compiles each source beside itself, and takes the result into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface.initialize`."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        made = [path.relative_to(root).as_posix() for path in compiled(root)]
        build_data["artifacts"] += made
        build_data["pure_python"] = not made
        build_data["infer_tag"] = bool(made)


def compiled(root: Path) -> list[Path]:
    """Compile what can be compiled, and return the paths of the results; what cannot is only warned of."""
    extensions = [
        Extension(name, [path], py_limited_api=True, optional=True)
        for name, path in SOURCES.items()
    ]
    os.chdir(root)
    command = Distribution({"name": "tuner-hpo", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    command.inplace = True
    with (
        tempfile.TemporaryDirectory() as directory
    ):  # so that nothing of an older source, or header, is taken for up to date
        command.build_temp = command.build_lib = directory
        command.ensure_finalized()
        results = [root / command.get_ext_fullpath(name) for name in SOURCES]
        for path in results:
            path.unlink(missing_ok=True)
        command.run()
    return [path for path in results if path.exists()]
