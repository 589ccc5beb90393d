"""The simulated disk: its content after a power cut."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.faults.forgetful_disk import Platter

pytestmark = pytest.mark.unit
NUM_SECTORS = 4
SECTOR = 512

steps = st.lists(
    st.one_of(
        st.none(), st.tuples(st.integers(0, NUM_SECTORS - 1), st.binary(min_size=1, max_size=1))
    ),
    max_size=12,
)


def chance(seed):
    return Random(seed)  # noqa: S311  (not for cryptography)


def platter_of(steps):
    """Return a platter after these steps, and the possible contents of each sector.

    A step is a flush (None), or a write of a byte to all of a sector. A sector may hold its content
    at the last flush, or after any write since.
    """
    platter = Platter(bytes(NUM_SECTORS * SECTOR))
    possible = [{bytes(SECTOR)} for _ in range(NUM_SECTORS)]
    for at_s, step in enumerate(steps):
        if step is None:
            platter.flush()
            possible = [
                {bytes(platter.content[n * SECTOR : (n + 1) * SECTOR])} for n in range(NUM_SECTORS)
            ]
        else:
            number, byte = step
            platter.write(float(at_s), number * SECTOR, SECTOR * byte)
            possible[number].add(SECTOR * byte)
    return platter, possible


@given(steps, st.integers(0, 99))
def test_flushed_writes_are_kept_and_later_ones_may_be_lost(steps, seed):
    platter, possible = platter_of(steps)
    image = platter.image_at(len(platter.written), chance(seed))
    assert len(image) == NUM_SECTORS * SECTOR
    for number, contents in enumerate(possible):
        assert image[number * SECTOR : (number + 1) * SECTOR] in contents


@given(steps, st.integers(0, 99), st.data())
def test_an_image_holds_no_later_writes(steps, seed, data):
    platter, _ = platter_of(steps)
    number = data.draw(st.integers(0, len(platter.written)))
    writes = [step is not None for step in steps]
    num_steps = next((at for at in range(len(steps)) if sum(writes[: at + 1]) > number), len(steps))
    _, possible = platter_of(steps[:num_steps])
    image = platter.image_at(number, chance(seed))
    for sector, contents in enumerate(possible):
        assert image[sector * SECTOR : (sector + 1) * SECTOR] in contents


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_power_cut_may_lose_only_writes_that_were_not_flushed(is_flushed):
    platter = Platter(bytes(SECTOR))
    platter.write(0.0, 0, b"x" * SECTOR)
    if is_flushed:
        platter.flush()
    seen = {platter.image_at(1, chance(seed))[:1] for seed in range(30)}
    assert seen == ({b"x"} if is_flushed else {b"x", b"\0"})


def test_a_write_of_several_sectors_may_be_torn_between_sectors():
    platter = Platter(bytes(8 * SECTOR))
    platter.write(0.0, 0, b"x" * 8 * SECTOR)
    seen = {platter.image_at(1, chance(seed)).count(b"x") for seed in range(500)}
    assert len(seen) > 4
    assert all(count % SECTOR == 0 for count in seen)
