"""Rungs and lineages of experiments that were run."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tuner.analysis.charts.lineage import lineage, schedules
from tuner.analysis.charts.rungs import rungs


def by_level(entries):
    return {
        level: Counter(entry.outcome for entry in entries if entry.level == level)
        for level in dict.fromkeys(entry.level for entry in entries)
    }


def test_all_trials_of_asha_are_at_the_first_rung_and_those_that_continued_at_the_next(experiment):
    grid = experiment("asha")
    entries = rungs(grid._source())
    levels = by_level(entries)
    assert list(levels) == [1, 3, 9]
    assert levels[1].total() == len(grid)
    assert levels[1]["went on"] == levels[3].total()
    assert levels[3]["went on"] == levels[9]["fully trained"] == levels[9].total()
    stopped = [trial.trial_id for trial in grid.trials if trial.ending == "stopped early"]
    assert sorted(entry.trial_id for entry in entries if entry.outcome == "stopped") == stopped


def test_who_is_stopped_is_worse_than_the_cutoff_and_has_its_rank(experiment):
    stopped = [entry for entry in rungs(experiment("asha")._source()) if entry.outcome == "stopped"]
    assert stopped
    assert all(
        entry.value > entry.cutoff
        and entry.rule == "asha.rung"
        and 1 < entry.rank <= entry.num_compared
        for entry in stopped
    )


def test_a_trial_that_continues_without_a_decision_has_its_reported_value(experiment):
    grid = experiment("asha")
    [entry] = [entry for entry in rungs(grid._source()) if entry.rule == "" and entry.level == 1][
        :1
    ]
    rows = grid.plot.data.learning_curves().query("trial_id == @entry.trial_id and x == 1")
    assert entry.value == rows["value"].item()
    assert (entry.outcome, entry.cutoff, entry.rank) == ("went on", None, None)


def test_promotions_have_their_rules_and_ranks(experiment):
    entries = rungs(experiment("promotion")._source())
    assert by_level(entries)[1] == {"stopped": 6, "went on": 3}
    assert {entry.rule for entry in entries if entry.level == 1 and entry.outcome == "went on"} <= {
        "asha.promotion",
        "asha.last_resort",
    }


def test_hyperband_has_brackets_each_with_its_levels(experiment):
    entries = rungs(experiment("hyperband")._source())
    levels = {
        bracket: sorted({entry.level for entry in entries if entry.bracket == bracket})
        for bracket in (0, 1)
    }
    assert levels == {0: [1, 3, 9], 1: [3, 9]}
    first = [entry for entry in entries if (entry.bracket, entry.level) == (0, 1)]
    assert Counter(entry.outcome for entry in first) == {"went on": 3, "stopped": 6}
    kept = [entry.value for entry in first if entry.outcome == "went on"]
    assert min(kept) >= max(entry.value for entry in first if entry.outcome == "stopped")


@pytest.mark.parametrize("kind", ["plain", "pbt"])
def test_who_compares_at_no_rungs_has_none(experiment, kind):
    assert rungs(experiment(kind)._source()) == []


def test_stretches_follow_the_exploits(experiment):
    grid = experiment("pbt")
    segments = lineage(grid._source())
    assert len(segments) == sum(len(trial.grafts) + 1 for trial in grid.trials)
    for trial in grid.trials:
        own = [segment for segment in segments if segment.trial_id == trial.trial_id]
        assert [segment.donor_id for segment in own] == [
            None,
            *(graft.donor_id for graft in trial.grafts),
        ]
        assert own[-1].last_iteration == trial.iteration
        assert own[-1].config == trial.evaluated_params
    assert {segment.trial_id for segment in segments if segment.is_in_best} >= {
        grid.get_best_result().trial_id
    }


def test_a_schedule_has_no_gap_and_ends_with_the_trials_configuration(experiment):
    grid = experiment("pbt")
    steps = schedules(grid._source())
    for trial in grid.trials:
        own = [step for step in steps if step.trial_id == trial.trial_id]
        assert own[0].first_iteration == 0
        assert own[-1].last_iteration == trial.iteration
        assert all(step.last_iteration == after.first_iteration for step, after in pairwise(own))
        assert own[-1].config == trial.evaluated_params
    best = grid.get_best_result().trial_id
    assert {step.trial_id for step in steps if step.is_best} == {best}


def test_a_schedule_equals_the_policy_file(experiment):
    grid = experiment("pbt")
    trial = next(trial for trial in grid.trials if trial.grafts)
    [*_, last] = [
        line
        for line in (Path(grid.experiment_path) / f"pbt_policy_{trial.trial_id}.txt")
        .read_text()
        .splitlines()
        if line
    ]
    donor_iteration = json.loads(last)[3]
    own = [step for step in schedules(grid._source()) if step.trial_id == trial.trial_id]
    assert donor_iteration in {step.last_iteration for step in own} | {trial.iteration}


def test_charts_of_a_slice_have_its_trials_alone(experiment):
    part = experiment("pbt")[:1]
    assert {segment.trial_id for segment in lineage(part._source())} <= {"t00000"}
    assert {step.ancestor_id for step in schedules(part._source())} <= {"t00000"}


def test_without_exploits_there_is_no_lineage(experiment):
    assert lineage(experiment("plain")._source()) == []
    assert schedules(experiment("plain")._source()) == []
