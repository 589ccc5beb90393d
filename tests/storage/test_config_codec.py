"""Values of configurations are read back as they were written, and no code is ever stored."""

import collections
import enum
import json
import logging
import math
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space import choice, grid_search, only_if, sample_from, uniform
from tuner.errors import StorageError
from tuner.storage import strict_json
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec, check_keys, missing, require_complete

Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  (as users write them)


class Colour(enum.IntEnum):
    RED = 1


class Plain:
    """Has the same representation as all other objects of its class."""

    def __repr__(self):
        return "Plain()"


def mse(prediction, truth):
    return (prediction - truth) ** 2


@pytest.fixture
def codec(tmp_path):
    return lambda space: ConfigCodec(space, ArrayStore(tmp_path, sync=False))


@pytest.fixture
def journey(codec):
    """Encode a configuration under one space, and decode it under the same or another one."""

    def travel(config, space, later=None):
        text = strict_json.dumps(codec(space).encode(config))
        return codec(space if later is None else later).decode(strict_json.loads(text))

    return travel


def test_constants_come_back_as_the_very_objects_of_the_space(journey):
    space = {
        "loss": mse,
        "deep": {"of": [Plain(), Plain], "point": Point(1, 2)},
        "path": pathlib.Path("a"),
        "ids": {1},
        "red": Colour.RED,
    }
    back = journey(space, space)
    assert back == space
    assert back["deep"]["of"][0] is space["deep"]["of"][0]
    assert type(back["deep"]["point"]) is Point
    assert type(back["red"]) is Colour


@pytest.mark.parametrize("word", [choice, grid_search])
def test_of_categories_that_look_the_same_each_comes_back_as_itself(journey, word):
    losses = [lambda x: x, lambda x: -x, Plain(), Plain()]
    space = {"model": {"loss": word(losses)}}
    for loss in losses:
        assert journey({"model": {"loss": loss}}, space)["model"]["loss"] is loss


def test_an_object_inside_a_category_comes_back(journey):
    space = {"model": choice([{"loss": mse, "w": (1, 2)}, {"loss": len, "w": (3,)}, [Plain()]])}
    for category in space["model"].categories:
        assert journey({"model": category}, space) == {"model": category}


def test_an_object_inside_an_option_of_a_choice_between_sub_spaces_comes_back(journey):
    losses = [lambda x: x, lambda x: -x]
    option = {
        "loss": losses[1],
        "of": choice(losses),
        "w": uniform(0, 1),
        "deep": choice([[{"x": uniform(0, 1), "f": mse}], 3]),
    }
    space = {
        "model": choice([{"loss": losses[0], "w": uniform(2, 3)}, option, max]),
        "n": only_if({"model": [1, 2]}, {"f": Plain, "m": len}),
    }
    for config in (
        {"model": {"loss": losses[0], "w": 2.5}},
        {
            "model": {"loss": losses[1], "of": losses[0], "w": 0.5, "deep": [{"x": 0.5, "f": mse}]},
            "n": {"f": Plain, "m": len},
        },
        {"model": max, "n": {"f": Plain, "m": len}, "of_the_searchers_own": 3},
    ):
        assert journey(config, space) == config


def test_categories_in_another_order_are_found_by_what_they_are(journey):
    assert journey(
        {"loss": mse}, {"loss": choice([len, mse])}, {"loss": choice([mse, len, max])}
    ) == {"loss": mse}


def test_a_category_that_is_gone_or_ambiguous_is_missing_and_not_guessed(journey):
    first, second = (lambda x: x), (lambda x: -x)
    assert missing(
        journey({"loss": mse}, {"loss": choice([len, mse])}, {"loss": choice([len, max])})
    )
    assert (
        missing(
            journey(
                {"loss": second},
                {"loss": choice([mse, second])},
                {"loss": choice([second, first, mse])},
            )
        )
        == []
    )
    assert missing(journey({"loss": mse}, {"loss": choice([len, mse])}, {"loss": choice([len])}))


def test_a_constant_that_is_another_now_is_taken_with_a_word(journey, caplog):
    with caplog.at_level(logging.WARNING):
        assert journey({"loss": mse}, {"loss": mse}, {"loss": len}) == {"loss": len}
    assert (
        'param_space["loss"] was <function mse> and is <built-in function len> now' in caplog.text
    )


