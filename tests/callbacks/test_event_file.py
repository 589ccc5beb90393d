"""Event files and who writes them, without TensorBoard."""

import logging
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from searchers.space import choice, grid_search, only_if, sample_from, uniform
from tests.callbacks.scenes import event_logger, finish, new_idle_writer
from tuner.callbacks import BatchWriter
from tuner.callbacks.files.event_file import EventEncoder, records
from tuner.callbacks.files.tensorboard_logger import TBXLoggerCallback, searched_names


@pytest.fixture
def logger(idle_writer):
    return event_logger(idle_writer)


@pytest.mark.parametrize("theirs", ["0000000001.vm", "9999999999.vm.1234.0"])
def test_the_curves_that_a_trial_writes_beside_them_by_itself_stay(make_trial, report, theirs):
    trial = make_trial()
    own = Path(trial.local_path) / f"events.out.tfevents.{theirs}"
    own.parent.mkdir()
    written = EventEncoder().scalars(1.0, 1, {"theirs": 0.5})
    own.write_bytes(written)
    for trial.attempt in (1, 2):
        logger = TBXLoggerCallback(new_idle_writer())
        trial.resumed_iteration = trial.attempt - 1
        logger.log_trial_start(trial)
        trial.num_rows, trial.last_result = trial.attempt, report(trial, trial.attempt, loss=1)
        logger.log_trial_result(trial.attempt, trial, trial.last_result)
        logger.writer.flush()
        assert logger.is_complete(trial)
    assert own.read_bytes() == written
    assert len(list(own.parent.glob("events.*"))) == 2


def test_a_trial_that_never_started_leaves_no_file(logger, make_trial):
    trial = make_trial()
    finish(logger, trial)
    assert not list(Path(trial.local_path).glob("*"))


@pytest.mark.process
def test_no_thread_and_no_open_file_per_trial(make_trial, report):
    logger = TBXLoggerCallback(BatchWriter(period_s=1e6))
    logger.setup()
    num_threads = threading.active_count()
    num_files = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(50):
        trial = make_trial(f"t{number:05d}")
        logger.log_trial_start(trial)
        logger.log_trial_result(1, trial, report(trial, 1, loss=1))
    logger.writer.flush()
    assert threading.active_count() == num_threads + 1
    assert len(list(Path("/proc/self/fd").iterdir())) == num_files
    logger.on_experiment_end(trials=[])


def test_records_end_where_the_file_is_torn(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=1))
    logger.on_experiment_end(trials=[])
    data = next(Path(trial.local_path).glob("events.*")).read_bytes()
    whole = list(records(data))
    assert b"".join(whole) == data
    for cut in range(len(data)):
        kept = list(records(data[:cut]))
        assert kept == whole[: len(kept)]
        assert len(b"".join(kept)) <= cut < len(b"".join(whole[: len(kept) + 1]))


def test_searched_names_are_those_of_words_and_of_lists_that_hold_one():
    space = {
        "a": uniform(0, 1),
        "b": 3,
        "c": {"d": grid_search([1]), "e": sample_from(lambda: 3)},
        "f": "text",
        "g": [1, uniform(0, 1)],
    }
    assert list(searched_names(space)) == ["a", "c/d", "c/e", "g"]


def test_searched_names_of_a_conditional_space_are_those_of_all_options_constants_included():
    space = {
        "a": choice([{"name": "x", "b": uniform(0, 1)}, [3], "none"]),
        "c": only_if({"a": 0}, {"d": 1, "e": uniform(0, 1)}),
        "f": 3,
    }
    assert list(searched_names(space)) == ["a/name", "a/b", "a", "c/d", "c/e"]


def test_without_tensorboardx_there_is_one_notice_and_no_file(
    idle_writer, make_trial, report, monkeypatch, caplog
):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("tuner.callbacks.files.event_file.import_alone", missing)
    logger, trial = TBXLoggerCallback(idle_writer), make_trial()
    with caplog.at_level(logging.WARNING, "tuner"):
        logger.setup()
        logger.log_trial_start(trial)
        logger.log_trial_result(1, trial, report(trial, 1, loss=1))
        finish(logger, trial)
    assert [record.getMessage().count("pip install tensorboardX") for record in caplog.records] == [
        1
    ]
    assert not Path(trial.local_path).exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("companion", "check"),
    [
        ("torch", "torch.ones(1).item() == 1"),
        ("comet_ml", "comet_ml.Experiment"),
        ("boto3", "boto3.client"),
    ],
)
def test_what_tensorboardx_would_like_to_have_is_not_imported_and_can_be_imported_afterwards(
    companion, check
):
    if find_spec(companion) is None:
        pytest.skip(f"{companion} is not installed")
    code = (
        "import sys\n"
        "from tuner.callbacks import TBXLoggerCallback\n"
        "TBXLoggerCallback().setup()\n"
        f"assert 'tensorboardX' in sys.modules and '{companion}' not in sys.modules\n"
        f"import {companion}\n"
        f"assert {check}\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)  # noqa: S603
