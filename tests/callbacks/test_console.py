"""Console output on terminals and in log files, by verbosity."""

import io
import itertools
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.callbacks.scenes import trial_at
from tuner.callbacks.console.console import Console
from tuner.callbacks.console.console_view import (
    Scene,
    best_line,
    counts_line,
    headline,
    live_view,
    resources_line,
    status_line,
    summary_view,
)
from tuner.callbacks.console.displays import plain_lines
from tuner.callbacks.console.progress_table import trial_table
from tuner.callbacks.console.silent import SilentConsole
from tuner.core.progress import BudgetUse, Progress
from tuner.core.trial import AppliedExploit, Trial
from tuner.core.worker_records import CheckpointRecord, Failure, WorkerGroup

GPU_HOURS = BudgetUse("gpu_hours", limit=4.0, spent=1.0, rate=0.005, since_s=300.0)
HOSTILE = "\x1b[2J\x1b]0;owned\x07"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def console_on(stream, progress, **settings):
    settings = {"is_terminal": False, "width": 100, "clock": Clock(), **settings}
    console = Console(lambda: progress, stream=stream, **settings)
    console.setup(experiment_path=Path("/results/cifar"), metric="val/loss")
    return console, settings["clock"]


def live_lines(progress, width, height=None, **scene):
    return plain_lines(live_view(Scene(progress, **scene), width, height), width)


def summary_lines(progress, trials, path, width):
    return plain_lines(summary_view(Scene(progress, trials, experiment_path=path), width), width)


def table(trials, progress, width):
    return plain_lines([trial_table(trials, progress)], width)


def test_golden_view_on_120_columns(progress):
    assert "\n".join(live_lines(progress, 120)) == (
        "cifar  min val/loss  ━━━━━━━─────────────  7/20 trials  21m40s left  11m40s elapsed\n"
        "best trial t00008 last 0.42 (iter 9)  best 0.32 (iter 8)  lr=0.009\n"
        "running 3  paused 2  completed 2  stopped_early 4  failed 1  CPU 3/8  waiting for a "
        "free GPU\n"
        "trial   status      ending         iter  val/loss  best    acc  lr      time\n"
        "t00000  RUNNING     -                 1  0.5       0.5@1   0.5  0.001  1m41s\n"
        "t00001  RUNNING     -                 2  0.49      0.39@1  0.5  0.002  1m41s\n"
        "t00002  RUNNING     -                 3  0.48      0.38@2  0.5  0.003  1m41s\n"
        "t00008  TERMINATED  stopped_early     9  0.42      0.32@8  0.5  0.009  1m41s\n"
        "t00007  TERMINATED  stopped_early     8  0.43      0.33@7  0.5  0.008  1m41s\n"
        "t00006  TERMINATED  stopped_early     7  0.44      0.34@6  0.5  0.007  1m41s\n"
        "t00005  TERMINATED  stopped_early     6  0.45      0.35@5  0.5  0.006  1m41s\n"
        "t00004  TERMINATED  stopped_early     5  0.46      0.36@4  0.5  0.005  1m41s"
    )


