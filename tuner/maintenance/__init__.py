"""Status, checks, pruning and reruns of experiments on disk.

`status` and `doctor` only read a directory; `pruning` deletes superseded checkpoints of an
experiment that is not running, and `rerun` prepares to train one trial again. The commands around
them are in `tuner.cli`.
"""
