"""Searchers that are used without an experiment, and searchers that were written for Ray Tune."""

import json

import pytest

from searchers import (
    AxSearch,
    BasicVariantGenerator,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    HyperOptSearch,
    OptunaSearch,
    Repeater,
    Searcher,
    TreeSearch,
)
from searchers.searcher import pass_search_properties, report_end
from searchers.space import loguniform, uniform

SPACE = {"x": uniform(0, 1), "deep": {"lr": loguniform(1e-4, 1)}, "epochs": 3}
MODELS = [TreeSearch, BOHBSearch, CQRSearch]


def random_ax(**given):
    return AxSearch(method="random_search", **given)


MAKERS = [
    *MODELS,
    OptunaSearch,
    *(pytest.param(make, marks=pytest.mark.heavy) for make in (HyperOptSearch, BayesOptSearch)),
    pytest.param(random_ax, marks=pytest.mark.heavy),
]


def made(make, **given):
    return make(space=SPACE, metric="loss", mode="min", **given)


def play(searcher, names):
    configs = []
    for name in names:
        configs.append(searcher.suggest(name))
        searcher.on_trial_complete(
            name, {"loss": abs(configs[-1]["x"] - 0.3), "training_iteration": 1}
        )
    return configs


@pytest.mark.parametrize("make", MAKERS)
def test_a_searcher_with_space_metric_and_mode_needs_no_experiment(make):
    (config,) = play(made(make), "1")
    assert (sorted(config), config["epochs"]) == (["deep", "epochs", "x"], 3)
    (config,) = play(ConcurrencyLimiter(made(make), 2), "1")
    assert config["epochs"] == 3


@pytest.mark.parametrize("make", MAKERS)
def test_a_searcher_continues_from_its_saved_state(make, tmp_path):
    path = str(tmp_path / "searcher.json")
    first = made(make)
    known = play(first, "1234")
    open_one = first.suggest("5")
    first.save(path)
    second = made(make)
    second.restore(path)
    for searcher in (first, second):
        searcher.on_trial_complete("5", {"loss": 0.5, "training_iteration": 1})
    later = play(second, "678")
    # Ax gets the history at once, and continues with other random numbers.
    if make is not random_ax:
        assert later == play(first, "678")
    assert not [config for config in later if config in [*known, open_one]]


@pytest.mark.parametrize("make", MODELS)
def test_a_model_with_its_own_space_takes_constants_from_param_space(make):
    searcher = made(make)
    assert not searcher.set_search_properties(None, None, {"y": uniform(0, 1)}, seed=0)
    assert searcher.set_search_properties("loss", "min", {"batch": 8}, seed=0)
    assert searcher.suggest("a").keys() == {"batch", "x", "deep", "epochs"}


def test_another_searchers_file_is_refused(tmp_path):
    path = str(tmp_path / "searcher.json")
    made(TreeSearch).save(path)
    with pytest.raises(
        ValueError,
        match=r"must be saved by BOHBSearch, got .*'TreeSearch'.*; restore it with the searcher "
        r"that saved it",
    ):
        made(BOHBSearch).restore(path)


class OfRayTune(Searcher):
    """A searcher written for Ray Tune: other signatures, with files and state."""

    def __init__(self, space, metric=None, mode=None):
        super().__init__(metric=metric, mode=mode)
        self.space, self.calls = space, []

    def set_search_properties(self, metric, mode, config):
        if self._metric or self._mode:
            return False
        self._metric, self._mode = metric, mode
        return True

    def suggest(self, trial_id):
        self.calls.append(("suggest", trial_id))
        return {"x": len(self.calls)}

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.calls.append(("complete", trial_id, result, error))

    def save(self, checkpoint_path):
        with open(checkpoint_path, "w") as file:  # noqa: PTH123
            json.dump(self.get_state(), file)

    def restore(self, checkpoint_path):
        with open(checkpoint_path) as file:  # noqa: PTH123
            self.set_state(json.load(file))

    def get_state(self):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"]


def test_metric_and_mode_of_a_user_defined_searcher():
    searcher = OfRayTune({}, metric="loss", mode="min")
    assert (searcher.metric, searcher.mode, searcher._metric, searcher._mode) == (
        "loss",
        "min",
        "loss",
        "min",
    )
    assert searcher.objectives == (("loss", "min"),)
    with pytest.raises(
        ValueError, match=r"mode must be one of \('min', 'max'\), got 'best'; None takes TuneConfig"
    ):
        OfRayTune({}, mode="best")
    with pytest.raises(TypeError, match=r"metric must be the name of a reported value, got 3"):
        OfRayTune({}, metric=3)


def test_a_searcher_whose_on_trial_complete_takes_no_stopped_is_called():
    searcher = OfRayTune({})
    assert pass_search_properties(searcher, "loss", "min", {}, {"seed": 1})
    assert searcher.metric == "loss"
    report_end(searcher, "a", {"loss": 1}, stopped=True)
    for wrapper in (
        ConcurrencyLimiter(searcher, 2),
        DuplicateGuard(searcher, "reuse"),
        Repeater(searcher, 1),
    ):
        wrapper.suggest("b")
        wrapper.on_trial_complete("b", {"loss": 2}, stopped=True)
    ends = [each for each in searcher.calls if each[0] == "complete"]
    assert (
        ends
        == [("complete", "a", {"loss": 1}, False)] + [("complete", "b", {"loss": 2}, False)] * 3
    )


def test_a_user_defined_searcher_overrides_get_state(tmp_path):
    path = str(tmp_path / "state")
    first, second = OfRayTune({}), OfRayTune({})
    first.suggest("a")
    first.save(path)
    second.restore(path)
    assert second.calls == [["suggest", "a"]]


def test_saving_a_searcher_without_a_state_raises_with_a_remedy(tmp_path):
    class Forgetful(Searcher):
        def suggest(self, trial_id):
            return {}

    with pytest.raises(
        NotImplementedError,
        match="Forgetful has no state that can be saved; override get_state and set_state, or use "
        "Tuner",
    ):
        Forgetful().save(str(tmp_path / "state"))


def test_random_search_can_be_saved_once_it_has_a_space(tmp_path):
    path = str(tmp_path / "state")
    searchers = [BasicVariantGenerator() for _ in range(2)]
    for searcher in searchers:
        searcher.set_search_properties(None, None, SPACE, seed=0, num_samples=9)
    searchers[0].suggest("a")
    searchers[0].save(path)
    searchers[1].restore(path)
    assert searchers[0].suggest("b") == searchers[1].suggest("b")
