"""Which tier a test is in, what is collected, and what a unit test must not do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).resolve().parents[1]
OF_UNIT = """
import subprocess, sys, threading, time
import pytest

def test_calm(): pass
def test_sleepy(): time.sleep(0.001)
def test_threaded(): threading.Thread(target=int).start()
def test_forking(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_loading(): import sklearn
def test_slow(): sum(number * number for number in range(8_000_000))
@pytest.mark.process
def test_marked(): time.sleep(0.001)
"""
OF_HEAVY = f"""
import pytest
{"pytestmark = pytest.mark.heavy"}
raise RuntimeError("it is imported")
"""  # in braces, since lines of this file tell its own tier


@pytest.mark.parametrize(
    ("path", "text", "tier"),
    [
        ("core/test_a.py", "", "unit"),
        ("core/test_a.py", "import x\npytestmark = pytest.mark.process\n", "process"),
        ("core/test_a.py", "pytestmark = [skipif(True), pytest.mark.heavy]\n", "heavy"),
        ("core/test_a.py", "@pytest.mark.process\ndef test_a(): pass\n", "unit"),
        ("end_to_end/test_a.py", "", "process"),
        ("end_to_end/test_a.py", "pytestmark = pytest.mark.unit\n", "unit"),
        ("simulation/test_a.py", "", "property"),
    ],
)
def test_a_mark_of_the_file_goes_before_the_folder(path, text, tier):
    assert tiers.tier_of(Path(path), text) == tier


def test_every_folder_with_a_tier_exists():
    assert [name for name in tiers.FOLDERS if not (ROOT / "tests" / name).is_dir()] == []


def run(folder, *options):
    """Run pytest on a folder with nothing but the tiers, and return what it prints."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers", "-p", "no:cacheprovider"]
    return subprocess.run(  # noqa: S603  (our own interpreter and files)
        [*command, "-m", "unit", "-q", "--rootdir", folder, *options, folder],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.process
def test_a_unit_test_that_does_more_fails_and_other_tiers_are_not_imported(tmp_path):
    (tmp_path / "test_of_unit.py").write_text(OF_UNIT)
    (tmp_path / "test_of_heavy.py").write_text(OF_HEAVY)
    printed = run(tmp_path)
    for words in (
        "the test sleeps, and is no unit test",
        "the test starts a thread",
        "the test starts a process",
        "the test imports sklearn",
        "s of CPU time; a unit test may take 0.2",
        "5 failed, 1 passed, 1 deselected",
    ):
        assert words in printed


@pytest.mark.process
def test_with_all_examples_a_unit_test_may_take_longer(tmp_path):
    (tmp_path / "test_of_unit.py").write_text(OF_UNIT)
    assert "1 passed" in run(tmp_path, "--full", "-k", "slow")


def test_no_test_sleeps_but_while_it_waits():
    """See `tests.waiting`; what runs as a script of its own is not looked at."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    sleeping = re.compile(r"^import time$.*^ +time\.sleep\(", re.MULTILINE | re.DOTALL)
    found = {
        path.relative_to(ROOT).as_posix() for path, text in texts.items() if sleeping.search(text)
    }
    assert found == {"tests/waiting.py"}
