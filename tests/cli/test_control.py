"""``tuner stop``, ``pause``, ``fork`` and ``resume TRIAL``, with a driver in another thread."""

import json

import pytest

import tuner as tune
from schedulers import FIFOScheduler
from searchers import BasicVariantGenerator
from tests.end_to_end.walking import Walker
from tests.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def walk(storage):
    """A running experiment."""
    tuner = tune.Tuner(
        Walker,
        param_space={"by": 1, "how": {"far": 2}},
        tune_config=tune.TuneConfig(scheduler=FIFOScheduler(), search_alg=BasicVariantGenerator()),
        run_config=tune.RunConfig(
            name="walk", storage_path=storage, verbose=0, resources={"cpu": 2}
        ),
    )
    handle = tuner.start()
    wait_until(lambda: statuses(handle).get("t00000") == "RUNNING")
    yield handle
    if handle.is_running:
        handle.stop(urgent=True)
    handle.wait()


def statuses(handle):
    return {result.trial_id: str(result.status) for result in handle.results()}


def test_a_trial_is_paused_forked_and_resumed(call, walk):
    assert (
        call("pause", "walk", "0").stdout
        == "t00000 pauses with its next report; tuner resume walk t00000 resumes it\n"
    )
    wait_until(lambda: statuses(walk)["t00000"] == "PAUSED")
    assert "paused by hand already" in call("pause", "walk", "0", code=2).stderr
    assert (
        call("fork", "walk", "t00000", "--set", "by=0", "--set", "how/far=3").stdout == "f00000\n"
    )
    assert call("resume", "walk", "0").stdout == "t00000 resumes as soon as resources are free\n"
    wait_until(lambda: statuses(walk) == {"t00000": "RUNNING", "f00000": "RUNNING"})
    assert walk.results()[1].config == {"by": 0, "how": {"far": 3}}
    assert (
        call("stop", "walk", "f00000").stdout
        == "f00000 ends with its next report, or at once if it is not running\n"
    )
    wait_until(lambda: statuses(walk)["f00000"] == "TERMINATED")


def test_an_experiment_is_stopped(call, walk):
    assert "running trials save and end" in call("stop", "walk").stdout
    (result,) = walk.wait()
    assert str(result.ending) == "interrupted"
    assert "is not running" in call("stop", "walk", code=3).stderr


def test_what_cannot_be_done_is_said_in_one_line(call, walk):
    def refusal(*arguments):
        return call(*arguments, code=2).stderr

    assert "there is no trial '7' in walk" in refusal("stop", "walk", "7")
    assert "trial t00000 is RUNNING and not paused" in refusal("resume", "walk", "0")
    call("pause", "walk", "0")  # with a checkpoint, which a fork needs
    wait_until(lambda: statuses(walk)["t00000"] == "PAUSED")
    unknown = refusal("fork", "walk", "0", "--set", "speed=1")
    assert "has no hyperparameter 'speed'; it has by, how/far" in unknown
    incomplete = refusal("fork", "walk", "0", "--set", "speed")
    assert "--set must be NAME=VALUE, got 'speed'" in incomplete


def test_values_are_json_where_they_can_be(call, walk):
    call("pause", "walk", "0")
    wait_until(lambda: statuses(walk)["t00000"] == "PAUSED")
    call("fork", "walk", "0", "--set", "by=1.5", "--set", "how/far=home", "--checkpoint", "0")
    assert json.dumps(walk.results()[1].config) == '{"by": 1.5, "how": {"far": "home"}}'
