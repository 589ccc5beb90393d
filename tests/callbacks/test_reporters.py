"""Progress reporters: columns, rows, and times of reports."""

import io
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.callbacks.scenes import failed_trial, progress_of, some_trials, trial_at
from tests.callbacks.test_displays import FakeDisplay
from tuner import CLIReporter, JupyterNotebookReporter, ProgressReporter, RunConfig, Trial
from tuner.callbacks.console import reporter as reporters
from tuner.callbacks.console.console import Console

STATUS = "[11m40s]  cifar  7/20 trials"


class Stage:
    """A console with a reporter, and a clock for both."""

    def __init__(
        self,
        monkeypatch,
        reporter,
        *,
        trials=None,
        show=None,
        is_terminal=False,
        width=120,
        progress=None,
    ):
        self.now = 1000.0
        self.stream = io.StringIO()
        self.trials = trials or some_trials()
        self.progress = progress or progress_of(self.trials)
        monkeypatch.setattr(reporters.time, "monotonic", lambda: self.now)
        self.console = Console(
            lambda: self.progress,
            reporter=reporter,
            stream=self.stream,
            is_terminal=is_terminal,
            width=width,
            show=show,
            clock=lambda: self.now,
        )
        self.console.setup(
            experiment_path=Path("/results/cifar"),
            metric="val/loss",
            mode="min",
            total_num_samples=20,
        )

    def pass_time(self, seconds, step=0.5):
        for _ in range(int(seconds / step)):
            self.console.on_step_end(1, self.trials)
            self.now += step

    def end(self):
        self.console.on_experiment_end(self.trials)

    @property
    def lines(self):
        return self.stream.getvalue().splitlines()


@pytest.fixture
def tables_of(monkeypatch):
    """Return a function that returns the words per line that a reporter shows after a second."""

    def tables(*, stage=None, **options):
        watched = Stage(
            monkeypatch, CLIReporter(print_intermediate_tables=True, **options), **(stage or {})
        )
        watched.pass_time(1.0)
        return [line.split() for line in watched.lines]

    return tables


def rows(lines, word="trial"):
    start = next(index for index, line in enumerate(lines) if line[0] == word)
    end = next(
        (
            index
            for index, line in enumerate(lines)
            if index > start and line[0] in ("failed", "in", "and")
        ),
        None,
    )
    return lines[start:end]


def test_columns_are_those_that_were_named(tables_of):
    heading, first, *_ = rows(tables_of(metric_columns=["acc"], parameter_columns=["data"]))
    assert heading == [
        "trial",
        "status",
        "ending",
        "iter",
        "val/loss",
        "best",
        "acc",
        "data",
        "time",
    ]
    assert first == ["t00000", "RUNNING", "-", "1", "0.5", "0.5@1", "0.5", "x", "1m41s"]


def test_columns_may_have_titles(tables_of):
    columns = {
        "training_iteration": "epoch",
        "val/loss": "loss",
        "time_total_s": "seconds",
        "absent": "absent",
    }
    heading, first, *_ = rows(tables_of(metric_columns=columns, parameter_columns={"lr": "rate"}))
    assert heading == [
        "trial",
        "status",
        "ending",
        "loss",
        "best",
        "epoch",
        "seconds",
        "absent",
        "rate",
    ]
    assert first == ["t00000", "RUNNING", "-", "0.5", "0.5@1", "1", "101", "-", "0.001"]


def test_columns_may_be_added_one_by_one(monkeypatch):
    reporter = CLIReporter(metric_columns=["acc"], print_intermediate_tables=True)
    reporter.add_metric_column("training_iteration", "epoch")
    reporter.add_parameter_column("act")
    stage = Stage(monkeypatch, reporter)
    stage.pass_time(1.0)
    assert rows([line.split() for line in stage.lines])[0] == [
        "trial",
        "status",
        "ending",
        "val/loss",
        "best",
        "acc",
        "epoch",
        "act",
        "time",
    ]


