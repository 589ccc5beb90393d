"""What sweep files declare, and what is refused in them, with file and line."""

import pytest

from searchers.space import loguniform
from tuner.command.sweeps.sweep_keys import given_by_file
from tuner.stopping.stop_search import StopSearch


@pytest.fixture
def declare(write):
    """Writes a file into the working directory and returns what it declares."""
    return lambda *file: given_by_file(write(*file))


def test_a_file_can_say_everything(declare):
    given = declare("""\
command: [python, train.py, --lr, {lr}, "{args}"]
space:
  lr: loguniform(1e-5, 1e-1)
  model: {width: 64}
  model.depth: 2
name: digits
metric: val_loss
mode: min
constraints: {size_mb: <= 4, accuracy: ">= 0.8"}
num_samples: 50
scheduler: {type: asha, reduction_factor: 3}
searcher: random
max_t: 27
points:
  - {lr: 1e-3, model.width: 64}
report: 'loss=(?P<loss>\\S+)'
progress: none
checkpoints: true
env: {OMP_NUM_THREADS: 1, DEBUG: true}
cpus: 2
gpus: 0.5
resources: {licence: 1}
stop: {training_iteration: 27, loss: <= 0.1}
max_concurrent: 4
time_limit: 1h30m
stop_search: {patience: 30, min_delta: 0.01}
trial_time_limit: 600
budget: {gpu_hours: 20, iterations: 5000}
cluster: dask:tcp://10.0.0.1:8786
seed: 0
if_exists: new
""")
    values = given.values
    assert values["command"] == ["python", "train.py", "--lr", "{lr}", "{args}"]
    assert repr(values["space"]) == repr({
        ("lr",): loguniform(1e-5, 1e-1),
        ("model", "width"): 64,
        ("model", "depth"): 2,
    })  # fmt: skip
    assert values["constraints"] == {"size_mb": "<= 4", "accuracy": ">= 0.8"}
    assert values["scheduler"] == {"type": "asha", "reduction_factor": 3}
    assert values["searcher"] == {"type": "random"}
    assert values["points"] == [{"lr": 0.001, "model": {"width": 64}}]
    assert values["report"] == [r"loss=(?P<loss>\S+)"]
    assert values["progress"] is None
    assert values["env"] == {"OMP_NUM_THREADS": "1", "DEBUG": "true"}
    assert values["stop"] == {"training_iteration": 27, "loss": "<= 0.1"}
    assert (values["time_limit"], values["trial_time_limit"]) == (5400, 600)
    assert values["stop_search"] == StopSearch(patience=30, min_delta=0.01)
    assert values["budget"] == {"gpu_hours": 20, "iterations": 5000}
    assert values["cluster"].describe() == "the Dask cluster at tcp://10.0.0.1:8786"
    assert given.places["metric"] == "sweep.yaml:7"


def test_a_nested_name_may_be_any(declare):
    given = declare("space: {model: {min: 1, max: 2, width: 3}, data: {values: {low: 1}}}")
    assert [*given.values["space"]] == [
        ("model", "min"),
        ("model", "max"),
        ("model", "width"),
        ("data", "values", "low"),
    ]


