"""Sweep files of W&B: what they mean here, and what is refused, with its line."""

import math
import re
from collections import Counter

import pytest
from numpy.random import default_rng

from tuner.command.sweeps.space_text import value_of
from tuner.command.sweeps.sweep import Sweep
from tuner.command.sweeps.sweep_file import parsed, plain
from tuner.command.sweeps.sweep_keys import given_by, given_by_file
from tuner.command.sweeps.wandb_sweep import is_wandb_sweep, translated

SWEEP = """\
program: train.py
method: bayes
name: first
metric: {name: val_loss, goal: minimize}
run_cap: 40
parameters:
"""


@pytest.fixture
def translate(tmp_path, monkeypatch):
    """Writes a file into the working directory, and returns it in our own keys."""
    monkeypatch.chdir(tmp_path)

    def translate(text):
        (tmp_path / "sweep.yaml").write_text(text)
        keys = parsed((tmp_path / "sweep.yaml").relative_to(tmp_path))
        assert is_wandb_sweep(keys)
        made, remarks = translated(keys)
        Sweep.of(given_by(made)).trainable()
        return made, remarks

    return translate


@pytest.fixture
def refused(translate):
    def refused(text):
        with pytest.raises(ValueError, match=r"^sweep\.yaml:") as error:
            translate(text)
        return str(error.value)

    return refused


def parameter(text):
    return f"{SWEEP}  x: {{{text}}}\n"


def test_a_usual_sweep(translate):
    made, remarks = translate(
        """\
program: train.py
method: random
name: digits
project: vision
entity: team
description: The first try.
metric:
  name: val_acc
  goal: maximize
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  batch_size: {values: [32, 64]}
  epochs: {value: 10}
  layers: {min: 1, max: 4}
  dropout: {min: 0.0, max: 0.5}
early_terminate: {type: hyperband, min_iter: 3, strict: true}
run_cap: 50
"""
    )
    assert plain(made) == {
        "searcher": "random",
        "command": ["python", "train.py", "--lr={lr}", "--batch_size={batch_size}",
                    "--epochs={epochs}", "--layers={layers}", "--dropout={dropout}"],
        "space": {"lr": "loguniform(1e-05, 0.1)", "batch_size": "choice(32, 64)", "epochs": 10,
                  "layers": "randint(1, 5)", "dropout": "uniform(0.0, 0.5)"},
        "metric": "val_acc",
        "mode": "max",
        "scheduler": {"type": "asha", "grace_period": 3, "max_t": 3 * 3**12,
                      "reduction_factor": 3, "stop_last_trials": False},
        "num_samples": 50,
        "name": "digits",
    }  # fmt: skip
    assert remarks[0] == "project, entity and description have no meaning here."
    assert "asha: at results 3, 9, 27, 81, ... a trial ends" in remarks[1]
    assert "wandb.log alone" in remarks[2]
    assert {key: made.lines[key] for key in ("command", "space", "metric", "scheduler")} == {
        "command": 1, "space": 10, "metric": 7, "scheduler": 16,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("value: adam", "adam"),
        ("value: 'f(x)'", "'f(x)'"),
        ("value: null", None),
        ("value: [1, 2]", "[1, 2]"),
        ("values: [adam, 1, 0.5, true, null]", "choice('adam', 1, 0.5, true, null)"),
        ("values: [[1, 2], [3]]", "choice([1, 2], [3])"),
        ("values: [a, b], probabilities: [0.5, 0.5]", "choice('a', 'b')"),
        ("values: [a, b], probabilities: [0.75, 0.25]", "choice('a', 'a', 'a', 'b')"),
        ("min: 1, max: 8", "randint(1, 9)"),
        ("min: 1, max: 8.0", "uniform(1, 8.0)"),
        ("distribution: int_uniform, min: 1, max: 8", "randint(1, 9)"),
        ("distribution: uniform, min: 1, max: 8", "uniform(1, 8)"),
        ("distribution: q_uniform, min: 0, max: 10, q: 2", "qrandint(0, 10, 2)"),
        ("distribution: q_uniform, min: 0, max: 10", "randint(0, 11)"),
        ("distribution: q_uniform, min: 0.01, max: 1, q: 0.1", "quniform(0.0, 1.0, 0.1)"),
        ("distribution: log_uniform_values, min: 1e-4, max: 1", "loguniform(0.0001, 1)"),
        ("distribution: inv_log_uniform_values, min: 1e-4, max: 1", "loguniform(0.0001, 1)"),
        ("distribution: q_log_uniform_values, min: 16, max: 256, q: 1", "lograndint(16, 257)"),
        ("distribution: q_log_uniform_values, min: 1, max: 256, q: 8", "qlograndint(8, 256, 8)"),
        ("distribution: q_log_uniform_values, min: 0.2, max: 2, q: 0.5",
         "qloguniform(0.5, 2.0, 0.5)"),
        ("distribution: q_log_uniform, min: 3.4657, max: 5.5452, q: 1", "lograndint(32, 257)"),
        ("distribution: normal", "randn(0.0, 1.0)"),
        ("distribution: normal, mu: 3, sigma: 0.5", "randn(3, 0.5)"),
        ("distribution: q_normal, mu: 3, q: 0.5", "qrandn(3, 1.0, 0.5)"),
    ],
)  # fmt: skip
def test_parameters(translate, text, domain):
    made, _ = translate(parameter(text))
    assert plain(made["space"]) == {"x": domain}


