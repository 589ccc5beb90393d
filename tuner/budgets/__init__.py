"""Budgets: how many hours of a resource, and how many iterations, an experiment may spend."""
