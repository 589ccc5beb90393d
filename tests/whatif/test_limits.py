"""Limits of recordings, which are stated in caveats or refused."""

import json

import pytest

import tuner as tune
from schedulers import (
    PB2,
    ASHAScheduler,
    FIFOScheduler,
    MFPopulationBasedTraining,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)
from schedulers.decisions import Exploit, Reason, Resize
from schedulers.scheduler import Scheduler
from searchers import ConcurrencyLimiter, TreeSearch, create_searcher
from tests.analysis.clustered import write
from tuner.core.events import USER_FORK, USER_STOP
from tuner.core.trial import AppliedExploit, Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.journal.rows import MemoryRows
from tuner.testing import simulate
from tuner.whatif import ReplayEnding

ASHA = {"max_t": 4, "reduction_factor": 2, "type": "stopping"}
POLICY = [["0_a", "1_b", 10, 10, {"lr": 0.1}, {"lr": 0.2}]]
CHANGING = [
    PopulationBasedTraining(hyperparam_mutations={"number": [0, 1]}),
    PB2(hyperparam_bounds={"number": [0.0, 1.0]}),
    MFPopulationBasedTraining(hyperparam_mutations={"number": [0, 1]}),
    PopulationBasedTrainingReplay(POLICY),
    ResourceChangingScheduler(),
]


@pytest.fixture
def world(worlds):
    return worlds.World(
        [[1.0, 0.9, 0.8, 0.7], [2.0, 0.5, 0.1, 0.05], [3.0, 2.9, 2.8, 2.7]], [1.0, 1.0, 1.0]
    )


@pytest.mark.parametrize("scheduler", CHANGING, ids=lambda scheduler: type(scheduler).__name__)
def test_schedulers_that_change_trials_are_refused(record, world, scheduler):
    recorded = record(world)
    with pytest.raises(
        ValueError, match=f"must only stop, pause and resume trials, got {type(scheduler).__name__}"
    ):
        tune.what_if(recorded.path, scheduler)
    with pytest.raises(ValueError, match="must only stop, pause and resume"):
        tune.what_if(recorded.path, {"fifo": "fifo", "other": scheduler})


class Changing(Scheduler):
    """Changes a trial at its first result without having declared it."""

    def __init__(self, kind):
        self.kind = kind

    def on_trial_result(self, trial, result):
        reason = Reason("test")
        if self.kind == "resize":
            return [Resize(trial.trial_id, {"cpu": 1.0}, reason)]
        return [Exploit(trial.trial_id, trial.trial_id, {"number": 0}, reason)]


@pytest.mark.parametrize("kind", ["resize", "exploit"])
def test_one_that_does_not_say_so_is_refused_when_it_does(record, world, kind):
    with pytest.raises(
        ValueError, match="got Changing, which gives them other configurations or resources"
    ):
        tune.what_if(record(world, can_save=True).path, Changing(kind))


def test_recordings_of_population_based_training_are_refused():
    def curve(config):
        yield from ({"loss": config["x"]} for _ in range(8))

    simulation = simulate(
        curve,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=4,
            seed=1,
            scheduler=PopulationBasedTraining(
                perturbation_interval=2,
                hyperparam_mutations={"x": tune.uniform(0, 1)},
                quantile_fraction=0.5,
            ),
        ),
    )
    assert any(trial.grafts for trial in simulation.grid.trials)
    with pytest.raises(
        ValueError,
        match="what-if cannot replay population based training: trials changed their configuration",
    ):
        tune.what_if(simulation.grid, FIFOScheduler(), slots=1)


def test_requests_of_users_are_left_out_or_cut_curves():
    def trial_of(trial_id, losses, reason=None, *, is_fork=False):
        trial = Trial(trial_id, {}, {"cpu": 1.0})
        trial.move_to(Status.TERMINATED)
        trial.attempt, trial.reason = 1, reason
        trial.ending = TerminationReason.STOPPED_EARLY if reason else TerminationReason.COMPLETED
        if is_fork:
            checkpoint = CheckpointRecord(0, 1)
            trial.grafts = [
                AppliedExploit(0, 0, 0, {}, "t00000", checkpoint, 1, 0, Reason(USER_FORK))
            ]
        return trial, [
            {"loss": loss, "training_iteration": step + is_fork, "time_this_iter_s": 1.0}
            for step, loss in enumerate(losses, 1)
        ]

    told = [
        trial_of("t00000", [1.0, 0.9]),
        trial_of("t00001", [2.0], Reason(USER_STOP)),
        trial_of("f00000", [0.5], is_fork=True),
    ]
    rows = MemoryRows({trial.trial_id: rows for trial, rows in told})
    answer = tune.what_if(
        tune.ResultGrid([trial for trial, _ in told], "nowhere", rows, "loss", "min"),
        "fifo",
        slots=1,
    )
    assert [(trial.trial_id, trial.ending) for trial in answer.trials] == [
        ("t00000", ReplayEnding.COMPLETED),
        ("t00001", ReplayEnding.RAN_OUT),
    ]
    assert "1 of 3 trials were forked from others by hand and are left out" in answer.caveats


