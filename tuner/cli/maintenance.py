"""``tuner prune`` and ``tuner doctor``: maintenance of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.open_experiment import read_stored
from tuner.callbacks.formatting import printable
from tuner.cluster.cluster import Cluster
from tuner.maintenance.cluster_check import check_cluster
from tuner.maintenance.doctor import Finding, Level, check
from tuner.maintenance.pruning import KeepRules, Usage, total_size, usage_of
from tuner.maintenance.pruning import prune as pruned
from tuner.maintenance.store_check import check_store
from tuner.maintenance.store_inventory import inventory_of
from tuner.storage.lock import driver_of
from tuner.storage.urls import is_like_url

from .app import FOUND, OK, UNREADABLE
from .arguments import (
    ClusterType,
    ExperimentType,
    experiment_argument,
)
from .output import Column, Output, output_option

_UNIT: Final = 1024.0


@click.command()
@experiment_argument
@click.option(
    "--keep-best",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the best checkpoint of each of the N best trials.",
)
@click.option("--keep-last", is_flag=True, help="Keep the latest checkpoint of every trial.")
@click.option(
    "--yes", is_flag=True, help="Delete; without it this only shows what would be deleted."
)
@click.option(
    "--dry-run", is_flag=True, help="Only show what would be deleted, which is the default."
)
@output_option
def prune(
    experiment: Path,
    keep_best: int | None,
    output: Output,
    *,
    keep_last: bool,
    yes: bool,
    dry_run: bool,
) -> int:
    """Show the disk usage of an experiment, and delete superseded checkpoints and leftovers.

    A checkpoint is kept if one of the --keep options selects it; without them the latest and the
    best one of every trial are kept. Checkpoints from which an unfinished or failed trial, or
    another trial, is to continue are always kept, so that the experiment can still be resumed.
    Logs, results and the journal are never deleted, and nothing is deleted while a driver runs.
    Deletions are recorded in the journal, for tuner explain and Tuner.restore.

    \b
    Examples:
      tuner prune digits
      tuner prune digits --keep-best 3 --yes
    """
    if yes and dry_run:
        raise click.UsageError("--yes and --dry-run must not both be given")
    keep = KeepRules(keep_best, keep_last)
    try:
        if not yes:
            usage = usage_of(
                read_stored(experiment),
                keep,
                is_driven=driver_of(experiment) is not None,
                inventory=inventory_of(experiment),
            )
            _write_usage(usage, output)
            _print_superseded(usage, output)
            return OK
        done = pruned(experiment, keep)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    _write_usage(done.usage, output)
    if output.kind == "table":
        click.echo(f"deleted {len(done.removed)}, freed {size(done.usage.freed_bytes)}")
    for line in done.kept:
        click.echo(f"tuner prune: could not be deleted: {line}", err=True)
    return UNREADABLE if done.kept else OK


def _print_superseded(usage: Usage, output: Output) -> None:
    if output.kind == "table":
        nothing = not (usage.superseded or usage.leftovers)
        click.echo(
            "nothing is superseded"
            if nothing
            else f"--yes deletes what is superseded or left over: {size(usage.freed_bytes)}"
        )


def _write_usage(usage: Usage, output: Output) -> None:
    parts = [
        ("checkpoints kept", len(usage.kept), total_size(usage.kept)),
        ("checkpoints superseded", len(usage.superseded), total_size(usage.superseded)),
        ("leftovers", len(usage.leftovers), sum(usage.leftovers.values())),
        ("journal and snapshots", None, usage.state_bytes),
        ("logs and output", None, usage.other_bytes),
        ("all", None, usage.total_bytes),
    ]
    records = [
        {"what": what, "number": number, "size_bytes": size_bytes}
        for what, number, size_bytes in parts
    ]
    output.write(
        records, [Column("what", text=str), Column("number"), Column("size_bytes", "on disk", size)]
    )


def size(size_bytes: Any) -> str:
    """Return a size with a binary unit.

    Example:
        >>> size(0), size(123_456), size(5 << 30)
        ('0 B', '120.6 KiB', '5.0 GiB')
    """
    amount, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _UNIT:
            break
        amount, unit = amount / _UNIT, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


@click.command()
@click.argument("experiment", type=ExperimentType(), metavar="[EXP]", required=False)
@click.option(
    "--deep",
    is_flag=True,
    help="Read all checkpoints and stored arrays, and compare their contents.",
)
@click.option(
    "--storage",
    metavar="URL",
    help="Check a directory in an object store, with or without an experiment.",
)
@click.option(
    "--cluster",
    type=ClusterType(),
    help="Check the nodes of a cluster, and that they reach the URL or directory of --storage.",
)
@output_option
def doctor(
    experiment: Path | None,
    storage: str | None,
    cluster: Cluster | None,
    output: Output,
    *,
    deep: bool,
) -> int:
    """Check an experiment for damage, and say how to repair it.

    It checks the folder's permissions, the declaration, the lock, every record of the journal, the
    snapshots, every checkpoint against its manifest, leftovers, and the free space on the disk.
    Nothing is changed, and a driver may be running. Exits with 0 if everything is in order and with
    1 if anything is damaged or left over.

    With --storage it checks whether an object store can be used: small objects are written, read
    and deleted below probe/ in that directory.

    With --cluster it lists the nodes of a cluster with their resources and versions, and says which
    would be refused and why; a process is started on each and ended again. ray:auto is the Ray
    cluster of this machine, ray:HOST:PORT another one, dask:ADDRESS or dask:FILE that of a Dask
    scheduler or its scheduler file. With --storage it checks as well whether each node reaches that
    URL, or shares that directory.

    \b
    Examples:
      tuner doctor digits
      tuner doctor digits --deep -f json
      tuner doctor --storage s3://bucket/experiments
      tuner doctor --cluster ray:auto --storage s3://bucket/experiments
    """
    findings: list[Finding] = []
    if experiment is None and storage is None and cluster is None:
        raise click.UsageError(
            "EXP, --storage or --cluster must be given; name what is to be checked"
        )
    try:
        if storage is not None and (cluster is None or is_like_url(storage)):
            findings += check_store(storage)
        if cluster is not None and all(one.level is not Level.ERROR for one in findings):
            findings += check_cluster(cluster, storage)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    if experiment is not None:
        findings += check(experiment, is_deep=deep)
    if output.kind == "table":
        _print_findings(findings)
    else:
        records = [
            {
                "subject": one.subject,
                "level": str(one.level),
                "what": one.what,
                "remedy": one.remedy or None,
            }
            for one in findings
        ]
        output.write(records, ())
    return OK if all(one.level is Level.OK for one in findings) else FOUND


def _print_findings(findings: Sequence[Finding]) -> None:
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    width = max(len(one.subject) for one in findings)
    for one in findings:
        click.echo(
            f"{click.style(f'{one.level:7}', fg=colours[one.level])}  {one.subject:{width}}  "
            f"{printable(one.what)}"
        )
        if one.remedy:
            click.echo(f"{'':7}  {'':{width}}  -> {printable(one.remedy)}")
