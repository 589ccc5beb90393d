"""TensorBoard's event files, record by record: encoded here, appended by whoever has the bytes.

tensorboardX brings the message types; its checksum, in plain Python, would be most of the cost. Its writers are not used: each of them
holds a thread, a queue and an open file, and begins a new file whenever a trial comes back.
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

from tuner.core.result import as_float

from .json_logger import encode_json

_EXPERIMENT_TAG = "_hparams_/experiment"
_START_TAG = "_hparams_/session_start_info"
_END_TAG = "_hparams_/session_end_info"
_PLUGIN_MARK = b"_hparams_/"
_HEADER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_PAYLOAD = _HEADER.size + _CHECKSUM.size
# The tags of fields: eight times the number that the message's definition gives the field, and the kind of what follows.
_TIME_TAG, _STEP_TAG, _VERSION_TAG, _SUMMARY_TAG, _SESSION_TAG, _UNKNOWN_TAG = (
    0x09,
    0x10,
    0x1A,
    0x2A,
    0x3A,
    0x7A,
)  # of an event
_VALUE_TAG, _TAG_TAG, _SIMPLE_VALUE_TAG, _METADATA_TAG = (
    0x0A,
    0x0A,
    0x15,
    0x4A,
)  # of a summary and its values
_PLUGIN_DATA_TAG, _PLUGIN_NAME_TAG, _CONTENT_TAG = (
    0x0A,
    0x0A,
    0x12,
)  # of what says that a value is for the table of hyperparameters
_STARTED_TAG, _ENDED_TAG = 0x1A, 0x22  # of what that table is told
_ENTRY_TAG, _KEY_TAG, _ITEM_TAG, _START_TIME_TAG = (
    0x0A,
    0x0A,
    0x12,
    0x29,
)  # of a start, and the hyperparameters in it
_NUMBER_TAG, _TEXT_TAG, _BOOLEAN_TAG = 0x11, 0x1A, 0x20  # of a value that may be of several kinds
_STATUS_TAG, _END_TIME_TAG, _SUCCESS, _FAILURE = 0x08, 0x11, 1, 2  # of an end
_TIME_SIZE = 9
_TIME = struct.Struct("<BdB")
_DOUBLE = struct.Struct("<Bd")
_FLOAT64 = struct.Struct("<d")
_FLOAT64_SIZE = _FLOAT64.size
_SINGLE = struct.Struct("<f")
_FLOAT_SIZE = _SINGLE.size
_LAST_BYTE = 0x7F
"""The greatest that the last byte of a number can be: all others have the uppermost bit."""
_END_OF_STEPS = 1 << 63
_DATA_TYPES = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING", float: "DATA_TYPE_FLOAT64"}

_COMPANIONS = ("comet_ml", "torch")
_companions_are_hidden = threading.Lock()


@final
class EventEncoder:
    """Turns what happens to a trial into records of an event file.

    Raises:
        ImportError: If tensorboardX is not installed.
    """

    def __init__(self) -> None:
        load = import_alone
        self._events = load("tensorboardX.proto.event_pb2")
        self._plugin = load("tensorboardX.proto.plugin_hparams_pb2")
        self._api = load("tensorboardX.proto.api_pb2")
        self._crc32c = importlib.import_module("google_crc32c").value
        self._header = functools.lru_cache(maxsize=4096)(self._new_header)
        self._outline = functools.lru_cache(maxsize=64)(_Outline)
        self._table = functools.lru_cache(maxsize=64)(
            self._new_table
        )  # mostly the same for all trials

    def version(self, at: float) -> bytes:
        """Return the record that every event file begins with."""
        return self._framed(_DOUBLE.pack(_TIME_TAG, at) + _VERSION_FIELD)

    def scalars(self, at: float, step: int, values: Mapping[str, float]) -> bytes:
        """Return the record of a result: its time, its step, and its values under their tags."""
        try:
            if values and 0 < step < _END_OF_STEPS:
                return self._framed(self._outline(*values).filled(at, step, values.values()))
        except OverflowError:
            pass  # what no 32 bits hold becomes infinite below
        event = self._events.Event(wall_time=at, step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=_legible(tag), simple_value=value)
        return self._record(event)

    def scalar(self, record: bytes, tag: str) -> float | None:
        """Return the value that a record tells under a name, None for none."""
        event = self._events.Event.FromString(record[_PAYLOAD : -_CHECKSUM.size])
        return next((value.simple_value for value in event.summary.value if value.tag == tag), None)

    def restart(self, at: float, step: int) -> bytes:
        """Return the record that makes TensorBoard forget all values of this step and later ones."""
        since = bytes((_STEP_TAG,)) + _varint(step) if step else b""
        return self._framed(_DOUBLE.pack(_TIME_TAG, at) + since + _RESTART_FIELD)

    def session_start(self, at: float, params: Mapping[str, Any], metric: str | None) -> bytes:
        """Return the records that put a trial into TensorBoard's table of hyperparameters.

        Args:
            at: Unix time.
            params: Flattened hyperparameters; what is neither number, text nor boolean is shown as JSON.
            metric: The metric that the table shows beside them, None for none.
        """
        values = {_legible(name): _shown(value) for name, value in params.items()}
        table = self._table(
            metric and _legible(metric),
            *((name, value.__class__) for name, value in values.items()),
        )
        start = b"".join([_entry(name, value) for name, value in values.items()]) + _DOUBLE.pack(
            _START_TIME_TAG, at
        )
        return self._plugin_record(at, table) + self._plugin_record(
            at, _before(_START_TAG, _STARTED_TAG, len(start)) + start
        )

    def session_end(self, at: float, *, has_failed: bool) -> bytes:
        """Return the record that gives the trial its final status in the table of hyperparameters."""
        end = bytes((_STATUS_TAG, _FAILURE if has_failed else _SUCCESS)) + _DOUBLE.pack(
            _END_TIME_TAG, at
        )
        return self._plugin_record(at, _before(_END_TAG, _ENDED_TAG, len(end)) + end)

    def void(self, record: bytes) -> bytes:
        """Return a record of the same size that says nothing."""
        size = len(record) - _PAYLOAD - _CHECKSUM.size
        # The time, then a field that no reader knows; a length below 16,384 fits into two bytes, the first of them flagged.
        rest = size - _TIME_SIZE - 3
        payload = (
            record[_PAYLOAD : _PAYLOAD + _TIME_SIZE]
            + bytes((_UNKNOWN_TAG, rest & 0x7F | 0x80, rest >> 7))
            + bytes(rest)
        )
        return b"".join((record[:_PAYLOAD], payload, _CHECKSUM.pack(self._checksum(payload))))

    def _new_table(self, metric: str | None, *columns: tuple[str, type]) -> bytes:
        infos = [
            self._api.HParamInfo(name=name, type=self._api.DataType.Value(_DATA_TYPES[kind]))
            for name, kind in columns
        ]
        metrics = [self._api.MetricInfo(name=self._api.MetricName(tag=metric))] if metric else []
        table = self._plugin.HParamsPluginData(
            version=0, experiment=self._api.Experiment(hparam_infos=infos, metric_infos=metrics)
        )
        return _plugin_field(_EXPERIMENT_TAG, table.SerializeToString())

    def _plugin_record(self, at: float, summary: bytes) -> bytes:
        return self._framed(_DOUBLE.pack(_TIME_TAG, at) + summary)

    def _record(self, event: Any) -> bytes:
        return self._framed(event.SerializeToString())

    def _framed(self, payload: bytes) -> bytes:
        return b"".join(
            (self._header(len(payload)), payload, _CHECKSUM.pack(_masked(self._crc32c(payload))))
        )

    def _checksum(self, data: bytes) -> int:
        return _masked(self._crc32c(data))

    def _new_header(self, size: int) -> bytes:
        header = _HEADER.pack(size)
        return header + _CHECKSUM.pack(self._checksum(header))


@final
class _Outline:
    """What all messages with values of the same names have in common: everything but time, step and values.

    Made by hand, field by field as tensorboardX's message types would, since filling those takes five times as long.
    """

    __slots__ = ("_fields", "_head", "_pack")

    def __init__(self, *tags: str) -> None:
        heads = [
            _field(_TAG_TAG, _legible(tag).encode()) + bytes((_SIMPLE_VALUE_TAG,)) for tag in tags
        ]
        heads = [bytes((_VALUE_TAG,)) + _varint(len(head) + _FLOAT_SIZE) + head for head in heads]
        body = struct.Struct("<" + "".join(f"{len(head)}sf" for head in heads))
        self._head = bytes((_SUMMARY_TAG,)) + _varint(body.size)
        self._pack = body.pack
        self._fields: list[bytes | float] = [field for head in heads for field in (head, 0.0)]

    def filled(self, at: float, step: int, values: Iterable[float]) -> bytes:
        """Return the message.

        Raises:
            OverflowError: If a finite value is beyond what 32 bits hold.
        """
        fields = self._fields.copy()
        fields[1::2] = values
        return b"".join(
            (_TIME.pack(_TIME_TAG, at, _STEP_TAG), _varint(step), self._head, self._pack(*fields))
        )


def single(value: float) -> float:
    """Return what an event file keeps of a number: 32 bits."""
    try:
        kept: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return kept


def _field(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return a number, 0 or more, as protocol buffers write it: seven bits to a byte, the lowest first, flagged but for the last."""
    if number <= _LAST_BYTE:
        return bytes((number,))
    return bytes((number & _LAST_BYTE | _LAST_BYTE + 1,)) + _varint(number >> 7)


