"""A failed start leaves no files."""

from tuner.journal.removal import withdraw
from tuner.journal.writer import Journal
from tuner.storage import layout


def begin(directory):
    directory.mkdir()
    for name in (layout.LOCK, layout.DECLARATION, f"{layout.STAGING_PREFIX}experiment.json-1"):
        (directory / name).touch()


def fail_in(directory, records):
    with Journal(directory, sync="process") as journal:
        journal.append(*records)
    withdraw(directory)


def test_an_experiment_that_could_not_begin_leaves_nothing(tmp_path, names_in):
    directory = tmp_path / "experiment"
    begin(directory)
    fail_in(directory, [])
    assert names_in(directory) == []


def test_one_in_which_something_has_happened_keeps_everything(tmp_path, names_in):
    directory = tmp_path / "experiment"
    begin(directory)
    before = names_in(directory)
    fail_in(directory, [{"t": 0.0, "k": "turn"}])
    assert names_in(directory) == sorted([*before, layout.JOURNAL])
