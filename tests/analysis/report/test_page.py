"""The report: one complete file, which is safe with any names of parameters."""

import base64
import functools
import hashlib
import json
import math
import re
import shutil
import sys
from html.parser import HTMLParser

import pytest

from searchers.objectives import outcome_constraints
from tests.analysis.real_runs import HOSTILE
from tests.tiers import made_once
from tuner.analysis import ResultGrid
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure
from tuner.journal.rows import MemoryRows
from tuner.storage.strict_json import Opaque
from tuner.version import __version__

pytest.importorskip("plotly")
pytestmark = pytest.mark.process


class Page(HTMLParser):
    """A page taken apart: its elements, its scripts, its texts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], [], ""
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.inside != "style":
            self.text += data

    def data(self, name):
        return next(
            json.loads(text, parse_constant=pytest.fail)
            for attrs, text in self.scripts
            if attrs.get("id") == name
        )

    def sections(self):
        return [attrs["id"] for tag, attrs in self.elements if tag == "section"]


@pytest.fixture(autouse=True)
def _small_library(request, monkeypatch):
    """Replace the five megabytes of Plotly's script in tests that do not need it."""
    if "library" not in request.fixturenames:
        monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "// the library")


@pytest.fixture
def library():
    """Asks for the library's own script."""


