"""Forms of Ray Tune 1, and others in which strangers write their scripts."""

import json
import logging
import warnings
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, HyperBandScheduler
from searchers import OptunaSearch, TreeSearch
from tuner.core.trial import Trial


def states_of(result):
    """Return what each checkpoint of a result contains, and the epoch of its result."""
    return [
        (json.loads(Path(checkpoint.path, "state.json").read_text()), metrics["epoch"])
        for checkpoint, metrics in result.best_checkpoints
    ]


class TestReport:
    def test_metrics_may_be_keywords(self, fit):
        def train(config):
            tune.report(loss=0.5, accuracy=0.1)
            tune.report({"loss": 0.25}, accuracy=0.2)

        frame = fit(train)[0].metrics_dataframe
        assert frame[["loss", "accuracy"]].values.tolist() == [[0.5, 0.1], [0.25, 0.2]]

    def test_a_checkpoint_goes_with_keywords_too(self, fit):
        def train(config):
            with tune.checkpoint_dir() as directory:
                Path(directory, "state.json").write_text("1")
                tune.report(epoch=1, checkpoint=tune.Checkpoint.from_directory(directory))

        assert states_of(fit(train)[0]) == [(1, 1)]

    @pytest.mark.parametrize(
        ("call", "error", "what"),
        [
            (lambda: tune.report({"loss": 1}, loss=2), ValueError, "'loss' must be given once"),
            (tune.report, TypeError, "report needs metrics"),
            (lambda: tune.report(None), TypeError, "report needs metrics"),
            (lambda: tune.report([1], loss=2), TypeError, "metrics must be a dictionary"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, fit, call, error, what):
        (result,) = fit(lambda config: call())
        assert isinstance(result.error, error)
        assert what in str(result.error)

    def test_outside_a_trial_it_does_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tune.report(loss=1)


class TestCheckpointDir:
    @staticmethod
    def train(config, checkpoint_dir=None):
        begun = 0
        if checkpoint_dir:
            begun = json.loads(Path(checkpoint_dir, "state.json").read_text())
        for epoch in range(begun + 1, 4):
            with tune.checkpoint_dir(step=epoch) as directory:
                Path(directory, "state.json").write_text(str(epoch))
            tune.report(loss=1 / epoch, epoch=epoch)
            marker = Path(tune.get_context().get_trial_dir(), "failed")
            if epoch == 2 and not marker.exists():
                marker.touch()
                raise ConnectionError("lost")

    def test_what_was_written_goes_with_the_next_report(self, fit):
        (result,) = fit(self.train, failure={"max_failures": 1})
        assert states_of(result) == [(1, 1), (2, 2), (3, 3)]
        assert result.metrics_dataframe["epoch"].tolist() == [1, 2, 3]

    def test_the_step_may_be_positional_and_the_report_inside(self, fit):
        def train(config):
            for epoch in range(3):
                with tune.checkpoint_dir(epoch) as directory:
                    Path(directory, "state.json").write_text(str(epoch))
                    tune.report(
                        {"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(directory)
                    )

        assert states_of(fit(train)[0]) == [(0, 0), (1, 1), (2, 2)]

    def test_a_directory_that_stays_empty_is_no_checkpoint(self, fit):
        def train(config):
            with tune.checkpoint_dir(step=1):
                pass
            tune.report(epoch=1)

        (result,) = fit(train)
        assert result.checkpoint is None

    def test_one_that_is_written_after_the_last_report_is_dropped_with_a_warning(self, fit, caplog):
        def train(config):
            tune.report(epoch=1)
            with tune.checkpoint_dir(step=1) as directory:
                Path(directory, "state.json").write_text("1")

        (result,) = fit(train)
        assert result.checkpoint is None
        assert not list(Path(result.path).glob(".tmp*"))
        assert "after its last report, which is dropped" in caplog.text

    def test_only_the_latest_counts_if_two_are_written_before_a_report(self, fit):
        def train(config):
            for epoch in (1, 2):
                with tune.checkpoint_dir(step=epoch) as directory:
                    Path(directory, "state.json").write_text(str(epoch))
            tune.report(epoch=2)
            tune.report(epoch=3)

        (result,) = fit(train)
        assert states_of(result) == [(2, 2)]
        assert not list(Path(result.path).glob(".tmp*"))


class TestSettings:
    def test_local_dir_is_the_storage_path_where_there_is_none(self, tmp_path):
        run = tune.RunConfig(name="exp", local_dir=tmp_path / "mine", verbose=0, executor="inline")
        results = tune.Tuner(lambda config: {"loss": 1.0}, run_config=run).fit()
        assert Path(results.experiment_path) == tmp_path / "mine" / "exp"
        assert tune.Tuner.can_restore(tmp_path / "mine" / "exp")

    def test_local_dir_and_a_directory_as_storage_path_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="local_dir"):
            tune.RunConfig(local_dir=tmp_path, storage_path=tmp_path)

    def test_a_sync_config_has_no_effect_and_says_so_once(self, fit, recwarn):
        for _ in range(2):
            config = tune.SyncConfig(syncer="auto", sync_period=60, sync_on_checkpoint=True)
            fit(lambda config: {"loss": 1.0}, sync_config=config, if_exists="replace")
        said = [str(one.message) for one in recwarn if "SyncConfig" in str(one.message)]
        assert len(said) <= 1  # another test of this process may have been told before

    def test_an_upload_dir_is_no_setting_without_effect(self):
        with pytest.raises(ValueError, match="storage_path='s3://bucket/dir'"):
            tune.SyncConfig(upload_dir="s3://bucket/dir")

    @pytest.mark.parametrize("names", [("asha", "optuna"), ("fifo", "random"), ("auto", "auto")])
    def test_algorithms_may_be_given_by_name(self, build, names):
        scheduler, searcher = names
        config = tune.TuneConfig(
            metric="loss", mode="min", num_samples=2, scheduler=scheduler, search_alg=searcher
        )
        for name in ("one", "two"):  # the same settings serve two experiments
            results = build(
                lambda config: {"loss": config["x"]},
                {"x": tune.uniform(0, 1)},
                tune={field: getattr(config, field) for field in config.__slots__},
                name=name,
            ).fit()
            assert len(results) == 2

    @pytest.mark.parametrize("part", ["scheduler", "search_alg"])
    def test_an_unknown_name_is_refused_at_construction(self, part):
        with pytest.raises(ValueError, match="optunna"):
            tune.TuneConfig(**{part: "optunna"})


class TestObjective:
    @pytest.mark.parametrize(
        ("settings", "parts"),
        [
            ({"metric": "loss"}, {"scheduler": lambda: ASHAScheduler(mode="min")}),
            ({"metric": "loss"}, {"search_alg": lambda: TreeSearch(mode="min")}),
            ({}, {"scheduler": lambda: ASHAScheduler(metric="loss", mode="min")}),
            (
                {},
                {
                    "scheduler": lambda: ASHAScheduler(metric="loss", mode="min"),
                    "search_alg": lambda: OptunaSearch(seed=1),
                },
            ),
            (
                {},
                {
                    "scheduler": ASHAScheduler,
                    "search_alg": lambda: TreeSearch(metric="loss", mode="min"),
                },
            ),
            (
                {"metric": "loss"},
                {
                    "scheduler": lambda: ASHAScheduler(mode="min"),
                    "search_alg": TreeSearch,
                },
            ),
            (
                {"mode": "min"},
                {
                    "scheduler": lambda: ASHAScheduler(metric="loss"),
                    "search_alg": TreeSearch,
                },
            ),
        ],
    )
    def test_it_may_be_given_in_one_place(self, fit, settings, parts):
        results = fit(
            lambda config: {"loss": config["x"]},
            {"x": tune.uniform(0, 1)},
            tune={
                "num_samples": 4,
                "seed": 1,
                **settings,
                **{name: make() for name, make in parts.items()},
            },
        )
        best = min(result.metrics["loss"] for result in results)
        assert results.get_best_result().metrics["loss"] == best

    @pytest.mark.parametrize(
        ("name", "kind"), [("scheduler", ASHAScheduler), ("search_alg", TreeSearch)]
    )
    def test_a_restore_knows_it_too(self, build, tmp_path, name, kind):
        def train(config):
            return {"loss": config["x"]}

        settings = {"metric": "loss", "num_samples": 3, "seed": 1, name: kind(mode="min")}
        build(train, {"x": tune.uniform(0, 1)}, tune=settings).fit()
        results = tune.Tuner.restore(tmp_path / "experiment", train, num_samples=5).fit()
        assert len(results) == 5
        best = min(result.metrics["loss"] for result in results)
        assert results.get_best_result().metrics["loss"] == best

    def test_a_mode_of_another_metric_does_not_count(self):
        with pytest.raises(ValueError, match="mode must be 'min' or 'max'"):
            tune.Tuner(
                lambda config: None,
                tune_config=tune.TuneConfig(
                    scheduler=ASHAScheduler(metric="loss"),
                    search_alg=TreeSearch(metric="accuracy", mode="max"),
                ),
            ).fit()

    def test_a_metric_without_any_mode_is_refused_at_construction(self):
        with pytest.raises(ValueError, match="metric='loss' without a mode"):
            tune.TuneConfig(metric="loss", scheduler=ASHAScheduler())


class TestTrials:
    def test_a_trial_is_printed_by_its_name_and_its_questions_may_be_calls(self, fit):
        seen = []

        class Look(tune.Callback):
            def on_trial_complete(self, iteration, trials, trial, **info):
                seen.append(
                    (
                        str(trial),
                        f"{trial}",
                        trial.is_finished(),
                        bool(trial.is_finished),
                        trial.has_checkpoint(),
                        not trial.has_checkpoint,
                        json.dumps([trial.is_finished == True]),  # noqa: E712
                    )
                )

        def train_net(config):
            return {"loss": 1.0}

        fit(train_net, callbacks=[Look()])
        name = "train_net_t00000"
        assert seen == [(name, name, True, True, False, True, "[true]")]


def test_hyperband_without_checkpoints_names_the_remedy(build):
    results = build(
        lambda config: [tune.report(loss=1.0) for _ in range(9)] and None,
        {"x": tune.uniform(0, 1)},
        tune={
            "metric": "loss",
            "mode": "min",
            "num_samples": 3,
            "scheduler": HyperBandScheduler(max_t=9),
        },
    )
    with pytest.raises(tune.TunerError, match=r'ASHAScheduler\(type="stopping"\)'):
        results.fit()


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: TreeSearch(max_concurrent=2), "max_concurrent_trials"),
        (lambda: ASHAScheduler(reward_attr="accuracy"), "metric=... and mode"),
    ],
)
def test_an_argument_that_is_missing_names_the_remedy(make, remedy):
    with pytest.raises(TypeError, match=remedy):
        make()


