"""A worker gets its share of the machine's resources and no access to the rest."""

import subprocess
import sys
import types

import joblib
import pytest

from tuner.execution import resources
from tuner.execution.resources import (
    THREAD_VARIABLES,
    device_in_use,
    devices_of_rank,
    limit_threads,
    loading_environment,
    machine_capacity,
    visible_gpus,
    worker_environment,
)


@pytest.fixture(autouse=True)
def machine_without_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(resources, "_NVIDIA_DRIVER", tmp_path / "gpus")
    return tmp_path / "gpus"


def test_given_amounts_replace_those_of_the_machine():
    capacity = machine_capacity({"cpu": 64, "license": 2})
    assert capacity == {"cpu": 64, "gpu": 0, "license": 2}


def test_processors_are_those_that_this_process_may_use():
    assert machine_capacity()["cpu"] == joblib.cpu_count()


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_processors_are_limited_by_the_control_group(monkeypatch, tmp_path, files, found):
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(resources, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert machine_capacity()["cpu"] == found


def test_processors_are_limited_as_joblib_is(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert machine_capacity()["cpu"] == 1


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        ("2,3", ("2", "3")),
        ("", ()),
        ("-1", ()),
        ("GPU-5f, MIG-7", ("GPU-5f", "MIG-7")),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
        ("3,1,3", ("3", "1")),
    ],
)
def test_listed_gpus_are_those_that_cuda_would_see(listed, seen):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}) == seen


def test_without_a_list_all_gpus_of_the_driver_are_seen(machine_without_gpus):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (machine_without_gpus / name).mkdir(parents=True)
    assert visible_gpus({}) == ("0", "1")


def test_assigned_gpus_are_positions_in_the_drivers_list():
    assert (
        worker_environment({"gpu": 2}, (0, 2), {"CUDA_VISIBLE_DEVICES": "5,6,7"})[
            "CUDA_VISIBLE_DEVICES"
        ]
        == "5,7"
    )


@pytest.mark.parametrize(
    ("assigned", "listed"), [((0, 0), "5"), ((0, 1, 1), "5,6"), ((2, 0, 2), "7,5")]
)
def test_a_gpu_that_several_ranks_share_is_listed_once(assigned, listed):
    # PyTorch sees no GPU at all where one is listed twice.
    environ = worker_environment({"gpu": 0.5}, assigned, {"CUDA_VISIBLE_DEVICES": "5,6,7"})
    assert environ["CUDA_VISIBLE_DEVICES"] == listed


@pytest.mark.parametrize(
    ("assigned", "devices"),
    [
        ((0, 0), [(0,), (0,)]),
        ((4, 7), [(0,), (1,)]),
        ((0, 1, 1), [(0,), (1,), (1,)]),
        ((0, 0, 1, 1), [(0,), (0,), (1,), (1,)]),
        ((2, 3, 5, 6), [(0, 1), (2, 3)]),
        ((5,), [(0,)]),
        ((), [(), ()]),
    ],
)
def test_each_rank_has_the_devices_that_it_was_assigned(assigned, devices):
    found = [devices_of_rank(assigned, rank, len(devices)) for rank in range(len(devices))]
    assert found == devices


def test_gpus_that_were_not_found_are_named_by_number():
    assert worker_environment({"gpu": 1}, (3,), {})["CUDA_VISIBLE_DEVICES"] == "3"


def test_a_trial_without_gpus_sees_none_of_the_machines(machine_without_gpus):
    assert worker_environment({}, (), {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == ""
    (machine_without_gpus / "0").mkdir(parents=True)
    assert worker_environment({}, (), {})["CUDA_VISIBLE_DEVICES"] == ""


def test_without_gpus_the_variable_is_not_set():
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, (), {})


@pytest.mark.parametrize(("cpus", "threads"), [(1, "1"), (0.5, "1"), (2.9, "2"), (8, "8")])
def test_threads_follow_the_cpus(cpus, threads):
    assert {worker_environment({"cpu": cpus}, (), {})[name] for name in THREAD_VARIABLES} == {
        threads
    }


def test_numbers_of_threads_set_by_the_user_are_kept():
    environ = worker_environment({"cpu": 8}, (), {"OMP_NUM_THREADS": "2"})
    assert environ["OMP_NUM_THREADS"] == "2"
    assert environ["MKL_NUM_THREADS"] == "8"


def test_the_trainable_is_always_loaded_with_one_thread():
    environ = loading_environment({"OMP_NUM_THREADS": "4", "HOME": "/home/user"})
    assert {environ[name] for name in THREAD_VARIABLES} == {"1"}
    assert environ["HOME"] == "/home/user"


@pytest.mark.heavy
def test_pyarrow_is_loaded_without_a_background_thread():
    pytest.importorskip("pyarrow")
    program = "import os, pyarrow; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(  # noqa: S603  (our own interpreter)
        [sys.executable, "-c", program],
        env=loading_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize(("declared", "expected"), [("3", [3]), ("1", []), ("2,4", []), ("", [])])
def test_the_threads_of_a_loaded_library_are_set(monkeypatch, declared, expected):
    limits = []
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(set_num_threads=limits.append))
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    limit_threads({"OMP_NUM_THREADS": declared})
    assert limits == expected


def test_no_device_is_in_use_here():
    assert device_in_use() is None
