"""Experiments on clusters: what is declared, what is recorded, and what cannot be known yet."""

import dataclasses
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, final

import pytest

import tuner as tune
from tests.analysis.clustered import write
from tuner.cluster.cluster import Cluster
from tuner.cluster.link import Liveness
from tuner.core.worker_records import WorkerGroup
from tuner.execution.group_trainable import GroupTrainable
from tuner.restore.arguments import Given, restored_arguments
from tuner.restore.resume_command import recorded_snippet, restore_line
from tuner.restore.search_adapter import SearchAdapter
from tuner.spec import argument_codec
from tuner.spec.experiment_location import location_of
from tuner.spec.experiment_spec import make_spec
from tuner.testing import simulate
from tuner.train import ScalingConfig
from tuner.train.torch import TorchTrainer

CLUSTERS = [tune.RayCluster, functools.partial(tune.DaskCluster, "tcp://10.0.0.1:8786")]


@pytest.mark.parametrize("make", CLUSTERS)
def test_a_lease_decides_on_all_times_and_nodes_may_keep_their_files_elsewhere(make):
    cluster = make(lease_s=40, scratch_dir="/local/scratch")
    liveness = cluster.liveness
    assert (liveness.silent_s, liveness.lease_s, liveness.node_timeout_s) == (20.0, 40.0, 60.0)
    assert cluster.settings()["lease_s"] == 40.0
    assert cluster.node_scratch_dir == "/local/scratch"
    assert make(scratch_dir=Path("/local")).node_scratch_dir == "/local"
    assert make().liveness == Liveness()
    assert not make().node_scratch_dir


