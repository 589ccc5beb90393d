"""How a function trainable is called: what it may take, and what it gets."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def call_function(function: Callable[..., Any], config: dict[str, Any]) -> Any:
    """Call a function trainable: the configuration goes to its argument ``config``, else to its first one."""
    arguments, named = with_config(function, config, {})
    return function(*arguments, **named)


def bind(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with these arguments given, with its name and attributes, and free to have more."""
    bound = functools.partial(function, **parameters)

    @functools.wraps(function)
    def train(*arguments: Any, **named: Any) -> Any:
        return bound(*arguments, **named)

    # The signature is that of what is left to be given.
    del train.__wrapped__
    vars(train)["func"] = function
    if signature := _signature(bound):
        vars(train)["__signature__"] = signature
    return train


def with_config(
    function: Callable[..., Any], config: Any, parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments with which `function` is to be called."""
    return (
        ((), {"config": config, **parameters})
        if _takes_config_by_name(function)
        else ((config,), dict(parameters))
    )


def check_function(function: Callable[..., Any], name: str) -> None:
    """Check that a function can be called with the configuration alone.

    Raises:
        TypeError: If it cannot, is ambiguous about which argument that is, or is asynchronous.
    """
    called = getattr(function, "__call__", function)  # noqa: B004  (what is asked is how it is called, not whether it can be)
    if any(
        inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)
        for code in (function, called)
    ):
        raise TypeError(
            f"{name} is asynchronous, and training blocks; pass a plain function that runs it with asyncio.run"
        )
    if not _takes_config_by_name(function) and _num_positional(function) > 1:
        raise TypeError(
            f"{name} must take the configuration as an argument config or as its only positional one, got {_shown(function)}; "
            "read hyperparameters from config, and pass other objects with with_parameters"
        )
    check_call(function, name, *with_config(function, None, {}))


def check_call(
    function: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Check that a function takes these arguments.

    Raises:
        TypeError: If it does not; says which are missing or too many.
    """
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(*arguments, **named)
    except TypeError as cause:
        asked = ", ".join(("config", *(given for given in named if given != "config")))
        raise TypeError(
            f"{name}{_shown(function)} cannot be called with ({asked}): {cause}; see with_parameters for further arguments"
        ) from cause


def _shown(function: Callable[..., Any]) -> str:
    """Return the arguments without their defaults, which may be huge."""
    signature = _signature(function)
    return f"({', '.join(signature.parameters)})" if signature else "(...)"


def _takes_config_by_name(function: Callable[..., Any]) -> bool:
    signature = _signature(function)
    config = signature.parameters.get("config") if signature else None
    return config is not None and config.kind in (config.POSITIONAL_OR_KEYWORD, config.KEYWORD_ONLY)


def _num_positional(function: Callable[..., Any]) -> int:
    signature = _signature(function)
    arguments = signature.parameters.values() if signature else ()
    return sum(
        argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
        for argument in arguments
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, None for builtins that do not tell theirs."""
    with contextlib.suppress(TypeError):
        return _signature_of_hashable(function)
    return _signature_of_hashable.__wrapped__(function)


@functools.lru_cache(maxsize=16)
def _signature_of_hashable(function: Callable[..., Any]) -> inspect.Signature | None:
    # What is known before workers are forked need not be found out in each, where it would be a tenth of an empty trial.
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
