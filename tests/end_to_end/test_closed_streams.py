"""Experiments started without standard input, output or error, as daemons and cron jobs are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.journal import reader

SCRIPT = Path(__file__).with_name("scripts") / "closed_streams.py"
ROOT = Path(__file__).resolve().parents[2]


def run(redirections, tmp_path):
    command = f'exec "$0" "$@" {redirections}'
    arguments = [
        "sh",
        "-c",
        command,
        sys.executable,
        str(SCRIPT),
        str(tmp_path),
        str(tmp_path / "answer.json"),
    ]
    return subprocess.run(
        arguments,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_an_experiment_runs_without_its_standard_streams(redirections, tmp_path):
    done = run(redirections, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "answer.json").read_text()) == [[3, "None"]] * 2
    for trial_id in ("t00000", "t00001"):
        assert (tmp_path / "e" / trial_id / "stdout").read_text() == "printed\n"
        assert (tmp_path / "e" / trial_id / "stderr").read_text() == "written\n"
    assert sum(record["k"] == "result" for record in reader.read(tmp_path / "e")) == 6


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_module_that_closes_standard_streams_when_it_is_imported_harms_no_trial(closed, tmp_path):
    (tmp_path / "closing.py").write_text(
        f"import os\nfor descriptor in {closed}:\n    os.close(descriptor)\n"
    )
    script = tmp_path / "script.py"
    # The module is imported where the trainable is loaded, and not in the driver.
    text = SCRIPT.read_text().replace(
        "def train(config):\n",
        "class Importer:\n    def __reduce__(self):\n        return __import__, "
        "('closing',)\n\n\ndef train(config, module=Importer()):\n",
    )
    script.write_text(text)
    arguments = [sys.executable, str(script), str(tmp_path), str(tmp_path / "answer.json")]
    done = subprocess.run(
        arguments,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "answer.json").read_text()) == [[3, "None"]] * 2
    assert (tmp_path / "e" / "t00000" / "stdout").read_text() == "printed\n"
