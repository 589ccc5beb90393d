"""Tables of the quality benchmark: grids, files, values and properties."""

import json

import numpy as np
import pytest

from benchmarks.quality.grid import Axis, Grid, axes, log_axis, under
from benchmarks.quality.makeup import (
    correlation_among_best,
    makeup_rows,
    noise,
    rank_correlation,
    share_of_slow,
    slow_rows,
    task_rows,
)
from benchmarks.quality.networks import cost_s, train_networks
from benchmarks.quality.problems import (
    Problem,
    classification,
    with_distractors,
    with_label_noise,
    with_products,
)
from benchmarks.quality.report import PAGE
from benchmarks.quality.table import DATA, WORST, Table, read_table, write_table
from benchmarks.quality.tasks import (
    CONFIRMATION,
    DEVELOPMENT,
    SLOW_CONFIRMATION,
    SLOW_DEVELOPMENT,
    TASKS,
    is_for_confirmation,
)
from tests.benchmarks.quality_tables import CONDITIONAL, GRID, noisy_table, small_table

NUM_FIRST = 34
"""Number of tasks that are for development whatever their names."""
DRAWN = ["fair_prepared", "anes_party", "star_schools", "macro_inflation", "moons_noisy"]
"""Later tasks that the hash put into development."""
SLOW_DRAWN = [
    "modular_products",
    "digits_denoised",
    "diabetes_large_batches",
    "wine_warmups",
    "digits_regularised",
    "spirals_deep",
    "names_transformer",
    "melody_coordinates",
]
"""Tasks of slow starters that the hash put into development."""
MAX_BYTES = 250_000


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


def test_a_conditional_grid_holds_each_configuration_once_and_without_inactive_values():
    configs = list(CONDITIONAL.configs())
    # Kind and learning rate, by depth with what exists for it: nothing, relu, or tanh and a slope.
    assert len(CONDITIONAL) == len(configs) == (4 + 1 + 4) * (1 + (1 + 2))
    assert len({json.dumps(config, sort_keys=True) for config in configs}) == len(configs)
    assert configs[0] == {"kind": "a", "depth": 1, "lr": 0.001}
    assert {"kind": "b", "depth": 2, "activation": "tanh", "slope": 0.5} in configs
    assert all(("slope" in config) == (config.get("activation") == "tanh") for config in configs)


def test_inactive_values_of_a_suggestion_are_ignored():
    found = [CONDITIONAL.index(CONDITIONAL.suggested(config)) for config in CONDITIONAL.configs()]
    assert found == list(range(len(CONDITIONAL)))
    filled = {"lr": 3, "activation": "relu", "slope": 1}
    assert [
        CONDITIONAL.index({**filled, **CONDITIONAL.suggested(config)})
        for config in CONDITIONAL.configs()
    ] == found
    with pytest.raises(KeyError, match="lr"):
        CONDITIONAL.index({"kind": "a", "depth": 0})


def test_conditions_are_described_with_the_values_that_searches_suggest():
    described = {axis["name"]: axis for axis in CONDITIONAL.described()}
    assert described["lr"] == {
        "name": "lr",
        "scale": "int",
        "low": 0,
        "high": 3,
        "when": ["kind", ["a", "c"]],
    }
    assert described["activation"]["when"] == ["depth", [1]], "the index of the depth 2"
    assert "when" not in described["kind"]
    json.dumps(CONDITIONAL.described())


@pytest.mark.parametrize(("parent", "values"), [("kind", ("z",)), ("other", ("a",)), ("lr", (1,))])
def test_a_condition_on_an_unknown_axis_or_value_is_rejected(parent, values):
    kind = Axis("kind", "choice", ("a", "b"))
    with pytest.raises(ValueError, match="the condition of x must be an axis before it"):
        Grid((kind, *under(parent, values, Axis("x", "int", (1, 2))), log_axis("lr", 1e-3, 1.0, 4)))


@pytest.mark.parametrize("table", [small_table(), noisy_table()], ids=lambda table: table.name)
def test_a_table_is_read_as_it_was_written(table, tmp_path):
    write_table(table, tmp_path)
    again = read_table(table.name, tmp_path)
    assert (again.grid, again.versions, again.num_epochs) == (
        table.grid,
        table.versions,
        table.num_epochs,
    )
    np.testing.assert_allclose(again.values, table.values, atol=0.51e-4)
    np.testing.assert_allclose(again.costs_s, table.costs_s)


