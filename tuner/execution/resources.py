"""Resources: requests of trials, capacity of the machine, and limits of a worker."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, final

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@final
class PlacementGroupFactory(Mapping[str, float]):
    """A request in several bundles, the first of which is for the trial's own process.

    It also describes what a running trial occupies. As a mapping it gives the total amounts by
    name, ``{"cpu": 1.0, "gpu": 0.5}``.

    Args:
        bundles: Resources of each bundle, e.g. ``[{"cpu": 1}, {"cpu": 2, "gpu": 1}]``; the first
            may be empty.
        strategy: How bundles are spread over machines: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Example:
        >>> PlacementGroupFactory([{}, {"CPU": 2}, {"CPU": 2}]).total()
        {'cpu': 4.0}

    Departures:
        `bundles` and `required_resources` write CPU and GPU in capitals, as in Ray Tune; the
        mapping does not. On one machine all strategies mean the same, and a trial is granted the
        sum of its bundles.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> None:
        if not bundles:
            raise ValueError(
                "bundles must hold at least one bundle, got none; "
                "the first is for the trial itself and may be empty"
            )
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, got {strategy!r}")
        self._bundles = tuple(checked_bundle(bundle) for bundle in bundles)
        self.strategy = strategy

    def total(self) -> dict[str, float]:
        """Return the sum of the bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    @property
    def bundles(self) -> list[dict[str, float]]:
        """Resources of each bundle, without zero amounts, and without the first if it is empty."""
        shown = [
            {_capitalized(name): amount for name, amount in bundle.items() if amount}
            for bundle in self._bundles
        ]
        return shown if shown[0] else shown[1:]

    @property
    def head_cpus(self) -> float:
        """CPUs of the first bundle, which is the trial's own process."""
        return self._bundles[0].get("cpu", 0.0)

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the first bundle asks for nothing."""
        return not any(self._bundles[0].values())

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of the bundles."""
        return {_capitalized(name): amount for name, amount in self.total().items() if amount}

    def __getitem__(self, name: str) -> float:
        return self.total()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.total())

    def __len__(self) -> int:
        return len(self.total())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacementGroupFactory):
            return (self._bundles, self.strategy) == (other._bundles, other.strategy)
        return isinstance(other, Mapping) and self.total() == dict(other)

    def __hash__(self) -> int:
        return hash((tuple(frozenset(bundle.items()) for bundle in self._bundles), self.strategy))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({list(self._bundles)}, strategy={self.strategy!r})"


def _capitalized(name: str) -> str:
    return name.upper() if name in ("cpu", "gpu") else name


def standard_name(name: str) -> str:
    """Return a resource's name, in lower case for CPUs and GPUs.

    Raises:
        ValueError: If it is another word for one of them.
    """
    lower = name.lower() if isinstance(name, str) else name
    if lower in ("cpu", "gpu"):
        return lower
    if lower in _OTHER_WORDS:
        raise ValueError(
            f"resources must be named 'cpu', 'gpu' or by a name of your own, got {name!r}; did you "
            f"mean {_OTHER_WORDS[lower]!r}?"
        )
    return name


def checked_bundle(bundle: Mapping[str, float]) -> dict[str, float]:
    """Return the amounts as floats by name, with CPU and GPU in lower case.

    Raises:
        ValueError: If an amount is negative or no number, or a name occurs twice.
    """
    checked: dict[str, float] = {}
    for name, amount in bundle.items():
        if (
            isinstance(amount, bool)
            or not isinstance(amount, numbers.Real)
            or not 0 <= amount < math.inf
        ):
            raise ValueError(
                f"resource {name!r} must be a finite number of at least 0, got {amount!r}"
            )
        standard = standard_name(name)
        if standard in checked:
            raise ValueError(
                f"resource {standard!r} is requested twice in {dict(bundle)}; "
                "CPU and cpu are the same"
            )
        checked[standard] = float(amount)
    return checked


