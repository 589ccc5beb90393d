"""A journal that lacks its end is told from a whole one by what was noted outside of it."""

import pytest

from tuner.errors import DamagedJournal
from tuner.journal.completeness import check_end, find_missing
from tuner.journal.mark import Mark
from tuner.journal.reader import find_end, recover
from tuner.journal.writer import Journal
from tuner.storage.disk import LOCAL_DISK
from tuner.storage.layout import journal_directory, segments_in

MARK = Mark(epoch=2, segment=3, boot_id="here")


@pytest.fixture
def segments(tmp_path):
    """Return the segments of a journal: one of the first driver, and two of the second."""
    for num_segments in (1, 2):
        with Journal(tmp_path, recover(tmp_path), sync="process") as writer:
            for number in range(num_segments):
                if number:
                    writer.rotate()
                writer.append({"t": 0.0, "k": "turn"})
                writer.flush()
    return [path for _, path in segments_in(journal_directory(tmp_path), LOCAL_DISK)]


@pytest.mark.parametrize(
    ("num_lost", "missing"),
    [
        (0, []),
        (1, ["the segment that began with record 3 is missing"]),
        (2, ["driver 2 has written to it (it ends with driver 1)"]),
        (3, ["driver 2 has written to it (it has no segment)"]),
    ],
)
def test_each_segment_that_is_missing_at_the_end_is_noticed(tmp_path, segments, num_lost, missing):
    for path in segments[3 - num_lost :]:
        path.unlink()
    assert find_missing(tmp_path, MARK, find_end(tmp_path)) == missing


@pytest.mark.parametrize("durability", ["process", "group"])
@pytest.mark.parametrize("boot_id", ["here", "before", ""])
def test_only_a_power_cut_of_an_experiment_that_syncs_nothing_explains_a_loss(
    tmp_path, segments, durability, boot_id
):
    segments[-1].unlink()
    mark = Mark(2, 3, boot_id, durability)
    if durability == "process" and boot_id != "here":
        tail, missing = check_end(tmp_path, mark, current_boot="here")
        assert (tail.sequence, len(missing)) == (2, 1)
    else:
        with pytest.raises(DamagedJournal, match="record 3 is missing"):
            check_end(tmp_path, mark, current_boot="here")