def test_an_answer_beyond_the_recorded_curves_is_a_bound(record, world):
    recorded = record(world, ASHAScheduler(max_t=4, reduction_factor=3, type="stopping"))
    answer = tune.what_if(recorded.path, FIFOScheduler())
    assert [trial.ending for trial in answer.trials] == [ReplayEnding.RAN_OUT] * 3
    assert (answer.num_cut, answer.num_run_out, answer.is_bound) == (3, 3, True)
    assert answer.caveats[0].startswith(
        "3 of 3 trials would have trained longer than they were recorded, so this says little"
    )


def test_where_few_curves_run_out_the_answer_says_that_it_is_one(record, worlds):
    recorded = record(
        worlds.World([[1.0] * 4, [2.0] * 4, [0.5] * 3, [0.4] * 3], [1.0] * 4), ASHAScheduler(**ASHA)
    )
    answer = tune.what_if(
        recorded.path, ASHAScheduler(max_t=4, grace_period=2, reduction_factor=2, type="stopping")
    )
    assert [trial.ending for trial in answer.trials] == [
        ReplayEnding.COMPLETED,
        ReplayEnding.RAN_OUT,
        ReplayEnding.COMPLETED,
        ReplayEnding.COMPLETED,
    ]
    assert "it would take longer than this, and might find something better" in answer.caveats[0]
    assert answer.is_bound


def test_if_no_curve_runs_out_the_answer_is_exact_except_for_better_full_trainings(record, world):
    recorded = record(world, ASHAScheduler(**ASHA))
    answer = tune.what_if(recorded.path, ASHAScheduler(**ASHA))
    assert (answer.num_cut, answer.num_run_out, answer.is_bound) == (3, 0, False)
    assert "more quality be lost than it seems" in answer.caveats[0]


def test_trials_that_an_interruption_cut_short_are_cut(record, worlds):
    recorded = record(worlds.World([[1.0] * 9] * 4, [1.0] * 4), time_budget_s=12.0)
    answer = tune.what_if(recorded.path, FIFOScheduler())
    assert [trial.ending for trial in answer.trials] == [
        ReplayEnding.COMPLETED,
        ReplayEnding.RAN_OUT,
    ]
    assert any(caveat.startswith("2 of 4 trials never ran") for caveat in answer.caveats)


def test_a_caveat_names_a_searcher_that_learns(record, world):
    space = {"number": tune.randint(0, 3)}
    assert (
        tune.what_if(
            record(world, space=space, search_alg=create_searcher("random")).path, "fifo"
        ).caveats
        == ()
    )
    for searcher in (TreeSearch(), ConcurrencyLimiter(TreeSearch(), 1)):
        (caveat,) = tune.what_if(
            record(world, space=space, search_alg=searcher).path, "fifo"
        ).caveats
        assert (
            caveat
            == "TreeSearch chose configurations by earlier results; the replay keeps those that "
            "it chose then"
        )


def test_a_limiter_limits_the_replay_as_well(record, worlds):
    world = worlds.World([[1.0] * 4] * 4, [1.0] * 4)
    recorded = record(world, slots=4, search_alg=ConcurrencyLimiter(create_searcher("random"), 2))
    answer = tune.what_if(recorded.path, FIFOScheduler())
    assert (answer.num_slots, answer.in_full.wall_clock_s, answer.recorded.wall_clock_s) == (
        2,
        8.0,
        8.0,
    )


def test_without_a_directory_slots_have_to_be_given():
    def curve(config):
        yield {"loss": 1.0}

    grid = simulate(
        curve, tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=2)
    ).grid
    with pytest.raises(
        ValueError, match="slots must be given, got None: 'simulated' does not record"
    ):
        tune.what_if(grid, FIFOScheduler())
    answer = tune.what_if(grid, FIFOScheduler(), slots=1)
    assert (answer.recorded, answer.replayed.wall_clock_s) == (None, 2.0)
    assert answer.caveats == (
        (
            "the directory records neither how trials ended nor what else took time; each curve "
            "counts as complete"
        ),
    )


