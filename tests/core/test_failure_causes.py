"""Causes of failures, retries, and the end of an experiment for a common failure."""

from dataclasses import replace

import pytest

from schedulers.decisions import Reason
from tests.core.conversation import BOOM, Conversation, starts, suggest
from tuner.core.commands import AttemptFailed, StartsHeld
from tuner.core.events import DriverRestarted, Outcome, StopRequested, WorkerStarted
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import (
    COMMON_FAILURE,
    cause_of,
    common_failure,
    possible_common_failure,
)
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import Status, TerminationReason, trial_fields, trial_from
from tuner.core.worker_records import Failure
from tuner.wire.declared import decode, encode


def raised(kind="RuntimeError", *, line=12, message="boom", bases=()):
    frames = f'  File "/home/me/train.py", line {line}, in train\n    model.fit()\n'
    library = (
        '  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 7, in forward\n    conv()\n'
    )
    return Failure(
        kind,
        message,
        f"Traceback (most recent call last):\n{frames}{library}{kind}: {message}",
        bases,
    )


def test_a_cause_is_the_exception_and_the_users_line():
    assert str(cause_of(raised())) == "RuntimeError at train.py:12 in train"
    assert cause_of(raised(message="1 GiB")) == cause_of(raised(message="2 GiB"))
    assert cause_of(raised(line=13)) != cause_of(raised())
    assert cause_of(raised("KeyError")) != cause_of(raised())


def test_the_location_of_a_failure_is_kept_across_a_restore():
    told = replace(raised(), place="own.py:3 in step")
    assert str(cause_of(told)) == "RuntimeError at own.py:3 in step"
    assert decode(Failure, encode(told)) == told
    assert decode(Failure, encode(raised())) == raised()


def test_of_a_chain_the_last_exception_counts():
    first = raised("KeyError", line=3).traceback
    failure = Failure(
        "ValueError",
        "x",
        f"{first}\n\nDuring handling of the above exception, another exception "
        f"occurred:\n\n{raised().traceback}",
    )
    assert str(cause_of(failure)) == "ValueError at train.py:12 in train"


def test_all_in_a_library_is_placed_there():
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "C:\\Lib\\site-packages\\a\\b.py", line 5, in f\n    x\nE: 1'
    )
    assert str(cause_of(Failure("E", "1", traceback))) == "E at b.py:5 in f"


def test_without_a_traceback_causes_are_compared_by_message_without_numbers():
    killed = Failure("killed by SIGKILL", "worker 4711 used 8 GiB", "the last lines of stderr")
    assert str(cause_of(killed)) == "killed by SIGKILL: worker # used # GiB"


def test_of_messages_all_numbers_are_left_out():
    assert (
        len({cause_of(Failure("lost", f"lr={text}")) for text in ("0.1", "2e-05", "3", "0x7fa")})
        == 1
    )


def fail(talk, failure, trial_id="t00000"):
    commands = talk.exit(trial_id, Outcome.FAILED, failure)
    while talk.trial(trial_id).status is Status.PENDING and not starts(commands):
        commands = talk.say(after_s=talk.experiment.next_deadline_s() - talk.now_s)
    for started, attempt in starts(commands):
        talk.say(WorkerStarted(started, attempt, 1))
    return talk.trial(trial_id).status


def attempts(failures, *, progress=False, **settings):
    talk = Conversation(max_trials=1, **settings)
    talk.begin(1)
    for number, failure in enumerate(failures, start=1):
        if progress:
            talk.report("t00000", number)
        if fail(talk, failure) is Status.ERROR:
            return number, [
                notice.objection for notice in talk.notices if isinstance(notice, AttemptFailed)
            ][-1]
    return None


RETRYING = {
    "max_failures": 9,
    "max_identical_failures": 3,
    "no_retry_on": ("KeyError",),
    "retry_on": ("ConnectionError",),
}


def test_the_same_exception_at_the_same_place_is_tried_again_twice():
    number, why = attempts([raised()] * 9, **RETRYING)
    assert number == 3
    assert why.startswith(
        "it has failed 3 times in a row with RuntimeError at train.py:12 in train, without "
        "any progress in between"
    )


def test_also_without_a_limit_of_retries():
    assert attempts([raised()] * 9, **{**RETRYING, "max_failures": -1})[0] == 3


def test_other_locations_and_exceptions_and_progress_reset_the_count():
    assert attempts([raised(), raised(line=3)] * 4, **RETRYING) is None
    assert attempts([raised(), raised(), raised("OSError")] * 3, **RETRYING) is None
    assert attempts([raised()] * 9, progress=True, **RETRYING) is None


def test_killed_processes_are_retried_up_to_max_failures():
    assert attempts([Failure("killed by SIGKILL", "out of memory")] * 9, **RETRYING) is None


