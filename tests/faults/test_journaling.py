"""Trials wait while the journal cannot be written; the table of waits is tested in virtual time."""

import errno
import math
import signal
from types import SimpleNamespace

import pytest

from tuner.core.events import StopRequested
from tuner.driver import endings
from tuner.driver.storage_retry import StorageRetry, retry_limit_s
from tuner.errors import StorageError

pytestmark = pytest.mark.unit

POLITE, URGENT = StopRequested("signal.SIGINT"), StopRequested("signal.SIGINT", is_urgent=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_for_free_space_trials_wait_without_limit(code):
    assert retry_limit_s(code, None, 60.0) == math.inf


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ESTALE, errno.EACCES, None])
def test_for_failing_storage_trials_wait_as_long_as_configured(code):
    assert retry_limit_s(code, None, 60.0) == 60.0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_stop_request_waits_seconds_and_an_urgent_one_not_at_all(code):
    assert retry_limit_s(code, POLITE, 60.0) == 5.0
    assert retry_limit_s(code, URGENT, 60.0) == 0.0


def test_asking_to_stop_never_lengthens_the_wait():
    assert retry_limit_s(errno.EIO, POLITE, 2.0) == 2.0


class Storage:
    """Storage and clock in one: it refuses until a moment, and time passes only during `sleep`."""

    def __init__(self, errors):
        self.errors = errors
        self.now_s = 100.0
        self.tried_at_s = []
        self.at = {}

    def write(self):
        self.tried_at_s.append(self.now_s - 100.0)
        code = next((code for until_s, code in self.errors if self.now_s - 100.0 < until_s), None)
        if code is not None:
            raise StorageError(
                f"journal /there/1.log cannot be written: [Errno {code}] refused"
            ) from OSError(code, "refused")

    def sleep(self, duration_s):
        assert duration_s > 0
        self.now_s += duration_s
        for moment_s in [moment_s for moment_s in self.at if moment_s <= self.now_s - 100.0]:
            self.at.pop(moment_s)()

    def storage_retry(self, storage_retry_s=60.0):
        return StorageRetry(storage_retry_s, clock=lambda: self.now_s, sleep=self.sleep)


def test_a_write_that_succeeds_is_made_once_and_nothing_is_said(caplog):
    storage = Storage([])
    storage.storage_retry().on(storage.write)
    assert storage.tried_at_s == [0.0]
    assert not caplog.records


def test_it_is_tried_every_second_until_space_returns_with_one_warning_that_names_path_and_error(
    caplog,
):
    storage = Storage([(100.5, errno.ENOSPC)])
    storage.storage_retry().on(storage.write)
    assert storage.tried_at_s == pytest.approx(range(102))
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "/there/1.log" in warning.message
    assert f"[Errno {errno.ENOSPC}]" in warning.message


def test_a_second_outage_is_logged_again(caplog):
    storage = Storage([(1.5, errno.ENOSPC)])
    storage_retry = storage.storage_retry()
    storage_retry.on(storage.write)
    storage.errors = [(10.0, errno.EDQUOT)]
    storage_retry.on(storage.write)
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 2


def test_failing_storage_is_given_up_after_the_limit_and_the_error_names_it():
    storage = Storage([(math.inf, errno.EROFS)])
    with pytest.raises(StorageError, match=r"/there/1\.log .*given up after 60 s") as refusal:
        storage.storage_retry(60.0).on(storage.write)
    assert storage.tried_at_s == pytest.approx(range(61))
    assert isinstance(refusal.value.__cause__, OSError)


def test_storage_that_comes_back_in_time_is_written_as_if_nothing_had_been():
    storage = Storage([(59.5, errno.EIO)])
    storage.storage_retry(60.0).on(storage.write)
    assert storage.tried_at_s[-1] == pytest.approx(60.0)


def test_with_a_limit_of_zero_the_first_failure_counts():
    storage = Storage([(math.inf, errno.EIO)])
    with pytest.raises(StorageError):
        storage.storage_retry(0.0).on(storage.write)
    assert storage.tried_at_s == [0.0]


def test_waiting_for_space_does_not_use_up_the_time_for_other_troubles():
    storage = Storage([(500.0, errno.ENOSPC), (550.0, errno.EIO), (math.inf, errno.ENOSPC)])
    storage.at[600.0] = storage.errors.clear
    storage.storage_retry(60.0).on(storage.write)
    assert storage.tried_at_s[-1] == pytest.approx(600.0)


def test_a_polite_request_ends_the_wait_after_seconds_that_count_from_the_request():
    storage = Storage([(math.inf, errno.ENOSPC)])
    storage_retry = storage.storage_retry()
    storage.at[30.2] = lambda: storage_retry.ask_to_stop(POLITE)
    with pytest.raises(StorageError):
        storage_retry.on(storage.write)
    assert storage.tried_at_s[-1] == pytest.approx(35.2, abs=0.1)


def test_space_that_returns_before_that_is_used():
    storage = Storage([(34.0, errno.ENOSPC)])
    storage_retry = storage.storage_retry()
    storage.at[30.2] = lambda: storage_retry.ask_to_stop(POLITE)
    storage_retry.on(storage.write)
    assert 34.0 <= storage.tried_at_s[-1] < 35.3


def test_an_urgent_request_ends_the_wait_at_once_after_a_last_try():
    storage = Storage([(math.inf, errno.ENOSPC)])
    storage_retry = storage.storage_retry()
    storage.at[30.2] = lambda: storage_retry.ask_to_stop(URGENT)
    with pytest.raises(StorageError):
        storage_retry.on(storage.write)
    assert storage.tried_at_s[-1] == pytest.approx(30.2, abs=0.1)


def test_a_request_that_came_before_leaves_a_failing_write_its_seconds():
    storage = Storage([(2.0, errno.ENOSPC)])
    storage_retry = storage.storage_retry()
    storage_retry.ask_to_stop(POLITE)
    storage_retry.on(storage.write)
    assert storage.tried_at_s == pytest.approx([0.0, 1.0, 2.0])


def test_errors_that_are_not_of_the_storage_are_not_retried():
    def write():
        raise TypeError("not JSON")

    with pytest.raises(TypeError):
        StorageRetry().on(write)


@pytest.mark.parametrize("received", [signal.SIGINT, None])
def test_a_script_that_is_interrupted_while_the_storage_is_full_ends_with_one_line(
    monkeypatch, caplog, received
):
    monkeypatch.setattr(endings, "is_script", lambda: True)
    full = StorageError("journal cannot be written: no space left")
    if received is None:
        endings.explain_error(full, "Tuner.restore(...)", SimpleNamespace(received=None))
        assert any("Tuner.restore(...)" in note for note in full.__notes__)
        return
    with pytest.raises(SystemExit) as leaving:
        endings.explain_error(full, "Tuner.restore(...)", SimpleNamespace(received=received))
    assert leaving.value.code == 130
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "Tuner.restore(...)" in record.getMessage()
