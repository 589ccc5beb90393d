"""Experiments in an object store: journal, checkpoints, files, lock, and the store itself."""
