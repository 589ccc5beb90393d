import pytest

from tuner.core.events import ResultReported, TurnEnded
from tuner.errors import DamagedJournal
from tuner.storage import layout, records
from tuner.storage.journal import Journal, ResultIndex, read, rows


@pytest.fixture
def experiment(tmp_path):
    with Journal(tmp_path, segment_bytes=600) as writer:
        writer.append(records.mark(records.OPEN, 0.0, pid=1))
        for number in range(30):
            metrics = {"loss": number, "note": '"k":"result","id":"t00009"'}
            writer.append(records.encode(ResultReported(f"t{number % 3:05d}", 1, metrics), float(number)))
            writer.append(records.encode(TurnEnded(), float(number)))
            writer.flush()
    return tmp_path


def test_the_results_of_one_trial_come_in_order(experiment):
    assert [record["m"]["loss"] for record in rows(experiment, "t00001")] == list(range(1, 30, 3))


def test_the_results_of_all_trials_come_in_order(experiment):
    assert [record["m"]["loss"] for record in rows(experiment)] == list(range(30))


def test_the_index_knows_every_trial_and_its_results(experiment):
    index = ResultIndex(experiment)
    assert index.trial_ids() == ["t00000", "t00001", "t00002"]
    assert [index.count(trial_id) for trial_id in index.trial_ids()] == [10, 10, 10]
    found = [record for trial_id in index.trial_ids() for record in index.of(trial_id)]
    assert sorted(found, key=lambda record: record["q"]) == [record for record in read(experiment) if record["k"] == "result"]


def test_a_trial_that_never_reported_has_none(experiment, tmp_path):
    assert list(rows(experiment, "t00009")) == []
    assert ResultIndex(experiment).count("t00009") == 0
    assert list(rows(tmp_path / "empty", "t00001")) == []


def test_a_torn_end_is_passed_over(experiment):
    path = max((experiment / layout.JOURNAL).iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    assert [record["m"]["loss"] for record in rows(experiment, "t00002")][-1] == 29
    path.write_bytes(path.read_bytes()[:-60])
    assert [record["m"]["loss"] for record in rows(experiment, "t00002")][-1] == 26


def test_damage_is_refused_when_the_index_is_made_and_after(experiment):
    index = ResultIndex(experiment)
    path = min((experiment / layout.JOURNAL).iterdir())
    content = bytearray(path.read_bytes())
    content[content.index(b'"loss":0') + 7] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedJournal, match="changed"):
        list(index.of("t00000"))
    with pytest.raises(DamagedJournal, match="damaged at byte"):
        ResultIndex(experiment)
