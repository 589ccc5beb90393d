import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.stopping.expected_gain import expected_gain

COLUMNS = st.integers(1, 3).flatmap(
    lambda num: st.lists(st.tuples(*[st.floats(-10, 10)] * num), min_size=2, max_size=6)
)


@given(COLUMNS, st.data())
@settings(max_examples=examples(60))
def test_it_is_what_the_last_ones_gain_on_average_over_all_orders(costs, data):
    num_next = data.draw(st.integers(1, len(costs) - 1))
    gains = [
        np.mean(np.min(order[:-num_next], axis=0) - np.min(order, axis=0))
        for order in itertools.permutations(costs)  # at most 720
    ]
    found = expected_gain(costs, num_next)
    assert found.mean == pytest.approx(statistics.fmean(gains), abs=1e-9)
    assert found.deviation == pytest.approx(statistics.pstdev(gains), abs=1e-6)


@pytest.mark.parametrize("num_next", [0, 3, 7])
def test_there_have_to_be_trials_before(num_next):
    with pytest.raises(ValueError, match=f"num_next must be from 1 to 2, got {num_next}; "):
        expected_gain([[1.0], [2.0], [3.0]], num_next)
