import pytest

from benchmarks.faults.racing_drivers import race, verdict

pytestmark = pytest.mark.process


def test_what_racing_drivers_were_told_is_stored_is_in_the_one_journal_of_their_experiment(
    tmp_path,
):
    pytest.importorskip("fsspec")
    rounds = list(race(f"file://{tmp_path}", 10, max_pause_s=0.05))
    assert verdict(rounds).failed == []
    assert sum(each.num_acknowledged for each in rounds) > 10
    assert sum(each.num_epochs for each in rounds) > 10
