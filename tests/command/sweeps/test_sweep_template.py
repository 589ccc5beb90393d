"""Texts of sweep files: what they say is what was given, in YAML and in TOML."""

import re
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.command.sweeps.sweep_template import Entry, as_toml, as_yaml

PARAGRAPHS = [
    [Entry(note="The command."), Entry("command", "python train.py {args}", "as typed")],
    [
        Entry("report", r"loss: (?P<loss>\S+), it's", "finds the loss"),
        Entry(
            "space", (Entry("lr", 'choice("a", 1e-5)', "rate"), Entry("seed", 1, is_active=False))
        ),
    ],
    [
        Entry("points", [{"lr": "a", "batch-size": 64}]),
        Entry("gpus", 1, "of a trial", is_active=False),
        Entry("scheduler", (Entry("type", "asha"), Entry("max_t", 27)), is_active=False),
    ],
]
SAID = {
    "command": "python train.py {args}",
    "report": r"loss: (?P<loss>\S+), it's",
    "space": {"lr": 'choice("a", 1e-5)'},
    "points": [{"lr": "a", "batch-size": 64}],
}


@pytest.mark.parametrize(("write", "read"), [(as_yaml, yaml.safe_load), (as_toml, tomllib.loads)])
def test_a_file_says_what_is_active(write, read):
    assert read(write(["A sweep."], PARAGRAPHS)) == SAID


@pytest.mark.parametrize(("write", "read"), [(as_yaml, yaml.safe_load), (as_toml, tomllib.loads)])
def test_what_is_commented_out_can_be_uncommented(write, read):
    lines = write([], PARAGRAPHS).splitlines()
    text = "\n".join(
        line.replace("# ", "", 1) if re.match(r" *# .*[]:=]", line) else line for line in lines
    )
    expected = {
        **SAID,
        "space": {**SAID["space"], "seed": 1},
        "gpus": 1,
        "scheduler": {"type": "asha", "max_t": 27},
    }
    assert read(text) == expected


def test_yaml_as_it_looks():
    assert as_yaml(["A sweep.", "", "  tuner run"], PARAGRAPHS) == (
        """\
# A sweep.
#
#   tuner run

# The command.
command: python train.py {args}  # as typed

report: 'loss: (?P<loss>\\S+), it''s'  # finds the loss
space:
  lr: choice("a", 1e-5)  # rate
  # seed: 1

points:
  - {lr: a, batch-size: 64}
# gpus: 1  # of a trial
# scheduler:
#   type: asha
#   max_t: 27
"""
    )


def test_no_line_is_longer_than_a_hundred_columns():
    note = "It is a long story, which nobody reads to the end. " * 4
    paragraphs = [
        [Entry(note=note), Entry("command", "x" * 90, "a note that has no room beside it")]
    ]
    for write in (as_yaml, as_toml):
        assert max(map(len, write([], paragraphs).splitlines())) <= 104


VALUES = st.one_of(
    st.text(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.text(), min_size=1),
    st.lists(st.dictionaries(st.text(), st.integers() | st.text(), min_size=1), min_size=1),
)
NAMES = st.text(min_size=1)


def is_same(found, value):
    return found == value and type(found) is type(value)


@settings(max_examples=examples(300))
@given(NAMES, VALUES, st.text())
def test_any_value_is_read_as_it_was_written(name, value, note):
    """Of YAML and TOML alike, whatever the signs in it."""
    paragraphs = [[Entry(name, value, note), Entry("section", (Entry(name, value, note),))]]
    if name == "section":
        return
    for write, read in ((as_yaml, yaml.safe_load), (as_toml, tomllib.loads)):
        found = read(write([note], paragraphs))
        assert is_same(found[name], value)
        assert is_same(found["section"][name], value)
