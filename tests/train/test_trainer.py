"""Trainers: runs of two workers."""

import os
import signal
import threading
from pathlib import Path

import pytest

import tuner as tune
from tests.waiting import wait_until
from tuner import train
from tuner.analysis.report.as_code import as_code
from tuner.restore.resume_command import recorded_snippet, restore_line
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.process


def loop(config):
    """Report the epoch and rank, save from both workers, continue from checkpoints."""
    context = train.get_context()
    rank, first = context.get_world_rank(), 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            first = int(Path(directory, "epoch-0").read_text()) + 1
    for epoch in range(first, config["epochs"]):
        with train.checkpoint_dir() as directory:
            Path(directory, f"epoch-{rank}").write_text(str(epoch))
            saved = train.Checkpoint.from_directory(directory)
            train.report({"epoch": epoch, "rank": rank, "lr": config.get("lr", 0)}, saved)
        if config.get("fails") == (rank, epoch) and not first:
            raise ValueError("no data")
    return {"first": first, "size": context.get_world_size()}


def test_two_workers_train_one_trial(trainer):
    result = trainer(loop, {"epochs": 2}).fit()
    assert result.error is None
    assert result.metrics["epoch"] == 1
    assert result.metrics["rank"] == 0
    assert result.return_value == {"first": 0, "size": 2}
    files = {path.name for path in Path(result.checkpoint.path).iterdir()}
    assert {"epoch-0", "epoch-1"} <= files
    assert len(result.metrics_dataframe) == 2


def test_metrics_without_checkpoints_are_kept(trainer):
    def report_only(config):
        for epoch in range(3):
            train.report({"epoch": epoch})

    result = trainer(report_only).fit()
    assert result.metrics_dataframe["epoch"].tolist() == [0, 1, 2]
    assert result.checkpoint is None


def test_a_function_without_arguments_is_called_without_any(trainer):
    assert trainer(lambda: train.report({"done_by": 1}), num_workers=1).fit().error is None


def test_no_workers_train_in_this_process(trainer):
    def where():
        train.report({"process": os.getpid(), "size": train.get_context().get_world_size()})

    metrics = trainer(where, num_workers=0).fit().metrics
    assert (metrics["process"], metrics["size"]) == (os.getpid(), 1)


def test_a_retry_continues_from_the_latest_checkpoint(trainer):
    failure = train.FailureConfig(max_failures=1)
    config = {"epochs": 4, "fails": (1, 1)}
    result = trainer(loop, config, run={"failure_config": failure}).fit()
    assert result.return_value == {"first": 2, "size": 2}
    assert result.metrics_dataframe["epoch"].tolist() == [0, 1, 2, 3]


def test_the_error_names_the_worker_that_failed(trainer):
    with pytest.raises(train.WorkerGroupError, match="no data") as raised:
        trainer(loop, {"epochs": 4, "fails": (1, 1)}).fit()
    assert list(raised.value.worker_failures) == [1]
    assert isinstance(raised.value.worker_failures[1], ValueError)


def test_the_death_of_a_worker_is_a_failure_of_the_group(trainer):
    def die(config):
        train.report({"epoch": 0})
        if train.get_context().get_world_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        train.report({"epoch": 1})

    with pytest.raises(train.TrainingFailedError, match="SIGKILL"):
        trainer(die).fit()


def test_an_interruption_tells_all_workers_the_same_reason_and_deadline(tmp_path, trainer):
    def leave(config):
        rank = train.get_context().get_world_rank()
        assert train.get_preemption_info() is None
        try:
            while True:
                train.report({"epoch": 0})
                Path(tmp_path, "begun").touch()
        finally:
            Path(tmp_path, str(rank)).write_text(repr(train.get_preemption_info()))

    handle = tune.Tuner(trainer(leave)).start()
    wait_until(Path(tmp_path, "begun").exists)
    handle.stop()
    handle.wait()
    first, second = (Path(tmp_path, name).read_text() for name in ("0", "1"))
    assert "[0, 1]" in first
    assert "reason='user.stop'" in first
    assert first == second


def test_the_same_name_continues_a_run_and_says_so(trainer, capsys):
    with pytest.raises(train.WorkerGroupError):
        trainer(loop, {"epochs": 4, "fails": (0, 1)}).fit()
    result = trainer(loop, {"epochs": 4}, run={"verbose": 1}).fit()
    assert result.return_value["first"] == 2
    assert "is continued from its latest checkpoint" in capsys.readouterr().out
    assert trainer(loop, {"epochs": 6}).fit().return_value["first"] == 4


