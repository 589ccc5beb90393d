"""Optuna's samplers as a searcher: the searcher, its study, samplers and translation of spaces.

Optuna is only imported in this package, and only when the searcher is used.
"""
