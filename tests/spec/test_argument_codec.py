"""Arguments are constructed again from JSON or absent, and no file chooses which code runs."""

import datetime as dt
import importlib.util
import inspect
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schedulers
import searchers
import tuner as tune
from searchers import space
from searchers.recorded_arguments import Declared
from tuner import stopper as stoppers
from tuner.core import stoppers as core_stoppers
from tuner.core.stoppers import MetricThresholdStopper
from tuner.spec.argument_codec import (
    Absent,
    constructed,
    constructed_config,
    differences,
    known_class,
    note,
    shown,
)
from tuner.storage import strict_json

EXAMPLES = [
    schedulers.FIFOScheduler(),
    schedulers.ASHAScheduler(
        "time_total_s",
        max_t=18.5,
        grace_period=2,
        reduction_factor=3,
        brackets=2,
        stop_last_trials=False,
    ),
    schedulers.PASHAScheduler(max_t=27, reduction_factor=3),
    schedulers.MOASHAScheduler(["loss", "size"], ["min", "min"], max_t=9),
    schedulers.HyperBandScheduler(max_t=27),
    schedulers.MedianStoppingRule("training_iteration", grace_period=3, hard_stop=False),
    schedulers.PopulationBasedTraining(
        perturbation_interval=5,
        hyperparam_mutations={
            "lr": tune.loguniform(1e-4, 1e-1),
            "layers": [1, 2, 3],
            "deep": {"x": tune.uniform(0, 1)},
        },
    ),
    schedulers.MFPopulationBasedTraining(
        perturbation_interval=5, hyperparam_mutations={"lr": tune.uniform(0, 1)}, frequencies=(1, 5)
    ),
    schedulers.PB2(perturbation_interval=5, hyperparam_bounds={"lr": [1e-4, 1e-1]}),
    schedulers.PopulationBasedTrainingReplay(
        [["0_lr=0.1", "1_lr=0.2", 4, 3, {"lr": 0.2}, {"lr": 0.3}]]
    ),
    schedulers.DistributeResources(increase_by={"cpu": 1.0}),
    schedulers.DistributeResourcesToTopJob(metric="loss", mode="min"),
    schedulers.ResourceChangingScheduler(
        schedulers.ASHAScheduler(max_t=9), schedulers.DistributeResources()
    ),
    searchers.BasicVariantGenerator(
        [{"x": 0.5}, {"a/b": (1, 2)}], max_concurrent=3, constant_grid_search=True, random_state=7
    ),
    searchers.OptunaSearch(
        metric="loss", mode="min", points_to_evaluate=[{"x": 0.5}], seed=3, study_name="s"
    ),
    searchers.OptunaSearch({"x": tune.uniform(0, 1)}),
    searchers.ConcurrencyLimiter(searchers.OptunaSearch(seed=1), 2, batch=True),
    stoppers.NoopStopper(),
    stoppers.MaximumIterationStopper(5),
    stoppers.TimeoutStopper(dt.timedelta(minutes=2)),
    stoppers.TrialPlateauStopper("loss", 0.1, num_results=3, metric_threshold=0.5, mode="min"),
    stoppers.ExperimentPlateauStopper("loss", top=3, mode="max"),
    MetricThresholdStopper({"loss": "<= 0.1", "training_iteration": 3}),
    stoppers.CombinedStopper(
        stoppers.MaximumIterationStopper(max_iter=5),
        stoppers.CombinedStopper(),
        stoppers.NoopStopper(),
    ),
    tune.choice(["a", 1, None, (2, 3.5), {"deep": [True]}], ordered=True),
    tune.quniform(0, 1, 0.25),
    tune.qlograndint(8, 64, 8),
    tune.qrandn(1.0, 2.0, 0.5),
    tune.choice(
        [{"name": "sgd", "momentum": tune.uniform(0, 1)}, {"name": "adam"}, "none"],
        ordered=True,
        prior="none",
    ),
    tune.only_if(
        {"opt": "sgd", "depth": [2, 3]},
        {"lr": tune.loguniform(1e-4, 1, prior=0.01, prior_confidence="high"), "epochs": 5},
    ),
    tune.only_if({"kinds": {"b", "a"}}, tune.choice(["x", "y"], prior="x")),
    tune.Secret("HUB_API_KEY"),
    tune.CheckpointConfig(
        num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
    ),
    tune.FailureConfig(max_failures=-1, report_timeout_s=5.0),
    tune.TuneConfig(metric="loss", mode="min", num_samples=-1, time_budget_s=dt.timedelta(hours=1)),
    tune.RunConfig(stop={"loss": "<= 0.1"}, resources={"cpu": 2}, verbose=0, executor="inline"),
    searchers.TreeSearch(
        "loss", "min", [{"x": 0.5}], [0.1], n_initial_points=5, random_fraction=0.2, seed=3
    ),
    searchers.AutoSearch("loss", "min", n_initial_points=5, seed=3),
    searchers.GPSearch(metric="loss", mode="min", random_fraction=0.1),
    searchers.BOHBSearch(metric="loss", mode="min", time_attr="epoch"),
    searchers.CQRSearch(metric="loss", mode="min", n_initial_points=4),
    searchers.DuplicateGuard(searchers.BasicVariantGenerator(), "reuse", max_tries=5),
    searchers.Repeater(searchers.OptunaSearch(seed=1), repeat=3, set_index=False),
    schedulers.PatientPopulationBasedTraining(40, {"lr": tune.loguniform(1e-4, 1e-1)}),
    tune.TuneConfig(metric="loss", mode="min", stop_search=tune.StopSearch(patience=30)),
    tune.StopSearch(min_delta=0.1, min_trials=60),
    tune.Space({"low": tune.uniform(0, 1), "high": 0.9}, where="low < high"),
]
"""One object at least of each class that is constructed anew."""
FROM_LIBRARIES = {
    "HyperOptSearch": lambda: searchers.HyperOptSearch(
        {"x": tune.uniform(0, 1)}, "loss", "min", n_initial_points=5, gamma=0.5
    ),
    "BayesOptSearch": lambda: searchers.BayesOptSearch(
        metric="loss", mode="min", utility_kwargs={"kind": "ei", "xi": 0.1}, random_state=3
    ),
    "AxSearch": lambda: searchers.AxSearch(
        metric="loss", mode="min", outcome_constraints=["size <= 3"], method="random_search"
    ),
    "NevergradSearch": lambda: searchers.NevergradSearch(
        "CMA", {"budget": 50}, metric="loss", mode="min", seed=3
    ),
}
"""The same for classes whose libraries take seconds to import."""
NOT_TRIED = "FunctionStopper"
"""A class whose objects always hold what JSON cannot."""


