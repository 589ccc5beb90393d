"""A search over trainings of two workers, killed, ends like one that was left alone."""

import importlib.util
import signal

import pytest

from tests.end_to_end import interruption
from tests.tiers import is_full

pytestmark = pytest.mark.heavy

SCRIPT = interruption.ROOT / "tests" / "end_to_end" / "scripts" / "group_search.py"


def run(storage, kind, num_samples, kill=None, after=0):
    """Run the search, kill it after so many results of this run if asked to; return its table."""
    storage.mkdir(exist_ok=True)
    script = interruption.Script(SCRIPT, storage, kind, num_samples, directory=storage)
    try:
        if kill is None:
            assert script.end() == 0, script.printed + script.errors
            return script.printed.partition("ENDED\n")[2]
        script.wait_for(f"RESULT {after}\n")
        descendants = script.descendants()
        kill(script)
        assert script.end() == -signal.SIGKILL
        assert interruption.still_alive(descendants) == []
        return ""
    finally:
        script.close()


def case(kind, module, num_samples, kills):
    """Return a case that is skipped where a package is missing.

    The frameworks run with ``--full`` alone: they continue from checkpoints in tests of their own.
    """
    missing = [name for name in ("torch", module) if not importlib.util.find_spec(name)]
    marks = [pytest.mark.skipif(bool(missing), reason=f"{missing} not installed")]
    if kind != "cnn":
        marks.append(pytest.mark.skipif(not is_full(), reason="is run with --full"))
    return pytest.param(kind, num_samples, kills, marks=marks, id=kind)


@pytest.mark.timeout(400)  # several runs, each of which imports PyTorch
@pytest.mark.parametrize(
    ("kind", "num_samples", "kills"),
    [
        case("cnn", "torch", 4, [(interruption.kill_driver, 3), (interruption.kill_group, 3)]),
        # In the middle of a trial, which goes on from its checkpoint.
        case("lightning", "pytorch_lightning", 2, [(interruption.kill_driver, 3)]),
        case("transformers", "transformers", 2, [(interruption.kill_group, 2)]),
    ],
)
def test_a_search_that_was_killed_ends_as_if_it_had_not_been(tmp_path, kind, num_samples, kills):
    expected = run(tmp_path / "whole", kind, num_samples)
    storage = tmp_path / "killed"
    for kill, after in kills:
        run(storage, kind, num_samples, kill, after)
    assert run(storage, kind, num_samples) == expected
    assert expected.count("TERMINATED") == num_samples
