"""Optuna's samplers as a searcher.

Here are the searcher, the study that a sampler sees, and the translation of search spaces and results. Optuna is imported only in this
package, and only when the searcher is used.
"""
