"""Loggers that write files into the directory of each trial: CSV, JSON, TensorBoard, errors.

They write in a background thread, and what they write can be repaired from the journal. Loggers
that report to a service are in `tuner.callbacks.trackers`.
"""
