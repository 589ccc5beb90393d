"""A restore from any snapshot is equal to one from the whole journal, and continues alike."""

import dataclasses
import functools
import json
import logging

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, OptunaSearch
from tests.restore.others import OTHERS, REPLAYED, Learner
from tests.tiers import some_of
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import trial_fields
from tuner.driver.snapshots import Snapshots, fixed_period_s
from tuner.journal import reader
from tuner.journal import snapshot_files as storage
from tuner.restore.experiment import restore_spec
from tuner.restore.snapshot_state import usable_snapshot
from tuner.spec.experiment_spec import make_spec, with_seed
from tuner.storage import strict_json
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.process

SPACE = {"x": tune.uniform(0.0, 1.0), "layers": tune.choice([1, 2, 3])}


def learn(config):
    for step in range(1, 10):
        if config["x"] < 0.2 and step == 4:
            raise RuntimeError("it diverged")
        tune.report(
            {
                "loss": config["x"] + config["layers"] / step,
                "val": {"loss": float("nan") if step == 2 else 1.0 / step},
            }
        )


def plateau(trial_id, result):
    return result["loss"] < 0.4


PARTS = {
    "asha, optuna": (
        lambda: ASHAScheduler(max_t=9, reduction_factor=2),
        OptunaSearch,
        lambda: None,
    ),
    "asha, limited": (
        lambda: ASHAScheduler(max_t=9),
        lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2),
        lambda: plateau,
    ),
    "fifo, random": (
        FIFOScheduler,
        BasicVariantGenerator,
        lambda: tune.stopper.TrialPlateauStopper("loss", num_results=3, std=0.2),
    ),
}


@pytest.fixture(params=PARTS)
def arguments(request, tmp_path):
    """Return a function that returns new arguments for the same experiment."""
    scheduler, searcher, stop = PARTS[request.param]

    def make(num_samples=8):
        tune_config = tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_samples,
            seed=3,
            scheduler=scheduler(),
            search_alg=searcher(),
        )
        failure = tune.FailureConfig(max_failures=1)
        run_config = tune.RunConfig(
            name="e",
            storage_path=tmp_path,
            executor="inline",
            verbose=0,
            durability="process",
            stop=stop(),
            failure_config=failure,
        )
        return {"param_space": SPACE, "tune_config": tune_config, "run_config": run_config}

    return make


def keep_all_snapshots(monkeypatch):
    """Let a snapshot be taken at each chance, however slow the disk is, and each be kept."""
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    monkeypatch.setattr(storage, "NUM_KEPT", 10_000)
    monkeypatch.setattr(Snapshots, "take_if_due", take_once_written)
    monkeypatch.setattr(
        "tuner.driver.snapshots.write_parts", functools.partial(storage.write_parts, sync=False)
    )


_take_if_due = Snapshots.take_if_due


def take_once_written(snapshots, elapsed_s):
    """Wait until the last snapshot is written, so that the next one may be taken."""
    snapshots._writes.wait()
    _take_if_due(snapshots, elapsed_s)


def restored_from(arguments, directory, snapshot, trainable=learn):
    declaration = read_declaration(directory)
    spec = with_seed(
        make_spec(trainable, *arguments().values()), declaration["seed"], declaration["id"]
    )
    spec.connect()
    settings = ExperimentSettings.from_fields(declaration["settings"])
    _, restored = restore_spec(
        spec, directory, settings, snapshot, ConfigCodec(spec.space, ArrayStore(directory))
    )
    return restored


def portrait(restored):
    trials = [trial_fields(trial) for trial in restored.state.experiment.trials]
    paths = [trial.local_path for trial in restored.state.experiment.trials]
    return strict_json.dumps([trials, paths, restored.state.state_dict()], strict_json.opaque)


def test_every_snapshot_leads_to_what_the_whole_journal_leads_to(arguments, tmp_path, monkeypatch):
    keep_all_snapshots(monkeypatch)
    grid = tune.Tuner(learn, **arguments()).fit()
    directory = tmp_path / "e"
    paths = sorted((directory / "snapshot").iterdir())
    assert len(paths) == grid.persistence.num_snapshots > 3
    expected = portrait(restored_from(arguments, directory, None))
    for path in some_of(paths):
        body = strict_json.unseal(path.read_bytes())
        assert (
            portrait(
                restored_from(
                    arguments, directory, storage.Snapshot(body["last_sequence"], body["state"])
                )
            )
            == expected
        )


