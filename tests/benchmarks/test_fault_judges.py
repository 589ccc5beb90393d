"""Measurements of the fault benchmarks: journals, logs, processes and training repeated."""

import json
import os
import subprocess
import sys

import pytest

import tuner as tune
from benchmarks.faults import bystanders, deaths, kill_cluster, kill_driver
from benchmarks.faults.conditions import Verdict, at_most
from benchmarks.faults.digits import num_different
from benchmarks.faults.evidence import ROOT, Suite
from benchmarks.faults.ledger import Entry, Ledger, read_ledger
from benchmarks.faults.readers import LOGS, doubles_and_holes, journal_bytes, reported_in
from tests.waiting import wait_until

WAITS = ["tail", "-f", "/dev/null"]


@pytest.fixture
def experiment(tmp_path):
    def train(config):
        for step in range(1, 4):
            tune.report({"loss": config["x"] / step})

    run_config = tune.RunConfig(
        name="experiment", storage_path=tmp_path, verbose=0, executor="inline"
    )
    tune.Tuner(train, param_space={"x": 6.0}, run_config=run_config).fit()
    return tmp_path / "experiment"


def test_every_result_of_a_journal_is_read(experiment):
    assert reported_in(journal_bytes(experiment)) == {
        ("t00000", 1, 6.0),
        ("t00000", 2, 3.0),
        ("t00000", 3, 2.0),
    }


def test_torn_and_damaged_results_are_not_read(experiment):
    [content] = journal_bytes(experiment)
    lines = [line for line in content.splitlines(keepends=True) if b'"k":"result"' in line]
    assert reported_in([lines[0], lines[1][:-9]]) == {("t00000", 1, 6.0)}
    assert reported_in([lines[0].replace(b"6.0", b"7.0"), lines[1]]) == {("t00000", 2, 3.0)}


@pytest.mark.parametrize("log", LOGS)
def test_rows_of_every_log_file_are_read(experiment, log):
    assert LOGS[log](experiment / "t00000") == [1, 2, 3]


def test_duplicate_and_missing_rows_are_counted():
    assert doubles_and_holes([1, 2, 3], 3) == (0, 0)
    assert doubles_and_holes([1, 1, 3, 3, 3], 4) == (3, 2)


def test_a_ledger_holds_the_entries_of_all_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULTS_LEDGER", str(tmp_path))
    monkeypatch.setenv("FAULTS_LIFE", "2")
    Ledger().note("report", "t00001", 7, 0.5)
    Ledger().note("ended")
    first, second = read_ledger(tmp_path)
    assert (first.kind, first.life, first.trial, first.iteration, first.value) == (
        "report",
        2,
        "t00001",
        7,
        0.5,
    )
    assert second.kind == "ended"
    assert first.at_s <= second.at_s


@pytest.fixture
def bystander():
    process = subprocess.Popen(
        WAITS, env={**os.environ, bystanders.MARK: "a-test", bystanders.LEAVER: "1"}
    )
    wait_until(lambda: bystanders.marked("a-test", leavers=True))
    yield process
    process.kill()
    process.wait()


def test_processes_are_found_by_their_mark_until_they_exit(bystander):
    assert bystanders.marked("a-test", leavers=True) == [bystander.pid]
    assert bystanders.marked("a-test") == bystanders.marked("another", leavers=True) == []
    bystanders.clean_up("a-test")
    assert bystander.wait(60) < 0
    assert bystanders.gone_after_s("a-test", 0.0) is not None


def test_remaining_processes_are_reported():
    process = subprocess.Popen(WAITS, env={**os.environ, bystanders.MARK: "a-test"})
    wait_until(lambda: bystanders.marked("a-test"))
    assert bystanders.gone_after_s("a-test", 0.0) is None
    process.kill()
    process.wait()


def story(*reports):
    """Return a story in which the first driver is killed and the second resumes.

    Each report is a pair of a driver process, 0 or 1, and an iteration.
    """
    kills = [kill_driver.Kill(0, 0, [], 0.0)]
    entries = [
        Entry("report", life, float(at), "t00000", iteration)
        for at, (life, iteration) in enumerate(reports)
    ]
    return kill_driver.Story(None, kills, entries, 0, 0)


@pytest.mark.parametrize(
    ("first", "resumed", "expected"),
    [(7, 6, (2, 2)), (7, 8, (0, 2)), (7, 1, (7, 2)), (5, 6, (0, 0)), (3, 1, (3, 3))],
)
def test_repeated_iterations_are_counted_from_the_first_report_after_the_kill(
    first, resumed, expected
):
    reports = [(0, iteration) for iteration in range(1, first + 1)] + [(1, resumed)]
    assert list(kill_driver.again(story(*reports))) == [expected]