@pytest.fixture
def page_of(tmp_path):
    return lambda grid: Page(grid.report(tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def grid(make, tmp_path):
    def build(trials, metric="loss", mode="min"):
        rows = {
            trial.trial_id: [
                {key: value for key, value in trial.last_result.items() if key != "config"}
            ]
            for trial in trials
        }
        return ResultGrid(trials, str(tmp_path), MemoryRows(rows), metric, mode)

    return build


@pytest.fixture(scope="module")
def page_of_kind(experiment, tmp_path_factory):
    """Returns the page of a kind of experiment, each made once."""
    path = tmp_path_factory.mktemp("pages") / "report.html"

    @functools.cache
    def made(kind):
        with made_once(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("plotly.offline.get_plotlyjs", lambda: "// the library")
            return Page(experiment(kind).report(path).read_text(encoding="utf-8"))

    return made


ALWAYS = ["all-trials", "slowest", "failed"]


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("asha", ["rungs"]),
        ("promotion", ["rungs"]),
        ("hyperband", ["rungs"]),
        ("pbt", ["lineage", "schedules"]),
        ("plain", []),
    ],
)
def test_each_experiment_has_the_charts_for_which_there_is_matter(page_of_kind, kind, own):
    page = page_of_kind(kind)
    common = ["best", "curves", "history", "importance", "parallel", "slices"]
    assert page.sections() == [*common, *own, "slots", "quality", *ALWAYS, "setup"]
    drawn = [figure["place"] for figure in page.data("figures")]
    assert set(drawn) == {
        attrs["id"] for tag, attrs in page.elements if attrs.get("class") == "chart"
    }
    assert {name for tag, attrs in page.elements if tag == "a" for name in [attrs["href"][1:]]} <= {
        "best",
        *page.sections(),
    }


def test_the_table_has_every_trial_with_metric_parameters_and_decision(experiment, page_of_kind):
    grid = experiment("asha")
    table = page_of_kind("asha").data("trials")
    assert table["columns"] == [
        "trial",
        "status",
        "ending",
        "loss",
        "x",
        "kind",
        "iterations",
        "run time (s)",
        "decision",
    ]
    assert [row[3] for row in table["rows"]] == sorted(
        float(f"{trial.summary['loss'].last:.6g}") for trial in grid.trials
    )
    assert {row[0] for row in table["rows"]} == {trial.trial_id for trial in grid.trials}
    assert (table["num_best"], table["rows"][0][0]) == (1, grid.get_best_result().trial_id)
    assert [table["columns"][place] for place in table["priority"]] == table["columns"]
    assert {row[-1].split(" ")[0] for row in table["rows"]} == {"asha.rung", "asha.max_t"}


def test_the_head_shows_the_key_figures(experiment, page_of_kind):
    grid = experiment("asha")
    text = page_of_kind("asha").text
    best = grid.get_best_result()
    for told in (
        "Best loss (lower is better)",
        f"{best.metrics['loss']:.6g}",
        best.trial_id,
        "15 stopped early",
        "5 completed",
        "Saved by early stopping",
        "Stopping 15 trials early saved about ",
    ):
        assert told in text


def test_failed_trials_are_grouped_by_cause_with_configuration_traceback_and_log(
    experiment, page_of_kind
):
    grid = experiment("plain")
    page = page_of_kind("plain")
    assert "6 of 12 trials failed, for one cause" in page.text
    assert page.text.count("6 trials RuntimeError: no luck") == 1
    assert "in curve\n    raise RuntimeError(" in page.text
    failed = [trial for trial in grid.trials if trial.failures]
    assert all(
        page.text.count(f"{grid.experiment_path}/{trial.trial_id}/error.txt") == 1
        for trial in failed
    )


def test_causes_differ_by_type_and_by_message_without_its_numbers(make, grid, page_of):
    trials = [make.failed(f"t{number}", config={"x": number}) for number in range(6)]
    told = [
        ("ValueError", "nan at lr=0.1"),
        ("ValueError", "nan at lr=2e-05"),
        ("ValueError", "shape (3, 4)"),
        ("KeyError", "nan at lr=0.1"),
    ]
    for trial, (kind, message) in zip(trials[1:], told, strict=False):
        trial.failures = [Failure(kind, message, f"Traceback of {trial.trial_id}")]
    text = page_of(grid(trials)).text
    assert "6 of 6 trials failed, for 4 causes" in text
    assert text.index("2 trials ValueError: nan at lr=0.1") < text.index(
        "1 trial ValueError: shape (3, 4)"
    )
    assert ("Traceback of t1" in text, "Traceback of t2Traceback" in text) == (True, False)


def test_the_same_exception_at_the_same_line_is_one_cause_with_any_message(make, grid, page_of):
    trials = [make.failed(f"t{number}", config={"x": number}) for number in range(4)]
    for number, trial in enumerate(trials):
        frame = f'  File "/home/me/train.py", line {12 if number else 30}, in train\n    x'
        told = f"no file {'abcd'[number]}.npz"
        trial.failures = [
            Failure(
                "OSError", told, f"Traceback (most recent call last):\n{frame}\nOSError: {told}"
            )
        ]
    text = page_of(grid(trials)).text
    assert "4 of 4 trials failed, for 2 causes" in text
    assert "3 trials OSError: no file b.npz" in text
    assert "at train.py:12 in train" in text


def test_the_foot_shows_how_the_experiment_was_searched_and_how_to_reproduce_it(page_of_kind):
    text = page_of_kind("asha").text
    for told in (
        "SearcherBasicVariantGenerator()",
        ("SchedulerASHAScheduler(max_t=9, grace_period=1, reduction_factor=3, type='stopping')"),
        "Seed1",
        "Samples asked for20",
        f"Version of tuner-hpo{__version__}",
        "'kind': tune.choice(['a', 'b']),",
        "seed=1,",
    ):
        assert told in text
    assert re.search(r"Begun\d{4}-\d\d-\d\d \d\d:\d\d UTC", text)


def test_the_foot_shows_the_environment_of_the_latest_session(experiment, page_of, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(experiment("asha").experiment_path, copy)
    session = {
        "script": "/home/me/train.py",
        "module": None,
        "arguments": ["--lr", "a b"],
        "python": {"version": "3.12.1"},
        "platform": "Linux",
        "packages": {"torch": "2.9.0", "numpy": "2.1.0"},
        "git": {"commit": "abc123", "dirty": True},
    }
    (copy / "environment.json").write_text(json.dumps([{"script": "/old.py"}, session]))
    text = page_of(ResultGrid.from_directory(copy)).text
    for told in (
        "Commandpython /home/me/train.py --lr 'a b'",
        "Python3.12.1",
        "Git commitabc123, with uncommitted changes",
        "Packagestorch 2.9.0, numpy 2.1.0",
    ):
        assert told in text
    assert "/old.py" not in text
    (copy / "environment.json").write_text('{"not": "a list"}')
    assert "Command" not in page_of(ResultGrid.from_directory(copy)).text


def test_the_best_configuration_can_be_copied_as_a_python_dictionary(experiment, page_of_kind):
    grid = experiment("plain")
    page = page_of_kind("plain")
    assert (
        sum(
            tag == "button" and attrs.get("data-copy") == "best-config"
            for tag, attrs in page.elements
        )
        == 1
    )
    assert repr(grid.get_best_result().config["x"]) in page.text
    assert any(tag == "pre" and attrs.get("id") == "best-config" for tag, attrs in page.elements)


def test_several_objectives_have_a_front_in_place_of_a_best_trial(experiment, page_of_kind):
    grid = experiment("tradeoff")
    page = page_of_kind("tradeoff")
    front = grid.get_best_results()
    sections = page.sections()
    assert sections[:2] == ["front", "pareto"]
    assert {"importance", "importance-2", "curves", "slices"} <= set(sections)
    assert f"Pareto front{len(front)} of 24 trials" in page.text
    assert "no trial is the best" not in page.text
    assert "framed" not in page.text
    table = page.data("trials")
    assert table["columns"][3:5] == ["accuracy", "size"]
    assert [row[0] for row in table["rows"][: table["num_best"]]] == [
        result.trial_id for result in front
    ]


def test_nothing_of_the_users_is_markup_or_code(grid, page_of, make):
    config = {HOSTILE: HOSTILE, "obj": Opaque(HOSTILE), "list": [HOSTILE, 1], "x": 0.5}
    trials = [
        make.trial(
            f"t{n}", [{HOSTILE: 1.0 + n}], config={**config, HOSTILE: f"{HOSTILE}{n}", "x": n}
        )
        for n in range(3)
    ]
    trials.append(
        make.trial(
            "bad", config={**config, "x": 9}, status=Status.ERROR, ending=TerminationReason.FAILED
        )
    )
    trials[-1].failures = [Failure(HOSTILE, HOSTILE, HOSTILE)]
    page = page_of(grid(trials, metric=HOSTILE))
    assert "img" not in {tag for tag, _ in page.elements}
    assert [attrs.get("id") for attrs, _ in page.scripts] == [
        "figures",
        "looks",
        "trials",
        None,
        None,
    ]
    assert {name for _, attrs in page.elements for name in attrs if name.startswith("on")} == set()
    assert page.data("trials")["columns"].count(HOSTILE) == 2  # the metric and the parameter
    assert HOSTILE in page.text


def test_the_policy_allows_only_these_scripts_and_no_loading(experiment, page_of, library):
    page = page_of(experiment("asha"))
    [policy] = [
        attrs["content"]
        for tag, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for attrs, text in page.scripts
        if not attrs
    ]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert "default-src 'none'" in policy
    assert {
        name
        for tag, attrs in page.elements
        for name in attrs
        if name in ("src", "srcset", "action")
    } == set()
    assert all(attrs["href"].startswith("#") for _, attrs in page.elements if "href" in attrs)


def one_trial(make):
    return [make.trial("a", [{"loss": 0.5}], config={"x": 1})]


@pytest.mark.parametrize(
    "matter",
    [
        (lambda make: [], "loss", "No trial reported 'loss' as a number."),
        (one_trial, "loss", "No parameter differs between trials."),
        (one_trial, None, "The experiment names no metric and no mode"),
        (lambda make: [make.failed("a"), make.failed("b")], "loss", "No trial has a finite value."),
        (
            lambda make: [
                make.trial("a", [{"loss": math.nan}]),
                make.trial("b", [{"loss": math.inf}]),
            ],
            "loss",
            "No trial has a finite",
        ),
        (
            lambda make: [make.trial("a"), make.trial("b", [{"loss": "text"}])],
            "loss",
            "No trial reported 'loss' as a number.",
        ),
        (lambda make: [make.trial("a", status=Status.PENDING, ending=None)], "loss", "1 pending"),
        (
            lambda make: [make.trial(f"t{n}", [{"loss": n}], config={"x": n}) for n in range(12)],
            "loss",
            "Parameter importance",
        ),
        (
            lambda make: [make.trial(f"t{n}", [{"loss": 1.0}], config={"x": n}) for n in range(12)],
            "loss",
            "Best loss",
        ),
    ],
)
def test_every_experiment_has_a_page(make, grid, page_of, matter):
    trials, metric, told = matter
    page = page_of(grid(trials(make), metric, metric and "min"))
    assert told in page.text
    assert {attrs["href"][1:] for tag, attrs in page.elements if tag == "a"} <= {
        "best",
        *page.sections(),
    }
    page.data("figures")
    page.data("trials")


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 10**400, None, [1, [2]], {}, "", True, Opaque("<f>"), -0.0, 1e-300],
)
def test_parameters_may_be_anything(make, grid, page_of, value):
    trials = [
        make.trial(
            f"t{n}",
            [{"loss": 1.0 + n}],
            config={"x": value, "y": {"z": n}} if n % 2 else {"x": n + 1},
        )
        for n in range(12)
    ]
    page = page_of(grid(trials))
    assert [row[0] for row in page.data("trials")["rows"]] == [f"t{n}" for n in range(12)]


