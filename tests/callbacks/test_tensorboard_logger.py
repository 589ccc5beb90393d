"""Event files, as TensorBoard itself reads them."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as Served
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import Status as SessionStatus
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.util import tensor_util

from tests.callbacks.scenes import event_logger, finish, new_idle_writer
from tuner.callbacks.files.event_file import EventEncoder, records
from tuner.callbacks.files.tensorboard_logger import TBXLoggerCallback
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord
from tuner.storage.readable_json import encode_json

pytestmark = pytest.mark.heavy


@pytest.fixture
def logger(idle_writer):
    return event_logger(idle_writer)


def read(trial):
    accumulator = EventAccumulator(trial.local_path)
    accumulator.Reload()
    return accumulator


def curve(trial, tag):
    """Return what both of TensorBoard's readers show: for notebooks, and for its pages."""
    alone = [(event.step, round(event.value, 4)) for event in read(trial).Scalars(tag)]
    assert served(trial, tag) == alone
    return alone


def served(trial, tag, accumulator=None):
    accumulator = accumulator or Served(trial.local_path, tensor_size_guidance={"scalars": 0})
    accumulator.Reload()
    return [
        (event.step, round(float(tensor_util.make_ndarray(event.tensor_proto)), 4))
        for event in accumulator.Tensors(tag)
    ]


def hparams(trial, tag):
    return read(trial).summary_metadata[tag].plugin_data.content


def test_curves_have_the_users_names_and_the_training_iteration_as_step(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in (1, 2):
        extra = {
            "val": {"acc": iteration / 10},
            "is_good": True,
            "time_total_s": 1.5,
            "timestamp": 17,
            "pid": 4,
        }
        logger.log_trial_result(
            iteration, trial, report(trial, iteration, loss=1 / iteration, **extra)
        )
    finish(logger, trial)
    assert sorted(read(trial).Tags()["scalars"]) == ["is_good", "loss", "time_total_s", "val/acc"]
    assert curve(trial, "loss") == [(1, 1.0), (2, 0.5)]
    assert curve(trial, "val/acc") == [(1, 0.1), (2, 0.2)]


def test_what_is_no_number_is_left_out_and_huge_ones_are_infinite(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    odd = {
        "nan": math.nan,
        "text": "x",
        "list": [1],
        "none": None,
        "f32": np.float32(0.5),
        "huge": 10**400,
        "inf": -math.inf,
    }
    logger.log_trial_result(1, trial, report(trial, 1, loss=1.0, **odd))
    finish(logger, trial)
    assert sorted(read(trial).Tags()["scalars"]) == ["f32", "huge", "inf", "loss"]
    assert curve(trial, "huge") == [(1, math.inf)]
    assert curve(trial, "inf") == [(1, -math.inf)]


def test_timesteps_are_the_step_where_they_are_counted(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=1.0, timesteps_total=100))
    finish(logger, trial)
    assert curve(trial, "loss") == [(100, 1.0)]
    assert curve(trial, "training_iteration") == [(100, 1.0)]


def test_hyperparameters_are_there_from_the_start_and_only_the_searched_ones(logger, make_trial):
    trial = make_trial(lr=0.1, net={"width": 2}, data="x")
    logger.log_trial_start(trial)
    logger.writer.flush()
    start = metadata.parse_session_start_info_plugin_data(
        hparams(trial, metadata.SESSION_START_INFO_TAG)
    )
    assert {name: value.number_value for name, value in start.hparams.items()} == {
        "lr": 0.1,
        "net/width": 2.0,
    }
    experiment = metadata.parse_experiment_plugin_data(hparams(trial, metadata.EXPERIMENT_TAG))
    assert [info.name for info in experiment.hparam_infos] == ["lr", "net/width"]
    assert [info.name.tag for info in experiment.metric_infos] == ["loss"]
    assert metadata.SESSION_END_INFO_TAG not in read(trial).summary_metadata
    logger.on_experiment_end(trials=[])


def test_without_a_space_all_hyperparameters_are_shown_with_their_types(idle_writer, make_trial):
    logger = TBXLoggerCallback(idle_writer)
    logger.setup()
    trial = make_trial(flag=True, act="relu", n=3, layers=[1, 2], nothing=None, limit=math.inf)
    logger.log_trial_start(trial)
    logger.on_experiment_end(trials=[])
    start = metadata.parse_session_start_info_plugin_data(
        hparams(trial, metadata.SESSION_START_INFO_TAG)
    )
    shown = {
        name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()
    }
    assert shown == {
        "flag": True,
        "act": "relu",
        "n": 3.0,
        "layers": "[1,2]",
        "nothing": "null",
        "limit": "Infinity",
    }


@pytest.mark.parametrize(
    ("failed", "expected"),
    [(False, SessionStatus.STATUS_SUCCESS), (True, SessionStatus.STATUS_FAILURE)],
)
def test_the_end_says_how_the_trial_ended(logger, make_trial, failed, expected):
    trial = make_trial()
    logger.log_trial_start(trial)
    finish(logger, trial, failed=failed)
    end = metadata.parse_session_end_info_plugin_data(hparams(trial, metadata.SESSION_END_INFO_TAG))
    assert end.status == expected


def test_an_interrupted_trial_has_no_end(logger, make_trial):
    trial = make_trial()
    logger.log_trial_start(trial)
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.INTERRUPTED
    logger.log_trial_end(trial)
    logger.on_experiment_end(trials=[])
    assert metadata.SESSION_END_INFO_TAG not in read(trial).summary_metadata


def test_a_retry_goes_on_in_the_same_file_and_replaces_what_it_reports_again(
    logger, make_trial, report
):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in range(1, 6):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=iteration))
    logger.log_trial_end(trial, failed=True)
    trial.attempt = 2
    logger.log_trial_start(trial)
    logger.log_trial_result(4, trial, report(trial, 4, loss=40))
    finish(logger, trial)
    assert len(list(Path(trial.local_path).glob("events.*"))) == 1
    assert curve(trial, "loss") == [(1, 1), (2, 2), (3, 3), (4, 40)]
    end = metadata.parse_session_end_info_plugin_data(hparams(trial, metadata.SESSION_END_INFO_TAG))
    assert end.status == SessionStatus.STATUS_SUCCESS