def again(value):
    """Return the arguments as read back from a file, where all must be present."""
    absent = []
    back = constructed(strict_json.loads(strict_json.dumps(note(value))), "it", absent)
    assert not absent
    return back


def known_classes():
    """Return the names of all classes whose objects a file may construct; imports each of them."""
    faces = [schedulers.__all__, searchers.__all__, dir(core_stoppers), tune.__all__, dir(space)]
    return {name for names in faces for name in names if known_class(name)}


def test_every_public_class_has_an_example():
    found = {type(example).__name__ for example in EXAMPLES}
    assert found | FROM_LIBRARIES.keys() | {NOT_TRIED} == known_classes() | {"Space"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_every_public_object_is_constructed_anew_with_the_same_arguments(example):
    back = again(example)
    assert type(back) is type(example)
    assert note(back) == note(example)
    if not isinstance(example, Declared):
        assert back == example


@pytest.mark.heavy
@pytest.mark.parametrize("name", FROM_LIBRARIES)
def test_a_searcher_around_a_library_is_constructed_anew_with_the_same_arguments(name):
    library = {"BayesOptSearch": "bayes_opt"}.get(name, name.removesuffix("Search").lower())
    if not importlib.util.find_spec(library):
        pytest.skip(f"{library} is not installed")
    example = FROM_LIBRARIES[name]()
    back = again(example)
    assert (type(back).__name__, note(back)) == (name, note(example))


def test_a_scheduler_constructed_anew_has_the_same_settings():
    assert again(EXAMPLES[1]).state_dict() == EXAMPLES[1].state_dict()
    assert [
        stopper("t", {"training_iteration": 5})
        for stopper in (again(EXAMPLES[18]), again(EXAMPLES[23]))
    ] == [True, True]


def test_arguments_are_recorded_as_they_were_given():
    scheduler = schedulers.ASHAScheduler(max_t=9)
    scheduler.set_search_properties("loss", "min", seed=3)
    assert note(scheduler) == {"@": "ASHAScheduler", "max_t": 9}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["@", "$float", "grid_search", "absent"]),
            inner,
            max_size=3,
        )
        | st.dictionaries(
            st.integers() | st.tuples(st.text(max_size=2)) | st.booleans(), inner, max_size=2
        )
    ),
    max_leaves=8,
)
DOMAINS = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(
        lambda pair: tune.uniform(pair[0], pair[0] + pair[1])
    ),
    st.integers(-1000, 1000).map(lambda low: tune.randint(low, low + 9)),
    st.lists(
        PLAIN.filter(lambda value: "grid_search" not in repr(value)), min_size=1, max_size=3
    ).map(tune.choice),
)


