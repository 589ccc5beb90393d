"""I18: deferrable persistence takes at most a twentieth of the time, whatever a call costs.

The simulation with faults cannot test this: its experiments last seconds, too short for the pace
of snapshots. Here turns, records and costs are drawn. Journal, log, snapshots and their clock
are the engine's, and read a virtual clock that only costs advance. Writing the journal
cannot be deferred, so it is charged separately.
"""

import contextlib
import time
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tuner import background
from tuner.callbacks.callback_list import CallbackList
from tuner.driver import journal_log, snapshots
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import JournalLog
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.journal import saving_cost
from tuner.journal import snapshot_files as snapshot_module
from tuner.journal import writer as journal_module
from tuner.journal.writer import Journal
from tuner.storage.disk import Whereabouts

SHARE = 0.05
EXACT = 1e-6


class Watch:
    """A clock that only costs advance."""

    start_s = 1_000.0

    def __init__(self, thread_s=0.0):
        self.now_s = self.start_s
        self.thread_s = thread_s
        self._computed_s = 0.0

    def perf_counter(self):
        return self.now_s

    def write_parts(self, *arguments):
        """Write a snapshot, as far as time goes."""
        self._computed_s += self.thread_s

    def thread_time(self):
        return self._computed_s

    monotonic = staticmethod(time.monotonic)


class CostlyDisk:
    """Accepts all calls, each at a cost.

    Args:
        watch: The clock.
        write_s: Seconds for each write.
        byte_s: Seconds for each byte.
        sync_s: Seconds for each sync.
    """

    def __init__(self, watch, write_s, byte_s, sync_s):
        self.watch = watch
        self.write_s, self.byte_s, self.sync_s = write_s, byte_s, sync_s
        self.spent_s = 0.0

    def spend(self, seconds):
        self.watch.now_s += seconds
        self.spent_s += seconds

    def create(self, path):
        return 3

    def write(self, descriptor, data):
        self.spend(self.write_s + self.byte_s * len(data))
        return len(data)

    def sync(self, descriptor):
        self.spend(self.sync_s)

    def nothing(self, *arguments):
        """Accept any other call."""

    truncate = close = hold = rename = remove = make_directory = sync_directory = nothing

    def whereabouts(self, descriptor, path):
        return Whereabouts()


class Experiment:
    """Trials that take time to encode; finished ones are encoded once."""

    def __init__(self, watch, num_over, num_live, words_s):
        self.watch, self.words_s = watch, words_s
        self.spent_s = 0.0
        self.keeps_state = True
        self.experiment = SimpleNamespace(
            trials=[
                SimpleNamespace(
                    trial_id=f"t{n}",
                    is_finished=n < num_over,
                    checkpoints=[],
                    leases={},
                    has_open_validation=False,
                    graft=None,
                )
                for n in range(num_over + num_live)
            ]
        )

    def state_dict(self):
        return {}

    def trial_json(self, trial):
        self.watch.now_s += self.words_s
        self.spent_s += self.words_s
        return b"{}"


COSTS = st.fixed_dictionaries(
    {
        "write_s": st.sampled_from([0.0, 0.0001, 0.003]),
        "byte_s": st.sampled_from([0.0, 1e-8, 1e-6]),
        "sync_s": st.sampled_from([0.0, 0.0002, 0.02]),
        "words_s": st.sampled_from([0.0, 0.0001, 0.05, 1.0]),
        "thread_s": st.sampled_from([0.0, 0.01, 2.0]),
        "num_over": st.integers(0, 12),
        "num_live": st.integers(0, 12),
    }
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from([0.001, 0.01, 0.3, 2.0, 20.0]),
        st.sampled_from([1, 4, 9, 200]),
        st.integers(1, 6),
    ),
    min_size=5,
    max_size=40,
)


