import random
import shutil
import tempfile
import warnings
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.errors import DamagedJournal, StorageError
from tuner.journal import segments
from tuner.journal.reader import read, recover
from tuner.journal.result_records import ResultIndex
from tuner.journal.writer import Journal
from tuner.storage import layout


def body(number):
    return {
        "t": number / 2,
        "k": "result",
        "id": f"t{number % 3:05d}",
        "a": 1,
        "m": {"loss": number * 0.1},
        "c": None,
    }


def write_journal(experiment, numbers, **options):
    with Journal(experiment, recover(experiment), sync="process", **options) as writer:
        for number in numbers:
            writer.append(body(number))
            writer.flush()


def last_segment(experiment):
    return max((Path(experiment) / layout.JOURNAL).glob("*.log"))


def sequence_numbers(experiment, **options):
    return [record["q"] for record in read(experiment, **options)]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    experiment = tmp_path_factory.mktemp("original")
    write_journal(experiment, range(200))
    return experiment


@pytest.fixture
def experiment(original, tmp_path):
    shutil.copytree(original, tmp_path / "experiment")
    return tmp_path / "experiment"


@pytest.mark.filterwarnings("ignore:the last write to journal")
def test_cut_at_every_byte_the_whole_lines_remain_and_the_journal_goes_on(memory_disk):
    where, disk = Path("/virtual"), memory_disk()
    with Journal(where, sync="process", disk=disk) as writer:
        for number in range(20):
            writer.append({"t": number / 2, "k": "turn"})
    whole = disk.read(layout.segment_path(where / layout.JOURNAL, 1))
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole)):
        disk = memory_disk()
        disk.write(disk.create(layout.segment_path(where / layout.JOURNAL, 1)), whole[:size])
        expected = max(0, sum(end <= size for end in ends) - 1)  # the first line is the header
        tail = recover(where, disk=disk)
        assert tail.sequence == expected
        if size % 23 == 0:
            with Journal(where, tail, sync="process", disk=disk) as writer:
                writer.append(body(1), body(2))
            assert sequence_numbers(where, disk=disk) == list(range(1, expected + 3))


def test_a_torn_end_is_kept_aside_and_told(experiment):
    path = last_segment(experiment)
    torn = path.read_bytes()[:-20]
    path.write_bytes(torn)
    with pytest.warns(RuntimeWarning, match="cut off at byte"):
        recover(experiment)
    (aside,) = path.parent.glob("torn-*")
    assert path.read_bytes() + aside.read_bytes() == torn
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recover(experiment)


@pytest.mark.filterwarnings("ignore:the last write to journal")
def test_no_flipped_bit_is_ever_read_as_something_else(experiment, original):
    path = last_segment(experiment)
    whole = path.read_bytes()
    truth = list(read(original))
    chance = random.Random(17)  # noqa: S311  (chance, not secrecy)
    for _ in range(examples(400)):
        position = chance.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        line = whole.count(b"\n", 0, position)
        if line < 199:
            with pytest.raises(DamagedJournal, match=f"{path.name} is damaged at byte"):
                recover(experiment)
            with pytest.raises(DamagedJournal):
                list(read(experiment))
            assert path.read_bytes() == damaged
        elif line == 200:
            assert list(read(experiment)) == truth[:199]


def test_damage_is_reported_with_the_byte_where_its_line_begins(experiment):
    path = last_segment(experiment)
    content = bytearray(path.read_bytes())
    start = content.index(b'"q":100,') - 10
    content[start + 30] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedJournal, match=f"damaged at byte {start}:"):
        list(read(experiment))


def test_a_zeroed_block_in_the_middle_is_damage_and_at_the_end_a_torn_write(experiment):
    path = last_segment(experiment)
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes(512) + whole[5512:])
    with pytest.raises(DamagedJournal):
        recover(experiment)
    path.write_bytes(whole[:-300] + bytes(300))
    with pytest.warns(RuntimeWarning):
        assert 190 < recover(experiment).sequence < 200


def test_a_changed_line_break_before_the_last_line_is_damage(experiment):
    path = last_segment(experiment)
    whole = bytearray(path.read_bytes())
    whole[whole.rindex(b"\n", 0, len(whole) - 1)] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DamagedJournal):
        recover(experiment)


def test_a_text_of_a_trial_that_looks_like_a_record_is_none(tmp_path):
    imitation = segments.line_of(b'{"q":2,"e":1,"t":0.0,"k":"turn"}').decode()
    with Journal(tmp_path, sync="process") as writer:
        writer.append(
            {"t": 0.0, "k": "result", "id": "t1", "a": 1, "m": {"text": imitation}, "c": None}
        )
    path = last_segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.warns(RuntimeWarning):
        assert recover(tmp_path).sequence == 0


@pytest.fixture
def segmented(tmp_path):
    write_journal(tmp_path, range(30), segment_bytes=500)
    return tmp_path


