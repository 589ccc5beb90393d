"""Script, versions and git commit are recorded, and no secrets."""

import json
import platform
import subprocess
import sys
import types

import pytest

from tests.waiting import wait_until
from tuner.spec import environment
from tuner.spec.environment import (
    EnvironmentRecorder,
    differences,
    git_state,
    loaded_packages,
    without_secrets,
)
from tuner.spec.experiment_spec import derived_seed
from tuner.storage.declaration import read_environments


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["--lr", "0.1", "--max-tokens", "100", "--author", "me", "data.csv"], None),
        (["--password", "hunter2", "--lr", "1"], ["--password", "***", "--lr", "1"]),
        (
            ["--api-key=k1", "--apiKey", "k2", "--hub_token=k3"],
            ["--api-key=***", "--apiKey", "***", "--hub_token=***"],
        ),
        (["+db.password=x", "model.lr=0.1"], ["+db.password=***", "model.lr=0.1"]),
        (["--use-token", "--lr", "1"], None),
        (["--db", "postgres://me:pw@host/x"], ["--db", "postgres://***@host/x"]),
        (["hf_abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrst"], ["***", "***"]),
        (
            ["-p", "swordfish", "--url=https://host/?x=swordfish"],
            ["-p", "***", "--url=https://host/?x=***"],
        ),
        (["-p", "from-a-secret"], ["-p", "***"]),
        (["-p", "sticklefish"], ["-p", "***"]),
        (["--data", "/home/me/project/data.csv"], None),
        (["--pwd", "hunter2"], ["--pwd", "***"]),
        (["-pSECRET", "-ph4nter2", "-u", "me"], ["-p***", "-p***", "-u", "me"]),
        (
            ["-p8080", "-p0.5", "-patience", "5", "-p./here", "-pTrue", "-p1,2", "-patience=5X"],
            None,
        ),
        (["--wandb", "SECRET", "--hf=S3cret-x"], ["--wandb", "***", "--hf=***"]),
        (["--wandb", "my-project", "--wandb=offline", "--wandb", "1", "--wandb", "True"], None),
        (["--wandb-project", "Digits-2", "--wandb", "--lr", "1"], None),
        (["--wandb-key", "k1", "--openai_key=k2"], ["--wandb-key", "***", "--openai_key=***"]),
        (
            ["--lr", "1", "--note", "with open-sesame in it"],
            ["--lr", "1", "--note", "with *** in it"],
        ),
    ],
)
def test_arguments_that_look_like_secrets_are_withheld(arguments, kept):
    environ = {
        "DB_PASSWORD": "swordfish",
        "PLAIN": "from-a-secret",
        "SHORT_TOKEN": "1",
        "LR": "0.1",
        "PWD": "/home/me/project",
        "PGPASSWORD": "sticklefish",
    }
    found = without_secrets(arguments, ["PLAIN"], environ, values=["open-sesame"])
    assert found == (arguments if kept is None else kept)


def test_versions_are_those_of_loaded_packages_and_nothing_is_imported_for_them(monkeypatch):
    lazy = types.ModuleType("lazy_package")
    lazy.__getattr__ = lambda name: pytest.fail(f"asked for {name}")
    module = types.ModuleType("reported_package")
    module.__version__ = "1.2.3"
    monkeypatch.setitem(sys.modules, "lazy_package", lazy)
    monkeypatch.setitem(sys.modules, "reported_package", module)
    found = loaded_packages()
    assert found["reported_package"] == "1.2.3"
    assert "lazy_package" not in found
    assert {"json", "tuner", "pytest.mark"}.isdisjoint(found)
    assert found["pytest"] == pytest.__version__


@pytest.fixture(scope="module", autouse=True)
def _machine():
    """Have Python find out once what machine this is, for which it starts a process."""
    platform.platform()


@pytest.fixture
def repository(tmp_path):
    """A git repository with a committed script."""

    def git(*arguments):
        command = [
            "git",
            "-c",
            "user.name=me",
            "-c",
            "user.email=me@example.org",
            "-C",
            str(tmp_path),
            *arguments,
        ]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        return ran.stdout.strip()

    git("init", "-q")
    (tmp_path / "train.py").write_text("1\n")
    git("add", "train.py")
    git("commit", "-qm", "first")
    git_state.cache_clear()
    yield tmp_path, git("rev-parse", "HEAD")
    git_state.cache_clear()


