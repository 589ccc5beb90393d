"""What is trained: functions of a configuration and subclasses of `Trainable`.

What can be attached to either kind (`with_parameters`, `with_resources`), how functions are called,
and the registry of trainables by name.
"""

from __future__ import annotations

import contextlib
import difflib
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .group_trainable import GroupTrainable, TrainableSource, what_runs
from .resources import ResourceRequest, checked_labels, total_amounts

if TYPE_CHECKING:
    from .class_trainable import Trainable

CHECKPOINT_DIR = "checkpoint_dir"
"""Argument of functions written for Ray Tune 1: where the checkpoint is to continue from."""
_RENAMED = {
    "_train": "step",
    "_setup": "setup",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_stop": "cleanup",
}
"""Methods of Ray Tune's first classes, and their names since."""
# inspect finds the source of a class by __firstlineno__, which exists from Python 3.13 on.
_ABOUT_A_CLASS = ("__module__", "__qualname__", "__doc__", "__firstlineno__")


def is_class_trainable(trainable: Any) -> bool:
    """Return whether this is a subclass of `Trainable`, and not a function."""
    return isinstance(trainable, type) and issubclass(trainable, _base_class())


def _base_class() -> type[Trainable]:
    from .class_trainable import Trainable  # noqa: PLC0415  (functions need none of it)

    return Trainable


def can_be_saved(trainable: Any) -> bool:
    """Return whether this is a class trainable that can save itself when it is asked to."""
    return (
        is_class_trainable(trainable)
        and trainable.save_checkpoint is not _base_class().save_checkpoint
    )


def why_unsavable(trainable: Any) -> str:
    """Return why a trainable cannot be asked for a checkpoint, and what to do; empty if it can."""
    name = trainable_name(trainable)
    if not is_class_trainable(trainable):
        return (
            f"{name} is a function, and functions report their checkpoints themselves; "
            "call tune.report(metrics, checkpoint=...) in it"
        )
    return (
        ""
        if can_be_saved(trainable)
        else f"{name} has no save_checkpoint; implement save_checkpoint and load_checkpoint"
    )


def trainable_name(trainable: Any) -> str:
    """Return the name under which a trainable appears in tables and in the names of experiments.

    Example:
        >>> trainable_name(lambda config: None)
        'lambda'
    """
    function = trainable
    while not hasattr(function, "__name__") and hasattr(function, "func"):  # functools.partial
        function = function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """Return the trainable with objects that every trial gets in addition to its configuration.

    The objects are loaded once and shared by all trials of this machine, which should not change
    them. The original trainable is not changed.

    Args:
        trainable: A function ``train(config, data=…)``, or a subclass of `Trainable` with
            ``setup(self, config, data=…)``.
        **parameters: The objects by the names of these arguments.

    Raises:
        TypeError: If the function or `setup` does not take such an argument.

    Example:
        >>> train = with_parameters(lambda config, data: config["k"] * sum(data), data=[1, 2, 3])
        >>> train({"k": 10})
        60
    """
    if is_class_trainable(trainable):
        check_trainable(trainable)
        check_call(trainable.setup, trainable_name(trainable) + ".setup", (None, None), parameters)
        return derive(trainable, given_parameters={**trainable.given_parameters, **parameters})
    _refuse_group(trainable, "with_parameters")
    if isinstance(trainable, type) or not callable(trainable):
        check_trainable(trainable)
    if "config" in parameters:
        raise TypeError(
            "config cannot be given with with_parameters: each trial gets its own; "
            "choose another name"
        )
    check_call(trainable, trainable_name(trainable), *with_config(trainable, None, parameters))
    return bind(trainable, parameters)


def derive(trainable: Any, **attributes: Any) -> Any:
    """Return a trainable that behaves and is named like this one but has these attributes."""
    _refuse_group(trainable, "with_resources")
    if is_class_trainable(trainable):
        names = {
            name: getattr(trainable, name) for name in _ABOUT_A_CLASS if hasattr(trainable, name)
        }
        return types.new_class(
            trainable.__name__, (trainable,), exec_body=lambda body: body.update(names | attributes)
        )
    bound = bind(trainable, {})
    vars(bound).update(attributes)
    return bound


def check_trainable(trainable: Any) -> None:
    """Check that this can be trained.

    Accepted are functions of one configuration, and subclasses of `Trainable` that define `step`.

    Raises:
        TypeError: If it cannot.
    """
    name = trainable_name(trainable)
    if isinstance(trainable, type):
        if not issubclass(trainable, _base_class()):
            raise TypeError(
                f"a class trainable must derive from Trainable, got {name}; "
                "derive it, or pass a function of the configuration"
            )
        if inspect.isabstract(trainable):
            older = [f"{old} to {new}" for old, new in _RENAMED.items() if hasattr(trainable, old)]
            hint = f"rename {', '.join(older)}" if older else "it is called once for each iteration"
            raise TypeError(f"{name} must implement step, which is abstract; {hint}")
    elif not callable(trainable):
        raise TypeError(
            f"trainable must be a function of the configuration or a subclass of Trainable, "
            f"got {trainable!r:.80}"
        )
    else:
        check_function(trainable, name)


