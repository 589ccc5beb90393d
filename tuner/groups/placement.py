"""Where the workers of a group are: their places among each other, and their devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.execution.assignment import Assignment, Rank


def place_ranks(
    assignments: Mapping[str, Assignment], nodes: Sequence[str], address: str, port: int
) -> list[Assignment]:
    """Return the assignments of the workers of a group.

    Args:
        assignments: What those on a node have in common, by node; the devices are those of all, in
            their order.
        nodes: The node of each.
        address: Where rank 0 listens.
        port: The port.
    """
    first = assignments[nodes[0]]
    run_id = f"{first.trial_id}-{first.attempt}"
    return [
        replace(
            assignments[node],
            rank=rank,
            node=node,
            gpu_ids=devices_on(node, nodes, first.gpu_ids),
        )
        for node, rank in zip(nodes, ranks_of(nodes, run_id, address, port), strict=True)
    ]


def ranks_of(nodes: Sequence[str], run_id: str, address: str, port: int) -> list[Rank]:
    """Return the places of the workers of a group, see `place_ranks`.

    Args:
        nodes: The node of each.
        run_id: Identifies the group.
        address: Where rank 0 listens.
        port: The port.
    """
    sizes = Counter(nodes)
    numbers = {node: number for number, node in enumerate(sizes)}
    num_found: Counter[str] = Counter()
    ranks: list[Rank] = []
    for world_rank, node in enumerate(nodes):
        ranks.append(
            Rank(
                world_rank=world_rank,
                world_size=len(nodes),
                local_rank=num_found[node],
                local_world_size=sizes[node],
                node_rank=numbers[node],
                master_addr=address,
                master_port=port,
                run_id=run_id,
            )
        )
        num_found[node] += 1
    return ranks


def devices_on(node: str, nodes: Sequence[str], gpu_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the devices of a group's workers on a node.

    Args:
        node: The node.
        nodes: The node of each worker.
        gpu_ids: The devices of all, in the order of their ranks.
    """
    num_each = len(gpu_ids) // len(nodes)
    return tuple(
        device
        for rank, place in enumerate(nodes)
        if place == node
        for device in gpu_ids[rank * num_each : (rank + 1) * num_each]
    )
