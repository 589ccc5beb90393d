"""Population based training: PBT, MF-PBT, PB2, and the replay of a schedule that was found.

Members are compared at equal resource; the worst take over checkpoints of the best and vary their hyperparameters. What these schedulers
share stands here too; schedulers that stop trials at rungs are in `schedulers.halving`.
"""
