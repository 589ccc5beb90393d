"""Functions of the quality benchmark, and searches on them."""

import dataclasses
import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import record
from benchmarks.quality.conversation import Conversation
from benchmarks.quality.functions import report, running
from benchmarks.quality.functions.function import Axis, Function, Term
from benchmarks.quality.functions.instances import CONFIRMATION, DEVELOPMENT, FUNCTIONS
from benchmarks.quality.functions.landscapes import FIXED, SHIFTED, landscape
from benchmarks.quality.functions.methods import METHODS, method_of
from benchmarks.quality.functions.running import NUM_EVALUATIONS, Task
from benchmarks.quality.methods import Ours
from benchmarks.quality.report import END, page
from searchers import BasicVariantGenerator
from tuner.spec.default_algorithms import chosen

DIMENSIONS = {"branin": 2, "hartmann6": 6}
KINDS = [*SHIFTED, *FIXED]


def small(noise=0.0):
    """A function of two levels: ``x`` counts under ``a``, ``y`` and ``z`` under ``b`` and ``c``."""
    axes = [
        Axis("choice", "choice", values=("a", "b")),
        Axis("x0", "float", 1e-4, 1.0, log=True, when=("choice", ("a",))),
        Axis("x1", "int", 1, 8, when=("choice", ("a",))),
        Axis("inner", "choice", values=("c", "d"), when=("choice", ("b",))),
        Axis("y0", "float", -5.0, 5.0, when=("inner", ("c",))),
        Axis("y1", "float", -5.0, 5.0, when=("inner", ("c",))),
    ]
    terms = [Term("sphere", ("x0", "x1")), Term("rosenbrock", ("y0", "y1"))]
    penalties = {"choice": {"a": 0.5, "b": 0.0}, "inner": {"c": 0.0, "d": 0.2}}
    return Function("small", "conditional", axes, terms, penalties, noise=noise)


@pytest.fixture
def small_function(monkeypatch):
    """The small function under its name among the others."""
    function = small()
    monkeypatch.setitem(FUNCTIONS, "small", function)
    return function


@pytest.mark.parametrize("kind", KINDS)
def test_a_landscape_is_zero_at_its_minimum_and_nowhere_less(kind):
    dimension = DIMENSIONS.get(kind, 4)
    value, optimum = landscape(kind, dimension, np.random.default_rng(3))
    rng = np.random.default_rng(0)
    assert value(optimum) == pytest.approx(0, abs=1e-9)
    assert np.all((optimum >= 0) & (optimum <= 1))
    random = [value(rng.random(dimension)) for _ in range(300)]
    near = [value(optimum + 0.03 * rng.normal(size=dimension)) for _ in range(300)]
    assert min(random) > 0
    assert 0 < np.median(near) < np.median(random)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_landscape(kind):
    dimension = DIMENSIONS.get(kind, 4)
    points = np.random.default_rng(0).random((5, dimension))

    def values(seed):
        value, _ = landscape(kind, dimension, np.random.default_rng(seed))
        return [value(point) for point in points]

    assert values(1) == values(1)
    assert (values(1) == values(2)) == (kind in DIMENSIONS)


def test_the_minimum_of_a_landscape_can_be_placed():
    place = np.array([0.25, 0.75])
    value, optimum = landscape("rastrigin", 2, np.random.default_rng(0), place)
    assert value(place) == 0
    assert optimum is place


@pytest.mark.parametrize(
    ("kind", "dimension", "optimum", "message"),
    [
        ("unknown", 2, None, "kind must be one of sphere"),
        ("sphere", 1, None, "dimension must be at least 2, got 1"),
        ("branin", 3, None, "branin has 2 dimensions, got 3"),
        ("schwefel", 2, np.zeros(2), "the minimum of schwefel cannot be moved"),
    ],
)
def test_a_landscape_that_does_not_exist_is_rejected(kind, dimension, optimum, message):
    with pytest.raises(ValueError, match=message):
        landscape(kind, dimension, np.random.default_rng(0), optimum)