@pytest.mark.property
@given(
    space=st.dictionaries(
        st.text(max_size=4),
        PLAIN | DOMAINS | st.dictionaries(st.text(max_size=3), DOMAINS, max_size=2),
        max_size=4,
    )
)
def test_a_space_of_plain_values_and_domains_is_constructed_again(space):
    assert repr(again(space)) == repr(space)


def test_non_finite_floats_are_constructed_again():
    assert repr(again({"x": [math.nan, math.inf, -math.inf]})) == "{'x': [nan, inf, -inf]}"


def test_paths_are_constructed_again():
    space = {
        "data": Path("/data/train"),
        "vocabulary": tune.choice([Path("small.txt"), Path("large.txt")]),
    }
    absent = []
    assert constructed(json.loads(json.dumps(note(space))), "param_space", absent) == space
    assert not absent
    assert list(
        differences(note(space), note({**space, "data": Path("/data/all")}), "param_space")
    ) == ["param_space['data']: pathlib.Path('/data/train') -> pathlib.Path('/data/all')"]


def test_numpy_scalars_become_python_numbers():
    assert repr(again({"x": np.float32(0.5), "n": np.int64(3)})) == "{'x': 0.5, 'n': 3}"


class Mine(schedulers.Scheduler):
    def on_trial_result(self, trial, result):
        return ()


class ASHAScheduler(schedulers.Scheduler):
    """Has the name of one of the engine's schedulers."""

    def on_trial_result(self, trial, result):
        return ()


class Secretive:
    def __repr__(self):
        return "password=swordfish"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Mine(), f"{__name__}.Mine"),
        (ASHAScheduler(), f"{__name__}.ASHAScheduler"),
        (len, "builtins.len"),
        (Secretive(), f"{__name__}.Secretive"),
        (np.zeros(3), "numpy.ndarray"),
        (tune.sample_from(lambda: 1), "searchers.space.sample_from.SampleFrom"),
    ],
)
def test_objects_that_only_code_can_construct_are_absent_and_described_by_name(value, what):
    absent = []
    constructed(note({"a": [value]}), "param_space", absent)
    assert absent == [Absent("param_space['a'][0]", what)]


def test_the_place_of_an_absent_value_goes_through_nested_objects():
    import optuna  # noqa: PLC0415  (slow to import)

    limited = searchers.ConcurrencyLimiter(
        searchers.OptunaSearch(sampler=optuna.samplers.RandomSampler()), 2
    )
    absent = []
    assert (
        constructed_config(note(tune.TuneConfig(search_alg=limited)), "tune_config", {}, absent)
        is None
    )
    assert [place.place for place in absent] == ["tune_config.search_alg.searcher.sampler"]


def test_an_address_that_may_hold_a_password_is_neither_recorded_nor_read():
    noted = note(searchers.OptunaSearch(storage="postgresql://me:swordfish@host/db"))
    assert "swordfish" not in strict_json.dumps(noted)
    for planted in (noted, {"@": "OptunaSearch", "storage": "sqlite:////tmp/planted.db"}):
        absent = []
        constructed(planted, "tune_config.search_alg", absent)
        assert [place.place for place in absent] == ["tune_config.search_alg.storage"]


def test_a_replaced_field_need_not_be_constructed():
    noted = note(tune.RunConfig(stop=lambda trial_id, result: True, verbose=0))
    absent = []
    assert constructed_config(noted, "run_config", {"stop": {"loss": 1}}, absent) == tune.RunConfig(
        stop={"loss": 1}, verbose=0
    )
    assert not absent


