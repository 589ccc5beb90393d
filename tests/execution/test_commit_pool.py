"""Threads that commit checkpoints, and a disk that does not answer."""

import selectors
import threading

import pytest

from tuner.execution.commit_pool import CommitPool

pytestmark = pytest.mark.process


def test_results_and_exceptions_are_passed_on_by_the_thread_that_asks_for_them():
    pool, results = CommitPool(), {}
    for name, job in {"result": lambda: 3, "error": lambda: 1 / 0}.items():
        pool.submit(job, lambda result, name=name: results.update({name: result}), name)
    with selectors.DefaultSelector() as selector:
        selector.register(pool, selectors.EVENT_READ)
        while len(results) < 2:
            assert selector.select(30)
            pool.run_done()
    assert results["result"] == 3
    assert isinstance(results["error"], ZeroDivisionError)
    assert pool.close(30) == []


def test_the_end_names_jobs_that_hang_and_does_not_wait_for_them():
    pool, may_end, has_begun = CommitPool(), threading.Event(), threading.Event()
    pool.submit(lambda: has_begun.set() or may_end.wait(), print, "checkpoint_000003")
    assert has_begun.wait(60)
    assert pool.close(0.01) == ["checkpoint_000003"]
    may_end.set()