def test_named_columns_outlive_others_where_there_is_little_room(tables_of):
    lines = tables_of(metric_columns=["acc"], parameter_columns=["data"], stage={"width": 60})
    assert rows(lines)[0] == ["trial", "status", "ending", "iter", "val/loss", "acc", "data"]


def test_a_column_cannot_be_added_twice():
    reporter = CLIReporter(metric_columns={"loss": "l"}, parameter_columns=["lr"])
    with pytest.raises(ValueError, match="'loss' has a column already, with the title 'l'"):
        reporter.add_metric_column("loss")
    with pytest.raises(ValueError, match="'lr' has a column already"):
        reporter.add_parameter_column("lr", "rate")


def test_the_number_of_listed_trials_is_limited_and_the_best_are_among_them(tables_of):
    listed = [row[0] for row in rows(tables_of(max_progress_rows=4))[1:]]
    assert listed == ["t00000", "t00001", "t00002", "t00008"]
    assert [row[0] for row in rows(tables_of(max_progress_rows=9))[1:]] == [
        *listed,
        "t00007",
        "t00006",
        "t00005",
        "t00004",
        "t00009",
    ]
    assert not any(line[0] == "trial" for line in tables_of(max_progress_rows=0))


def test_the_number_of_listed_failures_is_limited(monkeypatch):
    stage = Stage(monkeypatch, CLIReporter(max_error_rows=2, print_intermediate_tables=True))
    for number in range(20, 25):
        stage.console.on_trial_error(1, stage.trials, failed_trial(number, message="x" * number))
    stage.pass_time(1.0)
    lines = [line.split() for line in stage.lines]
    assert [row[0] for row in rows(lines[5:], "failed")[1:]] == ["t00024", "t00023"]
    assert stage.lines[-2] == "and 3 more failed trials"


def test_a_trial_that_was_tried_again_and_ended_well_is_no_failure_any_more(monkeypatch):
    stage = Stage(monkeypatch, CLIReporter(print_intermediate_tables=True))
    trial = failed_trial(20, is_over=False)
    stage.console.on_trial_recover(1, stage.trials, trial)
    stage.console.on_trial_complete(1, stage.trials, trial)
    stage.pass_time(1.0)
    assert not any(line.startswith("failed") for line in stage.lines)


def test_long_titles_and_values_are_cut(tables_of):
    trials = [
        trial_at(number, a_very_long_name=f"a_very_long_value_{number}") for number in range(2)
    ]
    stage = {
        "trials": trials,
        "progress": replace(progress_of(some_trials()), running=trials, leaders=()),
    }
    heading, first, *_ = rows(
        tables_of(max_column_length=7, parameter_columns=["a_very_long_name"], stage=stage)
    )
    assert (heading[-2], first[-2]) == ("a_v…ame", "a_v…e_0")


def test_the_number_of_inferred_metrics_is_limited(tables_of):
    trials = some_trials()
    for trial in trials:
        trial.last_result.update(dict.fromkeys("bcdef", 1.0))
    stage = {"trials": trials}
    assert rows(tables_of(infer_limit=0, stage=stage))[0] == [
        "trial",
        "status",
        "ending",
        "iter",
        "val/loss",
        "best",
        "lr",
        "time",
    ]
    assert rows(tables_of(infer_limit=5, stage=stage))[0][6:11] == ["acc", "b", "c", "d", "e"]


def test_a_parameter_that_is_reported_as_well_is_listed_once(tables_of):
    trials = some_trials()
    for trial in trials:
        trial.last_result = {"lr": trial.config["lr"], "gamma": 1.0, **trial.last_result}
    heading = rows(tables_of(stage={"trials": trials}))[0]
    assert heading.count("lr") == 1
    assert "gamma" in heading

    trials[0].last_result["lr"] = 7.0
    assert rows(tables_of(stage={"trials": trials}))[0].count("lr") == 2


def test_trials_are_sorted_by_metric_if_that_is_wanted(tables_of):
    assert [row[0] for row in rows(tables_of())[1:4]] == ["t00000", "t00001", "t00002"]
    assert [row[0] for row in rows(tables_of(sort_by_metric=True))[1:4]] == [
        "t00002",
        "t00001",
        "t00000",
    ]


