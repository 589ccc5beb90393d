"""The explanation of a trial lists each decision with its numbers and its effect."""

import io
import re

import pytest

import tuner as tune
from schedulers.decisions import Exploit, Pause, Reason, Resume, Stop
from tests.core.conversation import BOOM
from tuner.analysis import ResultGrid
from tuner.analysis.explain import explain_trial
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointSaved,
    Outcome,
    ResultReported,
    TrialStopRequested,
    TrialSuggested,
    TurnEnded,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.recorded_decisions import RecordedDecision
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.journal.records import encode
from tuner.journal.rows import MemoryRows

RUNG = Reason("asha.rung", {"rung": 3, "value": 0.5, "cutoff": 0.4, "rank": 2})
CLONE = Reason("pbt.exploit", {"score": 0.5, "donor_score": 0.25})


@pytest.fixture
def trial():
    trial = Trial("t00001", {"lr": 0.2}, {"cpu": 1.0})
    trial.move_to(Status.TERMINATED)
    trial.ending, trial.reason = TerminationReason.STOPPED_EARLY, RUNG
    return trial


def records():
    happened = [
        (TrialSuggested("t00000", {"lr": 0.3}, {}), ()),
        (TrialSuggested("t00001", {"lr": 0.1, "deep": {"layers": 2}}, {}), ()),
        (WorkerStarted("t00001", 1, 4711), ()),
        (ResultReported("t00001", 1, {"training_iteration": 1, "loss": 0.9}), ()),
        (
            ResultReported("t00001", 1, {"training_iteration": 3, "loss": 0.5}),
            [Pause("t00001", RUNG)],
        ),
        (CheckpointSaved("t00001", 1, CheckpointRecord(0, 3)), ()),
        (WorkerExited("t00001", 1, Outcome.STOPPED), ()),
        (
            TurnEnded(),
            [
                Exploit("t00001", "t00000", {"lr": 0.36, "deep": {"layers": 2}}, CLONE, 4),
                Resume("t00001", Reason("pbt.resume")),
            ],
        ),
        (
            ResultReported("t00000", 1, {"training_iteration": 9, "loss": 0.1}),
            [Exploit("t00000", "t00001", {"lr": 1.0}, CLONE)],
        ),
        (WorkerExited("t00001", 2, Outcome.FAILED, BOOM), ()),
        (TurnEnded(), [Stop("t00001", RUNG)]),
    ]
    return [
        encode(event, float(at_s), [RecordedDecision(0, decision) for decision in said])
        for at_s, (event, said) in enumerate(happened)
    ]


def test_events_are_listed_in_order_with_every_number(trial):
    assert explain_trial(trial, records(), "loss") == [
        (
            "t00001: TERMINATED after 0 iterations, stopped early: asha.rung (rung=3, value=0.5, "
            "cutoff=0.4, rank=2)"
        ),
        "     1.00 s  is suggested: lr=0.1, deep/layers=2",
        "     2.00 s  attempt 1 begins",
        (
            "     4.00 s  at iteration 3 with loss=0.5 is paused: asha.rung (rung=3, value=0.5, "
            "cutoff=0.4, rank=2)"
        ),
        "     5.00 s  has saved checkpoint 0 of iteration 3",
        "     6.00 s  attempt 1 ends, stopped",
        (
            "     7.00 s  at iteration 3 with loss=0.5 takes over from t00000, its checkpoint 4: "
            "pbt.exploit (score=0.5, donor_score=0.25)"
        ),
        "     7.00 s  continues with lr 0.1 -> 0.36",
        "     7.00 s  at iteration 3 with loss=0.5 is resumed: pbt.resume",
        "     8.00 s  gives its checkpoint to t00000: pbt.exploit (score=0.5, donor_score=0.25)",
        "     9.00 s  attempt 2 ends, failed: ValueError: boom",
        (
            "    10.00 s  at iteration 3 with loss=0.5 is stopped: asha.rung (rung=3, value=0.5, "
            "cutoff=0.4, rank=2)"
        ),
    ]


def test_a_restore_is_listed_if_the_trial_continues_afterwards(trial):
    def at(at_s, event):
        return encode(event, at_s, [])

    suggested = at(1.0, TrialSuggested("t00001", {"lr": 0.1}, {}))
    before = [suggested, at(2.0, WorkerStarted("t00001", 1, 4711))]
    restored = {**suggested, "k": "restarted", "id": None, "t": 3.0}
    afterwards = [at(4.0, WorkerStarted("t00001", 2, 4712))]
    assert explain_trial(trial, [restored, *before, restored, *afterwards, restored])[1:] == [
        "     1.00 s  is suggested: lr=0.1",
        "     2.00 s  attempt 1 begins",
        (
            "     3.00 s  the experiment is restored; trials that ran start again from their "
            "latest checkpoints"
        ),
        "     4.00 s  attempt 2 begins",
    ]


