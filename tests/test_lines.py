"""No room outgrows the figure that it has in ``lines.toml``, nor does the smallest fit."""

import tomllib

import pytest

from tests import lines

ALLOWED = tomllib.loads(lines.FILE.read_text(encoding="utf-8"))

TEXT = """# How many lines.

"tuner/core" = 5000

"tuner/gone" = 70  # they asked for it

"tuner/spec" = 400  # a 400 that is no figure
"""


def test_no_room_outgrows_its_figure():
    allowed = {name: size for name, size in ALLOWED.items() if name not in lines.FIT_STEPS}
    assert lines.differences(lines.rooms(), allowed) == []


@pytest.mark.process
def test_the_smallest_fit_loads_no_more_than_its_figures():
    allowed = {name: ALLOWED[name] for name in lines.FIT_STEPS}
    assert lines.differences(lines.smallest_fit(), allowed) == []


def test_a_room_is_a_folder_without_those_in_it(tmp_path):
    for name in (
        "tuner/a.py",
        "tuner/core/b.py",
        "tuner/core/c.py",
        "schedulers/d.py",
        "docs/e.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\ny = 2\n")
    (tmp_path / "tuner" / "page.js").write_text("\n")
    assert lines.rooms(tmp_path) == {"schedulers": 2, "tuner": 2, "tuner/core": 4}


def test_a_room_may_be_a_little_below_its_figure_and_never_above():
    allowed = {"large": 10_000, "small": 100}
    assert lines.differences({"large": 9_800, "small": 1}, allowed) == []
    [below, above] = lines.differences({"large": 9_799, "small": 103}, allowed)
    assert below.startswith("large has 9799, 201 fewer than")
    assert below.endswith("run python -m tests.lines --lower")
    assert above.startswith("small has 103, 3 more than")
    assert "raise the figure to 150 with a comment that says which user asked" in above


def test_rooms_come_and_go_with_their_figures():
    [new] = lines.differences({"new": 30}, {})
    assert 'add "new" = 50 to tests/lines.toml' in new
    assert lines.differences({}, {"old": 30}) == ["old is gone; run python -m tests.lines --lower"]


def test_figures_are_lowered_and_never_raised():
    after = lines.lowered(TEXT, {"tuner/core": 3951, "tuner/spec": 500})
    assert after == TEXT.replace("5000", "4000").replace(
        '"tuner/gone" = 70  # they asked for it\n\n', ""
    )
    assert lines.lowered(after, {"tuner/core": 4000, "tuner/spec": 350}).endswith(
        '"tuner/spec" = 350  # a 400 that is no figure\n'
    )
