"""Tables agree with the journal when metrics appear, vanish or change order, and after restores."""

import csv
import io
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import tuner as tune
from tests.callbacks.table_cells import is_in
from tests.tiers import examples
from tuner.callbacks.files.csv_logger import read_table
from tuner.core.result import flatten
from tuner.journal.rows import JournalRows
from tuner.storage.spreadsheets import restored

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=4)
)
NAMES = st.sampled_from(["a", "b", "c", "=d", "e,f", 'g"', "h\r\n", "ü", " ", "x" * 50])
LEAVES = VALUES | st.sampled_from(["=1+1", "-x", "+1", "@", "nan", "", "a\nb", '"', "\t"])
METRICS = st.dictionaries(
    NAMES,
    LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(NAMES, LEAVES, max_size=3),
    max_size=6,
)
REPORTS = st.lists(METRICS, min_size=1, max_size=6)


def in_another_order(metrics):
    return dict(reversed(metrics.items()))


class Killed(Exception):
    """Simulates a crash of the driver."""


def training(reports, every):
    """Report the given metrics and save at each `every`-th; reorder the keys after a restart."""

    def train(config):
        start = 0
        if checkpoint := tune.get_checkpoint():
            start = int(Path(checkpoint.path, "row").read_text())
        for row, metrics in enumerate(reports[config["trial"]][start:], start + 1):
            metrics = in_another_order(metrics) if start else metrics  # noqa: PLW2901
            if row % every:
                tune.report(metrics)
                continue
            with tune.checkpoint_dir() as directory:
                Path(directory, "row").write_text(str(row))
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))

    return train


def killing(after):
    """Return a stop criterion that kills the driver at a given number of results."""
    received = []

    def stop(trial_id, result):
        received.append(trial_id)
        if len(received) == after:
            raise Killed
        return False

    return stop


def holds(line, row, columns):
    flat = flatten(row)
    return all(is_in(cell, flat.get(column)) for column, cell in zip(columns, line, strict=True))


@settings(max_examples=examples(25))
@given(
    reports=st.lists(REPORTS, min_size=2, max_size=2),
    deaths=st.lists(st.integers(1, 8), max_size=2),
    every=st.integers(1, 4),
)
def test_the_table_of_each_trial_is_the_journals_cell_by_cell(
    tmp_path_factory, reports, deaths, every
):
    storage = tmp_path_factory.mktemp("storage")
    space = {"trial": tune.grid_search([0, 1])}
    is_new = True
    for death in [*deaths, 0]:
        run_config = tune.RunConfig(
            name="exp", storage_path=storage, verbose=0, executor="inline", stop=killing(death)
        )
        given_again = {"param_space": space, "run_config": run_config}
        train = training(reports, every)
        tuner = (
            tune.Tuner(train, **given_again)
            if is_new
            else tune.Tuner.restore(storage / "exp", train, **given_again)
        )
        try:
            grid = tuner.fit()
        except Killed:
            is_new = False
            continue
        break
    for result, wanted in zip(grid, reports, strict=True):
        rows = JournalRows(storage / "exp").of(result.trial_id)
        assert [row["training_iteration"] for row in rows] == list(range(1, len(wanted) + 1))
        header, table = read_table(Path(result.path, "progress.csv"))
        assert len(set(header)) == len(header)
        assert set().union(*map(flatten, rows)) <= set(header)
        assert [
            (line, row)
            for line, row in zip(table, rows, strict=True)
            if not holds(line, row, header)
        ] == []
        written = csv.reader(
            io.StringIO(Path(result.path, "progress.csv").read_bytes().decode(), newline="")
        )
        assert [list(map(restored, line)) for line in written][1:] == table
        lines = [
            json.loads(line) for line in Path(result.path, "result.json").read_bytes().splitlines()
        ]
        assert [line["training_iteration"] for line in lines] == [
            row["training_iteration"] for row in rows
        ]
        for row, metrics in zip(rows, wanted, strict=True):
            flat = flatten(row)
            assert {name: repr(flat[name]) for name in flatten(metrics)} == {
                name: repr(value) for name, value in flatten(metrics).items()
            }
