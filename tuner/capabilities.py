"""Names of capabilities that the engine reaches, each imported when it is first used.

Groups of processes, the validation of checkpoints, nodes, clusters and object stores serve only
some experiments. The engine imports none of their modules, and writes `capabilities.Name`. So an
experiment loads only what it uses, and a capability that is not used could as well not be there.

To add a capability, add its name here. To type checkers it is `Any`, so what it returns is given
its type where it is used: a class of the engine that the capability derives from, such as `Part`,
`Processes` or `StorageSession`, or its own, imported under ``TYPE_CHECKING``.
"""

from searchers.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        # Parts of the state machine, see `tuner.core.part`, and the machines of a cluster in it.
        "tuner.budgets.part": ("Budgets",),
        "tuner.leases.part": ("Leases",),
        "tuner.nodes.nodes": ("Nodes",),
        "tuner.nodes.part": ("NodeEvents",),
        "tuner.validation.part": ("Validations",),
        "tuner.validation.records": ("TrialValidations",),
        # Whether a search goes on, and why it has ended.
        "tuner.stopping.stop_search": ("StopSearch",),
        "tuner.stopping.stoppable_search": ("StoppableSearch", "check_stop_search"),
        "tuner.stopping.telling": ("line_at_end", "why_search_ended"),
        # Processes that train one trial together, and those that validate.
        "tuner.groups.groups": ("Groups",),
        "tuner.validation.remote_validator": ("ValidationTry",),
        # Where trials are.
        "tuner.cluster.cluster": ("Cluster",),
        "tuner.cluster.session": ("ClusterSession",),
        "tuner.cluster.shared_directory": ("await_former_nodes",),
        # Where experiments and checkpoints are kept.
        "tuner.stores.checked_url": ("checked_url",),
        "tuner.stores.checkpoint_downloads": ("download", "shared_download"),
        "tuner.stores.object_backends": ("filesystem_of",),
        "tuner.stores.object_store": ("ObjectStore",),
        "tuner.stores.readable_copy": ("ReadableCopy",),
        "tuner.stores.remote_session": ("RemoteSession",),
        "tuner.stores.stored_location": ("StoredLocation",),
    },
)
