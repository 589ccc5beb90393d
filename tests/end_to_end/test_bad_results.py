"""Mistakes that show when an experiment runs are named with what to do."""

from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, MOASHAScheduler, TrialScheduler
from schedulers.scheduler import Scheduler
from searchers import OptunaSearch, TreeSearch
from searchers.searcher import Searcher
from tuner import (
    Checkpoint,
    Tuner,
)
from tuner.errors import ExperimentExists, MetricNotReported
from tuner.stopper import MaximumIterationStopper, Stopper


def train(config):
    tune.report({"loss": 1.0, "val": {"accuracy": 0.5}})


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"scheduler": ASHAScheduler(metric="loss", mode="min")},
        lambda: {"search_alg": TreeSearch(metric="loss", mode="min")},
    ],
)
def test_the_same_metric_in_two_places(build, make):
    assert len(build(train, tune={"metric": "loss", "mode": "min", **make()}).fit()) == 1


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("scheduler", ASHAScheduler(metric="loss", mode="min")),
        ("search_alg", TreeSearch(metric="loss", mode="min")),
    ],
)
def test_a_part_of_another_experiment(build, name, part):
    build(train, tune={name: part}).fit()
    with pytest.raises(
        ValueError,
        match=r"must be new for each experiment, got one that another experiment has used; "
        r"construct another",
    ):
        build(train, tune={name: part})


def test_the_name_of_an_experiment_that_exists(build, fit, tmp_path):
    fit(train)
    before = (tmp_path / "experiment" / "t00000" / "result.json").read_bytes()
    message = (
        r"already holds an experiment; continue it with Tuner.restore\(.*\) "
        r"or .*if_exists=\"new\".* or choose another name"
    )
    with pytest.raises(ExperimentExists, match=message):
        build(train).fit()
    assert (tmp_path / "experiment" / "t00000" / "result.json").read_bytes() == before


def test_a_metric_that_trials_never_report_ends_the_experiment_and_a_restore_names_it_rightly(
    build, tmp_path
):
    tuner = build(
        train,
        {"x": tune.uniform(0, 1)},
        tune={"metric": "val/acuracy", "mode": "max", "num_samples": 30},
    )
    logged = (
        "trial t.* completed, and no trial has reported the metric 'val/acuracy'; "
        "reported were loss, val/accuracy; did you mean"
    )
    with pytest.raises(MetricNotReported, match=logged) as raised:
        tuner.fit()
    assert (
        f"Tuner.restore({str(tmp_path / 'experiment')!r}, train, metric='val/accuracy').fit()"
        in str(raised.value)
    )
    again = Tuner.restore(tmp_path / "experiment", train, metric="val/accuracy")
    assert len(again.get_results()) < 10
    results = again.fit()
    assert results.num_terminated == 30
    assert results.get_best_result().trial_id == "t00000"  # which had completed before
    assert [str(result.ending) for result in results] == ["completed"] * 30


def test_a_constraint_on_a_metric_that_no_trial_reports_ends_the_experiment(build, tmp_path):
    tune = {"metric": "loss", "mode": "min", "constraints": {"val/acuracy": ">= 0.4"}}
    tuner = build(train, tune={**tune, "num_samples": 3, "search_alg": "random"})
    with pytest.raises(MetricNotReported, match="no trial has reported the metric") as raised:
        tuner.fit()
    assert "train, constraints={'val/accuracy': '>= 0.4'}).fit()" in str(raised.value)
    again = Tuner.restore(
        tmp_path / "experiment", train, constraints={"val/accuracy": ">= 0.4"}
    ).fit()
    assert (again.num_terminated, again.get_best_result().metrics["loss"]) == (3, 1.0)


def test_one_of_several_metrics_that_no_trial_reports_ends_the_experiment(build):
    tune = {"metric": ["loss", "val/acuracy"], "mode": ["min", "max"], "search_alg": "random"}
    with pytest.raises(MetricNotReported) as raised:
        build(train, tune=tune).fit()
    assert "train, metric=['loss', 'val/accuracy']).fit()" in str(raised.value)


def test_a_metric_that_is_reported_as_text_ends_the_experiment(build):
    def train(config):
        tune.report({"loss": str(config["x"])})

    logged = (
        r"a number for the metric 'loss'; it was '0.5', which is no number\n"
        r"report a number for it, and continue"
    )
    with pytest.raises(MetricNotReported, match=logged):
        build(train, {"x": 0.5}, tune={"metric": "loss", "mode": "min", "num_samples": 2}).fit()


