import pytest

import searchers
from searchers import BasicVariantGenerator, create_searcher


@pytest.mark.parametrize("name", ["variant_generator", "random"])
def test_random_search_goes_by_two_names(name):
    searcher = create_searcher(name, max_concurrent=3)
    assert isinstance(searcher, BasicVariantGenerator)
    assert searcher.max_concurrent == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("optuna", "OptunaSearch"),
        ("hyperopt", "HyperOptSearch"),
        ("bayesopt", "BayesOptSearch"),
        ("ax", "AxSearch"),
    ],
)
def test_searchers_with_a_library_go_by_its_name(name, kind):
    assert isinstance(create_searcher(name, metric="loss", mode="min"), getattr(searchers, kind))


@pytest.mark.usefixtures("nevergrad")
def test_nevergrad_goes_by_its_name():
    assert isinstance(create_searcher("nevergrad", optimizer="CMA"), searchers.NevergradSearch)


@pytest.mark.parametrize(
    ("name", "remedy"), [("optunna", "; did you mean 'optuna'?"), ("xyz", "'xyz'"), (None, "None")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, remedy):
    with pytest.raises(
        ValueError, match=r"name must be one of 'variant_generator', 'random', 'tree'.* got "
    ) as caught:
        create_searcher(name)
    assert str(caught.value).endswith(remedy)


def test_an_unknown_argument_is_refused_with_the_nearest_one():
    with pytest.raises(
        TypeError,
        match=r"BasicVariantGenerator takes the arguments .*, got 'max_concurent'; did you mean 'max_concurrent'\?",
    ):
        create_searcher("random", max_concurent=3)


def test_a_bad_value_is_refused_by_the_searcher_itself():
    with pytest.raises(ValueError, match="max_concurrent must be 0 or more, got -1"):
        create_searcher("random", max_concurrent=-1)
