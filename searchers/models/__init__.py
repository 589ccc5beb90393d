"""Searchers with models of our own, and what these models share.

Here are the encoding of configurations as vectors, the observations that a model is fitted to,
trees, kernel densities and the choice among candidates. Searchers that wrap another library are in
`searchers.libraries`; the search space itself is in `searchers.space`.
"""
