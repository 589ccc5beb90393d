"""An integration whose framework is not installed names the package to install."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {
    "keras": "keras",
    "lightgbm": "lightgbm",
    "sklearn": "sklearn",
    "transformers": "transformers",
    "xgboost": "xgboost",
}


@pytest.mark.parametrize("integration", FRAMEWORKS)
def test_an_integration_without_its_framework_names_the_extra(integration):
    hide = f"import sys; sys.modules[{FRAMEWORKS[integration]!r}] = None"
    code = f"{hide}; import tuner.integration.{integration}"
    ran = subprocess.run(  # noqa: S603  (our own code)
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1].endswith(
        f'which is not installed; pip install "tuner-hpo[{integration}]"'
    )


def test_only_a_missing_backend_of_keras_is_reported_as_one(tmp_path):
    (tmp_path / "keras.py").write_text("import a_module_that_is_not_there\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tuner.integration.keras"
    ran = subprocess.run(  # noqa: S603  (our own code)
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (
        ran.stderr.splitlines()[-1]
        == "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    )


def test_a_missing_dependency_is_not_reported_as_a_missing_framework(tmp_path):
    """A broken installation raises its own error."""
    (tmp_path / "xgboost.py").write_text("import a_module_that_is_not_there\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tuner.integration.xgboost"
    ran = subprocess.run(  # noqa: S603  (our own code)
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (
        ran.stderr.splitlines()[-1]
        == "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    )