@pytest.mark.parametrize(
    ("kind", "unit", "expected"),
    [
        ("branin", [5 / 15, 0.0], 36 + 10 * (1 - 1 / (8 * np.pi)) + 10 - 0.397887),
        ("branin", [(3 * np.pi + 5) / 15, 2.475 / 15], 0.0),
        ("hartmann6", [0.5] * 6, 3.32237 - 0.5053),
    ],
)
def test_classical_functions_have_their_published_values(kind, unit, expected):
    value, _ = landscape(kind, len(unit), np.random.default_rng(0))
    assert value(np.array(unit)) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_minimum_of_a_function_is_zero_and_in_its_space(name):
    function = FUNCTIONS[name]
    optimum = function.optimum
    assert function.value(optimum) == pytest.approx(0, abs=1e-9)
    for axis in function.axes:
        if axis.scale == "choice":
            assert optimum[axis.name] in axis.values
        else:
            assert axis.low <= optimum[axis.name] <= axis.high
    rng = np.random.default_rng(5)
    assert min(function.value(function.drawn(rng)) for _ in range(100)) > 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parents_stand_before_the_parameters_that_depend_on_them(name):
    known = {}
    for axis in FUNCTIONS[name].axes:
        if axis.when:
            parent, values = axis.when
            assert all(
                value in (known[parent].values or range(int(known[parent].high) + 1))
                for value in values
            )
        known[axis.name] = axis


def test_inactive_parameters_are_ignored():
    function = small()
    for name in [*FUNCTIONS, "small"]:
        each = FUNCTIONS.get(name, function)
        rng = np.random.default_rng(1)
        for _ in range(20):
            config, other = each.drawn(rng), each.drawn(rng)
            active = each.active(config)
            assert each.value(active) == each.value(config) == each.value({**other, **active})
    assert set(function.active({**function.optimum, "choice": "a"})) == {"choice", "x0", "x1"}
    # A value of an inactive parent activates nothing.
    assert "y0" not in function.active({**function.optimum, "choice": "a", "inner": "c"})


def test_an_option_has_its_penalty():
    function = small()
    assert function.value({"choice": "b", "inner": "d"}) == 0.2
    assert function.optimum["inner"] == "c"


def test_noise_changes_what_is_observed_and_not_the_regret():
    function, rng = small(noise=0.1), np.random.default_rng(0)
    config = {"choice": "b", "inner": "d"}
    observed = [function.observed(config, rng) for _ in range(2_000)]
    assert np.mean(observed) == pytest.approx(0.2, abs=0.02 * function.median)
    assert np.std(observed) == pytest.approx(0.1 * function.median, rel=0.1)
    assert function.regret(config) == 0.2 / function.median


def test_a_digest_of_the_name_decides_on_development_or_confirmation():
    for name in FUNCTIONS:
        is_odd = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 1
        assert (name in CONFIRMATION, name in DEVELOPMENT) == (is_odd, not is_odd)
    for names in (DEVELOPMENT, CONFIRMATION):
        assert {FUNCTIONS[name].group for name in names} == {"continuous", "mixed", "conditional"}


@pytest.mark.parametrize(("name", "num_workers"), [("ours", 4), ("ours-optuna-tpe", 1)])
def test_our_searches_run_on_a_conditional_function(small_function, name, num_workers):
    method = METHODS[name]

    def run():
        ask = running._in_process(method)
        return running.run(ask, name, method, Task(small_function, num_workers), 3)

    kept = run()
    assert (kept.num_suggestions, kept.num_epochs) == (NUM_EVALUATIONS, NUM_EVALUATIONS)
    assert kept.task == f"small x{num_workers}"
    assert kept.changes == run().changes
    assert [share for share, _ in kept.changes] == sorted(share for share, _ in kept.changes)
    assert kept.changes[0][0] == 1 / NUM_EVALUATIONS


