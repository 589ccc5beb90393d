"""Fixtures of tests about groups, in which no process runs."""

import pytest

from tests.execution.executor_conversation import Conversation
from tuner.execution import start_retry


@pytest.fixture
def talk(tmp_path):
    return Conversation(tmp_path)


@pytest.fixture
def at_once(monkeypatch):
    """Have starts retried without a pause."""
    monkeypatch.setattr(start_retry, "_RETRY_S", 0.0)
