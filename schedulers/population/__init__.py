"""Population based training: PBT, patient PBT, MF-PBT, PB2, and the replay of a recorded schedule.

Members of a population are compared at equal resource; the worst take over checkpoints of the best
and vary their hyperparameters. Schedulers that stop trials at rungs are in `schedulers.halving`.
"""
