"""Collective operations of the workers of a group, for small values.

They use the process group of PyTorch, and where there is none, files in the trial's directory.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any, Final, TypeVar

from tuner.execution.session import get_context

from .exchange import gather

__all__ = ["barrier", "broadcast_from_rank_zero"]

MAX_BYTES: Final = 2**20
"""Largest pickled value that is broadcast."""
_T = TypeVar("_T")


def barrier() -> None:
    """Wait until all workers of the group have called this.

    Raises:
        RuntimeError: Outside a trial.
    """
    broadcast_from_rank_zero(None)


def broadcast_from_rank_zero(data: _T) -> _T:
    """Return what rank 0 has passed; all workers of the group have to call this.

    It waits until all have called it, so it is a barrier, too.

    Args:
        data: A small value that can be pickled; that of other ranks is ignored.

    Raises:
        ValueError: If it is larger than 1 MiB; report large values as files of a checkpoint.
        TypeError: If it cannot be pickled.
        RuntimeError: Outside a trial.

    Departures:
        Ray Train refuses more than 1 kB.
    """
    context = get_context()
    if context.get_world_size() == 1:
        return data
    if context.get_world_rank() == 0:
        _check_size(data)
    distributed = _process_group()
    if distributed is None:
        gathered: list[_T] = gather(data if context.get_world_rank() == 0 else None)
        return gathered[0]
    box: list[_T] = [data]
    distributed.broadcast_object_list(box, src=0)
    # A broadcast does not wait for its receivers.
    distributed.barrier()
    return box[0]


def _process_group() -> Any:
    """Return the module with the operations of PyTorch's process group, None without one."""
    # Not imported here: where nothing has imported it, there is no process group.
    torch: Any = sys.modules.get("torch")
    distributed = torch.distributed if torch is not None else None
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _check_size(data: Any) -> None:
    try:
        size = len(pickle.dumps(data))
    except (pickle.PicklingError, AttributeError, TypeError) as cause:
        raise TypeError(f"data must be a value that can be pickled, got {data!r:.80}") from cause
    if size > MAX_BYTES:
        raise ValueError(
            f"data must be at most {MAX_BYTES} bytes, got {size}; report large values as files of "
            "a checkpoint"
        )
