"""Truncated, flipped or zeroed files: the state is the same, refused, or its loss is reported."""

import json
import random
import re
import shutil
import warnings
from pathlib import Path

import pytest

from tests.faulty_disks import MemoryDisk
from tests.tiers import examples
from tuner.errors import CheckpointError, DamagedJournal, StorageError
from tuner.journal.reader import read, recover
from tuner.journal.salvage import ASIDE_PREFIX, cut_at_damage
from tuner.journal.writer import Journal
from tuner.storage import layout, strict_json
from tuner.storage.checkpoint_directories import commit_from
from tuner.storage.layout import journal_directory, segments_in
from tuner.storage.manifest import Provenance, read_manifest

pytestmark = pytest.mark.property

WHERE = Path("/virtual")
IS_FULL = examples(100) == 100
NUM_DAMAGES = 6_000 if IS_FULL else 600
TAIL_BYTES = (64 if IS_FULL else 6) << 10
SEGMENT_BYTES = 1 << 10


def body(number):
    return {
        "t": number / 2,
        "k": "result",
        "id": f"t{number % 3:05d}",
        "a": 1,
        "m": {"loss": number * 0.1},
        "c": None,
    }


def chance_from(seed):
    return random.Random(seed)  # noqa: S311  (chance, not secrecy)


def written(num_records, segment_bytes, *, is_closed=True):
    """Return a disk with the journal of a driver that has ended."""
    disk = MemoryDisk()
    with Journal(WHERE, sync="process", segment_bytes=segment_bytes, disk=disk) as journal:
        for number in range(num_records):
            journal.append(body(number))
            journal.flush()
        if is_closed:
            journal.append({"t": 1.0, "k": "close"})
    return disk


def contents(disk):
    return {path: disk.read(path) for _, path in segments_in(journal_directory(WHERE), disk)}


def disk_with(files):
    disk = MemoryDisk()
    for path, data in files.items():
        disk.write(disk.create(path), data)
    return disk


