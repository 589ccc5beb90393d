"""Parameters that functions compute, of others where they take an argument: `sample_from`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from .computed_values import ConfigView


@final
@dataclass(frozen=True, slots=True)
class SampleFrom:
    """A parameter that a function computes.

    Attributes:
        function: Called with nothing, or with the configuration so far (`ConfigView`) if it takes
            an argument.
    """

    function: Callable[..., Any]
    _takes_config: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that the function is callable."""
        if not callable(self.function):
            raise TypeError(
                f"sample_from must be given a function, got {self.function!r}; give a constant as "
                "it is"
            )
        object.__setattr__(self, "_takes_config", _takes_argument(self.function))

    def call(self, config: ConfigView) -> Any:
        """Return what the function computes from the configuration so far."""
        return self.function(config) if self._takes_config else self.function()


def sample_from(function: Callable[..., Any]) -> SampleFrom:
    """Return a parameter computed by a function, of other parameters if it takes an argument.

    The function is called for each trial with the configuration so far (see `ConfigView`), and
    postponed while it reads values that are not known yet. It may return domains, which
    are then sampled. Its own random numbers do not depend on the experiment's seed. Searchers that
    fit a model of the space refuse such parameters; use `only_if` for conditional ones.

    Args:
        function: ``function()`` or ``function(config)``.

    Example:
        >>> from searchers.space import ConfigView
        >>> space = {"batch": 32, "lr": sample_from(lambda config: config.batch / 1000)}
        >>> space["lr"].call(ConfigView(space))
        0.032
    """
    return SampleFrom(function)


def _takes_argument(function: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a built-in function without a signature
        return False
