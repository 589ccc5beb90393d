"""A capability can be deleted without one of the engine's tests failing: the delete test.

`CAPABILITIES` names the files of each, and the tests that need it. In a copy of the sources without
them all, the engine's modules are imported, the smallest experiment runs, and in the tier ``heavy``
the engine's unit tests. With ``--full`` each is also deleted alone.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interpreter import run_python
from tests.tiers import is_full
from tuner import capabilities
from tuner.core import part

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "schedulers", "searchers")
ENGINE = (
    "analysis", "callbacks", "core", "driver", "execution", "journal", "restore", "schedulers",
    "searchers", "spec", "storage",
)  # fmt: skip
"""Folders of the engine's unit tests."""


class Capability(NamedTuple):
    """Folders or files of the sources, and folders, files or ids of the tests that need them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


CAPABILITIES = {
    "budgets": Capability(("tuner/budgets",), ("tests/budgets",)),
    "charts": Capability(
        ("tuner/analysis/charts", "tuner/analysis/trade_offs.py"),
        (
            "tests/analysis/charts",
            "tests/analysis/test_configs_in_force.py",
            "tests/analysis/test_constraints.py",
            "tests/analysis/test_result_grid.py",
            "tests/analysis/test_tables_page.py",
        ),
    ),
    "cli": Capability(
        ("tuner/cli", "tuner/__main__.py"), ("tests/cli", "tests/spec/test_written_forms.py")
    ),
    "cluster": Capability(
        (
            "tuner/cluster",
            "tuner/storage/spread_parts.py",
        ),
        (
            "tests/cluster",
            "tests/storage/test_spread_parts.py",
        ),
    ),
    "command": Capability(("tuner/command",), ("tests/command",)),
    "dashboard": Capability(
        ("tuner/analysis/optuna_storage.py",),
        ("tests/analysis/test_optuna_storage.py", "tests/analysis/test_unknown_endings.py"),
    ),
    "groups": Capability(
        ("tuner/groups",),
        (
            "tests/groups",
            ("tests/execution/test_process_executor.py::test_a_kill_for_silence_says_what_to_do"),
        ),
    ),
    "integration": Capability(("tuner/integration",), ("tests/integration",)),
    "leases": Capability(("tuner/leases",), ("tests/leases", "tests/core/test_part.py")),
    "maintenance": Capability(
        ("tuner/maintenance",), ("tests/maintenance", "tests/searchers/test_foreign_domains.py")
    ),
    "nodes": Capability(
        ("tuner/nodes",),
        ("tests/nodes", "tests/analysis/test_node_history.py", "tests/core/test_worker_groups.py"),
    ),
    "report": Capability(("tuner/analysis/report",), ("tests/analysis/report",)),
    "stopping": Capability(
        ("tuner/stopping",), ("tests/stopping", "tests/spec/test_argument_codec.py")
    ),
    "stores": Capability(("tuner/stores",), ("tests/stores",)),
    "testing": Capability(
        ("tuner/testing",),
        ("tests/contracts", "tests/spec/test_worker_groups.py"),
    ),
    "trackers": Capability(
        ("tuner/callbacks/trackers",),
        (
            "tests/callbacks/test_comet_logger.py",
            "tests/callbacks/test_mlflow_logger.py",
            "tests/callbacks/test_tracker_queue.py",
            "tests/callbacks/test_wandb_logger.py",
        ),
    ),
    "train": Capability(("tuner/train",), ("tests/train",)),
    "validation": Capability(
        ("tuner/validation",),
        (
            "tests/validation",
            "tests/analysis/test_shortfalls.py",
            (
                "tests/execution/test_process_executor.py::"
                "test_a_lease_is_granted_to_whoever_asked_and_not_to_one_that_is_gone"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_validation_ends_when_its_process_is_gone"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_validation_whose_process_vanishes_has_failed_or_is_lost"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_killed_validation_is_killed_whatever_it_says"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_malformed_message_fails_the_validation"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_validation_that_cannot_be_started_now_is_started_later_or_fails"
            ),
            (
                "tests/execution/test_process_executor.py::"
                "test_a_payload_is_deleted_when_its_validation_is_not_tried_again"
            ),
            (
                "tests/core/test_progress.py::"
                "test_a_trial_is_held_while_too_many_of_its_checkpoints_are_to_be_validated"
            ),
            "tests/core/test_uploads.py::test_a_worker_gets_its_checkpoints_once_they_are_stored",
            "tests/core/test_uploads.py::test_one_that_could_not_be_stored_is_no_longer_waited_for",
        ),
    ),
    "virtual": Capability(
        ("tuner/virtual",),
        (
            "tests/virtual",
            "tests/driver/test_persist_then_act.py",
            "tests/driver/test_suggestion_queue.py",
        ),
    ),
    "whatif": Capability(("tuner/whatif",), ("tests/whatif",)),
}
"""What can be deleted today. One is added here as soon as the engine no longer needs it."""
TESTS = [path for capability in CAPABILITIES.values() for path in capability.tests]

USE_ENGINE = """
import importlib, pathlib, sys, tempfile

