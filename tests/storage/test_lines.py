"""A line is the same whoever puts it together."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.storage import lines, segments

PLACES = {
    b"%d": st.integers(-(1 << 63), (1 << 63) - 1),
    b"%b": st.binary(max_size=5),
    lines.STAMP: st.integers(0, 10**15 - 1).map(lambda us: us / 1e6),
}
LITERALS = st.binary(max_size=5).filter(lambda literal: b"%" not in literal)


@st.composite
def forms(draw):
    places = draw(st.lists(st.sampled_from(sorted(PLACES)), max_size=6))
    form = draw(LITERALS) + b"".join(place + draw(LITERALS) for place in places)
    return form, tuple(draw(PLACES[place]) for place in places)


@given(forms())
@example((b"%b%b", (b"x" * 5_000, b"")))
@example((b"%.6f%d", (999_999_999.999999, 0)))
@example((b"%.6f", (0.000001,)))
def test_a_line_verifies_and_is_the_same_in_either_language(given):
    line, crc = lines.filled(*given)
    assert (line, crc) == lines.in_python(*given)
    assert line.endswith(b"\n")
    assert line[:9] == b"%08x " % crc
    assert segments.body_of(line[:-1]) == (given[0] % given[1] or None)


@given(st.integers(0, 10**15 - 1))
def test_a_stamp_comes_back_as_it_was(microseconds):
    stamp = microseconds / 1e6
    line, _ = lines.filled(b"%.6f", (stamp,))
    assert float(line[9:]) == stamp


@pytest.mark.parametrize(
    ("form", "values"),
    [(b"%d", ()), (b"", (1,)), (b"%d", (b"1",)), (b"%b", (1,)), (b"%.6f", (b"",)), (b"%x", (b"",)), (b"%", (1,)), (b"%.", (1.0,))],
)
def test_what_does_not_fit_its_form_is_refused(form, values):
    with pytest.raises((TypeError, ValueError)):
        lines.filled(form, values)
