"""A slow searcher delays neither reports nor signals."""

import signal

import pytest

from tests.end_to_end.interruption import ROOT, Script
from tuner.journal.rows import JournalRows


@pytest.fixture
def start(tmp_path):
    scripts = []

    def run(num_reports):
        scripts.append(
            Script(
                ROOT / "tests/end_to_end/scripts/slow_searcher.py",
                tmp_path,
                num_reports,
                directory=tmp_path,
            )
        )
        scripts[-1].wait_for("SEARCHES tuner-searcher")
        return scripts[-1]

    yield run
    for script in scripts:
        script.close()


def test_reports_are_answered_while_a_suggestion_is_computed(start, tmp_path):
    script = start(30)
    assert script.end() == 0
    assert script.said("ENDED") == "['TERMINATED completed', 'TERMINATED completed']"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_experiment_whose_searcher_does_not_answer(number, code, start, tmp_path):
    script = start(0)
    script.signal(number)
    assert script.end() == code
    assert script.errors == ""
    assert script.said("ENDED") == "['TERMINATED interrupted']"
    assert len(list(JournalRows(tmp_path / "slow").of("t00000"))) > 0
    assert "continue with" in script.printed
