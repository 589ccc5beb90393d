"""``tuner ls``."""

import json
import os
import shutil
import socket

import pytest

from tuner.cli.listing import _COLUMNS
from tuner.cli.output import table_of
from tuner.storage.lock import ExperimentLock


def listed(call, *arguments, code=0):
    return {
        record["name"]: record
        for record in json.loads(call("ls", *arguments, "-f", "json", code=code).stdout)
    }


def test_experiments_are_listed_with_their_best_trial(call, plain, odd):
    found = listed(call)
    assert list(found) == ["odd", "plain"]
    assert found["plain"] | {"elapsed_s": 0, "age_s": 0, "created": ""} == {
        "name": "plain",
        "state": "finished",
        "trials": "3/3",
        "best_trial": "t00001",
        "metric": "min loss",
        "last": 0.5,
        "last_iteration": 4,
        "best": 0.25,
        "best_iteration": 3,
        "running": 0,
        "failed": None,
        "elapsed_s": 0,
        "budget": None,
        "age_s": 0,
        "created": "",
        "path": str(plain),
    }
    assert found["odd"]["failed"] == 1
    assert found["plain"]["age_s"] >= 0


def test_the_table_has_a_heading_and_a_line_for_each(call, plain, odd):
    heading, *lines = call("ls").stdout.splitlines()
    assert heading.split()[:8] == [
        "name",
        "state",
        "trials",
        "best",
        "trial",
        "metric",
        "last",
        "best",
    ]
    assert [line.split()[0] for line in lines] == ["odd", "plain"]


def test_experiments_far_below_a_path_are_found_and_named_by_their_way_there(call, plain, storage):
    shutil.move(plain, storage / "year" / "month" / "plain")
    assert list(listed(call)) == ["year/month/plain"]
    assert list(listed(call, storage / "year" / "month" / "plain")) == ["plain"]


def test_lines_are_chosen_and_sorted(call, plain, odd):
    assert list(listed(call, "--filter", "failed == 1")) == ["odd"]
    assert list(listed(call, "--sort", "name", "--desc", "--limit", "1")) == ["plain"]


def test_an_experiment_with_a_driver_is_running(call, plain):
    with ExperimentLock(plain):
        assert listed(call)["plain"]["state"] == "running"
    assert listed(call)["plain"]["state"] == "finished"


def test_the_lock_decides_where_its_owner_is_of_a_machine_before_its_last_start(call, plain):
    owner = {
        "pid": 1,
        "host": socket.gethostname(),
        "boot_id": "another",
        "started": "long ago",
        "epoch": 1,
        "ticks": 1,
    }
    (plain / "lock").write_text(json.dumps(owner))
    assert listed(call)["plain"]["state"] == "finished"


def test_one_whose_journal_lacks_its_end_was_interrupted(call, plain):
    cut_behind(plain, b'"k":"started"')
    assert listed(call)["plain"]["state"] == "interrupted"


def cut_behind(experiment, mark):
    """Cut the journal after the first record of a kind, as if the driver had been killed there."""
    shutil.rmtree(experiment / "snapshot")
    (segment,) = (experiment / "journal").glob("*.log")
    lines = segment.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if mark in line)
    segment.write_bytes(b"".join(lines[: first + 1]))


def test_a_damaged_one_is_listed_with_what_is_wrong_and_hides_no_other(call, plain, odd):
    shutil.rmtree(plain / "snapshot")
    (segment,) = (plain / "journal").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b'"k":"started"', b'"k":"stirred"', 1))
    found = listed(call)
    assert found["plain"]["state"] == "damaged"
    assert "does not match its checksum" in found["plain"]["remark"]
    assert found["odd"]["state"] == "finished"


@pytest.mark.parametrize("path", [(), (".",)])
def test_none_at_all_is_said_and_ends_with_1(call, storage, monkeypatch, path):
    monkeypatch.chdir(storage)
    assert "there are no experiments in" in call("ls", *path, code=1).stderr


def test_the_latest_to_change_comes_first(call, plain, odd):
    for number, name in enumerate(["plain", "odd"]):
        for path in (odd.parent / name / "journal").iterdir():
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    assert [record["name"] for record in json.loads(call("ls", "-f", "json").stdout)] == [
        "odd",
        "plain",
    ]
    assert [
        record["name"] for record in json.loads(call("ls", "-f", "json", "--sort", "name").stdout)
    ] == ["odd", "plain"]
    for path in (plain / "journal").iterdir():
        os.utime(path)
    assert [record["name"] for record in json.loads(call("ls", "-f", "json").stdout)] == [
        "plain",
        "odd",
    ]
    assert (
        next(
            record["name"]
            for record in json.loads(call("ls", "-f", "json", "--filter", "changed < 1d").stdout)
        )
        == "plain"
    )
    assert [
        record["name"]
        for record in json.loads(call("ls", "-f", "json", "--sort", "best trial,run_for").stdout)
    ]


@pytest.mark.parametrize("width", range(30, 160, 5))
def test_a_value_is_never_shown_without_its_metric(width):
    record = {
        "name": "train_2026-11-23",
        "state": "finished",
        "trials": "3/3",
        "best_trial": "t00001",
        "metric": "min validation/loss",
        "last": 0.5,
        "best": 0.25,
        "best_iteration": 3,
        "age_s": 3.0,
        "elapsed_s": 2.0,
    }
    fitting = {column.title for column in table_of([record], _COLUMNS).fitting(width)}
    shown = [column.key for column in _COLUMNS if column.heading in fitting]
    assert "metric" in shown or not {"best_trial", "last", "best", "best_iteration"} & {*shown}
    assert {"metric", "last"} <= {*shown} or width < 80


def test_a_folder_that_is_named_journal_makes_no_experiment(call, storage, plain):
    for name, file in (("diary", "2026-11-23.txt"), ("notes", "1.log"), ("empty", None)):
        (storage / name / "journal").mkdir(parents=True)
        if file:
            (storage / name / "journal" / file).write_text("rain")
    (storage / "flat").mkdir()
    (storage / "flat" / "journal").write_text("a file")
    assert list(listed(call)) == ["plain"]
    (plain / "experiment.json").unlink()
    assert list(listed(call)) == ["plain"]
