"""What only some experiments use: each part is imported when it is first used.

The engine imports none of the modules in this table, and names them nowhere else: experiments on a
cluster or in an object store, trainings over several processes, the validation of checkpoints,
trackers, charts. So an experiment loads only the capabilities that it uses, and one that is not
used could as well not be there. `capabilities.ReadableCopy` is that class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

if TYPE_CHECKING:
    from schedulers.trial_scheduler import adapted as adapted

    from .analysis.explain import why_never_compared as why_never_compared
    from .analysis.failed_validations import why_none_validated as why_none_validated
    from .callbacks.console.reporter import ProgressReporter as ProgressReporter
    from .callbacks.formatting import printable as printable
    from .driver.background_run import Background as Background
    from .driver.cluster_session import ClusterSession as ClusterSession
    from .driver.continued import ContinuedExperiment as ContinuedExperiment
    from .driver.continued import recorded_trials as recorded_trials
    from .driver.remote_session import RemoteSession as RemoteSession
    from .execution.cluster.shared_directory import await_former_nodes as await_former_nodes
    from .execution.inline import InlineExecutor as InlineExecutor
    from .handle import Handle as Handle
    from .journal.mirror import JournalMirror as JournalMirror
    from .leases.part import Leases as Leases
    from .maintenance.rerun import compare_results as compare_results
    from .maintenance.rerun import prepare_rerun as prepare_rerun
    from .nodes.part import NodeEvents as NodeEvents
    from .nodes.unmet_demand import unmet_demand as unmet_demand
    from .restore.readable_copy import ReadableCopy as ReadableCopy
    from .restore.resume_command import how_to_continue as how_to_continue
    from .restore.resume_command import how_to_name_the_metric as how_to_name_the_metric
    from .restore.resume_command import how_to_recover as how_to_recover
    from .restore.resume_command import restore_line as restore_line
    from .restore.resume_command import shell_line as shell_line
    from .spec.cluster import Cluster as Cluster
    from .spec.training_config import ScalingConfig as ScalingConfig
    from .spec.training_config import ValidationConfig as ValidationConfig
    from .spec.training_config import ValidationTaskConfig as ValidationTaskConfig
    from .storage import remote as remote
    from .storage.object_checkpoints import ObjectCheckpoints as ObjectCheckpoints
    from .storage.object_store import RETRY_S as RETRY_S
    from .storage.object_store import ObjectStore as ObjectStore
    from .storage.remote import filesystem_of as filesystem_of
    from .storage.s3_options import split_options as split_options
    from .storage.urls import check_filesystem as check_filesystem
    from .storage.urls import checked_url as checked_url
    from .storage.urls import join_url as join_url
    from .storage.urls import split_url as split_url
    from .validation.part import Validations as Validations

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tuner.analysis.explain": ("why_never_compared",),
        "tuner.analysis.failed_validations": ("why_none_validated",),
        "tuner.callbacks.console.reporter": ("ProgressReporter",),
        "tuner.callbacks.formatting": ("printable",),
        "tuner.driver.background_run": ("Background",),
        "tuner.driver.cluster_session": ("ClusterSession",),
        "tuner.driver.continued": ("ContinuedExperiment", "recorded_trials"),
        "tuner.driver.remote_session": ("RemoteSession",),
        "tuner.execution.cluster.shared_directory": ("await_former_nodes",),
        "tuner.execution.inline": ("InlineExecutor",),
        "tuner.handle": ("Handle",),
        "tuner.leases.part": ("Leases",),
        "tuner.journal.mirror": ("JournalMirror",),
        "tuner.maintenance.rerun": ("compare_results", "prepare_rerun"),
        "tuner.nodes.part": ("NodeEvents",),
        "tuner.nodes.unmet_demand": ("unmet_demand",),
        "tuner.restore.readable_copy": ("ReadableCopy",),
        "tuner.restore.resume_command": (
            "how_to_continue",
            "how_to_name_the_metric",
            "how_to_recover",
            "restore_line",
            "shell_line",
        ),
        "tuner.spec.cluster": ("Cluster",),
        "tuner.spec.training_config": ("ScalingConfig", "ValidationConfig", "ValidationTaskConfig"),
        "tuner.storage": ("remote",),
        "tuner.storage.object_checkpoints": ("ObjectCheckpoints",),
        "tuner.storage.object_store": ("RETRY_S", "ObjectStore"),
        "tuner.storage.remote": ("filesystem_of",),
        "tuner.storage.s3_options": ("split_options",),
        "tuner.storage.urls": ("check_filesystem", "checked_url", "join_url", "split_url"),
        "tuner.validation.part": ("Validations",),
        "schedulers.trial_scheduler": ("adapted",),
    },
)
