"""Problems made of the data sets that come with statsmodels, which is needed to make tables only.

Economic and social data: surveys, time series, and choices of people.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .problems import Floats, Problem, raw, split

if TYPE_CHECKING:
    from numpy.typing import NDArray


def affairs(metric: str, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting from a survey of wives whether they had an affair.

    The occupations of wife and husband are categories.
    """
    inputs, affair_rates = _columns_and_target("fair", "affairs")
    return raw(
        metric,
        inputs,
        (affair_rates > 0).astype(np.int64),
        (num_train, num_valid),
        seed,
        categories=(6, 7),
    )


def party(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting a voter's party, one of seven degrees; share of errors."""
    inputs, degrees = _columns_and_target("anes96", "PID", "vote", "logpopul")
    return split("error", inputs, degrees.astype(np.int64), (num_train, num_valid), seed)


def vote(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting a vote of 1996 without the party; cross-entropy."""
    inputs, votes = _columns_and_target("anes96", "vote", "PID", "logpopul")
    return split("log_loss", inputs, votes.astype(np.int64), (num_train, num_valid), seed)


def doctor_visits(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the logarithm of visits to a doctor; absolute error."""
    inputs, visits = _columns_and_target("randhie", "mdvis")
    return raw("mae", inputs, np.log1p(visits)[:, None], (num_train, num_valid), seed)


def school_scores(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the share of good pupils of a district; squared error."""
    inputs, above, below = _columns_and_targets("star98", ("NABOVE", "NBELOW"))
    shares = above / (above + below)
    return raw("mse", inputs, shares[:, None], (num_train, num_valid), seed)


def next_sunspots(num_lags: int, num_train: int, num_valid: int) -> Problem:
    """Return the problem of predicting a year's sunspots from the years before; squared error."""
    _, spots = _columns_and_target("sunspots", "SUNACTIVITY")
    lags = np.lib.stride_tricks.sliding_window_view(spots, num_lags + 1)
    return split("mse", _floats(lags[:, :-1]), lags[:, -1:], (num_train, num_valid), None)


def next_inflation(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting inflation from the quarter before; squared error.

    Inputs are the changes of all series of the United States, and the last two rates.
    """
    inputs, rates = _columns_and_target("macrodata", "infl", "year", "quarter")
    changes = np.diff(inputs, axis=0) / np.abs(inputs[:-1]).mean(axis=0)
    before = np.column_stack([changes, rates[1:], rates[:-1]])[:-1]
    return split("mse", _floats(before), rates[2:, None], (num_train, num_valid), seed)


def travel_mode(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting how a traveller goes: by air, train, bus or car.

    Inputs are time and cost of each, income, and the size of the party; cross-entropy.

    Losses come close to 0: in these data, the travellers who did not go by air, train or bus have
    one of two waiting times for it, and those who did have others.
    """
    data = _data("modechoice")
    ways = data[["ttme", "invc", "invt", "gc"]].to_numpy(float).reshape(-1, 16)
    people = data[["hinc", "psize"]].to_numpy(float).reshape(-1, 4, 2)[:, 0]
    modes = data["choice"].to_numpy(float).reshape(-1, 4).argmax(axis=1)
    # The waiting time of a car is always 0.
    inputs = _floats(np.delete(np.column_stack([ways, people]), 12, axis=1))
    return split("log_loss", inputs, modes, (num_train, num_valid), seed)


def investments(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the logarithm of a firm's investments; squared error."""
    data = _data("grunfeld")
    _, numbers = np.unique(data["firm"].to_numpy(dtype=str), return_inverse=True)
    firms = np.eye(numbers.max() + 1)[numbers]
    inputs = np.column_stack([np.log(data[["value", "capital"]]), data["year"], firms])
    targets = np.log(data["invest"].to_numpy(float))[:, None]
    return split("mse", _floats(inputs), targets, (num_train, num_valid), seed)


@functools.cache
def _data(name: str) -> Any:
    """Return a data set of statsmodels, as a data frame."""
    return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data


def _columns_and_target(name: str, target: str, *without: str) -> tuple[Floats, NDArray[Any]]:
    inputs, values = _columns_and_targets(name, (target,), *without)
    return inputs, values


def _columns_and_targets(name: str, targets: tuple[str, ...], *without: str) -> list[NDArray[Any]]:
    data = _data(name)
    return [
        _floats(data.drop(columns=[*targets, *without]).to_numpy(float)),
        *(data[target].to_numpy(float) for target in targets),
    ]


def _floats(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32)
