"""Searchers that wrap another library, one module per library (Optuna is a folder).

A library is imported in its own module alone, and only when its searcher is used. The base classes
that pass an experiment's history to a library are here too; models of our own are in
`searchers.models`.
"""
