"""The command as a whole: help, errors, exit codes, completion."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tuner.cli import app, main
from tuner.cli.app import COMMANDS
from tuner.version import __version__


def test_help_lists_every_command_and_fits_80_columns(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("--help").stdout.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  ") and line.split()}
    assert set(COMMANDS) <= listed
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_that_begins_with_what_the_list_says_of_it(name, call):
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command.name == name
    told = call(name, "--help").stdout
    assert "Example" in told
    assert command.help.split()[0] == COMMANDS[name].help.split()[0]


def modules_loaded_by(*arguments):
    """Run the command in a fresh interpreter and return what it has imported."""
    script = (
        "import sys\ntry:\n    from tuner.cli import main; main(sys.argv[1:])\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return set(done.stderr.split())


@pytest.mark.process
def test_the_help_imports_nothing_that_it_does_not_need():
    loaded = modules_loaded_by("--help")
    assert "tuner.cli.app" in loaded
    assert loaded.isdisjoint(
        {
            "numpy",
            "pandas",
            "rich",
            "optuna",
            "torch",
            "tuner.storage",
            "tuner.core",
            "schedulers",
            "searchers.searcher",
            "searchers.space",
        }
    )


@pytest.mark.process
def test_looking_at_experiments_imports_neither_pandas_nor_a_search_library(plain):
    assert modules_loaded_by("show", plain).isdisjoint(
        {"pandas", "optuna", "torch", "plotly", "tensorboardX"}
    )


def test_the_version_is_told(call):
    assert __version__ in call("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lss",), "Did you mean 'ls'"),
        (("ls", "--sortt", "x"), "--sortt"),
        (("show", "nowhere"), "there is no experiment 'nowhere'"),
        (("show",), "EXP"),
        (("ls", "nowhere"), "nowhere"),
        (("show", "plain", "--filter", "loss"), "is not a condition"),
        (("show", "plain", "--sort", "los"), "did you mean 'loss'"),
        (("show", "plain", "--columns", "momentum"), "there is no column 'momentum'"),
        (("show", "plain", "--format", "xml"), "none of table, csv and json"),
        (("show", "plain", "--rows"), "--rows needs TRIAL"),
        (
            ("show", "plain", "9"),
            "there is no trial '9' in plain; there are t00000, t00001, t00002",
        ),
        (("explain", "plain", "t0"), "the beginning of 3 trials"),
        (("prune", "plain", "--yes", "--dry-run"), "must not both be given"),
        (("export", "plain", "-o", "table.xls"), ".parquet"),
        (("export", "plain", "--to", "parquet"), "needs a file"),
        (
            ("export", "plain", "-o", "nowhere/table.csv"),
            "folder 'nowhere' does not exist; make it, or choose another path",
        ),
        (("report", "plain", "-o", "nowhere/report.html"), "folder 'nowhere' does not exist"),
        (("show", "plain", "-f", "nowhere/table.csv"), "folder 'nowhere' does not exist"),
        (("show", "plain", "--filter", "loss => 3"), "write >= for =>"),
        (("show", "plain", "--filter", "loss =< 3"), "write <= for =<"),
        (("show", "plain", "0", "--sort", "loss"), "need --rows if TRIAL is given"),
        (("show", "plain", "0", "--columns", "iter"), "need --rows if TRIAL is given"),
        (
            ("show", "plain", "--metric", "nope"),
            "no trial has reported 'nope'; reported were loss, val/acc",
        ),
        (("report", "plain", "--metric", "nope"), "no trial has reported 'nope'"),
        (("compare", "plain", "--metric", "nope"), "no trial has reported 'nope'"),
        (("dash", "plain", "--metric", "nope"), "no trial has reported 'nope'"),
        (("what-if", "plain", "--scheduler", "asha", "--arg", "max_t"), "NAME=VALUE"),
    ],
)
def test_an_invalid_command_line_prints_one_line_and_exits_with_2(call, plain, arguments, told):
    done = call(*arguments, code=2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert done.stderr.startswith("tuner")


def test_what_cannot_be_read_is_told_in_one_line_and_ends_with_3(call, plain):
    (plain / "experiment.json").write_text("{}")
    done = call("explain", "plain", "0", code=3)
    assert len(done.stderr.splitlines()) == 1
    assert "experiment.json cannot be read" in done.stderr


def test_a_directory_without_an_experiment_says_where_to_look(call, plain):
    assert (
        f"tuner ls {plain.parent} lists those below it" in call("show", plain.parent, code=2).stderr
    )


@pytest.mark.parametrize("text", ["1", "t00001", "t00001 "[:6]])
def test_a_trial_is_named_by_its_id_or_number(call, plain, text):
    assert "t00001" in call("show", "plain", text).stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["ex"], "explain"),
        (["show", "pla"], "plain"),
        (["show", "plain", "t0000"], "t00002"),
        (["show", "--lim"], "--limit"),
        (["show", "plain", "--format", "c"], "csv"),
    ],
)
def test_the_shell_completes_commands_experiments_trials_options_and_formats(
    call, plain, monkeypatch, typed, expected
):
    monkeypatch.setenv("_TUNER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["tuner", *typed]))
    monkeypatch.setenv("COMP_CWORD", str(len(typed)))
    assert f"plain,{expected}" in call().stdout.split()


GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_guide_has_a_section_for_each_command_with_all_its_options(name):
    (section,) = [part for part in GUIDE.split("\n## ") if part.startswith(f"`tuner {name}`\n")]
    command = main.get_command(click.Context(main), name)
    options = [
        next(text for text in option.opts if text.startswith("--"))
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert [
        option for option in options if f"`{option}" not in section and f" {option} " not in section
    ] == []


def test_the_guide_has_every_exit_code():
    codes = {"OK", "FOUND", "USAGE", "UNREADABLE", "INTERRUPTED", "BROKEN_PIPE"}
    assert [code for code in codes if f"\n| {getattr(app, code)} | " not in GUIDE] == []


def test_names_that_other_tools_have_lead_to_ours(call, plain):
    assert call("tail", "plain", 0, code=1).stderr == "tuner tail: t00000 has printed nothing\n"
    assert call("logs", "plain", 0, code=1).stderr == "tuner logs: t00000 has printed nothing\n"
    assert call("logs", "plain", "--nope", code=2).stderr.startswith("tuner logs: ")
    columns = ("--columns", "name,state")  # not those of time, which passes
    assert call("list", plain, *columns).stdout == call("ls", plain, *columns).stdout
