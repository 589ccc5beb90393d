"""An experiment ends when its budget is used up, and goes on with a larger one."""

import contextlib
import json
import re
import signal

import pytest
from click.testing import CliRunner

import tuner as tune
from tests.end_to_end.interruption import Script
from tests.end_to_end.scripts import budgeted_search
from tests.end_to_end.scripts.budgeted_search import BUDGET, train
from tuner.analysis.open_experiment import read_stored
from tuner.cli import main
from tuner.journal import reader


def results_in(path):
    return [record for record in reader.read(path) if record["k"] == "result"]


def hours_in(path):
    stored = read_stored(path)
    spent = {use.unit: use.spent_at(stored.elapsed_s) for use in stored.progress().budgets}
    return spent["cpu_hours"], stored.elapsed_s / 3600


@pytest.mark.process
def test_what_was_spent_before_the_driver_was_killed_counts(tmp_path):
    with contextlib.closing(
        Script(budgeted_search.__file__, tmp_path, 5, directory=tmp_path)
    ) as script:
        assert script.end() == -signal.SIGKILL, script.errors
    path = tmp_path / "exp"
    assert 5 <= len(results_in(path)) < BUDGET
    hours_then, elapsed_then = hours_in(path)
    assert 0 < hours_then <= 2 * elapsed_then
    # The same budget: iterations that are trained once more count once more.
    grid = tune.Tuner.restore(path, train, callbacks=[]).fit()
    assert [str(result.ending) for result in grid] == ["interrupted"] * 2
    assert grid.budget_left["iterations"] == 0
    num_results = len(results_in(path))
    # Both may have reported in the turn before it was used up.
    assert BUDGET <= num_results <= BUDGET + 2
    hours, elapsed = hours_in(path)
    assert hours_then < hours <= 2 * elapsed
    assert grid.budget_left["cpu_hours"] == pytest.approx(1000 - hours)
    same = tune.Tuner.restore(path, train).fit()
    assert len(results_in(path)) == num_results
    assert same.budget_left["iterations"] == 0
    more = tune.Tuner.restore(path, train, budget={"iterations": 2 * BUDGET}).fit()
    assert 2 * BUDGET <= len(results_in(path)) <= 2 * BUDGET + 2
    for result in more:
        rows = [*result.metrics_dataframe["training_iteration"]]
        assert rows == [*range(1, len(rows) + 1)]


def test_the_end_of_a_budget_is_told(tmp_path, capsys):
    grid = budgeted_search.declare(tmp_path, executor="inline", verbose=1).fit()
    told = capsys.readouterr().out
    assert (
        "the budget of 12 iterations is used up; to go on, restore with a larger "
        "budget={'iterations': ..., 'cpu_hours': 1000}"
    ) in told
    assert re.search("iterations 1[234]/12, 0 left", told)
    assert tune.ResultGrid.from_directory(grid.experiment_path).budget_left["iterations"] == 0
    grid.explain()
    assert "; the budget of 12 iterations is used up\n" in capsys.readouterr().out
    page = grid.report(tmp_path / "page.html").read_text()
    assert re.search("iterations: 1[234] of 12 spent", page)
    shown = CliRunner().invoke(main, ["show", grid.experiment_path, "-f", "json"])
    assert len(json.loads(shown.stdout)) == 2
    assert re.match(r"spent 1[234] of 12 iterations, 0 left; [0-9.e-]+ of 1000 cpu", shown.stderr)


def test_a_budget_of_tune_run(tmp_path):
    analysis = tune.run(
        lambda config: [tune.report({"loss": 1.0}) for _ in range(3)],
        num_samples=9,
        storage_path=tmp_path,
        verbose=0,
        max_concurrent_trials=1,
        budget={"iterations": 6},
    )
    grid = tune.ResultGrid.from_directory(analysis.experiment_path)
    assert grid.budget_left == {"iterations": 0}
    assert sum(result.metrics.get("training_iteration", 0) for result in grid) < 27


@pytest.mark.parametrize(
    ("budget", "error", "message"),
    [
        (20, TypeError, "must map units to positive numbers, such as {'gpu_hours': 20}, got 20"),
        (
            {"gpu_hour": 20},
            ValueError,
            "of a resource such as 'gpu_hours', got 'gpu_hour'; wri",
        ),
        ({"_hours": 20}, ValueError, "got '_hours'"),
        ({3: 20}, ValueError, "budget must be in 'iterations', 'trial_hours', or"),
        ({"gpu_hours": 0}, ValueError, "got 0 for 'gpu_hours'; leave a unit out that has no limit"),
        ({"gpu_hours": -1.0}, ValueError, "got -1.0 for 'gpu_hours'"),
        ({"iterations": float("nan")}, ValueError, "got nan for 'iterations'"),
        ({"iterations": float("inf")}, ValueError, "got inf for 'iterations'; leave a unit out"),
        ({"iterations": "many"}, TypeError, "got 'many' for 'iterations'"),
        ({"iterations": True}, TypeError, "got True for 'iterations'"),
    ],
)
def test_a_budget_that_is_none_is_refused(budget, error, message):
    with pytest.raises(error) as refusal:
        tune.TuneConfig(budget=budget)
    assert message in str(refusal.value)


def test_a_budget_that_nothing_spends_is_refused(tmp_path):
    def tuner(budget, resources):
        return tune.Tuner(
            tune.with_resources(train, resources),
            tune_config=tune.TuneConfig(budget=budget),
            run_config=tune.RunConfig(
                storage_path=tmp_path, verbose=0, resources={"cpu": 1, "gpu": 1}
            ),
        )

    with pytest.raises(ValueError, match="budget limits 'gpu_hours', of which trials with the res"):
        tuner({"gpu_hours": 20}, {"cpu": 1}).fit()
    with pytest.raises(ValueError, match="spend nothing; give 'iterations', 'trial_hours', 'gpu_h"):
        tuner({"gpus_hours": 20}, {"cpu": 0, "gpu": 0.5}).fit()