needed = {}
for path in sorted(path for name in sys.argv[1:] for path in pathlib.Path(name).rglob("*.py")):
    parts = path.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    try:
        importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in sys.argv[1:]:
            needed[name] = str(error)
assert not needed, f"the engine imports capabilities: {needed}"

import tuner
with tempfile.TemporaryDirectory() as directory:
    run_config = tuner.RunConfig(storage_path=directory, verbose=0)
    tuner.Tuner(lambda config: tuner.report({"loss": 1}), run_config=run_config).fit()
"""

USED = """
import tempfile, tuner
from tuner import capabilities

with tempfile.TemporaryDirectory() as directory:
    run_config = tuner.RunConfig(storage_path=directory, verbose=0)
    tuner.Tuner(lambda config: tuner.report({"loss": 1}), run_config=run_config).fit()
print(*(name for name in dir(capabilities) if name in vars(capabilities) and name[0] != "_"))
"""
"""The smallest experiment, which prints the names of the table that it has used."""


def run_without(names, target, *arguments):
    """Run Python in a copy of the sources without some capabilities, which has to succeed."""
    (target / "home").mkdir()
    for name in (*PACKAGES, "tests", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, target / name)
    sources = [path for name in names for path in CAPABILITIES[name].sources]
    for path in (*sources, *(path for path in TESTS if "::" not in path)):
        remove = shutil.rmtree if (target / path).is_dir() else os.remove
        remove(target / path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(  # noqa: S603  (our own interpreter and files)
        [sys.executable, *arguments],
        cwd=target,
        env=kept | {"PYTHONPATH": str(target), "HOME": str(target / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"the engine needs one of {', '.join(names)}: let it import that where it is used, or move "
        f"the test to those of the capability\n{done.stdout[-8_000:]}{done.stderr[-4_000:]}"
    )


def test_the_table_has_the_names_that_the_engine_uses():
    texts = [path.read_text() for path in (ROOT / "tuner").rglob("*.py")]
    used = {
        name for text in texts for name in re.findall(r"\bcapabilities\.([A-Za-z]\w+)\(?", text)
    }
    used |= {place.name for place in part._PARTS}
    assert {name for name in dir(capabilities) if name[0] != "_"} == used - {"Name", "py"}


@pytest.mark.process
def test_the_smallest_fit_uses_no_capability(tmp_path):
    assert run_python("-c", USED, cwd=tmp_path).stdout.split() == []


@pytest.mark.process
def test_the_engine_runs_without_capabilities(tmp_path):
    run_without(CAPABILITIES, tmp_path, "-c", USE_ENGINE, *PACKAGES)


@pytest.mark.heavy
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    "names", [[*CAPABILITIES], *([name] for name in CAPABILITIES if is_full())]
)
def test_no_unit_test_of_the_engine_needs_a_capability(names, tmp_path):
    folders = [f"tests/{folder}" for folder in ENGINE]
    options = ["-q", "--tb=short", "--maxfail=20", "--continue-on-collection-errors"]
    options += [f"--deselect={test}" for test in TESTS if "::" in test]
    run_without(names, tmp_path, "-m", "pytest", "-m", "unit and not property", *options, *folders)