def _refuse_group(trainable: Any, asked: str) -> None:
    is_group = isinstance(trainable, GroupTrainable | TrainableSource)
    if is_group and not isinstance(trainable, type):
        raise TypeError(
            f"{asked} needs a function or a subclass of Trainable, got the trainer "
            f"{trainable_name(trainable)!r}; give the trainer its arguments and resources"
        )


def call_function(
    function: Callable[..., Any],
    config: dict[str, Any],
    ask_for_checkpoint: Callable[[], str | None] = lambda: None,
) -> Any:
    """Call a function trainable with the configuration as ``config``, or as first argument.

    One with an argument ``checkpoint_dir``, as Ray Tune 1 had it, gets the directory of the
    checkpoint to continue from, None at the first start.
    """
    arguments, named = with_config(function, config, {})
    # Ray Tune 1 asked for this argument where checkpoints were written, so some do not use it.
    if CHECKPOINT_DIR in named and _uses_argument(function, CHECKPOINT_DIR):
        named[CHECKPOINT_DIR] = ask_for_checkpoint()
    return function(*arguments, **named)


def bind(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with these arguments bound, and with its name and attributes."""
    bound = functools.partial(function, **parameters)

    @functools.wraps(function)
    def train(*arguments: Any, **named: Any) -> Any:
        return bound(*arguments, **named)

    # Or inspect would report the signature of the original, without the arguments bound here.
    del train.__wrapped__
    vars(train)["func"] = function
    if signature := _signature(bound):
        vars(train)["__signature__"] = signature
    return train


def with_config(
    function: Callable[..., Any], config: Any, parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments to call `function` with."""
    if _takes_checkpoint_dir(function):
        parameters = {CHECKPOINT_DIR: None, **parameters}
    return (
        ((), {"config": config, **parameters})
        if _takes_config_by_name(function)
        else ((config,), dict(parameters))
    )


def check_function(function: Callable[..., Any], name: str) -> None:
    """Check that a function can be called with the configuration alone.

    Raises:
        TypeError: If it cannot, if which argument that is is ambiguous, or if it is asynchronous.
    """
    called = getattr(function, "__call__", function)  # noqa: B004  (callables only)
    if any(
        inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)
        for code in (function, called)
    ):
        raise TypeError(
            f"{name} is asynchronous, and training blocks; "
            "pass a plain function that runs it with asyncio.run"
        )
    if any(one.name == "reporter" and one.default is one.empty for one in _arguments(function)):
        raise TypeError(
            f"{name} must take the configuration alone, got {_shown(function)}; "
            "leave reporter out, and call tune.report(metrics) in place of it"
        )
    if not (_takes_config_by_name(function) or _takes_config_first(function)):
        raise TypeError(
            f"{name} must take the configuration as an argument config or as the only one without "
            f"a default, got {_shown(function)}; "
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
            f"{name}{_shown(function)} cannot be called with ({asked}): {cause}; "
            "see with_parameters for further arguments"
        ) from cause


def _shown(function: Callable[..., Any]) -> str:
    """Return the arguments without their defaults, which may be huge."""
    signature = _signature(function)
    return f"({', '.join(signature.parameters)})" if signature else "(...)"


def _takes_config_by_name(function: Callable[..., Any]) -> bool:
    # Then it may stand anywhere, e.g. behind arguments that functools.partial has bound.
    signature = _signature(function)
    config = signature.parameters.get("config") if signature else None
    return config is not None and config.kind in (config.POSITIONAL_OR_KEYWORD, config.KEYWORD_ONLY)


def _uses_argument(function: Callable[..., Any], name: str) -> bool:
    """Return whether the code of a function mentions an argument; True where that is not known."""
    while inner := getattr(function, "func", None) or getattr(function, "__wrapped__", None):
        function = inner
    code = getattr(function, "__code__", None)
    if code is None or name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return True
    # One instruction may name two variables from Python 3.13 on.
    named = (instruction.argval for instruction in dis.get_instructions(code))
    return any(name in one if isinstance(one, tuple) else one == name for one in named)


def _takes_config_first(function: Callable[..., Any]) -> bool:
    """Return whether the configuration can only be the first argument, whatever its name."""
    positional = [
        argument
        for argument in _arguments(function)
        if argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
    ]
    needed = [one for one in positional if one.default is one.empty and one.name != CHECKPOINT_DIR]
    return len(positional) < 2 or needed == positional[:1]  # noqa: PLR2004  (it and others)


def _takes_checkpoint_dir(function: Callable[..., Any]) -> bool:
    """Return whether there is an argument ``checkpoint_dir`` to which nothing else is bound."""
    return any(
        argument.name == CHECKPOINT_DIR
        and argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY)
        and (argument.default is None or argument.default is argument.empty)
        for argument in _arguments(function)
    )


