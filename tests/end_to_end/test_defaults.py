"""The default scheduler and searcher of an experiment, which a restore keeps."""

import dataclasses

import pytest

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    MOASHAScheduler,
    PASHAScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from searchers import (
    AutoSearch,
    BasicVariantGenerator,
    ConcurrencyLimiter,
    DuplicateGuard,
    OptunaSearch,
    TreeSearch,
)
from tuner.spec.config import RunConfig, TuneConfig
from tuner.spec.default_algorithms import NO_END, full_iteration, is_outgrown
from tuner.spec.experiment_spec import make_spec

pytestmark = pytest.mark.unit

SPACE = {"x": tune.uniform(0, 1), "epochs": 5}
GOAL = {"metric": "loss", "mode": "min"}


def train(config):
    for step in range(1, 10):
        tune.report({"loss": config["x"] + 1.0 / step})


class Saves(tune.Trainable):
    def step(self):
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir):
        pass


class NeverSaves(tune.Trainable):
    def step(self):
        return {"loss": 1.0}


def spec(trainable=train, space=None, stop=None, **tune_config):
    settings = TuneConfig(**{"num_samples": 20, **GOAL, **tune_config})
    return make_spec(trainable, SPACE if space is None else space, settings, RunConfig(stop=stop))


def kinds(made):
    return type(made.scheduler), type(made.searcher)


@pytest.mark.parametrize(
    ("trainable", "stop"),
    [(Saves, None), (train, {"training_iteration": 9}), (train, tune.MaximumIterationStopper(9))],
)
def test_without_scheduler_and_searcher_the_defaults_are_used(trainable, stop):
    assert kinds(spec(trainable, stop=stop)) == (ASHAScheduler, AutoSearch)


@pytest.mark.parametrize("stop", [None, {"loss": 0.1}, lambda trial_id, result: False])
@pytest.mark.parametrize("trainable", [train, NeverSaves])
def test_trials_without_checkpoints_of_unknown_length_are_not_stopped(trainable, stop):
    assert kinds(spec(trainable, stop=stop)) == (FIFOScheduler, AutoSearch)


NO_SEARCH = [
    {"num_samples": 1},
    {"num_samples": 1_001},
    {"metric": None, "mode": None},
    {"space": {}},
    {"space": {"x": tune.sample_from(lambda: 1)}},
    {"space": {**SPACE, "depth": tune.grid_search([1, 2])}},
    {"space": {"x": tune.randn()}},
]


@pytest.mark.parametrize("options", NO_SEARCH)
def test_what_is_no_search_is_run_as_it_is(options):
    assert kinds(spec(Saves, **options)) == (FIFOScheduler, BasicVariantGenerator)


@pytest.mark.parametrize(
    "make", [ASHAScheduler, FIFOScheduler, HyperBandScheduler, MedianStoppingRule, PASHAScheduler]
)
def test_beside_a_scheduler_the_search_is_still_ours(make):
    made = spec(Saves, scheduler=make())
    assert kinds(made) == (make, AutoSearch)
    made.connect()
    assert (made.searcher.metric, made.searcher.mode) == ("loss", "min")
    assert made.searcher.declared_arguments == {}


def test_a_scheduler_may_name_the_metric_that_the_search_optimises():
    made = spec(Saves, metric=None, mode=None, scheduler=ASHAScheduler(metric="loss", mode="min"))
    assert kinds(made) == (ASHAScheduler, AutoSearch)
    made.connect()
    assert (made.searcher.metric, made.searcher.mode) == ("loss", "min")


@pytest.mark.parametrize("options", NO_SEARCH)
def test_beside_a_scheduler_what_is_no_search_is_run_as_it_is(options):
    assert kinds(spec(scheduler=FIFOScheduler(), **options)) == (
        FIFOScheduler,
        BasicVariantGenerator,
    )


SEVERAL = {"metric": ["loss", "size"], "mode": "min"}


@pytest.mark.parametrize("scheduler", [None, FIFOScheduler()])
def test_several_metrics_in_the_settings_are_searched_by_default(scheduler):
    made = spec(**SEVERAL, constraints={"ram_gb": "<= 4"}, scheduler=scheduler)
    assert type(made.searcher) is AutoSearch
    made.connect()
    assert made.searcher.objectives == (("loss", "min"), ("size", "min"))
    assert [str(each) for each in made.searcher.constraints] == ["ram_gb <= 4"]


def test_several_metrics_of_many_samples_are_searched_at_random():
    made = spec(**SEVERAL, num_samples=1_001)
    assert type(made.searcher) is BasicVariantGenerator
    assert "num_samples=1,001 is more than 1,000" in made.remark


def test_several_metrics_of_a_scheduler_alone_are_beyond_the_default_search():
    made = spec(Saves, metric=None, mode=None, scheduler=MOASHAScheduler(["loss", "size"], "min"))
    assert type(made.searcher) is BasicVariantGenerator
    assert "the scheduler compares several metrics" in made.remark


SEVERAL = {"metric": ["loss", "size"], "mode": ["min", "min"]}


