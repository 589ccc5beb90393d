"""After a crash of the driver at any record, a restore decides as the driver would have.

The first k records of a finished experiment are folded as in a restore, with decisions read from
the journal; after them the same events happen again, and scheduler, stop criterion and searcher
decide anew. Add a new scheduler or searcher to `SCHEDULERS` or `SEARCHERS`, and a scheduler whose
trials have to save to `OTHERS`, in `others.py`.
"""

import itertools

import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, OptunaSearch
from tests.restore.others import OTHERS, REPLAYED, Learner
from tests.tiers import some_of
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import trial_fields
from tuner.journal import reader, records
from tuner.restore.experiment import restore_experiment
from tuner.restore.search_adapter import SearchAdapter
from tuner.restore.snapshot_state import ExperimentState
from tuner.spec.experiment_spec import make_spec, with_seed
from tuner.storage import strict_json
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.property

SCHEDULERS = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=6, reduction_factor=2),
    "asha, brackets": lambda: ASHAScheduler(max_t=6, reduction_factor=2, brackets=3),
}
EXPECTED = {
    "asha": {"Stop"},
    "moasha": {"Stop"},
    "moasha, promotion": {"Pause", "Resume", "Stop"},
    "median": {"Stop"},
    "promotion": {"Pause", "Resume", "Stop"},
    "hyperband": {"Pause", "Resume", "Stop"},
    "pasha": {"Pause", "Resume", "Stop"},
    "median, pausing": {"Pause", "Resume"},
    "pbt": {"Exploit", "Pause", "Resume"},
    "pbt, generations": {"Exploit", "Pause", "Resume"},
    "patient-pbt": {"Exploit"},
    "mf-pbt": {"Exploit"},
    "pb2": {"Exploit"},
    "replay": {"Save", "Exploit", "Resume"},
    "resizing": {"Resize"},
}
"""What each has to decide at least, so that the test says something."""
CONSTRAINED = {"moasha, promotion", "promotion", "hyperband", "median", "pbt"}
SEARCHERS = {
    "random": BasicVariantGenerator,
    "optuna": OptunaSearch,
    "limited": lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2),
    "grid": BasicVariantGenerator,
}
SPACE = {"x": tune.uniform(0.0, 1.0), "layers": tune.choice([1, 2, 3])}
GRID = {"x": tune.grid_search([0.1, 0.4, 0.9]), "layers": tune.choice([1, 2, 3])}


def learn(config):
    for step in range(1, 7):
        if 0.45 < config["x"] < 0.55 and step == 3:
            raise RuntimeError("it diverged")
        tune.report(
            {"loss": config["x"] + config["layers"] / step, "size": step * config["layers"]}
        )


class Crashing(Experiment):
    """Reads the decisions on the first events, and decides on later ones."""

    num_read = 0

    def __init__(self, *collaborators):
        super().__init__(*collaborators)
        self.num_events = 0
        self.differences = []

    def handle(self, event, at_s, recorded=None):
        self.num_events += 1
        outcome = super().handle(
            event, at_s, recorded if self.num_events <= self.num_read else None
        )
        if repr(tuple(outcome.recorded)) != repr(tuple(recorded)):
            self.differences.append((event, recorded, outcome.recorded))
        return outcome


def fold(spec, directory, num_read):
    experiment = Crashing(
        ExperimentSettings.from_fields(read_declaration(directory)["settings"]),
        spec.scheduler,
        spec.stopper,
    )
    experiment.num_read = num_read
    search_adapter = SearchAdapter(spec.searcher, spec.space, spec.request_for)
    configs = ConfigCodec(spec.space, ArrayStore(directory))
    restore_experiment(directory, ExperimentState(experiment, search_adapter, configs))
    return experiment, search_adapter


CASES = [
    *itertools.product(SCHEDULERS, SEARCHERS),
    *((scheduler, "random") for scheduler in OTHERS),
    ("promotion", "limited"),
    ("promotion", "optuna"),
]


@pytest.mark.parametrize(("scheduler", "searcher"), CASES)
def test_after_a_crash_behind_any_event_everything_is_decided_as_it_was(
    scheduler, searcher, tmp_path
):
    can_save = scheduler in OTHERS
    trainable = Learner if can_save else learn

    def declared():
        made = (OTHERS if can_save else SCHEDULERS)[scheduler]()
        num_samples = 1 if scheduler == "replay" else 6
        tune_config = tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_samples,
            seed=3,
            scheduler=made,
            search_alg=SEARCHERS[searcher](),
            constraints={"size": "<= 9"} if scheduler in CONSTRAINED else None,
        )
        run_config = tune.RunConfig(
            name="e",
            storage_path=tmp_path,
            executor="inline",
            verbose=0,
            durability="process",
            stop={"loss": ">= 30"} if can_save else {"loss": ">= 3.5"},
            resources={"cpu": 3} if can_save else None,
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        )
        space = REPLAYED[0][4] if scheduler == "replay" else GRID if searcher == "grid" else SPACE
        return {"param_space": space, "tune_config": tune_config, "run_config": run_config}

    def spec():
        fresh = with_seed(make_spec(trainable, *declared().values()), 3)
        fresh.connect()
        return fresh

    grid = tune.Tuner(trainable, **declared()).fit()
    directory = tmp_path / "e"
    table = strict_json.dumps([trial_fields(trial) for trial in grid.trials], strict_json.opaque)

    def check(num_read):
        experiment, search_adapter = fold(spec(), directory, num_read)
        assert experiment.differences == []
        assert search_adapter.excluded == {}
        trials = [trial_fields(trial) for trial in experiment.trials]
        assert strict_json.dumps(trials, strict_json.opaque) == table
        return experiment.num_events

    num_events = check(0)
    for num_read in some_of(range(1, num_events)):
        check(num_read)
    assert num_events > (20 if scheduler == "replay" else 60)
    bodies = [body for body in reader.read(directory) if records.is_event(body)]
    assert EXPECTED.get(scheduler, set()) <= {
        type(said.decision).__name__ for body in bodies for said in records.decode(body)[2]
    }