@pytest.mark.parametrize(
    ("scheduler", "searcher"),
    [*((each, BasicVariantGenerator) for each in OTHERS), ("promotion", OptunaSearch)],
)
def test_behind_every_snapshot_every_scheduler_decides_as_it_did(
    scheduler, searcher, tmp_path, monkeypatch
):
    def arguments():
        num_samples = 1 if scheduler == "replay" else 6
        tune_config = tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_samples,
            seed=3,
            scheduler=OTHERS[scheduler](),
            search_alg=searcher(),
        )
        run_config = tune.RunConfig(
            name="e",
            storage_path=tmp_path,
            executor="inline",
            verbose=0,
            durability="process",
            resources={"cpu": 3},
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        )
        return {
            "param_space": REPLAYED[0][4] if scheduler == "replay" else SPACE,
            "tune_config": tune_config,
            "run_config": run_config,
        }

    keep_all_snapshots(monkeypatch)
    tune.Tuner(Learner, **arguments()).fit()
    directory = tmp_path / "e"
    paths = sorted((directory / "snapshot").iterdir())
    assert len(paths) > 3
    expected = portrait(restored_from(arguments, directory, None, Learner))
    for path in some_of(paths):
        body = strict_json.unseal(path.read_bytes())
        found = restored_from(
            arguments, directory, storage.Snapshot(body["last_sequence"], body["state"]), Learner
        )
        assert found.state.experiment.policies.num_deviations == 0
        assert portrait(found) == expected


