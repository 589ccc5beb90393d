import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

fsspec = pytest.importorskip("fsspec")
from tests.tiers import examples  # noqa: E402
from tuner.errors import (  # noqa: E402
    ExperimentFenced,
    ExperimentLocked,
    NotRunning,
    StorageError,
    StorageLost,
)
from tuner.storage import strict_json  # noqa: E402
from tuner.storage.control_requests import (  # noqa: E402
    ControlReply,
    ControlRequest,
    RequestInbox,
    Verb,
    post,
)
from tuner.stores.object_store import ObjectStore  # noqa: E402
from tuner.stores.pieces import read_starts  # noqa: E402
from tuner.stores.remote_lock import (  # noqa: E402
    RemoteLock,
    alive_key,
    lock_key,
    requests_in_store,
    start_key,
)


class Time:
    """A clock that only sleeping moves, and what happens meanwhile.

    Args:
        events: What to call when a time in seconds has come.
    """

    def __init__(self, events=()):
        self.now_s = 0.0
        self.events = sorted(events, key=lambda event: event[0])

    def sleep(self, duration_s):
        until_s = self.now_s + duration_s
        while self.events and self.events[0][0] <= until_s:
            self.now_s, happen = self.events.pop(0)
            happen()
        self.now_s = until_s


@pytest.fixture
def store(tmp_path):
    yield ObjectStore(f"memory://{tmp_path.name}/run")
    fsspec.filesystem("memory").store.clear()


def lock_of(store, time=None, **options):
    time = time or Time()
    return RemoteLock(store, clock=lambda: time.now_s, sleep=time.sleep, **options)


def elsewhere(store, epoch):
    """Let the lock of an epoch look as if another machine held it."""
    content = strict_json.loads(store.get(lock_key(epoch)))
    store.put(lock_key(epoch), strict_json.to_bytes({**content, "host": "elsewhere", "pid": 12}))


def test_the_first_driver_has_epoch_1_and_the_next_waits_for_its_release(store):
    first = lock_of(store)
    assert (first.acquire(), first.epoch) == (1, 1)
    time = Time([(7.0, first.release)])
    assert lock_of(store, time).acquire() == 2
    assert time.now_s <= 8.0


def test_a_released_experiment_is_taken_over_at_once(store):
    first = lock_of(store)
    first.acquire()
    first.release()
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == 0.0


def test_a_driver_that_gives_a_sign_of_life_is_named_and_left_alone(store):
    first = lock_of(store)
    first.acquire()
    elsewhere(store, 1)
    time = Time([(25.0, lambda: store.put(alive_key(1), b"2"))])
    with pytest.raises(ExperimentLocked, match=r"process 12 on elsewhere.*steal=True"):
        lock_of(store, time).acquire()
    assert time.now_s < 30.0
    first.check()


def test_a_driver_that_gives_no_sign_of_life_is_replaced_after_the_watch_and_then_fenced(store):
    first = lock_of(store)
    first.acquire()
    elsewhere(store, 1)
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == pytest.approx(30.0)
    with pytest.raises(ExperimentFenced, match=r"taken over by process \d+ on"):
        first.check()


def test_a_driver_of_this_machine_that_is_gone_is_replaced_at_once(store):
    lock_of(store).acquire()
    content = strict_json.loads(store.get(lock_key(1)))
    store.put(lock_key(1), strict_json.to_bytes({**content, "ticks": 1}))
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == 0.0


def test_a_pid_of_another_container_does_not_tell_that_its_driver_is_gone(store):
    lock_of(store).acquire()
    content = strict_json.loads(store.get(lock_key(1)))
    foreign = {**content, "ticks": 1, "pid_namespace": content["pid_namespace"] + 1}
    store.put(lock_key(1), strict_json.to_bytes(foreign))
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == pytest.approx(30.0)


def test_stealing_waits_for_nobody_and_fences_the_owner_at_its_next_beat(store):
    owner = lock_of(store)
    owner.acquire()
    time = Time()
    assert lock_of(store, time, steal=True).acquire() == 2
    assert time.now_s == 0.0
    with pytest.raises(ExperimentFenced):
        owner.beat()


def test_signs_of_life_differ(store):
    lock = lock_of(store)
    lock.acquire()
    signs = []
    for _ in range(3):
        signs.append(store.get(alive_key(1)))
        lock.beat()
    assert len(set(signs)) == 3


@pytest.mark.process
def test_a_driver_notices_that_its_lock_was_deleted(store):
    lock = lock_of(store)
    lock.acquire()
    store.delete(store.list())
    with pytest.raises(StorageLost, match="deleted or replaced"):
        lock.beat()


