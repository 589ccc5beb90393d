"""Infeasible trials on the console: marked in tables, and never the best."""

from dataclasses import replace

import pytest

from searchers.objectives import outcome_constraints
from tests.callbacks.scenes import trial_at
from tuner.callbacks.console.console_view import (
    Scene,
    best_line,
    ending_line,
    live_view,
    summary_view,
)
from tuner.callbacks.console.displays import plain_lines
from tuner.callbacks.console.progress_table import TableOptions, trial_table
from tuner.callbacks.console.reporter import CLIReporter
from tuner.core.progress import Progress
from tuner.core.trial import Status, TerminationReason, Trial

LIMIT = outcome_constraints({"size_mb": "<= 4"})


@pytest.fixture
def trials():
    """A feasible trial, one that is too large, and one that has not reported anything yet."""
    made = [trial_at(number, Status.TERMINATED, TerminationReason.COMPLETED) for number in range(2)]
    for trial, size_mb in zip(made, (3.5, 4.43), strict=True):
        trial.summarise({"size_mb": size_mb})
    running = Trial("t00002", {"lr": 1.0}, {"cpu": 1.0})
    running.move_to(Status.RUNNING)
    return [*made, running]


def shown(trials, progress, width=120):
    heading, *lines = plain_lines([trial_table(trials, progress)], width)
    return heading.split(), [line.split() for line in lines]


def test_a_table_marks_trials_that_miss_a_constraint(trials):
    progress = Progress("cifar", "val/loss", "min", constraints=LIMIT)
    heading, lines = shown(trials, progress)
    assert heading[3] == "feasible"
    assert [line[3] for line in lines] == ["yes", "no", "-"]
    place = heading.index("size_mb")
    assert [line[place] for line in lines[:2]] == ["3.5", "4.43"]
    assert trial_table(trials, progress).row_styles == ["", "dim", ""]
    assert "feasible" not in shown(trials[:1], progress)[0]
    assert "feasible" not in shown(trials, replace(progress, constraints=()))[0]


def test_the_status_says_so_as_long_as_no_trial_is_feasible(trials):
    progress = Progress("cifar", "val/loss", "min", constraints=LIMIT, running=trials[2:])
    assert best_line(progress).text == ""
    finished = replace(progress, num_finished=1)
    assert best_line(finished).text == "no feasible trial yet"
    assert "none yet (size_mb &lt;= 4)" in finished._repr_html_()
    assert plain_lines(live_view(Scene(finished, trials), 120), 120)[1] == "no feasible trial yet"
    assert best_line(replace(finished, front=trials[:1])).text.startswith("1 trial on the Pareto")


def test_the_summary_counts_feasible_trials_or_says_what_is_missed(trials):
    progress = Progress("cifar", "val/loss", "min", constraints=LIMIT, num_finished=2)
    best = replace(progress, best=trials[0], leaders=trials[:1])

    def summary(progress, trials):
        return plain_lines(summary_view(Scene(progress, trials), 120), 120)

    assert "1 of 2 trials keep size_mb <= 4" in summary(best, trials[:2])
    assert (
        "no trial is feasible: 1 of 1 miss size_mb <= 4; the closest is t00001: size_mb 4.43 "
        "misses <= 4 by 0.43"
    ) in summary(progress, trials[1:])
    assert not [line for line in summary(replace(best, constraints=()), trials) if "keep" in line]


def test_trials_are_sorted_with_feasible_ones_first(trials):
    progress = Progress("cifar", "val/loss", "min", constraints=LIMIT, running=trials[:2])
    view = live_view(Scene(progress, trials, options=TableOptions(sort_by_metric=True)), 120)
    rows = [line.split()[0] for line in plain_lines(view, 120) if line.startswith("t0")]
    assert rows == ["t00000", "t00001"]


def test_a_reporter_with_a_metric_of_its_own_ranks_feasible_trials_only(trials):
    progress = Progress("cifar", "val/loss", "min", constraints=LIMIT)
    adjusted = CLIReporter(metric="acc", mode="max").adjusted(progress, trials)
    assert [trial.trial_id for trial in adjusted.leaders] == ["t00000"]


def test_the_line_about_an_ended_trial_says_what_it_misses(trials):
    feasible, infeasible = (ending_line(one, ["val/loss"], LIMIT).text for one in trials[:2])
    assert "infeasible" not in feasible
    assert infeasible.endswith("  infeasible: size_mb 4.43 misses <= 4 by 0.43")