def test_a_limit_of_one_is_no_retry_after_exceptions_alone():
    settings = {**RETRYING, "max_identical_failures": 1}
    assert attempts([raised()] * 9, **settings)[0] == 1
    assert attempts([Failure("killed by SIGKILL", "out of memory")] * 9, **settings) is None


def test_what_is_not_worth_a_retry_gets_none():
    assert attempts([raised("KeyError")], **RETRYING)[0] == 1
    number, why = attempts([raised("MissingColumn", bases=("KeyError", "LookupError"))], **RETRYING)
    assert number == 1
    assert (
        why == "a MissingColumn is not worth a retry; FailureConfig(retry_on=['KeyError']) has it "
        "tried again"
    )


def test_what_is_worth_all_retries_gets_them():
    assert (
        attempts(
            [raised("ConnectionResetError", bases=("ConnectionError", "OSError"))] * 9, **RETRYING
        )
        is None
    )


def test_the_nearest_class_counts():
    settings = {**RETRYING, "no_retry_on": ("OSError",)}
    assert (
        attempts(
            [raised("ConnectionResetError", bases=("ConnectionError", "OSError"))] * 9, **settings
        )
        is None
    )
    assert attempts([raised("FileNotFoundError", bases=("OSError",))] * 9, **settings)[0] == 1


def test_no_retry_is_decided_by_settings_of_earlier_releases():
    assert attempts([raised("KeyError")] * 9, max_failures=9) is None


COMMON = {"max_trials": 20, "max_common_failures": 5}


def rule(talk):
    return talk.experiment.stop_reason and talk.experiment.stop_reason.rule


def answer(talk):
    while talk.experiment.suggestion_budget.num_outstanding:
        talk.say(suggest(f"t{len(talk.experiment.trials):05d}"))


def give_up(talk, failure, num):
    for _ in range(num):
        trial_id = next(iter(talk.experiment.trial_table.live))
        fail(talk, failure, trial_id)
        answer(talk)
        for trial in talk.experiment.trial_table.live.values():
            if trial.worker == "STARTING":
                talk.say(WorkerStarted(trial.trial_id, trial.attempt, 1))


def test_an_experiment_ends_when_all_fail_for_one_cause():
    talk = Conversation(**COMMON)
    talk.begin(2)
    give_up(talk, raised(), 4)
    assert rule(talk) is None
    give_up(talk, raised(message="other"), 1)
    assert rule(talk) is None  # the last one may yet get farther
    give_up(talk, raised(message="third"), 1)
    assert rule(talk) == COMMON_FAILURE
    assert talk.experiment.stop_reason.numbers == {
        "cause": "RuntimeError at train.py:12 in train",
        "num_failures": 6,
        "trial_id": "t00000",
    }
    assert {trial.ending for trial in talk.experiment.trials} <= {
        TerminationReason.FAILED,
        TerminationReason.INTERRUPTED,
        None,
    }


def at_the_limit():
    """Return a conversation in which five trials have failed and one has not reported yet."""
    talk = Conversation(**COMMON)
    talk.begin(2)
    for _ in range(5):
        fail(
            talk,
            raised(),
            next(trial_id for trial_id in talk.experiment.trial_table.live if trial_id != "t00001"),
        )
        answer(talk)
    return talk


def test_at_the_limit_nothing_is_started_while_a_trial_may_get_farther():
    talk = at_the_limit()
    assert (rule(talk), list(talk.experiment.trial_table.live)) == (None, ["t00001"])
    (held,) = [notice for notice in talk.notices if isinstance(notice, StartsHeld)]
    assert possible_common_failure(held.reason).startswith(
        "5 trials failed with RuntimeError at train.py:12 in train, t00000 first; no oth"
    )
    assert not starts(talk.say(after_s=60.0))
    assert talk.experiment.next_deadline_s() > talk.now_s  # no turn is due before its silence is


@pytest.mark.parametrize(
    ("cause", "shown"),
    [
        ("killed: memory ran out; its peak was # MiB", "killed: memory ran out"),
        ("killed: silent for # s; set report_timeout_s", "killed: set report_timeout_s"),
        ("killed: worker # used # GiB", "killed: worker ... used ... GiB"),
        ("KeyError at train.py:12 in train", "KeyError at train.py:12 in train"),
        ("lost", "lost"),
    ],
)
def test_messages_about_a_common_failure_have_no_placeholders_for_numbers(cause, shown):
    reason = Reason(COMMON_FAILURE, {"cause": cause, "num_failures": 5, "trial_id": "t00000"})
    assert common_failure(reason).startswith(f"5 trials failed with {shown}, t00000 first, ")
    assert possible_common_failure(reason).startswith(f"5 trials failed with {shown}, t00000 ")


