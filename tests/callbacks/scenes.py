"""Trials and progress as displays see them."""

from searchers.space import grid_search, uniform
from tuner.callbacks.files.background_writer import BatchWriter
from tuner.callbacks.files.tensorboard_logger import TBXLoggerCallback
from tuner.core.progress import Progress
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.trial_metrics import Evaluation, TrackedMetric
from tuner.core.worker_records import Failure


def trial_at(number, status=Status.RUNNING, ending=None, loss=None, **config):
    """Return a trial that has reported once; the higher its number, the better it is."""
    trial = Trial(
        f"t{number:05d}",
        {"lr": 0.001 * (number + 1), "act": "relu", "data": "x", **config},
        {"cpu": 1.0},
    )
    trial.local_path = f"/results/cifar/{trial.trial_id}"
    trial.attempt, trial.ending = 1, ending
    trial.move_to(status)
    loss = 0.5 - number / 100 if loss is None else loss
    trial.last_result = {
        "val": {"loss": loss},
        "acc": 0.5,
        "training_iteration": number + 1,
        "time_total_s": 101.0,
    }
    results = [{"val/loss": loss - 0.1, "acc": 0.5, "training_iteration": number}] if number else []
    results.append({"val/loss": loss, "acc": 0.5 + number / 100, "training_iteration": number + 1})
    trial.summarise(results[-1])
    trial.objective = TrackedMetric.of_results(results, "val/loss", "min")
    return trial


def event_logger(writer):
    """Return a logger of event files that knows a metric and a space."""
    logger = TBXLoggerCallback(writer)
    logger.setup(
        metric="loss",
        mode="min",
        space={"lr": uniform(0, 1), "net": {"width": grid_search([1, 2])}, "data": "x"},
    )
    return logger


def finish(logger, trial, *, failed=False):
    """End a trial and its experiment for a logger."""
    trial.move_to(Status.ERROR if failed else Status.TERMINATED)
    trial.ending = TerminationReason.FAILED if failed else TerminationReason.COMPLETED
    logger.log_trial_end(trial, failed=failed)
    logger.on_experiment_end(trials=[trial])


def failed_trial(number, *, is_over=True, message="exploded"):
    """Return a trial whose latest attempt has failed."""
    trial = trial_at(
        number, *((Status.ERROR, TerminationReason.FAILED) if is_over else (Status.PENDING,))
    )
    trial.failures = [Failure("ValueError", message, "Traceback")]
    return trial


def some_trials():
    """Return three trials that run, six that were stopped, and one that failed."""
    running = [trial_at(number) for number in range(3)]
    stopped = [
        trial_at(number, Status.TERMINATED, TerminationReason.STOPPED_EARLY)
        for number in range(3, 9)
    ]
    return [*running, *stopped, failed_trial(9)]


def progress_of(trials):
    """Return the progress of an experiment with `some_trials`."""
    return Progress(
        name="cifar",
        metric="val/loss",
        mode="min",
        num_trials_by_status={
            Status.RUNNING: 3,
            Status.TERMINATED: 6,
            Status.ERROR: 1,
            Status.PAUSED: 2,
        },
        num_stopped_early=4,
        num_total=20,
        num_finished=7,
        elapsed_s=700.0,
        used={"cpu": 3.0, "gpu": 0.0},
        capacity={"cpu": 8.0, "gpu": 0.0},
        best=trials[8],
        best_last=Evaluation(0.42, 9, 2),
        best_ever=Evaluation(0.32, 8, 1),
        running=trials[:3],
        leaders=trials[8:2:-1],
        waiting_for="a free GPU",
        num_errors=1,
    )


def new_idle_writer(**options):
    """Return a writer of log files that writes by itself only what is beyond its capacity."""
    return BatchWriter(has_thread=False, **options)
