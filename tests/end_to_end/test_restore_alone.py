"""Restores with only path and training function; missing objects are named before any write."""

import builtins
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, Scheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, OptunaSearch, Searcher
from tests.end_to_end.interruption import Script
from tests.end_to_end.scripts import killed_search
from tuner import Tuner
from tuner.errors import ExperimentExists, StorageError
from tuner.restore.resume_command import restore_line
from tuner.spec.record import read_record
from tuner.storage import strict_json


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["x"] / step})


def other(config):
    tune.report({"loss": -1.0})


class MyScheduler(Scheduler):
    """Decides nothing."""

    def on_trial_result(self, trial, result):
        return ()


class MyCallback(tune.Callback):
    """A callback without hooks."""


SPACE = {
    "x": tune.uniform(0, 1),
    "model": {"depth": tune.choice([1, (2, 3)]), "width": 8},
    "n": tune.grid_search([1, 2]),
}


@pytest.fixture
def declare(tmp_path):
    """Return a function that declares an experiment in `tmp_path`, run within this process."""

    def build(
        trainable=train, space=None, *, callbacks=None, stop=None, resume=None, **tune_config
    ):
        run_config = tune.RunConfig(
            name="exp",
            storage_path=tmp_path,
            verbose=0,
            executor="inline",
            callbacks=callbacks,
            stop=stop,
        )
        settings = tune.TuneConfig(**{"metric": "loss", "mode": "min", "seed": 3, **tune_config})
        return Tuner(
            trainable,
            param_space=SPACE if space is None else space,
            tune_config=settings,
            run_config=run_config,
            resume=resume,
        )

    return build


@pytest.fixture
def path(tmp_path):
    return tmp_path / "exp"


def contents(directory):
    """Return every file with its content and time of change."""
    files = (file for file in sorted(directory.rglob("*")) if file.is_file())
    return [(file, file.read_bytes(), file.stat().st_mtime_ns) for file in files]


def losses(grid):
    return [result.metrics["loss"] for result in grid]


# A path and the training function.


SEARCHERS = {
    "none": lambda: None,
    "random": lambda: BasicVariantGenerator(
        points_to_evaluate=[{"x": 0.25, "model/depth": (2, 3)}], random_state=5
    ),
}


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_more_samples_are_those_that_an_experiment_of_that_size_would_have_had(
    declare, path, tmp_path, searcher
):
    whole = declare(
        num_samples=4,
        search_alg=SEARCHERS[searcher](),
        scheduler=ASHAScheduler(max_t=9),
        stop={"loss": "<= 0.001"},
    ).fit()
    shutil.rmtree(path)
    first = declare(
        num_samples=2,
        search_alg=SEARCHERS[searcher](),
        scheduler=ASHAScheduler(max_t=9),
        stop={"loss": "<= 0.001"},
    ).fit()
    assert len(first) == 4
    grid = Tuner.restore(path, train, num_samples=4).fit()
    assert [(result.trial_id, result.config) for result in grid] == [
        (result.trial_id, result.config) for result in whole
    ]
    assert losses(grid) == losses(whole)
    assert type(grid[0].config["model"]["depth"]) in (int, tuple)


def test_a_nested_searcher_is_constructed_anew(declare, path):
    limited = ConcurrencyLimiter(OptunaSearch(points_to_evaluate=[{"x": 0.5}]), 1, batch=True)
    space = {"x": tune.uniform(0, 1)}
    first = declare(space=space, num_samples=2, search_alg=limited).fit()
    grid = Tuner.restore(path, train, num_samples=4).fit()
    assert losses(grid)[:2] == losses(first)
    assert (len(grid), grid[0].config["x"]) == (4, 0.5)


def test_an_experiment_that_was_killed_ends_as_if_it_had_not_been(tmp_path):
    whole = killed_search.declare(tmp_path / "whole", executor="inline").fit()
    with contextlib.closing(
        Script(killed_search.__file__, tmp_path / "killed", directory=tmp_path)
    ) as script:
        assert script.end() == -signal.SIGKILL, script.errors
    restored = Tuner.restore(tmp_path / "killed" / "exp", killed_search.train, callbacks=[]).fit()
    columns = ["trial_id", "training_iteration", "loss", "status"]
    expected, found = (grid.get_dataframe()[columns].to_csv() for grid in (whole, restored))
    assert found == expected


# What has to be given again.


def test_everything_that_is_missing_is_named_at_once_before_anything_is_touched(declare, path):
    space = {"x": tune.uniform(0, 1), "model": {"loss": abs, "act": tune.choice([1, max])}}
    declare(
        space=space,
        scheduler=MyScheduler(),
        callbacks=[MyCallback()],
        stop=lambda trial_id, result: False,
        search_alg=None,
    ).fit()
    before = contents(path)
    with pytest.raises(ValueError, match="has to be given again") as refusal:
        Tuner.restore(path, train)
    text = str(refusal.value)
    for place in (
        "param_space['model']['loss'] (builtins.abs)",
        "param_space['model']['act'].categories[1] (builtins.max)",
        f"tune_config.scheduler ({__name__}.MyScheduler)",
        f"run_config.callbacks[0] ({__name__}.MyCallback)",
        "run_config.stop (",
    ):
        assert place in text
    assert "pass param_space= and scheduler= and stop= and callbacks= to Tuner.restore" in text
    assert contents(path) == before
    grid = Tuner.restore(
        path,
        train,
        param_space=space,
        scheduler=MyScheduler(),
        stop=lambda trial_id, result: False,
        callbacks=[],
        num_samples=2,
    ).fit()
    assert len(grid) == 2


