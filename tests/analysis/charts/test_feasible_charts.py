"""Charts mark infeasible trials, which count neither as best nor on the front."""

import pytest

from searchers.objectives import outcome_constraints
from tuner.analysis.charts import PlotData, Plots, Source
from tuner.analysis.charts.hypervolume import hypervolume_steps, reference_for
from tuner.analysis.charts.parameters import trial_lines
from tuner.analysis.charts.timeline import Timeline
from tuner.journal.rows import MemoryRows

SEVERAL = (("accuracy", "max"), ("latency_ms", "min"))


@pytest.fixture
def source(make):
    """Returns a source of trials with these results, of which none may be larger than 4 MB."""

    def built(reported, metric="loss", mode="min", **options):
        trials = [
            make.trial(name, results, config={"x": number})
            for number, (name, results) in enumerate(reported.items())
        ]
        rows = MemoryRows({name: make.rows(name, each) for name, each in reported.items()})
        constraints = outcome_constraints({"size_mb": "<= 4"})
        return Source(trials, rows, "/nowhere", metric, mode, constraints=constraints, **options)

    return built


@pytest.fixture
def one(source):
    return source(
        {
            "small": [{"loss": 5, "size_mb": 1}],
            "big": [{"loss": 1, "size_mb": 9}],
            "better": [{"loss": 3, "size_mb": 2}],
        }
    )


@pytest.fixture
def two(source):
    return source(
        {
            "small": [{"accuracy": 0.8, "latency_ms": 20, "size_mb": 1}],
            "big": [{"accuracy": 0.99, "latency_ms": 1, "size_mb": 9}],
            "slow": [{"accuracy": 0.9, "latency_ms": 30, "size_mb": 1}],
        },
        None,
        None,
        several=SEVERAL,
    )


def test_the_best_trial_is_feasible_and_infeasible_ones_rank_last(one):
    assert one.best_id == "better"
    assert [trial.trial_id for trial in one.ranked()] == ["better", "small", "big"]
    frame = PlotData(one).parallel_coordinates()
    assert frame["is_best"].tolist() == [False, False, True]
    assert frame["is_feasible"].tolist() == [True, False, True]
    assert PlotData(one).slice()["is_feasible"].tolist() == [True, False, True]
    assert one.with_objective("size_mb", "max").best_id == "better"


def test_no_trial_is_the_best_if_none_is_feasible(source):
    assert source({"big": [{"loss": 1, "size_mb": 9}]}).best is None


def test_the_best_so_far_is_that_of_feasible_trials(one):
    frame = PlotData(one).history("trials")
    assert frame["best"].tolist() == [5, 5, 3]
    assert frame["value"].tolist() == [5, 1, 3]
    assert frame["is_feasible"].tolist() == [True, False, True]


def test_results_of_infeasible_trials_are_no_improvements():
    records = [
        {"k": "result", "t": at, "id": trial_id, "m": {"loss": loss, "training_iteration": 1}}
        for at, (trial_id, loss) in enumerate([("a", 5), ("b", 1), ("c", 3)])
    ]
    found = Timeline(records, {"a", "b", "c"}, "loss", "min", infeasible=["b"]).improvements
    assert [each.trial_id for each in found] == ["a", "c"]
    assert Timeline(records, {"a", "b"}, "loss", "min", infeasible=["b"]).reports["b"].values


def test_the_front_is_that_of_feasible_trials(two):
    frame = PlotData(two).pareto()
    assert frame["is_on_front"].tolist() == [True, False, True]
    assert frame["is_feasible"].tolist() == [True, False, True]


def test_the_hypervolume_is_that_of_feasible_trials(two):
    corner = reference_for(two, SEVERAL, {"accuracy": 0.5, "latency_ms": 40})
    assert corner == (0.5, 40)
    volumes = [step.hypervolume for step in hypervolume_steps(two, SEVERAL, corner)]
    assert volumes == pytest.approx([6, 6, 7])
    assert reference_for(two, SEVERAL) == pytest.approx((0.79, 31))


