"""Data frames of results name the column that is meant by one that they lack."""

import pickle

import pandas as pd
import pytest

import tuner as tune
from tuner import RunConfig, TuneConfig, Tuner


def train(config):
    tune.report({"val": {"loss": config["lr"]}})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return Tuner(
        train,
        param_space={"lr": tune.grid_search([0.1, 0.2]), "model": {"depth": 3}},
        tune_config=TuneConfig(metric="val/loss", mode="min"),
        run_config=RunConfig(
            storage_path=tmp_path_factory.mktemp("frames"), name="x", verbose=0, executor="inline"
        ),
    ).fit()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "config/lr"),
        ("model/depth", "config/model/depth"),
        ("depth", "config/model/depth"),
        ("loss", "val/loss"),
        ("config/lrr", "config/lr"),
    ],
)
def test_a_column_under_another_name_is_named(results, name, meant):
    frames = [
        results.get_dataframe(),
        results.get_metrics_dataframe(),
        results[0].metrics_dataframe,
    ]
    for frame in frames:
        with pytest.raises(KeyError, match=f"no column '{name}'; did you mean '{meant}'?"):
            frame[name]


def test_it_is_a_frame_like_any_other(results):
    frame = results.get_dataframe()
    assert frame["config/lr"].tolist() == [0.1, 0.2]
    assert frame[["config/lr", "val/loss"]].shape == (2, 2)
    assert len(frame[frame["config/lr"] > 0.1]) == 1
    with pytest.raises(KeyError, match=r"^'xyzzy'$"):
        frame["xyzzy"]
    assert type(frame.sort_values("val/loss")) is pd.DataFrame
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(frame)), frame)  # noqa: S301
