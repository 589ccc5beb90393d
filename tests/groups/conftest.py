"""Fixtures of tests about groups, in which no process runs."""

from tests.execution.conftest import at_once, talk

__all__ = ["at_once", "talk"]
