"""Experiments in virtual time: an executor whose trials only pretend to train."""
