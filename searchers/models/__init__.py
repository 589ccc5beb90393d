"""Searchers that fit a model, and what these models share.

This package has the encoding of configurations as vectors, the observations that a model is fitted
to, trees, kernel densities and the choice among candidates. Searchers that wrap another library are
in `searchers.libraries`; search spaces are in `searchers.space`.
"""