def test_the_metric_of_the_reporter_says_which_trials_are_best(tables_of):
    lines = tables_of(metric="acc", mode="min", total_samples=50)
    assert lines[0][:3] == ["cifar", "min", "acc"]
    assert "7/50" in lines[0]
    assert lines[1][:5] == ["best", "trial", "t00000", "last", "0.5"]
    assert tables_of(metric="acc", mode="max")[1][:5] == ["best", "trial", "t00009", "last", "0.59"]


def test_a_metric_that_was_never_reported_has_no_best(tables_of):
    assert tables_of(metric="absent", mode="min")[1][0] == "running"


def test_elsewhere_than_on_terminals_a_report_is_a_line_every_few_seconds(monkeypatch):
    stage = Stage(monkeypatch, CLIReporter())
    stage.pass_time(16.0)
    assert len(stage.lines) == 4
    assert all(line.startswith(STATUS) for line in stage.lines)
    stage.end()
    assert "best trial t00008 (min val/loss)  last 0.42 (iter 9)  best 0.32 (iter 8)" in stage.lines


@pytest.mark.parametrize(("period_s", "num_reports"), [(0, 40), (0.1, 40), (2, 10), (30, 1)])
def test_reports_come_as_often_as_was_asked_but_never_more_than_twice_a_second(
    monkeypatch, period_s, num_reports
):
    stage = Stage(monkeypatch, CLIReporter(max_report_frequency=period_s))
    stage.pass_time(20.0, step=0.125)
    assert len(stage.lines) == num_reports


def test_on_a_terminal_the_table_is_left_out_if_it_is_not_wanted(monkeypatch):
    for wanted in (None, False):
        stage = Stage(monkeypatch, CLIReporter(print_intermediate_tables=wanted), is_terminal=True)
        stage.pass_time(1.0)
        assert ("t00001  RUNNING" in stage.stream.getvalue()) is (wanted is None)
        stage.console.close()


def test_in_a_notebook_the_one_reporter_writes_text_and_the_other_a_table(monkeypatch):
    show = FakeDisplay()
    stage = Stage(monkeypatch, CLIReporter(), show=show)
    stage.pass_time(1.0)
    assert (len(stage.lines), show.outputs) == (1, [])
    stage = Stage(monkeypatch, JupyterNotebookReporter(metric_columns=["acc"]), show=show)
    stage.pass_time(11.0)
    stage.end()
    assert (stage.lines, len(show.outputs), show.num_updates) == ([], 1, 3)


def test_a_notebook_may_keep_every_report(monkeypatch):
    show = FakeDisplay()
    stage = Stage(monkeypatch, JupyterNotebookReporter(overwrite=False), show=show)
    stage.pass_time(11.0)
    stage.end()
    assert (len(show.outputs), show.num_updates) == (4, 0)


def test_where_there_is_no_notebook_its_reporter_writes_text(monkeypatch):
    stage = Stage(monkeypatch, JupyterNotebookReporter())
    stage.pass_time(1.0)
    assert stage.lines[0].startswith(STATUS)


class OnTermination(CLIReporter):
    """As in Ray Tune's documentation."""

    def __init__(self):
        super().__init__()
        self.num_terminated = 0

    def should_report(self, trials, done=False):
        old = self.num_terminated
        self.num_terminated = len([trial for trial in trials if trial.status == Trial.TERMINATED])
        return self.num_terminated > old


def test_a_subclass_decides_when_to_report(monkeypatch):
    stage = Stage(monkeypatch, OnTermination())
    stage.pass_time(60.0)
    stage.end()
    assert [line.startswith(STATUS) for line in stage.lines] == [True]


class AtTheEnd(CLIReporter):
    def should_report(self, trials, done=False):
        return done

    def report(self, trials, done, *sys_info):
        print("it is over", file=self.out)
        super().report(trials, done, *sys_info)