@pytest.mark.parametrize("make", CLUSTERS)
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"lease_s": 4.9}, ValueError, "lease_s must be 5 to 60 seconds, got 4.9; after this time"),
        ({"lease_s": 61}, ValueError, "got 61"),
        ({"lease_s": float("nan")}, ValueError, "got nan"),
        ({"lease_s": "20"}, TypeError, "must be a number of seconds, got '20'"),
        ({"scratch_dir": "scratch"}, ValueError, "must be an absolute path, got 'scratch'; it is"),
        ({"scratch_dir": ""}, ValueError, "got ''"),
        ({"scratch_dir": 3}, TypeError, "scratch_dir must be a path or None, got 3"),
    ],
)
def test_a_lease_or_a_directory_that_cannot_be_is_refused(make, arguments, error, says):
    with pytest.raises(error, match=re.escape(says)):
        make(**arguments)


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Blackboards(Cluster):
    """A cluster of a library that every test has."""

    engine: ClassVar[str] = "somewhere:Engine"
    library: ClassVar[str] = "json"

    def settings(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return "some blackboards"


class Rocks(Cluster):
    engine = "somewhere:Engine"
    library = "a_library_that_is_not_there"
    extra = "rocks"

    def settings(self):
        return {}

    def describe(self):
        return "some rocks"


def train(config):
    tune.report({"loss": config["x"]})


def spec_of(trainable=train, *, tune_config=None, **run):
    spec = make_spec(
        trainable,
        {"x": tune.grid_search([1, 2])},
        tune_config,
        tune.RunConfig(**{"cluster": Blackboards(), **run}),
    )
    spec.connect()
    return spec


def test_a_cluster_whose_library_is_missing_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ImportError, match=r'Rocks needs a_library.*pip install "tuner-hpo\[rocks'):
        tune.Tuner(train, run_config=tune.RunConfig(cluster=Rocks(), storage_path=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_only_what_no_machine_could_grant_is_refused_before_there_are_nodes():
    large = tune.with_resources(train, {"cpu": 4096, "gpu": 0.5, "licence": 3})
    spec = spec_of(large)
    spec.check_resources({"cpu": 1.0})
    assert spec.settings({}).default_request == {"cpu": 4096.0, "gpu": 0.5, "licence": 3.0}
    with pytest.raises(ValueError, match="set max_concurrent_trials"):
        spec_of(tune.with_resources(train, {"cpu": 0})).check_resources({})


def test_the_wait_for_nodes_is_a_setting_on_a_cluster_only():
    assert spec_of(node_wait_s=7).settings({}).node_wait_s == 7.0
    assert spec_of().settings({}).node_wait_s == 300.0
    assert spec_of(cluster=None).settings({"cpu": 2.0}).node_wait_s is None


@pytest.mark.parametrize(
    ("max_concurrent", "max_common_failures", "max_pending"),
    [(None, 32, 32), (1000, 32, 32), (4, 8, 16), (1, 5, 16)],
)
def test_defaults_that_count_slots_do_not_need_to_know_the_nodes(
    max_concurrent, max_common_failures, max_pending
):
    spec = spec_of(tune_config=tune.TuneConfig(max_concurrent_trials=max_concurrent))
    settings = spec.settings({})
    assert settings.max_common_failures == max_common_failures
    assert settings.max_pending == max_pending


@pytest.mark.parametrize(("allowed", "max_losses"), [(-1, 5), (0, 1), (9, 10)])
def test_lost_nodes_are_counted_as_the_failure_config_says(allowed, max_losses):
    failures = tune.FailureConfig(max_preemption_failures=allowed)
    assert spec_of(failure_config=failures).settings({}).max_losses == max_losses
    here = spec_of(failure_config=failures, cluster=None)
    assert here.settings({"cpu": 2.0}).max_losses == 5


def test_a_cluster_is_not_recorded_and_the_wait_for_nodes_is():
    noted = argument_codec.note(tune.RunConfig(cluster=Blackboards(), node_wait_s=7))
    assert "cluster" not in noted
    assert noted["node_wait_s"] == 7


@pytest.mark.process
def test_a_restore_may_use_another_cluster_or_none(tmp_path):
    tune.Tuner(
        train,
        param_space={"x": 1},
        run_config=tune.RunConfig(
            name="e", storage_path=tmp_path, executor="inline", resources={"cpu": 1}, verbose=0
        ),
    ).fit()
    path = tmp_path / "e"
    record = location_of(path).read_record()
    given = restored_arguments(record, str(path), Given())
    assert given["run_config"].cluster is None
    with pytest.raises(ValueError, match="executor must be 'process' with a cluster"):
        tune.Tuner.restore(path, train, cluster=Blackboards())
    with pytest.raises(ValueError, match=r"and resources=\{\} to Tuner\.restore"):
        tune.Tuner.restore(path, train, cluster=Blackboards(), executor="process")
    restored = tune.Tuner.restore(
        path, train, cluster=Blackboards(), executor="process", resources={}, node_wait_s=9
    )
    assert restored._spec.run.cluster == Blackboards()
    assert restored._spec.run.node_wait_s == 9


def test_groups_of_workers_pass_where_no_node_is_known():
    class Group(GroupTrainable):
        __name__ = "group"

        def __call__(self, config):
            pass

        @property
        def validator(self):
            return None

        def group_for(self, config):
            return WorkerGroup(64, {"gpu": 1.0}, 64, 64, "STRICT_SPREAD")

    assert spec_of(Group()).settings({}).default_group.num_workers == 64


def test_an_experiment_on_a_cluster_is_simulated_on_one_machine():
    def losses(config):
        yield {"loss": config["x"]}

    simulation = simulate(
        losses,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(cluster=Blackboards(), node_wait_s=0),
        duration_s=1.0,
    )
    assert [result.metrics["loss"] for result in simulation.grid] == [1, 2]


@pytest.mark.process
def test_clusters_are_declared_without_importing_their_libraries():
    lines = [
        "import sys, tuner",
        "tuner.RunConfig(cluster=tuner.RayCluster())",
        "tuner.RunConfig(cluster=tuner.DaskCluster('tcp://10.0.0.1:8786'))",
        "assert {'ray', 'dask', 'distributed'}.isdisjoint(sys.modules)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_the_line_that_continues_an_experiment_asks_for_its_cluster(tmp_path):
    spec = spec_of(storage_path=tmp_path, name="e")
    line = restore_line(tmp_path / "e", spec)
    assert line == f"Tuner.restore({str(tmp_path / 'e')!r}, train, cluster=cluster).fit()"
    _, lacking = recorded_snippet(write(tmp_path / "e"))
    assert any("add cluster=tune.RayCluster(...)" in line for line in lacking)


A100 = {"accelerator": "A100"}


@pytest.mark.parametrize("labels", [A100, lambda config: A100])
def test_labels_are_refused_without_a_cluster(labels):
    labelled = tune.with_resources(train, {"cpu": 1}, labels=labels)
    with pytest.raises(
        ValueError, match=r"labels need RunConfig\(cluster=...\), got .*leave labels"
    ):
        spec_of(labelled, cluster=None)
    spec = spec_of(labelled)
    assert spec.labels_for({"x": 1}) == A100
    assert spec.settings({}).default_labels == A100
    alone = dataclasses.replace(spec, run=tune.RunConfig())  # as a restore without a cluster
    with pytest.raises(ValueError, match="labels need"):
        alone.check_resources({"cpu": 4.0})


def test_no_labels_are_no_request_for_labels():
    spec = spec_of(tune.with_resources(train, {"cpu": 1}, labels={}), cluster=None)
    assert "default_labels" not in spec.settings({"cpu": 1.0}).as_fields()


def test_suggestions_carry_the_labels_of_their_configurations():
    labelled = tune.with_resources(train, {"cpu": 1}, lambda config: {"zone": f"z{config['x']}"})
    spec = spec_of(labelled)
    adapter = SearchAdapter(
        spec.searcher, spec.space, spec.request_for, spec.group_for, spec.labels_for
    )
    assert [adapter.ask(f"t0000{number}").labels["zone"] for number in range(2)] == ["z1", "z2"]
    assert spec.settings({}).default_labels == {}


def workers_of(scaling, cluster=None):
    trainer = TorchTrainer(lambda: None, scaling_config=scaling)
    return make_spec(trainer, None, None, tune.RunConfig(cluster=cluster)).group_for({})


def test_workers_ask_for_the_labels_of_their_scaling_config_on_a_cluster_alone():
    scaling = ScalingConfig(label_selector=A100, accelerator_type="A100")
    wanted = A100 | {"ray.io/accelerator-type": "A100"}
    assert workers_of(scaling, Blackboards()).labels == wanted
    assert workers_of(scaling).labels == {}
    for_each = ScalingConfig(num_workers=2, label_selector=[A100, A100])
    assert workers_of(for_each, Blackboards()).labels == A100


@pytest.mark.parametrize(
    ("selector", "error"),
    [([A100, {}], ValueError), ({"accelerator": 1}, TypeError), (["A100"], TypeError)],
)
def test_a_label_selector_has_labels_which_are_the_same_for_all_workers(selector, error):
    with pytest.raises(error, match=r"label_selector must be the same|labels must be a dictionary"):
        ScalingConfig(num_workers=2, label_selector=selector)


def test_trials_are_given_the_declared_time_to_leave_only_where_there_are_nodes_to_leave():
    config = tune.FailureConfig(preemption_grace_s=20)
    assert spec_of(failure_config=config).settings({}).preemption_grace_s == 20.0
    assert spec_of().settings({}).preemption_grace_s == 0.0
    alone = spec_of(failure_config=config, cluster=None).settings({"cpu": 1.0})
    assert alone.preemption_grace_s is None
