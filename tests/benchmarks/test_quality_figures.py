"""The figures of the quality benchmark: regrets, ranks, intervals, records and the report."""

import doctest

import numpy as np
import pytest

from benchmarks.quality import figures, methods, record
from benchmarks.quality.environments import NAMES
from benchmarks.quality.figures import FLOOR, SHARES, bootstrap, compare
from benchmarks.quality.methods import METHODS, Ours, Peer
from benchmarks.quality.record import Record, record_of
from benchmarks.quality.report import PAGE, page, report
from benchmarks.quality.trace import Epoch, Trace, duration_s, incumbents, regret_at
from benchmarks.quality.tradeoffs import methods as tradeoffs
from tests.benchmarks.quality_tables import noisy_table, small_table


def made(method, task, seed, regret):
    return Record(method, task, seed, ((0.5, regret),), 10, 100, 2.0, {"library": "1.0"})


def all_of(method, regret, num_seeds=3):
    return [made(method, task, seed, regret) for task in ("t", "u") for seed in range(num_seeds)]


def test_the_incumbent_has_the_best_value_so_far_and_the_regret_of_its_best_epoch():
    table, end_s = small_table(), duration_s(small_table())
    epochs = [
        Epoch(0.1 * end_s, 9, 1),
        Epoch(0.2 * end_s, 8, 1),
        Epoch(0.3 * end_s, 9, 2),
        Epoch(0.4 * end_s, 9, 3),
    ]
    assert incumbents(table, epochs) == [
        (pytest.approx(0.1), table.regret(9)),
        (pytest.approx(0.2), 0.0),
        (pytest.approx(0.3), table.regret(9)),
    ]


def test_the_incumbent_of_a_noisy_table_has_the_best_value_seen_and_the_regret_of_the_mean():
    table, end_s = noisy_table(), duration_s(noisy_table())
    epochs = [Epoch(0.1 * end_s, 0, 9, 2), Epoch(0.2 * end_s, 9, 9, 0), Epoch(0.3 * end_s, 8, 9, 1)]
    assert incumbents(table, epochs) == [
        (pytest.approx(0.1), 0.0),
        (pytest.approx(0.2), table.regret(9)),
    ]
    assert table.regret(9) > table.regret(8) > 0.0


def test_an_equal_value_does_not_replace_the_incumbent():
    table = small_table()
    assert len(incumbents(table, [Epoch(1.0, 7, 1), Epoch(2.0, 9, 1)])) == 1


def test_regret_before_the_first_value_is_that_of_the_median():
    assert [regret_at([(0.2, 0.5), (0.4, 0.1)], share) for share in (0.1, 0.2, 0.3, 1.0)] == [
        1.0,
        0.5,
        0.5,
        0.1,
    ]


def test_an_interval_excludes_zero_only_where_tasks_agree():
    rng = np.random.default_rng(0)
    agreed = -0.3 + 0.05 * rng.standard_normal((6, 10))
    divided = agreed * np.array([1, -1, 1, -1, 1, -1])[:, None]
    assert [bootstrap(differences).verdict for differences in (agreed, -agreed, divided)] == [
        "ahead",
        "behind",
        "open",
    ]
    assert bootstrap(agreed) == bootstrap(agreed)
    assert bootstrap(agreed).low < bootstrap(agreed).mean < bootstrap(agreed).high


def test_equally_good_searches_share_a_rank():
    comparison = compare([*all_of("a", 0.1), *all_of("b", 0.1), *all_of("c", 0.5)], ["t", "u"], 3)
    assert {method: ranks[-1] for method, ranks in comparison.ranks().items()} == {
        "a": 1.5,
        "b": 1.5,
        "c": 3.0,
    }
    assert {ranks[0] for ranks in comparison.ranks().values()} == {2.0}


def test_a_comparison_leaves_out_searches_that_lack_a_run():
    comparison = compare([*all_of("a", 0.1), *all_of("b", 0.01)[1:]], ["t", "u"], 3)
    assert (list(comparison.regrets), comparison.incomplete) == (["a"], {"b": 5})
    assert comparison.regrets["a"].shape == (2, 3, len(SHARES))
    assert (comparison.seconds["a"], comparison.suggestions["a"]) == (0.2, 10)


def test_differences_are_those_of_logarithms_above_a_floor():
    comparison = compare([*all_of("a", 0.0), *all_of("b", 0.1)], ["t", "u"], 3)
    interval = comparison.difference("a", "b", 1.0)
    assert (interval.mean, interval.verdict) == (pytest.approx(np.log10(FLOOR) + 1), "ahead")
    assert comparison.difference("a", "b").mean == pytest.approx(interval.mean * 0.51)


def test_records_are_stored_and_the_latest_one_of_a_run_is_read(tmp_path):
    path = tmp_path / "results.jsonl"
    assert list(record.read(path)) == []
    for regret in (0.5, 0.25):
        record.append(made("a", "t", 0, regret), path)
    record.append(made("a", "t", 1, 0.5), path)
    assert list(record.read(path)) == [made("a", "t", 0, 0.25), made("a", "t", 1, 0.5)]


def test_a_record_is_made_from_a_trace():
    table = small_table()
    kept = record_of(
        "a", table, 7, Trace([Epoch(1.0, 8, 1), Epoch(2.0, 8, 2)], 1, 0.25, {"library": "1.0"})
    )
    assert kept == Record(
        "a", "small", 7, ((round(1 / duration_s(table), 5), 0.0),), 1, 2, 0.25, {"library": "1.0"}
    )


def test_the_report_shows_which_methods_lead_and_which_are_left_out():
    records = [
        *all_of("ours-random", 0.01),
        *all_of("random", 0.5),
        *all_of("dehb", 0.01),
        *all_of("smac", 0.2)[2:],
    ]
    lines = list(report(records, ["t", "u"], 3, "ours-random"))
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if "[" in line}
    assert "**ahead**" in rows["random search, full trainings (`random`)"]
    assert "**" not in rows["DEHB (`dehb`)"]
    assert "Left out: smac has run 4 of 6 times; figures need 3 seeds on every task." in lines
    assert all("| 2 x 3 |" in row for row in rows.values())
    assert any("paired: 2 tasks with 3 seeds, the same for both" in line for line in lines)
    assert lines[-1] == "Versions: library 1.0."


def test_a_report_needs_the_search_to_compare_with():
    with pytest.raises(ValueError, match="ours-random must have run on all 2 tasks"):
        list(report(all_of("random", 0.5), ["t", "u"], 3, "ours-random"))


def test_every_peer_has_an_environment():
    every = [*METHODS.values(), *tradeoffs.METHODS.values()]
    assert {method.environment for method in every if isinstance(method, Peer)} == set(NAMES)
    assert {method.scheduler for method in METHODS.values() if isinstance(method, Ours)} <= {
        "default",
        "promotion",
        "stopping",
        "fifo",
    }


def test_figures_are_replaced_between_their_marks():
    text = PAGE.read_text(encoding="utf-8")
    assert page(page(text, "figures"), "others") == page(text, "others")
    with pytest.raises(ValueError, match="has no lines"):
        page("nothing", "figures")


@pytest.mark.parametrize("module", [figures, methods])
def test_docstring_examples_run(module):
    outcome = doctest.testmod(module)
    assert (outcome.failed, outcome.attempted) == (0, 1)
