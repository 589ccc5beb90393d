"""Commands that are refused before anything starts."""

import pytest

import tuner as tune
from tuner.command import Command


def declare(command, space=None, tune_config=None, **run):
    return tune.Tuner(
        command,
        tune_config=tune_config,
        param_space={"lr": tune.uniform(0, 1)} if space is None else space,
        run_config=tune.RunConfig(name="exp", verbose=0, **run),
    )


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("train.py", b"", 0o644),
        ("run.sh", b"#!/bin/sh\n", 0o755),
        ("plain", b"echo\n", 0o755),
        ("windows", b"#!/bin/sh\r\n", 0o755),
        ("odd", b"#! /no/such -x\n", 0o755),
    ):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(mode)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "must name a program, got nothing"),
        ("train 'x", "must be a command line, .*close the quotes"),
        (["a", 3], "must be a string or words"),
    ],
)
def test_what_is_no_command_is_refused(command, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Command(command)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program {lr}", "the program 'no-such-program' is not found in PATH"),
        ("./no-such.sh {lr}", "'./no-such.sh' is not found in '/"),
        ("./train.py {lr}", "is not executable; write python ./train.py, or make it so with chmod"),
        ("run.sh {lr}", "'run.sh' is not in PATH; write ./run.sh"),
        ("sh trian.sh {lr}", "the script 'trian.sh' of the command is not in"),
        ("sh run.sh {rl}", r"\{rl\} names no parameter.*did you mean \{lr\}"),
        ("sh run.sh", "'lr' is used nowhere in the command"),
        ("./plain {lr}", "'./plain' has no first line .*, or write sh ./plain"),
        ("./windows {lr}", "the lines of './windows' end as on Windows, .*; convert it"),
        ("./odd {lr}", "the interpreter '/no/such', which is not there"),
        (["sh run.sh {lr}"], "is one word, 'sh run.sh {lr}'; leave out the quotes"),
        ("sh run.sh {lr} | tee log", r"'\|' means something to a shell only, .* with shell=True"),
        ("cd data && sh run.sh {lr}", "'&&' means something to a shell only"),
        ("cd {lr}", "'cd' means something to a shell only"),
        ("DEVICE=0 sh run.sh {lr}", "'DEVICE=0' is no program; .*--env DEVICE=0"),
    ],
)
def test_a_command_that_cannot_run_is_refused_before_anything_starts(command, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        declare(Command(command), storage_path=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_parameter_that_is_used_nowhere_is_refused_where_no_space_was_declared():
    with pytest.raises(ValueError, match="'lr' is used nowhere in the command, which names"):
        Command("sh run.sh --lr {rl}")({"lr": 1})


def test_the_checks_hold_with_resources_as_well(tmp_path):
    command = tune.with_resources(Command("sh run.sh {rl}"), {"cpu": 2})
    with pytest.raises(ValueError, match="did you mean"):
        declare(command, storage_path=tmp_path / "results")


def test_a_working_directory_has_to_be_there():
    with pytest.raises(ValueError, match="cwd must be a directory, got '/no/such"):
        declare(Command("true {lr}", cwd="/no/such"))


def test_trials_that_run_at_once_must_report_in_different_files():
    shared = Command("true {lr}", report_file="log.csv")
    with pytest.raises(ValueError, match=r"'log.csv' would be the same .* \{trial_dir\}/log.csv"):
        declare(shared)
    declare(shared, tune_config=tune.TuneConfig(max_concurrent_trials=1))
    declare(Command("true {lr}", report_file="{trial_dir}/log.csv"))


def test_variables_must_differ():
    command = Command("true", variables=True)
    with pytest.raises(ValueError, match="would both be the variable TUNER_PARAM_LR"):
        declare(command, {"lr": 1, "LR": 2})


@pytest.mark.parametrize(
    ("command", "saves"),
    [("true", False), ("true {resume_dir}", True), ("true --to={checkpoint_dir}", True)],
)
def test_a_command_with_the_directories_saves(command, saves):
    assert Command(command).saves is saves
    assert Command(command, checkpoints=True).saves


def test_grace_must_be_a_time():
    with pytest.raises(ValueError, match="grace_s must be at least 0 seconds, got -1"):
        Command("true", grace_s=-1)