def live_through(costs, turns):
    """Run turns and save snapshots; assert their share and that all costs are charged."""
    watch = Watch(costs["thread_s"])
    disk = CostlyDisk(watch, costs["write_s"], costs["byte_s"], costs["sync_s"])
    state = Experiment(watch, costs["num_over"], costs["num_live"], costs["words_s"])
    with contextlib.ExitStack() as patched:
        for module in (snapshots, journal_module, background):
            patched.enter_context(mock.patch.object(module, "time", watch))
        for module in (journal_log, journal_module, saving_cost):
            patched.enter_context(mock.patch.object(module, "perf_counter", watch.perf_counter))
        patched.enter_context(mock.patch.object(snapshots, "identity", return_value={}))
        patched.enter_context(mock.patch.object(snapshots, "_MAX_ENCODED_AT_ONCE", 5))
        patched.enter_context(mock.patch.multiple(snapshots, _MIN_RECORDS=10, _MANY_RECORDS=200))
        patched.enter_context(mock.patch.object(snapshots, "write_parts", watch.write_parts))
        journal = patched.enter_context(Journal("experiment", has_syncer=False, disk=disk))
        cleaner = patched.enter_context(CheckpointDeleter(journal, lambda path: None))
        log = JournalLog(journal, cleaner)
        taken = snapshots.Snapshots(
            "experiment", None, state, SuggestionQueue(None), CallbackList([]), log
        )
        opening_s = disk.spent_s  # before there was anything to be kept from
        _take_turns(turns, watch, log, taken, journal.cost)
        taken.take_last(watch.now_s)
        taken.close()
        log.flush()
        spent_s = (
            disk.spent_s
            - opening_s
            + state.spent_s
            + journal.cost.num_snapshots * costs["thread_s"]
        )
        share = spent_s / (watch.now_s - Watch.start_s)
        assert journal.cost.share == pytest.approx(share, abs=EXACT)


def _take_turns(turns, watch, log, taken, cost):
    began_s, stretched_s, num_snapshots = watch.now_s, 0.0, 0
    for rest_s, num_records, repeats in turns:
        for _ in range(repeats):
            watch.now_s += rest_s
            log.journal.append(*({"t": 0.0, "k": "turn"},) * num_records)
            log.flush()
            started_s = watch.now_s
            taken.take_if_due(started_s)
            taken._writes.wait()
            if watch.now_s > started_s or cost.num_snapshots > num_snapshots:
                # What was spent before has been paid off by now: a snapshot waits until it is
                # affordable.
                assert stretched_s <= SHARE * (started_s - began_s) + EXACT
                stretched_s += (
                    watch.now_s - started_s + (cost.num_snapshots - num_snapshots) * watch.thread_s
                )
                num_snapshots = cost.num_snapshots


QUICKLY = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@QUICKLY
@given(COSTS, TURNS)
def test_snapshots_keep_to_their_share_and_everything_is_charged(costs, turns):
    live_through(costs, turns)


def test_a_long_and_costly_run_takes_snapshots_at_all():
    turns = [(0.3, 9, 6)] * 30
    with mock.patch.object(snapshots.Snapshots, "_write", autospec=True) as write:
        live_through(
            {
                "write_s": 0.003,
                "byte_s": 1e-8,
                "sync_s": 0.02,
                "words_s": 0.001,
                "thread_s": 0.0,
                "num_over": 3,
                "num_live": 4,
            },
            turns,
        )
    assert write.call_count >= 3


@pytest.mark.parametrize(
    ("where", "name", "defect"),
    [
        (snapshot_module, "QUIET_FACTOR", 9),
        (snapshot_module.SnapshotClock, "worked", lambda clock, started_s, ended_s: None),
        (snapshot_module.SnapshotClock, "is_affordable", lambda clock, now_s: True),
        (
            snapshots.Snapshots,
            "_charge_loop",
            lambda taken, started_s: snapshots.time.perf_counter(),
        ),
    ],
)
def test_a_planted_defect_is_found(where, name, defect):
    with mock.patch.object(where, name, defect), pytest.raises(AssertionError):
        test_snapshots_keep_to_their_share_and_everything_is_charged()
