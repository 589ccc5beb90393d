"""Benchmark of population methods on problems whose best schedule is known, and on digits.

``python -m benchmarks.quality.populations`` runs them and prints a table. Members run through the
real core and scheduler, in virtual time; training is real. *In step*, all members are equally fast
and wait for each other; *asynchronous*, each has its own speed.
"""
