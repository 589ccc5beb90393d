"""Groups of two workers: how fast they start, report, save, validate and come back when killed."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import tuner as tune
from tuner import train
from tuner.train import Checkpoint, CheckpointUploadMode, ScalingConfig, ValidationConfig
from tuner.train.torch import TorchTrainer

from .figure import Figure

NUM_RANKS = 2
NUM_STARTS = 10
NUM_REPORTS = 2_000
NUM_KILLS = 5
MEGABYTES = 256
NUM_SAVES = 3
NUM_EPOCHS = 10
EPOCH_S = 0.01
VALIDATION_S = 2.0
NUM_VALIDATIONS = 20


def note(what: str) -> None:
    """Write down the time, in a file of this process's rank."""
    context = train.get_context()
    folder = Path(context.get_trial_dir()).parent
    with (folder / f"{what}.{context.get_world_rank()}").open("a", encoding="utf-8") as file:
        file.write(f"{time.time()}\n")


def noted(folder: str, what: str) -> list[float]:
    """Return when the last of the ranks was there, each time."""
    of_ranks = [
        [float(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(Path(folder).glob(f"{what}.*"))
    ]
    return [max(times) for times in zip(*of_ranks, strict=True)]


@contextmanager
def settings(**options: Any) -> Iterator[tune.RunConfig]:
    """Provide a run of its own directory, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="training-") as storage:
        yield tune.RunConfig(
            name="run",
            storage_path=storage,
            verbose=0,
            resources={"cpu": 2 * NUM_RANKS},
            **options,
        )


def trainer(loop: Callable[..., Any], **options: Any) -> TorchTrainer:
    """Return a trainer of `NUM_RANKS` workers."""
    return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=NUM_RANKS), **options)


# Starts.


def begins_and_ends(_: dict[str, Any]) -> None:
    """Note when this worker began and ended."""
    note("begin")
    train.report({"loss": 1.0})
    note("end")


def start_s() -> float:
    """Return the median seconds from the last line of a training to the first of the next."""
    with settings() as run:
        search = tune.Tuner(
            trainer(begins_and_ends),
            tune_config=tune.TuneConfig(num_samples=NUM_STARTS, max_concurrent_trials=1),
            run_config=run,
        )
        folder = search.fit().experiment_path
        begins, ends = noted(folder, "begin"), noted(folder, "end")
    return statistics.median(begin - end for begin, end in zip(begins[1:], ends[:-1], strict=True))


def cold_start() -> None:
    """Print the time at which user code ran in the last worker; for a process of its own."""
    with settings() as run:
        result = trainer(begins_and_ends, run_config=run).fit()
        print(max(noted(str(Path(result.path).parent), "begin")))


def cold_start_s() -> tuple[float, float]:
    """Return the seconds from a command to user code, and those that importing torch takes."""
    began_s = time.time()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    import_s = time.time() - began_s
    began_s = time.time()
    command = [sys.executable, "-m", "benchmarks.training", "--cold"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  (our own)
    return float(done.stdout) - began_s, import_s


# Reports.


def reports(_: dict[str, Any]) -> dict[str, float]:
    """Report metrics only; return the median and the 99th percentile in milliseconds."""
    times_ms = []
    for step in range(NUM_REPORTS):
        start = time.perf_counter()
        train.report({"step": step})
        times_ms.append(1000 * (time.perf_counter() - start))
    return {"median": statistics.median(times_ms), "p99": statistics.quantiles(times_ms, n=100)[98]}


def report_ms() -> dict[str, float]:
    """Return what `reports` has measured."""
    with settings() as run:
        measured = trainer(reports, run_config=run).fit().return_value
    assert isinstance(measured, dict)  # noqa: S101  (JSON of what the function returned)
    return measured


# Failures.


def is_killed(_: dict[str, Any]) -> None:
    """Kill rank 1 after each report with a checkpoint."""
    note("begin")
    num_done = 0
    if checkpoint := train.get_checkpoint():
        num_done = int(Path(checkpoint.path, "num_done").read_text(encoding="utf-8"))
    if num_done == NUM_KILLS:
        return
    is_first = train.get_context().get_world_rank() == 0
    with tune.checkpoint_dir() as directory:
        if is_first:
            Path(directory, "num_done").write_text(str(num_done + 1), encoding="utf-8")
        checkpoint = Checkpoint.from_directory(directory) if is_first else None
        train.report({"num_done": num_done + 1}, checkpoint=checkpoint)
    note("kill")
    if not is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()  # where the others of a killed process usually are


def recovery_s() -> float:
    """Return the median seconds from the kill of a worker to user code in all workers."""
    failures = tune.FailureConfig(max_failures=-1, max_identical_failures=None)
    with settings(failure_config=failures) as run:
        result = trainer(is_killed, run_config=run).fit()
        folder = str(Path(result.path).parent)
        begins, kills = noted(folder, "begin"), noted(folder, "kill")
    return statistics.median(begin - kill for begin, kill in zip(begins[1:], kills, strict=True))


# Checkpoints.


def saves(config: dict[str, Any]) -> dict[str, float]:
    """Return the median seconds of a report with a checkpoint, and those of writing its files."""
    weights = torch.rand(MEGABYTES * 2**20 // 4, generator=torch.Generator().manual_seed(0))
    rank = train.get_context().get_world_rank()
    written_s, reported_s = [], []
    for _ in range(NUM_SAVES):
        directory = tempfile.mkdtemp(dir=train.get_context().get_trial_dir())
        dist.barrier()
        start = time.perf_counter()
        if config["dcp"]:
            # Slow, and seldom needed.
            from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415

            with tune.checkpoint_dir() as shared:
                state = {f"weights-{rank}": weights}
                save(state, checkpoint_id=shared)
                written_s.append(time.perf_counter() - start)
                train.report({}, checkpoint=Checkpoint.from_directory(shared))
        else:
            torch.save(weights, Path(directory, f"weights-{rank}.pt"))
            dist.barrier()
            written_s.append(time.perf_counter() - start)
            train.report(
                {},
                checkpoint=Checkpoint.from_directory(directory),
                checkpoint_upload_mode=CheckpointUploadMode[config["mode"]],
                delete_local_checkpoint_after_upload=True,
            )
        reported_s.append(time.perf_counter() - start - written_s[-1])
        time.sleep(config["pause_s"])  # so that one upload is not measured with another
    return {"write": statistics.median(written_s), "report": statistics.median(reported_s)}


def save_s(mode: str, *, dcp: bool = False, pause_s: float = 0.0) -> dict[str, float]:
    """Return what `saves` has measured."""
    keep = tune.CheckpointConfig(num_to_keep=1)
    config = {"mode": mode, "dcp": dcp, "pause_s": pause_s}
    with settings(checkpoint_config=keep) as run:
        measured = trainer(saves, train_loop_config=config, run_config=run).fit().return_value
    assert isinstance(measured, dict)  # noqa: S101  (JSON of what the function returned)
    return measured


# Validations.


def sleeps(_: Checkpoint, seconds: float) -> dict[str, float]:
    """Validate for some seconds."""
    time.sleep(seconds)
    return {"score": 1.0}


def epochs(config: dict[str, Any]) -> dict[str, float]:
    """Train some epochs with a small checkpoint each, and return their seconds."""
    start = time.perf_counter()
    for epoch in range(config["num_epochs"]):
        time.sleep(EPOCH_S)
        if train.get_context().get_world_rank() > 0:
            train.report({})
            continue
        with tune.checkpoint_dir() as directory:
            Path(directory, "epoch").write_text(str(epoch), encoding="utf-8")
            train.report(
                {"epoch": epoch},
                checkpoint=Checkpoint.from_directory(directory),
                validation=config["validates"],
            )
    return {"loop": time.perf_counter() - start}


def epochs_s(num_epochs: int, *, validates: bool, seconds: float = 0.0) -> tuple[float, float]:
    """Return the seconds of the training loop and those of the whole run."""
    validation = ValidationConfig(
        sleeps, train.ValidationTaskConfig(fn_kwargs={"seconds": seconds})
    )
    config = {"num_epochs": num_epochs, "validates": validates}
    with settings() as run:
        start = time.perf_counter()
        result = trainer(
            epochs, train_loop_config=config, validation_config=validation, run_config=run
        ).fit()
        return result.return_value["loop"], time.perf_counter() - start


def main() -> None:
    """Measure, and print the figures."""
    took_s, import_s = cold_start_s()
    Figure("2 workers: command to user code", took_s, "s", "import of torch + 0.5 s").print()
    Figure("  the import of torch alone", import_s, "s").print()
    Figure("2 workers: end of a training to user code of the next", start_s(), "s", "0.3 s").print()
    measured = report_ms()
    Figure("2 workers: report of metrics, median", measured["median"], "ms", "1 ms").print()
    Figure("2 workers: report of metrics, 99th percentile", measured["p99"], "ms").print()
    Figure("2 workers: kill -9 of one to user code in both", recovery_s(), "s", "0.5 s").print()
    synchronous = save_s("SYNC")
    size = f"{MEGABYTES} MB each"
    Figure(f"2 workers, {size}: torch.save, without a sync", synchronous["write"], "s").print()
    Figure(f"2 workers, {size}: report, SYNC", synchronous["report"], "s", "hash and sync").print()
    stall_s = save_s("ASYNC", pause_s=3.0)["report"]
    Figure(f"2 workers, {size}: report, ASYNC", 1000 * stall_s, "ms", "50 ms").print()
    sharded = save_s("SYNC", dcp=True)
    Figure(f"2 workers, {size}: distributed checkpoint, save", sharded["write"], "s").print()
    Figure(f"2 workers, {size}: distributed checkpoint, report", sharded["report"], "s").print()
    alone_s, _ = epochs_s(NUM_EPOCHS, validates=False)
    beside_s, _ = epochs_s(NUM_EPOCHS, validates=True, seconds=VALIDATION_S)
    what = f"{NUM_EPOCHS} epochs of 10 ms beside validations of {VALIDATION_S:.0f} s, added"
    Figure(what, 100 * (beside_s / alone_s - 1), "%", "10 %").print()
    _, without_s = epochs_s(NUM_VALIDATIONS, validates=False)
    _, with_s = epochs_s(NUM_VALIDATIONS, validates=True)
    each_ms = 1000 * (with_s - without_s) / NUM_VALIDATIONS
    Figure("a validation that does nothing", each_ms, "ms", "100 ms").print()


if __name__ == "__main__":
    if sys.argv[1:] == ["--cold"]:
        cold_start()
    else:
        main()