def test_the_line_that_is_printed_works_when_it_is_pasted(declare, path):
    param_space = {"x": tune.uniform(0, 1), "act": abs}
    callbacks = [MyCallback()]
    tuner = declare(space=param_space, callbacks=callbacks, scheduler=ASHAScheduler(max_t=9))
    tuner.fit()
    line = restore_line(path, tuner._spec)
    assert (
        line == f"Tuner.restore({str(path)!r}, train, param_space=param_space, "
        "callbacks=callbacks).fit()"
    )
    names = {"Tuner": Tuner, "train": train, "param_space": param_space, "callbacks": callbacks}
    assert len(eval(line, names)) == 1  # noqa: S307  (our own line)


def test_the_line_of_an_ordinary_experiment_asks_for_nothing_but_the_trainable(declare, path):
    tuner = declare(lambda config: {"loss": config["x"]}, stop={"training_iteration": 2})
    tuner.fit()
    assert restore_line(path, tuner._spec) == f"Tuner.restore({str(path)!r}, trainable).fit()"


def test_a_failure_of_the_engine_names_the_line(declare, path):
    class Broken(Searcher):
        def suggest(self, trial_id):
            raise RuntimeError("no idea")

    with pytest.raises(RuntimeError) as defect:
        declare(search_alg=Broken()).fit()
    assert f"Tuner.restore({str(path)!r}, train, search_alg=search_alg).fit()" in "".join(
        defect.value.__notes__
    )


# Nothing in the directory is ever run.


def test_a_planted_declaration_runs_nothing_and_is_refused(declare, path, monkeypatch):
    declare(num_samples=1).fit()
    file = path / "experiment.json"
    declaration = json.loads(file.read_text())
    declaration["tune_config"]["scheduler"] = {"@": "os.system", "command": f"touch {path}/canary"}
    declaration["tune_config"]["search_alg"] = {"@": "antigravity.Searcher"}
    declaration["run_config"]["stop"] = {"@": "FunctionStopper", "function": "os.system"}
    declaration["param_space"]["x"] = {"@": "SampleFrom", "function": "antigravity.fly"}
    file.write_text(
        strict_json.dumps(
            strict_json.signed({key: declaration[key] for key in declaration if key != "sha256"})
        )
    )
    imported = []
    real_import = builtins.__import__
    monkeypatch.setattr(
        builtins,
        "__import__",
        lambda name, *rest: (imported.append(name), real_import(name, *rest))[1],
    )
    with pytest.raises(
        ValueError, match=r"os\.system, which is no class of this release"
    ) as refusal:
        Tuner.restore(path, train)
    assert all(
        name in str(refusal.value)
        for name in ("antigravity.Searcher", "FunctionStopper", "SampleFrom")
    )
    assert "antigravity" not in imported
    assert "antigravity" not in sys.modules
    assert not (path / "canary").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"format_version": "1; import os"}',
        '{"format_version": 1}',
        (
            '{"format_version": 1, "seed": 1, "trainable": {}, "settings": {}, "param_space": {}, '
            '"tune_config": {}, "run_config": {}}'
        ),
        "[" * 100_000,
    ],
    ids=str.__len__,
)
def test_a_declaration_of_another_shape_is_a_storage_error(declare, path, text):
    declare(num_samples=1).fit()
    (path / "experiment.json").write_text(text)
    assert not Tuner.can_restore(path)
    with pytest.raises(StorageError, match=r"experiment\.json"):
        Tuner.restore(path, train)


def test_a_later_format_is_refused(declare, path):
    declare(num_samples=1).fit()
    file = path / "experiment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 99}))
    assert not Tuner.can_restore(path)
    with pytest.raises(StorageError, match="update tuner-hpo"):
        Tuner.restore(path, train)


# Is there something to restore?


def test_a_damaged_journal_cannot_be_restored_and_a_torn_one_can(declare, path):
    declare(num_samples=1).fit()
    (segment,) = (path / "journal").iterdir()
    whole = segment.read_bytes()
    assert Tuner.can_restore(path)
    segment.write_bytes(whole[:-10])
    assert Tuner.can_restore(path)
    middle = len(whole) // 2
    segment.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert not Tuner.can_restore(path)
    with pytest.raises(ExperimentExists):
        declare(num_samples=1).fit()