def test_the_one_of_two_waiting_drivers_that_is_slower_waits_for_the_other(store):
    lock_of(store).acquire()
    elsewhere(store, 1)
    fast = lock_of(store)
    # It sees the new lock, and then that driver's sign of life.
    time = Time([(29.0, fast.acquire), (31.0, lambda: store.put(alive_key(2), b"9"))])
    with pytest.raises(ExperimentLocked):
        lock_of(store, time).acquire()
    fast.check()


def test_without_conditional_writes_no_driver_is_waited_for(store):
    lock_of(store).acquire()
    time = Time()
    assert lock_of(store, time, is_checked=False).acquire() == 2
    assert time.now_s == 0.0


def test_where_an_epoch_continues_is_stored_and_the_experiment_may_be_lost_in_that_moment(store):
    first = lock_of(store)
    first.acquire()
    first.start_after(0, 0)
    second = lock_of(store, steal=True)
    second.acquire()
    lock_of(store, steal=True).acquire()
    with pytest.raises(ExperimentFenced):
        second.start_after(70, 5)
    assert strict_json.loads(store.get(start_key(1))) == {"epoch": 1, "sequence": 0, "crc": 0}
    assert strict_json.loads(store.get(start_key(2))) == {"abandoned": True}
    assert read_starts(store) == {1: (0, 0)}


def test_a_driver_of_this_process_that_gave_up_without_a_release_is_replaced_at_once(store):
    first = lock_of(store)
    first.acquire()
    first.give_up()
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == 0.0
    with pytest.raises(ExperimentFenced):
        first.check()


@pytest.mark.process
def test_the_epochs_of_locks_that_were_deleted_are_not_used_again(store):
    for _ in range(2):
        earlier = lock_of(store, steal=True)
        earlier.acquire()
        earlier.start_after(0, 0)
    store.delete(store.list("lock/"))
    lock = lock_of(store)
    assert lock.acquire() == 3
    lock.start_after(0, 0)


def test_a_lock_that_no_driver_has_created_is_named(store):
    lock_of(store).acquire()
    store.put("lock/99999999.json", b"{}")
    with pytest.raises(StorageError, match=r"has lock/99999999\.json.*delete them"):
        lock_of(store).acquire()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"pid": "\\u001b[31m", "host": 1}', b"null"]
)
def test_a_lock_that_cannot_be_read_belongs_to_another_driver(store, content):
    store.put(lock_key(1), content)
    time = Time()
    assert lock_of(store, time).acquire() == 2
    assert time.now_s == pytest.approx(30.0)


# -------------------------------------------------------------------------------------------------
# Requests to the driver of an epoch


@pytest.fixture
def place(store):
    lock_of(store).acquire()
    return replace(requests_in_store(store), look_s=0.01, poll_s=0.01)


def inbox(place, wake):
    return RequestInbox(place, place.driver(), wake)


@pytest.mark.process
def test_a_request_is_carried_out_by_the_driver_that_it_is_for(place, store):
    pause = ControlRequest(Verb.PAUSE, "t00001")
    asked = []

    def answer():
        for request, reply in requests.take():
            asked.append(request)
            reply(ControlReply(is_granted=True, text="paused"))

    with ThreadPoolExecutor(1) as pool:
        requests = inbox(place, lambda: pool.submit(answer))
        assert post(place, pause).text == "paused"
        # One that the driver takes up too late to carry it out.
        place.folder.put("1-1.json", b'{"to":"1","verb":"pause","trial_id":"t00002"}')
        assert place.folder.create("1-1.taken", b"sender")
        place.folder.put("1-2.json", b'{"to":"7","verb":"pause","trial_id":"t00003"}')
        assert post(place, pause).text == "paused"
        requests.close()
    assert asked == [pause, pause]


@pytest.mark.process
def test_a_request_that_still_waits_at_the_end_is_refused(place):
    requests = inbox(place, lambda: None)
    place.folder.put("1-1.json", b'{"to":"1","verb":"stop"}')
    requests.close()
    assert b"has come to its end" in place.folder.get("1-1.reply")


@pytest.mark.process
def test_a_request_to_a_driver_that_was_taken_over_from_is_withdrawn(place, store, monkeypatch):
    steal = lock_of(store, steal=True).acquire
    monkeypatch.setattr("tuner.storage.control_requests.time.sleep", lambda _: steal())
    with pytest.raises(NotRunning, match="has ended before it answered"):
        post(place, ControlRequest(Verb.STOP))
    assert not place.folder.list()


# -------------------------------------------------------------------------------------------------
# Interleavings of several drivers, each request to the store being one step


