"""Schedulers that were written for Ray Tune."""

import pytest

from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    Pause,
    Reason,
    ResourceChangingScheduler,
    Resume,
    Scheduler,
    Stop,
    TrialScheduler,
)
from schedulers.trial_scheduler import TrialSchedulerAdapter, adapted
from tests.schedulers.members import Toy, View


class Written(TrialScheduler):
    """Remembers the calls it has received, and returns given answers."""

    def __init__(self):
        self.calls = []
        self.answers = {}

    def on_trial_add(self, tune_controller, trial):
        self.calls.append(("add", trial))

    def on_trial_result(self, tune_controller, trial, result):
        self.calls.append(("result", trial, result["a/b"], dict(trial.last_result)))
        return self.answers.get(trial.trial_id, TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller, trial, result):
        self.calls.append(("complete", trial, result))

    def on_trial_error(self, tune_controller, trial):
        self.calls.append(("error", trial))

    def on_trial_remove(self, tune_controller, trial):
        self.calls.append(("remove", trial))


class LastFirst(TrialScheduler):
    def choose_trial_to_run(self, tune_controller):
        paused = [trial for trial in tune_controller.get_trials() if trial.status == trial.PAUSED]
        return paused[-1] if paused else None


class Duck:
    """Has no base class, and controls trials through the controller."""

    def on_trial_result(self, trial_runner, trial, result):
        for other in trial_runner.get_live_trials():
            if other is not trial:
                trial_runner.stop_trial(other)
        trial_runner.pause_trial(trial_runner.get_trial(trial.trial_id))
        return "NOOP"


def hosted(scheduler, num=3):
    host = adapted(scheduler)
    host.experiment = View(num, num)
    for number in range(num):
        trial = Toy(f"t{number}", {"lr": number})
        host.experiment.trials[trial.trial_id] = trial
        assert host.on_trial_add(trial) == []
        trial.status = "RUNNING"
    return host, host.experiment.trials


def report(host, name, iteration=1, **metrics):
    return list(
        host.on_trial_result(
            host.experiment.trials[name], {"training_iteration": iteration, "a/b": 0.5, **metrics}
        )
    )


def test_each_fact_is_passed_on_once_with_the_same_trial():
    scheduler = Written()
    host, trials = hosted(scheduler)
    assert report(host, "t0") == []
    assert report(host, "t0", 2) == []
    host.on_trial_complete(trials["t0"], {"a/b": 1.0})
    host.on_trial_error(trials["t1"])
    first = scheduler.calls[0][1]
    assert [fact[0] for fact in scheduler.calls] == [
        "add",
        "add",
        "add",
        "result",
        "result",
        "complete",
        "error",
    ]
    assert scheduler.calls[3] == ("result", first, 0.5, {})
    assert scheduler.calls[4][3] == {"training_iteration": 1, "a/b": 0.5}
    assert scheduler.calls[5][1:] == (first, {"a/b": 1.0})
    assert len({first, scheduler.calls[1][1]}) == 2
    assert (
        first.trial_id,
        first.status,
        first.config["lr"],
        first.is_finished(),
        first.has_checkpoint(),
    ) == (
        "t0",
        "RUNNING",
        0,
        False,
        False,
    )


def test_the_words_become_decisions_with_a_reason():
    scheduler = Written()
    host, _ = hosted(scheduler)
    scheduler.answers = {
        "t0": TrialScheduler.STOP,
        "t1": TrialScheduler.PAUSE,
        "t2": TrialScheduler.NOOP,
    }
    assert report(host, "t0", 4) == [Stop("t0", Reason("Written.stop", {"training_iteration": 4}))]
    assert report(host, "t1", 5) == [
        Pause("t1", Reason("Written.pause", {"training_iteration": 5}))
    ]
    assert report(host, "t2") == []
    scheduler.answers = {"t0": None}
    with pytest.raises(
        ValueError,
        match=r"Written\.on_trial_result must return CONTINUE, PAUSE, STOP or NOOP, got None",
    ):
        report(host, "t0")


def test_a_paused_trial_that_is_stopped_is_removed_and_any_other_completes():
    scheduler = Written()
    host, trials = hosted(scheduler)
    scheduler.answers = {"t0": TrialScheduler.PAUSE}
    report(host, "t0")
    host.on_trial_complete(trials["t0"], {"a/b": 1.0})
    host.on_trial_complete(trials["t1"], {"a/b": 1.0})
    assert [(kind, trial.trial_id) for kind, trial, *_ in scheduler.calls[-2:]] == [
        ("remove", "t0"),
        ("complete", "t1"),
    ]


@pytest.mark.parametrize(
    ("scheduler", "expected"), [(Written, ["t0", "t1"]), (LastFirst, ["t2", "t1"])]
)
def test_paused_trials_go_on_as_it_chooses_once_no_more_come(scheduler, expected):
    host, trials = hosted(scheduler())
    for trial in trials.values():
        trial.status = "PAUSED"
    host.experiment.max_trials = 4
    assert list(host.on_idle(list(trials.values()), 2)) == []
    host.experiment.max_trials = 3
    resumed = list(host.on_idle(list(trials.values()), 2))
    assert [(type(decision), decision.trial_id) for decision in resumed] == [
        (Resume, name) for name in expected
    ]
    assert [trial.status for trial in host.shown_trials()] == ["PAUSED"] * 3


