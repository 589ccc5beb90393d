"""Tables of the quality benchmark: grids, files, values and properties."""

import json

import numpy as np
import pytest

from benchmarks.quality.grid import Axis, axes, log_axis
from benchmarks.quality.makeup import makeup_rows, rank_correlation, task_rows
from benchmarks.quality.networks import cost_s, train_networks
from benchmarks.quality.problems import (
    Problem,
    classification,
    with_distractors,
    with_label_noise,
    with_products,
)
from benchmarks.quality.report import PAGE
from benchmarks.quality.table import WORST, Table, read_table, write_table
from benchmarks.quality.tasks import DEVELOPMENT, NUM_EPOCHS, REPORTING, TASKS
from tests.benchmarks.quality_tables import GRID, small_table


def test_every_grid_point_is_found_by_its_suggestion():
    suggested = [
        {axis.name: axis.suggested(config[axis.name]) for axis in GRID.axes}
        for config in GRID.configs()
    ]
    assert [GRID.index(config) for config in suggested] == list(range(len(GRID)))


@pytest.mark.parametrize("suggested", [-1, 2, "a"])
def test_a_suggestion_outside_the_axis_is_rejected(suggested):
    with pytest.raises(ValueError, match=r"not in range|invalid literal"):
        Axis("depth", "int", (1, 3)).number(suggested)
    with pytest.raises(ValueError, match="not in tuple"):
        Axis("kind", "choice", ("b", "c")).number(suggested)


@pytest.mark.parametrize(
    ("scale", "values"),
    [
        ("cubic", (1, 2)),
        ("linear", (2, 1)),
        ("int", (1, 1)),
        ("log", (1, 2, 3)),
        ("int", (1, 2, 4)),
    ],
)
def test_an_invalid_axis_is_rejected(scale, values):
    with pytest.raises(ValueError, match="x must"):
        Axis("x", scale, values)


def test_an_axis_is_described_by_its_range_of_indices():
    assert [
        axis.described()
        for axis in axes(("depth", "int", (1, 3, 5)), ("kind", "choice", ("a", "b")))
    ] == [
        {"name": "depth", "scale": "int", "low": 0, "high": 2},
        {"name": "kind", "scale": "choice", "values": ["a", "b"]},
    ]
    assert log_axis("lr", 1e-3, 1.0, 4).values == (0.001, 0.01, 0.1, 1.0)
    json.dumps(GRID.described())


def test_a_table_is_read_as_it_was_written(tmp_path):
    table = small_table()
    write_table(table, tmp_path)
    again = read_table("small", tmp_path)
    assert (again.grid, again.versions, again.num_epochs) == (
        table.grid,
        table.versions,
        table.num_epochs,
    )
    np.testing.assert_allclose(again.values, table.values, atol=0.51e-4)
    np.testing.assert_allclose(again.costs_s, table.costs_s)


def test_diverged_and_huge_values_are_stored_as_the_worst_value(tmp_path):
    values = np.full((len(GRID), 3), 0.5)
    values[0], values[1] = [0.4, np.nan, np.nan], [7.0, np.inf, 1e9]
    write_table(Table("small", GRID, values, np.ones(len(GRID)), {}), tmp_path)
    again = read_table("small", tmp_path)
    np.testing.assert_allclose(again.values[:3], [[0.4, WORST, WORST], [WORST] * 3, [0.5] * 3])
    assert again.qualities[0] == pytest.approx(0.4)


def test_the_error_about_a_missing_table_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"benchmarks\.quality\.tables nothing"):
        read_table("nothing", tmp_path)


def test_a_table_with_missing_rows_is_rejected(tmp_path):
    table = small_table()
    write_table(Table("small", GRID, table.values[1:], table.costs_s[1:], {}), tmp_path)
    with pytest.raises(ValueError, match="each of its 24 configurations, got 23"):
        read_table("small", tmp_path)


def test_regret_is_0_for_the_best_and_1_for_the_median_configuration():
    table = small_table()
    assert table.regret(8) == 0.0
    assert np.median([table.regret(row) for row in range(len(GRID))]) == pytest.approx(1.0)


