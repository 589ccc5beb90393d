"""``tuner doctor`` and ``resume``: each kind of damage is found, with what to do about it."""

import json
import re
import shutil

import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from tests.analysis.validated import FAILED, rewrite, validate
from tuner.cli import maintenance
from tuner.journal.reader import read
from tuner.maintenance.doctor import Finding, Level
from tuner.storage.lock import ExperimentLock


def findings(call, *arguments, code):
    found = json.loads(call("doctor", *arguments, "-f", "json", code=code).stdout)
    return (
        {record["subject"]: record for record in found if record["level"] != "ok"}
        if code
        else found
    )


def journal_of(experiment):
    (segment,) = (experiment / "journal").glob("*.log")
    return segment


def test_a_sound_experiment_is_told_part_by_part_and_ends_with_0(call, plain):
    found = findings(call, "plain", "--deep", code=0)
    assert [record["subject"] for record in found] == [
        "declaration",
        "lock",
        "journal",
        "snapshot",
        "checkpoints",
        "experiment",
    ]
    assert all(record["level"] == "ok" and record["remedy"] is None for record in found)
    assert call("doctor", "plain").stdout.splitlines()[0].startswith("ok ")


def test_nothing_is_changed(call, plain):
    (plain / "t00000" / ".tmp-000009-1-abcd").mkdir()
    journal_of(plain).write_bytes(journal_of(plain).read_bytes() + b"torn")
    before = {path: path.stat().st_mtime_ns for path in plain.rglob("*")}
    call("doctor", "plain", "--deep", code=1)
    assert {path: path.stat().st_mtime_ns for path in plain.rglob("*")} == before


