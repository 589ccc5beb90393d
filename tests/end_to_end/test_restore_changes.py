"""Restores with a new scheduler, stop criterion, searcher or space only affect later decisions."""

import logging

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler, MOASHAScheduler, Scheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, OptunaSearch
from tuner import ResumeConfig, Tuner
from tuner.errors import MetricNotReported
from tuner.spec.argument_codec import constructed
from tuner.spec.record import read_record


def train(config):
    for step in range(1, 9):
        tune.report({"loss": config["x"] + 1.0 / step, "time": 1 - config["x"]})


class StopsAtOnce(Scheduler):
    """A scheduler of the user's."""

    def on_trial_result(self, trial, result):
        from schedulers import Reason, Stop

        return [Stop(trial.trial_id, Reason("mine"))]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "experiment"


@pytest.fixture
def begin(fit):
    """Return a function that runs an experiment within this process."""

    def run(space=None, *, stop=None, **tune_config):
        settings = {
            "metric": "loss",
            "mode": "min",
            "num_samples": 4,
            "seed": 3,
            "max_concurrent_trials": 1,
            **tune_config,
        }
        return fit(
            train, space or {"x": tune.uniform(0, 1)}, tune=settings, stop=stop, executor="inline"
        )

    return run


def iterations(grid):
    return [result.metrics["training_iteration"] for result in grid]


def scheduler_in(path):
    return type(constructed(read_record(path).parts["tune_config"]["scheduler"], "scheduler", []))


def configs(grid):
    return [result.config for result in grid]


SCHEDULERS = {
    "asha for none": (None, lambda: ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2)),
    "none for asha": (
        lambda: ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2),
        FIFOScheduler,
    ),
    "other levels": (
        lambda: ASHAScheduler(max_t=8, grace_period=2),
        lambda: ASHAScheduler(max_t=4, reduction_factor=3),
    ),
    "another reduction factor": (
        lambda: ASHAScheduler(max_t=8),
        lambda: ASHAScheduler(max_t=8, reduction_factor=2),
    ),
    "the user's for none": (None, StopsAtOnce),
    "none for the user's": (StopsAtOnce, FIFOScheduler),
}


@pytest.mark.parametrize("case", SCHEDULERS)
def test_another_scheduler_governs_the_future_only(begin, path, caplog, case):
    before, after = SCHEDULERS[case]
    first = begin(scheduler=before and before())
    with caplog.at_level(logging.WARNING, logger="tuner"):
        grid = Tuner.restore(path, train, scheduler=after(), num_samples=8).fit()
    assert iterations(grid)[:4] == iterations(first)
    assert [result.status for result in grid][:4] == [result.status for result in first]
    assert len(grid) == 8
    if isinstance(after(), FIFOScheduler):
        assert iterations(grid)[4:] == [8] * 4
    if isinstance(after(), StopsAtOnce):
        assert iterations(grid)[4:] == [1] * 4
    assert "tune_config.scheduler: " in caplog.text


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (None, 3), (3, None)])
def test_another_stop_criterion_governs_the_future_only(begin, path, before, after):
    first = begin(stop=before and {"training_iteration": before}, scheduler=FIFOScheduler())
    grid = Tuner.restore(
        path, train, stop={"training_iteration": after} if after else {}, num_samples=6
    ).fit()
    assert iterations(first) == [before or 8] * 4
    assert iterations(grid) == [before or 8] * 4 + [after or 8] * 2


def test_a_function_may_take_the_place_of_a_dictionary_and_is_wanted_again_from_then_on(
    begin, path
):
    begin(stop={"training_iteration": 2})
    assert (
        len(Tuner.restore(path, train, stop=lambda trial_id, result: True, num_samples=5).fit())
        == 5
    )
    with pytest.raises(
        ValueError, match=r"run_config\.stop \(.*<lambda>\); pass stop= to Tuner\.restore"
    ):
        Tuner.restore(path, train)


def test_finished_trials_train_on_under_a_longer_stop_criterion_where_that_is_asked_for(
    begin, path
):
    begin(stop={"training_iteration": 2}, scheduler=FIFOScheduler())
    grid = Tuner.restore(
        path, train, stop={"training_iteration": 5}, resume_config=ResumeConfig(finished="restart")
    ).fit()
    assert iterations(grid) == [5] * 4
    assert all(len(result.metrics_dataframe) == 5 for result in grid)


def test_a_wider_space_is_searched_by_the_trials_to_come(begin, path):
    first = begin()
    grid = Tuner.restore(
        path, train, param_space={"x": tune.uniform(10, 11), "new": "here"}, num_samples=6
    ).fit()
    assert configs(grid)[:4] == configs(first)
    assert all(10 <= config["x"] <= 11 and config["new"] == "here" for config in configs(grid)[4:])


def test_one_more_point_of_a_grid_does_not_disturb_recorded_configurations(begin, path):
    first = begin({"x": tune.grid_search([0.0, 1.0])}, num_samples=1)
    grid = Tuner.restore(path, train, param_space={"x": tune.grid_search([0.0, 1.0, 2.0])}).fit()
    assert configs(grid)[:2] == configs(first)
    assert [config["x"] for config in configs(grid)] == [0.0, 1.0, 2.0]


