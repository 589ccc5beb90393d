"""Scripts of the guides to schedulers that pause and clone trials, with only imports changed."""

import json

import pytest

# Population based training.


def test_a_population_of_functions_discovers_a_schedule_that_can_be_replayed(run_script):
    run_script("pbt_function").must_print(
        [
            "members: 4 True",  # Members that take turns are all trained to the end.
            "best checkpoint: True",  # Checkpoints are ranked by the scheduler's metric.
            # A replay takes no step twice where every change has a checkpoint, and leads to the
            # very same weights.
            "steps of the replay: True",
            "replayed: True True",
        ]
    )


def test_the_policy_of_the_best_lists_when_hyperparameters_changed_and_to_what(run_script):
    ran = run_script("pbt_function")
    best = next(line.split()[1] for line in ran.lines if line.startswith("best: "))
    steps = [
        json.loads(line)
        for line in (ran.storage / "pbt" / f"pbt_policy_{best}.txt").read_text().splitlines()
    ]
    assert [step[3] for step in steps] == json.loads(
        next(line.removeprefix("changes: ") for line in ran.lines if line.startswith("changes"))
    )
    assert steps[0][4]["lr"] < 0.01
    assert all(0.2 <= step[5]["lr"] <= 1 for step in steps)
    assert json.loads((ran.trial("replay") / "params.json").read_text()) == steps[-1][5]


def test_every_policy_is_made_of_lines_of_the_global_log(run_script):
    folder = run_script("pbt_function").storage / "pbt"
    written = (folder / "pbt_global.txt").read_text().splitlines()
    assert len(set(written)) == len(written)
    policies = list(folder.glob("pbt_policy_*.txt"))
    assert policies
    assert {line for policy in policies for line in policy.read_text().splitlines()} <= set(written)


def test_a_population_of_classes_can_be_reset(run_script):
    run_script("pbt_class").must_print(
        [
            "members: 4 True",
            "has clones: True",
            "attempts: True",  # A clone continues in a process of its own or in a reset one,
            "learning rates: True",  # with the configuration that is written down.
        ]
    )


# HyperBand.


@pytest.mark.parametrize("kind", ["class", "function"])
def test_a_band_is_halved_as_planned(run_script, kind):
    lines = run_script("hyperband").lines
    # 9, 3, 1 and 5, 1 and 3 trials after 1, 3 and 9 iterations.
    assert f"{kind} [(1, 6), (3, 6), (9, 5)]" in lines
    assert f"{kind} best trained to the end: True" in lines
    assert f"{kind} attempts: True" in lines


@pytest.mark.parametrize("kind", ["class", "function"])
def test_a_trial_that_has_waited_goes_on_where_it_was(run_script, rows_of, kind):
    ran = run_script("hyperband")
    for number in range(17):
        rows = rows_of(ran.trial(kind, number))
        assert [row["training_iteration"] for row in rows] == list(range(1, len(rows) + 1))
