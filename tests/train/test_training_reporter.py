"""The console of a training of its own: output of rank 0 and metrics, each shown once."""

from types import SimpleNamespace

import pytest

from tuner.core.trial import Status
from tuner.train.training_reporter import TrainingReporter


@pytest.fixture
def training(tmp_path):
    return SimpleNamespace(
        local_path=str(tmp_path), num_rows=0, last_result=None, status=Status.RUNNING
    )


@pytest.fixture
def shown(capsys):
    def report(reporter, training, done=False):
        reporter.report([training], done)
        return capsys.readouterr().out.splitlines()

    return report


def test_output_and_metrics_are_shown_as_they_come(training, shown, tmp_path):
    reporter = TrainingReporter()
    assert shown(reporter, training) == []
    with (tmp_path / "stdout").open("w") as file:
        file.write("epoch 0\nepo")
        file.flush()
        training.num_rows, training.last_result = 1, {"loss": 0.25, "pid": 7, "extra": {"f1": 1}}
        assert shown(reporter, training) == ["epoch 0", "[1]  loss 0.25  extra/f1 1"]
        file.write("ch 1\nlast")
    assert shown(reporter, training) == ["epoch 1"]
    training.status = Status.TERMINATED
    assert shown(reporter, training, done=True) == [
        "last",
        f"ended after 0s; results in {tmp_path}",
    ]


def test_a_continued_training_shows_what_is_new(training, shown, tmp_path):
    (tmp_path / "stdout").write_text("before\n")
    training.num_rows, training.last_result = 3, {"loss": 0.5}
    reporter = TrainingReporter(tmp_path)
    assert shown(reporter, training) == []
    (tmp_path / "stdout").write_text("before\nafter\n")
    training.num_rows = 4
    assert shown(reporter, training) == ["after", "[4]  loss 0.5"]


def test_many_metrics_are_cut_and_control_characters_escaped(training, shown):
    training.num_rows = 1
    training.last_result = {f"m{index}": index for index in range(9)} | {"text": "a\x1b[2J"}
    (line,) = shown(TrainingReporter(), training)
    assert line.endswith("m7 7  ...")
    training.last_result, training.num_rows = {"text": "a\x1b[2J"}, 2
    (line,) = shown(TrainingReporter(), training)
    assert "\x1b" not in line
