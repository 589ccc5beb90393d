"""Priors: where in a domain the user presumes the best value, and how sure of that the user is."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

CONFIDENCES: Final = ("low", "medium", "high")
DEFAULT_CONFIDENCE: Final = "medium"
PRIOR_FIELDS: Final = frozenset({"prior", "prior_confidence"})
"""Fields of a domain that say nothing where there is no prior; they are then neither shown nor written down."""


def checked_prior(domain: Any) -> Any:
    """Return a domain's prior in the domain's type, None where it has none.

    Args:
        domain: A domain, complete but for its prior, which may still be of another type.

    Raises:
        ValueError: If the prior lies outside the domain, or the confidence is none of `CONFIDENCES` or stands alone.
    """
    prior, confidence = domain.prior, domain.prior_confidence
    if confidence not in CONFIDENCES:
        raise ValueError(
            f"prior_confidence must be one of {CONFIDENCES}, got {confidence!r}; the default is {DEFAULT_CONFIDENCE!r}"
        )
    if prior is None:
        if confidence != DEFAULT_CONFIDENCE:
            raise ValueError(
                f"prior_confidence must come with a prior, got {confidence!r} alone; add prior=, the value presumed best"
            )
        return None
    if not domain.contains(prior):
        without = shown(domain, hidden=PRIOR_FIELDS)
        raise ValueError(
            f"prior must lie in {without}, got {prior!r}; widen the domain or move the prior into it"
        )
    return domain.cast(prior)


def shown(domain: Any, hidden: frozenset[str] | None = None) -> str:
    """Return how a domain is written down for people: its class and its fields, those of a prior only where there is one.

    Args:
        domain: A dataclass with a prior.
        hidden: Fields to leave out; None for those that say nothing.
    """
    if hidden is None:
        hidden = PRIOR_FIELDS if domain.prior is None else frozenset()
    fields = (field.name for field in dataclasses.fields(domain) if field.name not in hidden)
    return f"{type(domain).__qualname__}({', '.join(f'{name}={getattr(domain, name)!r}' for name in fields)})"
