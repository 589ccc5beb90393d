import json

import pytest

from schedulers import Exploit, Pause, Reason, Resume, Save
from schedulers.population.replay import Change, PopulationBasedTrainingReplay
from tests.schedulers.members import Engine, Toy, View

A, B, C, D = ({"lr": rate} for rate in (0.1, 0.2, 0.3, 0.4))
POLICY = [
    ["9_x", "8_y", 2, 2, D, C],  # its outcome was given up when 0 cloned 1
    ["0_a", "1_b", 4, 4, A, B],
    ["2_c", "0_a", 9, 7, B, C],
]


def replay(lines=POLICY, **view):
    scheduler = PopulationBasedTrainingReplay(lines)
    scheduler.experiment = View(1, 1, **view)
    return scheduler


def trial_of(scheduler, config=A):
    trial = scheduler.experiment.trials["t0"] = Toy("t0", config)
    scheduler.on_trial_add(trial)
    trial.status = "RUNNING"
    return trial


def step(state, config, trial):
    return [*(state or []), config["lr"]], {"score": 0.0}


def step_with_checkpoints(state, config, trial):
    state, metrics = step(state, config, trial)
    if trial.time % 3 == 0:
        trial.keep(trial.time, state)
    return state, metrics


def test_the_chain_is_read_from_its_end():
    scheduler = replay()
    assert scheduler.config == A
    assert scheduler.changes == (Change(4, B), Change(7, C))


def test_a_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "pbt_policy_2.txt"
    path.write_text("".join(json.dumps(line) + "\n" for line in POLICY) + "\n")
    for given in (str(path), path):
        assert PopulationBasedTrainingReplay(given).changes == (Change(4, B), Change(7, C))
    assert PopulationBasedTrainingReplay([json.dumps(line) for line in POLICY]).config == A


def test_a_trial_trains_with_each_configuration_for_as_long_as_its_ancestors_did():
    engine = Engine(replay(), [A], step, ends_at=10).run()
    assert engine.trials["t0"].state == [0.1] * 4 + [0.2] * 3 + [0.3] * 3
    reason = Reason("pbt_replay.change", {"iteration": 4, "change": 1, "scheduled": 4, "of": 2})
    assert [decision for *_, decision in engine.decided][:3] == [
        Save("t0", reason),
        Exploit("t0", "t0", B, reason),
        Resume("t0", reason),
    ]


def test_where_the_training_code_saves_by_itself_the_trial_goes_on_from_there():
    engine = Engine(replay(), [A], step_with_checkpoints, ends_at=10, can_save=False).run()
    # At 4 it goes back to the checkpoint of 3, and at 7 to that of 6.
    assert engine.trials["t0"].state == [0.1] * 3 + [0.2] * 3 + [0.3] * 4
    assert engine.moments_of(Pause) == [("t0", 4), ("t0", 7)]


def test_of_several_changes_passed_by_one_result_the_last_counts():
    scheduler = replay()
    trial = trial_of(scheduler)
    _, exploit, _ = scheduler.on_trial_result(trial, {"training_iteration": 20})
    assert exploit.config == C
    assert scheduler.debug_string() == "PopulationBasedTrainingReplay: 2 of 2 changes made"


def test_a_repeated_result_gets_the_same_answer_until_the_change_is_made():
    scheduler = replay()
    trial = trial_of(scheduler)
    decisions = scheduler.on_trial_result(trial, {"training_iteration": 4})
    assert scheduler.on_trial_result(trial, {"training_iteration": 3}) == ()
    assert scheduler.on_trial_result(trial, {"training_iteration": 4}) == decisions
    trial.config = B
    assert scheduler.on_trial_result(trial, {"training_iteration": 4}) == ()
    assert scheduler.on_trial_result(trial, {"training_iteration": 5}) == ()
    assert scheduler.on_trial_result(trial, {"score": 1}) == ()


def test_a_change_that_has_come_to_nothing_is_made_up_for():
    scheduler = replay()
    trial = trial_of(scheduler)
    scheduler.on_trial_result(trial, {"training_iteration": 4})
    # It could not be saved, and went on as it was.
    _, exploit, _ = scheduler.on_trial_result(trial, {"training_iteration": 5})
    assert exploit.config == B
    assert exploit.reason.numbers["iteration"] == 5


def test_a_restart_changes_nothing():
    scheduler, twin = replay(), replay()
    trial = trial_of(scheduler)
    scheduler.on_trial_result(trial, {"training_iteration": 4})
    twin.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert twin.on_trial_result(trial, {"training_iteration": 7}) == scheduler.on_trial_result(
        trial, {"training_iteration": 7}
    )
    with pytest.raises(
        ValueError,
        match="state must come from a schedule of 1 changes, got one of 2; give the same policy",
    ):
        replay(POLICY[:1]).load_state_dict(scheduler.state_dict())


def test_a_second_trial_is_refused():
    scheduler = replay()
    trial_of(scheduler)
    with pytest.raises(
        ValueError, match="a replay must have one trial only, got t0 and t1; set num_samples to 1"
    ):
        scheduler.on_trial_add(Toy("t1", A))


def test_another_first_configuration_is_remarked_upon():
    scheduler = replay()
    trial_of(scheduler, B)
    assert scheduler.remarks == [
        (
            "the trial does not begin with the configuration that is replayed; set param_space to "
            "replay.config"
        )
    ]


@pytest.mark.parametrize(
    ("policy", "error", "complaint"),
    [
        ([], ValueError, "policy_file must hold a line such as [target, donor,"),
        (["nothing"], ValueError, "policy_file must hold lines such as [target, donor,"),
        ([["a", "b", 1, 1, A]], ValueError, "policy_file must hold lines such as [target, donor,"),
        (
            [["a", "b", 1, 1, A, 5]],
            ValueError,
            "policy_file must hold lines such as [target, donor,",
        ),
        (5, TypeError, "policy_file must be a path or a list of lines, got 5"),
        ("/nowhere/at/all.txt", FileNotFoundError, "[Errno 2] No such file"),
    ],
)
def test_a_policy_that_is_none_is_refused(policy, error, complaint):
    with pytest.raises(error) as caught:
        PopulationBasedTrainingReplay(policy)
    assert str(caught.value).startswith(complaint)
