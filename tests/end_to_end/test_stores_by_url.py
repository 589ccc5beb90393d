"""Stores named as scripts for Ray Tune name them: by options in the URL, or PyArrow's objects."""

import shutil
from pathlib import Path

import pytest

import tuner as tune
from tuner.cli.app import main
from tuner.errors import ExperimentExists, StorageError
from tuner.storage import layout
from tuner.stores.arrow_filesystem import as_fsspec

pytest.importorskip("fsspec")


def train(config):
    for step in (1, 2):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report({"loss": config["x"] / step}, tune.Checkpoint.from_directory(directory))


def run(name, local, **where):
    run_config = tune.RunConfig(name=name, local_dir=local, verbose=0, executor="inline", **where)
    space = {"x": tune.grid_search([4.0, 2.0])}
    return tune.Tuner(train, param_space=space, run_config=run_config).fit()


@pytest.fixture
def bucket(moto, monkeypatch):
    """Return a bucket; nothing but the credentials is in the environment."""
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return moto.make_bucket()


@pytest.mark.heavy
def test_the_options_of_a_url_hold_for_all_that_is_done_with_the_experiment(
    bucket, moto, tmp_path, capsys
):
    options = f"region=us-east-1&endpoint_override={moto.endpoint}"
    grid = run("digits", tmp_path / "first", storage_path=f"{bucket}/dir?{options}")
    assert len(grid) == 2
    url = f"{bucket}/dir/digits?{options}"
    assert tune.Tuner.can_restore(url)
    elsewhere = tune.Tuner.restore(url, train, num_samples=2, local_dir=tmp_path / "second")
    assert len(elsewhere.fit()) == 4
    again = tune.Tuner.restore(tmp_path / "second" / "digits", train)
    assert len(again.get_results()) == 4
    results = tune.ResultGrid.from_directory(url)
    with results[0].checkpoint.as_directory() as directory:
        assert Path(directory, "step").read_text() == "2"
    assert tune.Result.from_path(f"{bucket}/dir/digits/t00001?{options}").metrics["loss"] == 1.0
    for arguments, shown in (
        (["ls", f"{bucket}?{options}"], "dir/digits"),
        (["show", url], "t00003"),
    ):
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
        assert shown in capsys.readouterr().out


def arrow_s3(moto):
    fs = pytest.importorskip("pyarrow.fs")
    environment = moto.environment
    return fs.S3FileSystem(
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        scheme="http",
        endpoint_override=moto.endpoint.removeprefix("http://"),
    )


@pytest.mark.heavy
def test_pyarrows_file_system_is_used_with_its_endpoint_and_credentials(
    bucket, moto, tmp_path, monkeypatch
):
    for name in moto.environment:
        monkeypatch.delenv(name, raising=False)
    filesystem = arrow_s3(moto)
    path = f"{bucket.removeprefix('s3://')}/dir"
    grid = run("arrow", tmp_path / "first", storage_path=path, storage_filesystem=filesystem)
    assert len(grid) == 2
    where = {"storage_filesystem": filesystem}
    assert tune.Tuner.can_restore(f"{path}/arrow", **where)
    restored = tune.Tuner.restore(
        f"{path}/arrow", train, num_samples=2, local_dir=tmp_path / "second", **where
    )
    assert len(restored.fit()) == 4
    result = tune.Result.from_path(f"{path}/arrow/t00000", **where)
    with result.checkpoint.as_directory() as directory:
        assert Path(directory, "step").read_text() == "2"


@pytest.mark.heavy
def test_pyarrows_file_system_of_this_machine_is_a_store(tmp_path):
    fs = pytest.importorskip("pyarrow.fs")
    where = {"storage_path": str(tmp_path / "store"), "storage_filesystem": fs.LocalFileSystem()}
    assert len(run("arrow", tmp_path / "local", **where)) == 2
    assert (tmp_path / "store" / "arrow" / "experiment.json").is_file()


@pytest.mark.heavy
def test_what_pyarrow_has_made_of_fsspecs_is_that_again():
    fs, fsspec = pytest.importorskip("pyarrow.fs"), pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    assert as_fsspec(fs.PyFileSystem(fs.FSSpecHandler(memory))) is memory
    assert as_fsspec(memory) is memory


@pytest.mark.heavy
def test_other_file_systems_of_pyarrow_are_wrapped_and_need_a_lock_of_the_users(tmp_path):
    fs = pytest.importorskip("pyarrow.fs")
    tree = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "store").mkdir()
    where = {"storage_path": "store", "storage_filesystem": tree}
    with pytest.raises(StorageError, match="storage_lock='none'"):
        run("arrow", tmp_path / "local", **where)
    with pytest.warns(RuntimeWarning, match="make sure that only one does"):
        grid = run("arrow", tmp_path / "local", storage_lock="none", **where)
    assert len(grid) == 2
    assert list((tmp_path / "store" / "arrow").glob("journal/*/*.log"))


def test_the_same_name_in_two_buckets_is_two_experiments(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "DEFAULT_STORAGE_PATH", str(tmp_path / "home"))
    urls = [f"file://{tmp_path}/{bucket}/dir" for bucket in ("first", "second", "third")]
    grids = [run("digits", None, storage_path=url) for url in urls[:2]]
    directories = [Path(grid.experiment_path) for grid in grids]
    assert directories[0] == tmp_path / "home" / "digits"
    assert directories[1].name == "digits"
    assert directories[1].parent.parent == tmp_path / "home"
    for url, directory in zip(urls, directories, strict=False):
        restored = tune.Tuner.restore(f"{url}/digits", train, num_samples=2)
        assert len(restored.fit()) == 4
        assert len(tune.Tuner.restore(directory, train).get_results()) == 4
        assert len(tune.ResultGrid.from_directory(f"{url}/digits")) == 4
    # Also beside one that is in no store, and found again where the first one is gone.
    assert len(run("digits", None, storage_path=urls[2])) == 2
    shutil.rmtree(directories[0])
    assert len(tune.Tuner.restore(f"{urls[1]}/digits", train).get_results()) == 4
    assert not directories[0].exists()
    with pytest.raises(ExperimentExists, match="already holds an experiment"):
        run("digits", None, storage_path=urls[1])
