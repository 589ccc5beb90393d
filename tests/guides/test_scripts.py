"""Scripts as Ray Tune users write them, with only imports changed, do what the guides promise."""

import csv
import json
import math

import pytest

NAMES = [f"checkpoint_{index:06d}" for index in range(12)]


@pytest.fixture
def function(run_script):
    return run_script("function_checkpoints")


@pytest.fixture
def torch_run(run_script):
    return run_script("fault_tolerance_torch")


def epochs_printed(trial):
    return [
        int(line.split()[1])
        for line in (trial / "stdout").read_text().splitlines()
        if line.startswith("epoch ")
    ]


# Function API.


def test_checkpoints_are_counted_not_named_after_the_epoch(function, checkpoints_in):
    assert checkpoints_in(function.trial("function", 0)) == NAMES
    assert checkpoints_in(function.trial("function", 1)) == NAMES[:4]


def test_reports_without_a_checkpoint_are_rows_like_any_other(function, rows_of):
    rows = rows_of(function.trial("function", 1))
    assert [row["epoch"] for row in rows] == list(range(1, 13))
    assert [row["checkpoint_dir_name"] for row in rows if row["epoch"] % 3] == [None] * 8
    assert [row["checkpoint_dir_name"] for row in rows if not row["epoch"] % 3] == NAMES[:4]


@pytest.mark.parametrize("number", [2, 3])
def test_a_retry_goes_on_behind_its_latest_checkpoint_and_no_epoch_counts_twice(
    function, rows_of, number
):
    rows = rows_of(function.trial("function", number))
    assert [row["epoch"] for row in rows] == list(range(1, 13))
    assert [row["training_iteration"] for row in rows] == list(range(1, 13))
    assert rows[-1]["total"] == sum(range(1, 13))


def test_the_first_start_has_no_checkpoint_and_the_retry_the_latest(function):
    assert (function.trial("function", 0) / "stdout").read_text() == "starts with epoch 1\n"
    assert (
        function.trial("function", 2) / "stdout"
    ).read_text() == "starts with epoch 1\nstarts with epoch 6\n"
    assert (
        function.trial("function", 3) / "stdout"
    ).read_text() == "starts with epoch 1\nstarts with epoch 4\n"


def test_the_count_of_checkpoints_continues_over_a_retry(function, checkpoints_in):
    assert checkpoints_in(function.trial("function", 2)) == NAMES
    assert checkpoints_in(function.trial("function", 3)) == NAMES[:4]


def test_the_retry_trains_in_a_new_process(function, rows_of):
    rows = rows_of(function.trial("function", 2))
    assert len({row["pid"] for row in rows[:5]}) == len({row["pid"] for row in rows[5:]}) == 1
    assert rows[0]["pid"] != rows[-1]["pid"]


def test_the_content_of_a_checkpoint_is_what_was_written(function):
    state = json.loads((function.trial("function", 1) / NAMES[1] / "state.json").read_text())
    assert state == {"epoch": 6, "total": 21}


# Torch; a block of the guide to training shows a failure in the tier ``guides``.


@pytest.mark.heavy
def test_a_failure_at_epoch_1_trains_epochs_0_and_1_and_then_2_to_4(torch_run):
    assert epochs_printed(torch_run.trial("torch", 0)) == [0, 1, 2, 3, 4]
    assert (
        "RuntimeError: a failure, to show how it is survived"
        in (torch_run.trial("torch", 0) / "error.txt").read_text()
    )
    assert epochs_printed(torch_run.trial("torch", 1)) == [0, 1, 2, 3, 4]
    assert not (torch_run.trial("torch", 1) / "error.txt").exists()


@pytest.mark.heavy
def test_model_optimizer_and_momentum_survive_so_that_a_failure_changes_nothing(torch_run):
    failed, undisturbed = torch_run.lines[-2:]
    assert failed == undisturbed
    assert failed.startswith("4 ")
    assert failed.endswith(" 2")


@pytest.mark.heavy
def test_the_files_of_a_checkpoint_are_those_that_torch_has_saved(torch_run, checkpoints_in):
    trial = torch_run.trial("torch", 0)
    assert checkpoints_in(trial) == NAMES[3:5]
    files = sorted(
        path.name for path in (trial / NAMES[4]).iterdir() if not path.name.startswith(".")
    )
    assert files == ["checkpoint.pth", "extra_state.pt", "model.pt", "optimizer.pt"]


# Class API.


@pytest.fixture
def classes(run_script):
    return run_script("class_api")