def test_optuna_suggests_only_active_parameters(small_function):
    received = []
    with Conversation(Path(sys.executable), "optuna_peer") as conversation:

        def ask(do, **facts):
            answer = conversation.ask(do, **facts)
            received.append(answer)
            return answer

        running.run(ask, "optuna-tpe", METHODS["optuna-tpe"], Task(small_function, 4), 0)
    configs = [answer["config"] for answer in received if "config" in answer]
    assert len(configs) == NUM_EVALUATIONS
    assert all(config == small_function.active(config) for config in configs)


class Scripted:
    """Answers requests with random configurations, and waits or ends after some of them."""

    def __init__(self, function, num, end):
        self.function, self.num, self.end = function, num, end
        self.rng = np.random.default_rng(0)
        self.told = []

    def __call__(self, do, **facts):
        answer = {"seconds": 0.5, "versions": {}}
        if do == "ask" and not self.num:
            return {**answer, self.end: True}
        if do == "ask":
            self.num -= 1
            return {**answer, "trial": str(self.num), "config": self.function.drawn(self.rng)}
        self.told.append((do, facts.get("trial")))
        return answer


def test_evaluations_end_in_the_order_of_their_times(small_function):
    search = Scripted(small_function, NUM_EVALUATIONS, "wait")
    running.run(search, "s", METHODS["random"], Task(small_function, 4), 0)
    completed = [int(trial) for do, trial in search.told if do == "complete"]
    assert sorted(completed) == list(range(NUM_EVALUATIONS))
    assert completed != sorted(completed)


def test_a_search_may_end_early_but_not_wait_for_nothing(small_function):
    method, task = METHODS["random"], Task(small_function, 4)
    kept = running.run(Scripted(small_function, 10, "finished"), "s", method, task, 0)
    assert kept.num_suggestions == 10
    with pytest.raises(RuntimeError, match="waits after 10 evaluations"):
        running.run(Scripted(small_function, 10, "wait"), "s", method, task, 0)


def test_runs_are_resumed_and_reported(tmp_path, small_function, capsys):
    path = tmp_path / "results.jsonl"
    arguments = ["small", "branin-2"], [1, 4], 2
    assert (
        running.run_all(["random", "BasicVariantGenerator(max_concurrent=2)"], *arguments, path)
        == []
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 2 * 2 * 2
    assert running.run_all(["random"], *arguments, path) == []
    assert path.read_text(encoding="utf-8").splitlines() == lines
    capsys.readouterr()
    figures = "\n".join(report.report(list(record.read(path)), *arguments, "random"))
    assert figures.startswith("2 functions (1 conditional, 1 continuous), 2 seeds, 80 evaluations.")
    assert figures.count("| random search (`random`) |") == 2  # one for each number of workers
    assert figures.count("| `BasicVariantGenerator(max_concurrent=2)` |") == 4
    with pytest.raises(ValueError, match="ours must have run on all 2 functions with 1 workers"):
        list(report.report(list(record.read(path)), *arguments, "ours"))


def test_figures_replace_those_of_functions_alone():
    text = f"a <!-- figures --> b {END} c {report.BEGIN} old {END} d"
    assert page(text, "new", report.BEGIN) == (
        f"a <!-- figures --> b {END} c {report.BEGIN}\n\nnew\n\n{END} d"
    )


def test_the_first_row_follows_the_default_of_tuner(monkeypatch, small_function):
    def random_by_default(*arguments):
        return dataclasses.replace(chosen(*arguments), searcher=BasicVariantGenerator())

    def changes(name):
        ask = running._in_process(METHODS[name])
        return running.run(ask, name, METHODS[name], Task(small_function, 1), 0).changes

    monkeypatch.setattr("benchmarks.quality.functions.ours.chosen", random_by_default)
    assert changes("ours") == changes("random")


def test_a_searcher_of_tuner_can_be_named_with_arguments():
    assert method_of("TreeSearch(seed=3)") == Ours(
        "TreeSearch(seed=3)", "TreeSearch", "fifo", {"seed": 3}
    )
    for name in ("ours-random", "TreeSearch"):
        with pytest.raises(ValueError, match="a search must be one of ours"):
            method_of(name)
