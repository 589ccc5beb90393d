"""Several metrics and constraints in `AxSearch`."""

import json
import math

import pytest

from searchers import AxSearch
from searchers.libraries.ax_search import _quiet
from searchers.objectives import OutcomeConstraint, outcome_constraints
from searchers.space import uniform

pytest.importorskip("ax")
pytestmark = pytest.mark.heavy

SPACE = {"x": uniform(0, 1), "y": uniform(0, 1)}
TRADE_OFF = (("val/accuracy", "max"), ("latency", "min"))


def told(objectives=TRADE_OFF, bounds=None, **arguments):
    searcher = AxSearch(**{"method": "random_search", **arguments})
    metric, mode = objectives[0] if len(objectives) == 1 else (None, None)
    spec = {"objectives": objectives}
    if bounds is not None:
        spec["constraints"] = outcome_constraints(bounds)
    assert searcher.set_search_properties(metric, mode, SPACE, seed=0, **spec)
    return searcher


def known_to_ax(searcher):
    """Return of each trial its status and its values by name."""
    with _quiet(searcher):
        searcher._report_new_results()
        experiment = searcher._client._experiment
        rows = experiment.lookup_data().df.to_dict("records")
    return [
        (
            trial.status.name,
            {row["metric_name"]: row["mean"] for row in rows if row["trial_index"] == index},
        )
        for index, trial in experiment.trials.items()
    ]


def test_ax_has_all_metrics_and_bounds_in_their_directions():
    searcher = told(bounds={"size/mb": "<= 4", "val/accuracy": ">= -0.5"})
    config = searcher._client._experiment.optimization_config
    assert config.objective.expression == "objective, -objective_1"
    assert [(each.op.name, each.bound) for each in config.outcome_constraints] == [
        ("LEQ", 4.0),
        ("GEQ", -0.5),
    ]
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"val/accuracy": 0.9, "latency": 3, "size/mb": 2})
    assert known_to_ax(searcher) == [
        ("COMPLETED", {"objective": 0.9, "objective_1": 3, "limited_0": 2, "limited_1": 0.9})
    ]


def test_the_only_metric_may_be_bounded():
    searcher = told((("loss", "min"),), {"loss": ">= 1e-05"})
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 0.5})
    assert known_to_ax(searcher) == [("COMPLETED", {"objective": 0.5, "limited_0": 0.5})]


def test_a_failed_trial_counts_with_the_worst_value_of_each():
    searcher = told(bounds={"size": "<= 4"})
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", {"val/accuracy": 0.9, "latency": 3, "size": 2})
    searcher.on_trial_complete("b", {"val/accuracy": 0.5, "latency": 1, "size": 5})
    searcher.on_trial_complete("c", error=True)
    searcher.on_trial_complete("d", {"val/accuracy": 0.9, "latency": math.nan, "size": 2})
    worst = {"objective": 0.5, "objective_1": 3, "limited_0": 5}
    assert known_to_ax(searcher)[2:] == [("COMPLETED", worst)] * 2


def test_a_trial_that_was_stopped_before_it_reported_all_is_ignored():
    searcher = told()
    searcher.suggest("a"), searcher.suggest("b")
    searcher.on_trial_complete("a", {"val/accuracy": 0.9}, stopped=True)
    searcher.on_trial_complete("b", {"val/accuracy": 0.5, "latency": 1})
    assert [status for status, _ in known_to_ax(searcher)] == ["FAILED", "COMPLETED"]


def test_a_value_that_is_reported_once_counts():
    first, second = told(bounds={"size": "<= 4"}), told(bounds={"size": "<= 4"})
    first.suggest("a")
    first.on_trial_result("a", {"val/accuracy": 0.1, "size": 5})
    second.set_state(json.loads(json.dumps(first.get_state())))
    second.on_trial_complete("a", {"val/accuracy": 0.5, "latency": 1})
    expected = {"objective": 0.5, "objective_1": 1, "limited_0": 5}
    assert known_to_ax(second) == [("COMPLETED", expected)]


def test_points_are_evaluated_in_all_metrics():
    searcher = told(points_to_evaluate=[{"x": 0.1, "y": 0.2}], evaluated_rewards=[[0.7, 2]])
    assert known_to_ax(searcher) == [("COMPLETED", {"objective": 0.7, "objective_1": 2})]
    with pytest.raises(ValueError, match=r"finite numbers, 2 for each, got 0.5"):
        searcher.add_evaluated_point({"x": 0.1, "y": 0.2}, 0.5)


def test_a_failed_trial_counts_with_the_value_that_misses_two_bounds_most():
    searcher = told((("loss", "min"),), {"size": [">= 1", "<= 4"]})
    for number, size in enumerate((0.5, 2, 4.25)):
        searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), {"loss": 1, "size": size})
    searcher.suggest("failed")
    searcher.on_trial_complete("failed", error=True)
    assert known_to_ax(searcher)[-1] == (
        "COMPLETED",
        {"objective": 1, "limited_0": 0.5, "limited_1": 0.5},
    )


def test_ax_learns_from_dictionaries_of_all_that_counts():
    searcher = told(bounds={"size": "<= 4"})
    point = {"x": 0.5, "y": 0.5}
    searcher.add_evaluated_point(point, {"val/accuracy": 0.9, "latency": 3, "size": 2})
    searcher.add_evaluated_point(point, {"val/accuracy": 0.9, "latency": 3})
    with pytest.raises(ValueError, match="must be finite numbers, 2 for each"):
        searcher.add_evaluated_point(point, {"val/accuracy": 0.9, "size": 2})
    assert known_to_ax(searcher)[0] == (
        "COMPLETED",
        {"objective": 0.9, "objective_1": 3, "limited_0": 2},
    )


def test_bounds_of_its_own_are_those_of_the_experiment_and_sums_are_not():
    given = ["size <= 3", "f1 >= -1e-5", "a + b <= 2", "size >= 1", "size <= 5"]
    searcher = AxSearch(outcome_constraints=given, method="random_search")
    assert searcher.constraints == (
        OutcomeConstraint("size", "<=", 3.0),
        OutcomeConstraint("size", ">=", 1.0),
        OutcomeConstraint("f1", ">=", -1e-5),
    )
    searcher.set_search_properties("loss", "min", SPACE, seed=0)
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 1, "size": 2, "f1": 0, "a": 1, "b": 0})
    limited = {"limited_0": 2, "limited_1": 2, "limited_2": 0}
    expected = {"objective": 1, **limited, "a": 1, "b": 0, "size": 2}
    assert known_to_ax(searcher) == [("COMPLETED", expected)]


def test_the_model_finds_trade_offs_within_a_bound():
    searcher = told(bounds={"size": "<= 0.5"}, method="fast", initialization_budget=4)
    proposed = []
    for number in range(8):
        config = searcher.suggest(str(number))
        proposed.append(config)
        result = {
            "val/accuracy": config["x"], "latency": config["x"] * (1 + config["y"]),
            "size": config["y"],
        }  # fmt: skip
        searcher.on_trial_complete(str(number), result)
    assert all(config["y"] <= 0.55 for config in proposed[5:])
