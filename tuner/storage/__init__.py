"""State on disk: names, atomic writes, checkpoints, journal, snapshots, lock."""
