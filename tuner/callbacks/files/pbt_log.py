"""Logger of ``pbt_global.txt`` and ``pbt_policy_<trial>.txt``: exploits, in Ray Tune's format."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from tuner.callbacks.callback import Callback
from tuner.core.trial import AppliedExploit, Trial
from tuner.storage import layout
from tuner.storage.disk import LARGE_BYTES, read_file
from tuner.storage.readable_json import json_bytes

from .append import append, replace_file

_log = logging.getLogger("tuner")


@final
class PolicyLog(Callback):
    """Logs exploits of population-based training.

    Each line is a JSON list: tag of the trial, tag of the donor, iteration that the trial had
    reached, iteration of the donor's checkpoint, the configuration with which that was trained, the
    trial's new configuration. ``pbt_global.txt`` has all exploits in order. The policy file of a
    trial has its whole ancestry, i.e. the steps that reproduce it.

    Departures:
        A policy file is derived from the trials and not copied from the donor's file, so that it is
        complete after a crash too.
    """

    def __init__(self) -> None:
        self._experiment_path = Path()
        self._trials: dict[str, Trial] = {}

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Remember the experiment's directory."""
        self._experiment_path = Path(info["experiment_path"])

    def on_trial_exploit(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        graft: AppliedExploit,
        **info: Any,
    ) -> None:
        """Add the exploit to both files."""
        self._index(trials)
        place = len(trial.grafts) - 1
        append(self._experiment_path / layout.PBT_GLOBAL, self._line(trial, place))
        self._write_policy(trial)

    def catch_up_with_journal(
        self,
        experiment_path: Path,
        trials: Sequence[Trial],
        recent: Collection[str],
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
    ) -> None:
        """Add what a killed driver has not written."""
        self.mend(experiment_path, trials)

    def mend(self, experiment_path: Path, trials: Sequence[Trial]) -> None:
        """Add what a killed driver has not written; a trial without exploits has no file.

        Anything else in the place of a file is replaced. Failed writes are logged, and the
        experiment continues.
        """
        self._experiment_path = experiment_path
        self._index(trials)
        try:
            self._add_missing(trials)
        except OSError as error:
            _log.warning(
                "cannot complete the files about exploits: %s; the experiment continues", error
            )

    def _add_missing(self, trials: Sequence[Trial]) -> None:
        path = self._experiment_path / layout.PBT_GLOBAL
        try:
            known, is_there = set(read_file(path, LARGE_BYTES).splitlines(keepends=True)), True
        except OSError:
            known, is_there = set(), False
        missing: list[bytes] = []
        for trial in trials:
            lines = [self._line(trial, place) for place in range(len(trial.grafts))]
            if not known.issuperset(lines):
                missing += [line for line in lines if line not in known]
                self._write_policy(trial)
        if missing:  # last: this file marks the policy files as complete
            (append if is_there else replace_file)(path, b"".join(missing))

    def _index(self, trials: Sequence[Trial]) -> None:
        for trial in trials[len(self._trials) :]:
            self._trials[trial.trial_id] = trial

    def _write_policy(self, trial: Trial) -> None:
        lines = reversed([self._line(*step) for step in self._ancestry(trial)])
        replace_file(self._experiment_path / layout.pbt_policy(trial.trial_id), b"".join(lines))

    def _ancestry(self, trial: Trial) -> Iterator[tuple[Trial, int]]:
        """Yield the exploits that led to a trial, latest first, each as a trial and an index."""
        num_grafts = len(trial.grafts)
        while num_grafts:
            yield trial, num_grafts - 1
            graft = trial.grafts[num_grafts - 1]
            trial = self._trials[graft.donor_id]
            num_grafts = _num_before(trial, graft.checkpoint.index)

    def _line(self, trial: Trial, place: int) -> bytes:
        graft = trial.grafts[place]
        donor = self._trials[graft.donor_id]
        donor_config = _config_of(donor, _num_before(donor, graft.checkpoint.index))
        new_config = _config_of(trial, place + 1)
        step = [
            _tag(trial),
            _tag(donor),
            graft.iteration,
            graft.checkpoint.iteration,
            donor_config,
            new_config,
        ]
        return json_bytes(step) + b"\n"


def _num_before(trial: Trial, checkpoint_index: int) -> int:
    """Return how many exploits a trial had made when it saved a checkpoint."""
    return sum(graft.first_checkpoint <= checkpoint_index for graft in trial.grafts)


def _config_of(trial: Trial, num_grafts: int) -> Mapping[str, Any]:
    """Return a trial's configuration after so many exploits."""
    return trial.grafts[num_grafts].config if num_grafts < len(trial.grafts) else trial.config


def _tag(trial: Trial) -> str:
    return trial.experiment_tag.partition("@")[0]
