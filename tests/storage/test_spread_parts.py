"""Which machine uploads which files of a checkpoint of which several have parts."""

import pytest

from tuner.errors import CheckpointError
from tuner.storage.manifest import FileEntry, PartContents
from tuner.storage.spread_parts import combine


def part(files, links=None, directories=(), **options):
    return PartContents(files, links or {}, directories, **options)


def test_of_files_with_the_same_name_that_of_the_highest_rank_counts():
    first = part({"x": FileEntry(1, "a", 3), "y": FileEntry(1, "a", 0)})
    second = part({"x": FileEntry(1, "b", 2), "y": FileEntry(1, "a", 1), "z": FileEntry(1, "a", 1)})
    found = combine([("m", first), ("n", second)])
    assert {name: entry.rank for name, entry in found.contents.files.items()} == {
        "x": 3,
        "y": 1,
        "z": 1,
    }
    assert found.left_out == {"m": ["y"], "n": ["x"]}
    (conflict,) = found.conflicts
    assert "file x of a checkpoint differs between the nodes m and n" in conflict


def test_where_no_rank_has_measured_a_file_that_of_the_last_machine_counts():
    entry = FileEntry(1, "a")
    found = combine([("m", part({"x": entry})), ("n", part({"x": entry}))])
    assert (found.left_out, found.conflicts) == ({"m": ["x"], "n": []}, [])


def test_folders_links_and_metadata_of_all_are_there():
    first = part({}, {"one": "a/x"}, ["a"], has_metadata=True)
    second = part({"b/y": FileEntry(1, "a", 1)}, {"two": "b/y"}, ["a", "b"])
    found = combine([("m", first), ("n", second)])
    assert found.contents.directories == ["a", "b"]
    assert found.contents.links == {"one": "a/x", "two": "b/y"}
    assert found.metadata_of == "m"


def test_a_file_where_another_has_a_folder_is_refused():
    with pytest.raises(CheckpointError, match="do not fit together"):
        combine([("m", part({"x": FileEntry(1, "a")})), ("n", part({}, {}, ["x"]))])
