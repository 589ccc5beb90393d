"""The first snapshot after a restore encodes thousands of trials over several turns."""

from types import SimpleNamespace

import pytest

from tuner.callbacks.callback_list import CallbackList
from tuner.core.trial import Status, Trial
from tuner.driver import snapshots
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.journal import saving_cost
from tuner.journal.saving_cost import SavingCost
from tuner.journal.snapshot_files import load_newest

WORDS_S = 0.1
"""How long the driver looks for the words for one trial."""


class Watch:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        return self.now_s

    def thread_time(self):
        return 0.0


class Experiment:
    """Six trials that are over."""

    def __init__(self, watch):
        self.watch = watch
        self.keeps_state = True
        self.experiment = SimpleNamespace(
            trials=[
                SimpleNamespace(
                    trial_id=f"t{n}",
                    is_finished=True,
                    checkpoints=[],
                    leases={},
                    has_open_validation=False,
                    graft=None,
                )
                for n in range(6)
            ]
        )

    def state_dict(self):
        return {}

    def trial_json(self, trial):
        self.watch.now_s += WORDS_S
        return b"{}"


class Journal:
    last_sequence = 0
    segment_bytes = 0

    def __init__(self):
        self.cost = SavingCost()

    def sync(self):
        pass


@pytest.fixture
def watch(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(snapshots, "time", watch)
    monkeypatch.setattr(saving_cost, "perf_counter", watch.perf_counter)
    monkeypatch.setattr(snapshots, "identity", lambda spec: {})
    monkeypatch.setattr(snapshots, "_MAX_ENCODED_AT_ONCE", 2)
    return watch


@pytest.mark.process  # A thread writes the snapshot.
def test_many_trials_are_encoded_in_parts_and_each_part_delays_the_next(watch, tmp_path):
    journal = Journal()
    log = SimpleNamespace(journal=journal, settle=lambda: None)
    taken = snapshots.Snapshots(
        tmp_path, None, Experiment(watch), SuggestionQueue(None), CallbackList([]), log
    )
    journal.last_sequence = 5_000
    looked_s = []
    while journal.cost.num_snapshots == 0 and watch.now_s < 100.0:
        before_s = watch.now_s
        taken.take_if_due(watch.now_s)
        if watch.now_s > before_s:
            looked_s.append(round(before_s, 1))
        watch.now_s += 0.1
    taken.take_last(watch.now_s)
    taken.close()
    assert len(load_newest(tmp_path).state["trials"]) == 6
    # Two trials at a time, 0.2 s each, of which 19 times as much has to pass before the next.
    assert looked_s == pytest.approx([60.0, 64.0, 68.0], abs=0.3)
    assert journal.cost.share <= 0.05


def test_encoding_a_part_of_the_trials_counts_as_a_pause(watch, tmp_path):
    journal = Journal()
    log = SimpleNamespace(journal=journal, settle=lambda: None)
    taken = snapshots.Snapshots(
        tmp_path, None, Experiment(watch), SuggestionQueue(None), CallbackList([]), log
    )
    journal.last_sequence, watch.now_s = 5_000, 60.0
    taken.take_if_due(watch.now_s)
    assert journal.cost.num_snapshots == 0
    assert journal.cost.longest_pause_s == pytest.approx(2 * WORDS_S)


def test_a_finished_trial_is_encoded_again_when_a_validation_of_it_has_ended():
    trial = Trial("t00000", {}, {})
    trial.move_to(Status.TERMINATED)
    validation = SimpleNamespace(state="QUEUED", num_try=0)
    trial.validation_part = SimpleNamespace(open_validations={0: validation})
    state = SimpleNamespace(
        experiment=SimpleNamespace(trials=[trial]),
        trial_json=lambda _: validation.state.encode(),
    )
    encoded = snapshots.EncodedTrials(state)

    def encode():
        assert encoded.encode_finished(None)
        return encoded.encode_all()

    assert encode() == encode() == [b"QUEUED"]
    validation.state, validation.num_try = "RUNNING", 1
    assert encode() == encode() == [b"RUNNING"]
    validation.state = "VALIDATED"
    trial.validation_part.open_validations.clear()
    assert encode() == encode() == [b"VALIDATED"]
