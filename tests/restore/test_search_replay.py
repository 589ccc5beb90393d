"""A searcher gets the same calls in a replay, pauses included, in the same order."""

import pytest

import tuner as tune
from searchers import BasicVariantGenerator, Searcher
from tests.restore.others import OTHERS, Learner
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import stopper_from
from tuner.restore.experiment import restore_experiment
from tuner.restore.search_adapter import SearchAdapter
from tuner.restore.snapshot_state import ExperimentState
from tuner.spec.experiment_spec import derived_seed
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.process


class Listens(Searcher):
    """Proposes at random and records its calls."""

    def __init__(self):
        self.calls = []
        self.random = BasicVariantGenerator()

    def set_search_properties(self, metric, mode, config, **spec):
        return self.random.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        self.calls.append(("asked", trial_id))
        return self.random.suggest(trial_id)

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id, result["training_iteration"]))

    def on_trial_pause(self, trial_id, result=None):
        self.calls.append(("pause", trial_id, result["training_iteration"]))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append(("complete", trial_id, error, stopped))


def test_a_journal_tells_a_searcher_what_it_has_heard(tmp_path):
    searcher = Listens()
    space = {"x": tune.uniform(0.0, 1.0), "layers": tune.choice([1, 2, 3])}
    tune_config = tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=8,
        seed=3,
        scheduler=OTHERS["promotion"](),
        search_alg=searcher,
    )
    run_config = tune.RunConfig(
        name="e", storage_path=tmp_path, executor="inline", verbose=0, resources={"cpu": 3}
    )
    tune.Tuner(Learner, param_space=space, tune_config=tune_config, run_config=run_config).fit()
    pauses = [
        (trial_id, iteration)
        for kind, trial_id, iteration in (each[:3] for each in searcher.calls if each[0] == "pause")
    ]
    assert len(pauses) > 3
    assert len({trial_id for trial_id, _ in pauses}) < len(pauses), (
        "a trial that advances is paused again"
    )

    directory, again = tmp_path / "e", Listens()
    declaration = read_declaration(directory)
    again.set_search_properties(
        "loss", "min", space, seed=derived_seed(declaration["seed"], "searcher"), num_samples=8
    )
    search_adapter = SearchAdapter(again, space, lambda config: {"cpu": 1.0})
    scheduler = OTHERS["promotion"]()
    scheduler.set_search_properties("loss", "min", seed=0)
    experiment = Experiment(
        ExperimentSettings.from_fields(declaration["settings"]), scheduler, stopper_from(None)
    )
    configs = ConfigCodec(space, ArrayStore(directory))
    restore_experiment(directory, ExperimentState(experiment, search_adapter, configs))
    assert search_adapter.excluded == {}
    assert again.calls == searcher.calls
