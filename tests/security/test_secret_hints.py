"""Secrets that are given as plain texts are hinted at, and not repeated."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tuner.spec.param_space import plain_secrets, secret_hints


@pytest.mark.parametrize(
    "name",
    ["password", "token", "api_key", "apiKey", "hf_token", "db_password", "secret", "wandb_key",
     "SECRET_KEY", "credentials", "access_key"],
)  # fmt: skip
@pytest.mark.parametrize(
    "wrap",
    [
        lambda name, text: {name: text},
        lambda name, text: {"hub": {name: text}},
        lambda name, text: {name: tune.choice([text, ""])},
        lambda name, text: {name: tune.grid_search([text])},
        lambda name, text: {name: [text]},
    ],
)
def test_texts_whose_names_call_them_secrets_are_found(name, wrap):
    (found,) = plain_secrets(wrap(name, "hunter2")).items()
    assert found[0].endswith(name)
    assert found[1] == {"hunter2"}


@pytest.mark.parametrize(
    "space",
    [
        {"token": tune.Secret("TOKEN")},
        {"max_tokens": "100", "tokenizer": "bpe", "author": "me", "keys": "a"},
        {"pad_token": "[PAD]", "mask_token": "[MASK]", "eosToken": "</s>"},
        {"token_type": "word", "password_length": "long"},
        {"token": 3, "password": None, "secret": ""},
        {"token": tune.randint(1, 3), "password": tune.uniform(0, 1)},
    ],
)
def test_others_are_not(space):
    assert plain_secrets(space) == {}


def test_nothing_gives_no_hint():
    assert list(secret_hints([], [])) == []


def train(config):
    tune.report({"loss": 1.0})


@pytest.mark.process
def test_the_hint_comes_before_the_first_trial_and_does_not_repeat_the_secret(tmp_path, caplog):
    def run(space):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tuner"):
            tune.Tuner(
                train,
                param_space=space,
                run_config=tune.RunConfig(
                    name="exp",
                    storage_path=tmp_path,
                    verbose=0,
                    executor="inline",
                    if_exists="replace",
                ),
            ).fit()
        return [text for text in caplog.messages if "secret" in text]

    (told,) = run({"api_key": "hunter2", "hub": {"password": "swordfish"}})
    assert "param_space holds api_key, hub/password" in told
    assert "tune.Secret('API_KEY')" in told
    assert "hunter2" not in told
    assert "swordfish" not in told
    assert run({"lr": 0.1}) == []


SCRIPT = """
import tuner as tune

def train(config):
    tune.report({"loss": 1.0})

tune.Tuner(train, param_space={"token": "open-sesame"}, run_config=tune.RunConfig(
    name="exp", storage_path=".", executor="inline")).fit()
"""


@pytest.mark.process
def test_arguments_are_hinted_at_and_masked(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = ["-pSECRET", "--wandb", "S3CRET", "--say", "open-sesame"]
    done = subprocess.run(  # noqa: S603  (a script of ours)
        [sys.executable, "script.py", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-p***, --wandb ***, --say *** on the command line looks like a secret" in done.stdout
    recorded = (tmp_path / "exp" / "environment.json").read_text()
    assert json.loads(recorded)[0]["arguments"] == ["-p***", "--wandb", "***", "--say", "***"]
    for secret in ("SECRET", "S3CRET", "open-sesame"):
        assert secret not in recorded
        assert secret not in done.stdout
