"""Frames that are read in one pass equal those built row by row."""

import pickle
import tempfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from schedulers import FIFOScheduler
from tuner.analysis import frames
from tuner.analysis.flat_results import flat_config, flat_metrics
from tuner.analysis.frames import (
    MetricsFrames,
    MetricsTable,
    TableTrial,
    in_order_of_appearance,
    in_usual_order,
    to_frame,
)
from tuner.analysis.result_grid import ResultGrid
from tuner.core.events import CheckpointSaved, ResultReported, TrialSuggested
from tuner.core.worker_records import CheckpointRecord
from tuner.journal.records import encode
from tuner.journal.rows import History, JournalRows, MemoryRows
from tuner.journal.writer import Journal

TRIALS = ["t00000", "t00001", "t00002"]

scalars = st.one_of(
    st.integers(-3, 3),
    st.floats(),
    st.booleans(),
    st.sampled_from(["a", "b", "$c"]),
    st.none(),
    st.sampled_from([2**70, -(2**70), 2**63]),
)
values = st.one_of(
    scalars,
    st.lists(st.integers(0, 9), max_size=2),
    st.fixed_dictionaries({"in": scalars}),
    st.just({}),
)
same_type = st.one_of(st.floats(allow_nan=False), st.floats())
metrics = st.one_of(
    st.fixed_dictionaries({"loss": same_type, "steps": st.integers(0, 99)}),
    st.dictionaries(
        st.sampled_from(["loss", "steps", "val", "val/in", "note", "done"]), values, max_size=4
    ),
)
configs = st.fixed_dictionaries(
    {"lr": scalars},
    optional={"model": st.fixed_dictionaries({"depth": st.integers(1, 3)}), "kind": scalars},
)
reports = st.tuples(
    st.sampled_from(TRIALS), st.integers(1, 4), st.one_of(st.none(), st.integers(1, 6)), metrics
)


@st.composite
def histories(draw):
    grafted = tuple(sorted(draw(st.sets(st.integers(1, 3), max_size=2))))
    return History(
        draw(st.integers(0, 1)), grafted, tuple(draw(configs) for _ in range(len(grafted) + 1))
    )


def told(reported):
    trial_id, _, iteration, own = reported
    return {
        **own,
        **({} if iteration is None else {"training_iteration": iteration}),
        "trial_id": trial_id,
    }


def row_by_row(trials, rows):
    """Return what the frame of these trials is when each of their results is a dictionary."""
    every = []
    for trial in trials:
        results = rows.of(trial.trial_id)
        in_force = rows.configs(trial.trial_id) or [trial.config] * len(results)
        own = [
            {**flat_metrics(row), **flat_config(config)}
            for row, config in zip(results, in_force, strict=True)
        ]
        if own:
            own[-1]["done"] = trial.done
        every += own
    return to_frame(every, in_usual_order(in_order_of_appearance(every)))


def check_equal(found, expected):
    assert list(found.columns) == list(expected.columns)
    assert found.dtypes.to_dict() == expected.dtypes.to_dict()
    assert found.index.equals(pd.RangeIndex(len(expected)))
    for name in expected.columns:
        assert repr(found[name].tolist()) == repr(expected[name].tolist())


@pytest.mark.property
@pytest.mark.parametrize("chunk", [2, 256])
@given(
    st.lists(reports, max_size=24),
    st.dictionaries(st.sampled_from(TRIALS), histories()),
    st.lists(configs, min_size=3, max_size=3),
)
def test_frames_of_a_journal_are_those_made_row_by_row(chunk, reported, known, last_configs):
    trials = [
        TableTrial(
            trial_id, known[trial_id].configs[-1] if trial_id in known else config, number != 1
        )
        for number, (trial_id, config) in enumerate(zip(TRIALS, last_configs, strict=True))
    ]
    with tempfile.TemporaryDirectory() as experiment, pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_CHUNK", chunk)
        with Journal(experiment, sync="process", segment_bytes=1500) as journal:
            for trial_id in TRIALS:
                journal.append(encode(TrialSuggested(trial_id, {}, {}), 0.0))
            for number, one in enumerate(reported):
                journal.append(encode(ResultReported(one[0], one[1], told(one)), float(number)))
                journal.flush()
        rows = JournalRows(experiment, known)
        table = MetricsTable(trials, rows)
        check_equal(table.joined(), row_by_row(trials, rows))
        for trial in trials:
            check_equal(table.of(trial.trial_id), row_by_row([trial], rows))
            check_equal(
                MetricsTable([trial], rows, are_few=True).of(trial.trial_id),
                row_by_row([trial], rows),
            )


@pytest.mark.property
@given(
    st.lists(reports, max_size=12), st.lists(st.lists(configs, max_size=3), min_size=3, max_size=3)
)
def test_frames_of_rows_in_memory_are_those_made_row_by_row(reported, by_branch):
    results = {
        trial_id: [told(one) for one in reported if one[0] == trial_id] for trial_id in TRIALS
    }
    branches = {
        trial_id: sorted(one[1] - 1 for one in reported if one[0] == trial_id)
        for trial_id in TRIALS
    }
    rows = MemoryRows(results, branches, dict(zip(TRIALS, by_branch, strict=True)))
    trials = [TableTrial(trial_id, {"lr": 0.5}, True) for trial_id in TRIALS]
    check_equal(MetricsTable(trials, rows).joined(), row_by_row(trials, rows))
    for trial in trials:
        check_equal(MetricsTable(trials, rows).of(trial.trial_id), row_by_row([trial], rows))


