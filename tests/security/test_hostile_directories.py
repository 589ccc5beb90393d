"""Untrusted directories: reading them ends soon, with results or with a `TunerError`."""

import itertools
import json
import os
import random
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tuner as tune
from tests.analysis.validated import FAILED, rewrite, validate
from tests.tiers import examples
from tuner.cli import main
from tuner.errors import CheckpointError, StorageError, TunerError
from tuner.journal import segments
from tuner.journal.reader import read
from tuner.maintenance.doctor import check
from tuner.storage import strict_json
from tuner.storage.manifest import FileEntry, Manifest, read_manifest

pytestmark = pytest.mark.property
SPACE = {"steps": tune.grid_search([2, 3]), "data": np.arange(3.0)}
ABSURD = [
    "[]",
    "{}",
    "null",
    "-1",
    "1e999",
    "1" + "0" * 400,
    "9" * 5000,
    '"' + "x" * 5000 + '"',
    "[" * 100_000 + "]" * 100_000,
]


def train(config):
    for step in range(config["steps"]):
        with tempfile.TemporaryDirectory() as files:
            Path(files, "step").write_text(str(step))
            tune.report(
                {"loss": 1.0 / (step + 1)}, checkpoint=tune.Checkpoint.from_directory(files)
            )
    if config["steps"] == 2:
        raise RuntimeError("two steps are too few")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the directory of an experiment with every kind of file."""
    storage = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
        tune.Tuner(
            train,
            param_space=SPACE,
            tune_config=tune.TuneConfig(metric="loss", mode="min", seed=1),
            run_config=tune.RunConfig(
                name="exp", storage_path=storage, verbose=0, executor="inline"
            ),
        ).fit()
    return storage / "exp"


@pytest.fixture
def experiment(made, tmp_path):
    shutil.copytree(made, tmp_path / "exp")
    return tmp_path / "exp"


def as_fifo(path):
    os.mkfifo(path)


def as_endless_file(path):
    path.symlink_to("/dev/zero")


def as_directory(path):
    path.mkdir()


def as_sparse_file(path):
    with path.open("wb") as file:
        file.truncate(1 << 42)


def read_in_every_way(experiment):
    """Read results and report, and check the directory; only the engine's own errors are caught."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        errors = [
            finding for finding in check(experiment, is_deep=True) if finding.level == "error"
        ]
        try:
            grid = tune.ResultGrid.from_directory(experiment)
            for result in grid:
                len(result.metrics_dataframe)
        except (TunerError, FileNotFoundError):
            pass
        try:
            tune.Tuner.restore(experiment, train, param_space=SPACE).get_results()
        except (TunerError, ValueError) as refusal:
            errors.append(refusal)
    return errors


FILES = [
    "experiment.json",
    "lock",
    "params.json",
    "result.json",
    "progress.csv",
    "error.txt",
    "validations.json",
    "stdout",
    "stderr",
]


@pytest.mark.parametrize("place", [as_fifo, as_endless_file, as_directory, as_sparse_file])
@pytest.mark.parametrize("name", [*FILES, "segment", "snapshot", "manifest", "object"])
def test_reading_neither_blocks_on_nor_follows_what_stands_in_place_of_a_file(
    name, place, experiment
):
    patterns = {
        "segment": "journal/*.log",
        "snapshot": "snapshot/*.json",
        "manifest": "*/checkpoint_*/.manifest.json",
        "object": "objects/*",
    }
    found = (
        sorted(experiment.glob(patterns[name]))
        if name in patterns
        else sorted({*experiment.glob(name), *experiment.glob(f"*/{name}")})
    )
    for path in found or [experiment / name]:
        path.unlink(missing_ok=True)
        place(path)
    read_in_every_way(experiment)


@pytest.mark.parametrize("place", [as_fifo, as_endless_file, as_directory, as_sparse_file])
@pytest.mark.parametrize(
    "name", ["params.json", "result.json", "progress.csv", "error.txt", "validations.json"]
)
def test_trials_of_which_only_their_files_are_left_are_read_as_safely(name, place, experiment):
    shutil.rmtree(experiment / "journal")
    (experiment / "experiment.json").unlink()
    for path in experiment.glob("t0000?"):
        (path / name).unlink(missing_ok=True)
        place(path / name)
        with suppress(StorageError, FileNotFoundError):
            tune.Result.from_path(path)
    read_in_every_way(experiment)


