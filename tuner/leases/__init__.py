"""Leases: resources that a worker or a validator borrows for an experiment of its own."""
