"""Where a framework is not installed, its integration says so, and what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    code = f"import sys; sys.modules[{FRAMEWORKS[integration]!r}] = None; import tuner.integration.{integration}"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  (our own code)
    assert ran.stderr.splitlines()[-1].endswith(f'which is not installed; pip install "tuner-hpo[{integration}]"')
