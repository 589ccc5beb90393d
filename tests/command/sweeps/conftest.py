"""Fixtures of tests of sweep files."""

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the working directory and returns its relative path."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="sweep.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path.relative_to(tmp_path)

    return write
