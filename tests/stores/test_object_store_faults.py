"""An S3 server that fails, behind a proxy."""

import os
import threading

import pytest

pytest.importorskip("s3fs")
from benchmarks.faults.s3_servers import S3Server
from tests.object_servers import FaultProxy
from tuner.errors import StorageUnreachable
from tuner.stores.object_store import ObjectStore

# The library retries nothing, so that each fault reaches the store's own retries.
CONFIG = {"retries": {"total_max_attempts": 1}}
pytestmark = pytest.mark.heavy
LARGE_BYTES = 33 << 20
"""Uploaded in several parts."""


@pytest.fixture(scope="module")
def bucket(moto):
    return moto.make_bucket()


@pytest.fixture(scope="module")
def shared_proxy(moto):
    with FaultProxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def shared_store(shared_proxy, bucket):
    """Return a bucket; connecting to it anew for each test would take a second."""
    return ObjectStore(bucket, S3Server(shared_proxy.endpoint).filesystem(config_kwargs=CONFIG))


@pytest.fixture
def proxy(shared_proxy):
    shared_proxy.fault = lambda number, method, path: None
    shared_proxy.requests.clear()
    return shared_proxy


@pytest.fixture
def on_pause(monkeypatch):
    """Return a function that has another called in place of the first pause between tries.

    There are no others.
    """

    def call(happen):
        happenings = iter([happen])
        monkeypatch.setattr(
            "tuner.stores.store_calls.time.sleep",
            lambda _: next(happenings, lambda: None)(),
        )

    return call


@pytest.fixture
def store(shared_store, proxy, tmp_path, on_pause):
    shared_store.retry_s = 120.0
    on_pause(lambda: None)
    return shared_store.child(tmp_path.name)


def use(store, tmp_path):
    """Make every kind of request, and return what was answered."""
    files = {f"files/{index}": tmp_path / f"file{index}" for index in range(2)}
    for key, file in files.items():
        file.write_bytes(key.encode() * 100)
    answers = [
        store.create("lock", b"mine"),
        store.create("lock", b"yours"),
        store.put("beat", b"1"),
        store.put("beat", b"2"),
        store.get("beat"),
        store.get_if_exists("absent"),
        store.upload(files),
        store.list(),
        store.download({key: tmp_path / "copies" / key for key in files}),
        [(tmp_path / "copies" / key).read_bytes() == key.encode() * 100 for key in files],
        store.delete(["beat", "files/0", "absent"]),
        store.list(),
        store.get("lock"),
    ]  # fmt: skip
    store.delete(store.list())
    return answers


EXPECTED = [
    True, False, None, None, b"2", None, None,
    {"beat": 1, "files/0": 700, "files/1": 700, "lock": 4},
    None, [True, True], None, {"files/1": 700, "lock": 4}, b"mine",
]  # fmt: skip


