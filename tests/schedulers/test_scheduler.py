from dataclasses import dataclass, field

import pytest

from schedulers import ASHAScheduler, FIFOScheduler, create_scheduler


@pytest.mark.parametrize("name", ["asha", "async_hyperband", "asynchyperband"])
def test_asha_goes_by_three_names(name):
    scheduler = create_scheduler(name, metric="loss", mode="min", max_t=81, reduction_factor=3)
    assert isinstance(scheduler, ASHAScheduler)
    assert scheduler.levels == (1, 3, 9, 27, 81)


def test_fifo_goes_by_its_name():
    assert isinstance(create_scheduler("fifo"), FIFOScheduler)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("ahsa", "; did you mean 'asha'?"),
        ("asynch_hyperband", "; did you mean 'async_hyperband'?"),
        ("xyz", "'xyz'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, remedy):
    with pytest.raises(
        ValueError,
        match=r"name must be one of 'fifo', 'asha', 'async_hyperband', .*'resource_changing', got ",
    ) as caught:
        create_scheduler(name)
    assert str(caught.value).endswith(remedy)


def test_an_unknown_argument_is_refused_with_the_nearest_one():
    with pytest.raises(
        TypeError,
        match=r"ASHAScheduler takes the arguments 'time_attr', .*, got 'max_time'; did "
        r"you mean 'max_t'\?",
    ):
        create_scheduler("asha", max_time=10)


def test_fifo_takes_no_arguments():
    with pytest.raises(TypeError, match=r"FIFOScheduler takes no arguments, got 'metric'$"):
        create_scheduler("fifo", metric="loss")


def test_a_bad_value_is_refused_by_the_scheduler_itself():
    with pytest.raises(ValueError, match="grace_period must be between 1 and max_t=100, got 0"):
        create_scheduler("asha", grace_period=0)


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
