"""Benchmark of searches that train every trial to its end, on functions with a known minimum.

``python -m benchmarks.quality.functions run`` runs the searches, ``report`` prints the figures,
``tasks`` the functions. Each evaluation stands for one full training.

Functions for *development*, on which methods may be tuned, and for *confirmation*, which serve only
for the figures, are told apart by a hash of their names.
"""