def flip_a_bit(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.process
def test_a_damaged_journal_is_an_error_and_the_remedy_heals_it(call, plain, make):
    shutil.rmtree(plain / "snapshot")
    flip_a_bit(journal_of(plain), 2_000)
    found = findings(call, "plain", code=1)
    assert "is damaged at byte" in found["journal"]["what"]
    assert "salvage=True" in found["journal"]["remedy"]
    tune.Tuner.restore(plain, make.train, salvage=True, verbose=0).fit()
    aside = findings(call, "plain", code=1)
    assert "was set aside" in aside["journal"]["what"]
    assert set(aside) == {"journal"}


def test_a_torn_end_is_no_damage(call, plain):
    journal_of(plain).write_bytes(journal_of(plain).read_bytes()[:-20])
    shutil.rmtree(plain / "snapshot")
    told = [record["what"] for record in findings(call, "plain", code=0)]
    assert any("its last line was cut off" in what for what in told)


def test_the_last_line_that_a_driver_is_just_writing_is_not_mentioned(call, plain):
    journal_of(plain).write_bytes(journal_of(plain).read_bytes()[:-20])
    shutil.rmtree(plain / "snapshot")
    with ExperimentLock(plain):
        told = [record["what"] for record in findings(call, "plain", code=0)]
    assert not any("cut off" in what for what in told)
    assert any("driven by process" in what for what in told)


def test_a_damaged_snapshot_is_a_warning(call, plain):
    (snapshot,) = (plain / "snapshot").iterdir()
    flip_a_bit(snapshot, 200)
    found = findings(call, "plain", code=1)
    assert (found["snapshot"]["level"], found["snapshot"]["remedy"]) == (
        "warning",
        "delete it: the journal still holds everything",
    )


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_checkpoint_is_a_warning_where_nothing_goes_on_from_it(call, plain, damage):
    file = plain / "t00000" / "checkpoint_000001" / "state.json"
    match damage:
        case "gone":
            shutil.rmtree(file.parent)
        case "cut":
            file.write_text("")
        case _:
            file.write_text("9")  # of the same size
            call("doctor", "plain")
    found = findings(call, "plain", "--deep", code=1)
    assert found["checkpoints"]["level"] == "warning"
    assert found["checkpoints"]["what"].startswith("t00000/checkpoint_000001: ")


def test_a_damaged_checkpoint_from_which_a_trial_is_to_go_on_is_an_error(call, odd):
    (odd / "t00001" / "checkpoint_000001" / "state.json").unlink()
    found = findings(call, "odd", code=1)
    assert found["checkpoints"]["level"] == "error"
    assert "go on from checkpoint_000000, of iteration 1" in found["checkpoints"]["remedy"]


def test_a_changed_declaration_is_an_error(call, plain):
    file = plain / "experiment.json"
    file.write_text(file.read_text().replace('"seed":', '"seed ":'))
    found = findings(call, "plain", code=1)
    assert found["declaration"]["level"] == "error"


def test_a_folder_that_others_may_write_to_is_a_warning(call, plain):
    plain.chmod(0o777)
    found = findings(call, "plain", code=1)
    assert "chmod go-w" in found["folder"]["what"] + found["folder"]["remedy"]


def test_a_link_in_the_folder_is_an_error(call, plain, tmp_path):
    shutil.move(plain / "t00000", tmp_path / "elsewhere")
    (plain / "t00000").symlink_to(tmp_path / "elsewhere")
    assert "put the folder itself there" in findings(call, "plain", code=1)["folder"]["remedy"]


@pytest.mark.process
def test_without_a_script_the_program_that_is_printed_continues_the_experiment(call, plain, make):
    (plain / "environment.json").unlink()
    (segment,) = (plain / "journal").glob("*.log")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[: len(lines) // 2]))
    # They tell more than half of the journal.
    for name in (
        "snapshot",
        "t00000",
        "t00001",
        "t00002",
    ):
        shutil.rmtree(plain / name)
    done = call("resume", "plain")
    assert done.stderr.endswith("interrupted; trials continue from their latest checkpoints\n")
    first, second, _, last = done.stdout.splitlines()
    assert first == "import tuner as tune"
    assert second == f"from {make.train.__module__} import train"
    assert last == f"tune.Tuner.restore({str(plain)!r}, train).fit()"
    grid = eval(last, {"tune": tune, "train": make.train})  # noqa: S307  (the line that is tested)
    assert [result.metrics["training_iteration"] for result in grid] == [4, 4, 4]


@pytest.mark.process
def test_what_could_only_be_described_stands_in_the_program(call, make, storage):
    path = make.run(
        storage,
        "functions",
        space={"lr": tune.grid_search([1.0]), "kind": "plain", "loss": abs},
        stop=lambda *_: False,
    )
    (path / "environment.json").unlink()
    done = call("resume", path, code=1)
    assert done.stdout == ""
    assert (
        done.stderr.splitlines()[-1]
        == f"tune.Tuner.restore({str(path)!r}, train, param_space=param_space, stop=stop).fit()"
    )
    assert (
        "param_space is what was given as param_space before\nstop is what was given as stop "
        "before\n" in done.stderr
    )
    assert "finished; nothing is left to run" in done.stderr


def test_a_script_that_is_known_is_run_again(call, plain):
    # What runs the tests need not be a script: a process of pytest-xdist is none.
    (plain / "environment.json").write_text(json.dumps([{"script": __file__, "arguments": []}]))
    *_, printed = call("resume", "plain", code=1).stderr.splitlines()
    assert re.fullmatch(
        rf"(cd \S+ && )?TUNER_RESUME={re.escape(str(plain))} \S+ \S+test_doctor\.py", printed
    )
    (plain / "environment.json").write_text(
        json.dumps([{"script": "/gone/train.py", "arguments": []}])
    )
    done = call("resume", "plain", code=1)
    assert "\nimport tuner as tune\n" in done.stderr
    assert "its script /gone/train.py does not exist any more" in done.stderr
    assert "give its new path as --script" in call("rerun", "plain", 1, code=2).stderr


def test_no_command_is_printed_while_a_driver_runs_the_experiment(call, plain):
    with ExperimentLock(plain):
        done = call("resume", "plain", code=1)
    assert (done.stdout, done.stderr) == (
        "",
        "running; wait for its driver, or end it, before you continue the experiment\n",
    )


def test_a_trial_is_not_run_again_where_no_script_is_known(call, plain):
    (plain / "environment.json").unlink()
    told = call("rerun", "plain", 1, code=2).stderr
    assert "no script is recorded for plain" in told
    assert "--script" in told


@pytest.mark.process
def test_a_trial_with_anothers_checkpoint_is_refused_before_the_script_starts(call, make, storage):
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": [0.25, 0.5, 1.0]},
        synch=True,
    )
    path = make.run(
        storage,
        "population",
        space={"lr": tune.grid_search([0.5, 4.0]), "kind": "plain"},
        scheduler=scheduler,
    )
    (cloned, *_) = [
        trial.trial_id for trial in tune.ResultGrid.from_directory(path).trials if trial.grafts
    ]
    told = call("rerun", "population", cloned, code=2).stderr
    assert len(told.splitlines()) == 1
    assert f"trial {cloned} cannot be trained again alone" in told
    assert "PopulationBasedTrainingReplay" in told


@pytest.fixture
def validated(plain):
    """Return an experiment of which one trial's checkpoints were validated, the last one not."""
    validate(plain, {"t00000": {0: {"acc": 0.5}, 1: FAILED, 3: None}})
    return plain


def test_an_experiment_with_validations_is_sound(call, validated):
    found = findings(call, "plain", "--deep", code=0)
    told = "checkpoints that are still to be validated: 1; a restore does so"
    assert told in [one["what"] for one in found]


def test_a_checkpoint_that_need_not_exist_is_not_damaged(call, plain):
    bodies = []
    for body in read(plain):
        if body["k"] == "result" and body["id"] == "t00001" and body["c"]["index"] == 3:
            record = {**body["c"], "name": "mine", "is_placeholder": True}
            bodies.append({**body, "c": record})
        else:
            bodies.append(body)
    rewrite(plain, bodies)
    shutil.rmtree(plain / "t00001" / "checkpoint_000003")
    findings(call, "plain", "--deep", code=0)
    assert "mine" not in call("prune", "plain", "--yes").stdout


def test_records_that_contradict_each_other_are_named(call, validated):
    bodies = [body for body in read(validated) if "v" not in body or body["c"]["index"]]
    rewrite(validated, bodies)
    found = findings(call, "plain", code=1)["records"]
    assert "validates checkpoint 0 of trial t00000, which was never reported" in found["what"]
    assert found["level"] == "warning"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("no json\n", "is damaged and left out"),
        (
            (
                '{"checkpoint": "checkpoint_000002", "status": "VALIDATED", "metrics": {}, '
                '"error": "", "training_iteration": 3, "time": 1}\n'
            ),
            "has 1 validations that the journal does not know, e.g. VALIDATED of checkpoint_000002",
        ),
    ],
)
def test_a_file_of_validations_that_contradicts_the_journal_is_named(
    call, validated, line, expected
):
    (validated / "t00000" / "validations.json").write_text(line)
    found = findings(call, "plain", code=1)["validations"]
    assert expected in found["what"]
    assert found["remedy"] == "delete it; a restore writes it anew from the journal"


