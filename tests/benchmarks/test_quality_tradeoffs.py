"""Problems with several metrics of the quality benchmark, and searches on them."""

import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import record
from benchmarks.quality.conversation import Conversation
from benchmarks.quality.functions.function import Axis
from benchmarks.quality.methods import Ours
from benchmarks.quality.report import END, page
from benchmarks.quality.tradeoffs import data, long_run, report, running
from benchmarks.quality.tradeoffs.front import Best, Front, hypervolume, read_best
from benchmarks.quality.tradeoffs.instances import CONFIRMATION, DEVELOPMENT, PROBLEMS
from benchmarks.quality.tradeoffs.methods import METHODS, method_of
from benchmarks.quality.tradeoffs.problem import Objective, Problem
from benchmarks.quality.tradeoffs.running import NUM_EVALUATIONS, Task
from searchers import BasicVariantGenerator, objectives
from searchers.objectives import OutcomeConstraint
from tuner.spec.default_algorithms import chosen

NUM_DRAWN = {"engineering": 1_000, "models": 150}  # which take milliseconds


def halves(config):
    """Two metrics that cannot both be small, and a third one that has to be large."""
    return {"left": config["x"], "right": config["x"] + config["y"], "rate": config["y"]}


def small(bound=0.5):
    """A problem whose front is a line, with a bound that half of the configurations keep."""
    return Problem(
        "small",
        "engineering",
        "a line",
        (Axis("x", "float", 0.0, 1.0), Axis("y", "float", 0.0, 1.0)),
        (Objective("left"), Objective("right", "max")),
        (OutcomeConstraint("rate", ">=", bound),),
        halves,
    )


