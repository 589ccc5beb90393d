"""Commands on experiments in object stores, through a directory that stands for one."""

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tuner as tune
from tuner.cli.app import main
from tuner.errors import ExperimentLocked
from tuner.storage.lock import driver_of
from tuner.stores.object_store import ObjectStore
from tuner.stores.readable_copy import ReadableCopy, refresh
from tuner.stores.remote_lock import RemoteLock

pytestmark = pytest.mark.process

pytest.importorskip("fsspec")


class Counter(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"loss": self.config["x"] / self.n}

    def save_checkpoint(self, directory):
        Path(directory, "n").write_text(str(self.n))

    def load_checkpoint(self, directory):
        self.n = int(Path(directory, "n").read_text())


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the URL of an experiment, of which this machine has nothing else."""
    folder = tmp_path_factory.mktemp("urls")
    tune.Tuner(
        Counter,
        param_space={"x": tune.grid_search([1.0, 2.0])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", seed=1),
        run_config=tune.RunConfig(
            name="digits",
            storage_path=f"file://{folder}/store",
            local_dir=folder / "local",
            stop={"training_iteration": 3},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            executor="inline",
            verbose=0,
        ),
    ).fit()
    shutil.rmtree(folder / "local")
    return f"file://{folder}/store/digits"


@pytest.fixture
def tuner():
    """Return a function that calls the command."""
    return lambda *arguments: CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        (["show", "URL"], 0, "t00001"),
        (["show", "URL", "1"], 0, "URL/t00001"),
        (["best", "URL"], 0, "URL/t00000"),
        (["compare", "URL", "URL"], 0, "digits"),
        (["explain", "URL", "0"], 0, "t00000: TERMINATED after 3 iterations"),
        (["tail", "URL", "0"], 1, "has printed nothing"),
        (["what-if", "URL", "--scheduler", "asha", "--arg", "max_t=3"], 0, "trials"),
        (["export", "URL"], 0, "URL/t00000"),
        (["resume", "URL"], 1, "URL"),
        (["prune", "URL"], 0, "checkpoints superseded  4"),
        (["doctor", "URL"], 0, "6 are whole"),
        (["doctor", "URL", "--deep"], 0, "6 are whole (read and compared"),
        (["stop", "URL"], 3, "experiment URL is not running; resume it with Tuner.restore"),
        (["pause", "URL", "0"], 3, "experiment URL is not running"),
        (["fork", "URL", "0"], 3, "experiment URL is not running"),
        (["resume", "URL", "0"], 3, "experiment URL is not running"),
        (["show", "URL-other"], 2, "there is no experiment in 'URL-other'; tuner ls"),
        (["show", "s3:/bucket"], 2, "path must be a directory, or a"),
    ],
)
def test_commands_take_a_url_for_a_directory(stored, tuner, command, code, expected):
    result = tuner(*(part.replace("URL", stored) for part in command))
    assert result.exit_code == code
    assert expected.replace("URL", stored) in result.output


def test_a_report_is_written_of_an_experiment_in_a_store(stored, tuner, tmp_path):
    pytest.importorskip("plotly")
    assert tuner("report", stored, "-o", str(tmp_path / "report.html")).exit_code == 0
    assert stored in (tmp_path / "report.html").read_text()


def test_ls_lists_the_experiments_below_a_url(stored, tuner):
    (line,) = json.loads(tuner("ls", stored.rpartition("/")[0], "-f", "json").output)
    assert (line["name"], line["state"], line["path"]) == ("digits", "finished", stored)
    assert tuner("ls", f"{stored}-other").exit_code == 1


def test_prune_deletes_checkpoints_in_the_store_and_records_it(stored, tuner, tmp_path):
    source = Path(stored.removeprefix("file://"))
    url = f"file://{tmp_path}/digits"
    shutil.copytree(source, tmp_path / "digits")
    orphan = tmp_path / "digits" / "t00000" / "checkpoint_000009.e1a1" / "n"
    orphan.parent.mkdir()
    orphan.write_text("9")
    assert "are in no record: t00000/checkpoint_000009.e1a1" in tuner("doctor", url).output
    assert tuner("prune", url, "--yes").exit_code == 0
    assert len(list((tmp_path / "digits").glob("t*/checkpoint_*/.manifest.json"))) == 2
    assert not orphan.exists()
    assert tuner("doctor", url).exit_code == 0
    assert "2 are whole" in tuner("doctor", url).output


def test_a_trial_that_is_followed_is_downloaded_again_until_its_driver_ends(stored, tmp_path):
    shutil.copytree(stored.removeprefix("file://"), tmp_path / "digits")
    url = f"file://{tmp_path}/digits"
    lock = RemoteLock(ObjectStore(url))
    lock.acquire()
    copy = ReadableCopy(url)
    assert driver_of(copy.directory).pid == os.getpid()
    (tmp_path / "digits" / "t00000" / "stdout").write_text("more\n")
    lock.release()
    refresh(copy.directory, "t00000")
    assert (copy.directory / "t00000" / "stdout").read_text() == "more\n"
    assert driver_of(copy.directory) is None


def test_prune_of_a_running_experiment_says_to_wait_or_to_stop_it(stored, tuner, tmp_path):
    shutil.copytree(stored.removeprefix("file://"), tmp_path / "digits")
    url = f"file://{tmp_path}/digits"

    def refuse(self):
        raise ExperimentLocked("take it over with steal=True")

    RemoteLock(ObjectStore(url)).acquire()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteLock, "acquire", refuse)
        result = tuner("prune", url, "--yes")
    assert result.exit_code == 3
    assert f"is driven by process {os.getpid()}" in result.output
    assert f"wait for it, or end it with tuner stop {url}" in result.output
    assert "steal" not in result.output


def test_a_damaged_declaration_in_a_store_is_named_by_its_url(stored, tuner, tmp_path):
    shutil.copytree(stored.removeprefix("file://"), tmp_path / "digits")
    (tmp_path / "digits" / "experiment.json").write_text("{")
    result = tuner("show", f"file://{tmp_path}/digits")
    assert result.exit_code == 3
    assert f"file://{tmp_path}/digits/experiment.json" in result.output
    assert "tuner-copy" not in result.output
    assert "instead" not in result.output


def test_doctor_checks_a_store_without_an_experiment_and_leaves_nothing_there(tuner, tmp_path):
    result = tuner("doctor", "--storage", f"file://{tmp_path}/store", "-f", "json")
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert [(one["subject"], one["level"]) for one in found] == [
        ("versions", "ok"),
        ("access", "ok"),
        ("locks", "ok"),
    ]
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_doctor_names_what_a_store_cannot_do(tuner, tmp_path, monkeypatch):
    def overwrite(self, key, content):
        self.put(key, content)

    monkeypatch.setattr("tuner.maintenance.store_check._RETRY_S", 0.0)
    (tmp_path / "file").touch()
    result = tuner("doctor", "--storage", f"file://{tmp_path}/file/store")
    assert result.exit_code == 1
    assert "error    access" in result.output
    monkeypatch.setattr("tuner.stores.object_backends.LocalObjects.create", overwrite)
    result = tuner("doctor", "--storage", f"file://{tmp_path}/store")
    assert result.exit_code == 1
    assert "cannot create an object only if it does not exist" in result.output


@pytest.mark.parametrize("arguments", [[], ["--storage", "here"]])
def test_doctor_refuses_what_names_neither_experiment_nor_store(tuner, arguments):
    assert tuner("doctor", *arguments).exit_code == 2
