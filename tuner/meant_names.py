"""What is meant by names that ``tuner`` does not have: misspelt, or of other libraries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

import schedulers
import searchers

_OF_OTHER_LIBRARIES: Final = {
    "suggest_float": "write tune.uniform(low, high) or tune.loguniform(low, high) in param_space",
    "suggest_uniform": "write tune.uniform(low, high) in param_space",
    "suggest_loguniform": "write tune.loguniform(low, high) in param_space",
    "suggest_discrete_uniform": "write tune.quniform(low, high, q) in param_space",
    "suggest_int": "write tune.randint(low, high + 1) in param_space",
    "suggest_categorical": "write tune.choice([...]) in param_space",
    "create_study": "write tune.Tuner(train, param_space=..., tune_config=...)",
    "load_study": "use tune.ResultGrid.from_directory(path)",
    "Study": "write tune.Tuner(train, param_space=..., tune_config=...)",
    "fmin": "write tune.Tuner(train, param_space=..., tune_config=...).fit()",
    "pchoice": "use tune.choice([...]), whose options are equally likely",
    "categorical": "use tune.choice([...])",
    "uniformint": "use tune.randint(lower, upper + 1)",
    "int_uniform": "use tune.randint(lower, upper + 1)",
    "normal": "use tune.randn(mean, sd)",
    "qnormal": "use tune.qrandn(mean, sd, q)",
    "sample": "use tune.sample_from(function)",
    "sweep": "write tune.Tuner(train, param_space=..., tune_config=...)",
    "agent": "write tune.Tuner(train, param_space=..., tune_config=...).fit()",
    "init": "leave it out, tune.Tuner needs no start",
    "shutdown": "leave it out, nothing is left running after fit()",
    "is_initialized": "leave it out, tune.Tuner needs no start",
    "session": "use tune.report, tune.get_checkpoint and tune.get_context()",
}
_OF_TRAINING: Final = {
    "TorchTrainer": "tuner.train.torch",
    "TorchConfig": "tuner.train.torch",
    "prepare_model": "tuner.train.torch",
    "prepare_data_loader": "tuner.train.torch",
    "TensorflowTrainer": "tuner.train.tensorflow",
    "ScalingConfig": "tuner.train",
    "DataParallelTrainer": "tuner.train",
    "get_dataset_shard": "tuner.train",
}


def hint_for(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a name, empty if that is unknown.

    Args:
        name: The name.
        known: The names that there are.

    Example:
        >>> hint_for("ASHAScheduler", [])
        'write from schedulers import ASHAScheduler'
        >>> hint_for("logunifrom", ["loguniform", "uniform"])
        "did you mean 'loguniform'?"
    """
    if name in _OF_OTHER_LIBRARIES:
        return _OF_OTHER_LIBRARIES[name]
    packages = {"schedulers": schedulers.__all__, "searchers": searchers.__all__}
    for package, names in packages.items():
        if name in names:
            return f"write from {package} import {name}"
    if name in _OF_TRAINING:
        return f"write from {_OF_TRAINING[name]} import {name}"
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    for package, names in packages.items():
        if close := difflib.get_close_matches(name, names, n=1):
            return f"did you mean {close[0]!r}, from {package} import {close[0]}?"
    return ""
