"""Benchmark of searches with several metrics, and with bounds that metrics have to keep.

``python -m benchmarks.quality.tradeoffs run`` runs the searches, ``report`` prints the figures,
``tasks`` the problems. Each evaluation stands for one full training.

Problems for *development*, on which methods may be tuned, and for *confirmation*, which serve only
for the figures, are told apart by a hash of their names.
"""
