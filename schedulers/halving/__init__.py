"""Successive halving: ASHA, PASHA, MOASHA and HyperBand.

All of them compare trials at equal amounts of training (rungs) and continue the best. Rungs and the
stopping and promotion rules that they share are here too. Population based training is in
`schedulers.population`.
"""
