"""What the machine offers, and how a worker is confined to its share of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Environment variables that numerical libraries read, when loaded, for the number of threads to start."""

_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")


def machine_capacity(override: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the machine's resources.

    Args:
        override: Amounts that are taken instead of what is found, by resource; others, also of the user's own invention, may be added.

    Returns:
        At least ``"cpu"`` (processors that this process may use: affinity and container limits count) and ``"gpu"``.
    """
    capacity = dict(override or {})
    if "cpu" not in capacity:
        capacity["cpu"] = float(_num_cpus())
    if "gpu" not in capacity:
        capacity["gpu"] = float(len(visible_gpus()))
    return capacity


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names under which CUDA knows this process's GPUs: those in ``CUDA_VISIBLE_DEVICES``, else the driver's, numbered."""
    listed = environ.get(_CUDA_VISIBLE_DEVICES)
    if listed is None:
        return tuple(str(number) for number in range(_num_nvidia_gpus()))
    names = [name.strip() for name in listed.split(",")]
    # CUDA itself ignores what follows the first entry that it cannot use.
    end = next(
        (index for index, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), len(names)
    )
    return tuple(names[:end])


_LOADS_WITHOUT_THREADS: Final = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def loading_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment in which the trainable is loaded: one in which importing a numerical library starts no threads.

    A process with threads cannot be forked safely. For the same reason PyTorch is told to look for GPUs without initializing CUDA, and
    the allocator of PyArrow, which pandas imports wherever it is installed, to have no thread that tidies up.
    """
    return {**_LOADS_WITHOUT_THREADS, **environ, **dict.fromkeys(THREAD_VARIABLES, "1")}


def worker_environment(
    resources: Mapping[str, float],
    gpu_ids: tuple[int, ...],
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the variables that confine a worker to its share.

    Threads follow the trial's CPUs unless the user has set the variable. ``CUDA_VISIBLE_DEVICES`` lists the assigned GPUs. It is
    emptied for a trial without any, so that it cannot take another's memory, where there are GPUs or the variable is set; else it
    is left alone.

    Args:
        resources: What the trial may use; ``"cpu"`` is rounded down to whole threads, at least one.
        gpu_ids: Positions among `visible_gpus`.
        environ: The driver's environment.
    """
    num_threads = str(max(1, int(resources.get("cpu", 1))))
    variables = {name: environ.get(name) or num_threads for name in THREAD_VARIABLES}
    gpus = visible_gpus(environ)
    if gpu_ids or gpus or _CUDA_VISIBLE_DEVICES in environ:
        variables[_CUDA_VISIBLE_DEVICES] = ",".join(
            gpus[gpu] if gpu < len(gpus) else str(gpu) for gpu in gpu_ids
        )
    return variables


def limit_threads(variables: Mapping[str, str]) -> None:
    """Tell the numerical libraries that are loaded already how many threads to use; later ones read the environment."""
    declared = variables.get("OMP_NUM_THREADS", "1")
    num_threads = int(declared) if declared.isdecimal() else 1
    if num_threads <= 1:
        return  # they were loaded for one
    if "numpy" in sys.modules:
        with contextlib.suppress(ImportError):
            import threadpoolctl  # type: ignore[import-untyped]  # noqa: PLC0415  (optional)

            threadpoolctl.threadpool_limits(num_threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(num_threads)


def device_in_use() -> str | None:
    """Return the path of an accelerator's device file that this process holds open: its driver is initialized and bars forking."""
    with contextlib.suppress(OSError):
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                # Asking the management library for the number of GPUs opens /dev/nvidiactl, which is harmless.
                if target.startswith(("/dev/nvidia-uvm", "/dev/kfd", "/dev/accel")):
                    return target
    return None


def _num_cpus() -> int:
    import joblib  # noqa: PLC0415  (takes longer than all of ours together)

    return int(joblib.cpu_count())


def _num_nvidia_gpus() -> int:
    try:
        return len(list(_NVIDIA_DRIVER.iterdir()))
    except OSError:
        return 0
