"""Stores named as scripts for Ray Tune name them: by options in the URL, or PyArrow's objects."""

from pathlib import Path

import pytest

import tuner as tune
from tuner.cli.app import main

pytest.importorskip("s3fs")


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