def test_a_checkpoint_that_is_saved_after_a_result_is_named_in_its_row(tmp_path):
    with Journal(tmp_path, sync="process") as journal:
        for number in (1, 2, 3):
            for trial_id in ("t1", "t2"):
                row = {
                    "loss": 1.0,
                    "checkpoint_dir_name": None,
                    "training_iteration": number,
                    "trial_id": trial_id,
                }
                journal.append(encode(ResultReported(trial_id, 1, row), 0.0))
            if number > 1:
                journal.append(
                    encode(CheckpointSaved("t1", 1, CheckpointRecord(number, number)), 0.0)
                )
            journal.append(encode(CheckpointSaved("t2", 2, CheckpointRecord(number, number)), 0.0))
    rows = JournalRows(tmp_path)
    trials = [TableTrial(trial_id, {}, True, 3) for trial_id in ("t1", "t2")]
    names = [None, "checkpoint_000002", "checkpoint_000003"]
    for table in (MetricsTable(trials, rows), MetricsTable(trials[:1], rows, are_few=True)):
        assert [
            name if isinstance(name, str) else None
            for name in table.of("t1")["checkpoint_dir_name"]
        ] == names
    assert MetricsTable(trials, rows).of("t2")["checkpoint_dir_name"].isna().all()
    assert [row["checkpoint_dir_name"] for row in rows.of("t1")] == [None] * 3


class CountingRows:
    """Counts how often results are read, and of how many trials."""

    def __init__(self, rows):
        self.rows = rows
        self.read = []

    def reported(self, trial_ids, *, are_few=False):
        self.read.append((len(trial_ids), are_few))
        return self.rows.reported(trial_ids, are_few=are_few)

    def configs_by_branch(self, trial_id):
        return self.rows.configs_by_branch(trial_id)


def test_a_few_of_many_trials_are_looked_up_and_more_of_them_are_read_in_one_pass(monkeypatch):
    results = {
        f"t{number}": [{"loss": number, "training_iteration": 1, "trial_id": f"t{number}"}]
        for number in range(200)
    }
    rows = CountingRows(MemoryRows(results))
    trials = [TableTrial(trial_id, {}, True, 1) for trial_id in results]
    MetricsFrames(trials, rows).of("t7")
    assert rows.read.pop() == (200, False)
    monkeypatch.setattr(frames, "_READ_AT_ONCE", 100)
    of_trials = MetricsFrames(trials, rows)
    assert [of_trials.of(trial_id)["loss"][0] for trial_id in results] == list(range(200))
    assert rows.read == [(1, True)] * 4 + [(200, False)]
    assert of_trials.joined()["loss"].tolist() == list(range(200))
    assert len(rows.read) == 5


def test_changing_a_frame_changes_no_other():
    rows = MemoryRows(
        {
            trial_id: [{"loss": 1.0, "training_iteration": 1, "trial_id": trial_id}]
            for trial_id in TRIALS
        }
    )
    frames = MetricsFrames([TableTrial(trial_id, {}, True, 1) for trial_id in TRIALS], rows)
    for frame in (frames.of("t00000"), frames.joined()):
        frame.loc[0, "loss"] = 9.0
    assert frames.joined()["loss"].tolist() == frames.of("t00000")["loss"].tolist() * 3 == [1.0] * 3


def test_a_pickled_result_holds_no_other_trials_and_a_pickled_grid_no_table(experiment):
    grid = ResultGrid.from_directory(experiment("pbt").experiment_path)
    unread = len(pickle.dumps(grid))
    table = grid.get_metrics_dataframe()
    assert len(pickle.dumps(grid)) == unread
    copy = pickle.loads(pickle.dumps(grid))  # noqa: S301  (made here)
    pd.testing.assert_frame_equal(copy.get_metrics_dataframe(), table)
    result = pickle.loads(pickle.dumps(copy[1]))  # noqa: S301  (made here)
    assert result.frames is None
    pd.testing.assert_frame_equal(result.metrics_dataframe, grid[1].metrics_dataframe)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["pbt", "plain", "asha"])
def test_the_table_of_a_real_experiment_holds_the_frames_of_its_trials(experiment, kind):
    grid = experiment(kind)
    for found in (grid, ResultGrid.from_directory(grid.experiment_path)):
        table = found.get_metrics_dataframe()
        assert table["trial_id"].unique().tolist() == [
            result.trial_id for result in found if len(result.metrics_dataframe)
        ]
        for result in found:
            frame = result.metrics_dataframe
            own = table.loc[table["trial_id"] == result.trial_id, frame.columns]
            pd.testing.assert_frame_equal(
                own.reset_index(drop=True), frame, check_dtype=False, check_frame_type=False
            )


@pytest.mark.process
def test_without_results_there_are_no_rows(tmp_path):
    def train(config):
        raise ValueError("boom")

    for grid in (
        tune.Tuner(
            train,
            tune_config=tune.TuneConfig(scheduler=FIFOScheduler()),
            run_config=tune.RunConfig(
                name="e", storage_path=str(tmp_path), executor="inline", verbose=0
            ),
        ).fit(),
        ResultGrid([], str(tmp_path), MemoryRows({})),
    ):
        assert grid.get_metrics_dataframe().empty
