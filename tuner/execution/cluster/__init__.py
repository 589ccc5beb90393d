"""Executor for the nodes of a cluster: each runs its trials with the executor for one machine."""