def test_each_place_of_what_is_missing_is_named(journey):
    space = {"model": {"loss": mse, "layers": [Plain(), 3]}, "act": choice([len, max])}
    back = journey({"model": {"loss": mse, "layers": [Plain(), 3]}, "act": max}, space, {"x": 1})
    with pytest.raises(
        StorageError, match=r"trial t00007 .*param_space.*give the param_space again"
    ) as caught:
        require_complete(back, "t00007")
    for place in (
        'param_space["model"]["loss"] (<function mse>)',
        'param_space["model"]["layers"][0] (Plain())',
        'param_space["act"]',
    ):
        assert place in str(caught.value)


def test_what_a_function_computed_is_kept_where_json_can_hold_it(journey):
    computed = {
        "sizes": (8, (16, 1.5)),
        "ids": {0: "a", 1: [None]},
        "n": np.int64(3),
        "s": np.str_("s"),
        "b": np.bool_(True),
    }
    space = dict.fromkeys(computed, sample_from(lambda: None))
    back = journey(computed, space)
    assert back == {
        "sizes": (8, (16, 1.5)),
        "ids": {0: "a", 1: [None]},
        "n": 3,
        "s": "s",
        "b": True,
    }
    assert [type(value) for value in back.values()] == [tuple, dict, int, str, bool]


def test_what_a_function_computed_and_json_cannot_hold_is_missing(journey):
    back = journey(
        {"loss": mse, "odd": {(1, 2): 3}}, dict.fromkeys(("loss", "odd"), sample_from(lambda: None))
    )
    assert missing(back) == [
        'param_space["loss"] (<function mse>)',
        'param_space["odd"] ({(1, 2): 3})',
    ]


def test_arrays_come_back_from_their_files_and_not_from_the_space(journey, tmp_path):
    arrays = {
        "f": np.arange(6.0).reshape(2, 3),
        "t": np.array(["2030-01-01"], "datetime64[D]"),
        "s": np.array(["ü"]),
        "e": np.array([]),
    }
    back = journey(arrays, {}, {"f": np.zeros(3)})
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
    assert len(list((tmp_path / "objects").iterdir())) == 4


def test_an_array_of_objects_is_never_stored(journey, tmp_path):
    array = np.array([mse, None])
    assert missing(journey({"a": array}, {}))
    assert journey({"a": array}, {"a": array})["a"] is array
    assert not (tmp_path / "objects").exists()


def test_a_reference_leads_into_no_object_of_the_users(codec):
    class Trap:
        def __getitem__(self, key):
            raise AssertionError("looked into")

    trap = {"$object": {"text": "x", "source": ["trap", "key"]}}
    assert missing(codec({"trap": Trap()}).decode(strict_json.loads(json.dumps({"a": trap}))))


def test_a_description_never_ends_a_run(codec):
    class Rude:
        def __repr__(self):
            raise RuntimeError

    assert "Rude object" in strict_json.dumps(codec({}).encode({"a": Rude()}))


def test_an_object_of_the_space_is_described_once(codec):
    class Slow:
        calls = 0

        def __repr__(self):
            Slow.calls += 1
            return "Slow()"

    space = {"a": Slow(), "x": uniform(0, 1)}
    codec = codec(space)
    for number in range(10):
        codec.encode({**space, "x": float(number)})
    assert Slow.calls == 1


@pytest.mark.parametrize("space", [{(1, 2): 3}, {"a": {"b": [{b"k": 1}]}}])
def test_keys_that_cannot_be_written_down_are_refused_by_their_place(space):
    with pytest.raises(
        TypeError,
        match=r"param_space.* has the key .*, which must be a text or a number; use its text",
    ):
        check_keys(space)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from([mse, Plain, math.inf, "$tuple"])
)
KEYS = (
    st.text(max_size=4) | st.integers(0, 9) | st.sampled_from(["$object", "$tuple", "$items", "$$"])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=10,
)


@pytest.mark.property
@given(
    st.dictionaries(st.sampled_from("abcd"), TREES),
    st.dictionaries(st.sampled_from("efg"), st.lists(TREES, min_size=1, max_size=3)),
    st.data(),
)
def test_every_configuration_of_a_space_comes_back_alike_in_value_and_type(
    tmp_path_factory, constants, categories, data
):
    space = {**constants, **{name: choice(options) for name, options in categories.items()}}
    config = {
        **constants,
        **{name: data.draw(st.sampled_from(options)) for name, options in categories.items()},
    }
    codec = ConfigCodec(space, ArrayStore(tmp_path_factory.getbasetemp()))
    text = strict_json.dumps(codec.encode(config))
    json.loads(text, parse_constant=pytest.fail)
    back = codec.decode(strict_json.loads(text))
    assert repr(back) == repr(config)
