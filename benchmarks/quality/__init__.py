"""Benchmark of search quality: tuner's searches and those of other projects.

``python -m benchmarks.quality run`` runs the searches, ``report`` prints the figures.

Searches run in virtual time on tables of real learning curves, which were trained once on the data
sets that come with scikit-learn and statsmodels. Every method is given the same space, the same
four workers and the same budget. ``docs/quality.md`` describes the rules and shows the figures.

There are tables for *development* tasks, on which methods may be tuned, and for *confirmation*
tasks, which serve only for the figures.
"""
