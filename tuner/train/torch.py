"""PyTorch: `TorchTrainer`, and the preparation of models and data for several processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from tuner.execution.attempt import current_attempt
from tuner.execution.resources import devices_of_rank
from tuner.execution.session import get_context, take_master_socket
from tuner.spec.config import RunConfig
from tuner.spec.training_config import ScalingConfig, ValidationConfig
from tuner.storage.checkpoints import Checkpoint

from .config import BackendConfig, DataConfig
from .torch_checkpoint import TorchCheckpoint
from .trainer import DataParallelTrainer

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "unwrap_model",
]

_BACKENDS: Final = ("gloo", "mpi", "nccl", "ucc", "xccl")
"""Backends of PyTorch itself."""
_MAX_TIMEOUT_S: Final = 365 * 24 * 3600
_STRATEGIES: Final = ("ddp", "fsdp", None)


@dataclass(frozen=True, slots=True)
class TorchConfig(BackendConfig):
    """How the workers of a `TorchTrainer` form a process group of PyTorch.

    Attributes:
        backend: ``"nccl"``, ``"gloo"`` or another one of PyTorch's, or one for each kind of device,
            ``"cpu:gloo,cuda:nccl"``; None, the default, for nccl where each worker has GPUs of its
            own, else gloo: nccl refuses workers that share one. One of another package is known
            once that has been imported.
        init_method: ``"env"``, the default, or ``"tcp"``; both mean the same here, since the
            workers are told where rank 0 listens.
        timeout_s: Seconds after which a collective operation that does not end raises, 1800 by
            default.

    Raises:
        ValueError: If a value is out of range.
    """

    # `prepare_model` and the first optimizer of a process import the last one, which takes over a
    # second, and starts no threads.
    preloaded_modules: ClassVar[tuple[str, ...]] = (
        "torch",
        "torch.distributed",
        "torch._dynamo",
    )

    backend: str | None = None
    init_method: Literal["env", "tcp"] = "env"
    timeout_s: float = 1800

    def __post_init__(self) -> None:
        if self.backend is not None and not isinstance(self.backend, str):
            raise TypeError(f"backend must be the name of a backend or None, got {self.backend!r}")
        if self.init_method not in ("env", "tcp"):
            raise ValueError(f"init_method must be 'env' or 'tcp', got {self.init_method!r}")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float):
            raise TypeError(f"timeout_s must be a number of seconds, got {self.timeout_s!r}")
        if not 0 < self.timeout_s <= _MAX_TIMEOUT_S:
            raise ValueError(
                "timeout_s must be a positive number of seconds, at most a year, got "
                f"{self.timeout_s!r}"
            )
        if self.backend is not None:
            self._check_backend(self.backend)

    def _check_backend(self, backend: str) -> None:
        # Not imported here: the driver may not need PyTorch otherwise, and it takes seconds.
        distributed: Any = sys.modules.get("torch.distributed")
        registered = getattr(getattr(distributed, "Backend", None), "backend_list", ())
        known = {*_BACKENDS, *registered} - {"undefined"}
        for given in backend.split(","):
            name = given.rpartition(":")[2].lower()
            if name not in known:
                raise ValueError(
                    f"backend must be one of {', '.join(sorted(known))}, or None, got "
                    f"{backend!r}; if another package registers it, import that before"
                )

    def on_start(self) -> None:
        """Seed PyTorch, choose the device, and join the process group."""
        import torch  # noqa: PLC0415  (only workers need it)

        context = get_context()
        torch.manual_seed(context.get_seed())
        attempt = current_attempt()
        if attempt is None or attempt.assignment.rank is None:
            return  # it trains in the process of the caller
        if torch.cuda.is_available() and (device := get_device()).type == "cuda":
            torch.cuda.set_device(device)
        if not torch.distributed.is_initialized():
            self._join(context.get_world_rank(), context.get_world_size())

    def _join(self, rank: int, world_size: int) -> None:
        from torch import distributed  # noqa: PLC0415

        timeout = dt.timedelta(seconds=self.timeout_s)
        backend = self.backend or _default_backend(world_size)
        store = _store(rank, world_size, timeout)
        if store is None:
            distributed.init_process_group(
                backend, init_method="env://", rank=rank, world_size=world_size, timeout=timeout
            )
        else:
            distributed.init_process_group(
                backend, store=store, rank=rank, world_size=world_size, timeout=timeout
            )

    def on_end(self) -> None:
        """Leave the process group."""
        from torch import distributed  # noqa: PLC0415

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()


def _default_backend(world_size: int) -> str:
    """Return the backend that suits the devices of the workers, the same in all of them."""
    attempt = current_attempt()
    num_gpus = attempt.assignment.resources.get("gpu", 0.0) if attempt else 0.0
    has_own_gpu = get_device().type == "cuda" and (num_gpus >= world_size or world_size == 1)
    return "nccl" if has_own_gpu else "gloo"


def _store(rank: int, world_size: int, timeout: dt.timedelta) -> Any:
    """Return the store by which the workers meet, None where the environment names another."""
    from torch import distributed  # noqa: PLC0415

    # From a C extension, which has no types.
    stores: Any = distributed
    if world_size == 1:
        return stores.HashStore()
    listening = take_master_socket()
    attempt = current_attempt()
    place = attempt.assignment.rank if attempt else None
    if place is None or not place.master_port or (rank == 0 and listening is None):
        return None
    # Rank 0 listens on a port that the launcher has bound: no other process can have taken it.
    given: dict[str, Any] = {} if listening is None else {"master_listen_fd": listening}
    return stores.TCPStore(
        place.master_addr,
        place.master_port,
        world_size,
        is_master=rank == 0,
        timeout=timeout,
        **given,
    )


class TorchTrainer(DataParallelTrainer):
    """Runs a training function of PyTorch in several processes, which form a process group.

    Each process finds torchrun's environment variables, so that Lightning, Accelerate and the
    Trainer of Transformers run in it as under torchrun. All processes begin with the trial's seed.

    Args:
        train_loop_per_worker: The training function, called in each process, without arguments or
            with the configuration.
        train_loop_config: The configuration; None for an empty one.
        torch_config: How the processes form a process group.
        scaling_config: How many processes, and what each of them occupies.
        run_config: Where the run is stored, and how it is run.
        datasets: Datasets by name, see `get_dataset_shard`.
        dataset_config: Which of them are split.
        metadata: Must be None.
        validation_config: How reported checkpoints are validated beside the training.
        resume_from_checkpoint: What `get_checkpoint` returns until the run has a checkpoint of its
            own.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is not supported.
        FileNotFoundError: If there is no such checkpoint to begin with.

    Example:
        >>> from tuner import train
        >>> def loop(config):
        ...     weight = torch.tensor(float(train.get_context().get_world_rank()))
        ...     torch.distributed.all_reduce(weight)
        ...     train.report({"sum": weight.item()})
        >>> import torch
        >>> trainer = TorchTrainer(
        ...     loop,
        ...     scaling_config=train.ScalingConfig(2, resources_per_worker={"CPU": 0.5}),
        ...     run_config=train.RunConfig(storage_path=getfixture("tmp_path"), verbose=0),
        ... )
        >>> trainer.fit().metrics["sum"]
        1.0
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        if torch_config is not None and not isinstance(torch_config, TorchConfig):
            raise TypeError(f"torch_config must be a TorchConfig, got {torch_config!r:.200}")
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            metadata=metadata,
            validation_config=validation_config,
            resume_from_checkpoint=resume_from_checkpoint,
        )


