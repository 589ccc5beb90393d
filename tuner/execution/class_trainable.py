"""The base class of class trainables."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tuner.core.result import TIME_TOTAL_S
from tuner.errors import CheckpointError
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.directories import make_folder
from tuner.storage.manifest import Provenance, read_manifest, write_manifest
from tuner.storage.trees import contents_of

from .assignment import Assignment
from .metric_conversion import Converter, note_replaced_iteration
from .resources import PlacementGroupFactory
from .result_fields import AutoFill, counters_of, here

DICT_CHECKPOINT = "_dict_checkpoint.pkl"
"""File for the dictionary that `Trainable.save_checkpoint` returned."""
_STANDALONE = "default"


class Trainable(ABC):
    """Base of class trainables: training in steps, with state that can be saved and restored.

    Override `setup` and `step`; for checkpoints also `save_checkpoint` and `load_checkpoint`. The
    engine calls `setup` once, then `step` once for each iteration, and `cleanup` at the end. Do not
    override ``__init__``.

    A trainable can be debugged without an experiment: construct it with a configuration and call
    `train`, `save`, `restore`, `stop`.

    Args:
        config: The hyperparameters; a copy is kept.
        assignment: The engine's assignment for this attempt, None without an experiment.

    Example:
        >>> class Countdown(Trainable):
        ...     def setup(self, config):
        ...         self.left = config["start"]
        ...
        ...     def step(self):
        ...         self.left -= 1
        ...         return {"left": self.left, "done": self.left == 0}
        >>> countdown = Countdown({"start": 3})
        >>> countdown.train()["left"], countdown.train()["left"], countdown.iteration
        (2, 1, 2)

    Departures:
        ``train_buffered``, ``export_model`` and ``resource_help`` do not exist. The working
        directory is never changed: write to `logdir`. Without an experiment, `logdir` is a new
        temporary directory, and the trial's name and id are ``"default"``.
    """

    requested_resources: ClassVar[Any] = None
    """Set by `with_resources`."""
    requested_labels: ClassVar[Any] = None
    """Set by it as well."""
    given_parameters: ClassVar[Mapping[str, Any]] = {}
    """Set by `with_parameters`."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, assignment: Assignment | None = None
    ) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._assignment = assignment
        self._logdir: str | None = None
        self._converter = Converter()
        self._autofill = AutoFill(self.trial_id, here())
        self._last_result: dict[str, Any] = {}
        self._num_saved = 0
        self._assigned_iteration: tuple[Any, int] = (0, 0)
        if assignment is not None:
            self._autofill.restore(
                assignment.iteration, assignment.time_total_s, assignment.counters
            )
        # A copy, so that `setup` cannot change what the trial was given.
        self.setup(copy.deepcopy(self.config), **self.given_parameters)
        if self.iteration:
            # A value that setup has assigned does not hold if a checkpoint is loaded next.
            self._assigned_iteration = (0, 0)

    # For users to override.

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:  # noqa: B027  (a hook)
        """Build the model, the data and all else that training needs.

        Args:
            config: The hyperparameters; a deep copy.
            **parameters: The objects that `with_parameters` has added.
        """

    @abstractmethod
    def step(self) -> dict[str, Any]:
        """Train for one iteration.

        Returns:
            The metrics, possibly none. ``done: True`` ends the trial, ``should_checkpoint: True``
            saves it at this iteration.
        """

    def save_checkpoint(
        self, checkpoint_dir: str
    ) -> dict[str, Any] | str | os.PathLike[str] | None:
        """Write the state of the training.

        Args:
            checkpoint_dir: An empty directory.

        Returns:
            None or `checkpoint_dir`; or a dictionary, which the engine pickles.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be saved; implement save_checkpoint and load_checkpoint"
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state of the training.

        Args:
            checkpoint: The dictionary that `save_checkpoint` returned, or else a directory with the
                files it wrote, whose path may be different.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be restored; "
            "implement save_checkpoint and load_checkpoint"
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Continue with another configuration in the same process.

        Returns:
            Whether that has worked; False, the default, makes the engine start a new process.
        """
        return False

    def cleanup(self) -> None:  # noqa: B027  (a hook)
        """Release resources; called when the trial has ended or is stopped, but not on a crash."""

    def log_result(self, result: dict[str, Any]) -> None:  # noqa: B027  (a hook)
        """Receive each complete result in the trial's process; changes to it have no effect."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:  # noqa: ARG003  (a hook)
        """Return what a trial occupies, None for 1 CPU; `with_resources` overrides it."""
        return None

    # Information for users.

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self._assignment.trial_id if self._assignment else _STANDALONE

    @property
    def trial_name(self) -> str:
        """Name of the trainable and id of the trial."""
        return f"{type(self).__name__}_{self.trial_id}" if self._assignment else _STANDALONE

    @property
    def trial_resources(self) -> PlacementGroupFactory:
        """Resources of the trial in one bundle; as a mapping, the amounts by name."""
        return PlacementGroupFactory([self._assignment.resources if self._assignment else {}])

    @property
    def logdir(self) -> str:
        """The trial's directory, absolute; files written there stay with the experiment."""
        if self._assignment:
            return os.fspath(self._assignment.trial_dir)
        if self._logdir is None:
            self._logdir = tempfile.mkdtemp(prefix=f"{type(self).__name__}_")
        return self._logdir

    @property
    def iteration(self) -> int:
        """Number of iterations that the trial has trained, earlier attempts included."""
        return self._autofill.iteration

    @property
    def _iteration(self) -> Any:
        """`iteration`, for code written for Ray Tune; it may be set, and counts on from there."""
        value, at = self._assigned_iteration
        return value + (self.iteration - at) if isinstance(value, int | float) else value

    @_iteration.setter
    def _iteration(self, value: Any) -> None:
        self._assigned_iteration = value, self.iteration

    @property
    def training_iteration(self) -> int:
        """The same as `iteration`."""
        return self.iteration

    def get_config(self) -> dict[str, Any]:
        """Return the hyperparameters."""
        return self.config

    # Called by the engine, or by users who run a trainable without one.

    def train(self) -> dict[str, Any]:
        """Run one step and return its result, converted and with the auto-filled keys.

        Raises:
            TypeError: If `step` returns no dictionary.
            ValueError: If it returns a value that cannot be reported, see `metric_conversion`.
        """
        self._autofill.resume()
        metrics = self.step()
        elapsed_s = self._autofill.elapsed_s()
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"step must return a dictionary of metrics, got {type(metrics).__name__}; "
                "return {} if there are none"
            )
        converted = self._converter.convert(metrics)
        self._last_result = self._autofill.fill(converted, elapsed_s)
        note_replaced_iteration(self._converter, converted, self._last_result)
        self._autofill.count(self._last_result)
        self.log_result(dict(self._last_result))
        return self._last_result

    def take_replaced(self) -> list[str]:
        """Return names that `step` has reported and the engine has filled in, each once."""
        return self._converter.take_replaced()

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Save the training without an experiment.

        Args:
            checkpoint_dir: A directory, created if missing; None for a new one in `logdir`.
        """
        directory = Path(checkpoint_dir or Path(self.logdir, f"checkpoint_{self._num_saved:06d}"))
        make_folder(directory)
        write_checkpoint(self, directory)
        provenance = Provenance(
            self.trial_id, 0, self._num_saved, self.iteration, self._last_result
        )
        write_manifest(directory, contents_of(directory), provenance, sync=False)
        self._num_saved += 1
        return Checkpoint.from_directory(directory)

    def restore(self, checkpoint: str | os.PathLike[str] | Checkpoint) -> None:
        """Continue from a checkpoint of this class, from an experiment or written by `save`.

        Args:
            checkpoint: The checkpoint, or its directory.
        """
        source = (
            checkpoint
            if isinstance(checkpoint, Checkpoint)
            else Checkpoint.from_directory(checkpoint)
        )
        with source.as_directory() as directory:
            read_checkpoint(self, directory)
            # The user's own files have no manifest, so their iteration is unknown.
            with contextlib.suppress(CheckpointError):
                manifest = read_manifest(directory)
                counted = manifest.metrics
                self._count_from(
                    manifest.iteration, float(counted.get(TIME_TOTAL_S, 0.0)), counters_of(counted)
                )

    def reset(self, new_config: Mapping[str, Any]) -> bool:
        """Start over with another configuration if `reset_config` can; counts begin at 0 again."""
        if not self.reset_config(copy.deepcopy(dict(new_config))):
            return False
        self.config = dict(new_config)
        self._count_from(0, 0.0, {})
        return True

    def adopt(self, assignment: Assignment, config: Mapping[str, Any]) -> bool:
        """Prepare for the trial's next attempt in this process; return whether that has worked."""
        self._assignment = assignment
        if not self.reset(config):
            return False
        self._count_from(assignment.iteration, assignment.time_total_s, assignment.counters)
        return True

    def _count_from(self, iteration: int, time_total_s: float, counters: Mapping[str, int]) -> None:
        self._autofill.restore(iteration, time_total_s, counters)
        self._assigned_iteration = (0, 0)

    def stop(self) -> None:
        """End the training by calling `cleanup`."""
        self.cleanup()


def write_checkpoint(trainable: Trainable, directory: Path) -> None:
    """Let a trainable save itself into an empty directory.

    Raises:
        ValueError: If `save_checkpoint` returns anything but None, the directory or a dictionary.
    """
    returned = trainable.save_checkpoint(str(directory))
    match returned:
        case None:
            return
        case dict():
            (directory / DICT_CHECKPOINT).write_bytes(pickle.dumps(returned))
        case str() | os.PathLike() if os.path.realpath(returned) == os.path.realpath(directory):
            return
        case _:
            raise ValueError(
                f"save_checkpoint must return None, a dictionary or the directory it was given "
                f"({str(directory)!r}), got {returned!r}; "
                "write the files into that directory"
            )


def read_checkpoint(trainable: Trainable, directory: str | os.PathLike[str]) -> None:
    """Let a trainable load itself from a directory that `write_checkpoint` has filled."""
    pickled = Path(directory, DICT_CHECKPOINT)
    if pickled.exists():
        state = pickle.loads(pickled.read_bytes())  # noqa: S301  (written by the same trial)
        trainable.load_checkpoint(state)
    else:
        trainable.load_checkpoint(os.fspath(directory))
