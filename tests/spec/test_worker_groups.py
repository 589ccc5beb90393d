"""Experiments whose trials train in several processes: declaration, requests, simulation."""

import dataclasses

import pytest

import tuner
from schedulers import DistributeResources, Resize, ResourceChangingScheduler
from searchers import BasicVariantGenerator
from tests.cluster.fake_cluster import FakeCluster
from tests.core.conversation import Conversation
from tuner.core.commands import StartWorker
from tuner.core.events import TrialSuggested, WorkerStarted
from tuner.core.worker_records import CheckpointRecord, WorkerGroup
from tuner.driver.control import RequestHandler
from tuner.execution import trainable as trainable_module
from tuner.execution.group_trainable import GroupTrainable
from tuner.journal.records import decode, encode
from tuner.restore.search_adapter import SearchAdapter
from tuner.spec.experiment_spec import make_spec
from tuner.spec.record import fingerprint
from tuner.storage.control_requests import ControlRequest, Verb
from tuner.testing import simulate


class Loop(GroupTrainable):
    """A group trainable; the configuration names how many workers, by default two."""

    def __init__(self, func, share=None, most=None):
        self.func, self.share, self.most = func, share or {"CPU": 1}, most

    def __call__(self, config):
        return self.func(config)

    def group_for(self, config):
        count = config.get("num_workers", 2)
        return WorkerGroup(count, self.share, count, self.most or count)

    @property
    def validator(self):
        return None


class Trainer:
    """Something that has a trainable, and settings of its own."""

    def __init__(self, func, run_config=None, **group):
        self.run_config = run_config
        self._loop = Loop(func, **group)

    def as_trainable(self):
        return self._loop


def curve(config):
    for step in range(1, 4):
        yield {"loss": step / config["num_workers"]}


def spec_of(trainable, **run):
    return make_spec(trainable, None, None, tuner.RunConfig(verbose=0, **run))


def test_a_trainer_is_accepted_in_the_place_of_its_function_and_named_after_it():
    spec = spec_of(Trainer(curve))
    assert (spec.name, spec.trainable.func) == ("curve", curve)
    assert fingerprint(spec.trainable, spec.name)["qualname"] == "curve"


def test_the_settings_of_a_trainer_apply_where_tuner_is_given_none():
    own = tuner.RunConfig(name="own")
    assert make_spec(Trainer(curve, own), None, None, None).run.name == "own"
    assert make_spec(Trainer(curve, own), None, None, tuner.RunConfig(name="x")).run.name == "x"


def test_a_trial_asks_for_all_its_workers_together():
    spec = spec_of(Trainer(curve, share={"CPU": 2, "GPU": 0.5}))
    assert spec.request_for({"num_workers": 3}) == {"cpu": 6.0, "gpu": 1.5}
    assert spec.group_for({"num_workers": 3}) == WorkerGroup(3, {"cpu": 2.0, "gpu": 0.5}, 3, 3)
    spec.connect()
    settings = spec.settings({"cpu": 10.0, "gpu": 2.0})
    assert settings.default_group == WorkerGroup(2, {"cpu": 2.0, "gpu": 0.5}, 2, 2)
    assert settings.default_request == {"cpu": 4.0, "gpu": 1.0}


def test_a_plain_function_has_no_group():
    spec = spec_of(curve)
    assert spec.group_for({}) is None
    spec.connect()
    assert spec.settings({"cpu": 4.0}).default_group is None


def test_workers_that_can_never_fit_are_refused_before_the_start_with_numbers():
    spec = spec_of(Trainer(curve, share={"CPU": 1, "GPU": 1}))
    with pytest.raises(ValueError, match=r"asks for 2 workers with .* enough for one; use fewer"):
        spec.check_resources({"cpu": 8.0, "gpu": 1.0})
    spec.check_resources({"cpu": 8.0, "gpu": 2.0})


def test_a_group_of_variable_size_needs_room_only_for_its_smallest():
    spec = spec_of(Trainer(curve, most=64))
    spec.check_resources({"cpu": 2.0})


@pytest.mark.parametrize(
    ("group", "part"),
    [
        (WorkerGroup(0, {"cpu": 1.0}, 0, 0), "num_workers must be at least 1"),
        (WorkerGroup(3, {"cpu": 1.0}, 1, 2), "between min_workers=1 and max_workers=2, got 3"),
        (WorkerGroup(1, {"gpu": 1.5}, 1, 1), "gpu must be at most 1 or a whole number"),
        (WorkerGroup(1.5, {"cpu": 1.0}, 1, 2), "must be a whole number"),
        (3, "must return a WorkerGroup, got 3"),
    ],
)
def test_an_impossible_group_is_refused(group, part):
    loop = Loop(curve)
    loop.group_for = lambda config: group
    with pytest.raises((TypeError, ValueError), match=part):
        spec_of(loop).group_for({})


def test_several_workers_are_refused_in_one_process():
    with pytest.raises(ValueError, match="got 2 workers; use executor='process'"):
        spec_of(Trainer(curve), executor="inline")
    with pytest.raises(ValueError, match="got 4 workers"):
        spec_of(Trainer(curve, most=4), executor="inline")
    loop = Loop(curve)
    loop.group_for = lambda config: WorkerGroup(config["n"], {"cpu": 1.0}, 1, config["n"])
    spec = spec_of(loop, executor="inline")
    assert spec.group_for({"n": 1}).num_workers == 1
    with pytest.raises(ValueError, match="got 2 workers"):
        spec.group_for({"n": 2})


