"""Benchmark of population methods: a problem whose best schedule is known, and small networks.

``python -m benchmarks.quality.populations`` runs them and prints a table. Members run through the
real core and scheduler, in virtual time; training is real. *In step*, all members are equally fast
and wait for each other; *asynchronous*, each has its own speed.
"""
