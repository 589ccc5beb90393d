"""Runs scripts one after the other in one process, as a notebook runs its cells.

PyTorch, Lightning or TensorFlow, which take seconds to load, are then loaded once by this process,
and once by the zygote that the first experiment leaves to the next one. That is only used again
where arguments, variables, home and working directory are the same; so they are for all scripts.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
_LIGHTNING = re.compile(r"^(?:import|from) (lightning|pytorch_lightning)\b", re.MULTILINE)


class ScriptRunner:
    """The process, which is started with the first script, and again after one that has failed.

    Lightning exists in two namespaces, and classes of `tuner.train.lightning` derive from those of
    the one that is imported. So scripts that import one have another process than those that import
    the other.

    Args:
        home: Its home and working directory, which is made.
        *folders: Where scripts find modules.

    Attributes:
        storage: The storage path of scripts that name no other, and their only argument.
    """

    def __init__(self, home, *folders):
        self._home = home
        self._path = os.pathsep.join(map(str, (ROOT, *folders)))
        self._process = None
        self._lightning = None
        self.storage = home / "tuner_results"

    def run(self, script, *arguments):
        """Run a script in an empty home directory, and return what it has printed.

        Args:
            script: Its file.
            *arguments: What its `argparse.ArgumentParser` parses.
        """
        for path in self._home.iterdir() if self._home.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if imported := _LIGHTNING.search(Path(script).read_text(encoding="utf-8")):
            if self._lightning not in (None, imported[1]):
                self.close()
            self._lightning = imported[1]
        if self._process is None:
            self._start()
        is_done, printed = False, ""
        try:
            self._process.stdin.write(json.dumps([str(script), arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            is_done, printed = json.loads(answer) if answer else (False, "the process has died")
        finally:
            if not is_done:
                self.close()
        assert is_done, printed
        return printed

    def close(self):
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = self._lightning = None

    def _start(self):
        self._home.mkdir(exist_ok=True)
        variables = {"HOME": str(self._home), "PYTHONPATH": self._path, "COLUMNS": "120"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.guides.script_runner", str(self.storage)],
            cwd=self._home,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def main():
    """Run the scripts that are named on standard input."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what processes of a script print is none of its own output
    parse = argparse.ArgumentParser.parse_args
    for line in requests:
        script, arguments = json.loads(line)
        argparse.ArgumentParser.parse_args = lambda self, given=arguments: parse(self, given)
        print(json.dumps(run(script)), file=answers, flush=True)


def run(script):
    """Return whether a script has run to its end, and what it has printed."""
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = script
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)  # noqa: S102
        except BaseException:  # noqa: BLE001  (whatever it is, it is told)
            return False, printed.getvalue() + traceback.format_exc()
    return True, printed.getvalue()


if __name__ == "__main__":
    main()