def test_a_trial_whose_workers_cannot_be_told_fails_alone():
    spec = spec_of(Trainer(curve))
    space = {"num_workers": tuner.grid_search([0, 2])}
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, space, num_samples=1)
    search = SearchAdapter(searcher, space, spec.request_for, spec.group_for)
    first, second = search.ask("t00000"), search.ask("t00001")
    assert "num_workers must be at least 1" in str(first.failure)
    assert isinstance(second, TrialSuggested)
    assert second.group == WorkerGroup(2, {"cpu": 1.0}, 2, 2)


@pytest.mark.parametrize("kind", [Loop, Trainer])
def test_what_changes_single_processes_refuses_a_trainer(kind):
    with pytest.raises(TypeError, match="give the trainer its arguments and resources"):
        tuner.with_resources(kind(curve), {"cpu": 2})
    with pytest.raises(TypeError, match="give the trainer its arguments and resources"):
        tuner.with_parameters(kind(curve), data=[])


def test_a_trainer_is_found_under_the_name_that_it_was_registered_with(monkeypatch):
    monkeypatch.setattr(trainable_module, "_registered", {})
    tuner.register_trainable("mine", Trainer(curve, tuner.RunConfig(name="own")))
    spec = make_spec("mine", None, None, None)
    assert (spec.name, spec.run.name, spec.group_for({}).num_workers) == ("curve", "own", 2)


def test_trials_in_groups_are_simulated_and_share_the_slots():
    simulation = simulate(
        Loop(curve),
        param_space={"num_workers": tuner.grid_search([1, 2, 3, 4])},
        tune_config=tuner.TuneConfig(metric="loss", mode="min"),
        num_slots=4,
        duration_s=1.0,
    )
    assert [trial.group.num_workers for trial in simulation.grid.trials] == [1, 2, 3, 4]
    # 1 and 2 together, then 3, then 4.
    assert simulation.elapsed_s == 9.0


def test_settings_about_lost_machines_are_checked_and_have_their_defaults():
    config = tuner.FailureConfig()
    assert (config.max_preemption_failures, config.controller_failure_limit) == (-1, -1)
    assert (config.preemption_grace_s, config.relax_collectives_on_preemption) == (0.0, False)
    for wrong, part in [
        ({"max_preemption_failures": -2}, "at least 0, or -1 for the default, got -2"),
        ({"controller_failure_limit": -2}, "at least 0, or -1"),
        ({"preemption_grace_s": -1.0}, "at least 0 seconds"),
        ({"relax_collectives_on_preemption": True}, "must be False, got True"),
    ]:
        with pytest.raises(ValueError, match=part):
            dataclasses.replace(config, **wrong)


def test_a_scheduler_that_distributes_resources_resizes_groups_by_whole_workers():
    class Elastic(Loop):
        def group_for(self, config):
            return WorkerGroup(1, {"cpu": 2.0}, 1, 3)

    def train(config):
        for step in range(1, 5 * config["x"]):
            yield {"loss": 1.0 / step}

    simulation = simulate(
        Elastic(train),
        param_space={"x": tuner.grid_search([1, 2])},
        tune_config=tuner.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=ResourceChangingScheduler(None, DistributeResources()),
        ),
        run_config=tuner.RunConfig(resources={"cpu": 8}),
        duration_s=1.0,
    )
    resizes = [
        (each.trial_id, dict(each.resources))
        for each in simulation.decisions
        if isinstance(each, Resize)
    ]
    # First two workers of two CPUs each; all three for the one that is left.
    assert resizes == [("t00000", {"cpu": 4.0}), ("t00001", {"cpu": 4.0}), ("t00001", {"cpu": 6.0})]
    assert [trial.group.num_workers for trial in simulation.grid.trials] == [2, 3]


def test_a_fork_gets_the_workers_of_its_own_configuration():
    spec = spec_of(Trainer(curve))
    space = {"num_workers": tuner.grid_search([1])}
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, space, num_samples=1)
    search = SearchAdapter(searcher, space, spec.request_for, spec.group_for)
    conversation = Conversation(capacity={"cpu": 4.0}, max_trials=1)
    conversation.say()
    conversation.say(search.ask("t00000"))
    conversation.say(WorkerStarted("t00000", 1, pid=1))
    conversation.report("t00000", 1, CheckpointRecord(0, 1))
    fork = RequestHandler(conversation.experiment, search, [])._fork(
        ControlRequest(Verb.FORK, "t00000", {"num_workers": 3})
    )
    assert (fork.group, fork.resources) == (WorkerGroup(3, {"cpu": 1.0}, 3, 3), {"cpu": 3.0})
    assert decode(encode(fork, 1.0))[0] == fork
    (start,) = [each for each in conversation.say(fork) if isinstance(each, StartWorker)]
    assert (start.trial_id, start.group.num_workers) == (fork.trial_id, 3)


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_a_group_in_an_object_store_is_placed_as_it_asks_to_be(monkeypatch, strategy):
    group = WorkerGroup(2, {"cpu": 1.0}, 2, 2, strategy=strategy)
    monkeypatch.setattr(Loop, "group_for", lambda self, config: group)
    with FakeCluster({"a": {"cpu": 2}}) as cluster:
        spec = spec_of(Loop(curve), cluster=cluster, storage_path="s3://bucket/dir")
        assert spec.usual_group.strategy == strategy