def test_another_number_of_workers_than_the_checkpoint_has_is_a_warning(trainer):
    for num_workers, epochs in ((1, 1), (1, 2), (2, 3)):
        result = trainer(loop, {"epochs": epochs}, num_workers=num_workers).fit()
    assert result.return_value == {"first": 2, "size": 2}
    told = Path(result.path, "stderr").read_text()
    assert told.count("training continues from") == 1
    assert "which a group of 1 has written, with num_workers=2" in told


def test_the_name_of_a_completed_run_calls_the_function_again(trainer):
    def report_only(config):
        for epoch in range(config["epochs"]):
            train.report({"epoch": epoch})

    assert trainer(loop, {"epochs": 2}, num_workers=1).fit().return_value["first"] == 0
    again = trainer(loop, {"epochs": 2}, num_workers=1).fit()
    assert again.return_value["first"] == 2  # nothing was left to do
    assert again.metrics_dataframe["epoch"].tolist() == [0, 1]
    name = {"name": "without checkpoints"}
    for epochs in (3, 2):
        result = trainer(report_only, {"epochs": epochs}, num_workers=1, run=name).fit()
        assert result.metrics_dataframe["epoch"].tolist() == list(range(epochs))


def test_another_function_under_the_name_of_a_run_is_refused_with_what_to_do(trainer):
    def other(config):
        checkpoint = train.get_checkpoint()
        first = int(Path(checkpoint.path, "epoch-0").read_text()) if checkpoint else None
        train.report({"first": first})

    first = trainer(loop, {"epochs": 2}, num_workers=1).fit()
    remedies = r"RunConfig\(name=.*resume_from_checkpoint.*if_exists='replace'"
    with pytest.raises(ValueError, match=f"must be 'loop'.*got 'other'; .*{remedies}"):
        trainer(other, num_workers=1).fit()
    beside = trainer(
        other, num_workers=1, run={"name": "other"}, resume_from_checkpoint=first.checkpoint
    )
    assert beside.fit().metrics["first"] == 1
    replacing = trainer(other, num_workers=1, run={"if_exists": "replace"}).fit()
    assert replacing.metrics["first"] is None


def test_a_run_of_a_trainer_is_restored_with_a_trainer(trainer):
    made = trainer(loop, {"epochs": 1}, num_workers=1)
    path = Path(made.fit().path).parent
    with pytest.raises(ValueError, match=r"must be a DataParallelTrainer.*got 'loop'; pass the"):
        tune.Tuner.restore(path, loop)
    assert tune.Tuner.restore(path, made).fit()[0].metrics["epoch"] == 0
    program, (lacking,) = recorded_snippet(path)
    assert f"Tuner.restore({str(path)!r}, trainer).fit()" in program
    assert (
        lacking == f"trainer is the DataParallelTrainer of the function loop of module {__name__}"
    )
    assert restore_line(path, made._tuner()._spec) == f"Tuner.restore({str(path)!r}, trainer).fit()"


def test_the_code_of_a_search_names_the_trainer(trainer):
    made = trainer(loop, {"epochs": 1, "lr": 1}, num_workers=1)
    space = {"train_loop_config": {"lr": tune.grid_search([0.1])}}
    path = tune.Tuner(made, param_space=space).fit().experiment_path
    code = as_code(read_declaration(Path(path)))
    assert "from tuner.train.trainer import DataParallelTrainer" in code
    assert "    DataParallelTrainer(loop, scaling_config=...),\n" in code
    assert "# all arguments of DataParallelTrainer have to be given again" in code


def test_the_name_of_a_search_is_refused(trainer):
    made = trainer(loop, {"epochs": 1})
    space = {"train_loop_config": {"lr": tune.grid_search([0.1, 0.2])}}
    tune.Tuner(made, param_space=space).fit()
    with pytest.raises(ValueError, match="that of a search"):
        made.fit()


def test_a_run_begins_with_the_checkpoint_that_it_is_given(trainer):
    first = trainer(loop, {"epochs": 2}, run={"name": "first"}).fit()
    second = trainer(loop, {"epochs": 4}, resume_from_checkpoint=first.checkpoint).fit()
    assert second.return_value["first"] == 2
    assert second.metrics_dataframe["epoch"].tolist() == [2, 3]


def test_a_run_is_not_replaced_by_one_that_begins_with_its_checkpoint(trainer):
    first = trainer(loop, {"epochs": 1}, num_workers=1).fit()
    replacing = trainer(
        loop,
        {"epochs": 2},
        num_workers=1,
        run={"if_exists": "replace"},
        resume_from_checkpoint=first.checkpoint,
    )
    with pytest.raises(ValueError, match=r"resume_from_checkpoint.*if_exists='replace'"):
        replacing.fit()
    with pytest.raises(ValueError, match=r"resume_from_checkpoint.*if_exists='replace'"):
        tune.Tuner(replacing).fit()
    assert Path(first.checkpoint.path, "epoch-0").exists()