@pytest.mark.parametrize(
    ("distribution", "lower", "upper"),
    [("log_uniform", math.exp(-7), math.exp(-2)), ("inv_log_uniform", math.exp(2), math.exp(7))],
)
def test_exponents_are_of_e(translate, distribution, lower, upper):
    made, _ = translate(parameter(f"distribution: {distribution}, min: -7, max: -2"))
    domain = value_of(made["space"]["x"])
    assert domain.is_log
    assert (domain.lower, domain.upper) == (pytest.approx(lower), pytest.approx(upper))


def test_exponents_that_look_like_values_are_remarked(translate):
    _, remarks = translate(parameter("distribution: log_uniform, min: 0.0001, max: 0.1"))
    assert any("exponents of e: it goes from 1 to 1.105; log_uniform_values" in r for r in remarks)


def test_probabilities_are_kept(translate):
    made, remarks = translate(parameter("values: [a, b, c], probabilities: [0.7, 0.2, 0.1]"))
    domain = value_of(made["space"]["x"])
    rng = default_rng(0)
    counts = Counter(domain.sample(rng) for _ in range(500))
    assert counts["a"] > 2 * counts["b"] > counts["c"]
    assert "x: values are listed as often as they are likely." in remarks


def test_nested_parameters(translate):
    made, _ = translate(
        f"{SWEEP}  model:\n    parameters:\n      width: {{values: [64, 128]}}\n"
        "      act: {value: relu}\n"
    )
    assert plain(made["space"]) == {"model": {"width": "choice(64, 128)", "act": "relu"}}
    assert made["command"][2:] == ["--model.width={model.width}", "--model.act={model.act}"]
    assert made["space"]["model"].lines == {"width": 9, "act": 10}


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("values: [1, 2]", "grid_search(1, 2)"),
        ("min: 1, max: 3", "grid_search(1, 2, 3)"),
        ("distribution: q_uniform, min: 0, max: 1, q: 0.25", "grid_search(0.0, 0.25, 0.5, 0.75)"),
        ("value: 3", 3),
    ],
)
def test_grids(translate, text, domain):
    made, _ = translate(parameter(text).replace("bayes", "grid").replace("run_cap: 40\n", ""))
    assert plain(made["space"]) == {"x": domain}
    assert "num_samples" not in made


ARGS = "  lr: {value: 0.1}\n  amp: {values: [true, false]}\n  sgd: {value: true}\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("[python, train.py, --fast, '${args}']",
         ["python", "train.py", "--fast", "--lr=0.1", "--amp=True", "--sgd=True"]),
        ("['${env}', '${interpreter}', '${program}', '${args_no_hyphens}']",
         ["python", "train.py", "lr=0.1", "amp=True", "sgd=True"]),
        ("['${env}', A=1, '${program}', '${args_no_equals}']",
         ["env", "A=1", "train.py", "--lr", "0.1", "--amp", "True", "--sgd", "True"]),
        ("['${program}', '${args_append_hydra}']",
         ["train.py", "+lr=0.1", "+amp=True", "+sgd=True"]),
        ("['${program}', '${args_override_hydra}']",
         ["train.py", "++lr=0.1", "++amp=True", "++sgd=True"]),
        ("['${program}', --x, '${args_json_file}']", ["train.py", "--x", "<json>"]),
        ("['${program}', --x, '${args_no_boolean_flags}']",
         ["train.py", "--x", "--lr=0.1", "--amp", "--sgd"]),
        ("['${program}', 'a{b}', 3, '${args_json_file}']", ["train.py", "a{b}", "3", "<json>"]),
    ],
)  # fmt: skip
def test_macros(translate, command, words):
    made, _ = translate(f"command: {command}\n{SWEEP}{ARGS}")
    sweep = Sweep.of(given_by(made))
    sweep.trainable().check_space(sweep.space)
    amp = sweep.space["amp"].categories[0]
    assert sweep.trainable().words_for({**sweep.space, "amp": amp}) == words


