"""Tensors of PyTorch among the metrics become what arrays become."""

import math

import pytest

from tuner.execution.metric_conversion import Converter, as_metrics

pytestmark = pytest.mark.heavy
torch = pytest.importorskip("torch")


def convert(metrics):
    return Converter().convert(metrics)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (torch.tensor(2.0), 2.0),
        (torch.tensor([3]), 3),
        (torch.tensor(2.0, requires_grad=True) * 2, 4.0),
        (torch.ones(2, dtype=torch.bfloat16), [1.0, 1.0]),
    ],
)
def test_values_are_converted_as_in_the_table(value, becomes):
    converted = convert({"x": value})["x"]
    assert converted == becomes
    assert type(converted) is type(becomes)


def test_nan_is_kept():
    assert math.isnan(convert({"x": torch.tensor(math.nan)})["x"])


def test_large_tensors_become_a_summary_with_one_warning():
    tensor, converter = torch.arange(100.0).reshape(4, 25), Converter()
    with pytest.warns(UserWarning, match="'x' has 100 elements"):
        summary = converter.convert({"x": tensor})["x"]
    assert summary == {"shape": [4, 25], "dtype": str(tensor.dtype), "min": 0.0, "max": 99.0}
    assert converter.convert({"x": tensor})["x"] == summary


def test_a_number_becomes_the_default_metric():
    number = torch.tensor(3)
    assert as_metrics(number) == {"_metric": number}