def test_each_worker_reads_its_shard(trainer):
    def read(config):
        shard = train.get_dataset_shard("train")
        whole = train.get_dataset_shard("validation")
        total = sum(row for row in shard)
        assert train.get_dataset_shard("train") is shard  # which counts its passes
        train.report({"rows": len(shard), "total": total, "whole": len(whole)})

    seen = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.extend(metrics)

    trainer(
        read,
        datasets={"train": list(range(10)), "validation": list(range(3))},
        dataset_config=train.DataConfig(["train"]),
        run={"callbacks": [Keep()]},
    ).fit()
    assert [own["rows"] for own in seen] == [5, 5]
    assert sorted(own["total"] for own in seen) == [20, 25]
    assert [own["whole"] for own in seen] == [3, 3]


def test_a_missing_dataset_is_named(trainer):
    def read(config):
        train.get_dataset_shard("test")

    with pytest.raises(train.WorkerGroupError, match="there is no dataset 'test', only 'train'"):
        trainer(read, datasets={"train": [1]}, num_workers=1).fit()


def test_callbacks_hear_all_workers_and_the_stored_checkpoint(trainer):
    reports, failures = [], []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            assert Path(checkpoint.path, "epoch-1").exists()
            reports.append(([own["rank"] for own in metrics], run_context.train_loop_config))

        def after_exception(self, run_context, worker_exceptions):
            failures.append(list(worker_exceptions))

    config = {"epochs": 2, "fails": (1, 1)}
    with pytest.raises(train.WorkerGroupError):
        trainer(loop, config, run={"callbacks": [Keep()]}).fit()
    assert reports == [([0, 1], config)] * 2
    assert failures == [[1]]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_callbacks_hear_exactly_what_each_worker_has_reported(trainer, num_workers):
    def report_reserved(config):
        rank = train.get_context().get_world_rank()
        own = {
            "config": {"rank": rank},
            "time_total_s": 9.5,
            "training_iteration": 1,
            "done": False,
        }
        train.report({"loss": 0.5, **own})
        train.report({"loss": 0.25, **own})
        train.report({"loss": 0.125})

    seen = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.append(metrics)

    run = {"callbacks": [Keep()]}
    result = trainer(report_reserved, num_workers=num_workers, run=run).fit()
    own = {"time_total_s": 9.5, "training_iteration": 1, "done": False}
    assert seen == [
        [{"loss": 0.5, "config": {"rank": rank}, **own} for rank in range(num_workers)],
        [{"loss": 0.25, "config": {"rank": rank}, **own} for rank in range(num_workers)],
        [{"loss": 0.125}] * num_workers,
    ]
    assert result.metrics["training_iteration"] == 3
    assert result.metrics["time_total_s"] < 9.5
    assert result.config == {}


def test_values_go_from_rank_zero_to_all_workers(trainer):
    def share(config):
        rank = train.get_context().get_world_rank()
        data = train.collective.broadcast_from_rank_zero({"rank": rank, "epoch": 3})
        train.collective.barrier()
        folders = len(list(Path(train.get_context().get_trial_dir()).glob(".tmp-exchange-*")))
        train.report({"got": data["rank"], "epoch": data["epoch"], "folders": folders})

    seen = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.extend(metrics)

    trainer(share, run={"callbacks": [Keep()]}).fit()
    assert [(own["got"], own["epoch"]) for own in seen] == [(0, 3), (0, 3)]
    assert seen[0]["folders"] == 1, "rank 0 deletes what all have read"


def test_a_search_trains_each_trial_in_two_workers(trainer, run_config):
    space = {"train_loop_config": {"lr": tune.grid_search([0.1, 0.2])}}
    grid = tune.Tuner(trainer(loop, {"epochs": 1, "lr": 9}), param_space=space).fit()
    assert sorted(result.metrics["lr"] for result in grid) == [0.1, 0.2]
    assert [result.return_value["size"] for result in grid] == [2, 2]


def test_the_size_of_the_group_can_be_searched(trainer):
    space = {"scaling_config": {"num_workers": tune.grid_search([1, 2, 3])}}
    grid = tune.Tuner(trainer(loop, {"epochs": 1}), param_space=space).fit()
    assert sorted(result.return_value["size"] for result in grid) == [1, 2, 3]


def test_callbacks_need_not_be_picklable(trainer):
    class Locked(train.UserCallback):
        def __init__(self):
            self.lock = threading.Lock()

    assert trainer(loop, {"epochs": 1}, run={"callbacks": [Locked()]}).fit().error is None


