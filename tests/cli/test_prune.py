"""``tuner prune``: deleted and kept checkpoints, and their record for later commands."""

import json
import warnings
from pathlib import Path

import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from tuner.journal.reader import read
from tuner.storage.lock import ExperimentLock


def checkpoints_of(experiment):
    """Return the indices of the checkpoints on the disk, by trial."""
    found = {}
    for path in sorted(experiment.glob("t*/checkpoint_*")):
        found.setdefault(path.parent.name, []).append(int(path.name[-6:]))
    return found


def restored(experiment, train, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tune.Tuner.restore(experiment, train, verbose=0, **more)


def test_without_yes_nothing_is_deleted_and_the_room_is_told(call, plain):
    before = checkpoints_of(plain)
    records = {
        record["what"]: record
        for record in json.loads(call("prune", "plain", "--keep-best", "1", "-f", "json").stdout)
    }
    assert (records["checkpoints kept"]["number"], records["checkpoints superseded"]["number"]) == (
        1,
        11,
    )
    assert records["all"]["size_bytes"] == sum(
        record["size_bytes"] for what, record in records.items() if what != "all"
    )
    assert "--yes deletes" in call("prune", "plain", "--dry-run").stdout
    assert checkpoints_of(plain) == before


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        # Losses fall to the third result and rise again, the second is as good as the third, and
        # the second trial is the best.
        ([], {"t00000": [2, 3], "t00001": [2, 3], "t00002": [2, 3]}),
        (["--keep-last"], {"t00000": [3], "t00001": [3], "t00002": [3]}),
        (["--keep-best", "1"], {"t00001": [2]}),
        (["--keep-best", "2"], {"t00000": [2], "t00001": [2]}),
        (["--keep-best", "0"], {}),
        (["--keep-best", "1", "--keep-last"], {"t00000": [3], "t00001": [2, 3], "t00002": [3]}),
    ],
)
def test_what_no_rule_names_goes(call, plain, options, kept):
    call("prune", "plain", *options, "--yes")
    assert checkpoints_of(plain) == kept
    call("doctor", "plain", "--deep")


def test_what_a_failed_trial_may_be_tried_again_from_stays(call, odd):
    call("prune", "odd", "--keep-best", "0", "--yes")
    assert checkpoints_of(odd) == {"t00001": [1]}


@pytest.mark.process
def test_what_an_unfinished_trial_goes_on_from_stays(call, make, storage, monkeypatch):
    path = make.run(storage, "short", time_limit_s=None)
    leave_unfinished(path, monkeypatch)
    call("prune", "short", "--keep-best", "0", "--yes")
    assert checkpoints_of(path) == {"t00002": [1]}
    grid = restored(path, make.train).fit()
    assert [result.metrics["training_iteration"] for result in grid] == [4, 4, 4]


def leave_unfinished(experiment, monkeypatch):
    """Cut the journal after the second report of the third trial, as if the power had failed."""
    monkeypatch.setattr("tuner.journal.mark.boot_id", lambda: "after a power cut")
    for snapshot in (experiment / "snapshot").iterdir():
        snapshot.unlink()
    (segment,) = (experiment / "journal").glob("*.log")
    lines = segment.read_bytes().splitlines(keepends=True)
    second = [number for number, line in enumerate(lines) if b'"k":"result","id":"t00002"' in line][
        1
    ]
    segment.write_bytes(b"".join(lines[: second + 1]))


def test_a_restored_experiment_knows_what_is_gone(call, plain, make):
    before = restored(plain, make.train).get_results()
    call("prune", "plain", "--keep-best", "1", "--yes")
    grid = restored(plain, make.train).get_results()
    assert [result.checkpoint and result.checkpoint.path for result in grid] == [
        None,
        str(plain / "t00001" / "checkpoint_000002"),
        None,
    ]
    assert grid[0].best_checkpoints == []
    assert [result.metrics for result in grid] == [result.metrics for result in before]
    assert grid.get_best_result().config == before.get_best_result().config
    assert grid.get_dataframe().equals(before.get_dataframe())


@pytest.mark.process
def test_a_pruned_experiment_goes_on_with_more_trials(call, plain, make):
    call("prune", "plain", "--keep-best", "1", "--yes")
    grid = restored(plain, make.train, num_samples=2).fit()
    assert [result.status for result in grid] == ["TERMINATED"] * 6
    assert checkpoints_of(plain)["t00001"] == [2]
    assert checkpoints_of(plain)["t00005"] == [0, 1, 2, 3]
    assert (
        "has lost checkpoint 0: deleted by tuner prune on" in call("explain", "plain", "1").stdout
    )


def test_every_checkpoint_that_goes_is_in_the_journal_before_and_its_end_is_marked(call, plain):
    before = checkpoints_of(plain)
    call("prune", "plain", "--keep-last", "--yes")
    *_, end = records = list(read(plain))
    lost = [
        (record["id"], record["index"]) for record in records if record["k"] == "checkpoint_lost"
    ]
    assert lost == [(trial, index) for trial, indices in before.items() for index in indices[:-1]]
    assert end["k"] == "close"
    assert records[-1]["t"] >= records[0]["t"]


