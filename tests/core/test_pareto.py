"""Pareto fronts of points and of trials."""

import math

from hypothesis import given
from hypothesis import strategies as st

from searchers.objectives import outcome_constraints, pareto_front
from tests.core.conversation import Conversation
from tuner.core.events import Outcome, WorkerStarted
from tuner.core.pareto import best_trials, values_of
from tuner.core.settings import ExperimentSettings
from tuner.core.worker_records import CheckpointRecord, Failure

_numbers = st.integers(0, 5)


def _beats(one, other, modes):
    signs = [1 if mode == "min" else -1 for mode in modes]
    pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, one, other, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@given(
    st.lists(st.tuples(_numbers, _numbers, _numbers), max_size=30),
    st.tuples(*[st.sampled_from(["min", "max"])] * 3),
)
def test_on_the_front_is_exactly_what_no_other_point_beats(points, modes):
    expected = {
        index
        for index, point in enumerate(points)
        if not any(_beats(other, point, modes) for other in points)
    }
    assert set(pareto_front(points, modes)) == expected


def test_the_front_begins_with_the_best_in_the_first_objective_and_keeps_equal_points():
    assert pareto_front([(1, 9), (3, 1), (1, 9), (2, 5), (3, 2)], ("min", "min")) == [0, 2, 3, 1]


def test_trials_without_a_finite_value_of_every_objective_are_not_on_the_front():
    talk = Conversation(capacity={"cpu": 4.0}, several_objectives=(("acc", "max"), ("size", "min")))
    talk.begin(4)
    for trial_id, metrics in {
        "t00000": {"acc": 0.9, "size": 5},
        "t00001": {"acc": 0.9},
        "t00002": {"acc": math.nan, "size": 1},
    }.items():
        talk.report(trial_id, 1, **metrics)
    talk.report("t00003", 1, acc=0.5, size=1)
    objectives = talk.experiment.settings.objectives
    assert [trial.trial_id for trial in best_trials(talk.experiment.trials, objectives)] == [
        "t00000",
        "t00003",
    ]
    assert (
        values_of(talk.trial("t00000"), objectives),
        values_of(talk.trial("t00001"), objectives),
    ) == ((0.9, 5.0), None)


def test_an_experiment_has_several_objectives_or_one_or_none():
    several = (("acc", "max"), ("size", "min"))
    assert ExperimentSettings({}, several_objectives=several).objectives == several
    assert ExperimentSettings({}, metric="loss", mode="min").objectives == (("loss", "min"),)
    assert ExperimentSettings({}).objectives == ()


def test_objectives_come_back_from_what_was_written_down_and_may_be_missing_there():
    settings = ExperimentSettings(
        {"cpu": 1.0}, several_objectives=(("acc", "max"), ("size", "min"))
    )
    fields = settings.as_fields()
    assert ExperimentSettings.from_fields(fields) == settings
    del fields["several_objectives"]
    assert ExperimentSettings.from_fields(fields).objectives == ()


def test_a_value_that_a_failed_attempt_reported_in_vain_does_not_count():
    """The trial goes on from its first result, and has not reported the loss again."""
    talk = Conversation(max_trials=1, max_failures=1, metric="loss", mode="min")
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1), loss=3.0, size=2)
    talk.report("t00000", 2, loss=0.5, size=2)
    talk.exit("t00000", Outcome.FAILED, Failure("ValueError", "boom"))
    talk.say(WorkerStarted("t00000", 2, pid=2))
    talk.report("t00000", 2, size=1)
    assert values_of(talk.trial("t00000"), (("loss", "min"), ("size", "min"))) == (3.0, 1.0)


def test_a_trial_that_misses_a_constraint_is_not_on_the_front():
    limits = outcome_constraints({"size": "<= 4"})
    talk = Conversation(
        capacity={"cpu": 4.0},
        several_objectives=(("acc", "max"), ("size", "min")),
        constraints=limits,
    )
    talk.begin(3)
    for trial_id, acc, size in [("t00000", 0.9, 5), ("t00001", 0.7, 4), ("t00002", 0.5, 1)]:
        talk.report(trial_id, 1, acc=acc, size=size)
    settings = talk.experiment.settings
    assert [
        trial.trial_id
        for trial in best_trials(
            talk.experiment.trials, settings.several_objectives, constraints=limits
        )
    ] == ["t00001", "t00002"]
    assert settings.watched_metrics == ("acc", "size")
    assert ExperimentSettings.from_fields(settings.as_fields()) == settings
