"""The version of the engine, which it writes into every experiment."""

__version__ = "0.1.0"
