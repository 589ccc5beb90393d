"""Early stopping with several metrics, in whole searches on recorded curves."""

import dataclasses

import numpy as np
import pytest

from benchmarks.quality.record import read
from benchmarks.quality.tasks import DEVELOPMENT
from benchmarks.quality.tradeoffs import stopping
from benchmarks.quality.tradeoffs.front import Front
from benchmarks.quality.tradeoffs.stopping import METHODS, TABLES, Curves, report, run


@pytest.mark.parametrize("curves", TABLES.values(), ids=TABLES)
def test_tables_serve_for_development_and_have_trade_offs(curves):
    table = curves.table
    assert curves.name in DEVELOPMENT
    assert table.num_seeds == 1
    assert not table.is_raw
    shares = np.mean([curves.problem.is_feasible(end) for end in curves.ends])
    assert 0.05 <= shares <= 0.2 or not curves.bounded
    front = Front(curves.problem, curves.best)
    num_better = sum(front.add(end) for end in curves.ends)
    assert num_better > 2
    assert front.hypervolume == pytest.approx(curves.best.hypervolume)
    assert curves.durations_s.mean() == pytest.approx(1, abs=0.05)


def test_weights_are_those_of_perceptrons():
    names = [axis.name for axis in TABLES["digits_few"].table.grid.axes]
    assert {"width", "depth"} <= set(names)
    count = TABLES["digits_few"].weights
    assert count({"width": 8, "depth": 1}) == 64 * 8 + 8 * 10
    assert count({"width": 8, "depth": 3}) == 64 * 8 + 2 * 8 * 8 + 8 * 10
    of_features = TABLES["photo_place"].weights
    assert of_features({"width": 8, "depth": 2, "num_features": 16}) == 16 * 8 + 8 * 8 + 8 * 3


@pytest.mark.parametrize("name", ["none", "random-moasha"])
def test_a_search_has_the_front_of_what_it_was_told(name):
    curves = TABLES["photo_place"]
    kept = run(name, curves, 0)
    assert kept == dataclasses.replace(run(name, curves, 0), decision_s=kept.decision_s)
    missing = [share for _, share in kept.changes]
    assert missing == sorted(missing, reverse=True)
    assert 0 <= missing[-1] < missing[0] <= 1
    # Epochs of each configuration take another time, all of them 1 on average.
    assert kept.num_epochs == pytest.approx(40 * curves.table.num_epochs, rel=0.15)
    assert (kept.num_suggestions > 100) == (name != "none")


def test_a_bound_is_told_to_search_and_scheduler(monkeypatch):
    told = []

    def simulate(*arguments, **options):
        told.append(options["tune_config"])
        raise RuntimeError

    monkeypatch.setattr(stopping, "simulate", simulate)
    for name in ("moasha", "asha", "none"):
        with pytest.raises(RuntimeError):
            run(name, TABLES["cancer_few"], 0)
    (bound,) = TABLES["cancer_few"].problem.constraints
    assert [each.constraints for each in told] == 3 * [{"loss": bound.comparison}]
    assert [type(each.scheduler).__name__ for each in told] == [
        "MOASHAScheduler",
        "ASHAScheduler",
        "FIFOScheduler",
    ]


def test_runs_are_resumed_and_reported(tmp_path, capsys, monkeypatch):
    path = tmp_path / "results.jsonl"
    arguments = ["stopping", "--methods", "none", "--tables", "cancer_few", "--seeds", "1"]
    monkeypatch.setattr("sys.argv", [*arguments, "--results", str(path)])
    stopping.main()
    lines = path.read_text(encoding="utf-8")
    stopping.main()
    assert path.read_text(encoding="utf-8") == lines
    assert f"| {METHODS['none'].about} (`none`) |" in capsys.readouterr().out
    (kept,) = read(path)
    better = dataclasses.replace(kept, method="moasha", changes=((0.01, 0.01),))
    *_, row = report([kept, better], ["cancer_few"], 1)
    assert row.startswith(f"| {METHODS['moasha'].about} (`moasha`) | 0.990 / 0.990 / 0.990 | -2.00")
    assert row.count("**") == 6
    # A search that has not run on all of them is left out.
    assert len(list(report([kept], ["cancer_few"], 1))) == 3


def test_a_table_without_a_bound_has_no_constraints():
    assert Curves("digits_conv", ("loss", "seconds")).problem.constraints == ()