@pytest.fixture
def small_task(monkeypatch):
    """The small problem under its name among the others."""
    monkeypatch.setitem(PROBLEMS, "small", small())
    return Task(small(), Best((0.0, -2.0), (1.0, 0.0), 0.9, 100))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_has_all_its_metrics_and_gives_them_again(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    named = {each.metric for each in (*problem.objectives, *problem.constraints)}
    for _ in range(3):
        config = problem.drawn(rng)
        metrics = problem.evaluate(config)
        assert named <= set(metrics)
        assert all(isinstance(value, float) for value in metrics.values())
        assert np.isfinite(list(metrics.values())).all()
        assert problem.evaluate(config) == metrics
        json.dumps(metrics)


@pytest.mark.parametrize("names", [DEVELOPMENT, CONFIRMATION], ids=["development", "confirmation"])
def test_both_sets_have_several_objectives_and_bounds_that_few_keep(names):
    feasible = {}
    for name in names:
        problem, rng = PROBLEMS[name], np.random.default_rng(4)
        drawn = (problem.evaluate(problem.drawn(rng)) for _ in range(NUM_DRAWN[problem.group]))
        feasible[name] = np.mean([problem.is_feasible(metrics) for metrics in drawn])
    assert sum(0.05 <= share <= 0.2 for share in feasible.values()) >= 4
    assert all(share > 0.02 for share in feasible.values())
    three = 3
    assert sum(len(PROBLEMS[name].objectives) == three for name in names) >= 2
    assert {PROBLEMS[name].group for name in names} == {"engineering", "models"}
    assert sum(any(axis.scale == "choice" for axis in PROBLEMS[name].axes) for name in names) >= 4


def test_a_digest_of_the_name_decides_on_development_or_confirmation():
    for name in PROBLEMS:
        is_odd = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 1
        assert (name in CONFIRMATION, name in DEVELOPMENT) == (is_odd, not is_odd)


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        (
            "welded_beam",
            {"weld_in": 0.2444, "length_in": 6.2187, "height_in": 8.2915, "width_in": 0.2444},
            {"cost": 2.3815},
        ),
        (
            "pressure_vessel",
            {
                "shell_16ths": 13,
                "head_16ths": 7,
                "radius_in": 42.0984456,
                "length_in": 176.6365958,
            },
            {"cost": 6059.714},
        ),
        (
            "concrete_beam",
            {"num_bars": 8, "bar": "no8", "width_in": 8.5, "depth_in": 34.0},
            {"cost": 359.208},
        ),
        (
            "crashworthiness",
            {f"thickness{number}_mm": 1.0 for number in range(1, 6)},
            {"mass_kg": 1661.7078},
        ),
        (
            "side_impact",
            {
                "pillar": 1.5,
                "reinforcement": 1.35,
                "floor": 1.5,
                "members": 1.5,
                "beam": 2.625,
                "line": 1.2,
                "roof": 1.2,
            },
            {"mass_kg": 42.768, "force_kn": 3.58525, "velocity": 10.61064},
        ),
    ],
)
def test_designs_have_their_published_values(name, config, expected):
    problem = PROBLEMS[name]
    metrics = problem.evaluate(config)
    assert {key: metrics[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    excesses = problem.excesses(metrics) / np.array(
        [abs(each.bound) for each in problem.constraints] or [1.0]
    )
    assert (excesses < 1e-3).all()  # the published designs are rounded


def test_fewer_bits_give_fewer_different_weights():
    weights = np.random.default_rng(0).standard_normal((40, 10))
    counts = [len(np.unique(data.quantised(weights, bits))) for bits in (1, 2, 4)]
    assert counts[:2] == [2, 4]
    assert counts[2] <= 16
    near = data.quantised(weights, 12)
    np.testing.assert_allclose(near, weights, atol=1e-2)


@pytest.mark.parametrize("num_objectives", [1, 2, 3, 4])
def test_the_hypervolume_is_that_of_the_searchers(num_objectives):
    rng = np.random.default_rng(5)
    reference = np.ones(num_objectives)
    for num_points in (0, 1, 2, 12):
        points = rng.uniform(0, 1.2, (num_points, num_objectives)).round(1)
        expected = objectives.hypervolume([tuple(point) for point in points], tuple(reference))
        assert hypervolume(points, reference) == pytest.approx(expected)


def test_only_feasible_points_before_the_reference_count():
    problem = small()
    front = Front(problem, Best((0.0, -2.0), (1.0, 0.0), 0.5, 100))
    assert not front.add({"left": 0.1, "right": 1.0, "rate": 0.4})
    assert not front.add({"left": 1.5, "right": 1.0, "rate": 0.9})
    assert front.hypervolume == 0.0
    assert front.add({"left": 0.5, "right": 1.0, "rate": 0.5})
    assert front.hypervolume == pytest.approx(0.5 * 0.5)
    assert not front.add({"left": 0.6, "right": 1.0, "rate": 0.5})
    assert front.add({"left": 0.5, "right": 2.0, "rate": 0.5})
    assert front.hypervolume == pytest.approx(0.5 * 1.0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_few_random_results_are_better_than_the_best_known_front(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(6)
    known = read_best()[name]
    assert len(known.ideal) == len(problem.objectives)
    assert all(low < high for low, high in zip(known.ideal, known.reference, strict=True))
    assert 0 < known.hypervolume < 1.1  # the ideal was not quite reached at first
    front = Front(problem, known)
    for _ in range(200):
        front.add(problem.evaluate(problem.drawn(rng)))
    assert 0 <= front.hypervolume < known.hypervolume


def test_a_long_run_finds_the_front_of_a_line():
    known = long_run.best_of(small(), 2_500)
    assert known == long_run.best_of(small(), 2_500)
    np.testing.assert_allclose(known.ideal, (0.0, -2.0), atol=0.05)
    assert known.hypervolume > 0.5
    with pytest.raises(RuntimeError, match="no feasible configuration of small in 50 evaluations"):
        long_run.best_of(small(bound=2.0), 50)


def test_a_long_run_keeps_the_reference_and_the_better_front(tmp_path, monkeypatch, small_task):
    path = tmp_path / "best.json"
    monkeypatch.setattr(long_run, "BEST", path)
    long_run.write_best(["disc_brake", "small"], 2_100)
    first = read_best(path)
    assert set(first) == {"disc_brake", "small"}
    long_run.write_best(["small"], 4_000)
    better = read_best(path)
    assert better["disc_brake"] == first["disc_brake"]
    assert better["small"].hypervolume > first["small"].hypervolume
    assert better["small"].num_evaluations == 4_000
    assert better["small"].reference == first["small"].reference
    long_run.write_best(["small"], 2_050)
    assert read_best(path) == better


def test_what_is_missing_is_counted_from_the_best_known_front():
    kept = record.Record("s", "small", 0, ((0.5, 1.0), (1.0, 0.4)), 2, 2, 0.0, {})
    best = {"small": Best((0.0,), (1.0,), 0.8, 100)}
    assert running.missing(kept, best).changes == ((0.5, 1.0), (1.0, pytest.approx(0.25)))


def finished(small_task, name, ask):
    kept = running.run(ask, name, METHODS[name], small_task, 3)
    assert (kept.num_suggestions, kept.num_epochs) == (NUM_EVALUATIONS, NUM_EVALUATIONS)
    missing = [share for _, share in kept.changes]
    assert missing == sorted(missing, reverse=True)
    assert 0 <= missing[-1] < 0.6
    return kept


def test_random_search_is_the_same_with_the_same_seed(small_task):
    first, second = (
        finished(small_task, "random", running._in_process(METHODS["random"])) for _ in range(2)
    )
    assert first.changes == second.changes
    assert first.changes[0][0] == 1 / NUM_EVALUATIONS


@pytest.mark.parametrize("name", ["ours", "ours-gp", "ours-tree"])
def test_our_searches_run_with_several_metrics_and_constraints(small_task, name):
    kept = finished(small_task, name, running._in_process(METHODS[name]))
    random = finished(small_task, "random", running._in_process(METHODS["random"]))
    assert kept.changes[-1][1] < random.changes[-1][1]


def test_our_searches_run_with_one_metric_and_constraints():
    task = Task(PROBLEMS["concrete_beam"], read_best()["concrete_beam"])
    kept = running.run(running._in_process(METHODS["ours"]), "ours", METHODS["ours"], task, 0)
    assert kept.num_epochs == NUM_EVALUATIONS
    assert kept.changes[-1][1] < 1


def test_the_first_row_follows_the_default_of_tuner(monkeypatch, small_task):
    def random_by_default(*arguments):
        return dataclasses.replace(chosen(*arguments), searcher=BasicVariantGenerator())

    def changes(name):
        return finished(small_task, name, running._in_process(METHODS[name])).changes

    monkeypatch.setattr("benchmarks.quality.functions.ours.chosen", random_by_default)
    assert changes("ours") == changes("random")


@pytest.mark.parametrize("name", ["optuna-tpe", "optuna-nsga2"])
def test_optuna_is_told_costs_and_missed_bounds(small_task, name):
    told = []
    with Conversation(Path(sys.executable), "optuna_metrics_peer") as conversation:

        def ask(do, **facts):
            told.append(facts)
            return conversation.ask(do, **facts)

        finished(small_task, name, ask)
    results = [facts for facts in told if "costs" in facts]
    assert len(results) == NUM_EVALUATIONS
    for facts in results:
        metrics = facts["metrics"]
        assert facts["costs"] == [metrics["left"], -metrics["right"]]
        assert facts["excesses"] == [0.5 - metrics["rate"]]


def test_ax_runs(small_task, monkeypatch):
    pytest.importorskip("ax.api.client")
    # Its model begins with the sixth: that takes a minute, and tests of `AxSearch` do it.
    monkeypatch.setattr(running, "NUM_EVALUATIONS", 5)
    with Conversation(Path(sys.executable), "ax_metrics_peer") as conversation:
        kept = running.run(conversation.ask, "ax", METHODS["ax"], small_task, 0)
    assert kept.num_epochs == 5


def test_runs_are_resumed_and_reported(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    names = ["disc_brake", "crashworthiness"]
    other = "BasicVariantGenerator(max_concurrent=4)"
    assert running.run_all(["random"], names, 2, path) == []
    assert running.run_all([other], names, 1, path) == []
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 2 + 2
    assert running.run_all(["random"], names, 2, path) == []
    assert path.read_text(encoding="utf-8").splitlines() == lines
    capsys.readouterr()
    records = list(record.read(path))
    figures = "\n".join(report.report(records, names, 2, "random"))
    assert figures.startswith("2 problems, 1 of them with constraints; up to 2 seeds")
    # It is compared on the seed that both have.
    assert f"| `{other}` | 2 x 1 |" in figures
    assert "| random search (`random`) | 2 |" in figures
    with pytest.raises(ValueError, match="ours must have run on all 2 problems"):
        list(report.report(records, names, 2, "ours"))
    figures = "\n".join(report.report(records[:-1], names, 2, "random"))
    assert f"Left out: {other} has not run on all problems." in figures


def test_figures_replace_those_of_the_tradeoffs_alone():
    text = f"a <!-- figures --> b {END} c {report.BEGIN} old {END} d"
    assert page(text, "new", report.BEGIN) == (
        f"a <!-- figures --> b {END} c {report.BEGIN}\n\nnew\n\n{END} d"
    )


def test_a_searcher_of_tuner_can_be_named_with_arguments():
    assert method_of("GPSearch(seed=3)") == Ours(
        "GPSearch(seed=3)", "GPSearch", "fifo", {"seed": 3}
    )
    with pytest.raises(ValueError, match="a search must be one of ours"):
        method_of("GPSearch")
