"""Several metrics and constraints in `TuneConfig`, and who is given them."""

from __future__ import annotations

import pytest

from schedulers import ASHAScheduler
from searchers import (
    BasicVariantGenerator,
    BOHBSearch,
    ConcurrencyLimiter,
    OptunaSearch,
    Repeater,
)
from searchers.objectives import OutcomeConstraint
from searchers.space import uniform
from tuner.spec.config import RunConfig, TuneConfig
from tuner.spec.experiment_spec import make_spec

METRICS, MODES = ["accuracy", "latency"], ["max", "min"]


def spec_of(**fields):
    tune = TuneConfig(num_samples=3, **{"search_alg": BasicVariantGenerator(), **fields})
    return make_spec(lambda config: None, {"x": uniform(0, 1)}, tune, RunConfig())


def test_one_mode_serves_several_metrics():
    assert TuneConfig(metric=METRICS, mode="min").objectives == (
        ("accuracy", "min"),
        ("latency", "min"),
    )
    assert TuneConfig(metric=["loss"], mode=["min"]).only_metric == "loss"


@pytest.mark.parametrize(
    "fields",
    [
        {"metric": []},
        {"metric": ["loss", "loss"], "mode": "min"},
        {"metric": METRICS, "mode": ["max", "least"]},
        {"metric": METRICS, "mode": ["max", "min", "min"]},
        {"metric": METRICS},
        {"metric": "loss", "mode": ["min", "max"]},
        {"metric": "loss", "mode": "min", "constraints": {"size": "small"}},
        {"metric": "loss", "mode": "min", "constraints": {"size": [">= 4", "<= 1"]}},
    ],
)
def test_what_does_not_fit_together_is_refused(fields):
    with pytest.raises(ValueError, match=r"metric|mode|constraints"):
        TuneConfig(**fields)


def test_the_settings_have_all_objectives_and_constraints():
    spec = spec_of(metric=METRICS, mode=MODES, constraints={"size_mb": (">= 1", "<= 4")})
    spec.connect()
    settings = spec.settings({"cpu": 1})
    assert settings.objectives == (("accuracy", "max"), ("latency", "min"))
    assert (settings.metric, settings.mode) == (None, None)
    assert settings.constraints == (
        OutcomeConstraint("size_mb", ">=", 1.0),
        OutcomeConstraint("size_mb", "<=", 4.0),
    )
    assert settings.as_fields()["constraints"] == {"size_mb": [">= 1", "<= 4"]}
    assert settings.watched_metrics == ("accuracy", "latency", "size_mb")
    assert spec.searcher.objectives == settings.objectives
    assert spec.searcher.constraints == spec.scheduler.constraints == settings.constraints


def test_a_scheduler_may_compare_one_of_several_metrics():
    asha = ASHAScheduler(metric="accuracy", mode="max")
    spec = spec_of(metric=METRICS, mode=MODES, scheduler=asha)
    spec.connect()
    assert spec.settings({"cpu": 1}).objectives == (("accuracy", "max"), ("latency", "min"))


@pytest.mark.parametrize(
    "searcher", [BOHBSearch(), Repeater(BOHBSearch(), 3)], ids=["BOHBSearch", "Repeater"]
)
def test_a_searcher_of_one_metric_is_refused_for_several_and_for_constraints(searcher):
    with pytest.raises(ValueError, match=r"metric must be one metric with"):
        spec_of(metric=METRICS, mode=MODES, search_alg=searcher)
    with pytest.raises(ValueError, match=r"constraints must be None with .* size <= 4"):
        spec_of(metric="loss", mode="min", constraints={"size": "<= 4"}, search_alg=searcher)


def test_names_of_optuna_search_are_constraints_of_the_experiment():
    pytest.importorskip("optuna")
    searcher = ConcurrencyLimiter(OptunaSearch(constraints=["excess"]), 2)
    spec = spec_of(metric="loss", mode="min", search_alg=searcher)
    spec.connect()
    settings = spec.settings({"cpu": 1})
    assert settings.constraints == (OutcomeConstraint("excess", "<=", 0.0),)
    assert spec.scheduler.constraints == settings.constraints


def test_other_constraints_in_a_searcher_are_refused():
    pytest.importorskip("optuna")
    given = {"metric": "loss", "mode": "min", "constraints": {"excess": "<= 1"}}
    with pytest.raises(ValueError, match=r"got excess <= 1 in TuneConfig and excess <= 0 in Opt"):
        spec_of(**given, search_alg=OptunaSearch(constraints=["excess"]))
    same = {**given, "constraints": {"excess": "<= 0"}}
    assert spec_of(**same, search_alg=OptunaSearch(constraints=["excess"])).constraints


def test_a_metric_of_the_searcher_beside_several_is_refused():
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match=r"must be the same everywhere, .*metric='loss'"):
        spec_of(metric=METRICS, mode=MODES, search_alg=OptunaSearch(metric="loss"))


@pytest.mark.heavy
def test_a_searcher_with_other_objectives_is_refused():
    searcher = OptunaSearch(metric=["accuracy", "size"], mode=MODES)
    with pytest.raises(ValueError, match=r"must be the same everywhere.*'size'"):
        spec_of(metric=METRICS, mode=MODES, search_alg=searcher)
