"""Settings of an experiment that its decisions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Annotated, Any

from searchers.objectives.outcome_constraint import (
    OutcomeConstraint,
    comparisons,
    outcome_constraints,
)
from tuner.wire.declared import OPTIONAL, Form, decode, encode
from tuner.wire.record import record

from .checkpoints import CheckpointPolicy
from .failure_causes import RetryPolicy
from .resources import Demand
from .worker_records import WorkerGroup


@record
class ValidationPolicy:
    """How checkpoints are validated.

    Attributes:
        resources: What each validation occupies.
        max_in_flight: How many checkpoints of one trial are validated at once.
        max_pending: How many validations of a trial may be open before its next report waits; None
            for no limit.
        max_retries: How often a validation that raised or died is tried again.
        timeout_s: Seconds after which a validation is killed, None for no limit.
    """

    resources: Mapping[str, float] = field(default_factory=lambda: {"cpu": 1.0})
    max_in_flight: int = 1
    max_pending: int | None = None
    max_retries: int = 0
    timeout_s: float | None = None


def _in_full(group: WorkerGroup) -> dict[str, Any]:
    """Return a group as settings have always been written."""
    fields = {**encode(group), "is_decided": group.is_decided}
    labels = fields.pop("labels", None)
    return fields | ({"labels": labels} if labels else {})


@record
class ExperimentSettings:
    """The settings of an experiment that its decisions depend on.

    Attributes:
        capacity: Total resources.
        default_request: What a trial asks for unless its configuration says otherwise.
        metric: Flattened name of the metric to optimise, None for none.
        mode: ``"min"`` or ``"max"``: its direction.
        max_trials: How many trials there will be at most; None for as many as the searcher
            proposes.
        max_concurrent: How many trials may run at once; None for as many as fit.
        max_failures: How often each trial may be tried again; -1 for no limit.
        fail_fast: Whether the first trial in ERROR ends the experiment.
        time_budget_s: Running time after which everything stops; None for no limit.
        stop_grace_s: How long a worker may take to leave once it has been asked to, before it is
            killed.
        interrupt_grace_s: How long all workers together may take to report, save and leave once the
            experiment is interrupted.
        report_timeout_s: How long a worker may stay silent before it counts as hung; None for
            no limit.
        checkpoints: When to save, what to keep.
        several_objectives: Metric and mode of each objective where there are
            several, and `metric` may be None; else empty. What is optimised in either case is
            `objectives`.
        constraints: What a trial has to keep to be the best one, or on the Pareto front.
        is_metric_required: Whether the experiment ends with an error once a trial has completed and
            no trial has reported the metric.
        retry_on: Names of exceptions that are worth all retries, see `RetryPolicy`.
        no_retry_on: Names of exceptions that are worth none.
        max_identical_failures: After how many failures of one cause without progress in between a
            trial is given up; None for no limit.
        max_common_failures: After how many trials that have failed for one cause the experiment
            ends as long as none succeeds; None for no limit.
        validation: How checkpoints are validated; None where no function was declared, which a
            report may still name.
        max_pending: How many trials are suggested before there is a slot for them; 0 to ask only
            where a slot is free, so that a searcher that learns knows all results.
        default_group: The workers of a trial unless its configuration says otherwise, which
            together ask for `default_request`; None for a single process.
        default_labels: What the nodes must have that run a trial, unless its configuration says
            otherwise; that of a group is declared with it.
        max_overtaken_s: For how many seconds trials that became ready later may be started before
            the oldest one, which does not fit, until what is free is held for it; None for ever.
        max_losses: After how many losses of its worker in a row, without a new result in between,
            a trial is given up; None for no limit.
        max_validation_losses: After how many losses of its process in a row a validation is given
            up; None for no limit.
        preemption_grace_s: How many seconds after the deadline that its node has announced a worker
            is killed if it has not left; None for never, so that it is lost with its node.
        node_wait_s: For how many seconds what no node that is present could run may wait for one to
            join; None where there is only this machine, with `capacity`, which otherwise does not
            count.
        budget: How much the experiment may spend, by unit, such as ``"gpu_hours"``; see
            `tuner.budgets`.
    """

    capacity: Mapping[str, float]
    default_request: Mapping[str, float] = field(default_factory=lambda: {"cpu": 1.0})
    metric: str | None = None
    mode: str | None = None
    max_trials: int | None = None
    max_concurrent: int | None = None
    max_failures: int = 0
    fail_fast: bool = False
    time_budget_s: float | None = None
    stop_grace_s: float = 30.0
    interrupt_grace_s: float = 10.0
    report_timeout_s: float | None = None
    checkpoints: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    several_objectives: tuple[tuple[str, str], ...] = ()
    # What follows is off where the settings were recorded by a release that did not have it, so
    # that a replay decides as it did.
    is_metric_required: bool = False
    retry_on: tuple[str, ...] = ()
    no_retry_on: tuple[str, ...] = ()
    max_identical_failures: int | None = None
    max_common_failures: int | None = None
    max_pending: int = 0
    validation: Annotated[ValidationPolicy | None, OPTIONAL] = None
    default_group: Annotated[
        WorkerGroup | None, OPTIONAL, Form(_in_full, partial(decode, WorkerGroup))
    ] = None
    default_labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    max_overtaken_s: Annotated[float | None, OPTIONAL] = None
    max_losses: Annotated[int | None, OPTIONAL] = None
    max_validation_losses: Annotated[int | None, OPTIONAL] = None
    preemption_grace_s: Annotated[float | None, OPTIONAL] = None
    node_wait_s: Annotated[float | None, OPTIONAL] = None
    budget: Annotated[Mapping[str, float], OPTIONAL] = field(default_factory=dict)
    constraints: Annotated[
        tuple[OutcomeConstraint, ...], OPTIONAL, Form(comparisons, outcome_constraints)
    ] = ()

    @property
    def usual_demand(self) -> Demand:
        """What a trial asks for unless its configuration says otherwise."""
        if self.default_group:
            return Demand(self.default_group, self.default_group.labels)
        return Demand(self.default_request, self.default_labels)

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode (``"min"`` or ``"max"``) of each objective: several, one, or none."""
        return self.several_objectives or (
            ((self.metric, self.mode),) if self.metric and self.mode else ()
        )

    @property
    def objective_metrics(self) -> tuple[str, ...]:
        """The metrics that are optimised."""
        return tuple(metric for metric, _ in self.several_objectives) or (
            (self.metric,) if self.metric else ()
        )

    @property
    def watched_metrics(self) -> tuple[str, ...]:
        """The metrics that trials have to report sooner or later."""
        bounded = (each.metric for each in self.constraints)
        return tuple(dict.fromkeys([*self.objective_metrics, *bounded]))

    @property
    def retries(self) -> RetryPolicy:
        """Which failures are worth a retry."""
        return RetryPolicy(
            self.max_failures, self.retry_on, self.no_retry_on, self.max_identical_failures
        )

    def as_fields(self) -> dict[str, Any]:
        """Return the settings as JSON values, without those that are younger and not in use."""
        return encode(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ExperimentSettings:
        """Return the settings that `as_fields` described."""
        return decode(cls, fields)