@pytest.mark.parametrize(
    ("trainable", "stop", "kind"),
    [
        (Saves, None, MOASHAScheduler),
        (train, {"training_iteration": 9}, MOASHAScheduler),
        (train, None, FIFOScheduler),
    ],
)
def test_moasha_compares_several_metrics_where_asha_would_compare_one(trainable, stop, kind):
    made = spec(trainable, stop=stop, **SEVERAL, constraints={"size": "<= 4"})
    assert type(made.scheduler) is kind
    made.connect()
    if kind is MOASHAScheduler:
        assert made.scheduler.objectives == (("loss", "min"), ("size", "min"))
        assert [str(each) for each in made.scheduler.constraints] == ["size <= 4"]
        assert (
            "Scheduler: MOASHAScheduler (default); weaker trials are stopped early." in made.remark
        )


NINE = {"training_iteration": 9}


@pytest.mark.parametrize(
    ("options", "now", "is_its_turn"),
    [
        ({"stop": NINE}, SEVERAL, True),
        ({"trainable": Saves}, SEVERAL, True),
        ({"trainable": Saves, "search_alg": "random", "scheduler": "auto"}, SEVERAL, True),
        ({"stop": NINE, **SEVERAL}, GOAL, True),
        ({"stop": NINE}, {"metric": "size"}, False),
        ({"stop": NINE, **SEVERAL}, {"metric": ["loss", "time"]}, False),
        ({}, SEVERAL, False),
        ({"scheduler": ASHAScheduler(max_t=9, reduction_factor=3)}, SEVERAL, False),
        ({"scheduler": MOASHAScheduler(max_t=9), **SEVERAL}, GOAL, False),
    ],
)
def test_the_default_scheduler_is_chosen_anew_for_another_number_of_metrics(
    options, now, is_its_turn
):
    recorded = spec(**options).tune
    assert is_outgrown(dataclasses.replace(recorded, **now)) is is_its_turn


@pytest.mark.parametrize(
    "options", [option for option in NO_SEARCH if "metric" not in option] + [{"search_alg": None}]
)
def test_what_is_no_search_is_run_as_it_is_for_several_metrics(options):
    made = spec(Saves, **{**SEVERAL, **options})
    is_search = options == {"search_alg": None}
    assert type(made.scheduler) is (MOASHAScheduler if is_search else FIFOScheduler)


def test_schedulers_by_name_beside_several_metrics():
    auto = spec(**SEVERAL, scheduler="auto")
    assert type(auto.scheduler) is MOASHAScheduler
    named = spec(**SEVERAL, scheduler="moasha")
    named.connect()
    assert named.scheduler.objectives == (("loss", "min"), ("size", "min"))
    with pytest.raises(ValueError, match="or take MOASHAScheduler, which compares all of them"):
        spec(**SEVERAL, scheduler="asha").connect()
    with pytest.raises(ValueError, match=r"MOASHAScheduler must compare at least two .* 'loss'"):
        spec(scheduler="moasha").connect()


def test_a_searcher_of_yours_trains_every_trial_to_its_end():
    assert kinds(spec(Saves, search_alg=OptunaSearch())) == (FIFOScheduler, OptunaSearch)


def test_a_population_begins_with_random_members():
    population = PopulationBasedTraining(hyperparam_mutations={"x": tune.uniform(0, 1)})
    assert kinds(spec(Saves, scheduler=population)) == (
        PopulationBasedTraining,
        BasicVariantGenerator,
    )
    resized = ResourceChangingScheduler(
        PopulationBasedTraining(hyperparam_mutations={"x": tune.uniform(0, 1)})
    )
    assert type(spec(Saves, scheduler=resized).searcher) is BasicVariantGenerator
    assert type(spec(Saves, scheduler=ResourceChangingScheduler()).searcher) is AutoSearch


def test_auto_asks_for_ours_in_any_case():
    assert kinds(spec(scheduler="auto", search_alg=OptunaSearch())) == (ASHAScheduler, OptunaSearch)
    assert kinds(spec(scheduler=FIFOScheduler(), search_alg="auto")) == (FIFOScheduler, AutoSearch)
    assert kinds(spec(scheduler="auto", search_alg="auto")) == (ASHAScheduler, AutoSearch)
    assert kinds(spec(scheduler="auto", search_alg="auto", num_samples=1)) == (
        ASHAScheduler,
        BasicVariantGenerator,
    )


@pytest.mark.parametrize(
    ("stop", "levels"),
    [(81, (3, 9, 27, 81)), (9, (1, 3, 9)), (1, (1,)), (2000, (74, 222, 666, 1998, 2000))],
)
def test_the_levels_follow_from_how_long_a_full_training_is(stop, levels):
    assert spec(stop={"training_iteration": stop}).scheduler.levels == levels


