"""The scheduler that the guide writes keeps to the contract that it names."""

import re
import runpy
from pathlib import Path

import pytest

from tuner.testing import SchedulerContract

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"


class TestLeapfrog(SchedulerContract):
    @pytest.fixture(autouse=True)
    def written(self, tmp_path):
        blocks = re.findall(
            r"^```python\n(.*?)^```",
            GUIDE.read_text(encoding="utf-8"),
            flags=re.DOTALL | re.MULTILINE,
        )
        (block,) = (block for block in blocks if "class Leapfrog" in block)
        (tmp_path / "leapfrog.py").write_text(block, encoding="utf-8")
        self.leapfrog = runpy.run_path(str(tmp_path / "leapfrog.py"))["Leapfrog"]

    def make_scheduler(self):
        return self.leapfrog()