def test_a_trial_without_later_reports_repeats_no_iteration():
    assert list(kill_driver.again(story((0, 1), (0, 2)))) == [(0, 2)]


def test_different_curves_are_counted_and_shorter_ones_only_if_exact():
    curve = [(1, 0.5, 0.1), (2, 0.4, 0.2)]
    assert num_different({"a": curve}, {"a": curve}, is_exact=True) == 0
    assert num_different({"a": curve}, {"a": curve[:1]}, is_exact=True) == 1
    assert num_different({"a": curve}, {"a": curve[:1]}, is_exact=False) == 0
    assert num_different({"a": curve}, {"a": [(1, 0.5, 0.3)]}, is_exact=False) == 1
    assert num_different({"a": curve}, {}, is_exact=True) == 1


def test_a_limit_without_measurements_does_not_hold():
    assert not at_most("time", [], 1.0).holds
    assert at_most("time", [0.5, 0.9], 1.0).holds
    assert not at_most("time", [0.5, 1.1], 1.0).holds
    assert at_most("time", [0.5, 0.6, 1.1], 1.0, is_middle=True).holds


def test_every_worker_death_is_noticed_beyond_the_limit_of_failures_for_one_cause():
    listener, num_silent = deaths.measure(6)
    assert num_silent == 0
    assert {way: len(delays_s) for way, delays_s in listener.delays_s.items()} == dict.fromkeys(
        deaths.WAYS, 6
    )


def test_a_killed_driver_loses_and_duplicates_no_results(tmp_path):
    path = tmp_path / "verdict.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.faults.kill_driver",
        "--kills",
        "1",
        "--seed",
        "3",
        "--verdict",
        str(path),
    ]
    subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    verdict = Verdict.from_fields(json.loads(path.read_text()))
    assert verdict.repetitions == 1
    assert [condition for condition in verdict.failed if condition.accepted == "0"] == []


@pytest.mark.parametrize("is_by_value", [False, True])
def test_what_the_ledger_alone_has_is_lost_on_a_cluster(experiment, is_by_value):
    segments = journal_bytes(experiment)
    tally = kill_cluster.Tally(None, is_by_value=is_by_value)
    known = Entry("report", 0, 0.0, "t00000", 2, 3.0)
    unknown = Entry("report", 0, 0.0, "t00000", 3, 2.5)
    assert tally._lost(segments, [known, unknown]) == [unknown]
    tally.num_lost = 1
    assert [each.what for each in tally.verdict().failed] == ["acknowledged results lost"]


def test_a_killed_node_loses_and_duplicates_no_results(tmp_path):
    path = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "benchmarks.faults.kill_cluster"]
    options = ["--kills", "1", "--pace-s", "0.01", "--seed", "1", "--verdict", str(path)]
    subprocess.run([*command, *options], cwd=ROOT, check=False, capture_output=True)
    verdict = Verdict.from_fields(json.loads(path.read_text()))
    assert verdict.repetitions == 1
    assert verdict.failed == []


def test_processes_that_a_cluster_has_started_for_an_experiment_are_found():
    environment = {**os.environ, bystanders.ENGINE: "a-test"}
    other = subprocess.Popen(WAITS, env=environment)
    ours = subprocess.Popen(
        [sys.executable, "-c", "input()", "tuner.execution.x"],
        env=environment,
        stdin=subprocess.PIPE,
    )
    try:
        # Before it runs the interpreter, the process has another command line, or none.
        wait_until(lambda: bystanders.marked("a-test"))
        assert bystanders.marked("a-test") == [ours.pid]
    finally:
        for process in (other, ours):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("source", "repetitions", "holds"),
    [
        ("def test_a(): pass\ndef test_b(): pass", 4, True),
        ("def test_a(): pass\ndef test_b(): assert False", 4, False),
        ("import pytest\ndef test_a(): pytest.skip('not here')", 0, False),
        ("", 0, False),
        ("import nothing_of_that_name", 1, False),
    ],
)
def test_a_suite_is_evidence_only_if_all_its_tests_pass(tmp_path, source, repetitions, holds):
    (tmp_path / "test_it.py").write_text(source)
    verdict = Suite(
        f"../{tmp_path.relative_to('/')}/test_it".replace("..", "../" * len(ROOT.parts) + ".."),
        repeat=2,
    ).run()
    assert (verdict.repetitions, not verdict.failed) == (repetitions, holds)