def test_a_value_that_an_earlier_attempt_returned_does_not_stay(trainer):
    def return_once(config):
        is_first = train.get_checkpoint() is None
        with train.checkpoint_dir() as directory:
            train.report({"epoch": 0}, train.Checkpoint.from_directory(directory))
        return 3 if is_first else None

    assert trainer(return_once, num_workers=1).fit().return_value == 3
    assert trainer(return_once, num_workers=1).fit().return_value is None


def test_what_cannot_be_returned_is_left_out_with_a_warning(trainer):
    def give(config):
        train.report({"epoch": 0})
        return object()

    result = trainer(give, num_workers=1).fit()
    assert result.return_value is None
    assert "Result.return_value will be None" in Path(result.path, "stderr").read_text()


def test_all_workers_begin_with_the_seed_of_the_trial(trainer):
    def draw(config):
        import random  # noqa: PLC0415

        train.report({"drawn": random.random()})  # noqa: S311, TID251  (tested)

    drawn = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            drawn.extend(own["drawn"] for own in metrics)

    trainer(draw, run={"callbacks": [Keep()]}).fit()
    assert drawn[0] == drawn[1]


def test_a_checkpoint_is_due_on_all_workers_alike_whichever_reports_it(trainer):
    def save_sometimes(config):
        minutes = [0]
        every = train.CheckpointEvery(minutes=3, clock=lambda: 60 * minutes[0])
        for epoch in range(8):
            minutes[0] += 1
            is_due = every.is_due()
            with train.checkpoint_dir() as directory:
                saves = is_due and train.get_context().get_world_rank() == 1
                saved = train.Checkpoint.from_directory(directory) if saves else None
                tune.report({"epoch": epoch, "due": is_due}, saved)

    seen = []

    class Keep(train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.append([own["due"] for own in metrics])

    trainer(save_sometimes, run={"callbacks": [Keep()]}).fit()
    assert seen == [[epoch in {2, 5}] * 2 for epoch in range(8)]


def test_checkpoints_are_listed_once_they_are_stored(trainer):
    def list_them(config):
        for epoch in range(3):
            with train.checkpoint_dir() as directory:
                Path(directory, str(train.get_context().get_world_rank())).touch()
                train.report(
                    {"epoch": epoch},
                    train.Checkpoint.from_directory(directory),
                    checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC,
                )
        stored = train.CheckpointConsistencyMode.COMMITTED
        listed = train.get_all_reported_checkpoints(stored)
        assert all(Path(each.checkpoint.path, "1").exists() for each in listed)
        return [[each.metrics["epoch"], each.status.name] for each in listed]

    wanted = [[0, "COMMITTED"], [1, "COMMITTED"], [2, "COMMITTED"]]
    assert trainer(list_them).fit().return_value == wanted


def test_a_trial_that_runs_a_trainer_reports_its_results(trainer, run_config):
    def run_trainer(config):
        trainer(
            loop,
            {"epochs": 2, "lr": config["lr"]},
            run={"name": f"inner-{config['lr']}", "callbacks": [train.TuneReportCallback()]},
        ).fit()

    grid = tune.Tuner(
        run_trainer,
        param_space={"lr": tune.grid_search([1, 2])},
        run_config=run_config(name="outer"),
    ).fit()
    assert not grid.errors
    for result in grid:
        assert result.metrics_dataframe["epoch"].tolist() == [0, 1]
        assert Path(result.metrics["checkpoint_path"], "epoch-1").exists()


def test_a_search_over_a_trainer_is_restored_with_the_trainer(trainer, run_config):
    space = {"train_loop_config": {"fails": tune.grid_search([(1, 1)])}}
    made = trainer(loop, {"epochs": 3})
    failed = tune.Tuner(made, param_space=space).fit()
    assert failed.errors
    again = tune.Tuner.restore(failed.experiment_path, made, resume_errored=True).fit()
    assert again[0].metrics["epoch"] == 2
    assert again[0].return_value == {"first": 2, "size": 2}


def test_a_run_is_continued_with_the_number_of_workers_that_is_declared_now(trainer, caplog):
    with pytest.raises(train.WorkerGroupError):
        trainer(loop, {"epochs": 2, "fails": (0, 0)}).fit()
    assert trainer(loop, {"epochs": 2}, num_workers=3).fit().return_value == {"first": 1, "size": 3}
    assert "over 3 workers with 1 cpu each from now on, and not over 2 workers" in caplog.text


def test_a_trainer_runs_with_the_number_of_workers_that_fits(trainer, run_config):
    def tell():
        train.report({"size": train.get_context().get_world_size()})

    made = trainer(tell, num_workers=(1, 8))
    assert made.fit().metrics["size"] == 4
