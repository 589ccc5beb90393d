"""The report in a real browser: charts are drawn, no script fails, and the table can be used."""

import ast
import shutil

import pytest

from tests.analysis.browser import Browser
from tests.analysis.real_runs import HOSTILE
from tuner.analysis import ResultGrid
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure
from tuner.journal.rows import MemoryRows

pytest.importorskip("plotly")

PROGRAM = next(
    filter(
        None,
        map(
            shutil.which,
            ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
        ),
    ),
    None,
)
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(PROGRAM is None, reason="no Chromium there")]

CELLS = (
    "[...document.querySelectorAll('#trial-table tbody tr')]"
    ".map(row => row.children[{column}].textContent)"
)
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
    """A separate browser with the report of an experiment, which is opened once."""
    path = tmp_path_factory.mktemp("page")
    with Browser(PROGRAM, path / "profile") as browser:
        browser.open(experiment("asha").report(path).as_uri())
        yield browser


def typed(text):
    return (
        "(() => { const box = document.getElementById('filter'); "
        f"box.value = {text!r}; box.dispatchEvent(new Event('input')); }})()"
    )


@pytest.mark.parametrize("kind", ["hyperband", "pbt", "plain"])
def test_all_charts_are_drawn_and_nothing_is_complained_about(experiment, opened, kind):
    browser = opened(experiment(kind))
    num_charts = browser.run("document.querySelectorAll('.chart').length")
    assert num_charts >= 6
    assert (
        browser.run(
            "document.querySelectorAll('.chart[data-drawn=true]:has(.cartesianlayer "
            ".trace)').length"
        )
        == num_charts
    )
    assert browser.run("Number(document.body.dataset.drawn)") == num_charts
    assert browser.run("document.querySelectorAll('#trial-table tbody tr').length") == len(
        experiment(kind)
    )
    assert browser.complaints == []


def test_the_table_is_sorted_by_numbers_and_back(experiment, page):
    grid = experiment("asha")
    click = (
        "[...document.querySelectorAll('#trial-table th button')]"
        ".find(button => button.textContent === 'loss').click()"
    )
    losses = pytest.approx(sorted(trial.summary["loss"].last for trial in grid.trials), rel=1e-4)
    worst_first = pytest.approx(
        sorted((trial.summary["loss"].last for trial in grid.trials), reverse=True), rel=1e-4
    )
    assert [float(cell) for cell in page.run(CELLS.format(column=3))] == losses  # the best first
    page.run(click)
    assert [float(cell) for cell in page.run(CELLS.format(column=3))] == losses
    page.run(click)
    assert [float(cell) for cell in page.run(CELLS.format(column=3))] == worst_first
    assert page.run("document.querySelector('th[aria-sort]').textContent") == "loss"


def test_the_table_is_filtered_by_text_condition_and_state(experiment, page):
    grid = experiment("asha")
    for text, expected in (
        ("t00007", ["t00007"]),
        (
            "x<0.3 kind=a",
            [t.trial_id for t in grid.trials if t.config["x"] < 0.3 and t.config["kind"] == "a"],
        ),
        ("x > 0.3 x<=0.6", [t.trial_id for t in grid.trials if 0.3 < t.config["x"] <= 0.6]),
        (
            "t0000 kind != a",
            [t.trial_id for t in grid.trials if t.trial_id < "t00010" and t.config["kind"] != "a"],
        ),
        ("ending=completed", [t.trial_id for t in grid.trials if t.ending == "completed"]),
        (
            "ending = stopped_early",
            [t.trial_id for t in grid.trials if t.ending == "stopped early"],
        ),
        (
            "ending==stopped early t0000",
            [
                t.trial_id
                for t in grid.trials
                if t.ending == "stopped early" and t.trial_id < "t00010"
            ],
        ),
        ("iterations==1", [t.trial_id for t in grid.trials if t.iteration == 1]),
        ("iterations!=1", [t.trial_id for t in grid.trials if t.iteration != 1]),
        ("run time (s)>=0", [t.trial_id for t in grid.trials]),
        ("Run_Time_(s) < 0", []),
        ("x<", [t.trial_id for t in grid.trials]),
        ("nothing has this", []),
    ):
        page.run(typed(text))
        assert sorted(page.run(CELLS.format(column=0))) == expected, text
        assert "no column" not in page.run("document.getElementById('count').textContent")
    page.run(typed("momentum > 3"))
    assert page.run("document.getElementById('count').textContent").endswith(
        '; there is no column "momentum"'
    )
    page.run(typed(""))
    page.run(
        "(() => { const box = document.getElementById('state'); box.value = 'completed'; "
        "box.dispatchEvent(new Event('change')); })()"
    )
    assert set(page.run(CELLS.format(column=2))) == {"completed"}
    assert page.run("document.getElementById('count').textContent") == "5 of 5 trials (20 in all)"


