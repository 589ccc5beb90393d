"""Ray Tune's import path ``from tuner.search.basic_variant import BasicVariantGenerator``."""

from searchers import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
