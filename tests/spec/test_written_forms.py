"""What files and commands hold of each kind of value stays as it is, byte for byte.

`python -c "from tests.spec.test_written_forms import *; write()"` writes the expected forms anew:
for another value, never for another form of a value that files of earlier releases may hold.
"""

import datetime as dt
import enum
import json
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from searchers.plain_values import describe
from searchers.space.configurations import record
from tests.spec.test_argument_codec import EXAMPLES
from tuner.analysis.report.as_code import expression
from tuner.cli.output import as_json
from tuner.command.sweeps.space_text import written
from tuner.command.template import as_text, hydra_text
from tuner.execution.validation_arguments import ArgumentPacker
from tuner.spec.argument_codec import note, shown
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.readable_json import encode_json
from tuner.storage.strict_json import dumps, opaque

EXPECTED = Path(__file__).with_name("written_forms.json")


class Text(str):
    __slots__ = ()


class Count(int):
    pass


class Colour(enum.Enum):
    RED = 1


class Odd:
    def __repr__(self):
        return "<Odd at 0x7f12ab>"


ODD = Odd()
VALUES = {
    "truth": True,
    "whole": 3,
    "long": 1 << 70,
    "float": 1e-05,
    "nan": float("nan"),
    "infinity": float("-inf"),
    "none": None,
    "text": "adam",
    "number as text": "1e-3",
    "text with quotes": "a'b\"c, d",
    "text in another script": "Straße",
    "text of a class": Text("adam"),
    "whole number of a class": Count(3),
    "numpy float": np.float64(0.5),
    "numpy half": np.float32(0.1),
    "numpy whole": np.int64(3),
    "numpy truth": np.bool_(True),
    "numpy text": np.str_("adam"),
    "array without dimensions": np.array(2.5),
    "array": np.arange(3.0),
    "array of objects": np.array([len, None], dtype=object),
    "list": [1, "a", [2.5, None], float("nan")],
    "tuple": (1, "a", (2.5, None)),
    "tuple of one": (1,),
    "set": {"a"},
    "dictionary": {"b": 1, "a": {"deep": [True, (1, 2)]}},
    "dictionary with numbers": {0: "a", 1.5: "b", None: "c"},
    "dictionary with tuples": {(0, 1): "a"},
    "ordered dictionary": OrderedDict(a=1),
    "like a tag": {"@": "tuple", "items": [1]},
    "like a mark": {"$tuple": [1]},
    "like an escaped mark": {"$$tuple": [1]},
    "grid": {"grid_search": [1, (2, 3)]},
    "path": Path("/data/a b"),
    "duration": dt.timedelta(minutes=2),
    "date": dt.date(2024, 2, 29),
    "bytes": b"abc",
    "function": len,
    "class": Odd,
    "object": ODD,
    "member of an enumeration": Colour.RED,
    "complex": 1 + 2j,
    **{f"declared {place}": value for place, value in enumerate(EXAMPLES)},
}
IN_SPACE = {
    "a number": (0.5, 0.5),
    "a tuple": ((1, 2), (1, 2)),
    "an object": (ODD, ODD),
    "an object chosen": (tune.choice([len, ODD, (len, 3)]), (len, 3)),
    "an object of a grid": (tune.grid_search([len, ODD]), ODD),
    "an object in a list": ([ODD, len], [ODD, len]),
    "keys of numbers": ({0: len, 1: tune.uniform(0, 1)}, {0: len, 1: 0.25}),
    "an option": (
        tune.choice([{"name": "sgd", "loss": len}, {"name": "adam"}, "none"]),
        {"name": "sgd", "loss": len},
    ),
}


def of_configuration(objects):
    """Return what the journal holds of a value in a configuration."""

    def form(value):
        in_journal = ConfigCodec({}, objects).encode({"x": value})
        return dumps(in_journal, opaque)

    return form


WRITERS = {
    "note": lambda value: dumps(note(value)),
    "shown": lambda value: shown(note(value)),
    "code": lambda value: expression(note(value)),
    "argument of a validation": lambda value: dumps(ArgumentPacker({}).described({"x": value})),
    "record of a searcher": lambda value: dumps(record(None, value)),
    "description": describe,
    "log file": encode_json,
    "readable log file": lambda value: encode_json(value, is_pretty=True),
    "output": as_json,
    "word": as_text,
    "override": hydra_text,
    "constant in a sweep": lambda value: repr(written(value)),
}


def form_of(write, value):
    """Return what a writer makes of a value, or that it refuses it."""
    try:
        return write(value)
    except (TypeError, ValueError) as refusal:
        return f"{type(refusal).__name__}: {refusal}"


def forms_of(name, objects):
    writers = {**WRITERS, "configuration": of_configuration(objects)}
    if name.startswith("declared"):
        writers = {kind: WRITERS[kind] for kind in ("note", "shown", "code")}
    return {kind: form_of(write, VALUES[name]) for kind, write in writers.items()}


def forms_in_space(name, objects):
    space, value = ({"x": part} for part in IN_SPACE[name])
    return {
        "configuration": form_of(
            lambda config: dumps(ConfigCodec(space, objects).encode(config), opaque), value
        ),
        "record of a searcher": form_of(lambda config: dumps(record(space, config)), value),
        "argument of a validation": form_of(
            lambda config: dumps(ArgumentPacker({"config": value}).described(config)), value
        ),
    }


@pytest.fixture(scope="module")
def expected():
    return json.loads(EXPECTED.read_text())


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_written_as_before(name, tmp_path, expected):
    assert forms_of(name, ArrayStore(tmp_path)) == expected[name]


@pytest.mark.parametrize("name", IN_SPACE)
def test_a_value_found_in_its_space_is_written_as_before(name, tmp_path, expected):
    assert forms_in_space(name, ArrayStore(tmp_path)) == expected[f"in its space: {name}"]


def write():
    """Write what is expected."""
    with tempfile.TemporaryDirectory() as directory:
        store = ArrayStore(Path(directory))
        forms = {name: forms_of(name, store) for name in VALUES} | {
            f"in its space: {name}": forms_in_space(name, store) for name in IN_SPACE
        }
    EXPECTED.write_text(json.dumps(forms, indent=1) + "\n")
