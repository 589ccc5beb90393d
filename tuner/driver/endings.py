"""Why an experiment has ended, and how it is continued: lines for the user, and errors."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from schedulers.decisions import Reason
from schedulers.fifo import FIFOScheduler
from tuner import capabilities
from tuner.callbacks.console.silent import SilentConsole
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import COMMON_FAILURE, NO_NODE, common_failure
from tuner.core.metric_watch import METRIC_NOT_REPORTED
from tuner.core.policies import BUDGET, TIME_BUDGET
from tuner.errors import CannotPause, ClusterError, MetricNotReported, StorageError, StorageLost
from tuner.spec.experiment_spec import ExperimentSpec

from .signals import Interrupts, cause_of_interruption, exit_code, is_script

_log = logging.getLogger("tuner")


def report_end(  # noqa: C901  (one case for each end)
    experiment: Experiment,
    spec: ExperimentSpec,
    directory: Path,
    console: SilentConsole,
    why_refused: str,
) -> str:
    """Report why the experiment ended early, and return the rule of its stop; empty for none.

    Raises:
        CannotPause: If its scheduler pauses trials that cannot be paused.
        ClusterError: If no node has joined on which anything can run.
        MetricNotReported: If a trial has completed and no trial has reported the metric.
    """
    how = partial(_how_to_continue, directory, spec)
    rule = experiment.stop_reason.rule if experiment.stop_reason else ""
    if experiment.stop_reason and rule == METRIC_NOT_REPORTED:
        raise _metric_not_reported(experiment, experiment.stop_reason, spec, directory)
    if rule == NO_NODE:
        raise ClusterError(f"{experiment.fatal_error}{why_refused}; {how()}")
    if experiment.fatal_error:
        raise CannotPause(f"{experiment.fatal_error}; when this is mended, {how()}")
    if experiment.stall_reason:
        _log.warning("the experiment ended with trials left to run: %s", experiment.stall_reason)
    if experiment.stop_reason and rule in (TIME_BUDGET, BUDGET):
        console.print_notice(_why_spent(experiment, experiment.stop_reason, directory, spec))
    if not rule and (why_ended := experiment.suggestion_budget.why_ended):
        console.print_notice(capabilities.line_at_end(why_ended, directory, spec))
    if rule in ("", TIME_BUDGET, BUDGET) and (why := _why_never_compared(experiment, spec)):
        console.print_notice(why)
    if experiment.stop_reason and rule == COMMON_FAILURE:
        from tuner.restore.resume_command import restore_line, shell_line  # noqa: PLC0415  (seldom)

        line = shell_line(directory, spec, "--retry-failed")
        again = line or restore_line(directory, spec, restart_errored="True")
        console.print_notice(
            f"stopped: {common_failure(experiment.stop_reason)}; mend that and continue with\n"
            f"    {again}"
        )
        if not line:
            console.print_notice(
                "FailureConfig(max_common_failures=None) has all trials run whatever they fail with"
            )
    if cause := cause_of_interruption(rule):
        console.print_notice(f"interrupted by {cause}; {how()}")
    return rule


def _why_spent(
    experiment: Experiment, reason: Reason, directory: Path, spec: ExperimentSpec
) -> str:
    from tuner.restore.resume_command import shell_line  # noqa: PLC0415  (seldom)

    if reason.rule == TIME_BUDGET:
        line = shell_line(directory, spec, "--time-limit TIME")
        more = line or "restore with a larger time_budget_s"
        return f"the time budget of {reason.numbers['budget_s']:g} s is used up; to go on, {more}"
    spent, budget = str(reason.numbers["unit"]), reason.numbers["budget"]
    # The others as they were: what is given replaces all of them.
    others: dict[str, float | None] = {**experiment.settings.budget, spent: None}
    flags = (f"--budget {unit}={amount or 'NUMBER'}" for unit, amount in others.items())
    units = (f"{unit!r}: {amount or '...'}" for unit, amount in others.items())
    line = shell_line(directory, spec, " ".join(flags))
    more = line or f"restore with a larger budget={{{', '.join(units)}}}"
    return f"the budget of {budget:g} {spent} is used up; to go on, {more}"


def _metric_not_reported(
    experiment: Experiment, reason: Reason, spec: ExperimentSpec, directory: Path
) -> MetricNotReported:
    from tuner.analysis.shortfalls import why_none_validated  # noqa: PLC0415  (seldom)
    from tuner.restore.resume_command import how_to_name_the_metric  # noqa: PLC0415  (seldom)

    is_validated = "num_failed_validations" in reason.numbers
    why = f"; {why_none_validated(experiment.trials)}" if is_validated else ""
    how = how_to_name_the_metric(directory, spec, reason)
    return MetricNotReported(f"{experiment.fatal_error}{why}\n{how}")


def _why_never_compared(experiment: Experiment, spec: ExperimentSpec) -> str:
    if isinstance(spec.scheduler, FIFOScheduler):
        return ""
    from tuner.analysis.shortfalls import why_never_compared  # noqa: PLC0415  (schedulers only)

    return why_never_compared(spec.scheduler, experiment.trials)


def _how_to_continue(directory: Path, spec: ExperimentSpec) -> str:
    from tuner.restore.resume_command import how_to_continue  # noqa: PLC0415  (few have to)

    return how_to_continue(directory, spec)


def explain_error(error: BaseException, how: str, interrupts: Interrupts) -> None:
    """Add to an error how the experiment is continued.

    A script that was asked to end anyway ends with one line instead of a traceback.

    Raises:
        SystemExit: If a signal came while the storage took nothing.
    """
    if (
        isinstance(error, StorageError)
        and not isinstance(error, StorageLost)
        and interrupts.received
        and is_script()
    ):
        _log.error("%s; %s", error, " ".join(how.split()))
        raise SystemExit(exit_code("", interrupts.received, has_failed=False)) from None
    error.add_note(how)
