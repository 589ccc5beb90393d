"""A search over trainings of two workers, killed twice, ends like one that was left alone."""

import importlib.util
import signal
import time

import pytest

from tests.end_to_end import interruption

SCRIPT = interruption.ROOT / "tests" / "end_to_end" / "scripts" / "group_search.py"

pytest.importorskip("torch")
pytest.importorskip("sklearn")


def num_results(storage):
    journal = storage / "exp" / "journal"
    logs = sorted(journal.glob("*.log")) if journal.is_dir() else []
    return sum(log.read_bytes().count(b'"k":"result"') for log in logs)


def run(storage, kind, kill=None, after=0):
    """Run the search, kill it after so many results if asked to, and return what it printed."""
    storage.mkdir(exist_ok=True)
    script = interruption.Script(SCRIPT, storage, kind, directory=storage)
    try:
        while kill and num_results(storage) < after:
            assert script.process.poll() is None, script.process.communicate()
            time.sleep(0.002)
        if kill is None:
            assert script.end() == 0, script.printed + script.errors
            return script.printed
        descendants = script.descendants()
        kill(script)
        assert script.end() == -signal.SIGKILL
        assert interruption.still_alive(descendants) == []
        return ""
    finally:
        script.close()


def needs(kind):
    module = {"lightning": "pytorch_lightning"}.get(kind, kind)
    missing = kind != "cnn" and not importlib.util.find_spec(module)
    return pytest.param(kind, marks=pytest.mark.skipif(missing, reason=f"no {module} installed"))


@pytest.mark.timeout(400)  # four runs, each of which imports PyTorch
@pytest.mark.parametrize("kind", [needs("cnn"), needs("lightning"), needs("transformers")])
def test_a_search_that_was_killed_twice_ends_as_if_it_had_not_been(tmp_path, kind):
    expected = run(tmp_path / "whole", kind)
    storage = tmp_path / "killed"
    run(storage, kind, kill=interruption.kill_driver, after=3)
    run(storage, kind, kill=interruption.kill_group, after=6)
    assert run(storage, kind) == expected
    assert expected.count("TERMINATED") >= 1
