"""The report in a real browser: every chart is drawn, and no script complains."""

import os
import re
import shutil
import subprocess

import pytest

from tests.analysis.real_runs import HOSTILE
from tuner.analysis import MemoryRows, ResultGrid
from tuner.core.trial import Ending, Failure, Status

pytest.importorskip("plotly")

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.fixture
def opened(tmp_path):
    """Opens a report, and returns the document as it is once the scripts have run, and what they complained about."""

    def open_page(grid, *flags):
        path = grid.report(tmp_path / "report.html")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr", "--dump-dom"]
        command += [
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=20000",
            "--window-size=1300,900",
            *flags,
            path.as_uri(),
        ]
        home = os.environ | {"HOME": str(tmp_path)}
        done = subprocess.run(  # noqa: S603  (a browser on a file of ours)
            command, capture_output=True, text=True, check=True, timeout=90, stdin=subprocess.DEVNULL, env=home
        )
        return done.stdout, re.findall(r":CONSOLE[^\n]*", done.stderr)

    return open_page


@pytest.mark.parametrize("kind", ["hyperband", "pbt", "plain"])
def test_all_charts_are_drawn_and_nothing_is_complained_about(experiment, opened, kind):
    grid = experiment(kind)
    document, complaints = opened(grid)
    assert complaints == []
    num_charts = len(re.findall(r'class="chart[ "]', document))
    assert num_charts >= 7
    assert document.count('data-drawn="true"') == num_charts
    assert f'data-drawn="{num_charts}"' in document
    assert document.count('class="main-svg"') >= 2 * num_charts
    assert f">{len(grid)} of {len(grid)} trials<" in document
    assert len(re.findall(r"<tr[^>]*><td[^>]*>t\d{5}<", document)) == len(grid) + min(10, len(grid)) + grid.num_errors


def test_hostile_texts_do_nothing_but_stand_there(make, opened, tmp_path):
    trials = [make.trial(f"t{n}", [{HOSTILE: 1.0 + n}], config={HOSTILE: f"{HOSTILE}{n}", "x": n}) for n in range(12)]
    trials.append(make.trial("bad", config={"x": 5}, status=Status.ERROR, ending=Ending.FAILED))
    trials[-1].failures = [Failure("Error", HOSTILE, "")]
    rows = {trial.trial_id: make.rows(trial.trial_id, [{HOSTILE: 1.0}]) for trial in trials}
    document, complaints = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), HOSTILE, "min"))
    assert complaints == []
    assert "<title>pwned" not in document
    assert "<img src=" not in document
    assert 'data-drawn="true"' in document
