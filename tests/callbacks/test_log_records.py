"""Log records of trials, and the functions that write them."""

import os

import pytest

from tuner.callbacks.files.append import append, remove, replace_file
from tuner.callbacks.log_records import Begin, End, Row, begin_of, segments_of

BEGIN = Begin({}, True, True, 0.0)
AGAIN = Begin({}, False, False, 1.0)
FIRST, SECOND, THIRD = (Row({"loss": number}, float(number)) for number in range(3))


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [BEGIN],
        [FIRST, SECOND],
        [End(False, 0.0)],
        [BEGIN, FIRST, SECOND, End(False, 2.0)],
        [FIRST, AGAIN, SECOND, AGAIN, End(True, 2.0)],
        [BEGIN, AGAIN, FIRST, SECOND, THIRD],
    ],
)
def test_each_attempt_is_a_segment_and_nothing_is_lost(entries):
    segments = segments_of(entries)
    assert [entry for segment in segments for entry in segment.entries] == entries
    assert [segment.begin is None for segment in segments[1:]] == [False] * (len(segments) - 1)
    assert len(segments) == max(
        sum(isinstance(entry, Begin) for entry in entries)
        + (not isinstance([*entries, BEGIN][0], Begin)),
        0,
    )


def test_an_attempt_from_the_beginning_supersedes_everything(make_trial):
    trial = make_trial()
    trial.attempt, trial.superseded_attempt = 3, 2
    assert begin_of(trial)[1:3] == (False, True)
    trial.attempt = 4
    assert begin_of(trial)[1:3] == (False, False)


def test_a_file_is_made_or_replaced_at_one_stroke_with_the_folder_it_needs(tmp_path):
    path = tmp_path / "a" / "file"
    replace_file(path, b"old")
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    append(str(path), b"er")
    assert path.read_bytes() == b"newer"
    assert [child.name for child in path.parent.iterdir()] == ["file"]
    remove(str(path))
    remove(str(path))
    assert not path.exists()


def test_where_the_directory_of_the_experiment_is_gone_none_is_made_in_its_place(tmp_path):
    for write in (append, replace_file):
        with pytest.raises(FileNotFoundError):
            write(tmp_path / "gone" / "t00000" / "file", b"row")
    assert list(tmp_path.iterdir()) == []


def test_who_appends_does_not_wait_for_the_reader_of_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "file")
    with pytest.raises(OSError, match="No such device"):
        append(tmp_path / "file", b"row")


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    path.symlink_to(victim)
    replace_file(path, b"new")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("precious", "new", False)
    remove(str(path))
    path.symlink_to(tmp_path / "nowhere")
    replace_file(path, b"new")
    assert (path.read_text(), path.is_symlink()) == ("new", False)
