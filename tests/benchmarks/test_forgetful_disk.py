"""What is on a disk after a power cut."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.faults.forgetful_disk import Platter

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
    """Return a platter with these writes of one sector and flushes, and what each sector has held after each write since the last flush."""
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
def test_what_was_flushed_is_there_and_of_what_came_after_it_anything_may_be(steps, seed):
    platter, possible = platter_of(steps)
    image = platter.image_at(len(platter.written), chance(seed))
    assert len(image) == NUM_SECTORS * SECTOR
    for number, contents in enumerate(possible):
        assert image[number * SECTOR : (number + 1) * SECTOR] in contents


@given(steps, st.integers(0, 99), st.data())
def test_nothing_is_there_that_is_written_later(steps, seed, data):
    platter, _ = platter_of(steps)
    number = data.draw(st.integers(0, len(platter.written)))
    writes = [step is not None for step in steps]
    num_steps = next((at for at in range(len(steps)) if sum(writes[: at + 1]) > number), len(steps))
    _, possible = platter_of(steps[:num_steps])
    image = platter.image_at(number, chance(seed))
    for sector, contents in enumerate(possible):
        assert image[sector * SECTOR : (sector + 1) * SECTOR] in contents


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_power_cut_takes_what_was_not_flushed_sooner_or_later(is_flushed):
    platter = Platter(bytes(SECTOR))
    platter.write(0.0, 0, b"x" * SECTOR)
    if is_flushed:
        platter.flush()
    seen = {platter.image_at(1, chance(seed))[:1] for seed in range(30)}
    assert seen == ({b"x"} if is_flushed else {b"x", b"\0"})


def test_a_write_of_several_sectors_may_be_torn_between_them():
    platter = Platter(bytes(8 * SECTOR))
    platter.write(0.0, 0, b"x" * 8 * SECTOR)
    seen = {platter.image_at(1, chance(seed)).count(b"x") for seed in range(500)}
    assert len(seen) > 4
    assert all(count % SECTOR == 0 for count in seen)