def test_the_experiment_continues_when_that_trial_reports():
    talk = at_the_limit()
    talk.report("t00001", 1)
    answer(talk)
    assert rule(talk) is None
    assert len(talk.experiment.trial_table.live) == 2


def test_the_experiment_continues_when_that_trial_completes():
    talk = at_the_limit()
    talk.exit("t00001", Outcome.COMPLETED)
    answer(talk)
    assert rule(talk) is None
    assert len(talk.experiment.trial_table.live) == 2


@pytest.mark.parametrize("failure", [raised(), raised("OSError")])
def test_it_ends_when_that_trial_fails_too(failure):
    talk = at_the_limit()
    fail(talk, failure, "t00001")
    assert rule(talk) == COMMON_FAILURE
    assert talk.experiment.is_finished


def test_a_snapshot_at_the_limit_continues_as_well():
    talk = at_the_limit()
    again = Experiment(talk.experiment.settings, talk.scheduler, NoopStopper())
    again.load_state_dict(
        talk.experiment.state_dict(),
        [trial_from(trial_fields(trial)) for trial in talk.experiment.trials],
    )
    talk.experiment = again
    assert not talk.say()
    talk.report("t00001", 1)
    answer(talk)
    assert len(again.trial_table.live) == 2


def test_other_causes_are_counted_apart():
    talk = Conversation(**COMMON)
    talk.begin(2)
    for line in range(6):
        give_up(talk, raised(line=line), 2)
    assert rule(talk) is None


def test_one_trial_that_succeeds_lets_the_others_fail():
    talk = Conversation(**COMMON)
    talk.begin(2)
    talk.exit("t00001", Outcome.COMPLETED)
    answer(talk)
    give_up(talk, BOOM, 6)
    assert rule(talk) is None


def test_so_does_one_that_has_got_farther():
    talk = Conversation(**COMMON)
    talk.begin(2)
    talk.report("t00001", 1)
    for _ in range(7):
        live = [trial_id for trial_id in talk.experiment.trial_table.live if trial_id != "t00001"]
        fail(talk, BOOM, live[0])
        answer(talk)
    assert rule(talk) is None


def test_the_next_session_resets_the_count_and_a_snapshot_keeps_it():
    talk = Conversation(**COMMON)
    talk.begin(2)
    give_up(talk, raised(), 4)
    again = Experiment(talk.experiment.settings, talk.scheduler, NoopStopper())
    again.load_state_dict(
        talk.experiment.state_dict(),
        [trial_from(trial_fields(trial)) for trial in talk.experiment.trials],
    )
    assert again._failure_tally.state_dict() == talk.experiment._failure_tally.state_dict()
    give_up(talk, raised(), 1)
    talk.say(DriverRestarted(talk.experiment.settings))
    give_up(talk, raised(), 5)
    assert rule(talk) is None
    give_up(talk, raised(), 1)
    assert rule(talk) == COMMON_FAILURE


def fail_first(talk):
    """Let the trial fail, and return after how many seconds it is started again."""
    commands = talk.exit("t00000", Outcome.FAILED, BOOM)
    before_s = talk.now_s
    while not starts(commands):
        assert talk.trial("t00000").status is Status.PENDING
        due_s = talk.experiment.next_deadline_s()
        assert due_s is not None
        commands = talk.say(after_s=due_s - talk.now_s)
    talk.say(WorkerStarted("t00000", talk.trial("t00000").attempt, 1))
    return talk.now_s - before_s


def test_the_first_retries_come_at_once_and_later_ones_with_growing_delays():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    assert [fail_first(talk) for _ in range(12)] == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    talk.trial("t00000").num_vain_attempts = 10_000
    assert fail_first(talk) == 60


def test_a_trial_that_gets_on_is_tried_again_at_once():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    for iteration in range(1, 10):
        talk.report("t00000", iteration)
        assert fail_first(talk) == 0


def test_repeating_what_it_had_reached_before_is_not_getting_on():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    rests = []
    for _ in range(5):
        talk.report("t00000", 1)
        rests.append(fail_first(talk))
    assert rests == [0, 0, 0, 1, 2]


def test_others_go_on_while_one_rests():
    talk = Conversation(max_trials=3, max_failures=-1, max_concurrent=2)
    talk.begin(2)
    for _ in range(3):
        fail_first(talk)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.report("t00001", 1)
    assert talk.trial("t00001").status is Status.RUNNING
    assert talk.trial("t00000").status is Status.PENDING


def test_an_experiment_can_be_interrupted_while_a_trial_rests():
    talk = Conversation(max_trials=1, max_failures=-1)
    talk.begin(1)
    for _ in range(3):
        fail_first(talk)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.say(StopRequested("signal.SIGINT"))
    assert talk.trial("t00000").status is Status.PENDING
    assert talk.experiment.is_finished
