"""The journal of an experiment: every event, written down before it takes effect.

Here are the format of records, the writer, the reader that verifies every line, repair, the files
of snapshots, and the index of results. What the records mean for an experiment is decided in
`tuner.core`; names, locks and checkpoints are in `tuner.storage`.
"""
