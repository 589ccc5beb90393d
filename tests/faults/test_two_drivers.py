"""An experiment has one driver at a time, also when several start at once."""

import multiprocessing
import os
import socket

import pytest

import tuner as tune
from tuner import tuner as face
from tuner.driver.continued import Resumption
from tuner.driver.run import Run
from tuner.errors import ExperimentExists, ExperimentLocked
from tuner.spec.experiment_location import ExperimentLocation

NUM_RACES = int(os.environ.get("TUNER_NUM_RACES", "4"))
"""100 for a thorough look."""


def train(config):
    tune.report({"loss": config["x"]})


def given(storage, **settings):
    run_config = tune.RunConfig(
        storage_path=storage, name="exp", verbose=0, executor="inline", **settings
    )
    return {"param_space": {"x": tune.grid_search([1.0, 2.0])}, "run_config": run_config}


class Meeting(tune.Callback):
    """Keeps the driver that has the lock until all have tried."""

    def __init__(self, barrier):
        self._barrier = barrier

    def setup(self, **info):
        self._barrier.wait()


def contend(storage, start, end, outcomes):
    start.wait()
    try:
        tune.Tuner.restore(storage / "exp", train, **given(storage, callbacks=[Meeting(end)])).fit()
    except ExperimentLocked as refusal:
        end.wait()
        outcomes.put((os.getpid(), str(refusal)))
    else:
        outcomes.put((os.getpid(), "won"))


def test_of_two_concurrent_restores_exactly_one_wins_and_the_error_names_its_process(tmp_path):
    tune.Tuner(train, **given(tmp_path)).fit()
    context = multiprocessing.get_context("fork")
    for _ in range(NUM_RACES):
        start, end, outcomes = context.Barrier(2), context.Barrier(2), context.SimpleQueue()
        drivers = [
            context.Process(target=contend, args=(tmp_path, start, end, outcomes)) for _ in range(2)
        ]
        for driver in drivers:
            driver.start()
        found = dict(outcomes.get() for _ in drivers)
        for driver in drivers:
            driver.join()
        (winner,) = [pid for pid, outcome in found.items() if outcome == "won"]
        (refusal,) = [outcome for outcome in found.values() if outcome != "won"]
        assert set(found) == {driver.pid for driver in drivers}
        assert f"driven by process {winner} on {socket.gethostname()} since 2" in refusal


def test_a_name_that_another_driver_has_used_up_meanwhile_is_not_written_over(
    tmp_path, monkeypatch
):
    genuine = face.new_location

    def found_free_and_then_used(spec):
        directory = genuine(spec)
        with monkeypatch.context() as patch:
            patch.setattr(face, "new_location", genuine)
            tune.Tuner(train, **given(tmp_path)).fit()
        return directory

    monkeypatch.setattr(face, "new_location", found_free_and_then_used)
    with pytest.raises(ExperimentExists):
        tune.Tuner(train, **given(tmp_path)).fit()
    assert (
        tune.Tuner.restore(tmp_path / "exp", train, **given(tmp_path)).get_results().num_terminated
        == 2
    )


def test_a_restore_with_steal_passes_it_to_the_lock(tmp_path, monkeypatch):
    tune.Tuner(train, **given(tmp_path)).fit()
    tuner = tune.Tuner.restore(tmp_path / "exp", train, **given(tmp_path))
    asked = []
    genuine = face.Run.__init__.__globals__["ExperimentLock"]
    monkeypatch.setitem(
        Run.__init__.__globals__,
        "ExperimentLock",
        lambda path, *, steal: asked.append(steal) or genuine(path, steal=steal),
    )
    for steal in (False, True):
        Run(
            tuner._spec,
            ExperimentLocation(tmp_path / "exp"),
            Resumption(tuner._resumption.record, steal=steal),
        ).execute()
    assert asked == [False, True]