def test_asking_whether_it_can_be_restored_and_reading_the_results_changes_nothing(
    declare, path, monkeypatch
):
    fitted = declare(num_samples=2).fit()
    before = contents(path)
    real_open = os.open

    def read_only(file, flags, *rest, **options):
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), f"{file} is opened to be written"
        return real_open(file, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert Tuner.can_restore(str(path))
    grid = Tuner.restore(path, train).get_results()
    assert losses(grid) == losses(fitted)
    assert contents(path) == before


def test_restoring_a_finished_experiment_returns_at_once_with_a_message(declare, path, capsys):
    fitted = declare(num_samples=1).fit()
    calls = []
    grid = Tuner.restore(path, calls.append, verbose=1, allow_other_trainable=True).fit()
    assert losses(grid) == losses(fitted)
    assert not calls
    assert "nothing was left to run" in capsys.readouterr().out


# Starting and continuing by one and the same line.


def test_auto_starts_an_experiment_and_then_continues_it(declare, path):
    first = declare(num_samples=1, resume="auto").fit()
    assert len(first) == 2
    again = declare(num_samples=2, resume="auto", seed=99)
    assert losses(again.get_results()) == losses(first)
    grid = again.fit()
    assert losses(grid)[:2] == losses(first)
    assert len(grid) == 4
    assert read_record(path).seed == 3


def test_auto_needs_a_name_that_stays():
    with pytest.raises(ValueError, match="needs a fixed name, got none"):
        Tuner(train, resume="auto")
    with pytest.raises(ValueError, match="resume must be 'auto' or None, got 'always'"):
        Tuner(train, run_config=tune.RunConfig(name="exp"), resume="always")


def test_auto_never_starts_over_in_a_directory_that_cannot_be_read(declare, path):
    declare(num_samples=1).fit()
    (path / "experiment.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        declare(num_samples=1, resume="auto")


def test_a_taken_name_names_both_remedies(declare):
    declare(num_samples=1).fit()
    with pytest.raises(
        ExperimentExists, match=r'Tuner\.restore\(.*, trainable\) or Tuner\(\.\.\., resume="auto"\)'
    ):
        declare(num_samples=1).fit()


# Moved and copied directories.


def test_a_copy_goes_on_by_itself(declare, path, tmp_path):
    first = declare(num_samples=1).fit()
    copy = tmp_path / "a copy, elsewhere"
    shutil.copytree(path, copy)
    longer = Tuner.restore(copy, train, num_samples=3).fit()
    assert (len(longer), Path(longer[0].path).parent) == (6, copy)
    assert losses(Tuner.restore(path, train).get_results()) == losses(first)
    assert losses(Tuner.restore(path, train, num_samples=3).fit()) == losses(longer)


# Differences in the declaration are logged and recorded.


def test_a_trainable_of_another_name_is_refused_unless_it_is_meant(declare, path):
    declare(num_samples=1).fit()
    before = contents(path)
    with pytest.raises(
        ValueError, match=r"trainable must be 'train', .* got 'other'; .*allow_other_trainable=True"
    ):
        Tuner.restore(path, other)
    with pytest.raises(ValueError, match="trainable must be 'train'"):
        Tuner(
            other,
            run_config=tune.RunConfig(name=path.name, storage_path=path.parent),
            resume="auto",
        )
    assert contents(path) == before
    assert (
        Tuner.restore(path, other, allow_other_trainable=True, num_samples=2).fit().num_errors == 0
    )
    with pytest.raises(ValueError, match="trainable must be 'other'"):
        Tuner.restore(path, train)


def test_each_difference_is_logged_and_recorded_beside_the_original(declare, path, caplog):
    declare(num_samples=1).fit()
    began = read_record(path)
    with caplog.at_level(logging.WARNING, logger="tuner"):
        Tuner.restore(
            path,
            other,
            num_samples=2,
            failure_config=tune.FailureConfig(max_failures=2),
            allow_other_trainable=True,
        ).fit()
    logged = [record.getMessage().split(": ", 1)[1] for record in caplog.records]
    assert "trainable: train -> other" in logged
    assert any(line.startswith("trainable's source (SHA-256): ") for line in logged)
    assert "tune_config.num_samples: 1 -> 2" in logged
    assert "run_config.failure_config.max_failures: 0 -> 2" in logged
    record = read_record(path)
    assert record.parts["tune_config"]["num_samples"] == 2
    assert (record.settings, record.seed, record.text["created"]) == (
        began.settings,
        began.seed,
        began.text["created"],
    )


def test_without_differences_nothing_is_logged(declare, path, caplog):
    declare(num_samples=1, scheduler=ASHAScheduler(max_t=9)).fit()
    with caplog.at_level(logging.WARNING, logger="tuner"):
        Tuner.restore(path, train).fit()
        Tuner.restore(path, train).fit()
    assert not caplog.records


def test_the_seed_stays_with_a_message(declare, path, caplog):
    first = declare(num_samples=1).fit()
    config = tune.TuneConfig(metric="loss", mode="min", num_samples=1, seed=8)
    with caplog.at_level(logging.WARNING, logger="tuner"):
        grid = Tuner.restore(path, train, tune_config=config).fit()
    assert "tune_config.seed: 8 is not taken, the experiment keeps 3" in caplog.text
    assert losses(grid) == losses(first)