@pytest.mark.parametrize(
    ("stop", "scheduler", "expected"),
    [
        (None, FIFOScheduler(), None),
        ({"training_iteration": 9}, FIFOScheduler(), 9),
        ({"training_iteration": float("inf")}, FIFOScheduler(), None),
        (None, ASHAScheduler(max_t=27), 27),
        ({"training_iteration": 9}, ASHAScheduler(max_t=27), 9),
        (None, ASHAScheduler(), 100),
        (None, ASHAScheduler(max_t=27, stop_last_trials=False), None),
        (None, ASHAScheduler(time_attr="time_total_s", max_t=27), None),
        (
            tune.MaximumIterationStopper(9),
            PopulationBasedTraining(hyperparam_mutations={"x": [1, 2]}),
            9,
        ),
    ],
)
def test_a_full_training_ends_where_scheduler_or_stop_criterion_say(stop, scheduler, expected):
    assert full_iteration(stop, scheduler) == expected


@pytest.mark.parametrize(
    ("full", "num_samples", "levels", "later", "num_scouts", "num_full_scouts"),
    [
        (27, -1, (1, 3, 9, 27), 9, 10, 2),
        (100, 20, (3, 9, 27, 81, 100), 27, 5, 1),
        (10, 40, (1, 3, 9, 10), 3, 10, 2),
        (2, 40, (1, 2), 1, 10, 2),
        (2, 8, (1, 2), 1, 2, 0),
    ],
)
def test_beside_a_model_only_scouts_are_compared_early(  # noqa: PLR0917  (the columns of a table)
    full, num_samples, levels, later, num_scouts, num_full_scouts
):
    scheduler = spec(stop={"training_iteration": full}, num_samples=num_samples).scheduler
    declared = scheduler.declared_arguments
    assert scheduler.levels == levels
    assert declared["later_grace_period"] == "auto"
    assert declared["num_scouts"] == num_scouts
    assert declared.get("num_full_scouts", 0) == num_full_scouts
    assert f"new trials compared from {later} on: no evidence yet" in scheduler.debug_string()


def test_beside_random_samples_all_are_compared_early():
    scheduler = spec(
        stop={"training_iteration": 27}, scheduler="auto", search_alg=BasicVariantGenerator()
    ).scheduler
    assert "num_scouts" not in scheduler.declared_arguments


def test_a_model_in_wrappers_is_a_model():
    searcher = ConcurrencyLimiter(DuplicateGuard(TreeSearch()), max_concurrent=2)
    scheduler = spec(
        stop={"training_iteration": 27}, scheduler="auto", search_alg=searcher, num_samples=40
    ).scheduler
    assert scheduler.declared_arguments["num_scouts"] == 10


def test_without_an_end_there_are_levels_enough():
    assert spec(Saves).scheduler.levels[0] == 1
    assert spec(Saves).scheduler.levels[-1] == NO_END


class RayStyle(TrialScheduler):
    """A scheduler with Ray Tune's signatures."""


GRID = {**SPACE, "depth": tune.grid_search([1, 2])}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "Searcher: AutoSearch (default). Scheduler: none; every trial trains to the end."),
        (
            {"search_alg": "auto"},
            (
                'Searcher: AutoSearch (chosen by "auto"). Scheduler: none; every trial trains to '
                "the end."
            ),
        ),
        (
            {"scheduler": "auto", "search_alg": OptunaSearch()},
            (
                'Searcher: OptunaSearch. Scheduler: ASHAScheduler (chosen by "auto"); '
                "weaker trials are stopped early."
            ),
        ),
        (
            {"scheduler": ASHAScheduler()},
            "Searcher: AutoSearch (default). Scheduler: ASHAScheduler.",
        ),
        (
            {"metric": None, "mode": None},
            (
                "Searcher: BasicVariantGenerator (random, since no metric and mode are set). "
                "Scheduler: none; every trial trains to the end."
            ),
        ),
        (
            {"num_samples": 1_001},
            (
                "Searcher: BasicVariantGenerator (random, since num_samples=1,001 is more "
                "than 1,000). "
                "Scheduler: none; every trial trains to the end."
            ),
        ),
        (
            {"space": GRID},
            (
                "Searcher: BasicVariantGenerator (every point of the grid). Scheduler: none; "
                "every trial trains to the end."
            ),
        ),
        (
            {
                "search_alg": ConcurrencyLimiter(TreeSearch(), max_concurrent=2),
                "scheduler": FIFOScheduler(),
            },
            "Searcher: TreeSearch. Scheduler: none; every trial trains to the end.",
        ),
        (
            {"scheduler": RayStyle()},
            "Searcher: AutoSearch (default). Scheduler: RayStyle.",
        ),
        (
            {"scheduler": PopulationBasedTraining(hyperparam_mutations={"x": [0.1, 0.2]})},
            (
                "Searcher: BasicVariantGenerator (random; PopulationBasedTraining changes "
                "configurations itself). Scheduler: PopulationBasedTraining."
            ),
        ),
        (
            {"space": {}, "search_alg": OptunaSearch(lambda trial: trial.suggest_float("x", 0, 1))},
            "Searcher: OptunaSearch. Scheduler: none; every trial trains to the end.",
        ),
        ({"space": {}}, ""),
        ({"num_samples": 1}, ""),
    ],
)
def test_the_first_line_names_the_defaults_and_their_reasons(options, line):
    assert spec(**options).remark == line
