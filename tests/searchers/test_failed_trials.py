"""Failed trials, NaN and infinity count as bad for searchers; discarded trials are ignored."""

import json
import math

import pytest

from searchers import (
    AutoSearch,
    AxSearch,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    HyperOptSearch,
    NevergradSearch,
    OptunaSearch,
    Repeater,
    TreeSearch,
)
from searchers.libraries.ax_search import _quiet
from searchers.models.model_search import ModelSearch
from searchers.space import choice, uniform

SPACE = {"x": uniform(0, 1), "y": uniform(0, 1)}
MAKERS = {
    "tree": TreeSearch,
    "process": GPSearch,
    "auto": AutoSearch,
    "bohb": BOHBSearch,
    "cqr": CQRSearch,
    "tpe": OptunaSearch,
    "gp": lambda **given: OptunaSearch(
        sampler=pytest.importorskip("optuna.samplers").GPSampler(seed=1), **given
    ),
    "hyperopt": HyperOptSearch,
    "bayesopt": BayesOptSearch,
}
HEAVY = ("gp", "hyperopt", "bayesopt")


def kinds(*marks):
    """Return parameters for all searchers, with marks for those without a large library."""
    return [
        pytest.param(kind, marks=pytest.mark.heavy if kind in HEAVY else marks) for kind in MAKERS
    ]


def prepared(searcher, mode="max", seed=0, space=SPACE, **spec):
    assert searcher.set_search_properties("score", mode, space, seed=seed, **spec)
    return searcher


def num_bad_of_the_last_half(searcher, num, ending):
    """Return the number of trials of a search's last half in a region where all trials fail.

    The score rises towards that region.
    """
    bad = []
    for number in range(num):
        name, config = str(number), searcher.suggest(str(number))
        bad.append(config["x"] > 0.7)
        if bad[-1]:
            ending(searcher, name)
        else:
            searcher.on_trial_complete(
                name, {"score": config["x"] - 0.2 * abs(config["y"] - 0.5), "training_iteration": 1}
            )
    return sum(bad[num // 2 :])


def fails(searcher, name):
    searcher.on_trial_complete(name, error=True)


def reports(value):
    def ends(searcher, name):
        searcher.on_trial_result(name, {"score": value, "training_iteration": 1})
        searcher.on_trial_complete(name, {"score": value, "training_iteration": 1})

    return ends


@pytest.mark.parametrize("kind", kinds(pytest.mark.property))
@pytest.mark.parametrize(
    "ending", [fails, reports(math.nan), reports(math.inf)], ids=["fails", "nan", "inf"]
)
def test_a_search_leaves_a_bad_region_that_borders_the_best_values(kind, ending):
    num_bad = num_bad_of_the_last_half(prepared(MAKERS[kind]()), 26, ending)
    assert num_bad <= 6, f"{num_bad} of the last 13 trials came to nothing"


@pytest.mark.property
def test_optuna_alone_does_not_learn_from_failures():
    assert num_bad_of_the_last_half(prepared(OptunaSearch(failed_trials="ignore")), 50, fails) > 20


@pytest.mark.parametrize("kind", kinds())
def test_failures_are_ignored_on_request(kind):
    """Suggest the same as a search in which the failed configurations were never run."""
    ignoring, discarding = (
        prepared(MAKERS[kind](failed_trials="ignore")),
        prepared(MAKERS[kind](failed_trials="ignore")),
    )
    suggested = []
    for searcher, ending in (
        (ignoring, fails),
        (discarding, lambda searcher, name: searcher.on_trial_discard(name)),
    ):
        suggested.append([])
        for number in range(13):
            suggested[-1].append(searcher.suggest(str(number)))
            if number % 3 == 0:
                ending(searcher, str(number))
            else:
                reports(-abs(suggested[-1][-1]["x"] - 0.3))(searcher, str(number))
    assert suggested[0] == suggested[1]


@pytest.mark.parametrize("kind", [*kinds(), pytest.param("ax", marks=pytest.mark.heavy)])
def test_another_policy_is_refused(kind):
    with pytest.raises(
        ValueError,
        match=r"failed_trials must be one of \('worst', 'ignore'\), got 'bad'; 'worst' keeps the "
        r"search away",
    ):
        (MAKERS | {"ax": AxSearch})[kind](failed_trials="bad")


def seen_by_the_sampler(searcher, *, as_pruned):
    with searcher.study.showing_failures_as_worst(as_pruned=as_pruned):
        return [
            (trial.state.name, trial.values, trial.intermediate_values)
            for trial in searcher.study.get_trials(deepcopy=False)
        ]


def with_ends(searcher, *endings):
    for number, (result, ending) in enumerate(endings):
        searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), result, **ending)
    return searcher