def test_an_experiment_goes_on_from_a_snapshot_as_it_would_have(
    arguments, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    tune.Tuner(learn, **arguments()).fit()
    directory = tmp_path / "e"
    monkeypatch.setattr("tuner.driver.snapshots._MIN_RECORDS", 10**9)
    with caplog.at_level(logging.WARNING, "tuner"):
        grid = tune.Tuner.restore(directory, learn, **arguments(num_samples=12)).fit()
    assert not [record for record in caplog.records if "snapshot" in record.message]
    other = arguments(num_samples=12)
    run_config = dataclasses.replace(other["run_config"], name="whole")
    whole = tune.Tuner(learn, **{**other, "run_config": run_config}).fit()
    assert [result.config for result in grid] == [result.config for result in whole]
    assert [str(trial.ending) for trial in grid.trials] == [
        str(trial.ending) for trial in whole.trials
    ]


def test_a_damaged_snapshot_or_one_that_does_not_fit_only_costs_time(arguments, tmp_path, caplog):
    grid = tune.Tuner(learn, **arguments()).fit()
    directory = tmp_path / "e"
    [path] = (directory / "snapshot").iterdir()
    expected = portrait(restored_from(arguments, directory, None))
    snapshot = storage.load_newest(directory)
    snapshot.state["trials"][3]["status"] = "DANCING"
    with caplog.at_level(logging.WARNING, "tuner"):
        assert portrait(restored_from(arguments, directory, snapshot)) == expected
    assert "does not fit" in caplog.text
    path.write_bytes(path.read_bytes().replace(b"TERMINATED", b"TERMINATOR", 1))
    with pytest.warns(RuntimeWarning, match="damaged"):
        again = tune.Tuner.restore(directory, learn, **arguments()).get_results()
    assert repr([result.metrics for result in again]) == repr([result.metrics for result in grid])


def test_a_snapshot_that_has_outlived_its_records_is_discarded_where_nothing_was_synced(
    arguments, tmp_path, monkeypatch
):
    grid = tune.Tuner(learn, **arguments()).fit()
    monkeypatch.setattr("tuner.journal.mark.boot_id", lambda: "after a power cut")
    directory = tmp_path / "e"
    [segment] = (directory / "journal").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[: len(lines) // 2]))
    [stale] = (directory / "snapshot").iterdir()
    again = tune.Tuner.restore(directory, learn, **arguments()).fit()
    assert [result.config for result in again] == [result.config for result in grid]
    assert [result.metrics["training_iteration"] for result in again] == [
        result.metrics["training_iteration"] for result in grid
    ]
    assert not stale.exists() or int(stale.stem) <= sum(1 for _ in reader.read(directory))
    expected = portrait(restored_from(arguments, directory, None))
    assert portrait(restored_from(arguments, directory, storage.load_newest(directory))) == expected


def test_another_scheduler_gets_all_earlier_results(arguments, tmp_path):
    tune.Tuner(learn, **arguments()).fit()
    spec = make_spec(learn, *arguments().values())
    assert usable_snapshot(spec, tmp_path / "e")
    other = ASHAScheduler(max_t=9) if isinstance(spec.scheduler, FIFOScheduler) else FIFOScheduler()
    assert usable_snapshot(dataclasses.replace(spec, scheduler=other), tmp_path / "e") is None


class Forgetful(FIFOScheduler.__base__):
    """A scheduler that cannot return its state."""

    def on_trial_result(self, trial, result):
        return ()


def test_where_a_part_cannot_tell_its_state_there_is_no_snapshot_and_a_restore_all_the_same(
    tmp_path,
):
    def make():
        tune_config = tune.TuneConfig(
            metric="loss", mode="min", num_samples=3, seed=3, scheduler=Forgetful()
        )
        run_config = tune.RunConfig(name="e", storage_path=tmp_path, executor="inline", verbose=0)
        return {"param_space": SPACE, "tune_config": tune_config, "run_config": run_config}

    grid = tune.Tuner(learn, **make()).fit()
    assert grid.persistence.num_snapshots == 0
    assert not (tmp_path / "e" / "snapshot").exists()
    again = tune.Tuner.restore(tmp_path / "e", learn, **make()).get_results()
    assert [result.config for result in again] == [result.config for result in grid]


class Counting(tune.Callback):
    """Counts results, also those of earlier sessions."""

    def __init__(self):
        self.num_results = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.num_results += 1

    def get_state(self):
        return {"num_results": self.num_results}

    def set_state(self, state):
        self.num_results = state["num_results"]


def test_callbacks_get_their_state_back(tmp_path):
    counts = []
    for num_samples in (2, 4):
        counting = Counting()
        tune_config = tune.TuneConfig(metric="loss", mode="min", num_samples=num_samples, seed=3)
        run_config = tune.RunConfig(
            name="e", storage_path=tmp_path, executor="inline", verbose=0, callbacks=[counting]
        )
        arguments = {
            "param_space": {"x": 0.5, "layers": 1},
            "tune_config": tune_config,
            "run_config": run_config,
        }
        begun = (tmp_path / "e").exists()
        tuner = (
            tune.Tuner.restore(tmp_path / "e", learn, **arguments)
            if begun
            else tune.Tuner(learn, **arguments)
        )
        tuner.fit()
        counts.append(counting.num_results)
    assert counts == [18, 36]


@pytest.mark.parametrize(("text", "period_s"), [("auto", None), ("0", 0.0), ("2.5", 2.5)])
def test_the_period_can_be_given(monkeypatch, text, period_s):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", text)
    assert fixed_period_s() == period_s


@pytest.mark.parametrize("text", ["often", "-1", "nan", ""])
def test_a_period_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", text)
    with pytest.raises(
        ValueError, match="TUNE_GLOBAL_CHECKPOINT_S must be 'auto' or a number of seconds"
    ):
        fixed_period_s()


def test_the_snapshot_says_for_people_what_became_of_each_trial(arguments, tmp_path):
    grid = tune.Tuner(learn, **arguments()).fit()
    [path] = (tmp_path / "e" / "snapshot").iterdir()
    trials = json.loads(path.read_text())["body"]["state"]["trials"]
    assert [trial["id"] for trial in trials] == [trial.trial_id for trial in grid.trials]
    assert [trial["status"] for trial in trials] == [str(trial.status) for trial in grid.trials]
    assert [trial["config"] for trial in trials] == [result.config for result in grid]
