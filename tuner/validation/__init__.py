"""Validations in the core: checkpoints are validated while their trials train on."""
