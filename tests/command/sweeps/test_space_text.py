"""Search spaces as text."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import searchers.space as spaces
from searchers.space import Categorical, Float, Integer, Normal
from tests.tiers import examples
from tuner.command.sweeps.space_text import assignment, path_of, space_of, value_of


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("uniform(0, 1)", spaces.uniform(0, 1)),
        ("tune.uniform(0,1)", spaces.uniform(0, 1)),
        ("quniform(0, 1, 0.25)", spaces.quniform(0, 1, 0.25)),
        ("loguniform(1e-5,1e-1)", spaces.loguniform(1e-5, 1e-1)),
        ("loguniform(1e-5, 1e-1, prior=1e-3)", spaces.loguniform(1e-5, 1e-1, prior=1e-3)),
        ("qloguniform(0.1, 10, 0.1)", spaces.qloguniform(0.1, 10, 0.1)),
        ("randint(1, 5)", spaces.randint(1, 5)),
        ("randint(lower=1, upper=5)", spaces.randint(1, 5)),
        ("qrandint(8, 64, 8)", spaces.qrandint(8, 64, 8)),
        ("lograndint(1, 1000)", spaces.lograndint(1, 1000)),
        ("qlograndint(8, 64, 8)", spaces.qlograndint(8, 64, 8)),
        ("randn(10, 2)", spaces.randn(10, 2)),
        ("qrandn(10, 2, 0.5)", spaces.qrandn(10, 2, 0.5)),
        ("choice(64,128, 256)", spaces.choice([64, 128, 256])),
        ("choice([64, 128])", spaces.choice([64, 128])),
        ("choice(64)", spaces.choice([64])),
        ("choice([1, 2], [3])", spaces.choice([[1, 2], [3]])),
        ("choice([[1, 2]])", spaces.choice([[1, 2]])),
        ("choice(adam, sgd)", spaces.choice(["adam", "sgd"])),
        ("choice(resnet-18, 3x3, a/b.yaml)", spaces.choice(["resnet-18", "3x3", "a/b.yaml"])),
        ("choice('a, b', \"c)\")", spaces.choice(["a, b", "c)"])),
        ("choice(don't, isn't)", spaces.choice(["don't", "isn't"])),
        ("choice(true, null, 1.5, 'true',)", spaces.choice([True, None, 1.5, "true"])),
        ("choice(S, M, L, ordered=true)", spaces.choice(["S", "M", "L"], ordered=True)),
        ("grid(0.1, 0.2)", spaces.grid_search([0.1, 0.2])),
        ("grid_search([0.1, 0.2])", spaces.grid_search([0.1, 0.2])),
    ],
)
def test_domains_are_what_the_functions_of_that_name_return(text, domain):
    assert repr(value_of(text)) == repr(domain)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 0.001),
        ("-0.5", -0.5),
        ("True", True),
        ("false", False),
        ("null", None),
        ("None", None),
        ("007", "007"),
        ("adam", "adam"),
        ("'3'", "3"),
        ("two words", "two words"),
        ("'1,2'", "1,2"),
        ("a,b", "a,b"),
        ("(1, 2)", (1, 2)),
        ("/data/x y.csv", "/data/x y.csv"),
        ("a=b", "a=b"),
        ("[1, two, [3]]", [1, "two", [3]]),
        ('{"a": 1}', {"a": 1}),
        ("{1, 2}", "{1, 2}"),
        ("1+2j", "1+2j"),
        ("'relu(x)'", "relu(x)"),
        ("__import__", "__import__"),
    ],
)
def test_anything_else_is_a_constant(text, value):
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("logunifrom(1e-5, 1)", "did you mean loguniform(LOWER, UPPER)?"),
        ("log_uniform(1e-5, 1)", "did you mean loguniform(LOWER, UPPER)?"),
        ("categorical(a, b)", "did you mean choice(VALUE, ...)?"),
        ("normal(0, 1)", "did you mean randn(MEAN, SD)?"),
        ("relu(x)", "there are choice, grid_search,"),
        ("sample_from(x)", "sample_from needs Python"),
        ("__import__('os')", "is no domain"),
        (
            "loguniform(1e-5)",
            "missing a required argument: 'upper'; write loguniform(LOWER, UPPER)",
        ),
        ("uniform(1, 2, 3)", "too many positional arguments; write uniform(LOWER, UPPER)"),
        ("uniform(0, 1, priro=0.5)", "unexpected keyword argument 'priro'; write uniform(LOWER"),
        ("uniform(0, 1/3)", "must have numbers, got '1/3'"),
        ("uniform(0, true)", "must have numbers, got True"),
        ("uniform(2, 1)", "'uniform(2, 1)' cannot be used: "),
        ("loguniform(0, 1)", "'loguniform(0, 1)' cannot be used: "),
        ("randint(0, 1.5)", "'randint(0, 1.5)' cannot be used: "),
        ("choice()", "cannot be used: choice must be given one value at least"),
        ("choice(1,, 2)", "has nothing between two commas"),
        ("choice([1, 2)", "has a bracket without its counterpart"),
        ("choice('a, 2)", "has a quote without its counterpart"),
        ("0.1, 1e-3", "write choice(0.1, 1e-3), which draws one of them, grid_search(0.1, 1e-3)"),
        ("uniform(lower=0, 1)", "has '1' behind lower=; put it first"),
        ("loguniform(1e-5, 1", "has no closing bracket; write loguniform(LOWER, UPPER)"),
    ],
)
def test_what_is_no_domain_is_refused_with_the_remedy(text, told):
    with pytest.raises(ValueError) as refusal:
        value_of(text)
    assert told in str(refusal.value)
    assert text in str(refusal.value) or "'" in text


def test_an_assignment_may_have_a_nested_name():
    assert assignment("model.width = 64") == (("model", "width"), 64)
    assert assignment("model/width=a=b") == (("model", "width"), "a=b")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lr", "a parameter must be NAME=DOMAIN, got 'lr'; write for example lr=uniform(0, 1)"),
        ("lr=", "lr has no value; write '' for an empty text"),
        ("=3", "a parameter's name must have no spaces"),
        ("a b=3", "a parameter's name must have no spaces"),
        ("{lr}=3", "a parameter's name must have no spaces"),
        ("model..width=3", "got 'model..width'"),
        ("lr=unifrm(0, 1)", "lr: 'unifrm(0, 1)' is no domain; did you mean uniform"),
    ],
)
def test_what_is_no_assignment_is_refused_with_the_remedy(text, told):
    with pytest.raises(ValueError) as refusal:
        assignment(text)
    assert told in str(refusal.value)


def test_a_space_is_nested():
    values = [(path_of("model.width"), 64), (path_of("lr"), 0.1), (path_of("model.depth"), 2)]
    assert space_of(values) == {"model": {"width": 64, "depth": 2}, "lr": 0.1}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["lr", "depth", "lr"], "lr is given twice"),
        (["a.b", "a/b"], "a.b is given twice"),
        (["model", "model.width"], "model is a value, and the beginning of model.width"),
        (["model.width", "model"], "model is a value, and the beginning of model.width"),
    ],
)
def test_a_name_that_is_given_twice_is_refused(names, told):
    with pytest.raises(ValueError) as refusal:
        space_of([(path_of(name), 1) for name in names])
    assert told in str(refusal.value)


DOMAINS = (Float, Integer, Normal, Categorical)


@given(st.text(alphabet="choiceunfrmg(),.1-e[]'\"= {}:", max_size=40))
@example("choice" + "(" * 500 + ")" * 500)
@settings(max_examples=examples(2_000))
def test_any_text_is_a_value_or_refused(text):
    try:
        value = value_of(text)
    except ValueError:
        return
    assert (
        isinstance(value, DOMAINS)
        or value is None
        or isinstance(value, dict | list | tuple | str | int | float)
    )


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(PLAIN, min_size=1, max_size=4))
@settings(max_examples=examples(500))
def test_a_choice_of_what_python_writes_has_these_options(values):
    domain = value_of(f"choice({values!r})")
    assert repr(list(domain.categories)) == repr(values)
