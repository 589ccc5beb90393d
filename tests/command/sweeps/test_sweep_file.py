"""Sweep files, as they are written: values, lines of keys, and what is refused."""

import pytest

from tuner.command.sweeps.sweep_file import Section, parsed, plain


@pytest.fixture
def read(write):
    """Writes a file into the working directory and returns what it contains."""
    return lambda *file: parsed(write(*file))


YAML = """\
# a sweep
command: python train.py --lr {lr} --width {model.width}
space:
  lr: loguniform(1e-5, 1e-1)

  model:
    width: choice(64, 128)
scheduler: {type: asha, max_t: 27}
points:
  - lr: 0.1
  - {lr: 1e-3}
"""
TOML = """\
# a sweep; space = 3 is a comment
command = "python train.py --lr {lr} --width {model.width}"
points = [{ lr = 0.1 }, { lr = 1e-3 }]
scheduler.type = "asha"
scheduler.max_t = 27

[space]
lr = "loguniform(1e-5, 1e-1)"

[space.model]
width = "choice(64, 128)"
"""


@pytest.mark.parametrize(("text", "name"), [(YAML, "sweep.yaml"), (TOML, "sweep.toml")])
def test_yaml_and_toml_say_the_same(read, text, name):
    assert plain(read(text, name)) == {
        "command": "python train.py --lr {lr} --width {model.width}",
        "space": {"lr": "loguniform(1e-5, 1e-1)", "model": {"width": "choice(64, 128)"}},
        "scheduler": {"type": "asha", "max_t": 27},
        "points": [{"lr": 0.1}, {"lr": 0.001}],
    }


def test_each_key_of_yaml_has_its_line(read):
    keys = read(YAML)
    assert keys.place("space") == "sweep.yaml:3"
    assert keys["space"].place("lr") == "sweep.yaml:4"
    assert keys["space"]["model"].place("width") == "sweep.yaml:7"
    assert keys["scheduler"].place("max_t") == "sweep.yaml:8"
    assert keys["points"][1].place("lr") == "sweep.yaml:11"


def test_each_key_of_toml_has_its_line(read):
    keys = read(TOML, "sweep.toml")
    assert keys.place("space") == "sweep.toml:7"
    assert keys["space"].place("lr") == "sweep.toml:8"
    assert keys["space"]["model"].place("width") == "sweep.toml:11"
    assert keys["scheduler"].place("max_t") == "sweep.toml:5"
    assert keys["points"][0].place("lr") == "sweep.toml:3"


def test_a_key_without_a_line_is_in_the_file(read):
    assert read("a: 1").place("b") == "sweep.yaml"
    assert str(read("a: 1").refusal("a", "it is odd")) == "sweep.yaml:1: it is odd"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        ("'1e-3'", "1e-3"),
        ("1.5", 1.5),
        ("07", 7),
        ("true", True),
        ("", None),
        ("2024-05-01", "2024-05-01"),
        ("python a.py --lr {lr}", "python a.py --lr {lr}"),
        ("[a, 1, [2]]", ["a", 1, [2]]),
    ],
)
def test_values_of_yaml(read, text, value):
    assert read(f"key: {text}")["key"] == value


def test_a_date_of_toml_is_a_text(read):
    assert read("day = 2024-05-01", "sweep.toml")["day"] == "2024-05-01"


def test_keys_of_yaml_are_texts(read):
    assert read("on: 1\n2: b\nnull: c") == {"on": 1, "2": "b", "null": "c"}


def test_aliases_and_merged_keys_of_yaml(read):
    keys = read("base: &base\n  a: 1\n  b: 2\nother:\n  <<: *base\n  b: 3\n")
    assert keys["other"] == {"a": 1, "b": 3}
    assert keys["other"].lines == {"<<": 5, "a": 2, "b": 6}


def test_a_value_that_aliases_make_huge_is_there_once(read):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    keys = read("\n".join(lines))
    assert keys["a59"][0] is keys["a59"][1]


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_file_has_no_keys(read, text):
    assert read(text) == {}
    assert isinstance(read(text), Section)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3", "sweep.yaml:3: 'a' is there twice, first in line 1"),
        ("a: 1\nb: [1, 2", "sweep.yaml:2: this is no YAML"),
        ("a: 1\n\tb: 2", "sweep.yaml:2: this is no YAML"),
        ("a: 1\n---\nb: 2", "sweep.yaml:2: this is no YAML"),
        ("a: 1\nb: !!python/name:os.system x", "sweep.yaml:2: a sweep file has texts, numbers"),
        ("a: !!set {b}", "got the tag 'tag:yaml.org,2002:set'"),
        ("a: &a [*a]", "sweep.yaml:1: a value must not contain itself"),
        ("? [a, b]\n: 1", "sweep.yaml:1: a key must be a name"),
        ("- a\n- b", "sweep.yaml: a sweep file has lines KEY: VALUE, got ['a', 'b']"),
        ("a: !!int x", "sweep.yaml:1: 'x' is no value"),
        ("a: \x07", "sweep.yaml: this is no YAML"),
    ],
)
def test_what_is_no_yaml_or_no_sweep_is_refused_with_its_line(read, text, told):
    with pytest.raises(ValueError) as refusal:
        read(text)
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb = ", "sweep.toml:2: this is no TOML: Invalid value"),
        ("a = 1\na = 2", "sweep.toml:2: this is no TOML: Cannot overwrite a value"),
        ("a = 1\nb: 2", "sweep.toml:2: this is no TOML"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(read, text, told):
    with pytest.raises(ValueError) as refusal:
        read(text, "sweep.toml")
    assert told in str(refusal.value)


def test_a_script_in_place_of_a_file_is_refused_with_the_remedy(read):
    with pytest.raises(ValueError, match=r"train\.py: a sweep file must end in .* write -- before"):
        read("print(1)", "train.py")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "sweep.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ValueError, match="byte 3 is not UTF-8"):
        parsed(tmp_path / "sweep.yaml")
