"""``tune.run`` and related functions, as scripts for older releases of Ray Tune call them."""

import inspect
import os
from pathlib import Path

import pytest

import tuner as tune
from searchers import TreeSearch
from tuner.errors import ExperimentExists, TrialFailed


def train(config):
    for step in range(1, 5):
        tune.report({"loss": config["x"] ** 2 / step, "env": {"reward": step}})


@pytest.fixture
def run(tmp_path):
    """Return `tune.run`, quiet and with all it writes under ``tmp_path``."""
    return lambda trainable=train, **options: tune.run(
        trainable, **{"storage_path": tmp_path, "verbose": 0} | options
    )


class Counter(tune.Trainable):
    def setup(self, config, start=0):
        self.count = start

    def step(self):
        self.count += self.config["by"]
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir):
        return {"count": self.count}

    def load_checkpoint(self, checkpoint):
        self.count = checkpoint["count"]


def test_a_function_is_run_and_the_analysis_knows_the_best(run):
    space = {"x": tune.grid_search([3.0, 1.0, 2.0])}
    analysis = run(config=space, metric="loss", mode="min", stop={"env": {"reward": 2}})
    assert isinstance(analysis, tune.ExperimentAnalysis)
    assert analysis.best_config == {"x": 1.0}
    assert analysis.best_result["env"] == {"reward": 2}
    assert len(analysis.trials) == 3


def test_a_class_with_the_arguments_of_long_ago(run, tmp_path):
    analysis = run(
        tune.with_parameters(Counter, start=100),
        name="long_ago",
        storage_path=None,
        local_dir=tmp_path,
        config={"by": tune.grid_search([1, 2])},
        stop={"training_iteration": 6},
        resources_per_trial={"cpu": 0.5},
        checkpoint_freq=2,
        keep_checkpoints_num=1,
        checkpoint_score_attr="min-count",
        scheduler="fifo",
        search_alg="random",
        max_failures=1,
    )
    assert analysis.experiment_path == str(tmp_path / "long_ago")
    assert [trial.last_result["count"] for trial in analysis.trials] == [106, 112]
    kept = sorted(
        path.name for path in Path(analysis.experiment_path, "t00000").glob("checkpoint_*")
    )
    assert kept == ["checkpoint_000000", "checkpoint_000002"]  # the smallest count, and the latest


def test_a_failed_trial_raises_at_the_end_unless_it_is_not_to(run):
    def fails(config):
        tune.report({"loss": 1.0})
        if config["x"]:
            raise ZeroDivisionError("as told")

    space = {"x": tune.grid_search([0, 1])}
    with pytest.raises(
        tune.TuneError, match=r"1 of 2 trials failed: t00001 \(ZeroDivisionError: as told\)"
    ) as raised:
        run(fails, name="fails", config=space)
    assert isinstance(raised.value, TrialFailed)
    analysis = run(fails, config=space, raise_on_failed_trial=False)
    assert [str(trial.status) for trial in analysis.trials] == ["TERMINATED", "ERROR"]


