"""Sweeps: files and flags together, and the experiment that they make."""

import pytest

import schedulers
from searchers import AutoSearch, BasicVariantGenerator
from searchers.space import choice, grid_search, loguniform, uniform
from tuner.command.sweeps.sweep import Given, Sweep
from tuner.spec.experiment_spec import make_spec

LR = {("lr",): loguniform(1e-5, 1e-1)}
COMMAND = ["python", "-c", "pass", "{lr}"]


def given(place="FILE", **values):
    return Given(values, {key: f"{place}:{key}" for key in values})


def sweep(**values):
    usual = {"command": COMMAND, "space": LR, "num_samples": 4, "metric": "loss", "mode": "min"}
    return Sweep.of(given(**{**usual, **values}))


def made(**values):
    """Return the specification of an experiment, and the remarks."""
    arguments, remarks = sweep(**values).arguments()
    return make_spec(*arguments.values()), remarks


def test_flags_override_a_file():
    both = given(name="a", metric="loss", seed=1).overridden_by(given("FLAGS", name="b", seed=0))
    assert both.values == {"name": "b", "metric": "loss", "seed": 0}
    assert both.places == {"name": "FLAGS:name", "metric": "FILE:metric", "seed": "FLAGS:seed"}


def test_flags_override_single_parameters_and_entries():
    file = given(space={("lr",): 1, ("width",): 2}, stop={"loss": 0.1, "epoch": 5})
    both = file.overridden_by(given(space={("width",): 3}, stop={"epoch": 9})).values
    assert both == {"space": {("lr",): 1, ("width",): 3}, "stop": {"loss": 0.1, "epoch": 9}}


@pytest.mark.parametrize(
    ("flag", "scheduler"),
    [
        ({"type": "asha"}, {"type": "asha", "grace_period": 2}),
        ({"grace_period": 3}, {"type": "asha", "grace_period": 3}),
        ({"type": "pasha"}, {"type": "pasha"}),
    ],
)
def test_flags_keep_the_arguments_of_a_scheduler_unless_they_name_another(flag, scheduler):
    file = given(scheduler={"type": "asha", "grace_period": 2})
    assert file.overridden_by(given(scheduler=flag)).values == {"scheduler": scheduler}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"command": None}, "there is no command to run"),
        ({"mode": None}, "FILE:metric: the metric 'loss' needs a mode; add mode: min or max"),
        ({"metric": None}, "FILE:mode: the mode 'min' needs a metric; add metric: NAME"),
        ({"num_samples": None}, "values of lr are drawn, but the number of trials is not given"),
        ({"space": {("a",): 1, ("a", "b"): 2}}, "FILE:space: a is a value, and the beginning of"),
        ({"scheduler": {"max_t": 3}}, "FILE:scheduler: max_t needs the name of a scheduler"),
        (
            {"scheduler": {"type": "asha"}, "metric": None, "mode": None},
            "FILE:scheduler: asha compares trials, and needs to know by which metric",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(values, told):
    usual = {"command": COMMAND, "space": LR, "num_samples": 4, "metric": "loss", "mode": "min"}
    stated = {key: value for key, value in {**usual, **values}.items() if value is not None}
    with pytest.raises(ValueError) as refusal:
        Sweep.of(given(**stated))
    assert told in str(refusal.value)


def test_a_grid_needs_no_number_of_trials():
    assert (
        Sweep.of(given(command=COMMAND, space={("lr",): grid_search([1, 2])})).num_samples is None
    )


def test_the_command_is_checked_against_the_space():
    with pytest.raises(ValueError, match=r"\{lr\} names no parameter"):
        made(space={("lrr",): uniform(0, 1)})


def test_words_of_a_shell_are_one_line():
    declared = sweep(command=["echo {lr}", "| cat"], shell=True)  # noqa: S604
    assert declared.trainable().words_for({"lr": 1}) == ["echo 1 | cat"]


def test_what_is_declared_reaches_the_experiment():
    spec, _ = made(
        name="digits",
        max_concurrent=3,
        max_failures=2,
        time_limit=60.0,
        stop_search="auto",
        num_samples=90,
        trial_time_limit=30.0,
        budget={"gpu_hours": 20},
        stop={"loss": "<= 0.1"},
        seed=7,
        gpus=2.0,
        resources={"licence": 1.0},
        total_resources={"cpu": 4.0},
        storage="somewhere",
        if_exists="new",
    )
    assert (spec.run.name, spec.run.storage_path, spec.run.if_exists) == (
        "digits",
        "somewhere",
        "new",
    )
    assert (spec.metric, spec.mode, spec.seed) == ("loss", "min", 7)
    assert (spec.tune.max_concurrent_trials, spec.tune.budget_s) == (3, 60)
    assert spec.tune.stop_search == "auto"
    assert spec.tune.budget == {"gpu_hours": 20}
    assert (spec.failure.max_failures, spec.failure.report_timeout_s) == (2, 30)
    assert spec.run.stop == {"loss": "<= 0.1", "time_total_s": 30}
    assert spec.request_for({}) == {"cpu": 1, "gpu": 2, "licence": 1}
    assert spec.run.resources == {"cpu": 4}


def test_without_a_scheduler_the_default_is_chosen():
    spec, remarks = made()
    assert isinstance(spec.scheduler, schedulers.FIFOScheduler)
    assert isinstance(spec.searcher, AutoSearch)
    assert not remarks


def test_the_length_of_a_full_training_ends_trials_under_any_scheduler():
    spec, _ = made(max_t=9)
    assert spec.run.stop == {"training_iteration": 9}
    assert spec.scheduler.levels[-1] == 9  # so the default is ASHA
    spec, _ = made(max_t=9, scheduler={"type": "median_stopping_rule"})
    assert spec.run.stop == {"training_iteration": 9}
    spec, _ = made(max_t=9, scheduler={"type": "asha"})
    assert spec.run.stop is None
    assert spec.scheduler.levels[-1] == 9


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, {"max_t": 3**10, "stop_last_trials": False}),
        ({"stop": {"training_iteration": 27}}, {"max_t": 27}),
        ({"stop": {"loss": 0.1}}, {"max_t": 3**10, "stop_last_trials": False}),
        ({"scheduler": {"type": "asha", "max_t": 12}}, {"max_t": 12}),
        ({"scheduler": {"type": "asha", "max_t": 12}, "max_t": 9}, {"max_t": 9}),
        (
            {"scheduler": {"type": "asha", "time_attr": "time_total_s", "max_t": 60}},
            {"max_t": 60, "time_attr": "time_total_s"},
        ),
    ],
)
def test_asha_ends_trials_where_the_sweep_says(values, arguments):
    spec, _ = made(**{"scheduler": {"type": "asha"}, **values})
    assert spec.scheduler.declared_arguments == {**arguments, "type": "stopping"}


