"""Callbacks named in an environment variable."""

import pytest

from tuner.callbacks import CSVLoggerCallback, JsonLoggerCallback
from tuner.callbacks.registry import named_callbacks


def named(text, given=()):
    return named_callbacks(given, {"TUNER_CALLBACKS": text})


def test_both_spellings_name_a_class_and_none_is_there_twice():
    text = (
        "tuner.callbacks.JsonLoggerCallback, tuner.callbacks:CSVLoggerCallback,, "
        "tuner.callbacks.files.csv_logger.CSVLoggerCallback"
    )
    assert [type(callback) for callback in named(text)] == [JsonLoggerCallback, CSVLoggerCallback]


def test_what_is_given_is_not_added_again():
    assert named("tuner.callbacks.JsonLoggerCallback", [JsonLoggerCallback()]) == []


def test_without_the_variable_there_is_nothing():
    assert named_callbacks(environ={}) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nothing", "got 'nothing'; write the whole path or unset the variable"),
        ("no_such.Thing", "got 'no_such.Thing', which cannot be imported"),
        ("tuner.callbacks.Missing", "got 'tuner.callbacks.Missing', which cannot be imported"),
        ("math.sqrt", "got 'math.sqrt', which is not a callback class"),
        (
            "tuner.callbacks.ProgressReporter",
            "got 'tuner.callbacks.ProgressReporter', which is not a callback class",
        ),
        ("tuner.callbacks.PolicyLog:", "write the whole path"),
        (
            "tuner.callbacks.Console",
            r"cannot be constructed without arguments .*; pass it in RunConfig\(callbacks",
        ),
    ],
)
def test_a_bad_name_is_told_with_the_remedy(text, complaint):
    with pytest.raises(
        ValueError,
        match=rf"TUNER_CALLBACKS must name callbacks as package.module.Class .*{complaint}",
    ):
        named(text)


@pytest.mark.process
def test_an_experiment_has_them_and_a_bad_name_ends_it_before_it_begins(tmp_path, monkeypatch):
    from tuner import RunConfig, Tuner  # noqa: PLC0415  (the face, for this test only)

    run = RunConfig(storage_path=tmp_path, name="e", verbose=0, executor="inline")
    monkeypatch.setenv("TUNER_CALLBACKS", "tuner.callbacks.Nothing")
    with pytest.raises(ValueError, match=r"got 'tuner.callbacks.Nothing'"):
        Tuner(lambda config: {"loss": 1}, run_config=run).fit()
    assert not (tmp_path / "e" / "experiment.json").exists()
    (tmp_path / "herald.py").write_text(
        "from tuner import Callback\nclass Herald(Callback):\n    heard = []\n"
        "    def on_experiment_end(self, trials, **info):\n        self.heard.append(len(trials))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TUNER_CALLBACKS", "herald:Herald")
    Tuner(lambda config: {"loss": 1}, run_config=run).fit()
    import herald  # noqa: PLC0415  (just written)

    assert herald.Herald.heard == [1]
