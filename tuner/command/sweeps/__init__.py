"""Sweeps: what flags and files declare of a search for the best command line, and first files."""