def read_all(disk):
    """Return the records that a restore reads, and whether a warning reported a truncation."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        recover(WHERE, disk=disk)
        return list(read(WHERE, disk=disk)), bool(warned)


# Truncation.


@pytest.mark.filterwarnings("ignore:the last write to journal")
def test_cut_at_every_byte_of_its_last_segments_it_holds_the_whole_lines_and_goes_on():
    files = contents(written(800 if IS_FULL else 120, SEGMENT_BYTES, is_closed=False))
    assert sum(map(len, files.values())) > TAIL_BYTES + 2 * SEGMENT_BYTES
    num_bytes, paths = 0, sorted(files)
    while num_bytes < TAIL_BYTES:
        last = paths.pop()
        whole = files[last]
        num_bytes += len(whole)
        before = {path: files[path] for path in paths[-1:]}
        for size in range(len(whole)):
            check_cut({**before, last: whole[:size]}, last, goes_on=size % 61 == 0)


def check_cut(files, last, *, goes_on):
    disk = disk_with(files)
    first = int(last.stem)
    expected = first - 1 + max(files[last].count(b"\n") - 1, 0)
    tail = recover(WHERE, disk=disk)
    assert tail.sequence == expected
    if goes_on:
        with Journal(WHERE, tail, sync="process", disk=disk) as journal:
            journal.append(body(1), body(2))
        assert recover(WHERE, disk=disk).sequence == expected + 2
        beginning = int(min(files).stem) - 1
        found = [record["q"] for record in read(WHERE, after=beginning, disk=disk)]
        assert found == list(range(beginning + 1, expected + 3))


# Corruption.


def damages(files, seed):
    """Yield the files with one bit flipped, or one block zeroed, again and again."""
    chance = chance_from(seed)
    for number in range(NUM_DAMAGES):
        path = chance.choice(sorted(files))
        data = bytearray(files[path])
        at = chance.randrange(len(data))
        if number % 4:
            data[at] ^= 1 << chance.randrange(8)
        else:
            size = min(chance.choice([1, 16, 512]), len(data) - at)
            data[at : at + size] = bytes(size)
        yield {**files, path: bytes(data)}


@pytest.fixture(scope="module")
def original():
    files = contents(written(40, 1200))
    assert len(files) > 3
    return files, read_all(disk_with(files))[0]


def outcome_of(action):
    """Return what an action returns, or the error with which it refuses."""
    try:
        return action()
    except (DamagedJournal, CheckpointError) as refusal:
        return refusal


def test_a_damaged_journal_is_refused_with_file_and_byte_or_holds_what_it_held(original):
    files, truth = original
    num_refused = num_cut = 0
    for damaged in damages(files, seed=1):
        outcome = outcome_of(lambda damaged=damaged: read_all(disk_with(damaged)))
        if isinstance(outcome, DamagedJournal):
            num_refused += 1
            assert 0 <= outcome.offset <= len(damaged[Path(outcome.path)])
            assert f"{outcome.path} is damaged at byte {outcome.offset}" in str(outcome)
        else:
            found, was_told = outcome
            assert found == truth or (was_told and found == truth[: len(found)])
            num_cut += found != truth
    assert num_refused > NUM_DAMAGES * 0.9
    assert num_cut > 0


def test_one_flipped_bit_of_an_ended_experiment_never_costs_a_result(original):
    files, truth = original
    chance = chance_from(2)
    for _ in range(NUM_DAMAGES // 6):
        path = chance.choice(sorted(files))
        data = bytearray(files[path])
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            found, _ = read_all(disk_with({**files, path: bytes(data)}))
        except DamagedJournal:
            continue
        assert [record for record in found if record["k"] == "result"] == truth[:-1]


@pytest.fixture(scope="module")
def declaration():
    fields = {
        "format_version": 1,
        "name": "exp",
        "seed": 42,
        "space": {"x": "Float(0, 1)"},
        "settings": {"max_trials": 10},
    }
    return fields, (strict_json.dumps(strict_json.signed(fields)) + "\n").encode()


def test_a_damaged_declaration_is_refused_or_unchanged(declaration):
    fields, text = declaration
    for damaged in damages({WHERE: text}, seed=3):
        try:
            found = strict_json.checked(strict_json.loads(damaged[WHERE]))
        except (ValueError, AttributeError):
            continue
        assert found == fields


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trial")
    source = directory / "source"
    source.mkdir()
    (source / "weights").write_text("1" * 100)
    return commit_from(source, directory, Provenance("t00000", 1, 0, 3, {"loss": 0.5}))


def test_a_damaged_manifest_is_refused_by_name_or_unchanged(checkpoint):
    path = checkpoint / layout.MANIFEST
    text, truth = path.read_bytes(), read_manifest(checkpoint)
    for number, damaged in enumerate(damages({path: text}, seed=4)):
        path.write_bytes(damaged[path])
        outcome = outcome_of(lambda: read_manifest(checkpoint))
        assert outcome == truth or (
            isinstance(outcome, CheckpointError) and str(path) in str(outcome)
        )
        if number > NUM_DAMAGES / 6:
            break
    path.write_bytes(text)


# Salvage.


def salvaged(files):
    disk = disk_with(files)
    cut_at_damage(WHERE, disk)
    return disk


def kept_aside(disk):
    directory = journal_directory(WHERE)
    return {
        name: disk.read(directory / name)
        for name in disk.names(directory)
        if name.startswith(ASIDE_PREFIX)
    }


def test_a_sound_journal_is_left_as_it_is(original):
    files, _ = original
    disk = salvaged(files)
    assert contents(disk) == files
    assert not kept_aside(disk)


def test_a_zeroed_block_costs_the_records_after_it_which_are_kept_and_counted(original, caplog):
    files, truth = original
    second = sorted(files)[1]
    data = files[second]
    zeroed = data[:400] + bytes(300) + data[700:]
    disk = salvaged({**files, second: zeroed})
    found, _ = read_all(disk)
    assert 0 < len(found) < len(truth)
    assert found == truth[: len(found)]
    assert f"journal {second} is damaged" in caplog.text
    num_lost = sum(int(number) for number in re.findall(r"(\d+) results of trial", caplog.text))
    num_destroyed = len(truth) - 1 - len(found) - num_lost
    assert 3 <= num_destroyed <= 5
    assert set(kept_aside(disk)) == {f"{ASIDE_PREFIX}{path.name}" for path in sorted(files)[1:]}
    assert kept_aside(disk)[f"{ASIDE_PREFIX}{second.name}"] == zeroed
    assert "results of trial t00001" in caplog.text
    cut = contents(disk)
    cut_at_damage(WHERE, disk)
    assert contents(disk) == cut


def test_salvaged_records_are_always_a_prefix_of_the_true_ones(original):
    files, truth = original
    for number, damaged in enumerate(damages(files, seed=6)):
        if number > NUM_DAMAGES / 15:
            break
        try:
            disk = salvaged(damaged)
        except StorageError:
            continue
        found, _ = read_all(disk)
        assert found == truth[: len(found)]
        assert found


def test_a_journal_of_which_nothing_can_be_kept_is_never_a_fresh_start(original):
    files, _ = original
    first = min(files)
    damaged = {**files, first: bytes(300) + files[first][300:]}
    disk = disk_with(damaged)
    with pytest.raises(DamagedJournal, match="no record stands before that"):
        cut_at_damage(WHERE, disk)
    assert contents(disk) == damaged


def test_an_experiment_with_a_damaged_journal_continues_with_salvage(short, monkeypatch):
    experiment = short("damaged")
    experiment.fit()
    (path,) = (experiment.directory / layout.JOURNAL).iterdir()
    data = path.read_bytes()
    at = data.index(b'"training_iteration":3')
    path.write_bytes(data[:at] + bytes(200) + data[at + 200 :])
    with pytest.raises(DamagedJournal):
        experiment.restore()
    grid = experiment.restore(salvage=True)
    assert [list(result.metrics_dataframe["loss"]) for result in grid] == [
        [x / epoch for epoch in (1, 2, 3, 4)] for x in (1.0, 2.0)
    ]
    assert len(list(path.parent.glob(f"{ASIDE_PREFIX}*"))) == 1


def test_a_declaration_in_which_a_digit_was_changed_is_refused(short, tmp_path):
    experiment = short("changed")
    experiment.fit()
    path = experiment.directory / layout.DECLARATION
    path.write_text(path.read_text().replace('"seed":1', '"seed":2'))
    assert json.loads(path.read_text())["seed"] == 2
    with pytest.raises(StorageError, match=r"experiment\.json cannot be read: its SHA-256"):
        experiment.restore()
    shutil.rmtree(tmp_path / "changed")