def test_searches_see_the_best_value_so_far():
    table = Table("small", GRID, np.array([[0.5, 0.3, 0.4]]), np.ones(1), {})
    np.testing.assert_allclose(table.curves, [[0.5, 0.3, 0.3]])


def test_the_two_sets_share_no_task():
    assert not set(DEVELOPMENT) & set(REPORTING)
    assert (len(DEVELOPMENT), len(REPORTING)) == (10, 24)
    seeds = [task.seed for task in TASKS.values()]
    assert sorted(seeds) == list(range(34)), "every task is trained with a different seed"


def test_both_sets_have_tasks_of_every_family():
    assert {task.model.family for task in DEVELOPMENT.values()} == {
        task.model.family for task in REPORTING.values()
    }


def test_tables_of_the_tasks_and_of_both_sets_are_complete():
    rows = list(task_rows())
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("`")[1] for row in rows[2:]] == list(TASKS)
    made_up = list(makeup_rows())
    shown = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in made_up)
    }
    assert shown[""] == ["development", "reporting"]
    assert shown["tasks"] == ["10", "24"]
    assert shown["hyperparameters"] == ["3 / 6 / 8", "3 / 6 / 8"]
    assert "\n".join(made_up) in PAGE.read_text(encoding="utf-8"), "docs/quality.md shows them, too"


def test_rank_correlation_compares_early_values_with_final_ones():
    values = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    table = Table("small", GRID, values[:, ::-1], np.ones(4), {})
    assert rank_correlation(table, 1) == pytest.approx(1.0)
    falling = Table("small", GRID, values, np.ones(4), {})
    assert rank_correlation(falling, 1) == pytest.approx(-1.0)
    assert rank_correlation(falling, 2) == pytest.approx(1.0)


@pytest.mark.parametrize("name", TASKS)
def test_stored_tables_match_their_tasks(name):
    table = read_table(name)
    assert (table.grid, table.num_epochs) == (TASKS[name].grid, NUM_EPOCHS)
    assert table.scale > 0
    assert (table.costs_s > 0).all()


@pytest.fixture
def problem():
    return classification("iris", "log_loss", 60, 60, seed=0)


def test_networks_learn_and_may_diverge(problem):
    configs = [
        {"lr": 0.05, "width": 8},
        {"lr": 1e6, "width": 8},
        {"lr": 0.05, "width": 16, "depth": 2, "optimizer": "adam", "dropout": 0.1},
    ]
    values = train_networks(problem, configs, 4, seed=0)
    assert values.shape == (3, 4)
    assert values[0, -1] < 0.7 * values[0, 0]
    assert not values[1, -1] < 1.0
    assert values[2, -1] < values[2, 0]
    np.testing.assert_array_equal(values, train_networks(problem, configs, 4, seed=0))
    assert float(np.float64(5e-324) * 1.0) > 0.0, (
        "denormal numbers must be handled again by later computations of this process"
    )


def test_wider_networks_and_smaller_batches_cost_more(problem):
    costs_s = [
        cost_s(problem, config)
        for config in ({"width": 8}, {"width": 64}, {"width": 8, "batch_size": 4})
    ]
    assert costs_s[0] < min(costs_s[1:])


def test_problems_are_split_and_made_harder(problem):
    assert (problem.train[0].shape, problem.valid[0].shape, problem.num_outputs) == (
        (60, 4),
        (60, 4),
        3,
    )
    np.testing.assert_allclose(problem.train[0].mean(axis=0), 0.0, atol=1e-5)
    assert with_distractors(problem, 3, seed=0).valid[0].shape == (60, 7)
    assert with_products(problem).train[0].shape == (60, 14)
    noisy = with_label_noise(problem, 1.0, seed=0)
    assert 20 < (noisy.train[1] != problem.train[1]).sum() < 60
    assert isinstance(noisy, Problem)
    np.testing.assert_array_equal(noisy.valid[1], problem.valid[1])
