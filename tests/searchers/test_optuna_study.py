"""A search writes its study to the user's storage, and continues an existing one."""

import json
import math
import subprocess
import sys

import pytest

from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.space import choice, uniform

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState

SPACE = {"lr": uniform(0, 1), "model": {"act": choice(["relu", "tanh"])}}

LOOK = """
import json, sys
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
backend = optuna.storages.journal.JournalFileBackend
storage = sys.argv[1]
if "://" not in storage:
    storage = optuna.storages.JournalStorage(backend(storage))
print(json.dumps([
    [t.state.name, t.values, t.intermediate_values, t.params, t.user_attrs, t.constraints]
    for t in optuna.load_study(study_name="mine", storage=storage).trials
]))
"""


def prepared(experiment="one", seed=0, metric="loss", mode="min", **arguments):
    searcher = OptunaSearch(metric=metric, mode=mode, **arguments)
    assert searcher.set_search_properties(None, None, SPACE, seed=seed, experiment=experiment)
    return searcher


def row(loss, iteration):
    return {"loss": loss, "training_iteration": iteration, "memory": loss - 1.0}


def play(searcher, events):
    """Call a searcher with recorded events, as a replay of the journal does."""
    configs = []
    for name, *event in events:
        match event:
            case []:
                configs.append(searcher.suggest(name))
            case ["pause", result]:
                searcher.on_trial_pause(name, result)
            case [result]:
                searcher.on_trial_result(name, result)
            case [result, ending]:
                searcher.on_trial_complete(name, result, **ending)
    return configs


EVENTS = [
    ("a",),
    ("b",),
    ("a", row(3.0, 1)),
    ("b", row(math.nan, 1)),
    ("a", "pause", row(3.0, 1)),
    ("c",),
    ("b", row(2.0, 2), {"stopped": True}),
    ("d",),
    ("c", None, {"error": True}),
    ("a", row(0.5, 2)),
    ("a", row(0.5, 2), {}),
    ("e",),
    ("d", row(1.0, 1)),
    ("d", "pause", row(1.0, 1)),
]