def test_a_flag_that_is_false_is_left_out(translate):
    made, remarks = translate(
        f"command: ['${{program}}', '${{args_no_boolean_flags}}']\n{SWEEP}"
        "  amp: {values: [true, false]}\n  sgd: {value: false}\n  nag: {values: [true, false]}\n"
    )
    assert plain(made["space"]) == {
        "amp": "choice('--amp', null)", "sgd": None, "nag": "choice('--nag', null)",
    }  # fmt: skip
    command = Sweep.of(given_by(made)).trainable()
    assert command.words_for({"amp": "--amp", "sgd": None, "nag": None}) == ["train.py", "--amp"]
    assert "amp: true is written '--amp' here, and false null, also in results." in remarks


def test_the_configuration_as_json(translate):
    made, _ = translate(
        f"command: ['${{program}}', '${{args_json}}']\n{SWEEP}"
        "  lr: {min: 0.1, max: 0.5}\n  opt: {values: [adam, sgd]}\n"
        "  model: {parameters: {width: {value: 64}}}\n"
    )
    words = (
        Sweep.of(given_by(made))
        .trainable()
        .words_for({"lr": 1e-05, "opt": "adam", "model": {"width": 64}})
    )
    assert words == ["train.py", '{"lr": 1e-05, "opt": "adam", "model": {"width": 64}}']


@pytest.mark.parametrize(
    ("terminate", "levels", "told"),
    [
        ("min_iter: 2, eta: 4", (2, 8, 32), "at results 2, 8, 32, 128, ... a trial"),
        ("max_iter: 27, s: 2", (3, 9, 27), "at results 3, 9 a trial"),
        ("max_iter: 27, s: 9", (1, 3, 9, 27), "at results 1, 3, 9 a trial"),
        ("max_iter: 30, s: 2", (3, 9, 27), "at results 3, 9 (W&B: 3, 10) a trial"),
        ("min_iter: 3, max_iter: 27", (3, 9, 27), "at results 3, 9 a trial"),
    ],
)
def test_hyperband_is_asha(translate, terminate, levels, told):
    made, remarks = translate(
        f"{parameter('value: 1')}early_terminate: {{type: hyperband, {terminate}}}\n"
    )
    arguments, _ = Sweep.of(given_by(made)).arguments()
    assert arguments["tune_config"].scheduler.levels[: len(levels)] == levels
    assert any(told in remark for remark in remarks)


def test_a_group_of_hydra_and_options_in_it(translate):
    made, remarks = translate(
        f"command: ['${{program}}', '${{args_no_hyphens}}']\n{SWEEP}"
        "  optimizer: {values: [adam, sgd]}\n  optimizer.lr: {min: 0.1, max: 0.5}\n"
    )
    assert made["command"] == [
        "train.py", "optimizer={optimizer.value}", "optimizer.lr={optimizer.lr}",
    ]  # fmt: skip
    assert Sweep.of(given_by(made)).space["optimizer"].keys() == {"value", "lr"}
    assert "optimizer is optimizer.value in configurations, since others lie in it." in remarks


def test_a_sweep_without_an_end(translate):
    made, remarks = translate(parameter("min: 1, max: 5").replace("run_cap: 40\n", ""))
    assert made["num_samples"] == -1
    assert any("There is no run_cap" in remark for remark in remarks)


