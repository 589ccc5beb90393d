"""Crashes of trials in every form: each is reported with its cause, and the other trials finish."""

import ctypes
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from schedulers.scheduler import Scheduler
from searchers import BasicVariantGenerator
from tuner import Checkpoint
from tuner.errors import TrialFailed


@pytest.fixture
def executor():
    return "process"


class BadToPickle(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.lock = threading.Lock()

    def __reduce__(self):
        raise RuntimeError("no pickle")


class NoException(BaseException):
    pass


def fail(how):
    match how:
        case "raise":
            raise ValueError("the loss exploded")
        case "unpicklable":
            raise BadToPickle("one", "two")
        case "base":
            raise NoException("not caught by except Exception")
        case "interrupt":
            raise KeyboardInterrupt
        case "sys.exit(3)":
            sys.exit(3)
        case "os._exit(3)":
            sys.stderr.write("these are my last words\n")
            os._exit(3)
        case "os._exit(0)":
            os._exit(0)
        case "segfault":
            ctypes.string_at(0)
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)


DEATHS = {
    "raise": ("ValueError: the loss exploded", 'raise ValueError("the loss exploded")'),
    "unpicklable": ("BadToPickle: one and two", 'raise BadToPickle("one", "two")'),
    "base": ("NoException: not caught by except Exception", "raise NoException"),
    "interrupt": ("KeyboardInterrupt", "raise KeyboardInterrupt"),
    "sys.exit(3)": ("SystemExit: exited with code 3", "sys.exit(3)"),
    "os._exit(3)": (
        "exited with code 3: the process ended before the training code did",
        "these are my last words",
    ),
    "os._exit(0)": ("exited with code 0: the process ended before the training code did", ""),
    "segfault": ("killed by SIGSEGV", ""),
    "SIGKILL": (
        "killed by SIGKILL: a signal that tuner did not send ended the process",
        " MiB",
    ),
}