@pytest.fixture(params=["sqlite", "journal"])
def place(request, tmp_path):
    """A storage and its address for another process."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'study.db'}"
        return (lambda: url), url
    path = str(tmp_path / "study.log")
    return (
        lambda: optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))
    ), path


def seen(where):
    done = subprocess.run(  # noqa: S603  (our own interpreter)
        [sys.executable, "-W", "ignore", "-c", LOOK, where],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.process
def test_another_process_can_read_the_trials_while_the_search_runs(place):
    make, where = place
    searcher = prepared(storage=make(), study_name="mine", constraints=["memory"])
    configs = play(searcher, EVENTS)
    trials = seen(where)
    assert [trial[0] for trial in trials] == ["COMPLETE", "PRUNED", "FAIL", "RUNNING", "RUNNING"]
    assert [trial[1] for trial in trials] == [[0.5], [2.0], None, None, None]
    assert trials[0][2] == {"1": 3.0, "2": 0.5}
    assert [trial[3] for trial in trials] == [
        {"lr": config["lr"], "model/act": config["model"]["act"]} for config in configs
    ]
    assert [trial[4] for trial in trials] == [
        {"experiment": "one", "trial_id": name} for name in "abcde"
    ]
    assert trials[0][5] == {"memory": -0.5}


@pytest.mark.parametrize("num", range(len(EVENTS) + 1))
def test_a_replayed_search_writes_nothing_twice_and_proposes_the_same(num):
    storage = optuna.storages.InMemoryStorage()
    first = prepared(storage=storage, study_name="mine")
    configs = play(first, EVENTS)
    before = states_in(storage)
    second = prepared(storage=storage, study_name="mine")
    if num:
        play(second, EVENTS[:num])
    assert states_in(storage) == before
    rest = play(second, EVENTS[num:])
    assert rest == configs[len(configs) - len(rest) :]
    assert states_in(storage) == before


@pytest.mark.parametrize("num", range(1, len(EVENTS)))
def test_a_search_restored_from_a_state_older_than_its_storage_is_replayed(num):
    storage = optuna.storages.InMemoryStorage()
    first = prepared(storage=storage, study_name="mine")
    configs = play(first, EVENTS[:num])
    state = json.loads(json.dumps(first.state_dict()))
    configs += play(first, EVENTS[num:])
    before = states_in(storage)
    second = prepared(storage=storage, study_name="mine", seed=7, experiment="else")
    second.load_state_dict(state)
    rest = play(second, EVENTS[num:])
    assert rest == configs[len(configs) - len(rest) :]
    assert states_in(storage) == before
    assert second.suggest("f") == first.suggest("f")


def states_in(storage):
    trials = optuna.load_study(study_name="mine", storage=storage).trials
    return [
        (trial.state, trial.values, repr(trial.intermediate_values), trial.params, trial.user_attrs)
        for trial in trials
    ]


def test_an_existing_study_is_continued_with_its_trials():
    storage = optuna.storages.InMemoryStorage()
    first = prepared(storage=storage, study_name="mine")
    for number in range(12):
        config = first.suggest(str(number))
        first.on_trial_complete(str(number), row(config["lr"], 1))
    second = prepared(storage=storage, study_name="mine", experiment="two")
    config = second.suggest("0")
    assert len(second.study.trials) == 13
    assert config["lr"] < 0.5, "the sampler has learnt"
    second.on_trial_complete("0", row(0.0, 1))
    assert [
        trial.user_attrs["experiment"]
        for trial in optuna.load_study(study_name="mine", storage=storage).trials
    ] == ["one"] * 12 + ["two"]
    again = prepared(storage=storage, study_name="mine", experiment="two")
    assert again.suggest("0") == config, "what it found then, and not what it has added since"


def test_a_study_object_is_continued_with_its_sampler():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=4))
    study.enqueue_trial({"lr": 0.125})
    study.ask({"lr": optuna.distributions.FloatDistribution(0, 1)})
    study.tell(0, 0.5)
    study.enqueue_trial({"lr": 0.25, "model/act": "tanh"})
    searcher = prepared(study=study)
    assert searcher.suggest("a") == {"lr": 0.25, "model": {"act": "tanh"}}
    assert searcher.suggest("b") != searcher.suggest("c")
    searcher.on_trial_complete("a", row(0.1, 1))
    assert isinstance(searcher.study.sampler, optuna.samplers.RandomSampler)
    assert [trial.state for trial in study.trials] == [
        State.COMPLETE,
        State.COMPLETE,
        State.RUNNING,
        State.RUNNING,
    ]
    assert study.best_trial.user_attrs["trial_id"] == "a"


def test_waiting_trials_of_a_study_are_run_first_also_in_a_replay():
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="mine", storage=storage).enqueue_trial({"lr": 0.25})
    first = prepared(storage=storage, study_name="mine").suggest("a")
    assert first["lr"] == 0.25
    assert prepared(storage=storage, study_name="mine").suggest("a") == first
    assert [
        trial.state for trial in optuna.load_study(study_name="mine", storage=storage).trials
    ] == [State.RUNNING]


def test_a_waiting_trial_that_another_process_has_started_is_run_as_well():
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(study_name="mine", storage=storage)
    study.enqueue_trial({"lr": 0.25})
    searcher = prepared(storage=storage, study_name="mine")
    assert len(searcher.study.trials) == 1
    study.ask()
    assert searcher.suggest("a")["lr"] == 0.25
    assert len(study.trials) == 2


def test_without_a_study_name_each_experiment_has_its_own_study():
    storage = optuna.storages.InMemoryStorage()
    for _ in range(2):
        prepared(storage=storage).suggest("a")
    prepared(storage=storage, experiment="two").suggest("a")
    assert [study.study_name for study in storage.get_all_studies()] == ["tuner-one", "tuner-two"]


def test_the_qmc_sequence_continues_in_the_next_search_of_a_study():
    pytest.importorskip("scipy")
    storage, drawn = optuna.storages.InMemoryStorage(), []
    for experiment in ("one", "two"):
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            sampler = optuna.samplers.QMCSampler(seed=1)
        searcher = prepared(
            storage=storage, study_name="mine", experiment=experiment, sampler=sampler
        )
        for number in range(5):
            drawn.append(searcher.suggest(str(number))["lr"])
            searcher.on_trial_complete(str(number), row(1.0, 1))
    assert len(set(drawn)) == 10


class Broken(optuna.storages.InMemoryStorage):
    """A storage that fails for a while."""

    is_broken = False

    def set_trial_intermediate_value(self, *arguments):
        if self.is_broken:
            raise OSError("the database is locked")
        super().set_trial_intermediate_value(*arguments)


def test_a_failing_storage_causes_one_warning_and_is_written_later():
    storage = Broken()
    searcher = prepared(storage=storage, study_name="mine")
    play(searcher, [("a",), ("b",)])
    storage.is_broken = True
    with pytest.warns(
        RuntimeWarning,
        match=r"Optuna's storage cannot be written to \(OSError: the database is locked\)",
    ) as warned:
        play(searcher, [("a", row(3.0, 1)), ("b", row(2.0, 1)), ("a", row(1.0, 2), {})])
    assert len(warned) == 1
    storage.is_broken = False
    searcher.on_trial_result("b", row(1.0, 2))
    stored = optuna.load_study(study_name="mine", storage=storage).trials
    assert [(trial.state, trial.intermediate_values) for trial in stored] == [
        (State.COMPLETE, {1: 3.0, 2: 1.0}),
        (State.RUNNING, {1: 2.0, 2: 1.0}),
    ]


def test_a_restored_search_writes_what_the_storage_lacks():
    first = prepared(storage=optuna.storages.InMemoryStorage(), study_name="mine")
    play(first, EVENTS)
    storage = optuna.storages.InMemoryStorage()
    second = prepared(storage=storage, study_name="mine")
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [
        trial.state for trial in optuna.load_study(study_name="mine", storage=storage).trials
    ] == [
        State.COMPLETE,
        State.PRUNED,
        State.FAIL,
        State.RUNNING,
        State.RUNNING,
    ]


@pytest.mark.parametrize("given", ["mine", optuna.Study])
def test_an_object_that_is_not_a_study_is_refused(given):
    with pytest.raises(TypeError, match=r"study must be an optuna.Study, got .*; load it first"):
        OptunaSearch(study=given)


def test_a_study_beside_a_storage_is_refused():
    study = optuna.create_study()
    with pytest.raises(
        ValueError, match="study must be given without study_name='mine' and storage, got both"
    ):
        OptunaSearch(study=study, study_name="mine")


def test_several_directions_have_to_be_those_of_the_stored_study():
    study = optuna.create_study(directions=["minimize", "minimize"])
    with pytest.raises(
        ValueError,
        match=r"mode must be that of the stored study .*, got 'min, max'; choose another "
        r"study_name",
    ):
        prepared(study=study, metric=["a", "b"], mode=["min", "max"]).suggest("a")


def prepared_with_pauses(mode="min", **arguments):
    searcher = OptunaSearch(metric="loss", mode=mode, **arguments)
    assert searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
    return searcher


def paused_row(loss, iteration):
    return {"loss": loss, "training_iteration": iteration}


def paused(searcher, name, *rows):
    config = searcher.suggest(name)
    for each in rows:
        searcher.on_trial_result(name, each)
    searcher.on_trial_pause(name, rows[-1] if rows else None)
    return config


def test_a_paused_trial_is_pruned_at_its_rung_with_its_intermediate_values():
    searcher = prepared_with_pauses()
    paused(searcher, "a", paused_row(3.0, 1), paused_row(2.0, 2))
    for trial in (searcher.study.trials[0], searcher.study.get_trials(states=[State.PRUNED])[0]):
        assert (trial.state, trial.value, trial.intermediate_values) == (
            State.PRUNED,
            2.0,
            {1: 3.0, 2: 2.0},
        )
    assert searcher.study.get_trials(states=[State.RUNNING]) == []


def test_it_runs_again_with_its_next_result_and_is_pruned_again_at_the_next_rung():
    searcher = prepared_with_pauses()
    paused(searcher, "a", paused_row(3.0, 1))
    searcher.on_trial_result("a", paused_row(2.5, 2))
    assert searcher.study.trials[0].state == State.RUNNING
    searcher.on_trial_result("a", paused_row(2.0, 3))
    searcher.on_trial_pause("a", paused_row(2.0, 3))
    assert (searcher.study.trials[0].state, searcher.study.trials[0].last_step) == (State.PRUNED, 3)


@pytest.mark.parametrize(
    ("ending", "state"),
    [({}, State.COMPLETE), ({"stopped": True}, State.PRUNED), ({"error": True}, State.FAIL)],
)
def test_a_paused_trial_can_end_in_every_way(ending, state):
    searcher = prepared_with_pauses()
    paused(searcher, "a", paused_row(3.0, 1))
    searcher.on_trial_complete("a", None if "error" in ending else paused_row(1.0, 1), **ending)
    assert searcher.study.trials[0].state == state
    assert searcher.study.trials[0].intermediate_values[1] == (3.0 if "error" in ending else 1.0)


def test_a_trial_that_has_reported_nothing_keeps_running():
    searcher = prepared_with_pauses()
    paused(searcher, "a")
    assert searcher.study.trials[0].state == State.RUNNING


def test_nan_at_a_rung_is_not_a_value():
    searcher = prepared_with_pauses()
    paused(searcher, "a", paused_row(math.nan, 1))
    assert (searcher.study.trials[0].state, searcher.study.trials[0].value) == (State.PRUNED, None)


def test_unknown_trials_are_ignored():
    searcher = prepared_with_pauses()
    searcher.on_trial_pause("z", paused_row(1.0, 1))
    assert searcher.study.trials == []


@pytest.mark.property
def test_the_sampler_learns_from_paused_trials():
    searcher = prepared_with_pauses()
    for number in range(40):
        config = searcher.suggest(str(number))
        searcher.on_trial_result(str(number), paused_row(config["x"], 1))
        searcher.on_trial_pause(str(number), paused_row(config["x"], 1))
    assert sum(trial.params["x"] for trial in searcher.study.trials[-10:]) / 10 < 0.25


def test_a_restored_search_shows_the_same_trials_as_paused():
    first, second = (
        prepared_with_pauses(constraints=["loss"]),
        prepared_with_pauses(constraints=["loss"]),
    )
    paused(first, "a", paused_row(3.0, 1))
    paused(first, "b", paused_row(2.0, 1))
    first.on_trial_result("b", paused_row(1.0, 2))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [trial.state for trial in second.study.trials] == [State.PRUNED, State.RUNNING]
    assert second.study.trials[0].constraints == {"loss": 3.0}
    for searcher in (first, second):
        searcher.on_trial_result("a", paused_row(1.5, 2))
        searcher.on_trial_complete("a", paused_row(1.5, 2))
    assert [trial.state for trial in second.study.trials] == [State.COMPLETE, State.RUNNING]
    assert first.suggest("c") == second.suggest("c")


@pytest.mark.parametrize("batch", [False, True])
def test_pauses_pass_a_concurrency_limiter_at_once(batch):
    inner = prepared_with_pauses()
    limiter = ConcurrencyLimiter(inner, 2, batch=batch)
    limiter.suggest("a")
    limiter.on_trial_pause("a", paused_row(3.0, 1))
    assert inner.study.trials[0].state == State.PRUNED
    limiter.suggest("b")
    assert limiter.suggest("c") is None, "a paused trial is still unfinished"
