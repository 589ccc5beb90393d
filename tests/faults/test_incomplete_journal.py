"""A journal without its end is detected by other files of the directory, and nothing starts over.

The journal alone verifies, since it is shorter but whole.
"""

import re
import shutil
from pathlib import Path

import pytest

import tuner as tune
from tuner.core.trial import Trial
from tuner.driver import run
from tuner.driver.driver import Driver
from tuner.errors import DamagedJournal, ExperimentExists
from tuner.journal import completeness
from tuner.journal.completeness import Mark, find_missing_results
from tuner.journal.writer import Journal
from tuner.maintenance.doctor import Level, check
from tuner.maintenance.pruning import KeepRules, prune
from tuner.storage import layout, strict_json
from tuner.storage.checkpoints import Provenance, commit_from
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
        text[completeness.MARK] = {**text[completeness.MARK], **changes}
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
    check_refused(
        twice,
        "no record is there: driver 1 has written to it",
        r"t00000/result\.json is of iteration 3",
    )


@pytest.mark.parametrize("harm", WHOLE)
def test_a_directory_of_an_earlier_release_that_noted_nothing_does_not_start_over_either(
    twice, harm
):
    twice.forget_snapshots()
    (twice.directory / layout.LOCK).unlink()
    twice.declare(epoch=None, boot_id=None)
    harm(twice.segments[0])
    check_refused(twice, r"t00000/result\.json is of iteration 3 \(it does not know the trial\)")


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


def test_rows_and_checkpoints_prove_what_the_end_of_a_segment_has_lost(tmp_path):
    longer = Twice(tmp_path)
    longer.fit(6)
    longer.forget_snapshots()
    cut(longer.segments[0])
    check_refused(longer, r"records 1 to 4 are there: t00000/result\.json is of iteration 6")
    for row in longer.directory.glob("*/result.json"):
        row.unlink()
    check_refused(longer, r"t00000/checkpoint_00000\d is of iteration \d")


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


def test_three_checkpoints_of_a_trial_may_be_ahead_of_the_journal_and_no_more(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    with Journal(tmp_path) as journal:
        journal.append({"t": 0.0, "k": "suggested", "id": "t00000", "config": {}})
        journal.append(
            {
                "t": 1.0,
                "k": "result",
                "id": "t00000",
                "a": 1,
                "m": {"training_iteration": 3},
                "c": {"index": 2},
            }
        )
    (tmp_path / "t00000").mkdir()
    trial = Trial("t00000", {}, {})
    trial.next_checkpoint = 3
    for index, num_lacks in ((2, 0), (3, 0), (5, 0), (6, 1)):
        commit_from(source, tmp_path / "t00000", Provenance("t00000", 1, index, index + 1))
        assert len(find_missing_results(tmp_path, [trial])) == num_lacks


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


def test_what_a_trial_had_done_before_it_began_anew_is_no_contradiction(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append({"t": 0.0, "k": "suggested", "id": "t00000", "config": {}})
        journal.append(
            {
                "t": 1.0,
                "k": "result",
                "id": "t00000",
                "a": 1,
                "m": {"training_iteration": 3},
                "c": {"index": 1},
            }
        )
    (tmp_path / "t00000").mkdir()
    row = tmp_path / "t00000" / layout.RESULTS
    begun_anew = Trial("t00000", {}, {})
    row.write_text('{"training_iteration":3}\n')
    assert find_missing_results(tmp_path, [begun_anew]) == []
    row.write_text('{"training_iteration":4}\n{"torn')
    (lack,) = find_missing_results(tmp_path, [begun_anew])
    assert lack.what == "t00000/result.json is of iteration 4 (3 is the last that it knows)"


@pytest.mark.parametrize("durability", ["group", "process"])
def test_losses_that_a_power_cut_explains_are_logged_and_trained_again(
    tmp_path, durability, caplog
):
    experiment = Twice(tmp_path, durability=durability)
    experiment.fit()
    experiment.forget_snapshots()
    cut(experiment.segments[0])
    experiment.start_the_machine_anew()
    assert tune.Tuner.can_restore(experiment.directory)
    assert experiment.iterations(experiment.restore()) == [5, 5]
    assert (
        f"what durability='{durability}' lets a power cut take is gone: t00000/result.json is "
        "of iteration 3" in caplog.text
    )
    assert not list(experiment.directory.rglob("damaged-*"))


@pytest.mark.parametrize("harm", WHOLE)
def test_a_power_cut_takes_no_segment_that_was_synced_but_any_that_was_not(tmp_path, harm):
    for durability in ("strict", "group", "process"):
        experiment = Twice(tmp_path / durability, durability=durability)
        experiment.fit()
        experiment.forget_snapshots()
        harm(experiment.segments[0])
        experiment.start_the_machine_anew()
        if durability == "process":
            assert experiment.iterations(experiment.restore()) == [5, 5]
        else:
            check_refused(experiment, "driver 1 has written to it")


def test_a_power_cut_takes_no_minutes_of_training_and_nothing_where_reports_wait_for_the_disk():
    for durability, allowed_s in (("strict", -1.0), ("group", 60.0), ("process", float("inf"))):
        mark = Mark(1, 1, "before", durability)
        assert [mark.allows(lost_s, "now") for lost_s in (0.0, 60.0, 61.0, float("inf"))] == [
            lost_s <= allowed_s for lost_s in (0.0, 60.0, 61.0, float("inf"))
        ]
        assert not mark.allows(0.0, "before")


def test_losses_of_a_power_cut_are_settled_before_the_next_driver_records_its_boot_id(
    twice, monkeypatch
):
    twice.forget_snapshots()
    cut(twice.segments[0])
    twice.start_the_machine_anew()

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "run", die)
        patch.setattr(run, "repair_logs", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            twice.restore()
    assert twice.iterations(twice.restore()) == [5, 5]


def test_an_experiment_that_is_replaced_leaves_no_mark(twice):
    twice.restore()
    twice.settings = {"if_exists": "replace"}
    twice.fit()
    twice.settings = {}
    assert twice.iterations(twice.restore()) == [5, 5]