def test_a_retry_from_the_beginning_replaces_everything_but_the_hyperparameters(
    logger, make_trial, report
):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=1, old=1))
    trial.attempt = 2
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=10))
    finish(logger, trial)
    assert curve(trial, "loss") == [(1, 10)]
    assert metadata.SESSION_START_INFO_TAG in read(trial).summary_metadata


@pytest.mark.parametrize("torn", [b"", b"\x10", b"\x10" + b"\0" * 20])
@pytest.mark.parametrize("steps", [{}, {"timesteps_total": 100}])
def test_a_new_driver_goes_on_in_the_old_file_even_if_that_is_torn(make_trial, report, torn, steps):
    def steps_at(iteration):
        return {name: value * iteration for name, value in steps.items()}

    trial = make_trial()
    first = TBXLoggerCallback(new_idle_writer())
    first.log_trial_start(trial)
    for iteration in (1, 2, 3):
        first.log_trial_result(
            iteration, trial, report(trial, iteration, loss=iteration, **steps_at(iteration))
        )
    finish(first, trial, failed=True)
    (path,) = Path(trial.local_path).glob("events.*")
    with path.open("ab") as file:
        file.write(torn)
    trial.move_to(Status.RUNNING)
    trial.ending, trial.attempt = None, 2
    trial.checkpoints = [CheckpointRecord(0, 2, counters=steps_at(2))]
    second = TBXLoggerCallback(new_idle_writer())
    second.log_trial_start(trial)
    second.log_trial_result(3, trial, report(trial, 3, loss=30, **steps_at(3)))
    finish(second, trial)
    assert list(Path(trial.local_path).glob("events.*")) == [path]
    unit = steps.get("timesteps_total", 1)
    assert curve(trial, "loss") == [(unit, 1), (2 * unit, 2), (3 * unit, 30)]
    end = metadata.parse_session_end_info_plugin_data(hparams(trial, metadata.SESSION_END_INFO_TAG))
    assert end.status == SessionStatus.STATUS_SUCCESS


@pytest.mark.parametrize("how", ["rewritten", "failed"])
def test_a_tensorboard_that_is_open_meanwhile_shows_one_curve(make_trial, report, how):
    trial = make_trial()
    results = [report(trial, iteration, loss=iteration) for iteration in range(1, 6)]
    first = TBXLoggerCallback(new_idle_writer())
    first.log_trial_start(trial)
    for trial.num_rows, result in enumerate(results[:3], start=1):
        first.log_trial_result(result["training_iteration"], trial, result)
    if how == "failed":
        finish(first, trial, failed=True)
    else:
        first.on_experiment_end(trials=[trial])
    open_meanwhile, served_meanwhile = read(trial), Served(trial.local_path)
    served(trial, "loss", served_meanwhile)
    (path,) = Path(trial.local_path).glob("events.*")
    second = TBXLoggerCallback(new_idle_writer())
    trial.move_to(Status.RUNNING)
    trial.ending, trial.attempt = None, 2
    if how == "rewritten":
        trial.num_rows = 4
        second.rewrite(trial, results[:4])
    second.log_trial_start(trial)
    for result in results[trial.num_rows :]:
        trial.num_rows += 1
        second.log_trial_result(result["training_iteration"], trial, result)
    finish(second, trial)
    expected = [(number, number) for number in range(1, 6)]
    open_meanwhile.Reload()
    assert [(event.step, event.value) for event in open_meanwhile.Scalars("loss")] == expected
    assert served(trial, "loss", served_meanwhile) == expected
    assert curve(trial, "loss") == expected
    assert list(Path(trial.local_path).glob("events.*")) == [path]
    end = metadata.parse_session_end_info_plugin_data(hparams(trial, metadata.SESSION_END_INFO_TAG))
    assert end.status == SessionStatus.STATUS_SUCCESS