def test_keys_without_a_value_say_nothing(declare):
    given = declare("name:\nspace:\nprogress:\nseed: null\n")
    assert given.values == {"progress": None}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\n", "sweep.yaml:1: unknown key 'a'; the keys are space, where, command, name, "),
        ("seed: 1\nschedular: asha", "sweep.yaml:2: unknown key 'schedular'; did you mean 'sched"),
        ("parameters: {}", "sweep.yaml:1: unknown key 'parameters'; did you mean 'space'?"),
        ("space: {lr: {min: 0, max: 1}}", "sweep.yaml:1: lr must be a domain such as uniform(MIN"),
        ("space: {lr: {values: [1, 2]}}", "lr must be a domain such as choice(VALUE, ...), got"),
        ("space:\n  lr: 0.1, 0.2", "sweep.yaml:2: lr: '0.1, 0.2' is several values; write choice"),
        ("metric: {name: loss}", "sweep.yaml:1: metric must be a text, got {'name': 'loss'}"),
        ("stop: {loss: ~3}", "sweep.yaml:1: stop loss must be a number (reached by"),
        ("space: [lr]", "sweep.yaml:1: space must be a mapping such as lr: loguniform"),
        ("space:\n  lr: logunifrm(1, 2)", "sweep.yaml:2: lr: 'logunifrm(1, 2)' is no domain; did"),
        ("space:\n  lr: [0.1, 0.2]", "sweep.yaml:2: lr must be a domain or a constant, got the"),
        ("space:\n  a b: 1", "sweep.yaml:2: a b: a parameter's name must have no spaces"),
        ("space:\n  m: {w: 1}\n  m.w: 2", "sweep.yaml:3: m.w is given twice"),
        ("command: []", "sweep.yaml:1: command must be a text such as python train.py"),
        ("command: [a, [b]]", "command must be words, got ['b']"),
        ("name: a/../b", "sweep.yaml:1: name "),
        ("metric: 3", "sweep.yaml:1: metric must be a text, got 3; put it in quotes"),
        ("mode: minimize", "sweep.yaml:1: mode must be 'min' or 'max', or a list"),
        ("num_samples: fifty", "sweep.yaml:1: num_samples must be a whole number, got 'fifty'"),
        ("num_samples: 0", "num_samples must be at least 1, or -1 for endless, got 0"),
        ("scheduler: ahsa", "scheduler must be one of 'fifo', 'asha', "),
        ("scheduler: ahsa", "got 'ahsa'; did you mean 'asha'?"),
        ("scheduler: {max_t: 3}", "scheduler must be the name of a scheduler, or a mapping"),
        ("searcher: optna", "got 'optna'; did you mean 'optuna'?"),
        ("max_t: 0", "max_t must be a number of iterations, got 0"),
        ("points: {lr: 1}", "points must be a list of configurations"),
        ("points: [{lr: 'uniform(0, 1)'}]", "points must have values, got 'uniform(0, 1)'"),
        ("report: 'loss=(.*)'", "sweep.yaml:1: report must have a named group for each metric"),
        ("report: 'loss=(?P<loss'", "sweep.yaml:1: report must be a regular expression, got"),
        ("report: [1]", "report must be a regular expression, or a list of some"),
        ("checkpoints: maybe", "checkpoints must be true or false, got 'maybe'"),
        ("env: [A=1]", "env must be a mapping such as {OMP_NUM_THREADS: 1}"),
        ("env: {A: [1]}", "env A must be a text, got [1]"),
        ("cpus: -1", "cpus must be a number of at least 0, got -1"),
        ("resources: {licence: a}", "resources licence must be a number of at least 0, got 'a'"),
        ("stop: {loss: [1]}", "stop loss must be a number, or a comparison such as '<= 0.1'"),
        ("max_concurrent: -2", "max_concurrent must be at least 1"),
        ("max_failures: many", "max_failures must be a whole number, got 'many'"),
        ("time_limit: soon", "time_limit must be a number of seconds, or a text such as 1h30m"),
        ("time_limit: 0", "time_limit must be a number of seconds, or a text such as 1h30m, got 0"),
        ("stop_search: soon", "stop_search must be auto, never, a number of trials, or a mapping"),
        ("stop_search: {patience: soon}", "stop_search must be auto, never, a number of trials"),
        ("stop_search: 0", "stop_search patience must be a whole number of trials, at least 1"),
        ("stop_search: {wait: 3}", "stop_search mapping got an unexpected keyword argument 'wait'"),
        ("storage: ''", "storage must name a directory"),
        ("cluster: node:1234", "cluster it is not clear whether 'node:1234' is a Ray or a Dask"),
        ("seed: -1", "seed must be a whole number of at least 0, got -1"),
        ("if_exists: overwrite", "if_exists must be one of 'error', 'new', 'replace'"),
    ],
)
def test_what_is_not_accepted_is_refused_with_file_and_line(declare, text, told):
    with pytest.raises(ValueError) as refusal:
        declare(text)
    assert told in str(refusal.value)
    assert str(refusal.value).startswith("sweep.yaml:")
