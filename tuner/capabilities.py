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
    from .analysis.charts import Plots as Plots
    from .analysis.charts.importance import param_importances as param_importances
    from .analysis.charts.pareto import checked_objectives as checked_objectives
    from .analysis.charts.source import Source as Source
    from .analysis.explain import explain_trial as explain_trial
    from .analysis.explain import why_never_compared as why_never_compared
    from .analysis.explain import why_trial_never_compared as why_trial_never_compared
    from .analysis.failed_validations import why_none_validated as why_none_validated
    from .analysis.frames import MetricsFrames as MetricsFrames
    from .analysis.frames import TableTrial as TableTrial
    from .analysis.frames import with_hints as with_hints
    from .analysis.importances import At as At
    from .analysis.importances import Evaluator as Evaluator
    from .analysis.importances import require_optuna as require_optuna
    from .analysis.node_history import read_nodes as read_nodes
    from .analysis.open_experiment import read_directory as read_directory
    from .analysis.open_experiment import read_stored as read_stored
    from .analysis.report import write_page as write_page
    from .analysis.tables import format_trials as format_trials
    from .analysis.tables import html_trials as html_trials
    from .analysis.tables import last_rows as last_rows
    from .analysis.tables import status_counts as status_counts
    from .analysis.tables import trials_frame as trials_frame
    from .analysis.tables import write_tables as write_tables
    from .analysis.trial_files import index_of as index_of
    from .analysis.trial_files import read_trial_files as read_trial_files
    from .callbacks.console.console import Console as Console
    from .callbacks.console.reporter import ProgressReporter as ProgressReporter
    from .cluster.cluster import Cluster as Cluster
    from .cluster.session import ClusterSession as ClusterSession
    from .cluster.shared_directory import await_former_nodes as await_former_nodes
    from .core.progress import Progress as Progress
    from .core.progress import look_at as look_at
    from .driver.remote_session import RemoteSession as RemoteSession
    from .execution.inline_processes import InlineProcesses as InlineProcesses
    from .groups.groups import Groups as Groups
    from .handle import Handle as Handle
    from .leases.part import Leases as Leases
    from .maintenance.rerun import compare_results as compare_results
    from .maintenance.rerun import prepare_rerun as prepare_rerun
    from .nodes.nodes import Nodes as Nodes
    from .nodes.part import NodeEvents as NodeEvents
    from .nodes.unmet_demand import unmet_demand as unmet_demand
    from .spec.training_config import ScalingConfig as ScalingConfig
    from .spec.training_config import ValidationConfig as ValidationConfig
    from .spec.training_config import ValidationTaskConfig as ValidationTaskConfig
    from .stores.checkpoint_downloads import download as download
    from .stores.checkpoint_downloads import shared_download as shared_download
    from .stores.file_service import FileService as FileService
    from .stores.journal_mirror import JournalMirror as JournalMirror
    from .stores.object_backends import filesystem_of as filesystem_of
    from .stores.object_checkpoints import ObjectCheckpoints as ObjectCheckpoints
    from .stores.object_store import RETRY_S as RETRY_S
    from .stores.object_store import ObjectStore as ObjectStore
    from .stores.readable_copy import ReadableCopy as ReadableCopy
    from .stores.remote_lock import requests_in_store as requests_in_store
    from .stores.s3_options import split_options as split_options
    from .stores.store_waits import waiting_line as waiting_line
    from .stores.urls import check_filesystem as check_filesystem
    from .stores.urls import checked_url as checked_url
    from .stores.urls import join_url as join_url
    from .stores.urls import split_url as split_url
    from .validation.part import Validations as Validations
    from .validation.remote_validator import ValidationTry as ValidationTry

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tuner.analysis.charts": ("Plots",),
        "tuner.analysis.charts.importance": ("param_importances",),
        "tuner.analysis.charts.pareto": ("checked_objectives",),
        "tuner.analysis.charts.source": ("Source",),
        "tuner.analysis.explain": (
            "explain_trial",
            "why_never_compared",
            "why_trial_never_compared",
        ),
        "tuner.analysis.failed_validations": ("why_none_validated",),
        "tuner.analysis.frames": ("MetricsFrames", "TableTrial", "with_hints"),
        "tuner.analysis.importances": ("At", "Evaluator", "require_optuna"),
        "tuner.analysis.node_history": ("read_nodes",),
        "tuner.analysis.open_experiment": ("read_directory", "read_stored"),
        "tuner.analysis.report": ("write_page",),
        "tuner.analysis.tables": (
            "format_trials",
            "html_trials",
            "last_rows",
            "status_counts",
            "trials_frame",
            "write_tables",
        ),
        "tuner.analysis.trial_files": ("index_of", "read_trial_files"),
        "tuner.callbacks.console.console": ("Console",),
        "tuner.callbacks.console.reporter": ("ProgressReporter",),
        "tuner.core.progress": ("Progress", "look_at"),
        "tuner.cluster.session": ("ClusterSession",),
        "tuner.driver.remote_session": ("RemoteSession",),
        "tuner.cluster.shared_directory": ("await_former_nodes",),
        "tuner.stores.file_service": ("FileService",),
        "tuner.execution.inline_processes": ("InlineProcesses",),
        "tuner.groups.groups": ("Groups",),
        "tuner.validation.remote_validator": ("ValidationTry",),
        "tuner.stores.store_waits": ("waiting_line",),
        "tuner.handle": ("Handle",),
        "tuner.stores.journal_mirror": ("JournalMirror",),
        "tuner.leases.part": ("Leases",),
        "tuner.maintenance.rerun": ("compare_results", "prepare_rerun"),
        "tuner.nodes.nodes": ("Nodes",),
        "tuner.nodes.part": ("NodeEvents",),
        "tuner.nodes.unmet_demand": ("unmet_demand",),
        "tuner.stores.readable_copy": ("ReadableCopy",),
        "tuner.cluster.cluster": ("Cluster",),
        "tuner.spec.training_config": ("ScalingConfig", "ValidationConfig", "ValidationTaskConfig"),
        "tuner.stores.checkpoint_downloads": ("download", "shared_download"),
        "tuner.stores.object_backends": ("filesystem_of",),
        "tuner.stores.object_checkpoints": ("ObjectCheckpoints",),
        "tuner.stores.object_store": ("ObjectStore", "RETRY_S"),
        "tuner.stores.remote_lock": ("requests_in_store",),
        "tuner.stores.s3_options": ("split_options",),
        "tuner.stores.urls": ("check_filesystem", "checked_url", "join_url", "split_url"),
        "tuner.validation.part": ("Validations",),
    },
)
