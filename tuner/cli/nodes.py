"""``tuner nodes``: the nodes of a cluster that took part in an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.node_history import NodeRecord, NodeState, read_nodes
from tuner.analysis.open_experiment import StoredExperiment
from tuner.callbacks.formatting import printable
from tuner.storage.origin import address_of

from .app import FOUND, OK
from .arguments import experiment_argument
from .output import Column, Output, Record, output_option, spent

_MAX_LISTED: Final = 4


def _amounts(amounts: Mapping[str, float]) -> str:
    return printable(", ".join(f"{name} {amount:g}" for name, amount in amounts.items())) or "-"


def _labels(labels: Mapping[str, str]) -> str:
    return printable(", ".join(f"{name}={value}" for name, value in labels.items())) or "-"


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more or "-"


def _whole(text: Any) -> str:
    return printable(str(text))


_COLUMNS: Final = (
    Column("node", text=_whole),
    Column("state"),
    Column("resources", text=_amounts, rank=1),
    Column("labels", text=_labels, rank=4),
    Column("running", text=_listed, rank=1),
    Column("trials", rank=2),
    Column("losses", rank=2),
    Column("joined_s", "joined at", spent, rank=3),
    Column("left_s", "left at", spent, rank=3),
    Column("why", text=_whole, rank=2),
)


@click.command()
@experiment_argument
@output_option
def nodes(experiment: Path, output: Output) -> int:
    """Show the nodes of a cluster that took part in an experiment.

    A node is present, draining (it is about to leave, and nothing more is started on it) or has
    left. Shown are its resources and labels, the trials that run on it now, how many trials have
    run on it, how many attempts were lost there, when it joined and left, in running time of the
    experiment, and why it left. If the experiment is not running, all nodes have left. CSV and JSON
    have all columns.

    \b
    Examples:
      tuner nodes digits
      tuner nodes s3://bucket/experiments/digits -f json
    """
    stored, history = read_nodes(experiment)
    if not history.nodes:
        click.echo(f"tuner nodes: {_why_none(experiment, stored)}", err=True)
        return FOUND
    output.write([_record(node) for node in history.nodes.values()], _COLUMNS)
    return OK


def _why_none(experiment: Path, stored: StoredExperiment) -> str:
    address = printable(address_of(experiment))
    if stored.experiment.settings.node_wait_s is not None:
        return f"no node has joined {address} yet; tuner doctor --cluster tells whether any can"
    return (
        f"{address} runs on one machine, without a cluster; RunConfig(cluster=...) uses the nodes "
        "of one"
    )


def _record(node: NodeRecord) -> Record:
    is_here = node.state is not NodeState.LEFT
    return {
        "node": node.name,
        "state": str(node.state),
        "resources": dict(node.resources),
        "labels": dict(node.labels),
        "running": sorted(node.running) if is_here else [],
        "trials": len(node.trials),
        "losses": node.num_losses,
        "joined_s": node.joined_s,
        "left_s": node.left_s,
        "why": node.why or None,
    }
