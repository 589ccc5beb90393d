"""Counting the processes that the kernel has killed for lack of memory."""

import pytest

from tuner.execution.local.oom_kills import OomKillCounter


@pytest.fixture
def counter(tmp_path):
    file = tmp_path / "memory.events"

    def write(count):
        file.write_text(f"low 0\noom 7\noom_kill {count}\noom_group_kill 9\n")
        return file

    return write


def test_each_kill_that_is_counted_is_claimed_once(counter):
    kills = OomKillCounter([counter(5)])
    assert kills.claim() is False
    counter(7)
    assert [kills.claim() for _ in range(3)] == [True, True, False]


def test_the_first_file_with_a_count_is_used(counter, tmp_path):
    (tmp_path / "other").write_text("nothing here\n")
    kills = OomKillCounter([tmp_path / "missing", tmp_path / "other", counter(0)])
    counter(1)
    assert kills.claim() is True


def test_without_a_count_the_cause_is_unknown(tmp_path):
    assert OomKillCounter([tmp_path / "missing"]).claim() is None


def test_this_kernel_counts():
    assert OomKillCounter().claim() is False
