"""A replay of the journal of a real run restores the same trials and searcher."""

import logging

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter
from tuner.core.events import TurnEnded
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import Trial
from tuner.journal import records
from tuner.journal.writer import Journal
from tuner.restore.experiment import restore_experiment
from tuner.restore.search_adapter import SearchAdapter
from tuner.restore.snapshot_state import ExperimentState
from tuner.spec.experiment_spec import make_spec, with_seed
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.process

SPACE = {
    "start": tune.uniform(0.0, 1.0),
    "length": tune.randint(1, 9),
    "layers": [tune.choice([1, 2]), {"width": tune.choice([8, 16])}],
}


def learn(config):
    for step in range(1, config["length"] + 1):
        if step == 5 and config["start"] > 0.8:
            raise ValueError("too large a start")
        yield {"loss": config["start"] / step, "nested": {"nan": float("nan")}}


class Saving(tune.Trainable):
    def setup(self, config):
        self.loss = config["start"]

    def step(self):
        self.loss /= 2
        return {"loss": self.loss, "done": self.iteration + 1 >= self.config["length"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"loss": self.loss}

    def load_checkpoint(self, checkpoint):
        self.loss = checkpoint["loss"]


def asks_too_much(config):
    """Return a request; some configurations have none."""
    if config["start"] > 0.5:
        raise ValueError("no resources for a large start")
    return {"cpu": 1}


def declared(tmp_path, trainable, **changes):
    settings = {
        "scheduler": ASHAScheduler(max_t=6, reduction_factor=2),
        "search_alg": BasicVariantGenerator(),
        **changes,
    }
    checkpoints = (
        tune.CheckpointConfig(num_to_keep=1, checkpoint_frequency=2)
        if isinstance(trainable, type)
        else None
    )
    return {
        "trainable": trainable,
        "param_space": SPACE,
        "tune_config": tune.TuneConfig(
            metric="loss", mode="min", num_samples=12, seed=5, max_concurrent_trials=3, **settings
        ),
        "run_config": tune.RunConfig(
            name="run",
            storage_path=tmp_path,
            executor="inline",
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=checkpoints,
        ),
    }


def replayed(directory, declaration):
    """Return a new experiment and a new searcher after a replay of the journal."""
    told = read_declaration(directory)
    spec = with_seed(make_spec(**declaration), told["seed"])
    spec.connect()
    experiment = Experiment(
        ExperimentSettings.from_fields(told["settings"]), spec.scheduler, spec.stopper
    )
    search_adapter = SearchAdapter(spec.searcher, spec.space, spec.request_for)
    configs = ConfigCodec(spec.space, ArrayStore(directory))
    restore_experiment(directory, ExperimentState(experiment, search_adapter, configs))
    experiment.check()
    return experiment, spec.searcher


def portrait(trials):
    names = [
        name for name in Trial.__slots__ if name not in {"__weakref__", "summary", "trainable_name"}
    ]
    return [
        {name: repr(getattr(trial, name)) for name in names}
        | {
            name: [repr(getattr(summary, part)) for part in summary.__slots__]
            for name, summary in trial.summary.items()
        }
        for trial in trials
    ]


@pytest.mark.parametrize(
    "trainable",
    [learn, Saving, tune.with_resources(learn, asks_too_much)],
    ids=["function", "class", "resources"],
)
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_a_fresh_experiment_comes_to_stand_where_the_run_ended(tmp_path, trainable, limit, caplog):
    def searcher():
        return (
            BasicVariantGenerator()
            if limit is None
            else ConcurrencyLimiter(BasicVariantGenerator(), limit)
        )

    original = searcher()
    grid = tune.Tuner(**declared(tmp_path, trainable, search_alg=original)).fit()
    caplog.clear()
    experiment, lived_again = replayed(
        tmp_path / "run", declared(tmp_path, trainable, search_alg=searcher())
    )
    assert experiment.is_finished
    assert portrait(experiment.trials) == portrait(grid.trials)
    assert lived_again.state_dict() == original.state_dict()
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == []


def test_the_last_moments_of_a_driver_count_as_running_time(tmp_path):
    experiment = Experiment(
        ExperimentSettings(capacity={"cpu": 1.0}), FIFOScheduler(), NoopStopper()
    )
    with Journal(tmp_path, sync="process") as journal:
        journal.append(records.encode(TurnEnded(), 2.0), records.mark(records.CLOSE, 7.5))
    search_adapter = SearchAdapter(BasicVariantGenerator(), {}, lambda config: {"cpu": 1.0})
    configs = ConfigCodec({}, ArrayStore(tmp_path))
    state = ExperimentState(experiment, search_adapter, configs)
    assert restore_experiment(tmp_path, state).elapsed_s == 7.5