def test_a_result_can_be_printed_prettily():
    from tuner.logger import pretty_print

    text = pretty_print({"loss": 0.5, "config": {"lr": 0.1}, "val": {"acc": 1}, "note": None})
    assert text == "config:\n  lr: 0.1\nloss: 0.5\nval:\n  acc: 1\n"


@pytest.mark.parametrize(
    ("get", "remedy"),
    [
        (lambda: tune.track, "use report"),
        (lambda: tune.get_trial_id, "get_context"),
        (lambda: tune.get_trial_dir, "get_context"),
        (lambda: tune.function, "leave it out"),
        (lambda: tune.session, "functions of tuner"),
        (lambda: Trial("t0", {}, {}).logdir, "local_path"),
        (
            lambda: tune.ExperimentAnalysis.__new__(tune.ExperimentAnalysis).best_logdir,
            "best_trial",
        ),
        (lambda: tune.Checkpoint.from_dict, "from_directory"),
        (lambda: tune.Checkpoint("x").to_dict, "as_directory"),
        (lambda: tune.Checkpoint("x").dir_or_data, "path"),
        (lambda: __import__("tuner.logger", fromlist=["x"]).DEFAULT_LOGGERS, "callbacks"),
        (lambda: __import__("tuner.integration.wandb", fromlist=["x"]).wandb_mixin, "setup_wandb"),
        (lambda: __import__("tuner.integration.mlflow", fromlist=["x"]).mlflow_mixin, "setup_ml"),
    ],
)
def test_a_name_that_is_missing_names_the_remedy(get, remedy):
    with pytest.raises(AttributeError, match=remedy):
        get()


@pytest.mark.parametrize("kind", [TreeSearch, OptunaSearch])
def test_a_searcher_suggests_and_is_saved_without_an_experiment(tmp_path, kind):
    space = {"x": tune.uniform(0, 1)}
    first = kind(space=space, metric="loss", mode="min", seed=1)
    for number in range(3):
        config = first.suggest(f"t{number}")
        first.on_trial_complete(f"t{number}", {"loss": config["x"]})
    first.save(str(tmp_path / "state"))
    second = kind(space=space, metric="loss", mode="min", seed=1)
    second.restore(str(tmp_path / "state"))
    assert second.suggest("t3") == first.suggest("t3")


def test_the_classes_of_ray_tune_0_name_the_methods_of_today(build):
    class Old(tune.Trainable):
        def _setup(self, config):
            pass

        def _train(self):
            return {}

    with pytest.raises(TypeError, match="rename _train to step, _setup to setup"):
        build(Old)


def test_nothing_is_logged_for_a_plain_script(fit, caplog):
    fit(lambda config: tune.report(loss=1.0))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
