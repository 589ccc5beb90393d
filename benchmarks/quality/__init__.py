"""How good the configurations are that a search finds, ours and its peers': ``python -m benchmarks.quality run`` and ``report``.

Searches run in virtual time on tables of real learning curves, which were trained once on the data
sets that come with scikit-learn. Every method is given the same space, the same four workers and
the same budget. ``docs/quality.md`` tells the rules and the figures.

The tables are those of ten *development* tasks, on which methods may be tuned, and of 24
*reporting* tasks, for the figures alone.
"""
