"""What the user declared: settings, search space, algorithms, resources, and the directory that they are recorded in.

Arguments are checked, completed with defaults, written to ``experiment.json`` and read back from
it. Nothing here runs an experiment; that is done in `tuner.driver`.
"""
