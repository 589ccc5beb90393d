"""Declaration of an experiment: settings, search space, algorithms and resources.

Arguments are checked, completed with defaults, written to ``experiment.json`` and read back from
it. Nothing here runs an experiment; that is done in `tuner.driver`.
"""
