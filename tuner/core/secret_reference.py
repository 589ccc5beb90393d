"""Reference to a secret: a configuration holds the name of an environment variable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@final
@dataclass(frozen=True, slots=True)
class Secret:
    """A value that training code gets from the environment, and that is written nowhere.

    In the configuration that the training code sees, the value of the environment variable stands
    in its place. Everywhere else, in files, logs, tables and on the screen, the secret is its name.
    The variable must be set where the experiment is started, and again where it is restored. What
    the training code itself prints or saves is not looked after; where it reports the value or
    raises it in an exception, the name is written instead.

    Args:
        name: Name of the environment variable.

    Raises:
        ValueError: If that cannot be one; the message does not tell it, lest it be the secret
            itself.

    Example:
        >>> import tuner as tune
        >>> param_space = {"lr": tune.loguniform(1e-4, 1e-1), "api_key": tune.Secret("HUB_API_KEY")}
        >>> param_space["api_key"]
        Secret('HUB_API_KEY')
    """

    name: str

    def __post_init__(self) -> None:
        """Refuse what is no name."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "name must be the name of an environment variable (letters, digits and '_', "
                "no digit first), got something else, "
                "which is not repeated here; put the secret into the environment and its name here"
            )

    def __repr__(self) -> str:
        """Return how it was written."""
        return f"Secret({self.name!r})"