PLANTED = [
    {"@": "os.system", "command": "touch x"},
    {"@": "os.system"},
    {"@": "subprocess.Popen", "args": ["true"]},
    {"@": "antigravity.fly"},
    {"@": "__import__", "name": "antigravity"},
    {"@": "Tuner", "trainable": "antigravity"},
    {"@": "Scheduler"},
    {"@": "SampleFrom", "function": "antigravity.fly"},
    {"@": "FunctionStopper", "function": "os.system"},
    {"@": "ASHAScheduler", "self": 1},
    {"@": "ASHAScheduler", "__class__": "os.system"},
    {"@": "ASHAScheduler", "max_t": "__import__('os')"},
    {"@": "Categorical", "categories": {"@": "eval", "items": ["1"]}},
    {"@": ["list"]},
    {"@": {"a": 1}},
    {"@": None},
    {"@": "tuple"},
    {"@": "dict", "items": [1]},
    {"@": "dict", "items": [[{"@": "dict", "items": []}, 1]]},
    {"@": "timedelta", "seconds": 1e300},
    {"@": "absent"},
]


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_names_in_a_file_are_looked_up_and_never_imported_or_called(planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known_classes()
    before = set(sys.modules)
    absent = []
    constructed(planted, "tune_config.scheduler", absent)
    assert absent
    assert all(place.place.startswith("tune_config.scheduler") for place in absent)
    assert set(sys.modules) - before <= set()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "planted",
    [None, [], "os.system", {}, {"@": "os.system"}, {"@": ["TuneConfig"]}, {"@": "FIFOScheduler"}],
)
def test_only_settings_are_constructed_as_settings(planted):
    with pytest.raises(ValueError, match="must be noted as settings"):
        constructed_config(planted, "tune_config", {}, [])


def test_the_place_of_an_experiment_is_never_read_from_its_file():
    noted = {**note(tune.RunConfig()), "name": "elsewhere", "storage_path": "/"}
    config = constructed_config(noted, "run_config", {}, [])
    assert (config.name, config.storage_path) == (None, None)


def test_each_difference_is_listed_once_with_its_place():
    then = note({"lr": tune.uniform(0, 1), "model": {"depth": 3, "width": 8}, "gone": 1})
    now = note({"lr": tune.uniform(0, 2), "model": {"depth": 3, "width": 16}, "new": "x"})
    assert list(differences(then, now, "param_space")) == [
        "param_space['lr']: Float(lower=0.0, upper=1.0) -> Float(lower=0.0, upper=2.0)",
        "param_space['model']['width']: 8 -> 16",
        "param_space['gone']: 1 -> nothing",
        "param_space['new']: nothing -> 'x'",
    ]


def test_a_field_that_an_older_release_lacks_counts_as_its_default():
    now = note(tune.RunConfig(failure_config=tune.FailureConfig(max_failures=2)))
    then = {name: item for name, item in now.items() if name != "if_exists"}
    then["failure_config"] = {
        name: item
        for name, item in now["failure_config"].items()
        if name != "max_identical_failures"
    }
    assert (
        list(differences(then, now, "run_config"))
        == list(differences(now, then, "run_config"))
        == []
    )
    changed = now | {
        "if_exists": "new",
        "failure_config": now["failure_config"] | {"max_identical_failures": 5},
    }
    assert list(differences(then, changed, "run_config")) == [
        "run_config.failure_config.max_identical_failures: 3 -> 5",
        "run_config.if_exists: 'error' -> 'new'",
    ]


def test_differences_of_settings_are_listed_by_field():
    then = note(tune.TuneConfig(num_samples=3))
    now = note(tune.TuneConfig(num_samples=5, scheduler=schedulers.ASHAScheduler(max_t=9)))
    assert list(differences(then, now, "tune_config")) == [
        "tune_config.num_samples: 3 -> 5",
        "tune_config.scheduler: None -> ASHAScheduler(max_t=9)",
    ]
    assert shown(note(tune.choice([1, "a"]))) == "Categorical(categories=(1, 'a'))"


@given(value=PLAIN)
def test_equal_notes_have_no_difference_and_all_notes_can_be_shown(value):
    assert list(differences(note(value), note(value), "x")) == []
    assert isinstance(shown(note(value)), str)


def test_recording_arguments_does_not_change_signatures():
    assert next(iter(inspect.signature(schedulers.ASHAScheduler).parameters)) == "time_attr"
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_t'"):
        schedulers.FIFOScheduler(max_t=3)


def test_differences_of_a_relation_are_listed_beside_those_of_the_space():
    plain = {"low": 1, "high": 3}
    then, now = note(plain), note(tune.Space({**plain, "low": 2}, where="low < high"))
    assert list(differences(then, now, "param_space")) == [
        "param_space['low']: 1 -> 2",
        "param_space.where: None -> 'low < high'",
    ]
    assert list(differences(now, now, "param_space")) == []


def test_a_relation_that_is_a_function_has_to_be_given_again():
    absent = []
    noted = note(tune.Space({"low": 1}, where=len))
    assert isinstance(constructed(noted, "param_space", absent), Absent)
    assert list(map(str, absent)) == ["param_space.where (builtins.len)"]
