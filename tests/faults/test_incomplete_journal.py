"""A journal without its end is detected by other files of the directory, and nothing starts over.

The journal alone verifies, since it is shorter but whole.
"""

import re
import shutil
from pathlib import Path

import pytest

import tuner as tune
from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.driver import run
from tuner.driver.driver import Driver
from tuner.errors import DamagedJournal, ExperimentExists
from tuner.journal.mark import MARK, Mark
from tuner.maintenance.doctor import Level, check
from tuner.maintenance.pruning import KeepRules, prune
from tuner.storage import layout, strict_json
from tuner.storage.layout import journal_directory

pytestmark = pytest.mark.filterwarnings("ignore:the last write to journal")


def train(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as path:
            start = int(Path(path, "epoch").read_text())
    for epoch in range(start + 1, 100):
        with tune.checkpoint_dir() as path:
            Path(path, "epoch").write_text(str(epoch))
            tune.report(
                {"loss": config["x"] / epoch}, checkpoint=tune.Checkpoint.from_directory(path)
            )


class Twice:
    """An experiment of two trials in two sessions, which end at iterations 3 and 5."""

    def __init__(self, storage, **settings):
        self.storage = storage
        self.settings = settings

    @property
    def directory(self):
        return self.storage / "exp"

    @property
    def segments(self):
        return sorted(journal_directory(self.directory).glob("*.log"))

    def given(self, iterations):
        run_config = tune.RunConfig(
            storage_path=self.storage,
            name="exp",
            verbose=0,
            executor="inline",
            stop={"training_iteration": iterations},
            **self.settings,
        )
        return {"param_space": {"x": tune.grid_search([1.0, 2.0])}, "run_config": run_config}

    def fit(self, iterations=3, **options):
        return tune.Tuner(train, **self.given(iterations), **options).fit()

    def restore(self, iterations=5, **options):
        how = tune.ResumeConfig(finished="resume")
        return tune.Tuner.restore(
            self.directory, train, resume_config=how, **self.given(iterations), **options
        ).fit()

    def forget_snapshots(self):
        shutil.rmtree(self.directory / layout.SNAPSHOT)

    def declare(self, **changes):
        """Change what the declaration records of the journal."""
        path = self.directory / layout.DECLARATION
        text = strict_json.checked(strict_json.loads(path.read_text()))
        text[MARK] = {**text[MARK], **changes}
        path.write_text(strict_json.dumps(strict_json.signed(text)))

    def start_the_machine_anew(self):
        self.declare(boot_id="an-earlier-start-of-the-machine")

    def iterations(self, grid):
        return [result.metrics["training_iteration"] for result in grid]

    def tree(self):
        paths = (
            path
            for path in sorted(self.directory.rglob("*"))
            if path.is_file() and path.name != layout.LOCK
        )
        return {path: path.read_bytes() for path in paths}


@pytest.fixture
def twice(tmp_path):
    experiment = Twice(tmp_path)
    experiment.fit()
    return experiment


def remove(path):
    path.unlink()


def remove_all(path):
    shutil.rmtree(path.parent)


def empty(path):
    path.write_bytes(b"")


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def overwrite(path):
    path.write_bytes(b"something else\nthat another program has written\n")


def cut(path):
    """Leave the header and a few records."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))


WHOLE = [remove, remove_all, empty, zero, overwrite]


def check_refused(experiment, *what):
    """Check that continuing from the journal and deleting files are refused and change nothing."""
    before = experiment.tree()
    pattern = ".*".join(
        [
            f"journal {re.escape(str(journal_directory(experiment.directory)))} is incomplete",
            *what,
            "salvage=True",
        ]
    )
    with pytest.raises(DamagedJournal, match=pattern):
        experiment.restore()
    with pytest.raises(DamagedJournal, match=pattern):
        experiment.fit(resume="auto")
    with pytest.raises(DamagedJournal, match=pattern):
        prune(experiment.directory, KeepRules(last=True))
    assert not tune.Tuner.can_restore(experiment.directory)
    findings = check(experiment.directory)
    assert any(
        "is incomplete" in finding.what and "salvage=True" in finding.remedy
        for finding in findings
        if finding.level is Level.ERROR
    )
    assert not any(finding.subject == "leftovers" for finding in findings)
    assert experiment.tree() == before


@pytest.mark.parametrize("harm", WHOLE)
def test_without_its_only_segment_nothing_starts_over(twice, harm):
    twice.forget_snapshots()
    harm(twice.segments[0])
    check_refused(twice, r"no record is there: driver 1 has written to it \(it has no segment\)")


@pytest.mark.parametrize("harm", WHOLE)
def test_a_directory_of_an_earlier_release_that_noted_nothing_does_not_start_over_either(
    twice, harm
):
    twice.forget_snapshots()
    (twice.directory / layout.LOCK).unlink()
    twice.declare(epoch=None, boot_id=None)
    harm(twice.segments[0])
    check_refused(twice, r"t00000/result\.json is there, and no record of it")


@pytest.mark.parametrize("harm", [remove, empty, zero, overwrite])
@pytest.mark.parametrize("is_locked", [True, False])
def test_without_the_segment_of_the_second_session_nothing_falls_back_to_the_first(
    twice, harm, is_locked
):
    twice.restore()
    twice.forget_snapshots()
    if not is_locked:
        (twice.directory / layout.LOCK).unlink()
    harm(twice.segments[1])
    check_refused(twice, r"driver 2 has written to it \(it ends with driver 1\)")


def test_a_snapshot_proves_that_earlier_records_existed(twice):
    cut(twice.segments[0])
    check_refused(twice, r"snapshot/\d+\.json was taken behind record \d+")


def test_results_that_only_files_of_trials_show_are_produced_again(tmp_path):
    longer = Twice(tmp_path)
    before = longer.fit(6)
    longer.forget_snapshots()
    cut(longer.segments[0])
    assert tune.Tuner.can_restore(longer.directory)
    after = longer.restore(6)
    assert [result.metrics["loss"] for result in after] == [
        result.metrics["loss"] for result in before
    ]
    for result in after:
        rows = Path(result.path, layout.RESULTS).read_text().splitlines()
        assert [strict_json.loads(row)["training_iteration"] for row in rows] == [*range(1, 7)]
    assert all(finding.level is not Level.ERROR for finding in check(longer.directory))


def test_a_missing_segment_of_the_same_session_is_noted_in_the_lock(twice):
    rotated = Twice(twice.storage / "rotated")
    rotated.fit()
    (path,) = rotated.segments
    note = strict_json.loads((rotated.directory / layout.LOCK).read_bytes())
    (rotated.directory / layout.LOCK).write_text(
        strict_json.dumps({**note, "segment": 1_000}) + "\n"
    )
    check_refused(rotated, "the segment that began with record 1000 is missing")
    assert path.exists()


@pytest.mark.parametrize("harm", [*WHOLE, cut])
@pytest.mark.parametrize("num_sessions", [1, 2])
def test_salvage_goes_on_and_keeps_aside_what_contradicts_the_journal(twice, harm, num_sessions):
    if num_sessions > 1:
        twice.restore()
    twice.forget_snapshots()
    rows = (twice.directory / "t00000" / layout.RESULTS).read_bytes()
    harm(twice.segments[-1])
    assert twice.iterations(twice.restore(salvage=True)) == [5, 5]
    if num_sessions == 1:
        asides = [
            *twice.directory.glob("damaged-t00000/result.json"),
            *twice.directory.glob("t00000/damaged-result.json"),
        ]
        assert [path.read_bytes() for path in asides] == [rows]
    twice.forget_snapshots()
    assert twice.iterations(twice.restore(7)) == [7, 7]
    assert all(finding.level is not Level.ERROR for finding in check(twice.directory))


def test_a_snapshot_of_what_was_cut_off_is_not_taken_for_one_of_what_came_instead(twice):
    cut(twice.segments[0])
    assert twice.iterations(twice.restore(salvage=True)) == [5, 5]
    for path in (twice.directory / layout.SNAPSHOT).iterdir():
        assert int(path.stem) <= int(twice.segments[-1].stem) + 100
    assert twice.iterations(twice.restore(7)) == [7, 7]


def test_remains_of_an_experiment_are_not_written_over_by_a_new_one(twice):
    shutil.rmtree(journal_directory(twice.directory))
    (twice.directory / layout.DECLARATION).unlink()
    before = twice.tree()
    for options in ({}, {"resume": "auto"}):
        with pytest.raises(
            ExperimentExists,
            match=r"holds what is left of an experiment, such as 't00000/result\.json'",
        ):
            twice.fit(**options)
    assert twice.tree() == before


# Intact directories are not refused.


@pytest.mark.parametrize("session", ["first", "second"])
def test_a_driver_that_dies_between_its_segment_and_the_mark_is_no_contradiction(
    tmp_path, monkeypatch, session
):
    experiment = Twice(tmp_path)
    begin = experiment.fit
    if session == "second":
        begin()
        begin = experiment.restore

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "rewrite_declaration", die)
        with pytest.raises(KeyboardInterrupt):
            begin()
    assert experiment.iterations(experiment.restore()) == [5, 5]


def test_what_users_name_like_a_trial_or_a_checkpoint_is_no_contradiction(twice):
    shutil.copytree(
        twice.directory / "t00000" / "checkpoint_000002",
        twice.directory / "t00000" / "checkpoint_000099",
    )
    (twice.directory / "t00000" / "checkpoint_000098").mkdir()
    (twice.directory / "t00077").mkdir()
    (twice.directory / "t00078").mkdir()
    (twice.directory / "t00078" / layout.RESULTS).write_text(
        '[1]\n{"training_iteration":"7"}\nnothing\n'
    )
    assert twice.iterations(twice.restore()) == [5, 5]


@pytest.mark.parametrize("harm", WHOLE)
def test_a_power_cut_takes_no_segment_that_was_synced_but_any_that_was_not(tmp_path, harm, caplog):
    for durability in ("strict", "group", "process"):
        experiment = Twice(tmp_path / durability, durability=durability)
        experiment.fit()
        experiment.forget_snapshots()
        harm(experiment.segments[0])
        experiment.start_the_machine_anew()
        if durability == "process":
            assert tune.Tuner.can_restore(experiment.directory)
            assert experiment.iterations(experiment.restore()) == [5, 5]
        else:
            check_refused(experiment, "driver 1 has written to it")
    lost = "what durability='process' lets a power cut take is gone: driver 1 has written to it"
    assert lost in caplog.text


def test_a_power_cut_explains_a_loss_only_where_segments_are_not_synced():
    for durability in ("strict", "group", "storage", "process"):
        mark = Mark(1, 1, "before", durability)
        assert mark.explains_loss("now") == (durability == "process")
        assert not mark.explains_loss("before")


def test_losses_of_a_power_cut_are_settled_before_the_next_driver_records_its_boot_id(
    tmp_path, monkeypatch
):
    twice = Twice(tmp_path, durability="process")
    twice.fit()
    remove(twice.segments[0])
    twice.start_the_machine_anew()

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "run", die)
        patch.setattr(TrialFileLogger, "catch_up_with_journal", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            twice.restore()
    assert twice.iterations(twice.restore()) == [5, 5]


def test_an_experiment_that_is_replaced_leaves_no_mark(twice):
    twice.restore()
    twice.settings = {"if_exists": "replace"}
    twice.fit()
    twice.settings = {}
    assert twice.iterations(twice.restore()) == [5, 5]