def _arguments(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    signature = _signature(function)
    return signature.parameters.values() if signature else ()


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, None for builtins that do not tell theirs."""
    with contextlib.suppress(TypeError):
        return _signature_of_hashable(function)
    return _signature_of_hashable.__wrapped__(function)


@functools.lru_cache(maxsize=16)
def _signature_of_hashable(function: Callable[..., Any]) -> inspect.Signature | None:
    # Cached before the fork: in each worker it would take a tenth of the time of an empty trial.
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def forget_signatures() -> None:
    """Let functions be freed whose signatures are cached."""
    _signature_of_hashable.cache_clear()


DEFAULT_REQUEST = {"cpu": 1.0}


def with_resources(
    trainable: Any,
    resources: ResourceRequest | Callable[[dict[str, Any]], ResourceRequest],
    labels: Mapping[str, str] | Callable[[dict[str, Any]], Mapping[str, str]] | None = None,
) -> Any:
    """Return the trainable with a request for resources, which replaces an earlier one.

    The original trainable is not changed.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        resources: What each trial occupies, e.g. ``{"cpu": 2, "gpu": 0.5}``, or a function of the
            configuration that returns it. Trials may share a GPU by fractions. A trial occupies
            nothing of resources that are not named.
        labels: What the node must have on which a trial runs, e.g. ``{"accelerator": "A100"}``, or
            a function of the configuration that returns it; only with ``RunConfig(cluster=...)``.
            Besides a value, ``"in(A100,H100)"`` asks for one of several, and ``"!A100"`` and
            ``"!in(A100,H100)"`` for any other one, or none. None, the default, for any node.

    Raises:
        TypeError: If `trainable`, `resources` or `labels` has another type.
        ValueError: If an amount is negative or no number.

    Example:
        >>> train = with_resources(lambda config: None, {"cpu": 2, "gpu": 0.5})
        >>> resources_for(train, {})
        {'cpu': 2.0, 'gpu': 0.5}

    Departures:
        `labels` is no argument of Ray Tune's.
    """
    _refuse_group(trainable, "with_resources")
    check_trainable(trainable)
    if not callable(resources):
        total_amounts(resources)
    if labels is not None and not callable(labels):
        labels = checked_labels(labels)
    return derive(trainable, requested_resources=resources, requested_labels=labels)


def resources_for(trainable: Any, config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a trial with this configuration occupies: 1 CPU without a request.

    Raises:
        TypeError: If the request is neither a dictionary nor a `PlacementGroupFactory`.
        ValueError: If an amount is negative or no number.
    """
    request = getattr(trainable, "requested_resources", None)
    if request is None and is_class_trainable(trainable):
        request = trainable.default_resource_request(dict(config))
    elif callable(request):
        request = request(dict(config))
    return dict(DEFAULT_REQUEST) if request is None else total_amounts(request)


def labels_for(trainable: Any, config: Mapping[str, Any]) -> dict[str, str]:
    """Return what the node must have of a trial with this configuration; empty for any node.

    Raises:
        TypeError: If the request is no dictionary of strings.
    """
    labels = getattr(trainable, "requested_labels", None)
    return checked_labels(labels(dict(config)) if callable(labels) else labels or {})


def asks_for_labels(trainable: Any) -> bool:
    """Return whether trials ask for labels of their nodes, or may do so."""
    return bool(getattr(trainable, "requested_labels", None))


def requests_vary(trainable: Any) -> bool:
    """Return whether trials may ask for different resources, by their configurations."""
    if is_class_trainable(trainable) and getattr(trainable, "requested_resources", None) is None:
        declared = trainable.default_resource_request.__func__
        return declared is not _base_class().default_resource_request.__func__  # type: ignore[attr-defined]
    return isinstance(trainable, GroupTrainable) or any(
        callable(getattr(trainable, name, None))
        for name in ("requested_resources", "requested_labels")
    )


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any) -> None:
    """Register a trainable under a name, which `Tuner` accepts instead of it.

    Args:
        name: The name; an earlier trainable of this name is replaced.
        trainable: A function of the configuration, a subclass of `Trainable`, or a trainer.

    Raises:
        TypeError: If `name` is no string, or `trainable` cannot be trained.

    Example:
        >>> register_trainable("quadratic", lambda config: {"loss": config["x"] ** 2})
        >>> get_trainable("quadratic")({"x": 3})
        {'loss': 9}
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    check_trainable(what_runs(trainable))
    _registered[name] = trainable


def get_trainable(name: str) -> Any:
    """Return the trainable registered under the name.

    Raises:
        ValueError: If there is none; the message names the closest ones.
    """
    if name in _registered:
        return _registered[name]
    close = difflib.get_close_matches(str(name), _registered)
    known = (
        f"did you mean {' or '.join(map(repr, close))}"
        if close
        else f"registered are {sorted(_registered) or 'none'}"
    )
    raise ValueError(
        f"no trainable is registered as {name!r}; {known}; "
        f"call register_trainable({name!r}, trainable) first"
    )