_OTHER_WORDS: Final = {
    word: name
    for name in ("cpu", "gpu")
    for word in (f"{name}s", f"num_{name}", f"num_{name}s", f"n_{name}s", f"{name}_count")
}
ResourceRequest = Mapping[str, float] | PlacementGroupFactory
"""What a trial may request."""


def total_amounts(request: ResourceRequest) -> dict[str, float]:
    """Return the total amounts of a request by name.

    Raises:
        TypeError: If the request is neither a dictionary nor a `PlacementGroupFactory`.
        ValueError: If an amount is negative or no number, or more than one GPU in fractions.
    """
    match request:
        case PlacementGroupFactory():
            total = request.total()
        case Mapping():
            total = checked_bundle(request)
        case _:
            raise TypeError(
                f"resources must be a dictionary or a PlacementGroupFactory, got {request!r}; "
                "e.g. {'cpu': 1, 'gpu': 0.5}"
            )
    gpus = total.get("gpu", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(
            f"gpu must be at most 1 or a whole number, got {gpus}; "
            "only one GPU can be shared by fractions"
        )
    return total


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels that nodes must have.

    Raises:
        TypeError: If they are no strings by name.
    """
    if not isinstance(labels, Mapping) or not all(
        isinstance(text, str) for pair in labels.items() for text in pair
    ):
        raise TypeError(
            f"labels must be a dictionary of strings, got {labels!r}; e.g. "
            "{'accelerator': 'A100'}"
        )
    return dict(labels)


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Environment variables from which numerical libraries, when loaded, take a number of threads."""

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Asking CUDA would initialize it, after which a process cannot be forked.
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def machine_capacity(override: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the machine's resources.

    Args:
        override: Amounts by resource that replace what is found; names of the user's own may be
            added.

    Returns:
        At least ``"cpu"`` (processors that this process may use, given affinity and container
        limits) and ``"gpu"``.
    """
    capacity = dict(override or {})
    if "cpu" not in capacity:
        capacity["cpu"] = float(_num_cpus())
    if "gpu" not in capacity:
        capacity["gpu"] = float(len(visible_gpus()))
    return capacity


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return CUDA's names of the GPUs of this process.

    Those in ``CUDA_VISIBLE_DEVICES``; if that is not set, numbers for the NVIDIA driver's.
    """
    listed = environ.get(CUDA_VISIBLE_DEVICES)
    if listed is None:
        return tuple(str(number) for number in range(_num_nvidia_gpus()))
    names = [name.strip() for name in listed.split(",")]
    # CUDA itself ignores what follows the first entry that it cannot use.
    end = next(
        (index for index, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), len(names)
    )
    return tuple(dict.fromkeys(names[:end]))


_LOADS_WITHOUT_THREADS: Final = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def loading_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for loading the trainable, in which importing starts no threads.

    A process with threads cannot be forked safely, nor one that has initialized CUDA. So numerical
    libraries get one thread, PyTorch looks for GPUs without initializing CUDA, and the allocator of
    PyArrow, which pandas imports if it is installed, has no background thread.
    """
    return {**_LOADS_WITHOUT_THREADS, **environ, **dict.fromkeys(THREAD_VARIABLES, "1")}


def worker_environment(
    resources: Mapping[str, float],
    gpu_ids: tuple[int, ...],
    environ: Mapping[str, str] = os.environ,
    *,
    has_gpus: bool = False,
) -> dict[str, str]:
    """Return the environment variables that limit a worker to its share.

    The number of threads is that of the trial's CPUs, unless the user has set the variable.
    ``CUDA_VISIBLE_DEVICES`` lists the assigned GPUs; it is empty for a trial without any, which
    cannot take the memory of other trials' GPUs then. It is not set on machines without GPUs.

    Args:
        resources: What the trial may use; ``"cpu"`` is rounded down to whole threads, at least one.
        gpu_ids: Positions among `visible_gpus`; one may be repeated.
        environ: The driver's environment.
        has_gpus: Whether the experiment was given GPUs, even if none is found here.
    """
    num_threads = str(max(1, int(resources.get("cpu", 1))))
    variables = {name: environ.get(name) or num_threads for name in THREAD_VARIABLES}
    # Set even for a trial without GPUs, to nothing: unset, CUDA would show it all of them.
    has_gpus = has_gpus or bool(gpu_ids or visible_gpus(environ))
    if has_gpus or CUDA_VISIBLE_DEVICES in environ:
        # Each once, also where ranks share one: PyTorch takes a repeated name as no GPU at all.
        variables[CUDA_VISIBLE_DEVICES] = ",".join(dict.fromkeys(gpu_names(gpu_ids, environ)))
    return variables


def gpu_names(gpu_ids: tuple[int, ...], environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return CUDA's names of assigned GPUs, given as positions among `visible_gpus`."""
    gpus = visible_gpus(environ)
    return tuple(gpus[gpu] if gpu < len(gpus) else str(gpu) for gpu in gpu_ids)


def devices_of_rank(
    gpu_ids: Sequence[int], local_rank: int, local_world_size: int
) -> tuple[int, ...]:
    """Return the numbers of a rank's GPUs among those that it sees, which are its group's.

    Args:
        gpu_ids: Devices of all ranks on this machine, in their order; a shared one is there for
            each rank that shares it.
        local_rank: The rank's number on this machine.
        local_world_size: How many ranks there are on this machine.

    Example:
        >>> [devices_of_rank((4, 7, 7), rank, 3) for rank in range(3)]
        [(0,), (1,), (1,)]
    """
    seen = list(dict.fromkeys(gpu_ids))
    num_each = len(gpu_ids) // local_world_size
    own = gpu_ids[local_rank * num_each : (local_rank + 1) * num_each]
    return tuple(map(seen.index, own))


def limit_threads(variables: Mapping[str, str]) -> None:
    """Set the number of threads of the numerical libraries that are loaded already.

    Libraries loaded later read the environment.

    Args:
        variables: What `worker_environment` returned.
    """
    declared = variables.get("OMP_NUM_THREADS", "1")
    num_threads = int(declared) if declared.isdecimal() else 1
    if num_threads <= 1:
        return  # the libraries were loaded with one thread, see loading_environment
    if "numpy" in sys.modules:
        with contextlib.suppress(ImportError):
            import threadpoolctl  # noqa: PLC0415  (optional)

            threadpoolctl.threadpool_limits(num_threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(num_threads)


def device_in_use() -> str | None:
    """Return the path of an open accelerator device file of this process, None if there is none.

    With one, the accelerator's driver is initialized, and the process cannot be forked.
    """
    with contextlib.suppress(OSError):
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                # /dev/nvidiactl is harmless: counting GPUs with the management library opens it.
                if target.startswith(("/dev/nvidia-uvm", "/dev/kfd", "/dev/accel")):
                    return target
    return None


def _num_cpus() -> int:
    # os.cpu_count knows neither affinities nor control groups. joblib's cpu_count does, and reads
    # the variable below as well, but importing it would be a third of the time to the first result.
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    usable = len(affinity) or os.cpu_count() or 1
    wanted = int(os.environ.get("LOKY_MAX_CPU_COUNT", usable))
    return max(1, min(usable, wanted, _cpu_quota(usable)))


def _cpu_quota(unlimited: int) -> int:
    """Return how many processors the control group may keep busy."""
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):  # not there; not limited: "max 100000"
            texts = [(_CONTROL_GROUP / file).read_text("ascii") for file in files]
            quota_us, period_us = map(int, " ".join(texts).split())
            if quota_us > 0 and period_us > 0:
                return math.ceil(quota_us / period_us)
    return unlimited


def _num_nvidia_gpus() -> int:
    try:
        return len(list(_NVIDIA_DRIVER.iterdir()))
    except OSError:
        return 0