def test_importances_name_what_has_to_be_installed(make, grid, page_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    page = page_of(
        grid([make.trial(f"t{n}", [{"loss": float(n)}], config={"x": n}) for n in range(12)])
    )
    assert 'needs Optuna, which is not installed; pip install "tuner-hpo[optuna]"' in page.text


def test_the_page_says_what_is_left_out(make, tmp_path, page_of):
    trials, rows = [], {}
    for n in range(210):
        trials.append(make.trial(f"t{n:03d}", [{"loss": float(n)}], config={"x": n}))
        rows[trials[-1].trial_id] = [
            {"loss": float(n) + step / 300, "training_iteration": step}
            for step in range(300 if n == 0 else 1)
        ]
    page = page_of(ResultGrid(trials, str(tmp_path), MemoryRows(rows), "loss", "min"))
    assert (
        "Shows 200 of 210 trials: the best 100, and others spread evenly over the ranks."
        in page.text
    )
    assert "A curve with more than 200 points (1 here)" in page.text
    curves = next(figure for figure in page.data("figures") if figure["place"] == "chart-curves")
    assert sum(value is None for trace in curves["data"] for value in trace["x"]) == 200


def test_a_directory_gets_a_report_html(experiment, tmp_path):
    assert experiment("plain").report(tmp_path) == tmp_path / "report.html"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_grid_read_from_its_directory_has_the_same_page(experiment, page_of_kind, page_of):
    grid = experiment("asha")
    ran, read = page_of_kind("asha"), page_of(ResultGrid.from_directory(grid.experiment_path))
    assert read.data("figures") == ran.data("figures")
    assert read.data("trials") == ran.data("trials")


def test_without_plotly_the_extra_is_named_and_nothing_written(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r'pip install "tuner-hpo\[report\]"'):
        grid([]).report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_infeasible_trials_are_marked_and_never_the_best(page_of_kind, experiment):
    page, grid = page_of_kind("limited"), experiment("limited")
    assert page.sections()[:3] == ["front", "pareto", "hypervolume"]
    num = len(grid.feasible)
    assert f"; {num} of 24 trials keep size_mb <= 4" in page.text
    table = page.data("trials")
    place = table["columns"].index("feasible")
    feasible = [row[place] for row in table["rows"]]
    assert feasible.count("yes") == num
    assert table["infeasible"] == [at for at, one in enumerate(feasible) if one == "no"]
    assert feasible[: table["num_best"]] == ["yes"] * len(grid.get_best_results())
    assert [row[0] for row in table["rows"]][: table["num_best"]] == [
        result.trial_id for result in grid.get_best_results()
    ]
    assert {"accuracy", "latency_ms", "size_mb"} <= {*table["columns"]}
    assert "Constraintssize_mb <= 4" in page.text
    assert "Crosses are trials that miss a constraint." in page.text
    (figure,) = [one for one in page.data("figures") if one["place"] == "chart-pareto"]
    assert [trace["name"] for trace in figure["data"]] == ["infeasible", "trials", "Pareto front"]


@pytest.mark.parametrize(
    "goals", [("loss", "min", ()), (None, None, (("loss", "min"), ("x", "min")))]
)
def test_a_page_says_what_is_missed_if_no_trial_is_feasible(make, tmp_path, page_of, goals):
    metric, mode, several = goals
    trials = [make.trial("t1", [{"loss": 1, "x": 1, "size_mb": 4.43}])]
    page = page_of(
        ResultGrid(
            trials,
            str(tmp_path),
            MemoryRows({}),
            metric,
            mode,
            several=several,
            constraints=outcome_constraints({"size_mb": "<= 4"}),
        )
    )
    assert "best" not in page.sections()
    assert (
        "No trial is feasible: 1 of 1 miss size_mb <= 4; the closest is t1: size_mb 4.43 misses "
        "<= 4 by 0.43."
    ) in page.text


def test_a_metric_with_two_bounds_has_one_column_of_the_front(make, tmp_path, page_of):
    page = page_of(
        ResultGrid(
            [make.trial("t1", [{"loss": 1, "x": 1, "size_mb": 2.5}])],
            str(tmp_path),
            MemoryRows({}),
            several=(("loss", "min"), ("x", "min")),
            constraints=outcome_constraints({"size_mb": [">= 1", "<= 4"]}),
        )
    )
    shown = "".join(page.text.split())
    assert "x(lowerisbetter)size_mb>=1and<=4t1112.5" in shown