def test_a_metric_named_by_the_scheduler_is_mended_there(build, tmp_path):
    scheduler = ASHAScheduler(metric="acuracy", mode="max")
    with pytest.raises(MetricNotReported, match=r"train, scheduler=scheduler\)\.fit\(\)"):
        build(train, tune={"scheduler": scheduler}).fit()
    assert (
        Tuner.restore(
            tmp_path / "experiment", train, scheduler=ASHAScheduler(metric="loss", mode="min")
        )
        .fit()
        .num_terminated
        == 1
    )


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("scheduler", lambda other: MOASHAScheduler({"loss": "min", other: "max"})),
        ("search_alg", lambda other: OptunaSearch(metric=["loss", other], mode=["min", "max"])),
    ],
)
def test_one_of_several_objectives_is_mended_where_it_is_named(build, tmp_path, name, make):
    with pytest.raises(MetricNotReported, match=rf"train, {name}={name}\)\.fit\(\)"):
        build(
            train, {"x": tune.uniform(0, 1)}, tune={name: make("acuracy")}, executor="inline"
        ).fit()
    again = Tuner.restore(tmp_path / "experiment", train, **{name: make("val/accuracy")})
    assert again.fit().num_terminated == 1


def test_ten_results_without_the_metric_log_one_warning(fit, caplog):
    def train(config):
        for step in range(12):
            tune.report(
                {"val_acc": 0.1, "train": {"loss": 1.0}}
                | ({"val_accuracy": 0.5} if step == 11 else {})
            )

    fit(train, tune={"metric": "val_accuracy", "mode": "max", "num_samples": 3}, executor="inline")
    logged = [
        record.getMessage() for record in caplog.records if "val_accuracy" in record.getMessage()
    ]
    assert len(logged) == 1
    assert logged[0] == (
        "trial t00000 has reported 10 results, and no trial has reported the metric "
        "'val_accuracy' so far; reported were train/loss, "
        "val_acc; did you mean 'val_acc'?"
    )


def test_an_experiment_goes_on_without_its_metric_where_that_is_allowed(fit, monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    results = fit(train, tune={"metric": "val/acuracy", "mode": "max", "num_samples": 3})
    assert results.num_terminated == 3
    with pytest.raises(RuntimeError, match="got 'val/acuracy'; did you mean 'val/accuracy'"):
        results.get_best_result()


def test_a_stop_criterion_that_no_result_can_meet_logs_one_warning_with_the_reported_keys(
    fit, caplog
):
    def train(config):
        for step in range(3):
            tune.report({"val": {"loss": step}} | ({"late": 1} if step else {}))

    fit(
        train, tune={"num_samples": 3}, stop={"trainig_iteration": 2, "val": {"loss": 9}, "late": 9}
    )
    logged = [record.getMessage() for record in caplog.records if "stop" in record.getMessage()]
    assert len(logged) == 1
    assert "stop['trainig_iteration']" in logged[0]
    assert "training_iteration, val/loss" in logged[0]


def test_the_warning_about_an_endless_trial_names_its_stop_criterion(fit, caplog):
    def train(config):
        while not any(Path(tune.get_context().get_trial_dir()).parent.glob("told")):
            tune.report({"loss": 1.0})

    class Watch(tune.Callback):
        def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
            self.sign = info["experiment_path"] / "told"

        def on_step_end(self, iteration, trials, **info):
            if "stop['los']" in caplog.text:
                self.sign.touch()

    fit(train, stop={"los": 2}, callbacks=[Watch()])
    assert caplog.text.count("stop['los']") == 1


def test_asking_for_the_best_by_an_unknown_metric_or_mode(fit):
    results = fit(train, tune={"metric": "loss", "mode": "min", "num_samples": 2})
    with pytest.raises(
        ValueError,
        match="metric must be one that a trial reported as a number, got 'los'; "
        "did you mean 'loss'",
    ):
        results.get_best_result(metric="los", mode="min")
    with pytest.raises(
        ValueError, match="mode must be 'min' or 'max', got 'minimum'; did you mean 'min'"
    ):
        results.get_best_result(mode="minimum")
    with pytest.raises(ValueError, match="metric must be one that a trial reported"):
        results.get_dataframe(filter_metric="accuracy", filter_mode="max")


def test_results_without_any_metric_named(fit):
    results = fit(train, tune={"num_samples": 2})
    with pytest.raises(
        ValueError,
        match=r"metric must be given, as the experiment names none; pass metric=..., or set it in "
        r"TuneConfig",
    ):
        results.get_best_result()


def test_a_checkpoint_that_does_not_exist_fails_its_trial_and_is_named(fit):
    def train(config):
        tune.report({"loss": 1}, checkpoint=Checkpoint.from_directory("/nowhere/at/all"))

    (result,) = fit(train)
    assert result.status == "ERROR"
    assert (
        "checkpoint directory '/nowhere/at/all' does not exist; write the files before "
        "reporting them" in str(result.error)
    )
    assert "/nowhere/at/all" in Path(result.path, "error.txt").read_text()


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (3, "metrics must be a dict"),
        ({"a": {"b": 1}, "a/b": 2}, "a/b"),
    ],
)
def test_metrics_that_cannot_be_reported_fail_their_trial(fit, metrics, message):
    def train(config):
        tune.report(metrics)

    (result,) = fit(train, failure={"max_failures": 0})
    assert result.status == "ERROR"
    assert message in str(result.error)


