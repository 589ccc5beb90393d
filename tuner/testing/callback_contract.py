"""Contract tests for callbacks."""
# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from schedulers.decisions import Reason
from tuner.callbacks.callback import Callback
from tuner.core.result import CONFIG, merged
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.storage.checkpoints import Checkpoint, locate

_CONFIG = {"lr": 0.1, "layers": [{"width": 8}], "nested": {"act": "relu"}}


class CallbackContract(ABC):
    """Tests that every callback has to pass; name a subclass ``Test...``.

    Each hook is called as the engine calls it: with keyword arguments, and with one more than is
    documented, as a later version may do. A hook that raises fails the test.

    Example:
        >>> class TestCallback(CallbackContract):
        ...     def make_callback(self):
        ...         return Callback()
        >>> TestCallback().test_it_handles_an_experiment()
    """

    @abstractmethod
    def make_callback(self) -> Callback:
        """Return a new callback."""

    @contextlib.contextmanager
    def _experiment(self) -> Iterator[_Experiment]:
        with tempfile.TemporaryDirectory() as directory:
            experiment = _Experiment(self.make_callback(), Path(directory))
            experiment.begin()
            yield experiment
            experiment.end()

    def test_it_handles_an_experiment(self) -> None:
        """Accept every hook in the order in which the engine calls them."""
        with self._experiment() as experiment:
            for number in range(3):
                trial = experiment.add(number)
                experiment.start(trial)
                for time in range(1, 4):
                    experiment.report(trial, time, loss=1.0 / time)
                    experiment.save(trial, time)
                experiment.complete(trial)

    def test_it_handles_failures(self) -> None:
        """Accept retries with repeated results, final failures, and trials that never report."""
        with self._experiment() as experiment:
            trial, silent, hopeless = experiment.add(0), experiment.add(1), experiment.add(2)
            experiment.start(trial)
            experiment.report(trial, 1, loss=0.5)
            experiment.save(trial, 1)
            experiment.report(trial, 2, loss=0.4)
            experiment.recover(trial)
            experiment.start(trial)
            experiment.report(trial, 2, loss=0.4)
            experiment.fail(trial)
            experiment.start(silent)
            experiment.complete(silent)
            experiment.fail(hopeless)

    def test_it_handles_validations(self) -> None:
        """Accept validations of checkpoints, which end later, or fail."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            experiment.start(trial)
            results = []
            for time in range(1, 4):
                results.append(experiment.report(trial, time, loss=1.0 / time))
                experiment.save(trial, time)
            experiment.validate(trial, 0, results[0], {"loss": 2.0, "val": {"acc": 0.5}})
            experiment.validate(trial, 1, results[1], None)
            experiment.validate(trial, 2, results[2], {"odd": math.nan, "text": "x", "list": [1]})
            experiment.complete(trial)

    def test_it_handles_pauses(self) -> None:
        """Accept a trial that starts again without having failed."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            for time in range(1, 4):
                experiment.start(trial)
                experiment.report(trial, time, loss=1.0 / time)
                experiment.save(trial, time)
            experiment.complete(trial)

    def test_it_handles_odd_results(self) -> None:
        """Accept values that are not finite or not numbers, nested metrics, and changing names."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            experiment.start(trial)
            for time, value in enumerate(
                (
                    math.nan,
                    math.inf,
                    -math.inf,
                    None,
                    "text",
                    [1.0, 2.0],
                    {"a": {"b": 1}},
                    {},
                    True,
                ),
                1,
            ):
                experiment.report(trial, time, odd=value)
            many: dict[str, Any] = {f"new/{number}": number for number in range(30)}
            experiment.report(trial, 10, **many)
            experiment.complete(trial)

    def test_it_handles_an_experiment_without_trials(self) -> None:
        """Accept an experiment without trials."""
        with self._experiment() as experiment:
            experiment.turn()

    def test_it_does_not_change_the_trial(self) -> None:
        """Do not change the trial, which belongs to the engine."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            experiment.start(trial)
            before = _fields(trial)
            result = experiment.report(trial, 1, loss=0.5)
            assert _fields(trial) == before, "a callback must not change the trial"
            # The same object: later callbacks and the engine read what this one has added to it.
            assert trial.last_result is result, (
                "a callback must not replace the trial's last result"
            )

    def test_it_keeps_the_entries_of_a_result(self) -> None:
        """Keep the reported metrics for later callbacks; new ones may be added."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            experiment.start(trial)
            result = experiment.report(trial, 1, loss=0.5, nested={"acc": 0.9})
            assert (result["loss"], result["nested"], result[CONFIG]) == (
                0.5,
                {"acc": 0.9},
                _CONFIG,
            )

    def test_its_state_is_json_and_can_be_restored(self) -> None:
        """Return from `get_state` None or JSON values that `set_state` accepts."""
        with self._experiment() as experiment:
            trial = experiment.add(0)
            experiment.start(trial)
            experiment.report(trial, 1, loss=0.5)
            state = experiment.callback.get_state()
            if state is not None:
                self.make_callback().set_state(json.loads(json.dumps(state)))
            experiment.complete(trial)


@final
class _Experiment:
    """An experiment that calls the hooks of a callback."""

    def __init__(self, callback: Callback, directory: Path) -> None:
        self.callback = callback
        self.trials: list[Trial] = []
        self._directory = directory
        self._turn = 0

    def begin(self) -> None:
        """Begin the experiment."""
        self.callback.setup(
            stop={"training_iteration": 3},
            num_samples=3,
            total_num_samples=None,
            experiment_path=self._directory,
            metric="loss",
            mode="min",
            space={},
            added_in_a_later_version=1,
        )

    def end(self) -> None:
        """End the experiment."""
        self.callback.on_experiment_end(trials=self.trials, added_in_a_later_version=1)

    def turn(self) -> None:
        """Take a turn of the driver without events."""
        self._turn += 1
        info: dict[str, Any] = {
            "iteration": self._turn,
            "trials": self.trials,
            "added_in_a_later_version": 1,
        }
        self.callback.on_step_begin(**info)
        self.callback.on_step_end(**info)

    def add(self, number: int) -> Trial:
        """Add a trial; callbacks are not notified yet."""
        trial = Trial(f"t{number:05d}", copy.deepcopy(_CONFIG), {"cpu": 1.0}, f"{number}_lr=0.1")
        locate(trial, self._directory / trial.trial_id, "train")
        Path(trial.local_path).mkdir()
        self.trials.append(trial)
        return trial

    def start(self, trial: Trial) -> None:
        """Start an attempt, from the latest checkpoint if there is one."""
        trial.move_to(Status.RUNNING)
        trial.attempt += 1
        trial.go_back_to_source()
        self.callback.on_trial_start(**self._info(trial))
        if trial.has_checkpoint:
            self.callback.on_trial_restore(**self._info(trial))

    def report(self, trial: Trial, time: int, **metrics: Any) -> dict[str, Any]:
        """Report a result; return it as the callback has left it."""
        result = {
            **metrics,
            "training_iteration": time,
            "trial_id": trial.trial_id,
            "timestamp": 1_700_000_000 + time,
            "time_total_s": float(time),
            CONFIG: trial.config,
        }
        trial.last_result = result
        self.callback.on_trial_result(result=result, **self._info(trial))
        return result

    def save(self, trial: Trial, time: int) -> None:
        """Commit a checkpoint."""
        record = CheckpointRecord(trial.next_checkpoint, time)
        trial.next_checkpoint += 1
        trial.checkpoints.append(record)
        directory = Path(trial.local_path, record.directory)
        directory.mkdir()
        self.callback.on_checkpoint(checkpoint=Checkpoint(directory), **self._info(trial))
        self.callback.on_trial_save(**self._info(trial))

    def validate(
        self,
        trial: Trial,
        index: int,
        result: Mapping[str, Any],
        metrics: Mapping[str, Any] | None,
    ) -> None:
        """End the validation of a checkpoint; without metrics it has failed."""
        directory = Path(trial.local_path, trial.checkpoints[index].directory)
        self.callback.on_checkpoint_validated(
            checkpoint=Checkpoint(directory),
            status="VALIDATION_FAILED" if metrics is None else "VALIDATED",
            metrics=metrics or {},
            result=merged(result, metrics or {}),
            failure=Failure("ValueError", "boom") if metrics is None else None,
            **self._info(trial),
        )

    def recover(self, trial: Trial) -> None:
        """Fail an attempt that will be retried."""
        self._add_failure(trial)
        trial.move_to(Status.PENDING)
        self.callback.on_trial_recover(**self._info(trial))

    def fail(self, trial: Trial) -> None:
        """Fail a trial without retries left."""
        self._add_failure(trial)
        trial.move_to(Status.ERROR)
        trial.ending = TerminationReason.FAILED
        self.callback.on_trial_error(**self._info(trial))

    def complete(self, trial: Trial) -> None:
        """Complete a trial."""
        trial.move_to(Status.TERMINATED)
        trial.ending, trial.reason = (
            TerminationReason.STOPPED_EARLY,
            Reason("asha.rung", {"rung": 1}),
        )
        self.callback.on_trial_complete(**self._info(trial))

    def _info(self, trial: Trial) -> dict[str, Any]:
        self.turn()
        return {
            "iteration": self._turn,
            "trials": self.trials,
            "trial": trial,
            "added_in_a_later_version": 1,
        }

    @staticmethod
    def _add_failure(trial: Trial) -> None:
        trial.failures.append(
            Failure("ValueError", "boom", "Traceback (most recent call last): ...")
        )
        trial.num_failures += 1


def _fields(trial: Trial) -> Mapping[str, str]:
    """Return a trial's fields except its last result, to which a callback may add."""
    return {
        name: repr(getattr(trial, name))
        for name in Trial.__slots__
        if name not in ("__weakref__", "last_result")
    }