def test_more_rows_are_shown_when_asked_for(make, opened, tmp_path):
    trials = [make.trial(f"t{n:03d}", [{"loss": float(n)}], config={"x": n}) for n in range(120)]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows({}), "loss", "min"))
    assert len(browser.run(CELLS.format(column=0))) == 50
    browser.run("document.getElementById('more').click()")
    assert len(browser.run(CELLS.format(column=0))) == 120
    assert browser.run("document.getElementById('more').hidden") is True


CLIPPED = (
    "(() => { const box = document.querySelector('#all-trials .scroll'); "
    "return box.scrollWidth - box.clientWidth; })()"
)
HEADS = (
    "[...document.querySelectorAll('#trial-table th')]"
    ".filter(cell => !cell.hidden).map(cell => cell.textContent)"
)


def test_the_table_shows_the_columns_for_which_there_is_room_and_all_when_asked(
    make, opened, tmp_path
):
    names = [f"parameter_number_{number}" for number in range(25)]
    config = dict.fromkeys(names, 0.123456789)
    trials = [
        make.trial(
            f"t{n}",
            [{"other": 1.0, "loss": n / 7}],
            config={name: value + n for name, value in config.items()},
        )
        for n in range(3)
    ]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows({}), "loss", "min"))
    first, last = ["trial", "status", "ending", "loss"], ["iterations", "run time (s)", "decision"]
    for width in (1200, 700):  # each narrower than before: what has no more room is clipped at once
        browser.resize(width, 900)
        assert browser.comes(f"{CLIPPED} === 0")
        shown = browser.run(HEADS)
        assert shown[:5] == [*first, "parameter_number_0"]
        assert 5 <= len(shown) < 32
        browser.run("document.getElementById('columns').click()")
        assert browser.run(HEADS) == [*first, "other", *names, *last]
        assert browser.run("document.getElementById('columns').textContent") == "Fewer columns"
        browser.run("document.getElementById('columns').click()")
        assert browser.run(HEADS) == shown


def test_a_chart_whose_values_span_decades_changes_its_scale(make, opened, tmp_path):
    rows = {
        f"t{n}": [{"loss": 10.0**-step, "training_iteration": step} for step in range(1, 6)]
        for n in range(3)
    }
    trials = [
        make.trial(name, results, config={"x": number})
        for number, (name, results) in enumerate(rows.items())
    ]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), "loss", "min"))
    scale = "document.querySelector('#chart-curves')._fullLayout.yaxis.type"
    button = "document.querySelector('#curves button.scale')"
    assert (browser.run(scale), browser.run(f"{button}.textContent")) == ("log", "Linear scale")
    browser.run(f"{button}.click()")
    assert browser.comes(f"{scale} === 'linear'")
    assert browser.run(f"{button}.textContent") == "Log scale"
    browser.run(f"{button}.click()")
    assert browser.comes(f"{scale} === 'log'")
    assert browser.complaints == []


LONG = [
    "optimizer/learning_rate",
    "model/encoder/dropout_probability",
    "model/encoder/num_attention_heads",
    "data/augmentation_strategy_name",
    "optimizer/weight_decay_coefficient",
    "scheduler/warmup_fraction_of_steps",
    "model/decoder/hidden_dimension_size",
    "batchsizeperdevicewithoutanyseparator",
]
NARROWER = (
    "[...document.querySelectorAll('section:has(button.scale) .scroll')].filter(box => "
    "box.scrollWidth > box.clientWidth || "
    "Math.abs(box.clientWidth - box.parentElement.querySelector('h2').parentElement.clientWidth "
    "+ 36) > 1).map(box => box.parentElement.id)"
)
"""Charts with a switch that do not fill the width between the paddings of their section."""
OVERLAPPING = """(() => {
  const texts = [...document.querySelectorAll('#chart-parallel .annotation-text')];
  const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
  const place = document.querySelector('#chart-parallel').getBoundingClientRect();
  const found = boxes.filter(([, a]) => a.left < place.left - 1 || a.right > place.right + 1)
    .map(([text]) => text);
  boxes.forEach(([one, a], number) => boxes.slice(number + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 3) found.push(`${one} | ${other}`);
  }));
  return found;
})()"""
"""Names and ticks of parallel coordinates that overlap, or lie outside."""


