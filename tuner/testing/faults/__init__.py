"""Experiments in a world in which everything goes wrong that can, all of it from one seed."""
