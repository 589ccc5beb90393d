"""Restore of an experiment: snapshot and journal in, experiment out.

Here are the replay of the journal, arguments that are given again at a restore, and the repair of
log files. Reading and repairing the journal's own files is done in `tuner.journal`.
"""