ENDINGS = [
    ({"score": 1.0, "training_iteration": 1}, {}),
    (None, {"error": True}),
    ({"score": -3.0, "training_iteration": 1}, {}),
    ({"score": math.inf, "training_iteration": 1}, {}),
    ({"score": math.nan, "training_iteration": 1}, {"stopped": True}),
]


def test_optuna_shows_failures_as_the_worst_to_its_sampler_alone():
    searcher = with_ends(prepared(OptunaSearch()), *ENDINGS, (None, {"stopped": True}))
    worst, pruned = ("COMPLETE", [-3.0]), ("PRUNED", None, {})
    seen = seen_by_the_sampler(searcher, as_pruned=False)
    assert [trial[:2] for trial in seen] == [
        ("COMPLETE", [1.0]),
        worst,
        ("COMPLETE", [-3.0]),
        worst,
        worst,
        ("PRUNED", None),
    ]
    seen = seen_by_the_sampler(searcher, as_pruned=True)
    assert [seen[1], seen[3], seen[4]] == [pruned] * 3
    assert [trial.state.name for trial in searcher.study.trials] == [
        "COMPLETE",
        "FAIL",
        "COMPLETE",
        "COMPLETE",
        "PRUNED",
        "PRUNED",
    ]


def test_optuna_shows_the_worst_in_either_direction_and_of_each_metric_and_constraint():
    assert seen_by_the_sampler(
        with_ends(prepared(OptunaSearch(), "min"), *ENDINGS[:3]), as_pruned=False
    )[1][1] == [1.0]
    several = OptunaSearch(metric=["a", "b"], mode=["max", "min"], constraints=["c"])
    several.set_search_properties(None, None, SPACE, seed=0)
    with_ends(
        several,
        ({"a": 1, "b": 2, "c": -1}, {}),
        ({"a": 3, "b": 5, "c": 2}, {}),
        (None, {"error": True}),
        ({"a": 1, "b": math.nan, "c": 0}, {}),
    )
    with several.study.showing_failures_as_worst(as_pruned=False):
        trials = several.study.trials
    assert [trial.values for trial in trials[2:]] == [[1.0, 5.0]] * 2
    assert [trial.constraints for trial in trials[2:]] == [{"c": 2.0}, {"c": 0.0}]


def test_optuna_shows_failures_unchanged_while_there_is_no_value():
    searcher = with_ends(prepared(OptunaSearch()), (None, {"error": True}), (None, {"error": True}))
    for as_pruned in (False, True):
        assert [state for state, *_ in seen_by_the_sampler(searcher, as_pruned=as_pruned)] == [
            "FAIL",
            "FAIL",
        ]


def test_optuna_keeps_in_state_and_storage_which_trials_count_as_the_worst():
    optuna = pytest.importorskip("optuna")
    storage = optuna.storages.InMemoryStorage()
    first = with_ends(
        prepared(OptunaSearch(storage=storage, study_name="s"), experiment="first"), *ENDINGS
    )
    restored = prepared(OptunaSearch(), experiment="first")
    restored.load_state_dict(json.loads(json.dumps(first.state_dict())))
    continued = prepared(OptunaSearch(storage=storage, study_name="s"), experiment="second")
    for searcher in (restored, continued):
        assert repr(seen_by_the_sampler(searcher, as_pruned=False)) == repr(
            seen_by_the_sampler(first, as_pruned=False)
        )


def test_optuna_counts_points_that_failed_elsewhere():
    searcher = with_ends(prepared(OptunaSearch()), ({"score": 1.0}, {}))
    searcher.add_evaluated_point({"x": 0.5, "y": 0.5}, 0.0, error=True)
    assert seen_by_the_sampler(searcher, as_pruned=False)[1][:2] == ("COMPLETE", [1.0])


def test_only_tpe_with_one_metric_is_shown_failures_as_pruned():
    samplers = pytest.importorskip("optuna.samplers")
    assert prepared(OptunaSearch())._known.source.ranks_pruned
    assert prepared(OptunaSearch(sampler=samplers.TPESampler(seed=1)))._known.source.ranks_pruned
    assert not prepared(
        OptunaSearch(
            sampler=samplers.CmaEsSampler(seed=1, independent_sampler=samplers.TPESampler())
        )
    )._known.source.ranks_pruned


