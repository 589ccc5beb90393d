"""Files that the callbacks of frameworks save are found by their names."""

import pytest

import tuner as tune
from tuner.integration import reporting

pytestmark = pytest.mark.process


def test_a_missing_file_of_a_checkpoint_is_named(tmp_path):
    seen = []

    def train(config):
        reporting.report_saved(
            {"loss": 1.0}, lambda directory: (directory / "state").write_text("x")
        )
        seen.append(reporting.latest_file("state").read_text())
        with pytest.raises(FileNotFoundError, match="holds no 'other'; give the filename"):
            reporting.latest_file("other")

    result = tune.Tuner(
        train, run_config=tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
    ).fit()[0]
    assert result.error is None
    assert seen == ["x"]
