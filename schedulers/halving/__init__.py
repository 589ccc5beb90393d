"""Successive halving: ASHA, PASHA, MOASHA and HyperBand.

All of them compare trials of equal age at rungs, and go on with the best; what they share (rungs, brackets, the stopping and the promotion
rule) stands here too. Schedulers that train a population are in `schedulers.population`.
"""
