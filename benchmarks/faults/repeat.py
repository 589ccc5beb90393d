"""A pytest plugin that runs each test several times.

Use it with ``pytest -p benchmarks.faults.repeat --repeat 20``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--repeat``."""
    parser.addoption("--repeat", type=int, default=1, help="how often each test is run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test with the number of its repetition."""
    times = metafunc.config.getoption("--repeat")
    if times > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(times))
