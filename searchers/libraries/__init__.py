"""Searchers that wrap another library, one module per library (Optuna is a folder).

A library is imported in its own module only, and only when its searcher is used. Searchers with
models of this package are in `searchers.models`.
"""
