"""Callbacks for the frameworks and trackers that people train and log with."""