def test_a_subclass_may_add_to_a_report(monkeypatch):
    reporter = AtTheEnd()
    stage = Stage(monkeypatch, reporter)
    reporter.out = stage.stream
    stage.pass_time(60.0)
    assert stage.lines == []
    stage.end()
    assert stage.lines[:2] == [
        "it is over",
        "cifar: 7/20 trials in 11m40s  running 3  paused 2  completed 2  stopped_early 4  failed 1",
    ]


class Own(ProgressReporter):
    """Derives from no table reporter."""

    def __init__(self, fails=""):
        self.fails, self.heard, self.info = fails, [], None

    def setup(self, start_time=None, total_samples=None, metric=None, mode=None, **kwargs):
        self._fail("setup")
        self.info = (start_time > 0, total_samples, metric, mode)

    def should_report(self, trials, done=False):
        self._fail("should_report")
        return True

    def report(self, trials, done, *sys_info):
        self._fail("report")
        self.heard.append((len(trials), done, *sys_info))

    def _fail(self, where):
        if where == self.fails:
            raise OSError("no network")


def test_a_custom_reporter_replaces_everything_but_notices(monkeypatch):
    reporter = Own()
    stage = Stage(monkeypatch, reporter, is_terminal=True)
    stage.pass_time(1.0, step=0.125)
    stage.console.on_trial_error(1, stage.trials, stage.trials[-1])
    stage.end()
    counts = (
        "running 3  paused 2  completed 2  stopped_early 4  failed 1  CPU 3/8  "
        "waiting for a free GPU"
    )
    assert reporter.info == (True, 20, "val/loss", "min")
    assert reporter.heard == [(10, False, counts, "CPU 3/8")] * 2 + [(10, True, counts, "CPU 3/8")]
    assert [line.split()[0] for line in stage.lines] == ["t00009", "Traceback"]
    assert stage.lines[0].startswith("t00009 failed in attempt 1, giving up: ValueError: exploded")


@pytest.mark.parametrize("where", ["setup", "should_report", "report"])
def test_a_reporter_that_raises_is_switched_off_and_the_usual_display_replaces_it(
    monkeypatch, where
):
    monkeypatch.setattr(logging.getLogger("tuner"), "propagate", False)
    stage = Stage(monkeypatch, Own(fails=where))
    stage.pass_time(60.0)
    stage.end()
    text = stage.stream.getvalue()
    assert text.count("progress reporter Own raised OSError and is switched off") == 1
    assert STATUS in text
    assert "best trial t00008 (min val/loss)  last 0.42 (iter 9)  best 0.32 (iter 8)" in text


def test_the_summary_is_shown_if_a_reporter_raises_at_the_end(monkeypatch, caplog):
    reporter = Own()
    stage = Stage(monkeypatch, reporter)
    stage.pass_time(1.0)
    reporter.fails = "report"
    stage.end()
    assert "best trial t00008 (min val/loss)  last 0.42 (iter 9)  best 0.32 (iter 8)" in stage.lines
    assert "switched off" in caplog.text


def test_without_an_experiment_there_is_nothing_to_show():
    with pytest.raises(RuntimeError, match="give it as RunConfig"):
        CLIReporter().report([], done=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "up"}, ValueError, "mode must be 'min', 'max' or None, got 'up'"),
        ({"max_progress_rows": -1}, ValueError, "max_progress_rows must be at least 0, got -1"),
        ({"max_column_length": 0}, ValueError, "max_column_length must be at least 1, got 0"),
        (
            {"max_report_frequency": float("nan")},
            ValueError,
            "max_report_frequency must be at least 0, got nan",
        ),
        (
            {"metric_columns": "loss"},
            TypeError,
            "metric_columns must be a list of names or a dictionary of titles by name, got 'loss'",
        ),
        ({"parameter_columns": [1]}, TypeError, "parameter_columns must be a list of names"),
    ],
)
@pytest.mark.parametrize("kind", [CLIReporter, JupyterNotebookReporter])
def test_invalid_options_are_refused(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**options)


def test_an_object_that_is_not_a_reporter_is_refused():
    with pytest.raises(TypeError, match="progress_reporter must be a ProgressReporter, got 'cli'"):
        RunConfig(progress_reporter="cli")
