"""The proof that driver and node see the same directory."""

import pytest

from tuner.cluster.shared_directory import (
    SharedProof,
    answer_proof,
    await_former_nodes,
)


def test_both_sides_see_what_the_other_one_has_written(tmp_path):
    shared = SharedProof(tmp_path, 0.01)
    assert answer_proof(str(tmp_path), shared.proof, "node/1") == ""
    assert shared.complaint("node/1") == ""
    shared.close()
    assert list(tmp_path.iterdir()) == []


def test_a_node_with_another_directory_of_that_path_is_told_what_to_do(tmp_path):
    (tmp_path / "driver").mkdir()
    (tmp_path / "node").mkdir()
    shared = SharedProof(tmp_path / "driver", 0.01)
    why = answer_proof(str(tmp_path / "node"), shared.proof, "node", within_s=0.0)
    assert "does not see the experiment's directory" in why
    assert "object store" in why
    assert "cannot be read by the driver" in shared.complaint("node")


def test_a_node_that_sees_something_else_is_refused(tmp_path):
    shared = SharedProof(tmp_path, 0.01)
    name, content = shared.proof
    assert "is another file" in answer_proof(str(tmp_path), (name, content + "x"), "node", 0.0)
    assert answer_proof(str(tmp_path), shared.proof, "node") == ""
    assert shared.complaint("node") == ""
    next(tmp_path.glob(f"{name}-*")).write_text("else")
    assert "is not what it has written" in shared.complaint("node")


def test_a_node_that_cannot_write_is_refused(tmp_path, monkeypatch):
    shared = SharedProof(tmp_path, 0.01)

    def refuse(path, data, *, sync):
        raise PermissionError(f"read-only: {path.name[:4]}")

    monkeypatch.setattr("tuner.cluster.shared_directory.write_bytes", refuse)
    assert "cannot write" in answer_proof(str(tmp_path), shared.proof, "node")


@pytest.mark.process
def test_nodes_of_a_dead_driver_are_given_time_to_end_their_trials(tmp_path, caplog):
    shared = SharedProof(tmp_path, 0.01)
    answer_proof(str(tmp_path), shared.proof, "node")
    await_former_nodes(tmp_path)
    assert "waiting for 0.01 s" in caplog.text
    assert list(tmp_path.iterdir()) == []
    caplog.clear()
    await_former_nodes(tmp_path)
    assert not caplog.text