def test_every_missing_segment_but_the_last_shows(segmented):
    paths = sorted((segmented / layout.JOURNAL).iterdir())
    assert len(paths) > 4
    for path in paths[:-1]:
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DamagedJournal, match=r"\.log is damaged at byte"):
            list(read(segmented))
        path.write_bytes(content)
    assert sequence_numbers(segmented) == list(range(1, 31))


def test_a_cut_or_exchanged_sealed_segment_is_damage(segmented):
    paths = sorted((segmented / layout.JOURNAL).iterdir())
    content = paths[1].read_bytes()
    for changed in (content[:-10], content[: content.index(b"\n") + 1], b"", paths[0].read_bytes()):
        paths[1].write_bytes(changed)
        with pytest.raises(DamagedJournal):
            list(read(segmented))


def test_a_sealed_segment_whose_last_record_is_another_is_damage(segmented):
    paths = sorted((segmented / layout.JOURNAL).iterdir())
    lines = paths[1].read_bytes().splitlines(keepends=True)
    changed = segments.body_of(lines[-1][:-1]).replace(b'"a":1', b'"a":2')
    paths[1].write_bytes(b"".join(lines[:-1]) + segments.line_of(changed))
    with pytest.raises(
        DamagedJournal, match=f"{paths[2].name} is damaged at byte 0: it does not follow record"
    ):
        list(read(segmented))


def test_segments_before_the_one_that_is_asked_for_are_not_opened(segmented):
    paths = sorted((segmented / layout.JOURNAL).iterdir())
    third = int(paths[2].stem)
    paths[0].write_bytes(b"garbage")
    paths[1].unlink()
    assert sequence_numbers(segmented, after=third - 1) == list(range(third, 31))
    assert sequence_numbers(segmented, after=third) == list(range(third + 1, 31))


def test_a_segment_counts_up_to_where_the_next_one_begins(tmp_path):
    writer = Journal(tmp_path, has_syncer=False)
    writer.append(body(0), body(1))
    writer.flush()
    writer.sync()
    writer.append(body(2))
    writer.flush()
    writer._sync_failed = True
    writer.append(body(3))
    writer.flush()
    writer.close()
    first, second = sorted((tmp_path / layout.JOURNAL).iterdir())
    assert int(second.stem) == 3
    assert sequence_numbers(tmp_path) == [1, 2, 3, 4]
    first.write_bytes(first.read_bytes()[:-7] + b"garbage")
    assert sequence_numbers(tmp_path) == [1, 2, 3, 4]


def segment_file(experiment, first, previous, epoch, *bodies):
    path = layout.segment_path(experiment / layout.JOURNAL, first)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(
        segments.header_line(first, previous, epoch) + b"".join(map(segments.line_of, bodies))
    )
    return path


def turn(number, epoch):
    return b'{"q":%d,"e":%d,"k":"turn"}' % (number, epoch)


def after_turn(number, epoch):
    return segments.JournalPosition(number, zlib.crc32(turn(number, epoch)), epoch)


@pytest.mark.parametrize("num_turns_of_second", [0, 1])
def test_what_an_earlier_driver_wrote_behind_the_start_of_a_later_one_is_damage(
    tmp_path, num_turns_of_second
):
    first = segment_file(tmp_path, 1, segments.START, 1, turn(1, 1), turn(2, 1))
    following = after_turn(1, 1)._replace(epoch=2)
    second = segment_file(tmp_path, 2, following, 2, *[turn(2, 2)] * num_turns_of_second)
    contents = first.read_bytes(), second.read_bytes()
    readers = [lambda: list(read(tmp_path)), lambda: list(ResultIndex(tmp_path).of("t00000"))]
    for reader in [*readers, *[lambda: recover(tmp_path)] * (not num_turns_of_second)]:
        with pytest.raises(DamagedJournal, match="driver 1 wrote behind driver 2") as damage:
            reader()
        assert (damage.value.path, damage.value.offset) == (
            str(first),
            contents[0].index(segments.line_of(turn(2, 1))),
        )
    assert (first.read_bytes(), second.read_bytes()) == contents


def test_an_opening_cuts_off_what_a_segment_without_records_supersedes(tmp_path, names_in):
    first = segment_file(tmp_path, 1, segments.START, 1, turn(1, 1), turn(2, 1), turn(3, 1))
    segment_file(tmp_path, 2, after_turn(1, 1), 1)
    assert sequence_numbers(tmp_path) == [1]
    write_journal(tmp_path, range(2))
    assert [record["e"] for record in read(tmp_path)] == [1, 2, 2]
    assert first.read_bytes().endswith(segments.line_of(turn(1, 1)))
    assert len(names_in(tmp_path / layout.JOURNAL)) == 2