def test_ray_tunes_directories_are_asked_with_metric_mode_and_slots(tmp_path):
    for number, losses in enumerate([[1.0, 0.9], [2.0, 1.9], [0.5, 0.4]]):
        trial = tmp_path / f"train_0a1b2_0000{number}_{number}_x={number}_2026-11-21_05-33-04"
        trial.mkdir()
        (trial / "params.json").write_text(json.dumps({"x": number}))
        rows = [
            {
                "loss": loss,
                "training_iteration": step,
                "time_this_iter_s": 10.0,
                "trial_id": f"0a1b2_0000{number}",
                "done": step == 2,
            }
            for step, loss in enumerate(losses, start=1)
        ]
        (trial / "result.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    answer = tune.what_if(
        tmp_path, "asha", slots=1, metric="loss", mode="min", max_t=2, reduction_factor=2
    )
    assert [(trial.trial_id, trial.ending, trial.iterations) for trial in answer.trials] == [
        ("0a1b2_00000", ReplayEnding.COMPLETED, 2),
        ("0a1b2_00001", ReplayEnding.STOPPED, 1),
        ("0a1b2_00002", ReplayEnding.COMPLETED, 2),
    ]
    assert (answer.recorded, answer.in_full.wall_clock_s, answer.replayed.wall_clock_s) == (
        None,
        60.0,
        50.0,
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scheduler": 3}, TypeError, "scheduler must be a scheduler or the name of one, got 3"),
        ({"scheduler": "ahsa"}, ValueError, "did you mean 'asha'"),
        ({"scheduler": "asha", "max_tt": 3}, TypeError, "did you mean 'max_t'"),
        (
            {"scheduler": FIFOScheduler(), "max_t": 3},
            TypeError,
            r"arguments must come with the name of a scheduler, got \['max_t'\]",
        ),
        ({"scheduler": {}}, ValueError, "scheduler must hold one scheduler at least"),
        ({"scheduler": {"a": "asha"}, "max_t": 3}, ValueError, "each with its own arguments"),
        ({"scheduler": "fifo", "slots": 0}, ValueError, "slots must be at least 1, got 0"),
        ({"scheduler": "fifo", "slots": 1.5}, TypeError, "slots must be a whole number, got 1.5"),
        ({"scheduler": "fifo", "slots": True}, TypeError, "slots must be a whole number, got True"),
        ({"scheduler": "fifo", "metric": "los", "mode": "min"}, ValueError, "did you mean 'loss'"),
        (
            {"scheduler": "fifo", "metric": "nested/loss"},
            ValueError,
            "mode must be given with metric='nested/loss', got None",
        ),
        (
            {"scheduler": "fifo", "mode": "maximum"},
            ValueError,
            "mode must be 'min' or 'max', got 'maximum'",
        ),
        (
            {"scheduler": ASHAScheduler(metric="loss"), "metric": "nested/loss"},
            ValueError,
            "metric must be given once",
        ),
    ],
)
def test_bad_arguments_are_refused(record, world, arguments, error, message):
    with pytest.raises(error, match=message):
        tune.what_if(record(world).path, **arguments)


def test_a_directory_without_an_experiment_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        tune.what_if(tmp_path / "nowhere", "fifo")


def test_a_recording_without_results_is_refused(record, worlds, monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    with pytest.raises(ValueError, match="recording must hold results, got none in 2 trials"):
        tune.what_if(record(worlds.World([[], []], [1.0, 1.0])).path, "fifo")


def test_one_of_several_objectives_is_judged_in_its_own_direction(record, world):
    grid = tune.ResultGrid.from_directory(record(world).path)
    objectives = (("loss", "min"), ("nested/loss", "max"))
    grid = tune.ResultGrid(grid.trials, grid.experiment_path, grid[0].rows, several=objectives)
    with pytest.raises(
        ValueError,
        match=r"optimised several: 'loss' \(min\), 'nested/loss' \(max\); name one of them$",
    ):
        tune.what_if(grid, "asha", **ASHA)
    assert tune.what_if(grid, "asha", metric="nested/loss", **ASHA).mode == "max"
    assert tune.what_if(grid, "asha", metric="loss", **ASHA).mode == "min"
    with pytest.raises(
        ValueError,
        match="mode must be given with metric='iter', got None; the recorded experiment optimised "
        "'loss', ",
    ):
        tune.what_if(grid, "asha", metric="iter", **ASHA)


def test_on_a_cluster_slots_have_to_be_given(tmp_path):
    path = write(tmp_path / "spread")
    with pytest.raises(ValueError, match="was begun on a cluster, whose nodes come and go; pass s"):
        tune.what_if(path, FIFOScheduler())
    assert tune.what_if(path, FIFOScheduler(), slots=1).num_slots == 1
