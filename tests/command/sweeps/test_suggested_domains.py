"""Which domains are suggested for options, and which options are left out."""

import pytest

from tuner.command.scripts.python_source import UNKNOWN
from tuner.command.scripts.script_option import Option, Takes
from tuner.command.sweeps.space_text import value_of
from tuner.command.sweeps.suggested_domains import domain_for_name, suggestion_for


def suggest(name, kind="", default=None, **more):
    return suggestion_for(Option(name, f"--{name}", kind, default, **more))


@pytest.mark.parametrize(
    ("name", "kind", "default", "domain"),
    [
        ("lr", "float", 1e-3, "loguniform(1e-5, 0.1)"),
        ("learning_rate", "float", 3e-4, "loguniform(1e-6, 0.1)"),
        ("lr", "float", 0.1, "loguniform(0.001, 1.0)"),
        ("lr", "float", 1.0, "loguniform(0.01, 10.0)"),
        ("base-lr", "float", None, "loguniform(1e-5, 0.1)"),
        ("weight-decay", "float", 1e-4, "loguniform(1e-6, 0.01)"),
        ("weight_decay", "float", 0.0, "loguniform(1e-6, 0.01)"),
        ("dropout", "float", 0.1, "uniform(0.0, 0.9)"),
        ("dropout_rate", "float", 0.5, "uniform(0.0, 0.9)"),
        ("momentum", "float", 0.9, "uniform(0.0, 0.99)"),
        ("gamma", "float", 0.7, "uniform(0.0, 0.9)"),
        ("beta2", "float", 0.999, "uniform(0.9, 0.9999)"),
        ("temperature", "float", 0.5, "loguniform(0.05, 5.0)"),
        ("batch-size", "int", 64, "choice(32, 64, 128)"),
        ("hidden", "int", 8, "choice(4, 8, 16)"),
        ("layers", "int", 2, "randint(1, 5)"),
        ("hidden_size", "int", 200, "randint(100, 401)"),
        ("vocabulary", "int", 10_000, "lograndint(1000, 100001)"),
        ("warmup_epochs", "int", 5, "randint(2, 11)"),
        ("amp", "bool", True, "choice(true, false)"),
    ],
)
def test_numbers(name, kind, default, domain):
    found = suggest(name, kind, default)
    assert (found.domain, found.left_out) == (domain, "")
    assert value_of(domain).contains(default) is found.has_default or default is None


def test_choices_are_searched():
    found = suggest("activation", "str", "relu", choices=("relu", "gelu"))
    assert (found.domain, found.has_default) == ('choice("relu", "gelu")', True)


@pytest.mark.parametrize(
    ("bounds", "name", "kind", "default", "domain"),
    [
        ((1e-4, 1e-2), "lr", "float", 1e-3, "loguniform(0.0001, 0.01)"),
        ((0, 0.5), "dropout", "float", 0.1, "uniform(0.0, 0.5)"),
        ((8, 64), "width", "int", 64, "choice(32, 64)"),
        ((1, 4), "layers", "int", 3, "randint(1, 5)"),
    ],
)
def test_domains_keep_to_the_bounds_of_an_option(bounds, name, kind, default, domain):
    lower, upper = bounds
    assert suggest(name, kind, default, lower=lower, upper=upper).domain == domain


@pytest.mark.parametrize(
    ("name", "kind", "default", "reason"),
    [
        ("seed", "int", 1, "--seed {seed}"),
        ("device", "str", "cpu", "where it runs"),
        ("num-workers", "int", 4, "where it runs"),
        ("data", "str", "mnist", "files"),
        ("out", "path", "runs", "files"),
        ("save_dir", "", None, "files"),
        ("log-interval", "int", 10, "what it shows"),
        ("test-batch-size", "int", 1000, "does not change training"),
        ("epochs", "int", 14, "see max_t"),
        ("optimizer", "str", "adam", "name the ones to try"),
        ("clip", "float", None, "set its bounds"),
        ("label_count", "int", 0, "set its bounds"),
        ("label_count", "int", 10**18, "at the end of what numbers"),
        ("scale", "float", 1e308, "at the end of what numbers"),
    ],
)
def test_what_is_left_out_says_why(name, kind, default, reason):
    assert reason in suggest(name, kind, default).left_out


@pytest.mark.parametrize(
    ("name", "is_length"),
    [("epochs", True), ("max_steps", True), ("num-train-epochs", True), ("n_iter", True),
     ("warmup_steps", False), ("save_epochs", False), ("lr", False)],
)  # fmt: skip
def test_how_long_to_train_is_known_by_name(name, is_length):
    assert suggest(name, "int", 10).is_length is is_length


@pytest.mark.parametrize(
    ("option", "domain", "reason"),
    [
        (Option("amp", "--amp", takes=Takes.NOTHING), 'choice("--amp", null)', "a flag"),
        (
            Option("amp", "--amp", "bool", takes=Takes.OR_NO, off_flag="--no-amp"),
            'choice("--amp", "--no-amp")',
            "a flag",
        ),
        (Option("amp", "--amp", "bool", truth_of_text=True), "", "every text for true"),
        (Option("betas", "--betas", "float", takes=Takes.VALUES), "", "several values"),
        (Option("arch", "--arch", choices=UNKNOWN), 'choice("A", "B")', "computed"),
        (Option("depth", "--depth", "int", 3, choices=(3,)), "", "one value"),
        (Option("depth", "--depth", "int", choices=(*range(20),)), None, "20 choices"),
    ],
)
def test_what_cannot_be_written_as_it_is(option, domain, reason):
    found = suggestion_for(option)
    assert reason in found.left_out
    if domain is not None:
        assert found.domain == domain


@pytest.mark.parametrize(
    ("name", "domain"),
    [("lr", "loguniform(1e-5, 0.1)"), ("model.width", "choice(32, 64, 128)"), ("alpha", "")],
)
def test_domains_by_name_alone(name, domain):
    assert domain_for_name(name) == domain
