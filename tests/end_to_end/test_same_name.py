"""Scripts run twice under the same experiment name, and names with several folders."""

import numpy as np
import pytest
from click.testing import CliRunner

import tuner as tune
from tuner.cli.app import main
from tuner.errors import ExperimentExists, ExperimentLocked, StorageError
from tuner.journal import removal
from tuner.storage.lock import ExperimentLock


def train(config):
    tune.report({"loss": config["x"]})


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a script's experiment under `tmp_path`, in this process."""

    def runs(name="exp", x=1.0, trainable=train, verbose=0, **options):
        run_config = tune.RunConfig(
            name=name, storage_path=tmp_path, verbose=verbose, executor="inline", **options
        )
        return tune.Tuner(
            trainable, param_space={"x": x, "big": np.zeros(30_000)}, run_config=run_config
        ).fit()

    return runs


def losses_in(path):
    return [result.metrics["loss"] for result in tune.ResultGrid.from_directory(path)]


def test_refusing_is_the_default_and_names_the_ways_out(run, tmp_path):
    run()
    with pytest.raises(ExperimentExists) as refusal:
        run(x=2.0)
    for way_out in (
        "Tuner.restore(",
        'resume="auto"',
        'if_exists="new"',
        'if_exists="replace"',
        "another name",
    ):
        assert way_out in str(refusal.value)
    assert losses_in(tmp_path / "exp") == [1.0]


def test_new_numbers_the_directory_and_logs_the_name(run, tmp_path, capsys):
    paths = [run(x=x, if_exists="new", verbose=1).experiment_path for x in (1.0, 2.0, 3.0)]
    assert paths == [str(tmp_path / name) for name in ("exp", "exp_2", "exp_3")]
    assert [losses_in(path) for path in paths] == [[1.0], [2.0], [3.0]]
    printed_lines = [line for line in capsys.readouterr().out.splitlines() if "was taken" in line]
    assert len(printed_lines) == 2
    assert str(tmp_path / "exp_3") in printed_lines[1]


def test_replace_removes_what_the_experiment_has_made_and_keeps_what_others_have(
    run, tmp_path, capsys
):
    run("group/exp", x=tune.grid_search([1.0, 2.0, 3.0]))
    mine = tmp_path / "group" / "exp" / "notes.txt"
    mine.write_text("not to be lost")
    run("group/exp", x=7.0, if_exists="replace", verbose=1)
    assert losses_in(tmp_path / "group" / "exp") == [7.0]
    assert mine.read_text() == "not to be lost"
    assert sorted(path.name for path in mine.parent.iterdir()) == [
        "environment.json",
        "experiment.json",
        "journal",
        "lock",
        "notes.txt",
        "objects",
        "snapshot",
        "t00000",
    ]
    assert "has been removed" in capsys.readouterr().out
    assert len(tune.Tuner.restore(mine.parent, train, param_space={"x": 7.0}).get_results()) == 1


def test_replace_begins_where_there_is_nothing_yet(run, tmp_path, capsys):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "data.csv").write_text("1")
    run(if_exists="replace", verbose=1)
    assert losses_in(tmp_path / "exp") == [1.0]
    assert (tmp_path / "exp" / "data.csv").exists()
    assert "removed" not in capsys.readouterr().out


def test_a_running_experiment_is_never_replaced(run, tmp_path):
    run()
    with ExperimentLock(tmp_path / "exp"), pytest.raises(ExperimentLocked):
        run(x=2.0, if_exists="replace")
    assert losses_in(tmp_path / "exp") == [1.0]


def test_what_cannot_begin_replaces_nothing(run, tmp_path):
    run()
    with pytest.raises(ValueError, match="never fit"):
        run(x=2.0, trainable=tune.with_resources(train, {"cpu": 10_000}), if_exists="replace")
    assert losses_in(tmp_path / "exp") == [1.0]


@pytest.mark.parametrize("text", [None, "{}", '{"format_version": 1000}', "not JSON"])
def test_a_directory_not_known_to_be_an_experiment_is_never_removed(run, tmp_path, text):
    run()
    declaration = tmp_path / "exp" / "experiment.json"
    declaration.unlink() if text is None else declaration.write_text(text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError, match="is not removed"):
        run(x=2.0, if_exists="replace")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_removal_that_was_cut_short_can_be_done_again(run, tmp_path, monkeypatch):
    run(x=tune.grid_search([1.0, 2.0]))
    genuine = removal.shutil.rmtree

    def rmtree(path):
        if path.name == "t00001":
            raise OSError("the disk has gone away")
        genuine(path)

    with monkeypatch.context() as patch:
        patch.setattr(removal.shutil, "rmtree", rmtree)
        with pytest.raises(StorageError, match="the disk has gone away"):
            run(x=3.0, if_exists="replace")
    run(x=3.0, if_exists="replace")
    assert losses_in(tmp_path / "exp") == [3.0]


def test_continuing_and_beginning_anew_contradict_each_other(tmp_path):
    run_config = tune.RunConfig(name="exp", storage_path=tmp_path, if_exists="replace")
    with pytest.raises(ValueError, match="pass only one of them"):
        tune.Tuner(train, run_config=run_config, resume="auto")
    with pytest.raises(ValueError, match="'error', 'new', 'replace'"):
        tune.RunConfig(if_exists="overwrite")


@pytest.mark.parametrize(
    "name", ["lr=0.1,bs=32", "my exp", "group/exp", "a/b/c/my exp (2)", "run #3 @host [x]+y"]
)
def test_names_as_people_give_them(run, tmp_path, name):
    path = run(name).experiment_path
    assert path == str(tmp_path / name)
    assert losses_in(path) == [1.0]
    listed = CliRunner().invoke(main, ["ls", str(tmp_path), "-f", "json"]).output
    assert f'"name": "{name}"' in listed
    assert CliRunner().invoke(main, ["show", path]).exit_code == 0


def test_experiments_cannot_be_nested(run, tmp_path):
    run("group/exp")
    for name in ("group", "group/exp/inner"):
        with pytest.raises(ExperimentExists, match="choose another name"):
            run(name)
    assert [path.name for path in tmp_path.iterdir()] == ["group"]


def test_a_folder_that_leads_elsewhere_is_refused(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "group").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is a link"):
        run("group/exp")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_experiment_that_could_not_begin_leaves_no_folders(run, tmp_path):
    with pytest.raises(ValueError, match="never fit"):
        run("group/exp", trainable=tune.with_resources(train, {"cpu": 10_000}))
    assert list(tmp_path.iterdir()) == []