def test_a_suggestion_is_listed_with_the_explanation_of_the_searcher(trial):
    suggested = TrialSuggested(
        "t00001", {"lr": 0.1}, {}, why="randomised trees, fitted to 9 trials"
    )
    assert explain_trial(trial, [encode(suggested, 1.0, [])])[1:] == [
        "     1.00 s  is suggested: lr=0.1 (randomised trees, fitted to 9 trials)"
    ]


def test_an_attempt_that_could_not_be_saved_is_described_as_such(trial):
    (told,) = explain_trial(
        trial, [encode(WorkerExited("t00001", 1, Outcome.UNSAVED, BOOM), 1.0, [])]
    )[1:]
    assert told == "     1.00 s  attempt 1 ends, since it could not be saved: ValueError: boom"


def test_the_explanation_of_a_failed_trial_says_why_it_was_not_retried(trial):
    records = [
        encode(WorkerExited("t00001", attempt, Outcome.FAILED, BOOM), float(attempt), [])
        for attempt in (1, 2)
    ]
    trial.attempt = 2
    told = explain_trial(trial, records, why_given_up="it has failed")[1:]
    assert told == [
        "     1.00 s  attempt 1 ends, failed: ValueError: boom",
        "     2.00 s  attempt 2 ends, failed: ValueError: boom",
        "     2.00 s  is not tried again: it has failed",
    ]
    stopped = encode(TrialStopRequested("t00001"), 1.5, [])
    assert explain_trial(trial, [records[0], stopped, records[1]], why_given_up="it has failed")[
        -1
    ].endswith("ValueError: boom")


@pytest.mark.process
@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"max_failures": 0}, r"FailureConfig\(max_failures=0\) allows no retry"),
        ({"max_failures": 1}, r"all retries that FailureConfig\(max_failures=1\) allows are used"),
        (
            {"max_failures": -1},
            (
                r"it has failed 3 times in a row with ValueError at \S+ in fail, "
                r".*max_identical_failures=None"
            ),
        ),
        (
            {"max_failures": 5, "no_retry_on": [ValueError]},
            r"a ValueError is not worth a retry; FailureConfig\(retry_on=",
        ),
    ],
)
def test_why_a_trial_was_given_up_comes_from_its_settings_and_failures(tmp_path, policy, why):
    def fail(config):
        raise ValueError("boom")

    failures = tune.FailureConfig(**policy)
    run = tune.RunConfig(
        name="given_up",
        storage_path=tmp_path,
        verbose=0,
        executor="inline",
        failure_config=failures,
    )
    told = io.StringIO()
    tune.Tuner(fail, run_config=run).fit().explain("t00000", told)
    assert re.search(f"is not tried again: {why}", told.getvalue().splitlines()[-1])


def test_a_trial_that_is_not_there_is_refused_by_naming_some_that_are(trial, tmp_path):
    grid = ResultGrid([trial], str(tmp_path), MemoryRows({}))
    with pytest.raises(
        ValueError, match=r"trial_id must be that of one of 1 trials, \['t00001'\]\.\.\., got 't9'"
    ):
        grid.explain("t9")


def test_validations_are_told_with_their_metrics_and_the_decisions_they_lead_to(trial):
    request, checkpoint = ValidationRequest(), CheckpointRecord(0, 1)
    failed = Failure("ValueError", "no data")
    happened = [
        (ResultReported("t00001", 1, {"training_iteration": 1}, checkpoint, None, request), ()),
        (ResultReported("t00001", 1, {"training_iteration": 2}, upload=1, validation=request), ()),
        (CheckpointCommitted("t00001", 1, CheckpointRecord(1, 2)), ()),
        (ValidationEnded("t00001", 0, 1, Outcome.LOST), ()),
        (
            ValidationEnded("t00001", 0, 2, Outcome.COMPLETED, {"loss": 0.5, "val": {"f1": 0.25}}),
            [Stop("t00001", RUNG)],
        ),
        (ValidationEnded("t00001", 1, 1, Outcome.FAILED, failure=failed), ()),
    ]
    told = explain_trial(
        trial,
        [
            encode(event, 0.0, [RecordedDecision(0, decision) for decision in decisions])
            for event, decisions in happened
        ],
        "loss",
    )
    assert [line.partition(" s  ")[2] for line in told[1:]] == [
        "has stored checkpoint 1 of iteration 2",
        "the validation of checkpoint 0 of iteration 1 is lost with its process, try 1",
        "checkpoint 0 of iteration 1 is validated: loss=0.5, val/f1=0.25",
        f"at iteration 1 with loss=0.5 is stopped: {RUNG}",
        "the validation of checkpoint 1 of iteration 2 ends, failed, try 1: ValueError: no data",
    ]
