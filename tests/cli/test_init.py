"""``tuner init``: where it writes, and what it refuses."""

import json
import re

import pytest

SCRIPT = """
parser.add_argument("--lr", type=float, default=1e-3)
print(f"val_loss {loss}")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    return tmp_path


def test_the_file_lies_beside_the_script(call, folder):
    done = call("init", "code/train.py")
    assert done.stdout == (
        "code/sweep.yaml is written; try it: tuner run code/sweep.yaml --dry-run\n"
    )
    assert "command: python code/train.py {args}" in (folder / "code/sweep.yaml").read_text()


def test_what_is_written_can_be_tried(call):
    call("init", "code/train.py")
    assert "python code/train.py --lr 0.001\n" in call("run", "code/sweep.yaml", "--dry-run").stdout


@pytest.mark.parametrize("file", ["sweep.yaml", "sweep.toml"])
def test_constraints_are_there_to_be_uncommented(call, folder, file):
    call("init", "code/train.py", "-o", file)
    text = (folder / file).read_text()
    (line,) = [line for line in text.splitlines() if "size_mb" in line]
    assert line.startswith("# ")
    (folder / file).write_text(text.replace(line, line.removeprefix("# ")))
    told = call("run", file, "--dry-run").stdout
    assert re.search(r"constraints +size_mb <= 4\n", told)


def test_a_file_is_not_overwritten_unless_that_is_asked_for(call, folder):
    (folder / "code" / "sweep.yaml").write_text("mine")
    refused = call("init", "code/train.py", code=2).stderr
    assert "'code/sweep.yaml' exists; overwrite it with --force" in refused
    assert (folder / "code" / "sweep.yaml").read_text() == "mine"
    call("init", "code/train.py", "--force")
    assert "metric: val_loss" in (folder / "code" / "sweep.yaml").read_text()


def test_another_file(call, folder):
    call("init", "code/train.py", "-o", "digits.toml")
    assert 'metric = "val_loss"' in (folder / "digits.toml").read_text()


def test_printing(call, folder):
    assert "metric: val_loss" in call("init", "code/train.py", "-o", "-").stdout
    assert not (folder / "code" / "sweep.yaml").exists()


def test_a_command(call, folder):
    done = call("init", "--", "./train", "--lr", "{lr}")
    assert "edit its 3 lines with TODO, then try it" in done.stdout
    assert "command: ./train --lr {lr}\n" in (folder / "sweep.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "there is no program to write a sweep file for; name a Python script"),
        (("none.py",), "there is no script 'none.py'; write a command"),
        (("code",), "there is no script 'code'"),
        (("code/train.py", "-o", "a.txt"), "FILE must end in .yaml, .yml, .toml, or be -"),
        (("code/train.py", "-o", "none/a.yaml"), "folder 'none' does not exist"),
        (("code/train.py", "--frce"), "--force"),
    ],
)
def test_refusals(call, arguments, told):
    assert told in call("init", *arguments, code=2).stderr


def test_a_script_that_is_no_python(call, folder):
    (folder / "train.sh").write_text("echo loss | awk '{print $1}'")
    refused = call("init", "train.sh", code=2).stderr
    assert "train.sh:1: this is no Python that can be read" in refused
    assert "write its command after --" in refused


TRAIN = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
for epoch in range(1, args.epochs + 1):
    print(f"Epoch {epoch}/{args.epochs}: loss={1 / epoch + args.lr:.4f}")
"""
WANDB = """
program: train.py
method: grid
metric: {name: loss}
parameters:
  lr: {values: [0.5, 0.25]}
  epochs: {value: 2}
"""


@pytest.mark.process
def test_a_script_is_tuned_as_it_is(call, folder, storage):
    (folder / "train.py").write_text(TRAIN)
    call("init", "train.py")
    call("run", "sweep.yaml", "-n", 2, "--name", "digits", "--total-resources", "cpu=1")
    first = json.loads(call("show", "digits", "0", "--format", "json").stdout)
    assert (first["config/lr"], first["loss"], first["epoch"]) == (0.001, 0.3343, 3)


@pytest.mark.process
def test_a_sweep_of_wandb_runs_where_the_script_prints_its_metric(call, folder, storage):
    (folder / "train.py").write_text(TRAIN)
    (folder / "wandb.yaml").write_text(WANDB)
    done = call("run", "wandb.yaml", "--name", "grid", "--total-resources", "cpu=2")
    assert "loss is taken from what train.py prints in line 9." in done.stdout
    best = json.loads(call("best", "grid", "--format", "json").stdout)
    assert best["loss"] == 0.75
