"""The report in a real browser: every chart is drawn, no script complains, and the table does what it is told."""

import shutil

import pytest

from tests.analysis.browser import Browser
from tests.analysis.real_runs import HOSTILE
from tuner.analysis import MemoryRows, ResultGrid
from tuner.core.trial import Ending, Failure, Status

pytest.importorskip("plotly")

PROGRAM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

CELLS = "[...document.querySelectorAll('#trial-table tbody tr')].map(row => row.children[{column}].textContent)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report in the browser."""

    def open_report(grid):
        browser.complaints.clear()
        browser.open(grid.report(tmp_path / "report.html").as_uri())
        return browser

    return open_report


@pytest.fixture(scope="module")
def page(tmp_path_factory, experiment):
    """A browser of its own with the report of an experiment, which is opened once."""
    path = tmp_path_factory.mktemp("page")
    with Browser(PROGRAM, path / "profile") as browser:
        browser.open(experiment("asha").report(path).as_uri())
        yield browser


def typed(text):
    return f"(() => {{ const box = document.getElementById('filter'); box.value = {text!r}; box.dispatchEvent(new Event('input')); }})()"


@pytest.mark.parametrize("kind", ["hyperband", "pbt", "plain"])
def test_all_charts_are_drawn_and_nothing_is_complained_about(experiment, opened, kind):
    browser = opened(experiment(kind))
    num_charts = browser.run("document.querySelectorAll('.chart').length")
    assert num_charts >= 6
    assert browser.run("document.querySelectorAll('.chart[data-drawn=true]:has(.cartesianlayer .trace)').length") == num_charts
    assert browser.run("Number(document.body.dataset.drawn)") == num_charts
    assert browser.run("document.querySelectorAll('#trial-table tbody tr').length") == len(experiment(kind))
    assert browser.complaints == []


def test_the_table_is_sorted_by_numbers_and_back(experiment, page):
    grid = experiment("asha")
    click = "[...document.querySelectorAll('#trial-table th button')].find(button => button.textContent === 'loss').click()"
    losses = sorted(float(f"{trial.summary['loss'].last:.6g}") for trial in grid.trials)
    page.run(click)
    assert [float(cell) for cell in page.run(CELLS.format(column=2))] == losses
    page.run(click)
    assert [float(cell) for cell in page.run(CELLS.format(column=2))] == losses[::-1]
    assert page.run("document.querySelector('th[aria-sort]').textContent") == "loss"


def test_the_table_is_filtered_by_text_condition_and_state(experiment, page):
    grid = experiment("asha")
    for text, expected in (
        ("t00007", ["t00007"]),
        ("x<0.3 kind=a", [t.trial_id for t in grid.trials if t.config["x"] < 0.3 and t.config["kind"] == "a"]),
        ("state=completed", [t.trial_id for t in grid.trials if t.ending == "completed"]),
        ("nothing has this", []),
    ):
        page.run(typed(text))
        assert sorted(page.run(CELLS.format(column=0))) == expected
    page.run(typed(""))
    page.run("(() => { const box = document.getElementById('state'); box.value = 'completed'; box.dispatchEvent(new Event('change')); })()")
    assert set(page.run(CELLS.format(column=1))) == {"completed"}
    assert page.run("document.getElementById('count').textContent") == "5 of 5 trials (20 in all)"


def test_more_rows_are_shown_when_asked_for(make, opened, tmp_path):
    trials = [make.trial(f"t{n:03d}", [{"loss": float(n)}], config={"x": n}) for n in range(120)]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows({}), "loss", "min"))
    assert len(browser.run(CELLS.format(column=0))) == 50
    browser.run("document.getElementById('more').click()")
    assert len(browser.run(CELLS.format(column=0))) == 120
    assert browser.run("document.getElementById('more').hidden") is True


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_no_window_is_too_narrow(page, width):
    page.resize(width, 900)
    assert page.run(OVERFLOW) == 0
    gap = "Math.abs(chart.offsetWidth - chart.querySelector('svg').width.baseVal.value)"
    assert page.comes(f"[...document.querySelectorAll('.chart')].every(chart => {gap} <= 1)")


def test_the_colours_follow_the_scheme_while_the_page_is_open(page):
    ink = "getComputedStyle(document.querySelector('#chart-curves .xtick text')).fill"
    light = page.run(ink)
    try:
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert page.comes(f"{ink} !== {light!r}")
    finally:
        page.ask("Emulation.setEmulatedMedia", features=[])


def test_on_paper_charts_are_as_wide_as_the_page_and_come_back(page):
    page.resize(1300, 900)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.ask("Emulation.setEmulatedMedia", media="print")
    page.resize(700, 900)
    try:
        assert page.run(OVERFLOW) == 0
        assert page.run("[...document.querySelectorAll('svg.main-svg')].every(svg => svg.clientWidth <= 700)")
        assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    finally:
        page.ask("Emulation.setEmulatedMedia", media="")
        page.run("window.dispatchEvent(new Event('afterprint'))")
        page.resize(1300, 900)
    assert page.run("document.querySelectorAll('svg.main-svg[viewBox]').length") == 0


def test_hostile_texts_do_nothing_but_stand_there(make, opened, tmp_path):
    trials = [make.trial(f"t{n}", [{HOSTILE: 1.0 + n}], config={HOSTILE: f"{HOSTILE}{n}", "x": n}) for n in range(12)]
    trials.append(make.trial("bad", config={"x": 5}, status=Status.ERROR, ending=Ending.FAILED))
    trials[-1].failures = [Failure("Error", HOSTILE, "")]
    rows = {trial.trial_id: make.rows(trial.trial_id, [{HOSTILE: 1.0}]) for trial in trials}
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), HOSTILE, "min"))
    assert browser.complaints == []
    assert browser.run("document.title") == tmp_path.name
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.scripts.length") == 5
    assert HOSTILE in browser.run("document.querySelector('#trial-table thead').textContent")


def test_what_is_put_into_the_page_later_is_not_run(page):
    evil = "const evil = document.createElement('script'); evil.textContent = 'document.title = 1'; document.body.append(evil);"
    page.run(f"(() => {{ {evil} }})()")
    assert page.run("document.title") == "asha"
    assert "Content Security Policy" in str(page.complaints)
