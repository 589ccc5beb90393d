"""Files of an experiment other than its journal: names, atomic writes, lock, checkpoints.

Everything that is read back is opened here, such that neither links nor special files nor large
files of others do harm. Records and snapshots are in `tuner.journal`.
"""