def get_device() -> torch.device:
    """Return the device of this worker: its GPU, the first if it has several, or else the CPU."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """Return the devices of this worker: its GPUs, or else the CPU.

    Outside a trial they are the current GPU, or else the CPU.
    """
    import torch  # noqa: PLC0415  (only workers need it)

    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    attempt = current_attempt()
    if attempt is None:
        return [torch.device("cuda", torch.cuda.current_device())]
    assignment, num_seen = attempt.assignment, torch.cuda.device_count()
    if not assignment.resources.get("gpu"):
        return [torch.device("cpu")]
    numbers: Sequence[int] = range(num_seen)
    if rank := assignment.rank:
        numbers = devices_of_rank(assignment.gpu_ids, rank.local_rank, rank.local_world_size)
    # Fewer may be seen than were assigned, where the user has declared more than there are.
    return [torch.device("cuda", number) for number in dict.fromkeys(n % num_seen for n in numbers)]


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: Literal["ddp", "fsdp"] | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Return the model on the worker's device, wrapped for training in several processes.

    With a single worker it is not wrapped; `unwrap_model` gives the model itself in either case.

    Args:
        model: The model.
        move_to_device: Whether to move it to the worker's device, or the device to move it to.
            With False it is wrapped where it is.
        parallel_strategy: ``"ddp"``, the default, wraps it in ``DistributedDataParallel``,
            ``"fsdp"`` in ``FullyShardedDataParallel``, None in nothing.
        parallel_strategy_kwargs: Further arguments of that class.

    Raises:
        ValueError: If there is no such strategy.

    Departures:
        Ray Train does not offer FSDP on CPUs.
    """
    import torch  # noqa: PLC0415  (only workers need it)

    if parallel_strategy not in _STRATEGIES:
        raise ValueError(
            f"parallel_strategy must be 'ddp', 'fsdp' or None, got {parallel_strategy!r}"
        )
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if move_to_device is not False:
        model = model.to(device)
    if parallel_strategy is None or _world_size() == 1:
        return model
    given = dict(parallel_strategy_kwargs or {})
    is_cuda = device.type == "cuda"
    # A model that was not moved need not be there; PyTorch then looks where it is.
    is_there = move_to_device is not False or not is_cuda
    if parallel_strategy == "ddp":
        on_gpu = {"device_ids": [device], "output_device": device} if is_there and is_cuda else {}
        return torch.nn.parallel.DistributedDataParallel(model, **{**on_gpu, **given})
    from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: PLC0415  (slow)

    place = {"device_id": device} if is_there else {}
    return FullyShardedDataParallel(model, **{**place, **given})