def test_every_kind_of_request_survives_every_fault_at_every_second_request(store, proxy, tmp_path):
    faults = ["503", "lose", "cut"]
    proxy.fault = lambda number, method, path: faults[number // 2 % 3] if number % 2 else None
    for _ in faults:  # so that each request meets each of them
        assert use(store, tmp_path) == EXPECTED
        faults.append(faults.pop(0))
    assert len(proxy.requests) > 80


def test_a_large_file_survives_faults_in_its_parts(store, proxy, tmp_path):
    content = os.urandom(1 << 20) * (LARGE_BYTES >> 20)
    (tmp_path / "large").write_bytes(content)
    proxy.fault = lambda number, method, path: {3: "503", 7: "lose"}.get(number)
    store.upload({"large": tmp_path / "large"})
    assert sum("partNumber" in path for _, path in proxy.requests) >= 3
    proxy.requests.clear()
    proxy.fault = lambda number, method, path: {1: "cut", 3: "cut", 4: "503", 6: "lose"}.get(number)
    store.download({"large": tmp_path / "copy"})
    assert (tmp_path / "copy").read_bytes() == content
    assert len(proxy.requests) <= 4 + 5 + 4  # faults, parts, and those behind the end


def test_a_file_whose_size_is_a_multiple_of_the_parts_is_downloaded_to_its_end(store, tmp_path):
    content = os.urandom(8 << 20)
    store.put("even", content)
    store.download({"even": tmp_path / "copy"})
    assert (tmp_path / "copy").read_bytes() == content


def test_an_unexpected_error_of_the_library_is_one_of_the_store(store, monkeypatch):
    filesystem = store._backend._filesystem

    async def pipe_file(*_):
        return {}["ETag"]

    monkeypatch.setattr(filesystem, "_pipe_file", pipe_file)
    with pytest.raises(StorageUnreachable, match=r"KeyError: 'ETag'"):
        store.put("key", b"content")


def test_an_object_whose_creation_was_not_answered_is_ours_and_no_other_drivers(
    store, proxy, bucket, moto, tmp_path
):
    proxy.fault = lambda number, method, path: "lose" if number == 1 else None
    assert store.create("lock", b"mine") is True
    assert [method for method, _ in proxy.requests] == ["PUT", "PUT", "GET"]
    # Refused as before, where another driver was first and the answer to us is lost.
    other = ObjectStore(f"{bucket}/{tmp_path.name}", moto.filesystem())
    other.put("second", b"theirs")
    proxy.requests.clear()
    assert store.create("second", b"mine") is False


def test_a_creation_that_conflicts_with_another_is_tried_again(store, proxy):
    conflict = (409, "ConditionalRequestConflict")
    proxy.fault = lambda number, method, path: conflict if number == 1 else None
    assert store.create("lock", b"mine") is True


def test_a_server_that_stalls_is_asked_again(proxy, bucket, tmp_path):
    impatient = S3Server(proxy.endpoint).filesystem(config_kwargs={**CONFIG, "read_timeout": 1})
    store = ObjectStore(f"{bucket}/{tmp_path.name}", impatient)
    proxy.fault = lambda number, method, path: "stall" if number == 1 else None
    store.put("key", b"content")
    assert store.get("key") == b"content"


def test_a_server_that_is_away_for_a_while_is_waited_for(store, proxy, on_pause):
    store.put("key", b"content")
    proxy.__exit__()
    on_pause(proxy.__enter__)
    assert store.get("key") == b"content"


def test_a_server_that_stays_away_is_named_with_the_cause_and_the_time(store, proxy):
    store.put("key", b"content")
    store.retry_s = 0.5
    proxy.__exit__()
    with pytest.raises(
        StorageUnreachable, match=r"^s3://bucket-.* could not be reached for \d+ s: "
    ):
        store.get("key")
    proxy.__enter__()


def test_retrying_ends_early_where_the_limit_is_lowered_meanwhile(store, proxy, on_pause):
    store.put("key", b"content")
    proxy.__exit__()
    store.retry_s = 600.0
    on_pause(lambda: setattr(store.child("deep"), "retry_s", 0.0))
    with pytest.raises(StorageUnreachable):
        store.get("key")
    proxy.__enter__()


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "InvalidAccessKeyId", "credentials"),
        (400, "ExpiredToken", "credentials"),
        (403, "SignatureDoesNotMatch", "credentials"),
        (404, "NoSuchBucket", "check the URL"),
    ],
)
def test_what_retrying_does_not_help_is_raised_at_once(store, proxy, status, code, message):
    proxy.fault = lambda number, method, path: (status, code)
    for call in (lambda: store.get("key"), lambda: store.create("key", b""), store.list):
        with pytest.raises(StorageUnreachable, match=message):
            call()
    assert len(proxy.requests) == 3


def test_a_missing_bucket_is_named_by_reading_and_by_writing(moto):
    store = ObjectStore("s3://no-such-bucket/run", moto.filesystem(), retry_s=5)
    for call in (lambda: store.get_if_exists("key"), lambda: store.put("key", b""), store.list):
        with pytest.raises(StorageUnreachable, match="s3://no-such-bucket/run"):
            call()


def test_a_machine_without_credentials_is_told_so(moto, bucket, monkeypatch):
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StorageUnreachable, match=r"NoCredentialsError.*environment variables"):
        ObjectStore(f"{bucket}/run").get("key")


def test_a_store_with_retries_of_its_own_leaves_those_of_the_other_alone(store, proxy):
    impatient = store.with_retry_s(0.0)
    impatient.put("key", b"content")
    assert (store.get("key"), store.retry_s) == (b"content", 120.0)
    proxy.fault = lambda number, method, path: "503"
    with pytest.raises(StorageUnreachable):
        impatient.get("key")


def test_a_forked_child_uses_the_store_with_a_connection_of_its_own(store):
    store.put("parent", b"content")
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if store.get("parent") == b"content" and store.create("child", b"") else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.get("child") == b""


def test_of_threads_that_create_the_same_object_one_succeeds(store):
    winners = []

    def create(name):
        winners.extend(number for number in range(10) if store.create(f"race/{number}", name))

    threads = [threading.Thread(target=create, args=(b"%d" % index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(winners) == list(range(10))