def test_a_request_that_depends_on_the_configuration_fails_the_trials_that_ask_too_much(fit):
    greedy = tune.with_resources(train, lambda config: {"cpu": config["cpus"]})
    results = fit(greedy, {"cpus": tune.grid_search([1, 50, 2])}, resources={"cpu": 2})
    assert [str(result.status) for result in results] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert "asks for {'cpu': 50.0}" in str(results[1].error)


def test_running_an_experiment_twice(build):
    tuner = build(train, tune={"metric": "loss", "mode": "min"})
    results = tuner.fit()
    with pytest.raises(
        RuntimeError,
        match=r"has been called before, for .*; get_results\(\) returns .* "
        r"a new Tuner runs another",
    ):
        tuner.fit()
    assert list(tuner.get_results()) == list(results)


@pytest.mark.parametrize("suggestion", [[], "x", 3, {"x"}])
def test_a_searcher_that_suggests_no_configuration_is_named_with_what_it_returned(fit, suggestion):
    class Odd(Searcher):
        def suggest(self, trial_id):
            return suggestion

    with pytest.raises(
        TypeError,
        match=r"Odd.suggest must return a dict of hyperparameters, None .* or Searcher.FINISHED",
    ) as caught:
        fit(lambda config: None, tune={"search_alg": Odd()}, executor="inline")
    assert repr(suggestion) in str(caught.value)


class Direction(Searcher):
    """Names a metric without a direction."""

    def __init__(self, metric=None, mode=None):
        super().__init__(metric, mode)

    def suggest(self, trial_id):
        return {"x": 1.0}


class Judge(Scheduler):
    metric = "loss"

    def on_trial_result(self, trial, result):
        return ()


class RayJudge(TrialScheduler):
    def __init__(self, metric=None, mode=None):
        self._metric, self._mode = metric, mode


@pytest.mark.parametrize(
    ("name", "part"),
    [("search_alg", Direction("loss")), ("scheduler", Judge()), ("scheduler", RayJudge("loss"))],
)
def test_a_metric_without_a_mode_wherever_it_is_named(build, name, part):
    with pytest.raises(
        ValueError,
        match="mode must be 'min' or 'max' where a metric is named, got metric='loss' in",
    ):
        build(train, tune={name: part})
    assert len(build(train, tune={name: part, "mode": "max"}, executor="inline").fit()) == 1


def test_after_resources_were_refused_the_same_parts_can_be_used(build):
    parts = {
        "metric": "loss",
        "mode": "min",
        "search_alg": TreeSearch(),
        "scheduler": ASHAScheduler(),
    }
    with pytest.raises(ValueError, match="resources of a trial never fit"):
        build(train, {"x": tune.uniform(0, 1)}, tune=parts, resources={"cpu": 0.5}).fit()
    assert (
        len(
            build(
                train,
                {"x": tune.uniform(0, 1)},
                tune=parts,
                executor="inline",
                resources={"cpu": 2},
            ).fit()
        )
        == 1
    )


class Twice(Stopper):
    def __init__(self):
        self.num_results = 0

    def __call__(self, trial_id, result):
        self.num_results += 1
        return self.num_results == 2


class Counted:
    def __init__(self):
        self.num_results = 0

    def __call__(self, trial_id, result):
        self.num_results += 1
        return self.num_results == 2


class Spent(TrialScheduler):
    def __init__(self):
        self.seen = []


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("stop", Twice()),
        ("stop", Counted()),
        ("stop", [Twice(), MaximumIterationStopper(9)]),
        ("scheduler", Spent()),
    ],
    ids=["stopper", "callable", "list", "scheduler of Ray Tune"],
)
def test_a_custom_part_is_for_one_experiment(build, name, part):
    settings = {"tune": {name: part}} if name == "scheduler" else {name: part}
    build(train, executor="inline", **settings).fit()
    # It is the user's object that was asked.
    assert part[0].num_results if name == "stop" and isinstance(part, list) else True
    with pytest.raises(
        ValueError,
        match="must be new for each experiment, got one that another experiment has used",
    ):
        build(train, **{"name": "other", **settings})


def test_a_stopper_of_ours_knows_nothing_of_another_experiment(build):
    def flat(config):
        for _ in range(9):
            tune.report({"loss": 1.0})

    plateau = tune.stopper.TrialPlateauStopper("loss", std=0.01, num_results=4, grace_period=4)
    for name in ("one", "other"):
        [result] = build(flat, name=name, stop=plateau, executor="inline").fit()
        assert result.metrics["training_iteration"] == 4