def test_diverged_and_huge_values_are_stored_as_the_worst_value(tmp_path):
    values = np.full((1, len(GRID), 3), 0.5)
    values[0, :2] = [0.4, np.nan, np.nan], [7.0, np.inf, 1e9]
    write_table(Table("small", GRID, values, np.ones(len(GRID)), {}), tmp_path)
    again = read_table("small", tmp_path)
    np.testing.assert_allclose(again.curves[0, :3], [[0.4] * 3, [WORST] * 3, [0.5] * 3])
    assert again.qualities[0] == pytest.approx(0.4)


def test_a_raw_table_keeps_the_value_of_each_epoch_and_where_training_diverges(tmp_path):
    values = np.full((1, len(GRID), 3), 0.5)
    values[0, :3] = [0.4, 0.9, np.nan], [np.nan] * 3, [9.0, np.inf, 1e-7]
    write_table(Table("small", GRID, values, np.ones(len(GRID)), {}, is_raw=True), tmp_path)
    again = read_table("small", tmp_path)
    assert again.is_raw
    np.testing.assert_allclose(again.seen, values, rtol=1e-6)
    np.testing.assert_allclose(
        again.curves[0, :3], [[0.4] * 3, [WORST] * 3, [WORST, WORST, 1e-7]], rtol=1e-6
    )


def test_the_error_about_a_missing_table_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"benchmarks\.quality\.tables nothing"):
        read_table("nothing", tmp_path)


def test_a_table_with_missing_rows_is_rejected(tmp_path):
    table = small_table()
    write_table(Table("small", GRID, table.values[:, 1:], table.costs_s[1:], {}), tmp_path)
    with pytest.raises(ValueError, match="each of its 24 configurations, got 23"):
        read_table("small", tmp_path)


def test_regret_is_0_for_the_best_and_1_for_the_median_configuration():
    table = small_table()
    assert table.regret(8) == 0.0
    assert np.median([table.regret(row) for row in range(len(GRID))]) == pytest.approx(1.0)


def test_searches_see_the_best_value_so_far():
    table = Table("small", GRID, np.array([[[0.5, 0.3, 0.4]]]), np.ones(1), {})
    np.testing.assert_allclose(table.curves, [[[0.5, 0.3, 0.3]]])


def test_regrets_are_those_of_the_mean_over_training_seeds():
    table = noisy_table()
    assert table.num_seeds == 3
    last = 1 / 9
    np.testing.assert_allclose(
        table.qualities[:4], [0.5 + last, 1.05 + last, 0.6 + last, 1.15 + last]
    )
    assert (table.regret(0), table.regret(2)) == (0.0, pytest.approx(0.1 / table.scale))
    assert noise(table) == pytest.approx(0.75 / table.scale), "half of the rows have 0.5, half 1"
    assert noise(small_table()) == 0.0


def test_training_seeds_are_drawn_by_search_seed_configuration_and_start():
    table = noisy_table()
    drawn = {
        (seed, row, start): table.seed_of(seed, row, start)
        for seed in range(10)
        for row in range(len(CONDITIONAL))
        for start in range(3)
    }
    counts = np.bincount(list(drawn.values()))
    assert len(counts) == 3
    assert counts.min() > 0.28 * len(drawn)
    for change in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        moved = [
            drawn[key] != drawn[after]
            for key in drawn
            if (after := tuple(np.add(key, change).tolist())) in drawn
        ]
        assert 0.55 < np.mean(moved) < 0.8, "two thirds of independent draws differ"
    assert (table.seed_of(0, 0, 0), table.seed_of(7, 5, 2)) == (drawn[0, 0, 0], drawn[7, 5, 2])
    assert {small_table().seed_of(seed, 3, 1) for seed in range(20)} == {0}


