"""Relations between parameters in sweeps: the key ``where`` and the option ``--where``."""

import pytest
from click.testing import CliRunner

from tuner.cli.run import run
from tuner.command.sweeps.sweep import Sweep
from tuner.command.sweeps.sweep_keys import given_by_file

TEXT = """\
command: [echo, "{low}", "{model.high}"]
num_samples: 3
space:
  low: uniform(0, 1)
  model:
    high: uniform(0, 1)
where: low < model.high
"""


def test_a_file_declares_a_relation(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(TEXT)
    arguments, _ = Sweep.of(given_by_file(file)).arguments()
    assert arguments["param_space"].where == "low < model.high"


def test_a_wrong_relation_is_refused_with_its_line(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(TEXT.replace("low < model.high", "low < high"))
    with pytest.raises(ValueError, match=r"sweep.yaml:7: .*'high'; did you mean 'model.high'"):
        Sweep.of(given_by_file(file))


def test_an_option_declares_a_relation():
    words = ["-n", "5", "-p", "low=randint(1,5)", "-p", "high=randint(1,5)", "--seed", "1"]
    command = ["--dry-run", "--", "echo", "{low}", "{high}"]
    shown = CliRunner().invoke(run, [*words, "--where", "low < high", *command], obj=None)
    pairs = [line.split()[1:] for line in shown.output.splitlines() if line.startswith("echo ")]
    assert len(pairs) == 5, shown.output
    assert all(int(low) < int(high) for low, high in pairs)
