"""Taking an experiment over removes unfinished files."""

import pytest

from tuner.restore.takeover import remove_unfinished
from tuner.storage import layout
from tuner.storage.checkpoint_directories import commit_from, stage
from tuner.storage.manifest import Provenance


@pytest.fixture
def experiment(tmp_path):
    """Make an experiment of two trials with three checkpoints each, and unfinished files."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "weights").write_text("1")
    directory = tmp_path / "experiment"
    for name in (layout.JOURNAL, layout.SNAPSHOT, "t00000", "t00001"):
        (directory / name).mkdir(parents=True)
        (directory / name / f"{layout.STAGING_PREFIX}file-1").write_text("half")
        (directory / name / "kept").write_text("whole")
    (directory / f"{layout.STAGING_PREFIX}experiment.json-1").write_text("half")
    for trial_id in ("t00000", "t00001"):
        for index in range(3):
            commit_from(source, directory / trial_id, Provenance(trial_id, 1, index, index + 1))
        (stage(directory / trial_id, 3, 1) / "weights").write_text("half")
    return directory


def test_everything_unfinished_and_unrecorded_goes_and_nothing_else(experiment, names_in):
    removed = remove_unfinished(experiment, {"t00000": {"checkpoint_000001"}, "t00001": None})
    assert names_in(experiment / "t00000") == ["checkpoint_000001", "kept"]
    assert names_in(experiment / "t00001") == [
        *(f"checkpoint_00000{index}" for index in range(3)),
        "kept",
    ]
    assert (
        names_in(experiment / layout.JOURNAL) == names_in(experiment / layout.SNAPSHOT) == ["kept"]
    )
    assert names_in(experiment) == [layout.JOURNAL, layout.SNAPSHOT, "t00000", "t00001"]
    assert len(removed) == 4 + 1 + 2 + 2
    assert remove_unfinished(experiment, {"t00000": {"checkpoint_000001"}, "t00001": None}) == []


def test_directories_that_are_no_trials_are_not_looked_into(experiment, names_in):
    before = names_in(experiment / "t00001")
    remove_unfinished(experiment, {"t00000": set()})
    assert names_in(experiment / "t00001") == before


def test_a_trial_that_leads_elsewhere_is_not_followed(experiment, tmp_path, names_in):
    outside = tmp_path / "outside"
    (experiment / "t00000").rename(outside)
    (experiment / "t00000").symlink_to(outside)
    before = names_in(outside)
    remove_unfinished(experiment, {"t00000": set(), "../outside": set()})
    assert names_in(outside) == before


def test_what_the_user_has_named_like_a_checkpoint_stays(experiment):
    own = [experiment / "t00000" / name for name in ("checkpoint_best", "checkpoint_000007")]
    for path in own:
        path.mkdir()
    remove_unfinished(experiment, {"t00000": set()})
    assert all(path.is_dir() for path in own)


def test_what_cannot_be_removed_is_logged_and_left(experiment, monkeypatch, caplog):
    def refuse(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr("tuner.storage.checkpoint_directories._remove", refuse)
    assert remove_unfinished(experiment, {"t00000": set()}) == []
    assert caplog.text.count("cannot be removed: not yours") == 4