SEARCHERS = {
    "optuna for random": (None, lambda: OptunaSearch(seed=1)),
    "random for optuna": (lambda: OptunaSearch(seed=1), BasicVariantGenerator),
    "a limiter around it": (
        lambda: OptunaSearch(seed=1),
        lambda: ConcurrencyLimiter(OptunaSearch(seed=1), 1),
    ),
    "another seed": (
        lambda: BasicVariantGenerator(random_state=1),
        lambda: BasicVariantGenerator(random_state=2),
    ),
}


@pytest.mark.parametrize("case", SEARCHERS)
def test_another_searcher_keeps_recorded_configurations(begin, path, case):
    before, after = SEARCHERS[case]
    first = begin(search_alg=before and before())
    grid = Tuner.restore(path, train, search_alg=after(), num_samples=7).fit()
    assert configs(grid)[:4] == configs(first)
    assert iterations(grid)[:4] == iterations(first)
    assert len(grid) == 7
    assert all(0 <= config["x"] <= 1 for config in configs(grid))


def test_another_searcher_learns_from_configurations_that_it_has_not_proposed(begin, path):
    begin()
    searcher = OptunaSearch(seed=1)
    grid = Tuner.restore(path, train, search_alg=searcher, num_samples=6).fit()
    learnt = [trial for trial in searcher.study.get_trials() if trial.state.name == "COMPLETE"]
    assert [trial.params for trial in learnt] == configs(grid)
    assert [trial.value for trial in learnt] == [result.metrics["loss"] for result in grid]


def test_the_default_scheduler_follows_from_one_metric_to_several_and_back(begin, path):
    begin(stop={"training_iteration": 8})
    results = Tuner.restore(path, train, metric=["loss", "time"], num_samples=8).fit()
    assert results.objectives == (("loss", "min"), ("time", "min"))
    assert scheduler_in(path) is MOASHAScheduler
    results = Tuner.restore(path, train, metric="time", mode="max", num_samples=10).fit()
    assert scheduler_in(path) is ASHAScheduler
    assert len(results) == 10
    with pytest.raises(ValueError, match=r"must compare one metric.*MOASHAScheduler"):
        Tuner.restore(path, train, metric=["loss", "time"], scheduler=ASHAScheduler()).fit()


def test_everything_may_change_at_once_and_again(begin, path):
    first = begin(scheduler=ASHAScheduler(max_t=8), stop={"training_iteration": 6})
    second = Tuner.restore(
        path,
        train,
        param_space={"x": tune.choice([5.0])},
        scheduler=FIFOScheduler(),
        search_alg=OptunaSearch(seed=2),
        stop={"training_iteration": 3},
        num_samples=6,
        callbacks=[tune.Callback()],
        failure_config=tune.FailureConfig(max_failures=1),
    ).fit()
    third = Tuner.restore(
        path, train, callbacks=[], num_samples=7, stop={}, scheduler=ASHAScheduler(max_t=2)
    ).fit()
    assert configs(second)[:4] == configs(first)
    assert configs(third)[:6] == configs(second)
    assert iterations(third)[:6] == iterations(second) == [*iterations(first), 3, 3]
    assert third[6].config == {"x": 5.0}
    recorded = read_record(path).parts
    assert recorded["tune_config"]["scheduler"] == {"@": "ASHAScheduler", "max_t": 2}
    assert recorded["run_config"]["callbacks"] == []


def test_an_experiment_whose_declaration_changed_is_continued_by_its_path_alone(begin, path):
    begin()
    changed = Tuner.restore(path, train, scheduler=ASHAScheduler(max_t=4), num_samples=6).fit()
    again = Tuner.restore(path, train).fit()
    assert iterations(again) == iterations(changed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"constraints": {"los": "<= 0.5"}},
            r"'los'; .*; did you mean 'loss'\?\nname one.*\n.*constraints=\{'loss': '<= 0.5'\}\)",
        ),
        (
            {"metric": "size"},
            r"metric 'size'; reported were loss, time\nname one.*\n.*metric=\.\.\.\)",
        ),
        (
            {"metric": ["loss", "los"]},
            r"did you mean 'loss'\?\n.*\n.*metric=\['loss', '...'\]\).*\n.*if trials report it",
        ),
    ],
)
def test_a_metric_that_no_recorded_result_has_is_refused_before_a_trial_begins(
    begin, path, given, message
):
    begin()
    with pytest.raises(MetricNotReported, match=message):
        Tuner.restore(path, train, **given, num_samples=6).fit()
    grid = Tuner.restore(path, train, num_samples=6).fit()
    assert (len(grid), grid.constraints, grid.objectives) == (6, {}, (("loss", "min"),))


def test_a_metric_may_come_where_no_trial_has_completed_or_it_is_not_required(
    begin, path, monkeypatch
):
    begin(scheduler=StopsAtOnce(), num_samples=2)
    bound = {"size": "<= 2"}
    stopped = Tuner.restore(path, train, constraints=bound, scheduler="fifo").fit()
    assert (len(stopped), len(stopped.feasible)) == (2, 0)
    assert len(Tuner.restore(path, train, constraints={}, num_samples=3).fit()) == 3
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    assert len(Tuner.restore(path, train, constraints=bound, num_samples=4).fit()) == 4