class SteppedBackend:
    """A backend whose every request waits until the schedule lets its thread go on.

    What it lists may be behind: the newest objects are not listed.
    """

    has_conditional_create = True
    url = "memory://stepped"

    def __init__(self, num_hidden=0):
        self.objects = {}
        self.num_hidden = num_hidden
        self.steps = {}  # by thread: an event to go on
        self.waiting = threading.Semaphore(0)

    def step(self):
        go_on = self.steps.get(threading.current_thread())
        if go_on is not None:
            self.waiting.release()
            go_on.wait()
            go_on.clear()

    def create(self, key, content):
        self.step()
        if key in self.objects:
            raise FileExistsError(key)
        self.objects[key] = content

    def put(self, key, content):
        self.step()
        self.objects[key] = content

    def read(self, key, begin, end):
        self.step()
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key][begin:end]

    def sizes(self, directory):
        self.step()
        names = [name for name in self.objects if name.startswith(directory)]
        return ((name, 1) for name in names[: len(names) - self.num_hidden])


def store_on(backend, monkeypatch):
    monkeypatch.setattr("tuner.stores.object_store.open_backend", lambda url, filesystem: backend)
    return ObjectStore("memory://stepped", retry_s=0)


def read_history(store):
    """Return what was stored and counts, and the epochs that it comes from."""
    starts = {}
    epoch = 1
    while store.get_if_exists(lock_key(epoch)) is not None:
        content = store.get_if_exists(start_key(epoch))
        if content is not None and "sequence" in (start := strict_json.loads(content)):
            starts[epoch] = start["sequence"]
        epoch += 1
    history = []
    ends = [*starts.values(), None][1:]
    for (epoch, begin), end in zip(starts.items(), ends, strict=False):
        assert begin == len(history), "an epoch does not continue where the one before it ends"
        while end is None or len(history) < end:
            piece = store.get_if_exists(f"journal/{epoch}/{len(history) + 1}")
            if piece is None:
                break
            history.append(piece)
    return history


def drive(store, name, num_pieces, acknowledged):
    """Take over, read the history and add to it, until done or fenced."""
    lock = RemoteLock(store, steal=True)
    try:
        lock.acquire()
        history = read_history(store)
        lock.start_after(len(history), 0)
        for number in range(num_pieces):
            piece = f"{name}{number}".encode()
            assert store.create(f"journal/{lock.epoch}/{len(history) + number + 1}", piece)
            lock.check()
            acknowledged.append(piece)
        lock.release()
    except ExperimentFenced:
        pass


def interleaved(monkeypatch, schedule, num_hidden, num_drivers):
    """Run drivers of one experiment, step by step, and return what they were told was stored."""
    backend = SteppedBackend(num_hidden)
    store = store_on(backend, monkeypatch)
    acknowledged, errors = [], []

    def run(name):
        try:
            backend.step()
            drive(store, name, 2, acknowledged)
        except BaseException as error:  # noqa: BLE001  (for the test's own thread)
            errors.append(error)
        finally:
            del backend.steps[threading.current_thread()]
            backend.waiting.release()

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"[:num_drivers]]
    events = {thread: threading.Event() for thread in threads}
    backend.steps = dict(events)
    for thread in threads:
        thread.start()
    for _ in threads:
        backend.waiting.acquire()
    for choice in [*schedule, *[0] * 10_000]:
        alive = [thread for thread in threads if thread in backend.steps]
        if not alive:
            break
        events[alive[choice % len(alive)]].set()
        backend.waiting.acquire()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return acknowledged, read_history(store)


@pytest.mark.process
@settings(max_examples=examples(150))
@given(st.lists(st.integers(0, 2), max_size=120), st.integers(0, 2), st.integers(2, 3))
def test_an_acknowledged_piece_counts_and_the_history_is_one_line(
    schedule, num_hidden, num_drivers
):
    with pytest.MonkeyPatch.context() as monkeypatch:
        acknowledged, history = interleaved(monkeypatch, schedule, num_hidden, num_drivers)
    assert acknowledged, "the driver of the newest epoch is fenced by none"
    assert set(acknowledged) <= set(history)
    assert len(set(history)) == len(history)


@pytest.mark.process
@pytest.mark.parametrize("defect", ["check", "_abandon_starts"])
def test_the_interleavings_find_a_lock_without_one_of_its_steps(defect, monkeypatch):
    monkeypatch.setattr(RemoteLock, defect, lambda self: None)

    @settings(max_examples=3000, database=None, phases=[Phase.generate])
    @given(st.lists(st.integers(0, 2), max_size=120))
    def search(schedule):
        acknowledged, history = interleaved(monkeypatch, schedule, 0, 3)
        assert set(acknowledged) <= set(history)

    with pytest.raises(AssertionError):
        search()
