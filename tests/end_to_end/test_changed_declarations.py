"""A restore with another declaration runs what is declared now and has not been run."""

from collections import Counter

import pytest

import tuner as tune
from searchers import BasicVariantGenerator, BOHBSearch, TreeSearch

grid = tune.grid_search


def train(config):
    if config.get("breaks"):
        raise RuntimeError("it breaks")
    tune.report({"loss": float(config["a"])})


@pytest.fixture
def begin(fit):
    def run(space, num_samples=1, duplicates="repeat", **settings):
        fit(
            train,
            space,
            tune={"num_samples": num_samples, "seed": 1, "duplicates": duplicates},
            executor="inline",
            **settings,
        )

    return run


def values(grid):
    return [result.config["a"] for result in grid]


def restored(path, **changes):
    return tune.Tuner.restore(path, train, **changes).fit()


def test_only_new_combinations_are_run_and_later_restores_agree(begin, tmp_path, capsys):
    path = tmp_path / "experiment"
    begin({"a": grid([1, 2, 3])}, 2)
    space = {"a": grid([0, 3, 4, 1])}
    assert values(restored(path, param_space=space, verbose=1)) == [1, 2, 3, 1, 2, 3, 0, 4, 0, 4]
    again = {"a": grid([5, 3, 2])}
    assert values(restored(path, param_space=again))[10:] == [5, 5]
    assert len(restored(path)) == 12
    assert Counter(values(restored(path, num_samples=3))[12:]) == {5: 1, 3: 1, 2: 1}


def test_a_script_that_resumes_runs_new_combinations_only(tmp_path):
    def search(found, num_samples=1):
        tuner = tune.Tuner(
            train,
            param_space={"a": grid(found), "x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=num_samples, seed=1, duplicates="skip"),
            run_config=tune.RunConfig(
                name="e", storage_path=tmp_path, verbose=0, executor="inline"
            ),
            resume="auto",
        )
        return tuner.fit()

    search([1, 2, 3])
    assert values(search([0, 1, 2, 3])) == [1, 2, 3, 0]
    assert values(search([7])) == [1, 2, 3, 0, 7]
    results = search([0, 7], num_samples=2)
    assert sorted(values(results)) == [0, 0, 1, 2, 3, 7, 7]
    assert len({result.config["x"] for result in results}) == 7


def test_what_never_began_and_has_left_the_grid_is_not_run(begin, tmp_path, capsys):
    path = tmp_path / "experiment"
    failing = {"a": grid([1, 2, 3, 4]), "breaks": tune.sample_from(lambda c: c["a"] == 1)}
    begin(failing, failure_config=tune.FailureConfig(fail_fast=True), resources={"cpu": 1})
    results = restored(path, param_space={"a": grid([3, 9]), "breaks": grid([False])})
    ran = [result.config["a"] for result in results if "loss" in (result.metrics or {})]
    assert sorted(ran) == [3, 9]
    back = restored(path, param_space={"a": grid([2, 3]), "breaks": grid([False])})
    ran = [result.config["a"] for result in back if "loss" in (result.metrics or {})]
    assert sorted(ran) == [2, 3, 9]
    restored(path, verbose=1)
    assert "nothing new: all 2 combinations were run," in capsys.readouterr().out


def test_a_finished_search_does_not_count_against_another_declaration(begin, tmp_path):
    path = tmp_path / "experiment"
    space = {"a": grid([1]), "b": grid([2])}
    begin(space, 3, duplicates="skip")
    assert values(restored(path, param_space={"a": grid([5, 6, 7])}, num_samples=1)) == [1, 5, 6, 7]


def test_an_empty_difference_is_named(begin, tmp_path, capsys):
    path = tmp_path / "experiment"
    begin({"a": grid([1, 2, 3]), "b": grid([0, 1])})
    restored(path, verbose=1, param_space={"a": grid([2, 1]), "b": grid([1, 0])})
    assert "nothing new: all 4 combinations were run," in capsys.readouterr().out
    restored(path, verbose=1, param_space={"a": grid([2, 1]), "b": 0}, num_samples=2)
    restored(path, verbose=1)
    assert "nothing new: all 2 combinations were run 2 times each," in capsys.readouterr().out


def test_points_come_next_although_the_samples_are_used_up(begin, tmp_path):
    path = tmp_path / "experiment"
    begin({"a": tune.uniform(0, 1)}, 3)
    points = [{"a": 0.25}, {"a": 0.5}]
    searcher = BasicVariantGenerator(points_to_evaluate=points)
    assert values(restored(path, search_alg=searcher))[3:] == [0.25, 0.5]


def test_options_that_an_exhausted_space_has_gained_are_run_and_then_no_more(tmp_path, fit, capsys):
    path = tmp_path / "experiment"
    settings = {"num_samples": 10, "seed": 1, "metric": "loss", "mode": "min"}
    space = {"a": tune.choice([1, 2, 3])}
    fit(train, space, tune={**settings, "search_alg": TreeSearch()}, executor="inline")
    assert len(restored(path)) == 3
    wider = {"a": tune.choice([0, 1, 2, 3, 4])}
    assert sorted(values(restored(path, param_space=wider))) == [0, 1, 2, 3, 4]
    assert len(restored(path, verbose=1)) == 5
    assert "nothing new: all configurations of the space were run" in capsys.readouterr().out
    assert sorted(values(restored(path, search_alg=BOHBSearch(), num_samples=20))) == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert sorted(values(restored(path, param_space={"a": tune.choice([3, 8])})))[-2:] == [4, 8]