def test_checkpoints_of_classes(classes):
    classes.must_print(
        [
            "default 2 [2] None",  # A class is saved at its end unless it is told otherwise,
            "rare 2 [2] None",  # also with a frequency that never comes;
            "no_end 2 [] None",  # checkpoint_at_end=False leaves none.
            # Multiples of the frequency and the end are saved, over a retry too, and once where
            # they coincide.
            "periodic 7 [4, 7] None",
            "coincident 4 [2, 4] None",
            "dictionary 4 [2, 4] None",  # A dictionary is a checkpoint.
        ]
    )


def test_steps_that_return_nothing_are_results(classes, rows_of):
    rows = rows_of(classes.trial("periodic"))
    assert [row["training_iteration"] for row in rows] == list(range(1, 8))
    assert {"trial_id", "time_total_s", "pid", "date", "done"} <= rows[0].keys()


def test_a_checkpoint_is_loaded_from_another_directory_than_it_was_saved_in(classes):
    printed = (classes.trial("periodic") / "stdout").read_text().splitlines()
    saved = [line.removeprefix("saved in ") for line in printed if line.startswith("saved")]
    loaded = [line.removeprefix("loaded from ") for line in printed if line.startswith("loaded")]
    assert loaded == [str(classes.trial("periodic") / "checkpoint_000000")]
    assert loaded[0] not in saved
    assert (classes.trial("periodic") / "checkpoint_000001" / "total.txt").read_text() == "17"


def test_a_dictionary_comes_back_as_a_dictionary(classes, rows_of):
    rows = rows_of(classes.trial("dictionary"))
    assert [(row["steps"], row["restored"]) for row in rows] == [
        (1, False),
        (2, False),
        (3, True),
        (4, True),
    ]


# Checkpoints on demand.


@pytest.fixture
def manual(run_script):
    return run_script("manual_checkpoints")


def test_a_class_asks_for_a_checkpoint_in_its_result(manual):
    assert "preempted 9 [3, 5]" in manual.lines
    assert (manual.trial("preempted") / "checkpoint_000000" / "iteration.txt").read_text() == "3"


def test_a_callback_asks_for_checkpoints_of_all_trials_and_knows_them_over_a_retry(manual):
    assert manual.lines.count("by_steps 9 [2, 5, 8]") == 2
    assert "trials seen: 2" in manual.lines
    assert (manual.trial("by_steps", 1) / "error.txt").exists()


# Parameters, resources, names.


def test_parameters_resources_and_names_reach_the_trials(run_script):
    run_script("parameters_and_resources").must_print(
        [
            "parameters 999005 1.0 2",
            "resources 999005 2.0 2",
            "resources_by_config 999005 3.0 2",
            "bundles 999005 3.0 2",
            "class 999000 3.0 2",
            "registered 999005 1.0 2",
        ]
    )


# Search and analysis.


def test_optuna_and_asha_find_the_minimum_and_save_iterations(run_script, rows_of):
    ran = run_script("optuna_asha")
    iterations = json.loads(ran.lines[-1].removeprefix("iterations: "))
    assert len(iterations) == 16
    assert set(iterations) <= {1, 3, 9}
    assert sum(iterations) < 16 * 9
    assert max(iterations) == 9
    best = min(rows_of(ran.trial("optuna", number))[-1]["loss"] for number in range(16))
    assert math.isclose(float(ran.lines[-2].split()[-1]), best)


def test_results_can_be_analysed(run_script):
    run_script("analysis").must_print(
        [
            "best lr: 0.3",
            "latest epoch: 5 5",
            "best epochs: [2, 3]",
            "best checkpoint: 3",
            "last: [0.1, 0.2, 0.3]",
            "peak: [0.3, 0.6, 0.9] [3, 3, 3]",
            "columns: True [0.1, 0.2, 0.3]",
            "rows: 5 [1, 2, 3, 4, 5]",
            "csv: [1, 2, 3, 4, 5]",
            "json: [1, 2, 3, 4, 5]",
            "errors: [] 0 3",
        ]
    )


def test_the_best_checkpoints_and_the_latest_stay(run_script, checkpoints_in):
    trial = run_script("analysis").trial("analysis", 2)
    assert checkpoints_in(trial) == [NAMES[1], NAMES[2], NAMES[4]]


def test_tables_agree_with_pandas_free_readers(run_script, rows_of):
    trial = run_script("analysis").trial("analysis", 0)
    with (trial / "progress.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in table] == [row["accuracy"] for row in rows_of(trial)]
