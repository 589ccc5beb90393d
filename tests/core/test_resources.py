"""The pool of resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.resources import ResourcePool

AMOUNTS = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
GPUS = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.34, 0.5, 0.75, 1.0, 2.0, 3.0])
REQUESTS = st.fixed_dictionaries({}, optional={"cpu": AMOUNTS, "gpu": GPUS, "licence": AMOUNTS})
CAPACITIES = st.fixed_dictionaries(
    {"cpu": AMOUNTS, "gpu": st.sampled_from([0, 1, 2, 4, 2.5])}, optional={"licence": AMOUNTS}
)


def test_ten_tenths_are_one():
    pool = ResourcePool({"cpu": 1.0, "gpu": 1.0})
    grants = [pool.acquire({"cpu": 0.1, "gpu": 0.1}) for _ in range(10)]
    assert grants == [(0,)] * 10
    assert pool.acquire({"cpu": 0.1}) is None
    assert pool.acquire({"gpu": 0.1}) is None
    for devices in grants:
        pool.release({"cpu": 0.1, "gpu": 0.1}, devices)
    assert pool.used == {"cpu": 0.0, "gpu": 0.0}


def test_fractions_share_the_fullest_device_that_has_room():
    pool = ResourcePool({"gpu": 3})
    assert [pool.acquire({"gpu": amount}) for amount in (0.5, 0.75, 0.25, 0.25)] == [
        (0,),
        (1,),
        (1,),
        (0,),
    ]
    assert pool.acquire({"gpu": 1}) == (2,)


def test_whole_devices_are_never_put_together_from_fractions():
    pool = ResourcePool({"gpu": 2})
    assert [pool.acquire({"gpu": 0.6}), pool.acquire({"gpu": 0.6})] == [(0,), (1,)]
    assert pool.acquire({"gpu": 0.6}) is None
    assert pool.num_fitting({"gpu": 0.6}, 9) == 0
    assert pool.num_fitting({"gpu": 0.4}, 9) == 2
    assert pool.num_fitting({"gpu": 1}, 9) == 0


def test_several_whole_devices_are_granted_at_once():
    pool = ResourcePool({"gpu": 4})
    assert pool.acquire({"gpu": 3}) == (0, 1, 2)
    assert pool.acquire({"gpu": 2}) is None
    pool.release({"gpu": 3}, (0, 1, 2))
    assert pool.acquire({"gpu": 4}) == (0, 1, 2, 3)


def test_a_part_of_a_device_at_the_end_does_not_exist():
    pool = ResourcePool({"cpu": 1.5, "gpu": 1.5})
    assert pool.capacity == {"cpu": 1.5, "gpu": 1.0}
    assert ResourcePool({"gpu": 0.5}).misfit({"gpu": 0.5})


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        ({"cpu": 3.0}, "ask for less cpu"),
        ({"tpu": 1.0}, "ask for less tpu"),
        ({"cpu": 3.0, "gpu": 3.0}, "ask for less cpu and gpu"),
        ({"gpu": 1.5}, "gpu must be a fraction below 1 or a whole number, got 1.5"),
    ],
)
def test_a_request_that_can_never_be_granted_has_a_reason(request_, part):
    assert part in ResourcePool({"cpu": 2.0, "gpu": 2.0}).misfit(request_)


def test_a_request_that_only_has_to_wait_is_no_misfit():
    pool = ResourcePool({"cpu": 1.0})
    assert pool.acquire({"cpu": 1.0}) == ()
    assert pool.acquire({"cpu": 1.0}) is None
    assert pool.misfit({"cpu": 1.0}) == ""


def test_what_is_not_asked_for_limits_nothing():
    pool = ResourcePool({"cpu": 1.0})
    assert pool.num_fitting({"cpu": 0.0, "gpu": 0.0}, 7) == 7
    assert pool.num_fitting({}, 7) == 7
    assert pool.num_fitting({"cpu": 0.25}, 7) == 4
    assert pool.num_fitting({"cpu": 0.25}, 3) == 3
    assert pool.num_fitting({"cpu": 0.25}, -1) == 0


@given(capacity=CAPACITIES, request_=REQUESTS)
def test_with_everything_free_a_request_fits_exactly_if_it_is_no_misfit(capacity, request_):
    pool = ResourcePool(capacity)
    assert (pool.acquire(request_) is not None) == (pool.misfit(request_) == "")


@given(
    capacity=CAPACITIES,
    steps=st.lists(st.tuples(REQUESTS, st.integers(0, 5)), min_size=10, max_size=30),
)
def test_grants_never_exceed_the_capacity_and_nothing_leaks(capacity, steps):
    pool = ResourcePool(capacity)
    before = pool.used
    held = []
    for request, choice in steps:
        if held and choice == 0:
            pool.release(*held.pop(0))
        elif not pool.misfit(request):
            could = pool.num_fitting(request, 1) == 1
            devices = pool.acquire(request)
            assert (devices is not None) == could
            if devices is not None:
                held.append((request, devices))
        check_held(pool, held)
    for grant in held:
        pool.release(*grant)
    assert pool.used == before == dict.fromkeys(pool.capacity, 0.0)


def check_held(pool, held):
    """Compare with what is held, counted anew."""
    for name, used in pool.used.items():
        assert used == pytest.approx(sum(request.get(name, 0.0) for request, _ in held))
        assert 0 <= used <= pool.capacity[name]
    load = [0.0] * int(pool.capacity.get("gpu", 0))
    for request, devices in held:
        assert len(set(devices)) == len(devices) == -(-request.get("gpu", 0.0) // 1)
        for device in devices:
            load[device] += min(request["gpu"], 1.0)
    assert all(share <= 1 + 1e-9 for share in load)


@given(capacity=CAPACITIES, request_=REQUESTS)
def test_as_many_fit_as_can_be_acquired_one_after_the_other(capacity, request_):
    pool = ResourcePool(capacity)
    if pool.misfit(request_):
        return
    expected = pool.num_fitting(request_, 20)
    count = 0
    while count < 20 and pool.acquire(request_) is not None:
        count += 1
    assert count == expected
