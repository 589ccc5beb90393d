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
    from .cluster.cluster import Cluster as Cluster
    from .cluster.session import ClusterSession as ClusterSession
    from .cluster.shared_directory import await_former_nodes as await_former_nodes
    from .driver.remote_session import RemoteSession as RemoteSession
    from .groups.groups import Groups as Groups
    from .leases.part import Leases as Leases
    from .nodes.nodes import Nodes as Nodes
    from .nodes.part import NodeEvents as NodeEvents
    from .nodes.unmet_demand import unmet_demand as unmet_demand
    from .stores.checked_url import check_filesystem as check_filesystem
    from .stores.checked_url import checked_url as checked_url
    from .stores.checkpoint_downloads import download as download
    from .stores.checkpoint_downloads import shared_download as shared_download
    from .stores.file_service import FileService as FileService
    from .stores.journal_mirror import JournalMirror as JournalMirror
    from .stores.object_backends import filesystem_of as filesystem_of
    from .stores.object_checkpoints import ObjectCheckpoints as ObjectCheckpoints
    from .stores.object_store import ObjectStore as ObjectStore
    from .stores.readable_copy import ReadableCopy as ReadableCopy
    from .stores.remote_lock import requests_in_store as requests_in_store
    from .stores.store_waits import waiting_line as waiting_line
    from .validation.part import Validations as Validations
    from .validation.remote_validator import ValidationTry as ValidationTry

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tuner.cluster.session": ("ClusterSession",),
        "tuner.driver.remote_session": ("RemoteSession",),
        "tuner.cluster.shared_directory": ("await_former_nodes",),
        "tuner.stores.file_service": ("FileService",),
        "tuner.groups.groups": ("Groups",),
        "tuner.validation.remote_validator": ("ValidationTry",),
        "tuner.stores.store_waits": ("waiting_line",),
        "tuner.stores.journal_mirror": ("JournalMirror",),
        "tuner.leases.part": ("Leases",),
        "tuner.nodes.nodes": ("Nodes",),
        "tuner.nodes.part": ("NodeEvents",),
        "tuner.stores.readable_copy": ("ReadableCopy",),
        "tuner.cluster.cluster": ("Cluster",),
        "tuner.stores.checkpoint_downloads": ("download", "shared_download"),
        "tuner.stores.object_backends": ("filesystem_of",),
        "tuner.stores.object_checkpoints": ("ObjectCheckpoints",),
        "tuner.stores.object_store": ("ObjectStore",),
        "tuner.stores.remote_lock": ("requests_in_store",),
        "tuner.stores.checked_url": ("check_filesystem", "checked_url"),
        "tuner.validation.part": ("Validations",),
    },
)