def test_names_become_names_of_directories(translate):
    made, remarks = translate(parameter("value: 1").replace("name: first", "name: 'a: b/c'"))
    assert made["name"] == "a-b-c"
    assert any("'a: b/c' becomes 'a-b-c'" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("script", "report", "told"),
    [
        ("print(f'val_loss={val_loss:.3f}')", [r"val_loss=(?P<val_loss>\S+)"], "prints in line 1"),
        ("tune.report({'val_loss': 1})", None, ""),
        ("wandb.log({'val_loss': 1})", None, "wandb.log alone"),
        ("print(f'acc={acc}')", None, "wandb.log alone"),
        ("no python", None, "wandb.log alone"),
    ],
)
def test_how_the_program_reports(translate, tmp_path, script, report, told):
    (tmp_path / "train.py").write_text(script)
    made, remarks = translate(parameter("value: 1"))
    assert made.get("report") == report
    assert told in " ".join(remarks)
    assert bool(remarks) is bool(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (parameter("value: 1").replace("run_cap", "run_cpa"), "5: unknown key 'run_cpa'.*run_cap"),
        (f"{parameter('value: 1')}job: a\n", "8: job: jobs of W&B Launch do not run here"),
        (f"{parameter('value: 1')}gpus: 1\n", "8: unknown key 'gpus' of a W&B sweep; .*an option"),
        (parameter("value: 1").replace("bayes", "custom"), "2: method must be one .* 'custom'"),
        (parameter("value: 1").replace("goal: minimize", "target: 0"), "4: metric.target has no"),
        (parameter("value: 1").replace("minimize", "min"), "4: goal must be minimize or maximize"),
        (parameter("vales: [1]"), "7: x: it needs value, values"),
        (parameter("values: [1], max: 3"), "7: x: unknown key 'max' of categorical"),
        (parameter("values: []"), "7: x: values must be a list"),
        (parameter("values: [1, 2], probabilities: [1]"), "7: x: probabilities must be 2 numbers"),
        (parameter("values: [1, 2], probabilities: [0.001, 0.999]"), "7: x: .*multiples of 1/100"),
        (parameter("min: 1"), "7: x: it needs value, values, or min and max"),
        (parameter("min: 3, max: 1"), "7: x: .*randint"),
        (parameter("min: a, max: 1"), "7: x: min must be a number, got 'a'"),
        (parameter("distribution: log_uniform, min: 1, max: 1e9"), "7: x: .*exponents of e"),
        (parameter("distribution: log_normal, mu: 1"), "7: x: .*log_normal has no counterpart"),
        (parameter("distribution: uniforn, min: 0"), "7: x: .*did you mean uniform"),
        (parameter("distribution: uniform, min: 0"), "7: x: uniform needs max"),
        (parameter("distribution: uniform, mim: 0"), "7: x: unknown key 'mim'.*did you mean min"),
        (parameter("distribution: q_uniform, min: 0, max: 1, q: 0"), "7: x: q must be"),
        (f"{SWEEP}  x: 3\n", "7: x must be a mapping, got 3; write value: 3"),
        (parameter("value: 1").replace("program: train.py", "program: 3"), "1: program must be"),
        (f"{parameter('value: 1')}command: python\n", "8: command must be a list of words"),
        (f"{parameter('value: 1')}command: [a, '${{arg}}']\n", r"8: command .*\$\{arg\}.*\{args\}"),
        (f"{parameter('value: 1')}command: [a, b]\n", "8: command must have .*wandb.config"),
        (f"{parameter('value: true')}command: [a, '${{args_json}}']\n", "7: x: .*args_json_file"),
        (f"{parameter('values: [true, 1]')}command: [a, '${{args_no_boolean_flags}}']\n",
         "7: x: .*true and false alone"),
        (f"{parameter('value: true')}command: [a, -b, '${{args_no_boolean_flags}}']\n",
         "8: command .*behind '-b'"),
        (f"{parameter('value: 1')}early_terminate: {{type: median}}\n", "8: .*type: hyperband"),
        (f"{parameter('value: 1')}early_terminate: {{type: hyperband}}\n", "8: .*needs min_iter"),
        (f"{parameter('value: 1')}early_terminate: {{type: hyperband, min_itr: 1}}\n",
         "8: unknown key 'min_itr'.*min_iter"),
        (f"{parameter('value: 1')}early_terminate: {{type: hyperband, min_iter: 1, eta: 1}}\n",
         "8: eta must be a number greater than 1"),
        (f"{parameter('value: 1')}early_terminate: {{type: hyperband, max_iter: 2, s: 1}}\n",
         "8: max_iter must be at least eta=3"),
        (parameter("min: 1, max: 3").replace("bayes", "grid").replace("40", "2"),
         "5: run_cap must be at least 3"),
        (parameter("min: 0.1, max: 3").replace("bayes", "grid"), "7: x: method grid needs values"),
        (parameter("min: 1, max: 99999").replace("bayes", "grid"), "7: x: a grid needs"),
        (parameter("value: 1").replace("metric: {name: val_loss, goal: minimize}\n", ""),
         "2: method needs a metric"),
        (parameter("value: 1").replace("run_cap: 40", "run_cap: 0"), "5: run_cap must be"),
    ],
)  # fmt: skip
def test_refusals_say_where(refused, text, told):
    message = refused(text)
    assert re.search(rf"^sweep\.yaml:{told}", message), message


def test_only_files_of_wandb_are_translated(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("command: train {lr}\nmethod: random\nspace: {lr: uniform(0, 1)}\n")
    assert not is_wandb_sweep(parsed(own))
    with pytest.raises(ValueError, match=r"own\.yaml:2: unknown key 'method'"):
        given_by_file(own)


def test_remarks_reach_whoever_reads_the_file(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(f"project: p\n{parameter('value: 1')}")
    given = given_by_file(file)
    assert given.remarks[0] == "project has no meaning here."
    assert given.values["command"] == ["python", "train.py", "--x={x}"]
    assert given.places["metric"] == f"{file}:5"
