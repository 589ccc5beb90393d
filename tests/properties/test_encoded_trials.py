"""The kept text of a trial is equal to the one that would be encoded now."""

import json
import tracemalloc
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tuner.core.trial import Trial
from tuner.driver.snapshots import EncodedTrials
from tuner.restore.snapshot_state import ExperimentState


def add(trials, _):
    trials.append(
        SimpleNamespace(
            trial_id=f"t{len(trials)}",
            is_finished=False,
            checkpoints=[],
            leases={},
            graft=None,
            has_open_validation=False,
            score=0,
            num_rows=0,
        )
    )


def report(trials, at):
    if trials and not trials[at % len(trials)].is_finished:
        trials[at % len(trials)].num_rows += 1


def save(trials, at):
    if trials and not trials[at % len(trials)].is_finished:
        trials[at % len(trials)].checkpoints.append(trials[at % len(trials)].num_rows)


def finish(trials, at):
    if trials:
        trials[at % len(trials)].is_finished = True


def lease(trials, at):
    if trials and trials[at % len(trials)].checkpoints:
        trials[at % len(trials)].leases[f"reader{at}"] = trials[at % len(trials)].checkpoints[-1]


def give_back(trials, at):
    if trials:
        trials[at % len(trials)].leases.clear()


def drop(trials, at):
    if trials and not trials[at % len(trials)].leases:
        del trials[at % len(trials)].checkpoints[:1]


def graft(trials, at):
    if trials and not trials[at % len(trials)].is_finished:
        trials[at % len(trials)].graft = SimpleNamespace(checkpoint=SimpleNamespace(index=at))


def begin_validation(trials, at):
    if trials and trials[at % len(trials)].checkpoints and not trials[at % len(trials)].is_finished:
        trials[at % len(trials)].has_open_validation = True


def end_validation(trials, at):
    if trials and trials[at % len(trials)].has_open_validation:
        trials[at % len(trials)].has_open_validation = False
        trials[at % len(trials)].score = at


def go_back(trials, at):
    if trials and trials[at % len(trials)].graft:
        trials[at % len(trials)].graft.checkpoint.index -= 1


def trial_json(trial):
    index = trial.graft.checkpoint.index if trial.graft else None
    return json.dumps(
        [
            trial.trial_id,
            trial.is_finished,
            trial.num_rows,
            trial.has_open_validation,
            trial.score,
            trial.checkpoints,
            list(trial.leases),
            index,
        ]
    ).encode()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    add,
                    add,
                    report,
                    save,
                    finish,
                    finish,
                    lease,
                    give_back,
                    drop,
                    graft,
                    begin_validation,
                    end_validation,
                    go_back,
                    None,
                ]
            ),
            st.integers(0, 9),
        )
    )
)
def test_encoded_trials_are_never_out_of_date(steps):
    trials = []
    state = SimpleNamespace(experiment=SimpleNamespace(trials=trials), trial_json=trial_json)
    encoded = EncodedTrials(state)
    for change, at in [*steps, (None, 0)]:
        if change:
            change(trials, at)
        elif encoded.encode_finished(None):
            assert encoded.encode_all() == [trial_json(trial) for trial in trials]


def test_the_text_of_a_finished_trial_follows_its_validations():
    trials = []
    state = SimpleNamespace(experiment=SimpleNamespace(trials=trials), trial_json=trial_json)
    encoded = EncodedTrials(state)
    for change in (add, report, save, begin_validation, finish):
        change(trials, 0)
    assert encoded.encode_finished(None)
    assert encoded.encode_all() == [trial_json(trials[0])]
    end_validation(trials, 7)
    trials[0].score = 7
    assert encoded.encode_finished(None)
    assert encoded.encode_all() == [trial_json(trials[0])]


def test_an_encoded_trial_takes_as_much_memory_as_it_has_characters():
    trial = Trial("t00000", {"lr": 0.1}, {"cpu": 1.0})
    trial.last_result = {f"metric_{number}": 0.5 for number in range(30)}
    state = ExperimentState(None, None, SimpleNamespace(encode=dict))
    state.trial_json(trial)
    tracemalloc.start()
    try:
        texts = [state.trial_json(trial) for _ in range(50)]
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1.5 * sum(map(len, texts))
