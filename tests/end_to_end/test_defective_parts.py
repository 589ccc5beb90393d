"""A scheduler, searcher or stopper that raises ends the experiment, which can be restored."""

from pathlib import Path

import pytest

import tuner as tune
from schedulers import Stop
from schedulers.decisions import Reason
from schedulers.scheduler import Scheduler
from searchers import BasicVariantGenerator
from tuner.core.stoppers import Stopper
from tuner.errors import InvalidDecision
from tuner.journal.rows import JournalRows


class Fuse:
    """Raises at one call, counted over all methods that it wraps."""

    def __init__(self, blows_at=0):
        self.num_calls, self.blows_at = 0, blows_at

    def burn(self):
        self.num_calls += 1
        if self.num_calls == self.blows_at:
            raise ZeroDivisionError("a defect")


fuse = Fuse()


def fused(name):
    """Return a method that counts a call and then calls that of its class."""

    def method(self, *arguments, **options):
        fuse.burn()
        return getattr(super(type(self), self), name)(*arguments, **options)

    return method


def brittle(base, *names):
    return type(
        f"Brittle{base.__name__}",
        (base,),
        {"__module__": __name__, **{name: fused(name) for name in names}},
    )


class PlainScheduler(Scheduler):
    def on_trial_result(self, trial, result):
        return (
            [Stop(trial.trial_id, Reason("enough", {"nan": float("nan")}))]
            if result["step"] >= 3 and trial.trial_id == "t00001"
            else ()
        )


class PlainStopper(Stopper):
    def __call__(self, trial_id, result):
        return result["step"] >= 3

    def stop_all(self):
        return False


PARTS = {
    "scheduler": lambda: {
        "scheduler": brittle(
            PlainScheduler, "on_trial_add", "on_trial_result", "on_trial_complete"
        )()
    },
    "searcher": lambda: {
        "search_alg": brittle(
            BasicVariantGenerator, "suggest", "on_trial_result", "on_trial_complete"
        )()
    },
    "stopper": lambda: {"stop": brittle(PlainStopper, "__call__", "stop_all")()},
}


def settings(storage, parts):
    stop = parts.pop("stop", PlainStopper())
    return {
        "param_space": {"x": tune.uniform(0, 1)},
        "tune_config": tune.TuneConfig(
            metric="loss", mode="min", num_samples=3, seed=1, max_concurrent_trials=2, **parts
        ),
        "run_config": tune.RunConfig(
            name="exp", storage_path=storage, verbose=0, executor="inline", stop=stop
        ),
    }


def training(ledger):
    def train(config):
        start = 0
        if checkpoint := tune.get_checkpoint():
            start = int(Path(checkpoint.path, "step").read_text())
        for step in range(start + 1, 5):
            with tune.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step))
                tune.report(
                    {"step": step, "loss": config["x"] / step},
                    checkpoint=tune.Checkpoint.from_directory(directory),
                )
            ledger.append((tune.get_context().get_trial_id(), step))

    return train


def steps_of(grid):
    return {result.trial_id: result.metrics_dataframe["step"].tolist() for result in grid}


@pytest.mark.parametrize("part", PARTS)
def test_at_whichever_call_a_part_raises_nothing_acknowledged_is_lost_and_the_experiment_goes_on(
    tmp_path, monkeypatch, part
):
    monkeypatch.setattr(f"{__name__}.fuse", Fuse())
    expected = steps_of(
        tune.Tuner(training([]), **settings(tmp_path / "whole", PARTS[part]())).fit()
    )
    num_calls = fuse.num_calls
    assert num_calls > 5
    for call in range(1, num_calls + 1):
        storage, ledger = tmp_path / str(call), []
        monkeypatch.setattr(f"{__name__}.fuse", Fuse(call))
        with pytest.raises(ZeroDivisionError, match="a defect") as raised:
            tune.Tuner(training(ledger), **settings(storage, PARTS[part]())).fit()
        assert "what had been reported is kept" in raised.value.__notes__[0]
        monkeypatch.setattr(f"{__name__}.fuse", Fuse())
        if not (storage / "exp").exists():  # it had not even begun
            assert not ledger
            continue
        rows = JournalRows(storage / "exp")
        kept = {
            (trial_id, row["step"])
            for trial_id in ("t00000", "t00001", "t00002")
            for row in rows.of(trial_id)
        }
        assert set(ledger) <= kept, f"lost after call {call}"
        grid = tune.Tuner.restore(
            storage / "exp", training([]), **settings(storage, PARTS[part]())
        ).fit()
        assert steps_of(grid) == expected, f"after call {call}"


def test_a_decision_about_an_unknown_trial_ends_the_experiment_with_the_name_of_both(tmp_path):
    class Confused(Scheduler):
        def on_trial_result(self, trial, result):
            return [Stop("nobody", Reason("why"))]

    with pytest.raises(
        InvalidDecision, match="Confused decided Stop for a trial 'nobody', which does not exist"
    ):
        tune.Tuner(training([]), **settings(tmp_path, {"scheduler": Confused()})).fit()