@pytest.mark.parametrize("size", [30, 131, 132, 133, 134, 260, 5000])
def test_a_void_record_is_as_long_as_another_and_says_nothing(size):
    encoder = EventEncoder()
    record = encoder.scalars(1.0, 1, {"x" * size: 1.0})
    void = encoder.void(record)
    assert len(void) == len(record)
    event = Event.FromString(void[12:-4])
    assert (event.wall_time, event.WhichOneof("what"), event.step) == (1.0, None, 0)
    assert list(records(void + record)) == [void, record]


@given(
    at=st.floats(1.0, 1e10),
    step=st.integers(0, 2**63 - 1),
    values=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
        st.floats(allow_nan=False),
        max_size=5,
    ),
)
@example(at=1.0, step=0, values={"x": 1.0})
@example(at=1.0, step=127, values={"x" * 118: 1.0, "x" * 119: 1.0})
@example(at=1.0, step=128, values={"x" * 122: 1e300, "x" * 123: -math.inf})
def test_a_record_of_curves_is_what_the_message_types_make_of_it(at, step, values):
    record = EventEncoder().scalars(at, step, values)
    event = Event(wall_time=at, step=step)
    for tag, value in values.items():
        event.summary.value.add(tag=tag, simple_value=value)
    assert list(records(record)) == [record]
    assert record[12:-4] == event.SerializeToString()


hyperparameters = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.lists(st.integers(), max_size=2),
)


@given(
    at=st.floats(1.0, 1e10),
    params=st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=200), hyperparameters, max_size=5
    ),
    has_failed=st.booleans(),
)
@example(at=1.0, params={"huge": 10**400, "nothing": math.nan}, has_failed=False)
def test_the_records_of_a_session_are_what_the_message_types_make_of_it(at, params, has_failed):
    encoder = EventEncoder()
    data = (
        encoder.session_start(at, params, "loss")
        + encoder.session_end(at, has_failed=has_failed)
        + encoder.version(at)
    )
    table, start, end, version = (Event.FromString(record[12:-4]) for record in records(data))
    assert version == Event(wall_time=at, file_version="brain.Event:2")
    contents = []
    for event, tag in (
        (table, "experiment"),
        (start, "session_start_info"),
        (end, "session_end_info"),
    ):
        [value] = event.summary.value
        assert (event.wall_time, value.tag, value.metadata.plugin_data.plugin_name) == (
            at,
            f"_hparams_/{tag}",
            "hparams",
        )
        contents.append(HParamsPluginData.FromString(value.metadata.plugin_data.content))
    assert [info.name for info in contents[0].experiment.hparam_infos] == list(params)
    expected = HParamsPluginData()
    expected.session_start_info.start_time_secs = at
    for name, value in params.items():
        slot = expected.session_start_info.hparams[name]
        match value:
            case bool():
                slot.bool_value = value
            case int() | float() if is_representable(value):
                slot.number_value = value
            case str():
                slot.string_value = value
            case _:
                slot.string_value = encode_json(value).strip('"')
    assert contents[1] == expected
    status = SessionStatus.STATUS_FAILURE if has_failed else SessionStatus.STATUS_SUCCESS
    assert contents[2] == HParamsPluginData(
        session_end_info=SessionEndInfo(status=status, end_time_secs=at)
    )


def is_representable(value):
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@pytest.mark.parametrize("step", [0, 1, 127, 128, 10**12])
def test_a_restart_is_what_the_message_types_make_of_it(step):
    record = EventEncoder().restart(5.0, step)
    assert (
        record[12:-4]
        == Event(
            wall_time=5.0, step=step, session_log=SessionLog(status=SessionLog.START)
        ).SerializeToString()
    )


def test_a_first_attempt_removes_what_an_earlier_one_of_that_name_left(logger, make_trial, report):
    trial = make_trial()
    stale = Path(trial.local_path) / "events.out.tfevents.0000000001.elsewhere.tuner"
    stale.parent.mkdir()
    stale.write_bytes(b"stale")
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=1))
    finish(logger, trial)
    assert not stale.exists()
    assert curve(trial, "loss") == [(1, 1)]


def test_half_a_character_does_not_stop_the_logger(make_trial, report, idle_writer):
    trial, logger = make_trial(**{"\ud800": "\udfff"}), TBXLoggerCallback(idle_writer)
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, **{"\ud801": 1.0}))
    finish(logger, trial)
    logger.on_experiment_end(trials=[])
    assert curve(trial, r"\ud801") == [(1, 1.0)]
