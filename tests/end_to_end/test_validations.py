"""Checkpoints are validated beside the training, once each, whatever dies meanwhile."""

import signal
from pathlib import Path

import pytest

from tests.end_to_end.interruption import ROOT, Script, still_alive
from tests.waiting import wait_until
from tuner.journal import reader

VALIDATED = ROOT / "tests" / "end_to_end" / "scripts" / "validated.py"


def lines_of(directory):
    path = Path(directory, "validations.txt")
    return path.read_text().splitlines() if path.exists() else []


def await_line(directory, line):
    wait_until(lambda: line in lines_of(directory), line)


def has_trained(directory):
    """Return whether the end of the training is in the journal."""
    return any(record["k"] == "exited" for record in reader.read(directory / "exp"))


def payloads_in(directory):
    return list((directory / "exp" / "t00000").glob(".validation-*"))


@pytest.fixture
def run(tmp_path):
    """Return a function that starts the script."""
    scripts = []

    def start(form, *rest, hangs_at=-1):
        scripts.append(Script(VALIDATED, tmp_path, form, hangs_at, *rest, directory=tmp_path))
        return scripts[-1]

    yield start
    for script in scripts:
        script.close()


EXPECTED = [f"checkpoint_00000{step} -1.0 {10 * step}" for step in range(4)]


@pytest.mark.parametrize("form", ["declared", "reported"])
def test_both_forms_give_the_same_result(run, tmp_path, form):
    script = run(form)
    assert script.end() == 0, script.errors
    assert script.printed.splitlines() == [*EXPECTED, "DONE 30"]
    lines = lines_of(tmp_path)
    # One after another, in the order of the reports, while the training goes on.
    order = [f"{word} {step}" for step in range(4) for word in ("start", "end")]
    assert [line for line in lines if line != "trained"] == order
    assert lines.index("trained") < lines.index("end 0")
    assert payloads_in(tmp_path) == []


@pytest.mark.parametrize("form", ["declared", "reported"])
def test_after_the_death_of_the_driver_only_what_had_not_ended_is_validated(run, tmp_path, form):
    script = run(form, hangs_at=1)
    await_line(tmp_path, "start 1")
    wait_until(lambda: has_trained(tmp_path), "the end of the training in the journal")
    processes = script.descendants()
    script.process.kill()
    assert still_alive(processes) == []
    before = [line for line in lines_of(tmp_path) if line != "trained"]
    assert before == ["start 0", "end 0", "start 1"]
    script = run(form, "restore")
    assert script.end() == 0, script.errors
    assert script.printed.splitlines() == [*EXPECTED, "DONE 30"]
    repeated = [f"{word} {step}" for step in (1, 2, 3) for word in ("start", "end")]
    assert [line for line in lines_of(tmp_path) if line != "trained"] == before + repeated
    assert payloads_in(tmp_path) == []


def test_an_interrupt_ends_validations_and_a_restore_repeats_them(run, tmp_path):
    script = run("reported", hangs_at=0)
    await_line(tmp_path, "start 0")
    await_line(tmp_path, "trained")
    processes = script.descendants()
    script.signal(signal.SIGTERM)
    assert script.end() == 128 + signal.SIGTERM
    assert still_alive(processes) == []
    assert payloads_in(tmp_path) == []
    script = run("reported", "restore")
    assert script.end() == 0, script.errors
    assert script.printed.splitlines() == [*EXPECTED, "DONE 30"]


def test_a_killed_validator_fails_its_checkpoint_and_nothing_else(run, tmp_path):
    script = run("declared", hangs_at=1)
    await_line(tmp_path, "start 1")
    children = [process for process in script.descendants() if process.is_running()]
    log = tmp_path / "exp" / "t00000" / "validation_000001.log"
    (validator,) = [process for process in children if writes_to(process, log)]
    validator.kill()
    assert script.end() == 0, script.errors
    assert "checkpoint_000001 1.0 None" in script.printed
    assert script.printed.endswith("DONE 30\n")


def writes_to(process, path):
    try:
        return Path(f"/proc/{process.pid}/fd/1").readlink() == path
    except OSError:
        return False
