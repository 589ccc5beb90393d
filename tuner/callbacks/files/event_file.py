"""TensorBoard's event files: results encoded as records, and records read back.

The messages are tensorboardX's. Its writers are not used: each of them holds a thread, a queue and
an open file, and its `RecordWriter` cannot append to a file that is there.

A record is ``<size, 8 bytes> <its checksum, 4 bytes> <message> <its checksum, 4 bytes>``.
"""

from __future__ import annotations

import functools
import importlib
import math
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, final

import google_crc32c

from tuner.core.result import as_float
from tuner.storage.readable_json import encode_json

_EXPERIMENT_TAG = "_hparams_/experiment"
_START_TAG = "_hparams_/session_start_info"
_END_TAG = "_hparams_/session_end_info"
_HEADER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_PAYLOAD = _HEADER.size + _CHECKSUM.size
_TIME_BYTES = 9
"""Size of the first field of a message, its time."""
_UNKNOWN_FIELD = 0x7A
"""Tag of a field of bytes whose number the definition of the message does not use."""
_VALIDATION_MARK = bytes((_UNKNOWN_FIELD, 8)) + b"validate"
"""Such a field at the end of a message tells a validation's values from a result."""
_SINGLE = struct.Struct("<f")
_DATA_TYPES = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING", float: "DATA_TYPE_FLOAT64"}

_COMPANIONS = ("boto3", "comet_ml", "torch")
_companions_are_hidden = threading.Lock()


@final
class EventEncoder:
    """Encodes events of a trial as records of an event file, in one thread at a time.

    Raises:
        ImportError: If tensorboardX is not installed.
    """

    def __init__(self) -> None:
        self._event = import_alone("tensorboardX.proto.event_pb2")
        self._summary = import_alone("tensorboardX.proto.summary_pb2")
        self._plugin = import_alone("tensorboardX.proto.plugin_hparams_pb2")
        self._api = import_alone("tensorboardX.proto.api_pb2")
        # Usually the same for all trials.
        self._table = functools.lru_cache(maxsize=64)(self._new_table)
        self._points = functools.lru_cache(maxsize=64)(self._new_points)

    def version(self, at: float) -> bytes:
        """Return the record that every event file begins with."""
        return self._record(wall_time=at, file_version="brain.Event:2")

    def scalars(
        self, at: float, step: int, values: Mapping[str, float], *, of_validation: bool = False
    ) -> bytes:
        """Return a record of values under their tags, with their time and step.

        They are those of a result, or of a checkpoint's validation.
        """
        # Filled in anew for each result: to create a message takes three times as long.
        event, points = self._points(*values)
        event.wall_time, event.step = at, step
        for point, value in zip(points, values.values(), strict=True):
            point.simple_value = value
        return _framed(event.SerializeToString() + (_VALIDATION_MARK if of_validation else b""))

    def last_steps(self, found: Iterable[bytes]) -> dict[str, int]:
        """Return the largest step of the values under each tag in these records."""
        steps: dict[str, int] = {}
        for record in found:
            event = self._event.Event.FromString(_message(record))
            for value in event.summary.value:
                steps[value.tag] = max(steps.get(value.tag, event.step), event.step)
        return steps

    def scalar(self, record: bytes, tag: str) -> float | None:
        """Return the value of a record under a tag, None for none."""
        event = self._event.Event.FromString(_message(record))
        return next((value.simple_value for value in event.summary.value if value.tag == tag), None)

    def restart(self, at: float, step: int) -> bytes:
        """Return the record that makes TensorBoard drop all values of this step and later ones.

        It is what ``SummaryWriter(purge_step=...)`` writes.
        """
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        return self._record(wall_time=at, step=step, session_log=start)

    def session_start(self, at: float, params: Mapping[str, Any], metric: str | None) -> bytes:
        """Return the records that put a trial into TensorBoard's table of hyperparameters.

        Args:
            at: Unix time.
            params: Flattened hyperparameters; values other than numbers, texts and booleans are
                shown as JSON.
            metric: The metric that the table shows beside them, None for none.
        """
        values = {_legible(name): _shown(value) for name, value in params.items()}
        table = self._table(
            metric and _legible(metric),
            *((name, value.__class__) for name, value in values.items()),
        )
        start = self._plugin.SessionStartInfo(start_time_secs=at)
        for name, value in values.items():
            match value:
                case bool():
                    start.hparams[name].bool_value = value
                case str():
                    start.hparams[name].string_value = value
                case _:
                    start.hparams[name].number_value = value
        started = self._plugin.HParamsPluginData(session_start_info=start)
        return self._plugin_record(at, _EXPERIMENT_TAG, table) + self._plugin_record(
            at, _START_TAG, started
        )

    def session_end(self, at: float, *, has_failed: bool) -> bytes:
        """Return the record of the trial's final status in the table of hyperparameters."""
        status = "STATUS_FAILURE" if has_failed else "STATUS_SUCCESS"
        end = self._plugin.SessionEndInfo(status=self._api.Status.Value(status), end_time_secs=at)
        return self._plugin_record(
            at, _END_TAG, self._plugin.HParamsPluginData(session_end_info=end)
        )

    def void(self, record: bytes) -> bytes:
        """Return a record of the same size without content: its time, and an unknown field."""
        message = _message(record)
        size = len(message) - _TIME_BYTES - 3
        # The field's size, below 16,384, in two bytes of seven bits each, the first of them
        # flagged.
        field = bytes((_UNKNOWN_FIELD, size & 0x7F | 0x80, size >> 7)) + bytes(size)
        return _framed(message[:_TIME_BYTES] + field)

    def _new_points(self, *tags: str) -> tuple[Any, list[Any]]:
        """Return an event with a value under each of these tags, and the messages of the values."""
        event = self._event.Event()
        for tag in tags:
            event.summary.value.add(tag=_legible(tag))
        return event, list(event.summary.value)

    def _new_table(self, metric: str | None, *columns: tuple[str, type]) -> Any:
        infos = [
            self._api.HParamInfo(name=name, type=self._api.DataType.Value(_DATA_TYPES[kind]))
            for name, kind in columns
        ]
        metrics = [self._api.MetricInfo(name=self._api.MetricName(tag=metric))] if metric else []
        experiment = self._api.Experiment(hparam_infos=infos, metric_infos=metrics)
        return self._plugin.HParamsPluginData(version=0, experiment=experiment)

    def _plugin_record(self, at: float, tag: str, content: Any) -> bytes:
        """Return a record for the table of hyperparameters."""
        metadata = self._summary.SummaryMetadata(
            plugin_data=self._summary.SummaryMetadata.PluginData(
                plugin_name="hparams", content=content.SerializeToString()
            )
        )
        value = self._summary.Summary.Value(tag=tag, metadata=metadata)
        return self._record(wall_time=at, summary=self._summary.Summary(value=[value]))

    def _record(self, **fields: Any) -> bytes:
        return _framed(self._event.Event(**fields).SerializeToString())


