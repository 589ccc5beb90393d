"""Searches of other projects. Each file runs in an environment of its own and imports nothing of ours but `dialogue`."""
