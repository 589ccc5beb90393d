"""Reruns of one trial alone, and of a script that continues its experiment."""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, PopulationBasedTraining
from tuner.core.trial import TerminationReason
from tuner.maintenance.rerun import prepare_rerun
from tuner.storage import strict_json

SPACE = {"lr": tune.uniform(0.0, 1.0), "layers": tune.choice([[8, 8], [16]])}
GOAL = {"metric": "loss", "mode": "min", "num_samples": 3, "seed": 7}


def noisy(config):
    """Use all random generators that training code may use."""
    own = np.random.default_rng(tune.get_context().get_seed())
    for step in range(1, 7):
        noise = own.normal() + random.random() + np.random.rand()  # noqa: NPY002, S311, TID251
        tune.report({"loss": config["lr"] / step + noise, "seed": tune.get_context().get_seed()})


def losses(result):
    return [row["loss"] for row in result.rows.of(result.trial_id)]


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_two_runs_of_a_trial_agree(fit, executor, tmp_path):
    first = fit(seeded_only if executor == "inline" else noisy, SPACE, tune=GOAL, executor=executor)
    again = [
        tune.rerun(tmp_path / "experiment", 1, seeded_only if executor == "inline" else noisy)
        for _ in range(2)
    ]
    assert losses(again[0]) == losses(again[1]) == losses(first[1])
    assert again[0].config == first[1].config
    assert again[0].metrics["seed"] == first[1].metrics["seed"] != first[2].metrics["seed"]
    assert [Path(result.path).parent.name for result in again] == [
        "experiment_t00001_rerun",
        "experiment_t00001_rerun_2",
    ]


def seeded_only(config):
    """Use only the trial's seed: trials that share a process share its global random generators."""
    own = np.random.default_rng(tune.get_context().get_seed())
    for step in range(1, 7):
        tune.report(
            {"loss": config["lr"] / step + own.normal(), "seed": tune.get_context().get_seed()}
        )


def test_a_trial_that_was_stopped_early_trains_to_its_end_and_is_compared_as_far_as_it_came(
    fit, capsys, tmp_path
):
    scheduler = ASHAScheduler(max_t=6, grace_period=1, reduction_factor=2)
    space = {"lr": tune.grid_search([0.0, 100.0, 200.0, 300.0])}
    first = fit(
        seeded_only,
        space,
        tune={"metric": "loss", "mode": "min", "scheduler": scheduler},
        executor="inline",
        resources={"cpu": 1},
    )
    number, stopped = next(
        (n, result)
        for n, result in enumerate(first)
        if result.ending is TerminationReason.STOPPED_EARLY
    )
    num_recorded = stopped.metrics["training_iteration"]
    again = tune.rerun(tmp_path / "experiment", stopped.trial_id, seeded_only, verbose=1)
    assert len(losses(again)) == 6
    assert losses(again)[:num_recorded] == losses(first[number])
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == f"training {stopped.trial_id} of experiment again, with seed {stopped.metrics['seed']}"
    )
    assert (
        lines[-2] == f"loss, seed are the same in {num_recorded} of {num_recorded} recorded results"
    )
    assert lines[-1] == f"{6 - num_recorded} more results than were recorded"


def test_a_restore_of_what_is_trained_again_keeps_the_seed(fit, tmp_path):
    first = fit(seeded_only, SPACE, tune=GOAL, executor="inline")
    again = tune.rerun(tmp_path / "experiment", "t00002", seeded_only)
    restored = tune.Tuner.restore(Path(again.path).parent, seeded_only, num_samples=2).fit()
    assert [result.metrics["seed"] for result in restored] == [first[2].metrics["seed"]] * 2
    once_more = tune.rerun(Path(again.path).parent, 0, seeded_only)
    assert losses(once_more) == losses(first[2])


class Endless(tune.Trainable):
    def step(self):
        return {"loss": self.config["lr"]}


@pytest.mark.parametrize(
    ("stop", "scheduler", "end"),
    [
        ({"training_iteration": 4}, None, 4),
        (None, ASHAScheduler(max_t=5), 5),
        ({"loss": "<= -1"}, ASHAScheduler(max_t=5), 5),
        (lambda trial_id, result: result["training_iteration"] >= 3, None, 3),
    ],
)
def test_a_class_ends_where_a_full_training_does(fit, tmp_path, stop, scheduler, end):
    fit(
        Endless,
        {"lr": 1.0},
        tune={"metric": "loss", "mode": "min", "scheduler": scheduler},
        stop=stop,
        executor="inline",
    )
    assert tune.rerun(tmp_path / "experiment", 0, Endless).metrics["training_iteration"] == end


def forever(config):
    step = 0
    while True:
        step += 1
        tune.report({"loss": config["lr"] / step})


@pytest.mark.parametrize("trainable", [forever, Endless])
@pytest.mark.usefixtures("short_time")
def test_a_trial_that_only_the_time_budget_ended_ends_where_it_did(
    fit, tmp_path, capsys, trainable
):
    [first] = fit(
        trainable,
        {"lr": 1.0},
        tune={"time_budget_s": 0.3, "scheduler": FIFOScheduler()},
        executor="inline",
    )
    reached = first.metrics["training_iteration"]
    assert (
        tune.rerun(tmp_path / "experiment", 0, trainable, verbose=1).metrics["training_iteration"]
        == reached
    )
    assert (
        f"it ends at iteration {reached}, which it had reached; stop= says otherwise"
        in capsys.readouterr().out
    )