def ax_data(searcher):
    with _quiet(searcher):
        searcher._report_new_results()
    experiment = searcher._client._experiment
    means = {
        row["trial_index"]: row["mean"]
        for row in experiment.lookup_data().df.to_dict("records")
        if row["metric_name"] == "objective"
    }
    return [(trial.status.name, means.get(index)) for index, trial in experiment.trials.items()]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("policy", "expected"), [("worst", ("COMPLETED", -3.0)), ("ignore", ("FAILED", None))]
)
def test_failures_are_reported_to_ax_once_there_is_a_worst_value(policy, expected):
    pytest.importorskip("ax")
    searcher = prepared(AxSearch(method="random_search", failed_trials=policy))
    searcher.suggest("a"), searcher.suggest("b"), searcher.suggest("c"), searcher.suggest("d")
    fails(searcher, "a")
    assert ax_data(searcher)[0] == ("RUNNING" if policy == "worst" else "FAILED", None)
    searcher.on_trial_complete("b", {"score": -3.0})
    searcher.on_trial_complete("c", {"score": 2.0})
    searcher.on_trial_discard("d")
    assert ax_data(searcher) == [
        expected,
        ("COMPLETED", -3.0),
        ("COMPLETED", 2.0),
        ("FAILED", None),
    ]


@pytest.mark.heavy
def test_a_failure_is_reported_to_ax_with_the_outcomes_of_the_worst_trial():
    pytest.importorskip("ax")
    searcher = prepared(AxSearch(method="random_search", outcome_constraints=["size <= 3"]))
    searcher.suggest("a"), searcher.suggest("b")
    searcher.on_trial_complete("a", {"score": 1.0, "size": 5})
    fails(searcher, "b")
    assert ax_data(searcher) == [("COMPLETED", 1.0)] * 2


@pytest.mark.heavy
@pytest.mark.usefixtures("nevergrad")
def test_failures_are_reported_to_nevergrad_once_there_is_a_worst_value():
    searcher = prepared(NevergradSearch("TwoPointsDE"))
    searcher.suggest("a"), searcher.suggest("b")
    fails(searcher, "a")
    searcher._report_new_results()
    assert searcher._optimizer.num_tell == 0
    searcher.on_trial_complete("b", {"score": -3.0})
    searcher._report_new_results()
    assert searcher._optimizer.num_tell == 2


@pytest.mark.parametrize("make", [TreeSearch, GPSearch, AutoSearch, BOHBSearch, CQRSearch])
def test_a_trial_that_ends_without_a_value_counts_as_failed_unless_it_was_stopped(make):
    searcher = with_ends(
        prepared(make()),
        (None, {}),
        ({"other": 1}, {}),
        (None, {"stopped": True}),
        ({"score": 1.0}, {}),
    )
    assert [trial.is_failed for trial in searcher.observations.trials.values()] == [
        True,
        True,
        False,
        False,
    ]


class Recording(ModelSearch):
    """A searcher that always suggests the same configuration, and records its calls."""

    def __init__(self):
        super().__init__(
            space=None,
            metric=None,
            mode=None,
            points_to_evaluate=None,
            evaluated_rewards=None,
            n_initial_points=1,
            random_fraction=0.0,
            time_attr="training_iteration",
            seed=None,
            failed_trials="worst",
        )
        self.calls = []

    def propose(self, encoding, rng):
        raise NotImplementedError

    def suggest(self, trial_id):
        return {"kind": "a"}

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append((trial_id, "failed" if error else "completed"))

    def on_trial_discard(self, trial_id):
        self.calls.append((trial_id, "discarded"))


KINDS = {"kind": choice(["a", "b"])}


def test_a_duplicate_that_is_skipped_is_no_failure():
    inner = Recording()
    guard = prepared(DuplicateGuard(inner, "skip", max_tries=2), space=KINDS)
    guard.suggest("a"), guard.suggest("b")
    assert inner.calls == [("b", "discarded"), ("b+1", "discarded")]


def test_duplicates_of_a_discarded_trial_are_discarded_and_it_may_be_suggested_again():
    inner = Recording()
    guard = prepared(DuplicateGuard(inner, "reuse", max_tries=1), space=KINDS)
    guard.suggest("a"), guard.suggest("b")
    guard.on_trial_discard("a")
    assert inner.calls == [("a", "discarded"), ("b", "discarded")]
    assert guard.suggest("c") == {"kind": "a"}
    assert len(inner.calls) == 2


def test_wrappers_pass_on_what_is_discarded():
    inner = Recording()
    limiter = prepared(ConcurrencyLimiter(inner, 2, batch=True), space=KINDS)
    limiter.suggest("a"), limiter.suggest("b")
    limiter.on_trial_discard("a")
    assert inner.calls == []
    limiter.on_trial_complete("b", {"score": 1.0})
    assert inner.calls == [("a", "discarded"), ("b", "completed")]


def test_a_repeater_counts_the_repeats_that_were_run():
    inner = Recording()
    repeater = prepared(Repeater(inner, 2), space=KINDS)
    for name in "abcd":
        repeater.suggest(name)
    repeater.on_trial_discard("a")
    repeater.on_trial_complete("b", {"score": 1.0})
    repeater.on_trial_discard("c")
    repeater.on_trial_discard("d")
    assert inner.calls == [("a", "completed"), ("c", "discarded")]
