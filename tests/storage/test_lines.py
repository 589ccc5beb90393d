"""A line is the same whoever puts it together."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.journal import segments
from tuner.storage import lines

PLACES = {
    b"%d": st.integers(-(1 << 63), (1 << 63) - 1),
    b"%b": st.binary(max_size=5),
    b"%a": st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(0, 10**16).map(lambda millionths: millionths / 1e6),
}
LITERALS = st.binary(max_size=5).filter(lambda literal: b"%" not in literal)


@st.composite
def forms(draw):
    places = draw(st.lists(st.sampled_from(sorted(PLACES)), max_size=6))
    form = draw(LITERALS) + b"".join(place + draw(LITERALS) for place in places)
    return form, tuple(draw(PLACES[place]) for place in places)


@given(forms())
@example((b"%b%b", (b"x" * 5_000, b"")))
@example((b"%a%a%a%a", (1e-4, 9.9e-5, 0.1, 20.0)))
@example((b"%a%a%a", (999_999_999.999999, 1e9, 1000.000001)))
@example((b"%a%d", (-2.2250738585072014e-308, -(1 << 63))))
def test_a_line_verifies_and_is_the_same_in_either_language(given):
    line, crc = lines.filled(*given)
    assert (line, crc) == lines.in_python(*given)
    assert line.endswith(b"\n")
    assert line[:9] == b"%08x " % crc
    assert segments.body_of(line[:-1]) == (given[0] % given[1] or None)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        (b"%d", ()),
        (b"", (1,)),
        (b"%d", (b"1",)),
        (b"%b", (1,)),
        (b"%x", (b"",)),
        (b"%", (1,)),
        (b"%.", (1.0,)),
    ],
)
def test_what_does_not_fit_its_form_is_refused(form, values):
    with pytest.raises((TypeError, ValueError)):
        lines.filled(form, values)
