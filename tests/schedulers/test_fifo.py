from dataclasses import dataclass, field

from schedulers import FIFOScheduler


@dataclass
class Stub:
    trial_id: str
    config: dict = field(default_factory=dict)
    status: str = "RUNNING"
    has_checkpoint: bool = False


def test_nothing_is_ever_decided():
    scheduler, trial = FIFOScheduler(), Stub("a")
    decisions = [
        *scheduler.on_trial_add(trial),
        *scheduler.on_trial_result(trial, {"loss": 1.0, "training_iteration": 10**6}),
        *scheduler.on_trial_complete(trial, None),
        *scheduler.on_trial_error(trial),
        *scheduler.on_idle([trial], 1),
    ]
    assert decisions == []


def test_it_works_without_a_metric_and_takes_over_the_experiments():
    assert FIFOScheduler().set_search_properties(None, None, seed=1)
    scheduler = FIFOScheduler()
    assert scheduler.set_search_properties("loss", "min", seed=1)
    assert not scheduler.set_search_properties("accuracy", "max", seed=1)
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