@pytest.mark.parametrize("place", [as_fifo, as_endless_file, as_directory])
@pytest.mark.parametrize("command", ["ls", "show", "best", "explain", "tail", "doctor", "prune"])
def test_commands_neither_wait_nor_show_a_traceback(command, place, experiment):
    for path in [
        *experiment.glob("t0000?/stdout"),
        *experiment.glob("t0000?/stderr"),
        *experiment.glob("t0000?/result.json"),
        experiment / "lock",
    ]:
        path.unlink(missing_ok=True)
        place(path)
    arguments = (
        [str(experiment.parent)]
        if command == "ls"
        else [str(experiment), *(["0"] if command in ("explain", "tail") else [])]
    )
    done = CliRunner().invoke(main, [command, *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1, 3), done.output


def rewritten(experiment, number, change):
    """Change a record, and give it and all that follow the checksums that they would have."""
    (path,) = (experiment / "journal").glob("*.log")
    bodies = [line[9:] for line in path.read_bytes().splitlines()]
    bodies[number] = change(bodies[number])
    path.write_bytes(b"".join(segments.line_of(body) for body in bodies))


def with_value(key, text):
    """Return a function that puts a text in the place of one value of a JSON object."""

    def change(body):
        parts = [
            f"{json.dumps(name)}:{text if name == key else json.dumps(value)}"
            for name, value in json.loads(body).items()
        ]
        return f"{{{','.join(parts)}}}".encode()

    return change


def some_of(keys, values, *, seed):
    """Return pairs of a key and a value, all of them if properties are tried in full."""
    pairs = list(itertools.product(keys, values))
    return random.Random(seed).sample(pairs, examples(len(pairs)))  # noqa: S311  (not for secrets)


@pytest.mark.parametrize(
    "kind", ["segment", "suggested", "started", "result", "turn", "exited", "close"]
)
def test_absurd_values_in_records_whose_checksums_are_right_are_errors_of_ours(kind, experiment):
    shutil.rmtree(experiment / "snapshot")
    (path,) = (experiment / "journal").glob("*.log")
    text = path.read_bytes()
    bodies = [json.loads(line[9:]) for line in text.splitlines()]
    number = next(number for number, body in enumerate(bodies) if body["k"] == kind)
    for key, absurd in some_of(bodies[number], ABSURD, seed=kind):
        path.write_bytes(text)
        rewritten(experiment, number, with_value(key, absurd))
        read_in_every_way(experiment)


@pytest.mark.parametrize("kind", ["result", "validation_ended", "checkpoint_committed"])
def test_absurd_values_in_records_of_validations_are_errors_of_ours(kind, experiment):
    validate(experiment, {"t00001": {0: {"acc": 0.5}, 1: FAILED, 2: None}})
    bodies = list(read(experiment))
    stored = next(body for body in bodies if body["k"] == "result" and "v" in body)
    place = bodies.index(stored)
    committed = {name: stored[name] for name in ("t", "id", "a", "c")}
    bodies[place] = {**stored, "c": None, "upload": 0}
    bodies.insert(place + 1, {"t": stored["t"], "k": "checkpoint_committed", **committed})
    rewrite(experiment, bodies)
    (path,) = (experiment / "journal").glob("*.log")
    text = path.read_bytes()
    lines = [json.loads(line[9:]) for line in text.splitlines()]
    number = next(
        number
        for number, body in enumerate(lines)
        if body["k"] == kind and (kind != "result" or "v" in body)
    )
    assert not read_in_every_way(experiment)[1:]
    for key, absurd in some_of(lines[number], ABSURD, seed=kind):
        path.write_bytes(text)
        rewritten(experiment, number, with_value(key, absurd))
        read_in_every_way(experiment)


@pytest.mark.parametrize("key", [*Manifest.__slots__, "format", "other"])
def test_absurd_values_in_the_manifest_of_a_group_are_errors_of_ours(key, experiment):
    path = experiment / "t00001" / "checkpoint_000000" / ".manifest.json"
    body = strict_json.unseal(path.read_bytes())
    files = {name: {**entry, "rank": 0} for name, entry in body["files"].items()}
    body |= {"format": 2, "world_size": 2, "files": files}
    for absurd in (None, [], {}, -1, "x", [[]], {"x": None}, {"x": {"size_bytes": [], "rank": {}}}):
        path.write_text(strict_json.seal({**body, key: absurd}))
        read_in_every_way(experiment)
        with suppress(CheckpointError):
            manifest = read_manifest(path.parent)
            assert isinstance(manifest.metrics, dict)
            assert all(isinstance(entry, FileEntry) for entry in manifest.files.values())


@pytest.mark.parametrize("absurd", ABSURD)
@pytest.mark.parametrize(
    "key",
    [
        "format_version",
        "settings",
        "trainable",
        "seed",
        "param_space",
        "tune_config",
        "run_config",
        "metric",
    ],
)
def test_absurd_values_in_the_declaration_are_errors_of_ours(key, absurd, experiment):
    path = experiment / "experiment.json"
    path.write_bytes(with_value(key, absurd)(path.read_bytes()))
    assert read_in_every_way(experiment)


def test_an_impossible_history_is_reported_as_such(experiment):
    shutil.rmtree(experiment / "snapshot")
    # The second trial is suggested under the name of the first.
    rewritten(experiment, 2, with_value("id", '"t00000"'))
    with pytest.warns(RuntimeWarning, match="tells what cannot have happened"):
        tune.ResultGrid.from_directory(experiment)


def test_a_restore_names_what_is_wrong_without_blocking(experiment):
    (path,) = (experiment / "journal").glob("*.log")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="it is a FIFO, not a regular file"):
        tune.Tuner.restore(experiment, train, param_space=SPACE).fit()


@pytest.mark.parametrize(
    "name", ["params.json", "result.json", "progress.csv", "events.*", "error.txt"]
)
def test_a_restore_does_not_wait_for_a_fifo_in_place_of_a_log_file(name, experiment):
    for path in experiment.glob(f"*/{name}"):
        path.unlink()
        os.mkfifo(path)
    grid = tune.Tuner.restore(experiment, train, param_space=SPACE, restart_errored=True).fit()
    assert [str(result.status) for result in grid] == ["ERROR", "TERMINATED"]
    assert all(path.is_file() for path in experiment.glob(f"*/{name}") if name != "error.txt")