def single(value: float) -> float:
    """Return a number rounded to the 32 bits of an event file."""
    try:
        kept: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return kept


def records(data: bytes) -> list[bytes]:
    """Return the complete records of an event file with their frames, up to a torn one."""
    frame = _PAYLOAD + _CHECKSUM.size
    found = []
    at = 0
    while at + frame < len(data):
        size = frame + _HEADER.unpack_from(data, at)[0]
        if size == frame or at + size > len(data):  # zeros look like empty records
            break
        found.append(data[at : at + size])
        at += size
    while found and not found[-1].endswith(_checksum(_message(found[-1]))):
        found.pop()
    return found


def shown(found: Iterable[bytes], *, has_validations: bool = False) -> list[tuple[int, bytes]]:
    """Return the records of results that TensorBoard shows as points of curves, with their steps.

    A restart hides earlier records of the same step or a later one.

    Args:
        found: The records.
        has_validations: Whether those of validations are returned as well.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415  (of tensorboardX)

    parse = import_alone("tensorboardX.proto.event_pb2").Event.FromString
    points: list[tuple[int, bytes]] = []
    for record in found:
        try:
            event = parse(_message(record))
        except DecodeError:  # a power cut may have left zeros in the middle of the file
            continue
        what = event.WhichOneof("what")
        if what == "session_log":
            points = [point for point in points if point[0] < event.step]
        elif what == "summary":
            is_point = not any(value.HasField("metadata") for value in event.summary.value)
            if is_point and (has_validations or not is_of_validation(record)):
                points.append((event.step, record))
        elif what is None and event.step:  # a result without a number
            points.append((event.step, record))
    return points


def _message(record: bytes) -> bytes:
    return record[_PAYLOAD : -_CHECKSUM.size]


def _framed(message: bytes) -> bytes:
    size = _HEADER.pack(len(message))
    return b"".join((size, _checksum(size), message, _checksum(message)))


def _checksum(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    # Masked as in the TFRecord format, since a CRC of data that contains CRCs is weak.
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def is_session_end(record: bytes) -> bool:
    """Return whether the record holds the trial's final status."""
    return _END_TAG.encode() in record


def is_of_validation(record: bytes) -> bool:
    """Return whether the record holds values of a checkpoint's validation."""
    return _message(record).endswith(_VALIDATION_MARK)


def import_alone(name: str) -> ModuleType:
    """Import a module, but not torch, boto3 and Comet's client, which it would import if installed.

    Importing torch takes seconds and hundreds of megabytes, Comet's client another second, boto3 a
    tenth of one; the driver uses none of them here. Modules that are loaded stay; the others can be
    imported as usual afterwards. Call it in the thread that runs the experiment: in another thread
    an import of a hidden module would fail meanwhile.
    """
    with _companions_are_hidden:
        hidden = (
            []
            if name in sys.modules
            else [companion for companion in _COMPANIONS if companion not in sys.modules]
        )
        # None in sys.modules makes an import fail, as the documentation of Python says.
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
        try:
            return importlib.import_module(name)
        finally:
            for companion in hidden:
                del sys.modules[companion]


def _shown(value: Any) -> bool | float | str:
    match value:
        case bool():
            return value
        case str():
            return _legible(value)
        case int() | float() if math.isfinite(as_float(value)):
            return float(value)
        case _:
            return encode_json(value).strip('"')


def _legible(text: str) -> str:
    """Return the text with lone surrogates escaped, which protocol buffers reject."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
