"""The commands on the page about programs run, with the files that it shows."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import BLOCK, ROOT, SHELL_PAGES, TEXTS

NAMED = re.compile(r"`([\w.-]+)`:\s*$")
"""The end of a paragraph: the block below it is a file with this name."""
MAX_TRIALS = 2
"""How many trials a sweep of a page runs here; readers see more."""
NUM_EPOCHS = 9
"""How long they train, in the place of 27 epochs."""


def shorter(code):
    """Return a block with shorter trainings of fewer trials."""
    code = re.sub(r"(-n |num_samples=)\d+", rf"\g<1>{MAX_TRIALS}", code)
    return re.sub(r"\b27\b", str(NUM_EPOCHS), code)


def run_block(block, place):
    """Run a block of shell or Python as a reader does, and return what it prints."""
    code = shorter(block["code"])
    words = ["bash", "-eu", "-o", "pipefail", "-c", code]
    if block["language"] == "python":
        words = [sys.executable, "-c", code]
    done = subprocess.run(
        words,
        cwd=place,
        env=os.environ
        | {
            "HOME": str(place),
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),  # noqa: PTH120
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        },
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(400)  # a dozen sweeps, whose trials load scikit-learn
@pytest.mark.parametrize("page", SHELL_PAGES)
def test_commands_of_the_page_run_one_after_another(page, tmp_path):
    text, end, printed = TEXTS[page], 0, None
    for block in BLOCK.finditer(text):
        between, end = text[end : block.start()], block.end()
        if named := NAMED.search(between):
            Path(tmp_path, named[1]).write_text(shorter(block["code"]), encoding="utf-8")
            printed = None
        elif block["language"] in {"sh", "python"}:
            printed = run_block(block, tmp_path)
        elif printed is not None and not between.strip():
            wanted, flags = block["code"], doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(wanted, printed, flags), (
                f"{page} says\n{wanted}\nand prints\n{printed}"
            )
            printed = None
