import dataclasses

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from tests.core.conversation import BOOM, Conversation, suggest
from tuner.core.events import DriverRestarted, Outcome, ResumeType, StopRequested
from tuner.driver.continued import changed_line, continuing_line
from tuner.spec.experiment_spec import make_spec

SEARCH = "(searcher BasicVariantGenerator, scheduler ASHAScheduler)"


def line_of(talk, max_trials, scheduler=None, **treatments):
    config = tune.TuneConfig(
        metric="loss", mode="min", search_alg="random", scheduler=scheduler or ASHAScheduler()
    )
    spec = make_spec(print, {"lr": tune.uniform(0, 1)}, config, None)
    settings = dataclasses.replace(talk.experiment.settings, max_trials=max_trials)
    return continuing_line("cnn2", talk.experiment, DriverRestarted(settings, **treatments), spec)


@pytest.fixture
def talk():
    """An interrupted experiment: one trial is done, has failed, goes on, and has yet to report."""
    talk = Conversation(max_trials=9, capacity={"cpu": 4.0})
    talk.begin(4)
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.exit("t00001", Outcome.FAILED, BOOM)
    talk.report("t00002", 1)
    talk.say(StopRequested("signal.SIGINT"))
    for trial_id in ("t00002", "t00003"):
        talk.exit(trial_id, Outcome.STOPPED)
    assert talk.experiment.is_finished
    return talk


def test_what_is_done_and_what_is_left_is_counted(talk):
    assert line_of(talk, 9) == (
        f"Continuing cnn2: 2 of 9 trials finished (1 failed), 1 to continue, 6 to start {SEARCH}"
    )


def test_an_endless_search_has_no_total(talk):
    assert line_of(talk, None) == (
        f"Continuing cnn2: 2 trials finished (1 failed), 1 to continue, 1 to start {SEARCH}"
    )


def test_fewer_trials_than_there_are_leave_none_to_suggest(talk):
    assert line_of(talk, 1) == (
        f"Continuing cnn2: 2 of 4 trials finished (1 failed), 1 to continue, 1 to start {SEARCH}"
    )


def test_failed_trials_that_are_tried_again_and_unfinished_ones_that_are_not_are_counted_so(talk):
    shown = line_of(talk, 4, errored=ResumeType.RESTART, unfinished=ResumeType.SKIP)
    assert shown == f"Continuing cnn2: 1 of 4 trials finished, 1 to start {SEARCH}"


def test_trials_in_the_backlog_are_to_start():
    talk = Conversation(max_trials=3, capacity={"cpu": 1.0}, max_pending=2)
    talk.say()
    talk.say(suggest("t00000"), suggest("t00001"), suggest("t00002"))
    assert line_of(talk, 3) == f"Continuing cnn2: 0 of 3 trials finished, 3 to start {SEARCH}"
    assert "0 of 2 trials finished, 2 to start" in line_of(talk, 2)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("tune_config.num_samples: 20 -> 70", "num_samples 20 → 70"),
        ("run_config.stop: None -> {'a': 1}", "stop None → {'a': 1}"),
        ("param_space['lr']: 1 -> 2", "param_space['lr'] 1 → 2"),
    ],
)
def test_a_change_is_shown_by_the_name_that_users_give(change, shown):
    assert changed_line(change) == f"Changed since the last run: {shown}"


@pytest.mark.process
def test_the_first_lines_of_a_continued_search_say_what_goes_on(tmp_path, capsys):
    def fit(num_samples, verbose):
        tune.Tuner(
            lambda config: {"loss": config["lr"]},
            param_space={"lr": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=num_samples, search_alg="random"
            ),
            run_config=tune.RunConfig(
                name="cnn2", storage_path=tmp_path, executor="inline", verbose=verbose
            ),
            resume="auto",
        ).fit()

    fit(1, verbose=0)
    fit(2, verbose=0)
    assert capsys.readouterr().out == ""
    fit(3, verbose=1)
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first == (
        "Continuing cnn2: 2 of 3 trials finished, 1 to start "
        "(searcher BasicVariantGenerator, no scheduler)"
    )
    assert second == "Changed since the last run: num_samples 2 → 3"
    assert not any(line.startswith("Searcher:") for line in others)
    # The best of the earlier sessions is not new.
    new_bests = [line for line in others if line.startswith("new best trial")]
    assert all(line.startswith("new best trial t00002") for line in new_bests)
