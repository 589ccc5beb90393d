"""A node reaches a storage if each end sees what the other one has written."""

import pytest

from tuner.cluster.storage_probe import answer_probe, probe_message, write_probe
from tuner.errors import StorageError

pytestmark = pytest.mark.process


def probes(kind, directory):
    if kind == "store":
        pytest.importorskip("fsspec")
        return write_probe(f"file://{directory}")
    return write_probe(str(directory))


@pytest.mark.parametrize("kind", ["store", "directory"])
def test_a_node_that_shares_the_storage_reaches_it_and_nothing_is_left_there(tmp_path, kind):
    probe = probes(kind, tmp_path)
    assert answer_probe(probe_message(probe), "a.1") == ""
    assert probe.complaint("a.1") == ""
    assert probe.complaint("b.1") != ""
    probe.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", ["store", "directory"])
def test_a_storage_of_the_same_name_that_is_another_one_is_found_out(tmp_path, kind):
    driver = tmp_path / "driver"
    driver.mkdir()
    probe = probes(kind, driver)
    (tmp_path / "node").mkdir()
    place = probe.place.replace("driver", "node")
    why = answer_probe({**probe_message(probe), "place": place}, "a.1", within_s=0.0)
    assert "does not see" in why
    assert "; " in why
    # What it has written elsewhere is not there either.
    if kind == "store":
        driver.rename(tmp_path / "away")
        assert "another storage of that name" in probe.complaint("a.1")
    probe.close()


def test_what_cannot_be_used_is_told_with_the_cause(tmp_path):
    message = {"place": "nosuch://bucket/x", "proof": {"name": "probe/1", "content": "2"}}
    assert "it cannot use nosuch://bucket/x (" in answer_probe(message, "a.1")
    with pytest.raises((StorageError, OSError)):
        write_probe(str(tmp_path / "absent"))