@pytest.mark.process
def test_a_clean_tree_is_its_commit(repository):
    folder, commit = repository
    assert git_state(str(folder / "train.py")) == {"commit": commit, "dirty": False}


@pytest.mark.process
def test_a_tree_with_changes_or_an_untracked_script_is_dirty(repository):
    folder, commit = repository
    (folder / "notes.txt").write_text("unknown to git, and not the script\n")
    assert git_state(str(folder / "train.py"))["dirty"] is False
    git_state.cache_clear()
    (folder / "other.py").write_text("2\n")
    assert git_state(str(folder / "other.py")) == {"commit": commit, "dirty": True}
    git_state.cache_clear()
    (folder / "train.py").write_text("3\n")
    assert git_state(str(folder))["dirty"] is True


def test_without_a_repository_git_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_git", lambda *_: pytest.fail("git was asked"))
    assert git_state(str(tmp_path)) is None


def run_session(directory, packages=(), script="/a/train.py", **facts):
    """Record what is known at the end of a session, without the thread that looks earlier."""
    recorder = EnvironmentRecorder(directory)
    recorder._facts |= {"script": script, **facts}
    recorder.add_packages(dict(packages))
    recorder._write()


@pytest.mark.process
def test_the_thread_records_before_the_session_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_DELAY_S", 0.0)
    recorder = EnvironmentRecorder(tmp_path)
    recorder._facts["script"] = "/a/train.py"
    recorder.start()
    wait_until(lambda: read_environments(tmp_path), "the environment")
    recorder.close()


def test_each_session_that_differs_is_kept(tmp_path):
    run_session(tmp_path)
    run_session(tmp_path, began="2031-01-01T00:00:00+00:00")
    assert [session["script"] for session in read_environments(tmp_path)] == ["/a/train.py"]
    run_session(tmp_path, {"late_package": "2.0", "nameless_package": ""}, script="/b/train.py")
    first, second = read_environments(tmp_path)
    assert (first["script"], second["script"]) == ("/a/train.py", "/b/train.py")
    assert second["packages"]["late_package"] == "2.0"
    assert "nameless_package" not in second["packages"]
    assert second["python"]["version"].split(".")[0] == "3"


def test_no_environment_variable_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATABASE", "postgres-at-home")
    run_session(tmp_path)
    assert "postgres-at-home" not in (tmp_path / "environment.json").read_text()


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"script": 1}'])
def test_a_file_that_cannot_be_read_counts_as_empty(tmp_path, text):
    (tmp_path / "environment.json").write_text(text)
    assert read_environments(tmp_path) == []
    run_session(tmp_path)
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 1


def test_a_file_that_is_too_large_is_replaced(tmp_path):
    with (tmp_path / "environment.json").open("wb") as file:
        file.truncate(1 << 42)
    run_session(tmp_path)
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 1


@pytest.mark.process
def test_a_deleted_directory_is_no_error(tmp_path, caplog):
    caplog.set_level("INFO")
    recorder = EnvironmentRecorder(tmp_path / "gone")
    recorder.start()
    recorder.close()
    wait_until(lambda: caplog.messages, "what is printed")
    assert caplog.messages[0].startswith("environment.json could not be written")


def test_differences_are_listed():
    then = {
        "python": {"version": "3.11"},
        "packages": {"torch": "1", "numpy": "2", "gone": "1"},
        "git": {"commit": "a" * 40, "dirty": True},
    }
    now = {
        "python": {"version": "3.12"},
        "packages": {"torch": "2", "numpy": "2", "new": "1"},
        "git": {"commit": "b" * 40, "dirty": False},
    }
    assert differences(then, now) == [
        "Python was 3.11 and is 3.12",
        "torch was 1 and is 2",
        "the git commit was aaaaaaaaaaaa and is bbbbbbbbbbbb",
        "the working tree had changes then that were not committed",
    ]
    assert differences({}, {}) == []


def test_the_seed_of_a_trial_is_the_same_as_in_earlier_releases():
    assert [
        derived_seed(1, "t00000"),
        derived_seed(1, "t00003"),
        derived_seed(2**32 - 1, "t00003"),
    ] == [2334103006, 1656671491, 3364714076]