@pytest.mark.parametrize("name", ["hyperband", "pasha", "patient_pbt"])
def test_a_scheduler_that_divides_a_full_training_needs_its_length(name):
    with pytest.raises(ValueError, match=r"needs to know how many iterations .* \(--max-t 27\)"):
        made(scheduler={"type": name}, checkpoints=True)
    spec, _ = made(scheduler={"type": name}, checkpoints=True, max_t=9)
    assert spec.scheduler.declared_arguments["max_t"] == 9


def test_asha_stops_a_program_that_saves_nothing_and_says_so():
    spec, (remark,) = made(scheduler={"type": "asha"})
    assert spec.scheduler.declared_arguments["type"] == "stopping"
    assert "stops trials for good" in remark
    assert "--checkpoints" in remark


@pytest.mark.parametrize(
    "values", [{"checkpoints": True}, {"command": [*COMMAND, "--to", "{checkpoint_dir}"]}]
)
def test_asha_promotes_a_program_that_saves_and_says_so(values):
    spec, (remark,) = made(scheduler={"type": "asha"}, **values)
    assert spec.scheduler.declared_arguments["type"] == "promotion"
    assert "promotes" in remark


@pytest.mark.parametrize("name", ["hyperband", "pbt", "pb2", "pbt_replay"])
def test_a_scheduler_that_pauses_is_refused_for_a_program_that_saves_nothing(name):
    with pytest.raises(ValueError, match=f"{name!r} pauses trials .* TUNER_CHECKPOINT_DIR"):
        made(scheduler={"type": name})


def test_a_population_changes_what_is_sampled():
    space = {**LR, ("model", "width"): choice([64, 128]), ("epochs",): 3}
    spec, _ = made(space=space, checkpoints=True, allow_unused=True, scheduler={"type": "pbt"})
    mutations = spec.scheduler.declared_arguments["hyperparam_mutations"]
    assert repr(mutations) == repr({"lr": space[("lr",)], "model": {"width": choice([64, 128])}})


def test_a_population_may_be_told_what_to_change():
    spec, _ = made(
        space={**LR, ("momentum",): uniform(0, 1)},
        checkpoints=True,
        allow_unused=True,
        scheduler={"type": "pbt", "hyperparam_mutations": {"momentum": "uniform(0, 0.5)"}},
    )
    mutations = spec.scheduler.declared_arguments["hyperparam_mutations"]
    assert repr(mutations) == repr({"momentum": uniform(0, 0.5)})


def test_a_scheduler_that_needs_more_says_what():
    with pytest.raises(ValueError, match=r"'pbt_replay' needs policy_file; write scheduler: \{ty"):
        made(scheduler={"type": "pbt_replay"}, checkpoints=True)


def test_arguments_that_a_scheduler_or_searcher_does_not_have_are_refused():
    with pytest.raises(TypeError, match="got 'grace'"):
        made(scheduler={"type": "asha", "grace": 3})
    with pytest.raises(TypeError, match="got 'limit'"):
        made(searcher={"type": "random", "limit": 3})


@pytest.mark.parametrize(
    ("searcher", "kind"),
    [
        (None, AutoSearch),
        ({"type": "auto"}, AutoSearch),
        ({"type": "random"}, BasicVariantGenerator),
    ],
)
def test_points_are_tried_first(searcher, kind):
    chosen = {} if searcher is None else {"searcher": searcher}
    spec, _ = made(points=[{"lr": 0.001}], seed=0, **chosen)
    assert type(spec.searcher) is kind
    spec.connect()
    assert spec.searcher.suggest("t00000") == {"lr": 0.001}


def test_points_leave_the_scheduler_as_it_is():
    spec, _ = made(points=[{"lr": 0.001}], max_t=9)
    assert spec.scheduler.levels[-1] == 9