def test_the_split_is_the_one_that_was_drawn_by_the_hash_of_the_names():
    assert [name for name, task in TASKS.items() if task.seed >= NUM_FIRST] == [
        *DRAWN,
        *CONFIRMATION,
        *SLOW_DRAWN,
        *SLOW_CONFIRMATION,
    ]
    assert list(SLOW_DEVELOPMENT) == SLOW_DRAWN
    assert list(SLOW_CONFIRMATION) == [
        "modular_sums",
        "letters_transformer",
        "photo_coordinates",
        "friedman_annealed",
        "bits_parity",
        "digits_unfrozen",
    ]
    assert set(CONFIRMATION) == {
        "anes_families",
        "cancer_missing",
        "classes_twelve",
        "digits_schedules",
        "fair_families",
        "friedman_noisy",
        "friedman_ratios",
        "friedman_schedules",
        "grunfeld_families",
        "hastie_slow",
        "mode_choice",
        "randhie_prepared",
        "randhie_visits",
        "sunspots_lags",
    }
    assert all(is_for_confirmation(name) for name in [*CONFIRMATION, *SLOW_CONFIRMATION])
    assert not any(is_for_confirmation(name) for name in [*DRAWN, *SLOW_DRAWN])


def test_the_two_sets_share_no_task():
    assert not set(DEVELOPMENT) & set(CONFIRMATION)
    seeds = [task.seed for task in TASKS.values()]
    assert sorted(seeds) == list(range(len(TASKS))), "each task is trained with a different seed"
    assert len(TASKS) == len(DEVELOPMENT) + len(CONFIRMATION) + len(SLOW_DRAWN) + 6
    assert len(DEVELOPMENT) == NUM_FIRST + len(DRAWN)


def test_tables_of_the_tasks_and_of_both_sets_are_complete():
    rows = list(task_rows())
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("`")[1] for row in rows[2:]] == [*DEVELOPMENT, *CONFIRMATION]
    made_up = list(makeup_rows())
    shown = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in made_up)
    }
    assert shown[""] == ["development", "confirmation"]
    assert shown["tasks"] == [str(len(DEVELOPMENT)), str(len(CONFIRMATION))]
    assert shown["hyperparameters"] == ["3 / 6 / 11", "5 / 10 / 12"]
    slow = list(slow_rows())
    assert [row.split("`")[1] for row in slow[2:]] == list(SLOW_DEVELOPMENT)
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(made_up) in page, "docs/quality.md shows them, too"
    assert "\n".join(slow) in page, "docs/quality.md shows them, too"


def test_rank_correlation_compares_early_values_with_final_ones():
    values = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    table = Table("small", GRID, values[None, :, ::-1], np.ones(4), {})
    assert rank_correlation(table, 1) == pytest.approx(1.0)
    falling = Table("small", GRID, values[None], np.ones(4), {})
    assert rank_correlation(falling, 1) == pytest.approx(-1.0)
    assert rank_correlation(falling, 2) == pytest.approx(1.0)


def test_early_values_may_mislead_among_the_best_only():
    final = np.arange(40) / 40
    early = np.where(np.arange(40) < 4, 2 - final, 3 + final)
    table = Table("small", GRID, np.stack([early, final], axis=1)[None], np.ones(40), {})
    assert rank_correlation(table, 1) > 0.9
    assert correlation_among_best(table, 1) == pytest.approx(-1.0)


@pytest.mark.parametrize("name", TASKS)
def test_stored_tables_match_their_tasks(name):
    table = read_table(name)
    assert (table.grid, table.num_epochs, table.num_seeds) == (
        TASKS[name].grid,
        TASKS[name].num_epochs,
        TASKS[name].num_seeds,
    )
    assert table.is_raw == TASKS[name].is_raw
    assert (DATA / f"{name}.npz").stat().st_size < MAX_BYTES
    assert table.scale > 0
    assert (table.costs_s > 0).all()


def test_slow_starters_are_among_the_best_that_are_not_among_the_best_third_early():
    final = np.arange(60) / 60
    early = np.where(np.arange(60) < 2, 2.0, final)
    table = Table("small", GRID, np.stack([early, final], axis=1)[None], np.ones(60), {})
    assert share_of_slow(table, 1) == pytest.approx(2 / 3), "two of the best three"
    assert share_of_slow(table, 2) == 0.0


@pytest.mark.parametrize("name", SLOW_DEVELOPMENT)
def test_a_third_of_the_best_start_slowly(name):
    table = read_table(name)
    assert max(share_of_slow(table, epoch) for epoch in (1, 3)) > 1 / 3


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