def test_without_a_feasible_trial_the_hypervolume_is_nothing(source):
    none = source(
        {"big": [{"accuracy": 1, "latency_ms": 1, "size_mb": 9}]}, None, None, several=SEVERAL
    )
    assert reference_for(none, SEVERAL) == ()
    assert [step.hypervolume for step in hypervolume_steps(none, SEVERAL, ())] == [0]


def test_a_trade_off_is_shown_by_all_its_metrics_or_the_first_unless_one_is_named(two):
    data = PlotData(two)
    lines = data.parallel_coordinates()
    assert list(lines.columns) == [
        "trial_id", "state", "accuracy", "latency_ms", "is_on_front", "is_feasible", "config/x",
    ]  # fmt: skip
    assert lines["is_on_front"].tolist() == [True, False, True]
    assert lines["config/x"].tolist() == [0, 1, 2]
    assert data.parallel_coordinates("latency_ms")["is_best"].tolist() == [True, False, False]
    steps = data.history("trials")
    assert steps["metric"].tolist() == ["accuracy"] * 3 + ["latency_ms"] * 3
    assert steps["best"].tolist() == [0.8, 0.8, 0.9, 20, 20, 20]
    assert data.history("trials", "latency_ms")["best"].tolist() == [20, 20, 20]
    assert "metric" not in data.history("trials", "latency_ms")
    assert data.learning_curves()["value"].tolist() == [0.8, 0.99, 0.9]
    assert data.slice()["value"].tolist() == [0.8, 0.99, 0.9]


def test_of_many_trials_of_a_trade_off_the_front_is_drawn(source):
    reported = {
        f"t{number}": [{"accuracy": number % 7, "latency_ms": number, "size_mb": 1}]
        for number in range(50)
    }
    many = source(reported, None, None, several=SEVERAL)
    lines = trial_lines(many, 10)
    assert len(lines) == 10
    front = [line.trial_id for line in lines if line.is_best]
    assert front == ["t0", "t1", "t2", "t3", "t4", "t5", "t6"]
    assert len(trial_lines(many)) == 50


@pytest.mark.process
def test_figures_mark_infeasible_trials(one, two, experiment):
    pytest.importorskip("plotly")

    def names(figure):
        return [trace.name for trace in figure.data]

    assert names(Plots(two).pareto()) == ["infeasible", "trials", "Pareto front"]
    infeasible, _, front = Plots(two).pareto().data
    assert (list(infeasible.x), list(front.x)) == ([0.99], [0.8, 0.9])
    assert infeasible.marker.symbol == "x-thin"
    assert PlotData(one).learning_curves()["is_feasible"].tolist() == [True, False, True]
    assert names(Plots(one).learning_curves()) == ["infeasible", "completed", "best: better"]
    assert names(Plots(one).slice()) == ["infeasible", "trials", "best"]
    assert names(Plots(one).parallel_coordinates())[0] == "infeasible"
    assert names(Plots(one).history("trials")) == [
        "best of each trial",
        "infeasible",
        "best so far",
    ]
    coordinates = Plots(two).parallel_coordinates()
    assert names(coordinates) == ["infeasible", "Pareto front"]
    # On the axes of the parameter and of both metrics, better is up.
    assert list(coordinates.data[1].y[:3]) == pytest.approx([1, 10 / 19, 0])
    assert list(coordinates.data[0].y) == [0.5, 1, 1, None]
    per_metric = Plots(two).history("trials")
    assert names(per_metric).count("best so far") == 2
    assert list(per_metric.data[2].y) == [0.8, 0.8, 0.9]
    assert per_metric.layout.yaxis2.title.text.startswith("latency_ms")
    assert Plots(two).slice().layout.yaxis.title.text.startswith("accuracy")
    assert Plots(two).learning_curves().layout.yaxis.title.text.startswith("accuracy")
    (volumes,) = Plots(two).hypervolume({"accuracy": 0.5, "latency_ms": 40}, "trials").data
    assert list(volumes.y) == pytest.approx([6, 6, 7])
    real = experiment("limited").plot
    assert len(real.hypervolume().data[0].x) == 24
    assert real.hypervolume().layout.xaxis.title.text.endswith("since the beginning")
    assert names(real.pareto())[0] == "infeasible"
