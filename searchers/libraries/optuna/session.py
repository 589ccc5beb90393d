"""What a search with Optuna knows before it begins, and the study that it then opens."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchers.seeding import generator

from .objective import Objective
from .samplers import SamplerSource
from .space import OptunaSpace

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial  # an extra: at run time imported where it is used

    from .mirror import Mirror
    from .study import StudyView


@dataclass(slots=True)
class Declaration:
    """What a search needs to know before it begins.

    Attributes:
        objective: What is optimised.
        space: What is searched.
        constants: What stays the same beside it.
        source: Gives the samplers.
        experiment: Tells experiments in one study apart.
        points: Configurations to begin with, as Optuna knows them.
        counts_failures: Whether failed trials count like the worst ones, or tell nothing.
    """

    objective: Objective
    space: OptunaSpace
    constants: Mapping[str, Any]
    source: SamplerSource
    experiment: str
    points: tuple[dict[str, Any], ...]
    counts_failures: bool = True

    def ask(self, view: StudyView, number: int) -> tuple[int, dict[str, Any]]:
        """Return the number of a new trial and its configuration, drawn at random if the sampler raises.

        Raises:
            Exception: Whatever a space function of the user's raises.
        """
        from .study import quiet, random_sampler  # noqa: PLC0415  (imports Optuna)

        view.sampler = self.source.at(number)
        # Optuna's samplers take no notice of what is FAIL, and propose it again and again.
        counting = view.counting_failures(
            as_pruned=self.source.ranks_pruned and self.objective.is_single
        )
        with quiet(), counting if self.counts_failures else nullcontext():
            try:
                return self.space.ask(view)
            except Exception as error:  # noqa: BLE001  (a sampler may raise anything)
                view.give_up_newest()
                view.sampler = random_sampler(
                    int(generator(self.source.seed, number).integers(2**32))
                )
                asked = self.space.ask(view)
                said = f"the sampler raised {type(error).__name__}: {error}; this suggestion is drawn at random"
        warnings.warn(said, RuntimeWarning, stacklevel=3)
        return asked

    def try_out(self) -> None:
        """Let the sampler complete the points to begin with and make a suggestion, all of which is thrown away.

        Raises:
            ValueError: If it cannot, or a value lies outside of its parameter's range.
            TypeError: If a space function returns something else than constants.
        """
        from .study import StudyView, check_grid, quiet  # noqa: PLC0415  (imports Optuna)

        view = StudyView("tried out", self.objective.modes)
        view.sampler = copy.deepcopy(self.source.at(0))
        try:
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter(
                    "error", UserWarning
                )  # a value out of the range of its parameter
                for point in self.points:
                    view.enqueue_trial(point)
                    self.space.ask(view)
                number, _ = self.space.ask(view)
                check_grid(view.standing(number))
        except (TypeError, ImportError):
            raise
        except Exception as error:
            kind, num_metrics = type(view.sampler).__name__, len(self.objective.metrics)
            raise ValueError(
                f"sampler must be able to search the space for {num_metrics} metrics, {kind} cannot: {error}; take another sampler or space"
            ) from error


@dataclass(frozen=True, slots=True)
class OpenedStudy:
    """The study that the sampler sees, and the one in the user's storage, if any."""

    view: StudyView
    mirror: Mirror | None

    def fill(self, declared: Declaration, rewards: Sequence[Any]) -> int:
        """Put in what is known and what is to be run before anything is suggested; return how many trials there were."""
        from .mirror import QUEUED  # noqa: PLC0415  (imports Optuna)
        from .study import copies, ended, quiet  # noqa: PLC0415  (imports Optuna)

        known: list[dict[str, Any]] = []
        with quiet():
            if self.mirror is not None:
                beginning = self.mirror.begin()
                earlier = self.mirror.earlier(beginning)
                self.view.add_trials(copies(earlier))
                self.view.set_attributes(beginning.attributes)
                for number, params in beginning.queued:
                    self.view.enqueue_trial(dict(params), user_attrs={QUEUED: number})
                known = [trial.params for trial in earlier]
            for point, reward in zip(declared.points, rewards, strict=False):
                if point not in known:
                    self.view.add_trial(
                        ended(
                            point,
                            declared.space.distributions(point),
                            declared.objective.rewards(reward),
                        )
                    )
            for point in () if rewards else declared.points:
                if point not in known:
                    self.view.enqueue_trial(point)
        return len(known)

    def others_than(self, number: int) -> list[FrozenTrial]:
        """Return all trials but one."""
        return [trial for trial in self.view.get_trials(deepcopy=False) if trial.number != number]

    def write_all(self) -> None:
        """Bring the user's storage to where this experiment stands, which it may not have heard of in the last session."""
        for number in self.view.numbers_of_ours() if self.mirror else ():
            self.write(number)

    def write(self, number: int) -> None:
        """Bring the user's storage to where a trial stands."""
        if self.mirror is not None:
            self.mirror.write(self.view.standing(number), self.view.attributes)


def check_study(study: Any) -> None:
    """Refuse what is no study.

    Raises:
        TypeError: If it is none.
    """
    from optuna import Study  # noqa: PLC0415  (an extra)

    if not isinstance(study, Study | None):
        raise TypeError(
            f"study must be an optuna.Study, got {study!r}; load it first, or give its study_name and storage"
        )