def train(config):
    """Report two epochs, fail as configured, and report two more."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "epoch.json").write_text(str(epoch))
            tune.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(temporary))
        if epoch == 1:
            fail(config["how"])


@pytest.fixture
def space():
    return {"how": tune.grid_search([None, *DEATHS, None])}


def test_every_crash_is_reported_with_its_cause_and_the_other_trials_finish(fit, space, rows_of):
    results = fit(train, space)
    dead = [result for result in results if result.config["how"]]
    assert {result.config["how"] for result in results if result.status == "TERMINATED"} == {None}
    assert results.num_errors == len(results.errors) == len(dead) == len(DEATHS)
    for result in dead:
        message, detail = DEATHS[result.config["how"]]
        log = Path(result.path, "error.txt").read_text()
        assert message in str(result.error)
        assert log.startswith("Failure #1 (attempt 1, ")
        assert message in log
        assert detail in log
    assert [[row["epoch"] for row in rows_of(result.path)] for result in dead] == [[0, 1]] * len(
        dead
    )
    survivors = [result for result in results if not result.config["how"]]
    assert [result.metrics["epoch"] for result in survivors] == [3, 3]
    assert [Path(result.path, "error.txt").exists() for result in survivors] == [False, False]


def test_every_crash_is_retried_from_the_latest_checkpoint_in_a_new_process(fit, space, rows_of):
    results = fit(train, space, failure={"max_failures": 1})
    assert [str(result.status) for result in results] == ["TERMINATED"] * len(results)
    assert results.errors == []
    for result in results:
        rows = rows_of(result.path)
        assert [(row["epoch"], row["training_iteration"]) for row in rows] == [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 4),
        ]
        assert len({row["pid"] for row in rows}) == (2 if result.config["how"] else 1)
        assert [row["iterations_since_restore"] for row in rows][2:] == (
            [1, 2] if result.config["how"] else [3, 4]
        )


def test_leaving_with_code_zero_is_no_failure(fit):
    def train(config):
        tune.report({"epoch": 0})
        sys.exit(0)

    (result,) = fit(train)
    assert result.status == "TERMINATED"
    assert result.ending == "completed"


def test_a_trial_that_never_reports_is_killed_too(fit, tmp_path):
    def train(config):
        is_first = not (tmp_path / "hung").exists()
        (tmp_path / "hung").touch()
        if is_first:
            threading.Event().wait()

    (result,) = fit(train, failure={"max_failures": -1, "report_timeout_s": 1})
    assert result.status == "TERMINATED"
    assert (
        "no report for more than report_timeout_s=1" in Path(result.path, "error.txt").read_text()
    )


def test_each_failed_attempt_has_its_paragraph_and_the_last_one_is_the_error(fit):
    def train(config):
        checkpoint = tune.get_checkpoint()
        attempt = int(Path(checkpoint.path, "attempt").read_text()) + 1 if checkpoint else 1
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "attempt").write_text(str(attempt))
            tune.report({"attempt": attempt}, checkpoint=Checkpoint.from_directory(temporary))
        raise ValueError(f"failed in attempt {attempt}")

    (result,) = fit(train, failure={"max_failures": 2}, executor="inline")
    log = Path(result.path, "error.txt").read_text()
    assert [line.split(",")[0] for line in log.splitlines() if line.startswith("Failure #")] == [
        "Failure #1 (attempt 1",
        "Failure #2 (attempt 2",
        "Failure #3 (attempt 3",
    ]
    assert "failed in attempt 3" in str(result.error)
    assert result.metrics["attempt"] == 3


def test_a_retry_without_a_checkpoint_starts_from_the_beginning(fit, tmp_path, rows_of):
    def train(config):
        has_failed = (tmp_path / "has_failed").exists()
        for epoch in range(3):
            tune.report({"epoch": epoch, "second": has_failed})
            if epoch == 1 and not has_failed:
                (tmp_path / "has_failed").touch()
                raise RuntimeError

    (result,) = fit(train, failure={"max_failures": 1}, executor="inline")
    assert [(row["epoch"], row["second"]) for row in rows_of(result.path)] == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert len(result.metrics_dataframe) == 3


def test_without_a_limit_a_failing_trial_is_always_retried(fit, tmp_path):
    def train(config):
        (tmp_path / "attempts").open("a").write("x")
        if (tmp_path / "attempts").stat().st_size < 6:
            os._exit(1)
        tune.report({"done": True})

    (result,) = fit(train, failure={"max_failures": -1})
    assert result.status == "TERMINATED"
    assert (tmp_path / "attempts").stat().st_size == 6


# fail_fast.


def wait_or_fail(config):
    tune.report({"epoch": 0})
    if config["fails"]:
        raise ValueError("this one fails")
    while True:
        tune.report({"epoch": 1})


@pytest.fixture
def one_fails():
    return {"fails": tune.grid_search([False, True, False])}


def test_fail_fast_ends_the_experiment_and_leaves_the_others_resumable(fit, one_fails):
    results = fit(wait_or_fail, one_fails, failure={"fail_fast": True}, resources={"cpu": 2})
    assert results[1].status == "ERROR"
    first, *others = [result for result in results if result.trial_id != "t00001"]
    # It may have been killed before its first result.
    assert (first.status, first.ending) in {("TERMINATED", "interrupted"), ("PENDING", None)}
    assert not first.metrics.get("done")
    assert {result.status for result in others} <= {"PENDING"}
    for result in (first, *others):
        assert len(result.metrics_dataframe) == result.metrics.get("training_iteration", 0)


def test_fail_fast_raise_raises_what_happened(build, one_fails):
    tuner = build(wait_or_fail, one_fails, failure={"fail_fast": "raise"}, resources={"cpu": 2})
    with pytest.raises(TrialFailed, match="trial t00001 failed with ValueError: this one fails"):
        tuner.fit()
    assert tuner.get_results().num_errors == 1


# What is not a failure of a trial but of what surrounds it.


def test_a_class_that_cannot_be_set_up_fails_alone(fit):
    class Fragile(tune.Trainable):
        def setup(self, config):
            if config["fails"]:
                raise OSError("no such data")

        def step(self):
            return {"done": True}

        def save_checkpoint(self, checkpoint_dir):
            return {}

    results = fit(Fragile, {"fails": tune.grid_search([True, False])}, executor="inline")
    assert [str(result.status) for result in results] == ["ERROR", "TERMINATED"]
    assert "OSError: no such data" in str(results[0].error)


def test_a_class_that_cannot_be_saved_goes_on_with_a_warning(fit, caplog):
    class Unsaved(tune.Trainable):
        def step(self):
            return {}

    (result,) = fit(Unsaved, stop={"training_iteration": 3}, executor="inline")
    assert result.status == "TERMINATED"
    assert result.metrics["training_iteration"] == 3
    assert result.checkpoint is None
    assert "Unsaved cannot be saved; implement save_checkpoint and load_checkpoint" in caplog.text


def test_a_trainable_that_cannot_be_loaded_fails_its_trials_with_the_reason(fit):
    class Unloadable:
        def __call__(self, config):
            return None

        def __reduce__(self):
            return exec, ("raise ImportError('no module for this here')",)

    results = fit(Unloadable(), {"x": tune.grid_search([1, 2])})
    assert [str(result.status) for result in results] == ["ERROR", "ERROR"]
    assert "ImportError: no module for this here" in str(results[0].error)


class DefectiveScheduler(Scheduler):
    def on_trial_result(self, trial, result):
        raise RuntimeError("a defect of the scheduler")


class DefectiveSearcher(BasicVariantGenerator):
    def on_trial_result(self, trial_id, result):
        raise RuntimeError("a defect of the searcher")


def defective_stop(trial_id, result):
    raise RuntimeError("a defect of the stop criterion")


@pytest.mark.parametrize(
    ("options", "part", "argument"),
    [
        ({"tune": {"scheduler": DefectiveScheduler()}}, "scheduler", "scheduler"),
        ({"tune": {"search_alg": DefectiveSearcher()}}, "searcher", "search_alg"),
        ({"stop": defective_stop}, "stop criterion", "stop"),
    ],
)
def test_a_defect_outside_the_trials_is_raised_with_the_way_to_go_on(
    build, tmp_path, options, part, argument
):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(RuntimeError, match=f"a defect of the {part}") as raised:
        build(train, {"how": None}, **options).fit()
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    (note,) = raised.value.__notes__
    assert f"Tuner.restore('{tmp_path}/experiment', train, {argument}={argument}).fit()" in note


def test_after_a_defect_outside_the_trials_the_experiment_goes_on(build, rows_of, tmp_path):
    def stop(trial_id, result):
        if result["epoch"] == 2:
            raise RuntimeError("a defect of the stop criterion")
        return False

    with pytest.raises(RuntimeError):
        build(train, {"how": None}, stop=stop).fit()
    run_config = tune.RunConfig(verbose=0)
    (result,) = tune.Tuner.restore(
        tmp_path / "experiment", train, param_space={"how": None}, run_config=run_config
    ).fit()
    assert [(row["epoch"], row["training_iteration"]) for row in rows_of(result.path)] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    assert [(row["epoch"], row["iterations_since_restore"]) for row in rows_of(result.path)][
        2:
    ] == [(2, 1), (3, 2)]


class KilledWhileSaving(tune.Trainable):
    def step(self):
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "weights").write_bytes(b"0" * 1000)
        if self.iteration == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def load_checkpoint(self, checkpoint_dir):
        pass


def test_what_a_killed_attempt_was_saving_is_deleted_when_it_ends(fit):
    frequent = tune.CheckpointConfig(checkpoint_frequency=1)
    (result,) = fit(KilledWhileSaving, failure={"max_failures": 1}, checkpoint_config=frequent)
    assert "killed by SIGKILL" in str(result.error)
    assert [path.name for path in Path(result.path).iterdir() if path.is_dir()] == [
        "checkpoint_000000"
    ]


class Unsaved(tune.Trainable):
    def setup(self, config):
        self.num_steps = 0

    def step(self):
        self.num_steps += 1
        return {"loss": 1.0 / self.num_steps}

    def save_checkpoint(self, checkpoint_dir):
        return "/elsewhere" if self.config.get("is_foreign") else {"steps": self.optimizer.state}

    def load_checkpoint(self, checkpoint):
        self.num_steps = checkpoint["steps"]


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({}, "AttributeError: 'Unsaved' object has no attribute 'optimizer'"),
        (
            {"is_foreign": True},
            (
                "ValueError: save_checkpoint must return None, a dictionary or the directory it "
                "was given"
            ),
        ),
    ],
)
@pytest.mark.parametrize("pausing", [False, True])
def test_a_class_that_cannot_save_itself_fails_with_what_it_raised(fit, config, cause, pausing):
    search = {"metric": "loss", "mode": "min"}
    if pausing:
        mutations = {"lr": [0.1, 0.2]}
        scheduler = PopulationBasedTraining(
            "training_iteration", perturbation_interval=2, hyperparam_mutations=mutations
        )
        search |= {"scheduler": scheduler, "num_samples": 2}
    saves = tune.CheckpointConfig(checkpoint_frequency=2)
    results = fit(
        Unsaved,
        {"lr": 0.1, **config},
        tune=search,
        stop={"training_iteration": 4},
        checkpoint_config=saves,
    )
    for result in results:
        assert (result.status, result.checkpoint) == ("ERROR", None)
        assert result.metrics["training_iteration"] <= 2
        assert cause in str(result.error)
        assert "save_checkpoint" in Path(result.path, "error.txt").read_text()


class Diverged(ValueError):
    pass


def raising(config):
    tune.report({"loss": 1.0})
    match config["what"]:
        case "own":
            raise Diverged("the loss is nan")
        case "decode":
            b"\xff".decode()
        case "key":
            config["lr"]


def test_an_error_is_of_pythons_type_and_a_failed_trial_also_when_it_is_read_again(fit, tmp_path):
    expected = [ValueError, UnicodeDecodeError, KeyError]
    grid = fit(raising, {"what": tune.grid_search(["own", "decode", "key"])})
    for again in (
        grid,
        tune.Tuner.restore(tmp_path / "experiment", raising).get_results(),
        pickle.loads(pickle.dumps(grid)),  # noqa: S301
    ):
        for result, kind in zip(again, expected, strict=True):
            assert isinstance(result.error, kind)
            assert isinstance(result.error, TrialFailed)
            assert str(result.error).startswith(f"trial {result.trial_id} failed: ")
        assert not isinstance(again[0].error, KeyError)
    for result, kind in list(zip(grid, expected, strict=True))[1:]:
        assert isinstance(tune.Result.from_path(result.path).error, kind)


def test_fail_fast_raises_what_can_be_caught_as_what_was_raised(fit):
    with pytest.raises(
        ValueError, match="trial t00000 failed with Diverged: the loss is nan"
    ) as raised:
        fit(raising, {"what": "own"}, failure={"fail_fast": "raise"})
    assert isinstance(raised.value, TrialFailed)


@pytest.mark.parametrize(
    ("given", "error", "num_attempts"),
    [
        ({"no_retry_on": [Exception]}, ValueError, 1),
        ({"retry_on": [Exception]}, KeyError, 3),
        ({"retry_on": [LookupError]}, KeyError, 3),
        ({"retry_on": [LookupError]}, TypeError, 1),
        ({"no_retry_on": [OSError]}, ConnectionResetError, 1),
        ({"no_retry_on": [OSError], "retry_on": [ConnectionError]}, ConnectionResetError, 3),
    ],
)
def test_base_classes_say_what_is_worth_a_retry_and_come_before_the_defaults(
    fit, given, error, num_attempts
):
    def fails(config):
        raise error

    [trial] = fit(fails, executor="inline", failure={"max_failures": 2, **given}).trials
    assert trial.attempt == num_attempts


SCRIPT = """
import sys
import tuner as tune

def fails(config):
    raise ValueError("always")

def fit(trainable, name, fail_script=True):
    run_config = tune.RunConfig(
        name=name,
        storage_path="results",
        executor="inline",
        verbose=0,
        failure_config=tune.FailureConfig(fail_script=fail_script),
    )
    tune_config = tune.TuneConfig(num_samples=int(sys.argv[2]))
    return tune.Tuner(trainable, tune_config=tune_config, run_config=run_config).fit()

assert len(fit(fails, "one", fail_script=sys.argv[1] != "off")) < 60
if sys.argv[1] == "another":
    fit(lambda config: {"loss": 1.0}, "other")
elif sys.argv[1] == "again":
    sys.exit(fit(fails, "other") and None)
elif sys.argv[1] not in ("off", "end"):
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("then", "num", "code"),
    [
        ("another", 60, 0),
        ("again", 60, 1),
        ("3", 60, 3),
        ("0", 1, 0),
        ("end", 1, 1),
        ("end", 4, 1),
        ("off", 60, 0),
    ],
)
def test_a_script_in_which_no_trial_succeeds_exits_with_1_unless_it_chooses_another_code(
    tmp_path, then, num, code
):
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", SCRIPT, then, str(num)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == code, done.stderr