def test_charts_fill_their_width_and_long_names_do_not_overlap(make, opened, tmp_path):
    rows = {
        f"t{n}": [{"val/loss": 10.0**-step * 2**n, "training_iteration": step} for step in (1, 2)]
        for n in range(9)
    }
    trials = [
        make.trial(name, results, config={key: (number + 1) * 0.123456 ** len(key) for key in LONG})
        for number, (name, results) in enumerate(rows.items())
    ]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), "val/loss", "min"))
    gap = "Math.abs(chart.offsetWidth - chart.querySelector('svg').width.baseVal.value)"
    texts = "document.querySelectorAll('#chart-parallel .annotation-text')"
    for width in (1000, 1400, 1900):
        browser.resize(width, 900)
        assert browser.comes(f"[...document.querySelectorAll('.chart')].every(chart => {gap} <= 1)")
        assert browser.run("document.querySelectorAll('section:has(button.scale)').length") == 3
        assert browser.comes(f"{NARROWER}.length === 0"), browser.run(NARROWER)
        assert browser.run(f"{texts}.length") > 30
        assert browser.comes(f"{OVERLAPPING}.length === 0"), browser.run(OVERLAPPING)


def test_trials_that_report_once_are_shown_side_by_side(make, opened, tmp_path):
    rows = {f"t{n}": [{"loss": 1.0 / (1 + n), "training_iteration": 1}] for n in range(9)}
    trials = [
        make.trial(name, results, config={"x": number})
        for number, (name, results) in enumerate(rows.items())
    ]
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), "loss", "min"))
    assert browser.run("document.querySelector('#curves h2').textContent") == "Value of each trial"
    places = "document.querySelector('#chart-curves').data.map(trace => trace.x)"
    assert browser.run(places)[0] == list(range(1, 10))


def test_the_best_configuration_and_the_code_are_copied(experiment, page):
    page.run(
        "document.execCommand = () => { window.selected = document.activeElement.value; "
        "return true; }"
    )
    page.run(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })"
    )
    page.run("document.querySelector('#best button.copy').click()")
    assert page.comes("document.querySelector('#best button.copy').textContent === 'Copied'")
    assert (
        ast.literal_eval(page.run("window.selected")) == experiment("asha").get_best_result().config
    )
    page.run("document.querySelector('#setup button.copy').click()")
    assert page.comes("window.selected.startsWith('import tuner as tune')")


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
        page.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark"}],
        )
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
        assert page.run(
            "[...document.querySelectorAll('svg.main-svg')].every(svg => svg.clientWidth <= 700)"
        )
        assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    finally:
        page.ask("Emulation.setEmulatedMedia", media="")
        page.run("window.dispatchEvent(new Event('afterprint'))")
        page.resize(1300, 900)
    assert page.run("document.querySelectorAll('svg.main-svg[viewBox]').length") == 0


def test_hostile_texts_do_nothing_but_stand_there(make, opened, tmp_path):
    trials = [
        make.trial(f"t{n}", [{HOSTILE: 1.0 + n}], config={HOSTILE: f"{HOSTILE}{n}", "x": n})
        for n in range(12)
    ]
    trials.append(
        make.trial("bad", config={"x": 5}, status=Status.ERROR, ending=TerminationReason.FAILED)
    )
    trials[-1].failures = [Failure("Error", HOSTILE, "")]
    rows = {trial.trial_id: make.rows(trial.trial_id, [{HOSTILE: 1.0}]) for trial in trials}
    browser = opened(ResultGrid(trials, str(tmp_path), MemoryRows(rows), HOSTILE, "min"))
    assert browser.complaints == []
    assert browser.run("document.title") == tmp_path.name
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.scripts.length") == 5
    assert HOSTILE in browser.run("document.querySelector('#trial-table thead').textContent")


def test_scripts_added_to_the_page_later_are_not_run(page):
    evil = (
        "const evil = document.createElement('script'); "
        "evil.textContent = 'document.title = 1'; document.body.append(evil);"
    )
    page.run(f"(() => {{ {evil} }})()")
    assert page.run("document.title") == "asha"
    assert "Content Security Policy" in str(page.complaints)
