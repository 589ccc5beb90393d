"""Experiments written by earlier releases open and continue; those of later formats are refused."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from tuner.errors import StorageError
from tuner.journal.reader import recover
from tuner.journal.writer import Journal
from tuner.storage import strict_json

GOLDEN = Path(__file__).parent / "golden"
RELEASES = sorted(path.name for path in GOLDEN.glob("release_*"))
STORES = sorted(path.name for path in GOLDEN.glob("store_*"))


@pytest.fixture(scope="module")
def made():
    """Return the module that made the golden folders, whose arguments restores need."""
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def experiment(request, tmp_path):
    shutil.copytree(GOLDEN / request.param, tmp_path / "exp")
    return tmp_path / "exp"


def restore(made, experiment):
    return tune.Tuner.restore(experiment, made.train, **made.declaration(experiment.parent))


@pytest.mark.parametrize("experiment", RELEASES, indirect=True)
def test_an_experiment_of_each_release_opens_and_finishes(made, experiment):
    before = restore(made, experiment).get_results()
    assert losses(before) == [[2.0, 1.0, 2 / 3, 0.5], [4.0, 2.0]]
    check_finished(made, restore(made, experiment).fit())


@pytest.mark.parametrize("experiment", STORES, indirect=True)
def test_an_experiment_of_each_release_in_a_store_opens_and_finishes(made, experiment, tmp_path):
    pytest.importorskip("fsspec")
    url = experiment.as_uri()
    before = [[2.0, 1.0, 2 / 3, 0.5], [4.0, 2.0, 4 / 3, 1.0], [6.0, 3.0]]
    assert losses(tune.ResultGrid.from_directory(url)) == before
    declared = made.declaration(tmp_path.as_uri(), local_dir=tmp_path / "machine")
    check_finished(made, tune.Tuner.restore(url, made.train, **declared).fit())
    assert losses(tune.ResultGrid.from_directory(url))[:2] == before[:2]


def losses(grid):
    return [result.metrics_dataframe["loss"].tolist() for result in grid]


def check_finished(made, grid):
    assert (grid.num_terminated, len(grid)) == (3, 3)
    for number, result in enumerate(grid, start=1):
        frame = result.metrics_dataframe
        assert frame["loss"].tolist() == pytest.approx([2 * number / step for step in range(1, 5)])
        assert set(frame["bound"]) == {float("-inf")}
        assert set(frame["deep/er"]) == {2}
        assert result.config["f"] is made.scale
        assert result.config["shape"] == (2, 3)
        assert np.array_equal(result.config["data"], np.arange(3.0))
        with result.checkpoint.as_directory() as directory:
            assert Path(directory, "step").read_text() == "4"


def test_there_are_folders_of_this_release():
    assert f"release_{tune.__version__}" in RELEASES
    assert f"store_{tune.__version__}" in STORES


def written_by_a_later_release(experiment, **changes):
    path = experiment / "experiment.json"
    text = strict_json.checked(strict_json.loads(path.read_text())) | {"release": "9.8.7"} | changes
    path.write_text(strict_json.dumps(strict_json.signed(text)))


@pytest.mark.parametrize("experiment", RELEASES[-1:], indirect=True)
def test_a_later_format_is_refused_by_the_version_that_wrote_it(made, experiment):
    written_by_a_later_release(experiment, format_version=99)
    with pytest.raises(
        StorageError,
        match=r"was written by version 9\.8\.7 of tuner-hpo in format 99, .* update tuner-hpo",
    ):
        restore(made, experiment)


@pytest.mark.parametrize("experiment", RELEASES[-1:], indirect=True)
@pytest.mark.parametrize(
    "record", [{"k": "teleported", "id": "t00000"}, {"k": "started", "id": "t00000"}]
)
def test_a_record_of_a_later_release_is_refused_by_the_version_that_wrote_it(
    made, experiment, record
):
    with Journal(experiment, recover(experiment)) as journal:
        journal.append({"t": 99.0, **record})
    written_by_a_later_release(experiment)
    with pytest.raises(
        StorageError,
        match=rf"record \d+ .*{record['k']}.* was written by version 9\.8\.7 of tuner-hpo, this is "
        r"version",
    ):
        restore(made, experiment).get_results()