class FailsAtThree(tune.Trainable):
    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        if self.count == 3:
            raise ValueError("three")
        return {"loss": 1.0}


def test_a_trial_that_failed_gets_as_far_as_to_fail_again(fit, tmp_path):
    scheduler = MedianStoppingRule(grace_period=60)
    fit(
        FailsAtThree,
        tune={"metric": "loss", "mode": "min", "scheduler": scheduler},
        executor="inline",
    )
    assert tune.rerun(tmp_path / "experiment", 0, FailsAtThree).error is not None


def test_a_trial_that_worked_in_its_directory_is_rerun_in_its_directory(fit, tmp_path, capsys):
    def train(config):
        tune.report({"place": os.path.relpath(Path.cwd(), tmp_path)})

    [first] = fit(train, tune={"chdir_to_trial_dir": True}, executor="process")
    assert first.metrics["place"] == "experiment/t00000"
    again = tune.rerun(tmp_path / "experiment", 0, train)
    assert again.metrics["place"] == "experiment_t00000_rerun/t00000"
    inline = tune.rerun(tmp_path / "experiment", 0, train, executor="inline", verbose=1)
    assert not inline.metrics["place"].endswith("t00000")
    assert "it does not work in its own directory as it did" in capsys.readouterr().out


@pytest.mark.parametrize(
    "declared",
    [{"name": "group/experiment"}, {"name": "experiment", "if_exists": "new"}],
    ids=lambda declared: declared["name"],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_the_folder_may_have_another_name_than_the_script_declares(
    build, tmp_path, monkeypatch, declared, is_old
):
    build(seeded_only, SPACE, name="experiment", tune=GOAL, executor="inline").fit()
    settings = {"tune": GOAL, "executor": "inline", **declared}
    build(seeded_only, SPACE, **settings).fit()
    path = tmp_path / (declared["name"] + ("_2" if "if_exists" in declared else ""))
    if is_old:
        written = strict_json.checked(strict_json.loads((path / "experiment.json").read_bytes()))
        assert written.pop("declared_name") == declared["name"]
        (path / "experiment.json").write_text(strict_json.dumps(strict_json.signed(written)))
    monkeypatch.setenv("TUNER_RERUN", f"t00001:{path}")
    with pytest.raises(SystemExit) as ended:
        build(seeded_only, SPACE, **settings).fit()
    assert ended.value.code == 0
    assert (path.parent / f"{path.name}_t00001_rerun").is_dir()
    monkeypatch.setenv("TUNER_RESUME", str(path))
    assert build(seeded_only, SPACE, **settings).fit().experiment_path == str(path)
    monkeypatch.setenv("TUNER_RESUME", str(path))
    with pytest.raises(
        ValueError,
        match=rf"names the experiment '({declared['name']}|{path.name})' .* but the script begins "
        r"with 'another'",
    ):
        build(seeded_only, SPACE, **{**settings, "name": "another"}).fit()


def test_resources_are_those_that_the_trial_had(fit, tmp_path):
    fit(
        tune.with_resources(seeded_only, {"cpu": 2}),
        SPACE,
        tune=GOAL,
        executor="inline",
        resources={"cpu": 4},
    )
    assert prepare_rerun(tmp_path / "experiment", 0, seeded_only).spec.request_for({}) == {
        "cpu": 2.0
    }


def test_objects_in_a_configuration_come_from_the_space(fit, tmp_path):
    space = {"lr": 1.0, "loss": tune.choice([abs, len])}
    fit(seeded_only, space, tune=GOAL, executor="inline")
    with pytest.raises(tune.TunerError, match=r'param_space\["loss"\].*give the param_space again'):
        tune.rerun(tmp_path / "experiment", 0, seeded_only)
    assert tune.rerun(tmp_path / "experiment", 0, seeded_only, param_space=space).config[
        "loss"
    ] in (abs, len)


def test_a_trial_that_took_over_from_another_is_refused(fit, tmp_path):
    def climb(config):
        for _ in range(8):
            with tune.checkpoint_dir() as directory:
                tune.report(
                    {"loss": config["lr"]}, checkpoint=tune.Checkpoint.from_directory(directory)
                )

    scheduler = PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": tune.uniform(0, 1)},
    )
    settings = {"stop": {"training_iteration": 8}, "executor": "inline"}
    results = fit(
        climb,
        {"lr": tune.uniform(0, 1)},
        tune={**GOAL, "num_samples": 4, "scheduler": scheduler},
        **settings,
    )
    taken_over = next(trial for trial in results.trials if trial.grafts)
    with pytest.raises(
        ValueError,
        match=rf"{taken_over.trial_id} cannot be trained again alone.*"
        r"PopulationBasedTrainingReplay",
    ):
        tune.rerun(tmp_path / "experiment", taken_over.trial_id, climb)