def test_resume_begins_and_continues_and_tries_failed_trials_again(run, tmp_path):
    def once(config):
        tune.report({"loss": 1.0})
        if not (tmp_path / "mended").exists():
            raise OSError("not yet")

    given = {
        "name": "exp",
        "config": {"x": tune.grid_search([0, 1])},
        "raise_on_failed_trial": False,
    }

    def statuses(**options):
        return {str(trial.status) for trial in run(once, **given, **options).trials}

    assert statuses(resume=True) == {"ERROR"}
    (tmp_path / "mended").touch()
    with pytest.raises(ExperimentExists):
        statuses()
    assert statuses(resume="AUTO") == {"ERROR"}
    assert statuses(resume="AUTO+ERRORED") == {"TERMINATED"}
    assert statuses(if_exists="new") == {"TERMINATED"}
    assert (tmp_path / "exp_2").is_dir()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"restore": "checkpoint"},
            ValueError,
            "restore='checkpoint' is not supported; pass the path in config",
        ),
        ({"export_formats": ["onnx"]}, ValueError, "export_formats=.* save_checkpoint"),
        ({"loggers": [print]}, ValueError, "callbacks"),
        ({"num_sample": 3}, TypeError, "did you mean 'num_samples'"),
        (
            {"resume": "PROMPT", "name": "exp"},
            ValueError,
            "resume must be True, False or one of 'AUTO'",
        ),
        ({"resume": True}, ValueError, "fixed name"),
        ({"local_dir": "elsewhere"}, ValueError, "mean the same"),
        (
            {"checkpoint_config": tune.CheckpointConfig(), "keep_checkpoints_num": 1},
            ValueError,
            "use checkpoint_config alone",
        ),
        ({"storage_filesystem": "s3"}, TypeError, "fsspec file system"),
        ({"metric": "loss", "mode": "lowest"}, ValueError, "'min' or 'max'"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name_before_anything_is_made(
    run, tmp_path, options, error, message
):
    with pytest.raises(error, match=message):
        run(**options)
    assert list(tmp_path.iterdir()) == []


def test_arguments_without_effect_are_accepted(run):
    assert len(run(config={"x": 1.0}, restore=None, export_formats=None, loggers=None).trials) == 1


def test_experiments_run_one_after_another(tmp_path):
    first = tune.Experiment("first", train, config={"x": 1.0}, num_samples=2)
    described = {"second": {"run": train, "config": {"x": 2.0}, "stop": {"training_iteration": 2}}}
    trials = tune.run_experiments(
        [first, described],
        storage_path=tmp_path,
        verbose=0,
        scheduler=tune.schedulers.FIFOScheduler(),
    )
    assert [trial.last_result["loss"] for trial in trials] == [0.25, 0.25, 2.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    assert (
        len(
            tune.run(
                tune.Experiment("third", train, config={"x": 1.0}), storage_path=tmp_path, verbose=0
            ).trials
        )
        == 1
    )
    for wrong, message in (
        ("first", "must be tune.Experiment"),
        ({"x": {"config": {}}}, "with 'run'"),
    ):
        with pytest.raises(TypeError, match=message):
            tune.run_experiments(wrong, storage_path=tmp_path)
    with pytest.raises(TypeError, match="run_experiments runs them one after another"):
        tune.run([first])
    with pytest.raises(TypeError, match="did you mean 'num_samples'"):
        tune.Experiment("fourth", train, num_sample=2)


def test_the_arguments_are_those_of_ray_tune():
    of_ray = """
        name metric mode stop time_budget_s config resources_per_trial num_samples storage_path
        storage_filesystem search_alg scheduler checkpoint_config verbose progress_reporter
        log_to_file trial_name_creator trial_dirname_creator sync_config max_failures fail_fast
        resume resume_config reuse_actors raise_on_failed_trial callbacks max_concurrent_trials
        keep_checkpoints_num checkpoint_score_attr checkpoint_freq checkpoint_at_end
        chdir_to_trial_dir local_dir
    """
    assert list(inspect.signature(tune.run).parameters) == [
        "run_or_experiment",
        *of_ray.split(),
        "if_exists",
        "cluster",
        "constraints",
        "budget",
        "stop_search",
        "others",
    ]


# The working directory.


def where(config):
    Path("mine.txt").write_text("x")
    tune.report({"cwd": str(Path.cwd()), "origin": os.environ["TUNE_ORIG_WORKING_DIR"]})


@pytest.mark.parametrize(
    ("setting", "variable", "is_changed"),
    [
        (None, None, False),
        (None, "0", False),
        (None, "1", True),
        (False, "1", False),
        (True, "0", True),
    ],
)
def test_a_trial_works_in_its_directory_on_request(
    tmp_path, monkeypatch, setting, variable, is_changed
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_CHDIR_TO_TRIAL_DIR", raising=False)
    if variable:
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", variable)
    tune_config = tune.TuneConfig(chdir_to_trial_dir=setting)
    (result,) = tune.Tuner(
        where,
        tune_config=tune_config,
        run_config=tune.RunConfig(name="exp", storage_path="runs", verbose=0),
    ).fit()
    assert result.metrics["cwd"] == (result.path if is_changed else str(tmp_path))
    assert result.metrics["origin"] == str(tmp_path)
    assert Path(result.path if is_changed else tmp_path, "mine.txt").exists()
    assert Path.cwd() == tmp_path  # that of the script stays


def test_modules_beside_the_script_are_still_found_from_the_trials_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_the_script.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend("")

    def imports_late(config):
        import beside_the_script

        tune.report({"answer": beside_the_script.ANSWER})

    tune_config = tune.TuneConfig(chdir_to_trial_dir=True)
    (result,) = tune.Tuner(
        imports_late,
        tune_config=tune_config,
        run_config=tune.RunConfig(storage_path="runs", verbose=0),
    ).fit()
    assert result.metrics["answer"] == 42


def test_trials_that_share_a_process_cannot_each_have_a_directory():
    with pytest.raises(
        ValueError, match="chdir_to_trial_dir must not be True with executor='inline'"
    ):
        tune.Tuner(
            where,
            tune_config=tune.TuneConfig(chdir_to_trial_dir=True),
            run_config=tune.RunConfig(executor="inline"),
        )


def test_a_mistyped_argument_beside_an_experiment_is_refused(run, tmp_path):
    for experiment in (tune.Experiment("typo", train, config={"x": 1.0}), train):
        with pytest.raises(
            TypeError, match=r"has no argument 'num_sample'; did you mean 'num_samples'"
        ):
            run(experiment, num_sample=7)
    with pytest.raises(
        TypeError, match=r"has no argument 'num_sample'; did you mean 'num_samples'"
    ):
        tune.run_experiments(
            {"typo": {"run": train, "config": {"x": 1.0}}},
            num_sample=7,
            storage_path=tmp_path,
            verbose=0,
        )
    with pytest.raises(ValueError, match=r"loggers=\[1\] is not supported"):
        run(tune.Experiment("typo", train, config={"x": 1.0}), loggers=[1])


def test_to_resume_and_to_replace_an_experiment_contradict_each_other(run):
    run(name="once", config={"x": 1.0})
    with pytest.raises(
        ValueError,
        match="resume continues the experiment of that name, if_exists='replace' starts another",
    ):
        run(name="once", config={"x": 1.0}, resume=True, if_exists="replace")


class Fourth(tune.schedulers.TrialScheduler):
    """Stops a trial at its fourth result, as it counts them."""

    def __init__(self):
        self.num_results = {}

    def on_trial_result(self, tune_controller, trial, result):
        self.num_results[trial.trial_id] = self.num_results.get(trial.trial_id, 0) + 1
        return self.STOP if self.num_results[trial.trial_id] == 4 else self.CONTINUE


def flat(config):
    for _ in range(9):
        tune.report({"loss": 1.0})


def test_what_remembers_an_experiment_is_copied_for_each_of_several(tmp_path):
    plateau = tune.stopper.TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=3)
    several = {
        "stop": (plateau, [3, 3]),
        "scheduler": (Fourth(), [4, 4]),
        "search_alg": (TreeSearch(space={"x": tune.uniform(0, 1)}), [9, 9]),
    }
    for name, (part, iterations) in several.items():
        experiments = [tune.Experiment(f"{name}_{number}", flat) for number in range(2)]
        trials = tune.run_experiments(
            experiments, metric="loss", mode="min", storage_path=tmp_path, verbose=0, **{name: part}
        )
        assert [trial.last_result["training_iteration"] for trial in trials] == iterations
