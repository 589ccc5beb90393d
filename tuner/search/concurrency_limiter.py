"""Ray Tune's import path ``from tuner.search.concurrency_limiter import ConcurrencyLimiter``."""

from searchers import ConcurrencyLimiter

__all__ = ["ConcurrencyLimiter"]