def unwrap_model(model: Any) -> Any:
    """Return the model inside those that `prepare_model` and ``torch.compile`` wrap it in.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> unwrap_model(prepare_model(model)) is model
        True
    """
    from torch.nn.parallel import DataParallel, DistributedDataParallel  # noqa: PLC0415

    while True:
        if isinstance(model, DataParallel | DistributedDataParallel) or hasattr(
            model, "_fsdp_wrapped_module"
        ):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod  # noqa: SLF001  (torch.compile offers no other way)
        else:
            return model


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> Any:
    """Return a data loader that yields this worker's part of the data, on its device.

    With several workers it gets a ``DistributedSampler``, which shuffles if the loader did. Call
    ``loader.sampler.set_epoch(epoch)`` at the beginning of each epoch, or every epoch has the same
    order; with one worker there is no such method. Where the sampler is added and the loader has no
    generator of its own, the processes that load data have other random numbers on each worker, so
    that no two apply the same augmentations; otherwise give it a generator seeded with the rank.

    Args:
        data_loader: The loader.
        add_dist_sampler: Whether to add the sampler; False for data that is split already. Iterable
            datasets get none.
        move_to_device: Whether batches are moved to the worker's device.
        auto_transfer: Whether they are copied to a GPU while the batch before is processed.
    """
    import torch  # noqa: PLC0415  (only workers need it)

    if add_dist_sampler and _world_size() > 1:
        data_loader = _distributed(data_loader)
    device = get_device() if move_to_device else torch.device("cpu")
    return (
        data_loader if device.type == "cpu" else _DeviceLoader(data_loader, device, auto_transfer)
    )


