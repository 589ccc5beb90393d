"""PyTorch's processes on several nodes form one process group, also after the loss of a node."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tuner.core.events import Outcome, ResultReported, WorkerExited
from tuner.execution.session import Checkpoint, get_context, report
from tuner.train.torch import TorchConfig

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")


def add_up(config):
    """Sum over all ranks; the sums continue from those in the checkpoint of the first attempt."""
    rank = get_context().get_world_rank()
    TorchConfig().on_start()
    total = torch.tensor(float(rank))
    if start := config.get("start"):
        total += float(Path(start, f"part{rank}").read_text())
    torch.distributed.all_reduce(total)
    with TemporaryDirectory() as directory:
        Path(directory, f"part{rank}").write_text(str(float(total)))
        report({"total": float(total)}, checkpoint=Checkpoint.from_directory(directory))
    if not start:
        torch.distributed.barrier()
        torch.distributed.recv(total, src=(rank + 1) % 4)  # nobody sends: until the node is lost
    TorchConfig().on_end()


def test_a_process_group_over_nodes_is_formed_again_elsewhere_after_a_node_is_lost(
    few_nodes, tmp_path
):
    nodes = few_nodes(add_up, "abc")
    nodes.start()
    result = nodes.wait_for(ResultReported)
    assert result.metrics["total"] == 6.0
    nodes.lose("b")
    assert nodes.wait_for(WorkerExited).outcome is Outcome.LOST

    start = tmp_path / "t00001" / result.checkpoint.directory
    nodes.start(2, ("a", "c", "a", "c"), start=str(start))
    assert nodes.wait_for(ResultReported, 2).metrics["total"] == 30.0
    assert nodes.wait_for(WorkerExited, 2) == WorkerExited("t00001", 2, Outcome.COMPLETED)
