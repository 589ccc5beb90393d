import math
import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from tuner.core.result import AUTO_FILLED, CONFIG, EXPERIMENT_TAG, NUM_EXPLOITS
from tuner.execution.result_fields import AutoFill, Place, here, local_date

PLACE = Place(7, "box", "10.0.0.1")
COUNTS = {"timesteps_this_iter", "timesteps_total", "episodes_this_iter", "episodes_total"}


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def autofill(wall_s=0.0):
    return AutoFill(
        "t1",
        PLACE,
        clock=Clock(),
        wall_clock=lambda: wall_s,
        date=lambda timestamp: f"at {timestamp}",
    )


def complete(fill, metrics, elapsed_s=1.0, **named):
    result = fill.fill(metrics, elapsed_s, **named)
    fill.count(result)
    return result


def test_every_result_gets_the_keys_of_the_engine_after_those_of_the_user():
    result = autofill(12.9).fill({"loss": 0.5}, 2.0)
    assert result == {
        "loss": 0.5, "timestamp": 12, "checkpoint_dir_name": None, "should_checkpoint": False,
        "done": False,
        "training_iteration": 1,
        "trial_id": "t1", "date": "at 12", "time_this_iter_s": 2.0, "time_total_s": 2.0,
        "pid": 7, "hostname": "box",
        "node_ip": "10.0.0.1", "time_since_restore": 2.0, "iterations_since_restore": 1,
    }  # fmt: skip
    assert next(iter(result)) == "loss"
    assert set(result) - {"loss"} == AUTO_FILLED - COUNTS - {CONFIG, EXPERIMENT_TAG, NUM_EXPLOITS}


def test_a_result_counts_only_once_it_is_counted():
    fill = autofill()
    assert [fill.fill({}, 1.0)["training_iteration"] for _ in range(2)] == [1, 1]
    assert [complete(fill, {})["training_iteration"] for _ in range(2)] == [1, 2]
    assert fill.time_total_s == 2.0


def test_counts_continue_after_a_restore():
    fill = autofill()
    fill.restore(4, 10.0, {"timesteps_total": 40})
    result = complete(fill, {"timesteps_this_iter": 5}, 2.0)
    assert (result["training_iteration"], result["iterations_since_restore"]) == (5, 1)
    assert (result["time_total_s"], result["time_since_restore"]) == (12.0, 2.0)
    assert result["timesteps_total"] == fill.counters["timesteps_total"] == 45


def test_a_reported_checkpoint_is_named():
    result = autofill().fill({}, 1.0, checkpoint_dir_name="checkpoint_000002")
    assert (result["checkpoint_dir_name"], result["should_checkpoint"]) == (
        "checkpoint_000002",
        True,
    )


def test_values_of_the_training_code_replace_the_engines():
    fill = autofill()
    result = complete(
        fill, {"time_this_iter_s": 9, "timestamp": 5, "done": True, "should_checkpoint": True}, 1.0
    )
    assert (
        result["time_this_iter_s"],
        result["timestamp"],
        result["done"],
        result["should_checkpoint"],
    ) == (9, 5, True, True)
    assert fill.time_total_s == 9.0


def test_counters_appear_only_if_the_training_code_counts():
    fill = autofill()
    assert COUNTS.isdisjoint(complete(fill, {}))
    assert complete(fill, {"episodes_this_iter": 3})["episodes_total"] == 3
    assert complete(fill, {})["episodes_total"] == 3
    assert complete(fill, {"episodes_total": 10})["episodes_total"] == 10
    assert complete(fill, {"episodes_this_iter": 1})["episodes_total"] == 11


@given(st.lists(st.integers(0, 2**40)), st.integers(0, 2**40))
def test_the_total_is_the_sum_of_the_iterations(steps, before):
    fill = autofill()
    fill.restore(0, 0.0, {"timesteps_total": before})
    totals = [complete(fill, {"timesteps_this_iter": step})["timesteps_total"] for step in steps]
    assert totals == [before + sum(steps[: i + 1]) for i in range(len(steps))]


def test_elapsed_time_starts_at_resume():
    clock = Clock()
    fill = AutoFill("t1", PLACE, clock=clock)
    clock.now_s += 5
    assert fill.elapsed_s() == 5
    fill.resume()
    clock.now_s += 2
    assert fill.elapsed_s() == 2


def test_the_date_is_rendered_once_a_second():
    seconds = iter([1.1, 1.9, 2.0])
    rendered = []
    fill = AutoFill(
        "t1",
        PLACE,
        wall_clock=lambda: next(seconds),
        date=lambda timestamp: rendered.append(timestamp) or str(timestamp),
    )
    assert [fill.fill({}, 0.0)["date"] for _ in range(3)] == ["1", "1", "2"]
    assert rendered == [1, 2]


def test_a_date_is_local_time_with_underscore_and_dashes():
    assert len(local_date(1_900_000_000)) == len("2030-03-17_17-46-40")


def test_here_is_this_process():
    assert (here().pid, here().hostname) == (os.getpid(), socket.gethostname())
    assert socket.inet_aton(here().node_ip)


def test_a_reported_iteration_counts_if_it_increases_and_the_next_one_follows_it():
    fill = autofill()
    fill.restore(4, 10.0, {})
    reported = [
        {"training_iteration": 10},
        {},
        {"training_iteration": 20.0},
        {"training_iteration": 20},
        {"training_iteration": 3},
    ]
    assert [complete(fill, metrics)["training_iteration"] for metrics in reported] == [
        10,
        11,
        20,
        21,
        22,
    ]
    assert [
        complete(fill, {"training_iteration": odd})["training_iteration"]
        for odd in (True, 99.5, "99", None, math.inf)
    ] == [
        23,
        24,
        25,
        26,
        27,
    ]
    assert complete(fill, {"training_iteration": 30})["iterations_since_restore"] == 26