def _distributed(loader: DataLoader[Any]) -> DataLoader[Any]:
    import torch  # noqa: PLC0415
    from torch.utils.data import (  # noqa: PLC0415
        DataLoader,
        DistributedSampler,
        IterableDataset,
        SequentialSampler,
    )

    if isinstance(loader.dataset, IterableDataset) or isinstance(
        loader.sampler, DistributedSampler
    ):
        return loader
    if loader.batch_sampler is not None and loader.batch_size is None:
        raise ValueError(
            "prepare_data_loader cannot split a loader with a batch sampler of its own; give that "
            "the rank and the world size, and pass add_dist_sampler=False"
        )
    if what := _beyond_a_split(loader.sampler):
        warnings.warn(
            f"the sampler {what} is replaced by a DistributedSampler, which gives each worker its "
            "part of the data once in each epoch; pass add_dist_sampler=False to keep it",
            stacklevel=3,
        )
    context = get_context()
    generator = loader.generator
    if generator is None:
        generator = torch.Generator()
        mixed = np.random.SeedSequence([torch.initial_seed(), context.get_world_rank()])
        generator.manual_seed(int(mixed.generate_state(1)[0]))
    sampler: Any = DistributedSampler(
        loader.dataset,
        num_replicas=context.get_world_size(),
        rank=context.get_world_rank(),
        shuffle=not isinstance(loader.sampler, SequentialSampler),
        drop_last=loader.drop_last,
    )
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _beyond_a_split(sampler: Any) -> str:
    """Describe a sampler that does more than to order all rows; empty for others."""
    from torch.utils.data import RandomSampler, SequentialSampler  # noqa: PLC0415

    name = type(sampler).__name__
    if not isinstance(sampler, RandomSampler):
        return "" if isinstance(sampler, SequentialSampler) else name
    if sampler.replacement:
        return f"{name}, which draws with replacement,"
    if sampler.num_samples != (num_rows := len(sampler.data_source)):
        return f"{name}, which draws {sampler.num_samples} of {num_rows} rows,"
    return ""


class _DeviceLoader:
    """A data loader whose batches are on a GPU.

    Args:
        loader: The loader, whose attributes this has, too.
        device: The GPU.
        copies_ahead: Whether the next batch is copied while the one before is processed.
    """

    def __init__(self, loader: Any, device: torch.device, copies_ahead: bool) -> None:
        self._loader = loader
        self._device = device
        self._copies_ahead = copies_ahead

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if not self._copies_ahead:
            yield from (_moved(batch, self._device) for batch in self._loader)
            return
        import torch  # noqa: PLC0415

        stream = torch.cuda.Stream(self._device)
        ahead: Any = None
        for batch in self._loader:
            ready, ahead = ahead, self._copied(batch, stream)
            if ready is not None:
                yield self._awaited(ready, stream)
        if ahead is not None:
            yield self._awaited(ahead, stream)

    def _copied(self, batch: Any, stream: Any) -> tuple[Any]:
        import torch  # noqa: PLC0415

        with torch.cuda.stream(stream):
            return (_moved(batch, self._device),)

    def _awaited(self, copied: tuple[Any], stream: Any) -> Any:
        import torch  # noqa: PLC0415

        current = torch.cuda.current_stream(self._device)
        current.wait_stream(stream)
        # Or the allocator could give the memory away while the current stream still reads it.
        _visit(copied[0], lambda tensor: tensor.record_stream(current))
        return copied[0]


def _moved(batch: Any, device: torch.device) -> Any:
    return _visit(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _visit(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value with each tensor in it changed."""
    import torch  # noqa: PLC0415

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _visit(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_visit(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_visit(item, change) for item in value)
    return change(value) if hasattr(value, "to") and not isinstance(value, str) else value


def enable_reproducibility(seed: int = 0) -> None:
    """Remove sources of chance: seed Python, NumPy and PyTorch, and use deterministic algorithms.

    Processes that load data are seeded from PyTorch's generator, so they follow.

    Args:
        seed: The seed. Workers already begin with the trial's; this replaces it.

    Raises:
        TypeError: If the seed is no whole number.
    """
    import torch  # noqa: PLC0415  (only workers need it)

    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    torch.manual_seed(seed)
    random.seed(seed)  # noqa: TID251  (the training code's own generator)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (likewise)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    with contextlib.suppress(ValueError):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _world_size() -> int:
    attempt = current_attempt()
    rank = attempt.assignment.rank if attempt else None
    return rank.world_size if rank else 1
