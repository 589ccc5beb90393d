"""A secret reaches the training code and nothing else."""

import contextlib
import hashlib
import logging
import secrets
from pathlib import Path

import pytest

import tuner as tune
from tuner import Secret, Trainable
from tuner.execution.secrets import resolve_secrets

pytestmark = pytest.mark.filterwarnings("ignore:the reported value")
VARIABLE = "TUNER_TEST_PASSWORD"


@pytest.fixture
def password(monkeypatch):
    token = secrets.token_hex(16)
    monkeypatch.setenv(VARIABLE, token)
    return token


@pytest.fixture
def shown(caplog, capfd):
    """Return a function that returns what was logged and printed."""
    caplog.set_level(logging.DEBUG)
    return lambda: [caplog.text, *capfd.readouterr()]


def run(tmp_path, trainable, space, **run_config):
    settings = {"name": "exp", "storage_path": tmp_path, "verbose": 2, **run_config}
    return tune.Tuner(trainable, param_space=space, run_config=tune.RunConfig(**settings)).fit()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # other processes end while they are looked through
            yield path.read_bytes()


def num_command_lines_with(text):
    return sum(text.encode() in line for line in command_lines())


def leak(config):
    """Use the secret, and leak it in every way that passes through the engine."""
    key = config["hub"]["keys"][0]
    tune.report(
        {
            "digest": digest(key),
            "config_of_mine": config,
            "object": {key, "x"},
            "seen": num_command_lines_with(key),
        }
    )
    if config["fails"]:
        raise ValueError(f"the hub refused {key!r}")


class Leaking(Trainable):
    def setup(self, config):
        self.key = config["hub"]["keys"][0]

    def step(self):
        return {
            "digest": digest(self.key),
            "key": self.key,
            "mine": self.config,
            "seen": num_command_lines_with(self.key),
            "done": True,
        }


SPACE = {
    "hub": {"keys": (Secret(VARIABLE),)},
    "token": tune.grid_search([Secret(VARIABLE)]),
    "fails": tune.grid_search([True, False]),
}


@pytest.mark.process
@pytest.mark.parametrize("executor", ["process", "inline"])
@pytest.mark.parametrize("trainable", [leak, Leaking])
def test_a_secret_is_in_no_file_no_log_line_and_no_command_line(
    tmp_path, password, shown, trainable, executor
):
    grid = run(tmp_path, trainable, SPACE, executor=executor)
    assert [result.metrics["digest"] for result in grid] == [digest(password)] * 2
    assert [result.metrics["seen"] for result in grid] == [0, 0]
    logged = [
        *shown(),
        grid.get_dataframe().to_csv(),
        repr(list(grid)),
        repr([result.error for result in grid]),
    ]
    assert not any(password in text for text in logged)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [
        path for path in files if password.encode() in path.read_bytes() or password in path.name
    ] == []
    assert f"Secret('{VARIABLE}')" in (tmp_path / "exp" / "t00000" / "params.json").read_text()
    assert grid[0].config["hub"]["keys"] == (Secret(VARIABLE),)


@pytest.mark.process
def test_an_error_message_names_the_secret_instead_of_its_value(tmp_path, password):
    (result,) = run(tmp_path, leak, {"hub": {"keys": [Secret(VARIABLE)]}, "fails": True})
    assert f"the hub refused \"Secret('{VARIABLE}')\"" in str(result.error).replace(
        "'Secret", '"Secret'
    ).replace("')'", "')\"")


@pytest.mark.process
def test_a_restored_experiment_takes_the_secret_of_today(tmp_path, password, monkeypatch):
    run_config = tune.RunConfig(name="exp", storage_path=tmp_path, verbose=0, executor="inline")
    tune.Tuner(leak, param_space=SPACE, run_config=run_config).fit()
    monkeypatch.setenv(VARIABLE, "of today")
    grid = tune.Tuner.restore(
        tmp_path / "exp", leak, resume_errored=True, param_space=SPACE, run_config=run_config
    ).fit()
    assert digest("of today") in [result.metrics["digest"] for result in grid]


@pytest.mark.process
def test_a_folder_cannot_ask_for_a_secret(tmp_path, password, monkeypatch):
    """Values of a journal are looked up in the given space, which alone may name variables."""
    monkeypatch.setenv("OTHER", "another secret")
    run_config = tune.RunConfig(name="exp", storage_path=tmp_path, verbose=0, executor="inline")
    tune.Tuner(leak, param_space=SPACE, run_config=run_config).fit()
    (log,) = (tmp_path / "exp" / "journal").glob("*.log")
    assert VARIABLE in log.read_text()
    other = {**SPACE, "hub": {"keys": ("nothing",)}}
    grid = tune.Tuner.restore(
        tmp_path / "exp", leak, param_space=other, run_config=run_config
    ).get_results()
    assert grid[0].config["hub"]["keys"] == ("nothing",)


def test_a_missing_variable_is_named_before_anything_is_made(tmp_path):
    with pytest.raises(ValueError, match="got no variable ABSENT_ONE, ABSENT_TWO; set it first"):
        run(
            tmp_path,
            leak,
            {"a": [Secret("ABSENT_TWO")], "b": tune.choice([1, {"c": Secret("ABSENT_ONE")}])},
        )
    assert list(tmp_path.iterdir()) == []


def test_in_a_worker_a_missing_variable_is_named_with_its_place():
    with pytest.raises(
        LookupError,
        match=r"config\[\"a\"\]\[0\]\[\"b\"\] is the environment variable 'ABSENT', "
        r"which is not set",
    ):
        resolve_secrets({"a": [{"b": Secret("ABSENT")}]})


@pytest.mark.parametrize("value", ["sk-live-1234", "", "1ST", "A=B", "A\0", 3, None])
def test_what_is_no_name_is_refused_without_being_repeated(value):
    with pytest.raises(
        ValueError, match="name must be the name of an environment variable"
    ) as caught:
        Secret(value)
    assert not value or str(value) not in str(caught.value)