def test_golden_summary(progress, trials):
    assert "\n".join(summary_lines(progress, trials, Path("/results/cifar"), 80)) == (
        "cifar: 7/20 trials in 11m40s  running 3  paused 2  completed 2  stopped_early 4  "
        "failed 1\n"
        "best trial t00008 (min val/loss)  last 0.42 (iter 9)  best 0.32 (iter 8)\n"
        "  lr    0.009\n"
        "  act   relu\n"
        "  data  x\n"
        "trial   status      ending         iter  val/loss  best    acc  lr      time\n"
        "t00008  TERMINATED  stopped_early     9  0.42      0.32@8  0.5  0.009  1m41s\n"
        "t00007  TERMINATED  stopped_early     8  0.43      0.33@7  0.5  0.008  1m41s\n"
        "t00006  TERMINATED  stopped_early     7  0.44      0.34@6  0.5  0.007  1m41s\n"
        "t00005  TERMINATED  stopped_early     6  0.45      0.35@5  0.5  0.006  1m41s\n"
        "t00004  TERMINATED  stopped_early     5  0.46      0.36@4  0.5  0.005  1m41s\n"
        "failed  attempt     error                 log\n"
        "t00009  1, gave up  ValueError: exploded  /results/cifar/t00009/error.txt\n"
        "results in /results/cifar"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_none_steers_it(progress, width):
    for trial in progress.leaders:
        trial.config = {**trial.config, f"名前{HOSTILE}": f"{trial.trial_id}{HOSTILE}\n" * 9}
        trial.last_result[HOSTILE] = 1.0
    hostile = replace(
        progress, name=f"cifar{HOSTILE}\n" * 9, metric="val/loss", waiting_for=HOSTILE
    )
    for line in live_lines(hostile, width):
        assert cell_len(line) <= width
        assert line.isprintable()


@pytest.mark.parametrize("make", [headline, best_line, status_line])
def test_user_text_is_printed_with_control_characters_written_out(progress, make):
    progress.best.config = {"name": HOSTILE, "lr": 3}
    assert make(replace(progress, name=HOSTILE)).text.isprintable()


def test_a_narrow_table_gives_up_other_metrics_first_then_parameters_and_never_the_metric(progress):
    def titles(width):
        return [column.title for column in trial_table(progress.leaders, progress).fitting(width)]

    assert titles(120) == [
        "trial",
        "status",
        "ending",
        "iter",
        "val/loss",
        "best",
        "acc",
        "lr",
        "time",
    ]
    assert titles(75) == ["trial", "status", "ending", "iter", "val/loss", "best", "lr", "time"]
    assert titles(66) == ["trial", "status", "ending", "iter", "val/loss", "best", "time"]
    assert titles(10) == ["trial", "status", "ending", "iter", "val/loss"]


def test_parameters_that_do_not_differ_have_no_column(progress):
    heading, *_ = table(progress.leaders, progress, 200)
    assert "data" not in heading
    assert "act" not in heading


def test_at_most_three_other_metrics_are_shown(progress):
    for trial in progress.leaders:
        trial.last_result.update(dict.fromkeys("bcdef", 1.0))
    assert table(progress.leaders, progress, 200)[0].split() == [
        "trial",
        "status",
        "ending",
        "iter",
        "val/loss",
        "best",
        "acc",
        "b",
        "c",
        "lr",
        "time",
    ]


def test_the_table_lists_running_trials_first_and_at_most_20(progress):
    crowd = replace(progress, running=[trial_at(number) for number in range(100)])
    lines = live_lines(crowd, 80)
    assert [line.split()[1] for line in lines[4:]] == ["RUNNING"] * 15 + ["TERMINATED"] * 5
    assert len(live_lines(crowd, 80, height=10)) == 3 + 1 + 4


@pytest.mark.parametrize(
    ("settings", "fraction", "remaining_s"),
    [
        ({"num_total": 100, "num_finished": 50}, 0.5, 700.0),
        ({"num_total": 100, "num_finished": 2}, 0.02, None),
        ({"num_total": None}, None, None),
        ({"num_total": None, "time_budget_s": 1000.0}, 0.7, 300.0),
        ({"num_total": 100, "num_finished": 50, "time_budget_s": 800.0}, 0.5, 100.0),
        ({"num_total": 100, "num_finished": 0, "time_budget_s": 600.0}, 0.0, None),
        ({"num_total": None, "budgets": [GPU_HOURS]}, 0.75, 200.0),
        ({"num_total": None, "budgets": [GPU_HOURS], "time_budget_s": 800.0}, 0.875, 100.0),
        ({"num_total": 100, "num_finished": 50, "budgets": [GPU_HOURS]}, 0.5, 200.0),
    ],
)
def test_the_time_left_follows_the_pace_and_the_budget(progress, settings, fraction, remaining_s):
    now = replace(progress, **settings)
    assert now.fraction == fraction
    assert now.remaining_s == remaining_s


def test_what_is_spent_and_left_of_a_budget_is_on_the_console(progress, trials):
    now = replace(progress, budgets=[GPU_HOURS, replace(GPU_HOURS, unit="iterations", rate=0.0)])
    told = "gpu_hours 3/4, 1 left  iterations 1/4, 3 left"
    assert told in counts_line(now).text
    assert told in status_line(now).text
    assert told in summary_lines(now, trials, None, 200)[0]


def test_before_the_first_result_there_is_no_best(progress, trials):
    fresh = Progress(name="cifar", metric="loss", mode="min", num_total=4)
    assert best_line(fresh).text == ""
    assert live_lines(fresh, 80) == [
        "cifar  min loss  ────────────────────  0/4 trials  ? left  0s elapsed"
    ]
    assert summary_lines(fresh, [], None, 80) == ["cifar: 0/4 trials in 0s"]


def everything_that_can_happen(console, clock, trials):
    failed = trials[-1]
    console.on_step_end(1, trials)
    console.on_trial_recover(2, trials, failed)
    console.on_trial_error(3, trials, failed)
    console.on_trial_complete(4, trials, trials[4])
    console.print_notice("restored 7 trials")
    logging.getLogger("tuner").warning("something is odd")
    clock.now += 3600
    console.on_step_end(5, trials)
    console.on_experiment_end(trials)


def test_a_silent_console_prints_nothing(trials, capfd):
    console = SilentConsole()
    console.setup(experiment_path=Path("/results/cifar"), metric="val/loss")
    everything_that_can_happen(console, Clock(), trials)
    assert capfd.readouterr() == ("", "")


@pytest.mark.process
def test_a_silent_console_keeps_warnings_off_the_standard_error_of_a_bare_script():
    code = (
        "import logging\n"
        "from tuner.callbacks.console.silent import SilentConsole\n"
        "console = SilentConsole()\n"
        "console.setup()\n"
        "logging.getLogger('tuner').warning('something is odd')\n"
        "console.on_experiment_end(trials=[])\n"
    )
    done = subprocess.run(  # noqa: S603  (our own code)
        [sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_plain_output_is_a_line_per_lead_failure_and_tenth(progress, trials):
    stream, clock = io.StringIO(), Clock()
    looks = itertools.chain([replace(progress, best=None)], itertools.repeat(progress))
    console = Console(lambda: next(looks), stream=stream, is_terminal=False, width=200, clock=clock)
    console.setup(metric="loss")
    for _ in range(5):
        console.on_step_end(1, trials)
        clock.now += 1
    console.on_trial_error(2, trials, trials[-1])
    console.on_trial_complete(2, trials, trials[4])
    assert stream.getvalue().splitlines() == [
        "new best trial t00008 last 0.42 (iter 9)  best 0.32 (iter 8)  lr=0.009",
        status_line(progress).text,
        (
            "t00009 failed in attempt 1, giving up: ValueError: exploded  "
            "/results/cifar/t00009/error.txt"
        ),
        "  Traceback",
    ]
    clock.now += 30
    console.on_step_end(1, trials)
    assert stream.getvalue().splitlines()[4:] == [status_line(progress).text]


def test_the_progress_is_asked_for_twice_a_second_at_most(progress, trials):
    asked = []
    clock = Clock()
    console = Console(
        lambda: asked.append(1) or progress, stream=io.StringIO(), is_terminal=False, clock=clock
    )
    for _ in range(100):
        clock.now += 0.01
        console.on_step_end(1, trials)
    assert len(asked) == 2


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: exploded'


def failing(number, message="exploded", traceback=TRACEBACK):
    trial = Trial(f"t{number:05d}", {}, {})
    trial.failures.append(Failure("ValueError", message, traceback))
    return trial


def test_failures_of_one_cause_are_told_once_with_their_traceback_and_counted(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    for number in range(50):
        console.on_trial_error(1, trials, failing(number))
    assert stream.getvalue().splitlines() == [
        "t00000 failed in attempt 0, giving up: ValueError: exploded",
        "  Traceback (most recent call last):",
        '    File "a.py", line 3, in f',
        "  ValueError: exploded",
        "10 failures so far: ValueError at a.py:3 in f",
    ]


def test_that_a_trial_is_given_up_is_told_even_if_its_failure_was_told_before(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    console.on_trial_recover(1, trials, failing(1, traceback=""))
    console.on_trial_error(1, trials, failing(1, traceback=""))
    console.on_trial_error(1, trials, failing(2, traceback=""))
    assert stream.getvalue().splitlines() == [
        "t00001 failed in attempt 0, trying again: ValueError: exploded",
        "t00001 failed in attempt 0, giving up: ValueError: exploded",
    ]


def test_the_middle_of_a_long_traceback_is_left_to_the_file(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    console.on_trial_error(
        1, trials, failing(1, traceback="\n".join(f"line {number}" for number in range(200)))
    )
    lines = stream.getvalue().splitlines()
    assert len(lines) == 42
    assert "all of it is in error.txt" in lines[9]
    assert lines[-1] == "  line 199"


def test_a_flood_of_causes_is_only_listed_at_the_end(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    for number in range(50):
        console.on_trial_error(1, trials, failing(number, message="x" * number, traceback=""))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "further causes of failures are only listed at the end"


def test_verbose_2_tells_how_each_trial_ended(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress, verbose=2)
    console.on_trial_complete(1, trials, trials[4])
    assert (
        stream.getvalue() == "t00004  stopped_early  iter 5  val/loss last 0.46 (iter 5)  1m41s\n"
    )


def test_verbose_2_tells_the_last_value_of_a_metric_that_is_not_in_every_result(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress, verbose=2)
    trials[4].last_result = {"training_iteration": 7, "time_total_s": 101.0}
    console.on_trial_complete(1, trials, trials[4])
    assert (
        stream.getvalue() == "t00004  stopped_early  iter 7  val/loss last 0.46 (iter 5)  1m41s\n"
    )


def test_verbose_2_tells_each_of_several_objectives(progress, trials):
    stream = io.StringIO()
    several = replace(
        progress,
        metric=None,
        mode=None,
        best=None,
        several_objectives=(("val/loss", "min"), ("acc", "max")),
    )
    console = Console(lambda: several, stream=stream, verbose=2)
    console.setup()
    console.on_trial_complete(1, trials, trials[4])
    assert (
        stream.getvalue()
        == "t00004  stopped_early  iter 5  val/loss last 0.46 (iter 5)  acc last 0.54  1m41s\n"
    )


def test_on_a_terminal_the_table_is_redrawn_in_place_and_gives_way_to_the_summary(progress, trials):
    stream = io.StringIO()
    console, clock = console_on(stream, progress, is_terminal=True)
    console.on_step_end(1, trials)
    clock.now += 1
    console.on_step_end(2, trials)
    drawn = stream.getvalue()
    assert drawn.count("stopped_early 4") == 2
    assert "\x1b[1A" in drawn
    console.on_experiment_end(trials)
    rest = stream.getvalue()[len(drawn) :]
    assert "\x1b[?25h" in rest
    assert rest.endswith(
        "\n".join(summary_lines(progress, trials, Path("/results/cifar"), 100)) + "\n"
    )


def test_lines_of_text_appear_above_the_live_table_unchanged(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress, is_terminal=True)
    console.on_step_end(1, trials)
    console.print_notice(f"[bold]not-markup[/bold]{'x' * 150}")
    console.close()
    assert f"[bold]not-markup[/bold]{'x' * 150}" in stream.getvalue()


def test_a_defect_while_drawing_gives_the_terminal_back(progress, trials):
    stream = io.StringIO()
    answers = [progress]
    clock = Clock()
    console = Console(answers.pop, stream=stream, is_terminal=True, width=80, clock=clock)
    console.on_step_end(1, trials)
    clock.now += 1
    with pytest.raises(IndexError):
        console.on_step_end(2, trials)
    assert "\x1b[?25l" in stream.getvalue()
    assert "\x1b[?25h" in stream.getvalue()


def test_warnings_of_the_engine_are_shown_unless_another_handler_shows_them(progress, monkeypatch):
    logger = logging.getLogger("tuner")
    monkeypatch.setattr(logger, "propagate", False)
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    logger.warning("callback %s is switched off%s", "Mine", HOSTILE)
    console.close()
    logger.warning("after the end")
    assert stream.getvalue().startswith("callback Mine is switched off\\x1b")
    assert "after the end" not in stream.getvalue()


def test_characters_that_the_stream_cannot_encode_are_replaced(progress):
    raw = io.BytesIO()
    console, _ = console_on(io.TextIOWrapper(raw, encoding="ascii", write_through=True), progress)
    console.print_notice("ünï")
    assert raw.getvalue() == b"?n?\n"


def test_a_notice_of_several_lines_stays_several_lines(progress):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    console.print_notice("one\ntwo\x07")
    assert re.fullmatch(r"one\ntwo\\x07\n", stream.getvalue())


def test_a_notice_is_wrapped_at_words_on_a_terminal_but_commands_and_log_files_are_not(progress):
    sentence = "Searcher: TreeSearch (default). Scheduler: none; every trial trains to the end."
    command = f"    Tuner.restore({'x' * 60!r}, train)"
    for is_terminal, expected in ((True, 4), (False, 2)):
        stream = io.StringIO()
        console = Console(
            lambda: progress, stream=stream, is_terminal=is_terminal, width=30, clock=Clock()
        )
        console.print_notice(f"{sentence}\n{command}")
        *wrapped, whole = stream.getvalue().splitlines()
        assert (" ".join(wrapped), whole, len(wrapped) + 1) == (sentence, command, expected)
        assert all(len(line) <= 30 for line in wrapped) is is_terminal


def test_the_time_left_is_no_less_than_the_time_for_which_no_trial_has_ended(progress):
    looks = iter(
        [
            replace(
                progress, num_total=1000, num_finished=999, num_underway=0.0, elapsed_s=600.0 + s
            )
            for s in (0, 0, 100, 200)
        ]
    )
    stream, clock = io.StringIO(), Clock()
    console = Console(lambda: next(looks), stream=stream, is_terminal=False, width=100, clock=clock)
    console.setup()
    for _ in range(3):
        clock.now += 30.0
        console.on_step_end(1, [])
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("[")]
    assert [line.split("  ")[-1] for line in lines] == [
        "best trial t00008 last 0.42 (iter 9)",
        "1m40s left",
        "3m20s left",
    ]


@pytest.mark.parametrize(("num_nodes", "shown"), [(None, ""), (1, "1 node  "), (12, "12 nodes  ")])
def test_the_number_of_nodes_is_shown_on_a_cluster(num_nodes, shown):
    progress = Progress("cifar", capacity={"cpu": 8.0}, used={"cpu": 3.0}, num_nodes=num_nodes)
    assert resources_line(progress) == f"{shown}CPU 3/8"


def test_several_objectives_are_named_and_their_front_is_shown(trials):
    front = trials[6:9]
    progress = Progress(
        "cifar",
        num_total=10,
        num_finished=7,
        several_objectives=(("val/loss", "min"), ("acc", "max")),
        front=front,
        running=trials[:1],
    )
    lines = live_lines(progress, 120)
    assert lines[0].startswith("cifar  min val/loss, max acc  ")
    assert lines[1] == "3 trials on the Pareto front: t00006, t00007, t00008"
    assert "iter  val/loss  acc" in lines[2]
    assert [line.split()[0] for line in lines[3:]] == ["t00000", "t00006", "t00007", "t00008"]
    summary = summary_lines(progress, trials, Path("/results/cifar"), 120)
    assert (
        summary[1] == "3 trials on the Pareto front: t00006, t00007, t00008 (min val/loss, max acc)"
    )
    assert "3 trials on the Pareto front" in status_line(progress).text


def test_values_stand_beside_the_parameters_they_were_reached_with(progress):
    trial, other = progress.leaders[:2]
    trial.grafts = [
        AppliedExploit(
            1,
            trial.num_rows,
            trial.iteration,
            trial.config,
            "t00009",
            CheckpointRecord(0, 1),
            1,
            0,
            None,
        )
    ]
    trial.config = {**trial.config, "lr": 77.0}
    heading, line, _ = (text.split() for text in table([trial, other], progress, 200))
    assert line[heading.index("lr")] == "0.009"


def test_validations_are_counted_beside_the_trials(progress):
    busy = replace(progress, num_validating=1, num_to_validate=2, held=progress.running[:2])
    told = counts_line(busy).text
    assert "validating 1, 2 waiting  t00000, t00001 held in report by max_pending  " in told
    assert "validating 1  " in counts_line(replace(progress, num_validating=1)).text
    assert "validating" not in counts_line(progress).text


def test_workers_are_a_column_only_where_a_trial_has_several(progress, trials):
    plain = trial_table(trials[:3], progress)
    assert "workers" not in [column.title for column in plain.columns]
    trials[0].group = WorkerGroup(2, {"cpu": 1.0, "gpu": 0.5}, 2, 2)
    (column,) = [
        column for column in trial_table(trials[:3], progress).columns if column.title == "workers"
    ]
    assert column.cells == ["2 x CPU 1, GPU 0.5", "1", "1"]


def test_the_best_trial_of_an_earlier_session_is_not_new(progress, trials):
    stream = io.StringIO()
    console, _ = console_on(stream, progress)
    console.on_step_end(1, trials)
    assert "new best trial" not in stream.getvalue()