def test_what_a_killed_driver_has_left_of_validations_is_a_leftover(call, validated):
    (validated / "t00000" / ".validation-3.pkl").write_bytes(b"x")
    assert ".validation-3.pkl" in findings(call, "plain", code=1)["leftovers"]["what"]
    call("prune", "plain", "--yes")
    assert not (validated / "t00000" / ".validation-3.pkl").exists()
    assert (validated / "t00000" / "checkpoint_000003").is_dir()  # it is to be validated


def test_everything_about_a_trial_has_the_statuses_of_its_checkpoints(call, validated):
    facts = json.loads(call("show", "plain", "0", "-f", "json").stdout)
    assert facts["validations"] == {
        "checkpoint_000000": "VALIDATED",
        "checkpoint_000001": "VALIDATION_FAILED",
        "checkpoint_000003": "PENDING_VALIDATION",
    }
    assert "checkpoint_000001 VALIDATION_FAILED" in call("show", "plain", "0").stdout


# Clusters.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("auto", tune.RayCluster("auto")),
        ("ray:auto", tune.RayCluster("auto")),
        ("ray:10.0.0.1:6380", tune.RayCluster("10.0.0.1:6380")),
        ("10.0.0.1:6379", tune.RayCluster("10.0.0.1:6379")),
        ("dask:tcp://10.0.0.1:8786", tune.DaskCluster("tcp://10.0.0.1:8786")),
        ("tls://10.0.0.1:1", tune.DaskCluster("tls://10.0.0.1:1")),
        ("10.0.0.1:8786", tune.DaskCluster("10.0.0.1:8786")),
    ],
)
def test_a_cluster_is_named_by_engine_and_address(call, monkeypatch, given, expected):
    asked = []

    def check_cluster(cluster, storage):
        asked.append((cluster, storage))
        return [Finding("cluster", Level.OK, "can be reached")]

    monkeypatch.setattr(maintenance, "check_cluster", check_cluster)
    assert "can be reached" in call("doctor", "--cluster", given, "--storage", "/shared").stdout
    assert asked == [(expected, "/shared")]


def test_a_cluster_that_may_be_of_either_kind_is_asked_for(call):
    told = call("doctor", "--cluster", "node:1234", code=2).stderr
    assert "write ray:node:1234 or dask:node:1234" in told
    told = call("doctor", "--cluster", "dask:/nowhere/scheduler.json", code=2).stderr
    assert "the scheduler file must exist" in told