def test_leftovers_go_and_what_is_the_users_stays(call, plain):
    (plain / "t00000" / ".tmp-000009-1-abcd").mkdir()
    (plain / "t00000" / "notes.txt").write_text("mine")
    (plain / "journal" / ".tmp-half").write_text("half")
    call("doctor", "plain", code=1)
    call("prune", "plain", "--yes")
    assert not list(plain.rglob(".tmp-*"))
    assert (plain / "t00000" / "notes.txt").read_text() == "mine"
    call("doctor", "plain")


def test_nothing_is_deleted_while_a_driver_runs(call, plain):
    before = checkpoints_of(plain)
    with ExperimentLock(plain):
        assert "is driven by process" in call("prune", "plain", "--yes", code=3).stderr
        call("prune", "plain")
    assert checkpoints_of(plain) == before


@pytest.mark.process
def test_the_best_of_an_experiment_without_a_metric_cannot_be_kept(call, make, storage):
    path = make.run(storage, "aimless", metric=None)
    assert (
        "does not say what is optimised"
        in call("prune", "aimless", "--keep-best", "1", "--yes", code=2).stderr
    )
    call("prune", "aimless", "--yes")
    assert set(map(tuple, checkpoints_of(path).values())) == {(3,)}


def test_pruning_twice_finds_nothing_more(call, plain):
    call("prune", "plain", "--yes")
    before = checkpoints_of(plain)
    assert "deleted 0" in call("prune", "plain", "--yes").stdout
    assert checkpoints_of(plain) == before


def test_one_that_is_interrupted_half_way_is_finished_by_the_next(call, plain, make, monkeypatch):
    def refuse(path):
        raise OSError(5, "the disk refuses")

    with monkeypatch.context() as broken:
        broken.setattr("tuner.storage.checkpoint_directories.delete", refuse)
        done = call("prune", "plain", "--keep-last", "--yes", code=3)
    assert done.stderr.count("could not be deleted") == 9
    assert checkpoints_of(plain)["t00000"] == [0, 1, 2, 3]
    assert [
        result.checkpoint.path[-6:] for result in restored(plain, make.train).get_results()
    ] == ["000003"] * 3
    assert "unrecorded" in call("doctor", "plain", code=1).stdout
    assert "deleted 9" in call("prune", "plain", "--keep-last", "--yes").stdout
    assert set(map(tuple, checkpoints_of(plain).values())) == {(3,)}


def test_nothing_is_deleted_that_could_not_be_written_down(call, plain, monkeypatch):
    before = checkpoints_of(plain)

    def refuse(segment, data):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as full:
        full.setattr("tuner.journal.segments.Segment.write", refuse)
        assert "no space left" in call("prune", "plain", "--keep-last", "--yes", code=3).stderr
    assert checkpoints_of(plain) == before
    call("doctor", "plain", "--deep")


@pytest.mark.process
def test_a_checkpoint_that_another_trial_is_to_go_on_from_stays(call, make, storage, monkeypatch):
    class Member(tune.Trainable):
        def setup(self, config):
            self.x = 0.0

        def step(self):
            self.x += self.config["lr"]
            return {"loss": -self.x}

        def save_checkpoint(self, directory):
            Path(directory, "x").write_text(str(self.x))

        def load_checkpoint(self, directory):
            self.x = float(Path(directory, "x").read_text())

    tune.Tuner(
        Member,
        param_space={"lr": tune.grid_search([0.1, 0.2, 0.7, 0.9])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            seed=1,
            scheduler=PopulationBasedTraining(
                "training_iteration",
                perturbation_interval=2,
                hyperparam_mutations={"lr": tune.uniform(0, 1)},
            ),
        ),
        run_config=tune.RunConfig(
            name="clones",
            storage_path=storage,
            stop={"training_iteration": 8},
            verbose=0,
            executor="inline",
            resources={"cpu": 4},
        ),
    ).fit()
    exploit = b'"k":"exploit"'
    (segment,) = (storage / "clones" / "journal").glob("*.log")
    lines = segment.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if exploit in line)
    # The power failed when the decision stood there and nothing else.
    segment.write_bytes(b"".join(lines[: first + 1]))
    monkeypatch.setattr("tuner.journal.mark.boot_id", lambda: "after a power cut")
    for snapshot in (storage / "clones" / "snapshot").iterdir():
        snapshot.unlink()
    call("prune", "clones", "--keep-best", "0", "--yes")
    call("doctor", "clones", "--deep")
    grid = restored(storage / "clones", Member).fit()
    assert [result.metrics["training_iteration"] for result in grid] == [8, 8, 8, 8]
    assert any(trial.grafts for trial in grid.trials)
    assert not any(
        "has lost" in line and "deleted by" not in line
        for line in call("explain", "clones", "0").stdout.splitlines()
    )