def test_a_damaged_segment_that_is_not_needed_does_not_keep_an_opening_from_succeeding(tmp_path):
    first = segment_file(tmp_path, 1, segments.START, 1, turn(1, 1), turn(2, 1))
    segment_file(tmp_path, 3, after_turn(2, 1), 1)
    first.write_bytes(first.read_bytes().replace(b"turn", b"torn", 1))
    assert recover(tmp_path) == after_turn(2, 1)


def test_a_gap_or_an_earlier_driver_behind_a_later_one_is_damage(tmp_path):
    (tmp_path / layout.JOURNAL).mkdir()
    header = segments.header_line(1, segments.START, 2)
    path = tmp_path / layout.JOURNAL / f"{1:020d}.log"
    for second, story in (
        (b'{"q":3,"e":2,"k":"turn"}', "record 2 is missing"),
        (b'{"q":2,"e":1,"k":"turn"}', "driver 1 wrote behind"),
    ):
        path.write_bytes(
            header + segments.line_of(b'{"q":1,"e":2,"k":"turn"}') + segments.line_of(second)
        )
        for reader in (recover, lambda where: list(read(where))):
            with pytest.raises(DamagedJournal, match=story):
                reader(tmp_path)


def test_a_segment_of_an_earlier_driver_behind_one_of_a_later_is_damage(tmp_path):
    (tmp_path / layout.JOURNAL).mkdir()
    record = b'{"q":1,"e":2,"k":"turn"}'
    for first, previous, epoch in (
        (1, segments.START, 2),
        (2, segments.JournalPosition(1, zlib.crc32(record), 2), 1),
    ):
        lines = segments.header_line(first, previous, epoch) + (
            segments.line_of(record) if first == 1 else b""
        )
        layout.segment_path(tmp_path / layout.JOURNAL, first).write_bytes(lines)
    with pytest.raises(DamagedJournal, match="driver 1 wrote behind driver 2"):
        list(read(tmp_path))


def test_a_segment_of_a_newer_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as future:
        future.setattr(segments, "FORMAT", 2)
        write_journal(tmp_path, range(2))
    with pytest.raises(StorageError, match="newer version"):
        recover(tmp_path)


def test_other_files_in_the_directory_are_left_alone(segmented):
    (segmented / layout.JOURNAL / "notes.txt").write_text("mine")
    (segmented / layout.JOURNAL / "7.log").write_text("mine")
    assert sequence_numbers(segmented) == list(range(1, 31))


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_recovery_that_fails_can_be_repeated(experiment, faulty_disk, operation, names_in):
    path = last_segment(experiment)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"cannot be (cut off|synced)"):
        recover(experiment, disk=faulty_disk({operation: {1}}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert recover(experiment).sequence == 199
    assert names_in(path.parent).count(path.name) == 1


def test_an_opening_brings_to_the_platter_what_a_failed_sync_has_left_to_the_kernel_alone(
    memory_disk,
):
    disk, where = memory_disk(), Path(tempfile.gettempdir(), "virtual")
    writer = Journal(where, has_syncer=False, disk=disk)
    writer.append(body(1), body(2))
    writer.flush()
    # From now on the kernel takes these pages for clean, and no sync of the file does anything.
    clean, sync = list(disk._open.values()), disk.sync
    disk.sync = lambda descriptor: None if disk._open[descriptor] in clean else sync(descriptor)
    following = Journal(where, recover(where, disk=disk), sync="strict", disk=disk)
    following.append(body(3))
    following.flush()
    disk.power_cut(lambda most: 0)
    assert sequence_numbers(where, disk=disk) == [1, 2, 3]


STEPS = st.lists(
    st.sampled_from(["flush", "flush", "flush", "sync", "rotate", "power cut", "kill"]), max_size=40
)


@settings(max_examples=examples(200))
@given(STEPS, st.sampled_from(["group", "strict"]), st.randoms(use_true_random=False))
def test_a_power_cut_leaves_a_prefix_that_holds_all_that_was_synced_and_a_kill_all_that_was_flushed(
    memory_disk, steps, policy, chance
):
    disk, where = memory_disk(), Path(tempfile.gettempdir(), "virtual")
    history, writer = (
        [],
        Journal(where, sync=policy, has_syncer=False, segment_bytes=300, disk=disk),
    )
    for number, step in enumerate([*steps, "power cut"]):
        match step:
            case "flush":
                writer.append(body(number), body(-number))
                writer.flush()
                history += [number, -number]
            case "sync":
                writer.sync()
            case "rotate":
                writer.rotate()
            case "power cut" | "kill":
                safe = writer.synced_sequence if step == "power cut" else len(history)
                assert policy == "group" or safe == len(history)
                if step == "power cut":
                    disk.power_cut(lambda most: chance.randint(0, most))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tail = recover(where, disk=disk)
                assert safe <= tail.sequence <= len(history)
                history = history[: tail.sequence]
                assert [record["t"] * 2 for record in read(where, disk=disk)] == history
                writer = Journal(
                    where, tail, sync=policy, has_syncer=False, segment_bytes=300, disk=disk
                )
