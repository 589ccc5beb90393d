"""Callbacks for training frameworks and experiment trackers."""
