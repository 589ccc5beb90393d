"""A single result by its URL."""

from pathlib import Path

import pytest

import tuner as tune
from tuner.errors import StorageError

pytestmark = pytest.mark.process

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    def train(config):
        for step in (1, 2):
            with tune.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step))
                tune.report({"loss": config["x"] / step}, tune.Checkpoint.from_directory(directory))

    root = tmp_path_factory.mktemp("stored")
    run_config = tune.RunConfig(
        name="größe 1",
        storage_path=f"file://{root}/store",
        local_dir=root / "local",
        verbose=0,
        executor="inline",
    )
    space = {"x": tune.grid_search([4.0, 2.0])}
    tune.Tuner(train, param_space=space, run_config=run_config).fit()
    return f"file://{root}/store/größe 1"


@pytest.mark.parametrize("end", ["", "/"])
def test_a_trial_is_read_by_its_url(url, end):
    result = tune.Result.from_path(f"{url}/t00001{end}")
    assert (result.trial_id, result.config, result.metrics["loss"]) == ("t00001", {"x": 2.0}, 1.0)
    assert result.path == f"{url}/t00001"
    assert result.ending is not None
    assert len(result.metrics_dataframe) == 2
    with result.checkpoint.as_directory() as directory:
        assert Path(directory, "step").read_text() == "2"


def test_a_file_system_may_be_given(url):
    local = fsspec.filesystem("file")
    path = f"{url.removeprefix('file://')}/t00000"
    assert tune.Result.from_path(path, storage_filesystem=local).config == {"x": 4.0}


@pytest.mark.parametrize("rest", ["/t00009", "/t00000/checkpoint_000000", "", "/"])
def test_what_is_no_trial_is_refused(url, rest):
    with pytest.raises((FileNotFoundError, StorageError), match=r"no experiment|URL of a trial"):
        tune.Result.from_path(url + rest)