def test_the_controller_stops_and_pauses_other_trials():
    host, trials = hosted(Duck())
    trials["t2"].status = "TERMINATED"
    assert sorted(
        (type(decision).__name__, decision.trial_id) for decision in report(host, "t0")
    ) == [("Pause", "t0"), ("Stop", "t1")]


def test_metric_and_mode_are_handed_over():
    host, _ = hosted(Written())
    assert host.set_search_properties("loss", "min", seed=1)
    assert (host.metric, host.mode, host.adapted.metric, host.adapted._mode) == (
        "loss",
        "min",
        "loss",
        "min",
    )
    assert host.set_search_properties("loss", "min", seed=1)
    assert not host.set_search_properties("accuracy", "max", seed=1)


def test_one_of_ours_with_ray_tunes_signature_is_adapted_and_others_stay_as_they_are():
    class First(FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            return "STOP" if result["a/b"] > self.limit else "CONTINUE"

        limit = 0.4

    host, _ = hosted(First())
    assert [type(decision) for decision in report(host, "t0")] == [Stop]
    assert host.set_search_properties("loss", "min", seed=1)
    assert (host.metric, host.adapted._metric) == ("loss", "loss")
    assert isinstance(ResourceChangingScheduler(First()).base_scheduler, TrialSchedulerAdapter)
    for own in (FIFOScheduler(), ASHAScheduler(), None, "auto", host):
        assert adapted(own) is own


def test_a_class_is_to_be_called():
    for kind in (ASHAScheduler, Written, Duck):
        with pytest.raises(
            TypeError,
            match=r"must be an object, got the class \w+; call it: "
            rf"scheduler={kind.__name__}\(\.\.\.\)",
        ):
            adapted(kind)


class Halves(ASHAScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return "CONTINUE"


class Mixes(Scheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return "CONTINUE"

    def on_trial_add(self, trial):
        return ()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (
            Halves,
            (
                "Halves derives from ASHAScheduler, whose on_trial_result takes (trial, result) "
                "and no tune_controller; write it as a schedulers.Scheduler"
            ),
        ),
        (
            Mixes,
            (
                "Mixes.on_trial_add must take (self, tune_controller, trial), as on_trial_result "
                "has Ray Tune's signature; write it as"
            ),
        ),
    ],
)
def test_other_signatures_than_ray_tunes_are_refused_at_once(kind, complaint):
    with pytest.raises(TypeError) as caught:
        adapted(kind())
    assert str(caught.value).startswith(complaint)


def sets(name):
    return lambda controller, trial: setattr(trial, name, None)


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (
            lambda controller, trial: controller.search_alg.next_trial(),
            (
                "the controller has no search_alg here, only get_live_trials, get_trial, "
                "get_trials, pause_trial and stop_trial; write it as a schedulers.Scheduler"
            ),
        ),
        (
            lambda controller, trial: trial.set_config({}),
            (
                "a trial has no set_config here, only config, has_checkpoint(), is_finished(), "
                "last_result, status and trial_id; write it as a schedulers.Scheduler"
            ),
        ),
        (sets("status"), "only the engine changes trial.status; write it as a schedulers."),
        (sets("config"), "only the engine changes trial.config; write it as a schedulers."),
    ],
)
def test_what_has_no_meaning_here_is_refused_when_it_is_used(use, complaint):
    class Uses(TrialScheduler):
        def on_trial_add(self, tune_controller, trial):
            use(tune_controller, trial)

    with pytest.raises(AttributeError) as caught:
        hosted(Uses(), 1)
    assert str(caught.value).startswith(complaint)


def test_a_configuration_cannot_be_changed():
    class Sly(TrialScheduler):
        def on_trial_add(self, tune_controller, trial):
            trial.config["lr"] = 0.1

    with pytest.raises(TypeError, match="mappingproxy"):
        hosted(Sly(), 1)


def test_what_may_be_missing_can_be_asked_for():
    class Asks(TrialScheduler):
        def on_trial_add(self, tune_controller, trial):
            assert not hasattr(trial, "rung")
            trial.rung = 1  # a mark of its own
            assert getattr(tune_controller, "resource_updater", 2) == 2

    host, _ = hosted(Asks(), 1)
    assert [trial.rung for trial in host.shown_trials()] == [1]


def test_a_class_derived_from_fifo_has_the_words_as_in_ray_tune():
    class Own(FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            return FIFOScheduler.STOP if result["loss"] > 1 else self.CONTINUE

    answers = ("CONTINUE", "PAUSE", "STOP", "NOOP")
    assert [getattr(FIFOScheduler, answer) for answer in answers] == [
        getattr(TrialScheduler, answer) for answer in answers
    ]
    assert adapted(Own()).adapted.on_trial_result(None, None, {"loss": 2}) == TrialScheduler.STOP
