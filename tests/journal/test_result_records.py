from concurrent.futures import ThreadPoolExecutor

import pytest

from tuner.core.events import ResultReported, TrialForked, TrialSuggested, TurnEnded
from tuner.errors import DamagedJournal
from tuner.journal import records
from tuner.journal.reader import read, recover
from tuner.journal.result_records import ResultIndex, result_records
from tuner.journal.segments import body_of, line_of
from tuner.journal.writer import Journal
from tuner.storage import layout


@pytest.fixture
def experiment(tmp_path):
    with Journal(tmp_path, sync="process", segment_bytes=600) as writer:
        writer.append(records.mark(records.OPEN, 0.0, pid=1))
        for number in range(30):
            metrics = {"loss": number, "note": '"k":"result","id":"t00009"'}
            writer.append(
                records.encode(ResultReported(f"t{number % 3:05d}", 1, metrics), float(number))
            )
            writer.append(records.encode(TurnEnded(), float(number)))
            writer.flush()
    return tmp_path


def test_the_results_of_one_trial_come_in_order(experiment):
    assert [record["m"]["loss"] for record in result_records(experiment, ["t00001"])] == list(
        range(1, 30, 3)
    )


def test_the_results_of_all_trials_come_in_order(experiment):
    assert [record["m"]["loss"] for record in result_records(experiment)] == list(range(30))


def test_the_index_knows_every_trial_and_its_results(experiment):
    index = ResultIndex(experiment)
    trial_ids = ["t00000", "t00001", "t00002"]
    assert [index.count(trial_id) for trial_id in trial_ids] == [10, 10, 10]
    found = [record for trial_id in trial_ids for record in index.of(trial_id)]
    assert sorted(found, key=lambda record: record["q"]) == [
        record for record in read(experiment) if record["k"] == "result"
    ]


def test_a_trial_that_never_reported_has_none(experiment, tmp_path):
    assert list(result_records(experiment, ["t00009"])) == []
    assert ResultIndex(experiment).count("t00009") == 0
    assert list(result_records(tmp_path / "empty", ["t00001"])) == []


def test_a_torn_end_is_passed_over(experiment):
    path = max((experiment / layout.JOURNAL).iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    assert [record["m"]["loss"] for record in result_records(experiment, ["t00002"])][-1] == 29
    path.write_bytes(path.read_bytes()[:-60])
    assert [record["m"]["loss"] for record in result_records(experiment, ["t00002"])][-1] == 26


def test_damage_is_refused_when_the_index_is_made_and_after(experiment):
    index = ResultIndex(experiment)
    list(index.of("t00000"))
    path = min((experiment / layout.JOURNAL).iterdir())
    content = bytearray(path.read_bytes())
    content[content.index(b'"loss":0') + 7] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedJournal, match="changed"):
        list(index.of("t00000"))
    with pytest.raises(DamagedJournal, match="damaged at byte"):
        ResultIndex(experiment).count("t00000")


@pytest.fixture
def relay(tmp_path):
    """Write a journal with one trial after the other, some forked, at most one in each segment."""
    with Journal(tmp_path, sync="process", segment_bytes=1) as writer:
        writer.append(records.mark(records.OPEN, 0.0, pid=1))
        for number in range(6):
            trial_id = f"t{number:05d}"
            began = (
                TrialForked(trial_id, "t00000", {}, {}, 0)
                if number % 2
                else TrialSuggested(trial_id, {}, {})
            )
            writer.append(records.encode(began, float(number)))
            for loss in range(3):
                writer.append(
                    records.encode(ResultReported(trial_id, 1, {"loss": loss}), float(number))
                )
                writer.flush()
    return tmp_path


def segments(experiment):
    return sorted((experiment / layout.JOURNAL).iterdir())


def spoil(path):
    path.write_bytes(path.read_bytes().replace(b'"loss":', b'"lass":'))


def test_no_segment_is_read_from_before_a_trial_began(relay):
    assert len(segments(relay)) > 15
    for path in segments(relay)[:10]:
        spoil(path)
    for trial_id in ("t00005", "t00004"):
        assert [record["m"]["loss"] for record in ResultIndex(relay).of(trial_id)] == [0, 1, 2]
    with pytest.raises(DamagedJournal, match="damaged at byte"):
        list(ResultIndex(relay).of("t00001"))


def test_damage_is_reported_each_time(relay):
    path = segments(relay)[8]
    spoil(path)
    index = ResultIndex(relay)
    for trial_id in ("t00000", "t00000", "t00001"):
        with pytest.raises(DamagedJournal, match="damaged at byte"):
            index.count(trial_id)
    assert index.count("t00005") == 3


@pytest.mark.process
def test_several_threads_may_ask_at_once(relay):
    for _ in range(20):
        index = ResultIndex(relay)
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(index.count, [f"t{number:05d}" for number in range(6)])) == [3] * 6


def test_results_are_found_in_any_order_of_trials(relay):
    index = ResultIndex(relay)
    for number in (4, 1, 5, 0, 3, 1):
        assert [record["m"]["loss"] for record in index.of(f"t{number:05d}")] == [0, 1, 2]


def test_a_segment_that_is_missing_is_missed_from_behind_as_well(relay):
    gone = segments(relay)[8]
    gone.unlink()
    assert [record["m"]["loss"] for record in ResultIndex(relay).of("t00005")] == [0, 1, 2]
    with pytest.raises(DamagedJournal):
        ResultIndex(relay).count("t00000")


def test_a_first_segment_that_is_missing_is_missed_from_behind_as_well(relay):
    segments(relay)[0].unlink()
    with pytest.raises(DamagedJournal, match="are missing"):
        ResultIndex(relay).count("t99999")


def test_a_segment_that_was_exchanged_is_refused_from_behind_as_well(relay):
    """Each line verifies, but the segment belongs to another journal."""
    path = next(path for path in segments(relay) if b'"loss":1' in path.read_bytes())
    head, *lines = path.read_bytes().splitlines()
    bodies = [body_of(line).replace(b'"loss":1', b'"loss":9') for line in lines]
    path.write_bytes(b"".join([head + b"\n", *map(line_of, bodies)]))
    with pytest.raises(DamagedJournal, match="does not follow"):
        ResultIndex(relay).count("t00000")


def test_results_that_are_reported_later_are_not_seen(relay):
    index = ResultIndex(relay)
    with Journal(relay, recover(relay), sync="process", segment_bytes=1) as writer:
        for _ in range(3):
            writer.append(records.encode(ResultReported("t00005", 1, {"loss": 7}), 9.0))
            writer.flush()
    assert [index.count(f"t{number:05d}") for number in range(6)] == [3] * 6
    assert ResultIndex(relay).count("t00005") == 6
