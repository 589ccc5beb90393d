"""A restore removes unfinished files, and the journal records how the driver ended."""

import pytest

import tuner as tune
from tuner.errors import StorageError
from tuner.journal import records
from tuner.journal.reader import read
from tuner.storage import layout
from tuner.storage.checkpoint_directories import commit_from, stage
from tuner.storage.manifest import Provenance


@pytest.fixture
def ended(short):
    experiment = short("ended")
    experiment.fit()
    return experiment


def test_a_restore_removes_unfinished_and_unrecorded_files(ended, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    trial_dir = ended.directory / "t00000"
    stage(trial_dir, 7, 2)
    orphan = commit_from(source, trial_dir, Provenance("t00000", 2, 7, 9))
    (ended.directory / layout.JOURNAL / f"{layout.STAGING_PREFIX}1.log-5").touch()
    ended.restore()
    assert not orphan.exists()
    assert list(ended.directory.rglob(f"{layout.STAGING_PREFIX}*")) == []
    assert sorted(path.name for path in trial_dir.glob("checkpoint_*")) == [
        "checkpoint_000000",
        "checkpoint_000001",
    ]


def test_a_salvage_keeps_checkpoints_that_the_journal_may_have_lost(ended, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    orphan = commit_from(source, ended.directory / "t00000", Provenance("t00000", 2, 7, 9))
    ended.restore(salvage=True)
    assert not orphan.exists()
    assert orphan.with_name("damaged-checkpoint_000007").is_dir()


def test_reading_results_removes_nothing(ended):
    staging = stage(ended.directory / "t00000", 7, 2)
    tune.Tuner.restore(ended.directory, ended.train, **ended.given()).get_results()
    assert staging.exists()


def test_each_driver_that_ends_records_that_in_the_journal(ended):
    ended.restore()
    closed = [record["e"] for record in read(ended.directory) if record["k"] == records.CLOSE]
    assert closed == [1, 2]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, ValueError), ("60", TypeError), (True, TypeError), (float("nan"), ValueError)],
)
def test_storage_retry_s_is_a_number_of_seconds(wrong, error):
    with pytest.raises(error, match="storage_retry_s must be"):
        tune.RunConfig(storage_retry_s=wrong)


def test_an_error_while_closing_does_not_hide_why_the_driver_ended(short, sabotage):
    experiment = short("failing", storage_retry_s=0.0)
    sabotage.fail(30, 5, for_s=1e9)
    with pytest.raises(StorageError, match="given up after 0 s") as refusal:
        experiment.fit()
    assert any("Tuner.restore(" in note for note in refusal.value.__notes__)