def test_a_trial_that_does_not_exist_is_refused(fit, tmp_path):
    fit(seeded_only, SPACE, tune=GOAL, executor="inline")
    with pytest.raises(ValueError, match=r"got 9; there are t00000, t00001, t00002"):
        tune.rerun(tmp_path / "experiment", 9, seeded_only)


SCRIPT = """
import sys
import numpy as np
import tuner as tune

def train(config, data):
    import colorama_of_no_one
    for step in range(1, 5):
        if config["x"] == 3 and step == 3 and "--heal" not in sys.argv:
            raise ValueError("three")
        tune.report({"loss": float(data.sum()) * config["x"] / step + np.random.rand()})

print("script begins")
results = tune.Tuner(
    tune.with_parameters(train, data=np.ones(3)),
    param_space={"x": tune.grid_search([1, 2, 3])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(name="digits", storage_path="results"),
).fit()
print("script ends with", len(results))
"""


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    """A directory with a script without a main guard, run once, and an environment to rerun it."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "colorama_of_no_one.py").write_text("__version__ = '4.2'\n")
    (folder / "train.py").write_text(SCRIPT)
    root = Path(__file__).parents[2]

    def run(*command, code=0, **variables):
        environ = {
            **os.environ,
            "PYTHONPATH": f"{root}:{folder}",
            "HOME": str(folder),
            **variables,
        }
        done = subprocess.run(  # noqa: PLW1510
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    run(sys.executable, "train.py", "--seed", "3", "--hub-token", "abc")
    (folder / "results").rename(folder / "original")
    return folder, run


@pytest.fixture
def script(run_once):
    """Return the directory as it was after the script had run, and how to run something in it."""
    folder, run = run_once
    shutil.rmtree(folder / "results", ignore_errors=True)
    shutil.copytree(folder / "original", folder / "results", symlinks=True)
    return folder, run


def test_the_command_trains_a_trial_again_with_the_script_and_its_arguments(script):
    folder, run = script
    environment = json.loads((folder / "results" / "digits" / "environment.json").read_text())[-1]
    assert environment["arguments"] == ["--seed", "3", "--hub-token", "***"]
    assert environment["script"] == str(folder / "train.py")
    assert environment["packages"]["colorama_of_no_one"] == "4.2"
    assert environment["packages"]["numpy"] == np.__version__

    command = (sys.executable, "-m", "tuner", "rerun", "results/digits", "1")
    refused = run(*command, code=2)
    assert "looked like a secret and was not recorded" in refused.stderr
    out = run(*command, "--", "--seed", "3").stdout
    assert "training t00001 of digits again" in out
    assert "loss is the same in 4 of 4 recorded results" in out
    assert "script begins" in out
    assert "script ends" not in out

    failing = (*command[:-1], "2", "--")
    assert "ValueError: three" in run(*failing, "--seed", "3", code=1).stdout
    healed = run(*failing, "--heal").stdout
    assert "loss is the same in 2 of 2 recorded results" in healed
    assert "2 more results than were recorded" in healed


def test_the_command_that_resume_prints_runs_and_continues_the_experiment(script):
    folder, run = script
    journal = next((folder / "results" / "digits" / "journal").iterdir())
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]))  # what came later is left nowhere
    for name in ("snapshot", "t00000", "t00001", "t00002"):
        shutil.rmtree(folder / "results" / "digits" / name)
    printed = run(sys.executable, "-m", "tuner", "resume", "results/digits")
    assert "replace *** by it" in printed.stderr
    command = printed.stdout.strip()
    assert shlex.split(command)[-5:] == [
        str(folder / "train.py"),
        "--seed",
        "3",
        "--hub-token",
        "***",
    ]
    assert "script ends with 3" in run("sh", "-c", command).stdout
    assert len(tune.ResultGrid.from_directory(folder / "results" / "digits")) == 3


def test_a_script_of_another_experiment_is_refused(script):
    folder, run = script
    (folder / "other.py").write_text(SCRIPT.replace("digits", "letters"))
    for name, value in (
        ("TUNER_RESUME", "results/digits"),
        ("TUNER_RERUN", "t00001:results/digits"),
    ):
        printed_lines = run(sys.executable, "other.py", code=1, **{name: value}).stderr
        assert f"{name} names the experiment 'digits'" in printed_lines
    assert not (folder / "results" / "letters").exists()


def test_after_a_notebook_a_program_with_its_imports_is_printed(script):
    folder, run = script
    (folder / "results" / "digits" / "environment.json").unlink()
    printed = run(sys.executable, "-m", "tuner", "resume", "results/digits", code=1)
    path = folder / "results" / "digits"
    assert printed.stdout == ""  # it is finished
    assert printed.stderr.endswith(
        f"import tuner as tune\n\ntune.Tuner.restore({str(path)!r}, train).fit()\n"
    )
    assert "train is the trainable, train of module __main__" in printed.stderr
    refused = run(sys.executable, "-m", "tuner", "rerun", "results/digits", "1", code=2)
    assert "give it as --script, or call tune.rerun(path, 't00001', train)" in refused.stderr