def records(data: bytes) -> list[bytes]:
    """Return the whole records of an event file, frames included, up to one that a crash or a power cut has torn."""
    frame = _HEADER.size + 2 * _CHECKSUM.size
    found = []
    at = 0
    while at + frame < len(data):
        size = frame + _HEADER.unpack_from(data, at)[0]
        if size == frame or at + size > len(data):  # zeros look like records of nothing
            break
        found.append(data[at : at + size])
        at += size
    while found and not _verifies(found[-1]):
        found.pop()
    return found


def shown(found: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return those of an event file's records that TensorBoard shows as points of curves, each with its step.

    A restart makes it forget what stands before it and is of the same step or a later one.
    """
    points: list[tuple[int, bytes]] = []
    for record in found:
        step, tag = _head(record)
        if tag == _SESSION_TAG:
            points = [point for point in points if point[0] < step]
        elif (tag == _SUMMARY_TAG and _PLUGIN_MARK not in record) or (tag is None and step):
            points.append((step, record))
    return points


def _verifies(record: bytes) -> bool:
    checksum: int = _masked(
        importlib.import_module("google_crc32c").value(record[_PAYLOAD : -_CHECKSUM.size])
    )
    return record.endswith(_CHECKSUM.pack(checksum))


def _masked(crc: int) -> int:
    # Rotated and shifted, as TensorFlow's record format wants it, so that the sum of a sum is no sum.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _head(record: bytes) -> tuple[int, int | None]:
    """Return a record's step and the tag behind it, None for none, read off the encoded message: time, step, then what it is about."""
    payload = record[_PAYLOAD : -_CHECKSUM.size]
    at = _TIME_SIZE if payload[0] == _TIME_TAG else 0
    step = shift = 0
    if payload[at : at + 1] == bytes((_STEP_TAG,)):
        is_last = False
        while not is_last:
            at += 1
            step |= (payload[at] & _LAST_BYTE) << shift
            shift += 7
            is_last = payload[at] <= _LAST_BYTE
        at += 1
    return step, payload[at] if at < len(payload) else None


def is_session_end(record: bytes) -> bool:
    """Return whether the record says how the trial ended."""
    return _END_TAG.encode() in record


def import_alone(name: str) -> ModuleType:
    """Import a module that would import torch and Comet's client for its convenience, without letting it.

    Importing torch takes seconds and hundreds of megabytes, Comet's client a second more, matplotlib and its caches; the driver has no use
    for either. What is loaded already stays; what is not can be imported as usual afterwards. To be called from the thread that runs the
    experiment, since another thread's import of what is hidden would fail meanwhile.
    """
    with _companions_are_hidden:
        hidden = (
            []
            if name in sys.modules
            else [companion for companion in _COMPANIONS if companion not in sys.modules]
        )
        # The documented way to make an import fail.
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
    """Return the text, with half a character, which no protocol buffer holds, spelled out."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _entry(name: str, value: bool | float | str) -> bytes:
    """Return a hyperparameter, as the message for a start has it."""
    match value:
        case bool():
            return _before_item(name, _BOOLEAN_TAG, 1) + bytes((value,))
        case str():
            text = value.encode()
            return _before_item(name, _TEXT_TAG, len(text)) + text
        case _:
            return _before_item(name, _NUMBER_TAG, _FLOAT64_SIZE) + _FLOAT64.pack(value)


# What stands before a content is the same for all contents of a size, and most of the work.
@functools.lru_cache(maxsize=1024)
def _before_item(name: str, tag: int, size: int) -> bytes:
    content = bytes(size)
    item = _field(tag, content) if tag == _TEXT_TAG else bytes((tag,)) + content
    return _field(
        _ENTRY_TAG, _field(_KEY_TAG, name.encode()) + _field(_ITEM_TAG, item)
    ).removesuffix(content)


@functools.lru_cache(maxsize=1024)
def _before(tag: str, kind: int, size: int) -> bytes:
    content = bytes(size)
    return _plugin_field(tag, _field(kind, content)).removesuffix(content)


_VERSION_FIELD = _field(_VERSION_TAG, b"brain.Event:2")
_RESTART_FIELD = _field(_SESSION_TAG, b"\x08\x01")
_PLUGIN_NAME = _field(_PLUGIN_NAME_TAG, b"hparams")


def _plugin_field(tag: str, content: bytes) -> bytes:
    """Return the summary with something for the table of hyperparameters, as a field of an event."""
    plugin = _field(_PLUGIN_DATA_TAG, _PLUGIN_NAME + _field(_CONTENT_TAG, content))
    return _field(
        _SUMMARY_TAG,
        _field(_VALUE_TAG, _field(_TAG_TAG, tag.encode()) + _field(_METADATA_TAG, plugin)),
    )
