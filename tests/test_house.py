"""The cost of imports, docstrings whose examples run, and where threads start."""

import doctest
import graphlib
import importlib.util
import inspect
from pathlib import Path

import pytest

from tests.interpreter import run_python

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "schedulers", "searchers")
HEAVY = {
    "accelerate", "aiobotocore", "ax", "bayes_opt", "botocore", "click", "dask", "distributed",
    "fsspec", "hyperopt", "joblib", "keras", "lightgbm", "lightning", "nevergrad", "optuna",
    "pandas", "plotly", "pyarrow", "pytorch_lightning", "ray",
    "rich", "s3fs", "scipy", "sklearn", "tensorboard", "tensorboardX", "tensorflow", "torch",
    "transformers", "xgboost",
}  # fmt: skip
MUTUAL = {
    "searchers.space.sample_from": "searchers.space.computed_values",
    "tuner.core.manual_control": "tuner.core.experiment",
    "tuner.core.part": "tuner.core.experiment",
    "tuner.core.trial": "tuner.validation.records",
    "tuner.journal.result_records": "tuner.journal.rows",
    "tuner.storage.layout": "tuner.storage.disk",
}
"""Files that name a type of one by which they are imported; `lint-imports` leaves types aside."""
TIERS = {
    "heavy": {
        "searchers.libraries.ax_search",
        "searchers.libraries.bayesopt_search",
        "searchers.libraries.hyperopt_search",
        "searchers.libraries.nevergrad_search",
        "tuner.callbacks.trackers.comet_logger",
        "tuner.callbacks.trackers.mlflow_logger",
        "tuner.callbacks.trackers.wandb_logger",
        "tuner.integration.lightgbm",
        "tuner.integration.xgboost",
        "tuner.stores.checked_url",
    },
    "process": {
        "searchers.models.cqr_search",
        "searchers.models.gaussian_process",
        "searchers.models.gp_search",
        "tuner.analysis.charts.plots",
        "tuner.analysis.result_grid",
        "tuner.handle",
        "tuner.integration.cv_results",
        "tuner.integration.folds",
        "tuner.integration.growing",
        "tuner.integration.sklearn",
        "tuner.integration.sklearn_search",
        "tuner.journal.writer",
        "tuner.stores.remote_lock",
        "tuner.testing.crash_check",
        "tuner.train.api",
        "tuner.train.torch",
        "tuner.train.torch_checkpoint",
        "tuner.tune_run",
        "tuner.tuner",
        "tuner.whatif.what_if",
    },
}
"""Modules whose examples are in another tier than ``unit``."""

OWN_THREADS = {
    "tuner/background.py",
    "tuner/driver/background_run.py",  # the driver itself, for which the end of a script waits
    "tuner/cluster/agent.py",  # connections
    "tuner/cluster/dask_engine.py",
    "tuner/cluster/dask_plugin.py",
    "tuner/cluster/ray_engine.py",
    "tuner/execution/inline_processes.py",  # training code
    "tuner/stores/store_calls.py",  # a call that may hang, and is given up then
}
"""Files that start threads; all others use `BackgroundJobs`."""


def modules_after_importing(package, cwd):
    code = f"import sys, {package}; print(*sys.modules)"
    return run_python("-c", code, cwd=cwd).stdout.split()


def modules_with_examples():
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if ">>>" in file.read_text(encoding="utf-8"):
                path = file.relative_to(ROOT).with_suffix("")
                name = ".".join(path.parts).removesuffix(".__init__")
                marks = [getattr(pytest.mark, tier) for tier in TIERS if name in TIERS[tier]]
                yield pytest.param(name, marks=marks)


@pytest.mark.process
@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package, tmp_path):
    loaded = modules_after_importing(package, tmp_path)
    assert package in loaded
    assert HEAVY.isdisjoint(loaded)


@pytest.mark.process
@pytest.mark.parametrize("package", ["schedulers", "searchers"])
def test_schedulers_and_searchers_work_without_the_engine(package, tmp_path):
    loaded = modules_after_importing(package, tmp_path)
    assert "tuner" not in loaded


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_face_exists_and_is_documented(package):
    face = importlib.import_module(package)
    assert sorted(face.__all__) == sorted(set(face.__all__))
    undocumented = [
        name
        for name in face.__all__
        if callable(getattr(face, name)) and not getattr(face, name).__doc__
    ]
    assert undocumented == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_users_call_of_a_class_is_documented(package):
    face = importlib.import_module(package)
    undocumented = [
        f"{name}.{attribute}"
        for name in face.__all__
        if inspect.isclass(cls := getattr(face, name))
        for attribute, value in vars(cls).items()
        if not attribute.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        and not inspect.getdoc(getattr(cls, attribute))
    ]
    assert undocumented == []


@pytest.mark.parametrize("module", list(modules_with_examples()))
def test_docstring_examples_run(module, tmp_path, monkeypatch, request):
    if module == "searchers.libraries.nevergrad_search":
        request.getfixturevalue("nevergrad")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"getfixture": request.getfixturevalue}
    outcome = doctest.testmod(
        importlib.import_module(module), extraglobs=given, optionflags=doctest.ELLIPSIS
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.heavy
def test_files_import_each_other_in_no_circle_types_included():
    import grimp  # noqa: PLC0415  (with import-linter alone)

    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    files = {name for name in graph.modules if not graph.find_children(name)}
    imported = {
        name: (files & graph.find_modules_directly_imported_by(name)) - {MUTUAL.get(name)}
        for name in files
    }
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError with the circle


def test_threads_are_background_jobs():
    starts = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "threading.Thread(" in path.read_text(encoding="utf-8")
    }
    assert starts == OWN_THREADS
