"""Optuna's samplers as a searcher: the searcher, its study, its samplers, spaces for Optuna.

Optuna is only imported in this package, and only when the searcher is used.
"""
