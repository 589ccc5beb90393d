"""The sweep file that is written for a program; `tuner run` reads whatever it says."""

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.command.sweeps.first_sweep import first_sweep
from tuner.command.sweeps.sweep import Sweep
from tuner.command.sweeps.sweep_keys import given_by_file

MNIST = """
    import argparse

    def main():
        parser = argparse.ArgumentParser(description="MNIST")
        parser.add_argument("--batch-size", type=int, default=64, metavar="N",
                            help="input batch size for training (default: 64)")
        parser.add_argument("--test-batch-size", type=int, default=1000)
        parser.add_argument("--epochs", type=int, default=14)
        parser.add_argument("--lr", type=float, default=1.0, help="learning rate (%(default)s)")
        parser.add_argument("--gamma", type=float, default=0.7)
        parser.add_argument("--no-accel", action="store_true", help="disables accelerator")
        parser.add_argument("--seed", type=int, default=1)
        args = parser.parse_args()
        for epoch in range(1, args.epochs + 1):
            print(f"Epoch {epoch}: val_loss {loss:.4f}")
"""


@pytest.fixture
def sweep_of(tmp_path, monkeypatch):
    """Writes a script, and returns the text of its sweep file and the sweep that it declares."""
    monkeypatch.chdir(tmp_path)

    def sweep_of(script, *command, file="sweep.yaml", **modules):
        path = None
        if script is not None:
            path = (tmp_path / "train.py").relative_to(tmp_path)
            path.write_text(dedent(script))
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(dedent(text))
        text = first_sweep(path, command, file=file)
        (tmp_path / file).write_text(text)
        declared = Sweep.of(given_by_file(tmp_path / file))
        declared.arguments()
        return text, declared

    return sweep_of


@pytest.mark.parametrize("file", ["sweep.yaml", "sweep.toml"])
def test_a_usual_script(sweep_of, file):
    text, sweep = sweep_of(MNIST, file=file)
    assert sweep.command == "python train.py {args}"
    assert sweep.space["batch-size"].categories == (32, 64, 128)
    assert (sweep.space["lr"].lower, sweep.space["lr"].upper) == (0.01, 10.0)
    assert sweep.space.keys() == {"batch-size", "lr", "gamma"}
    assert (sweep.metric, sweep.mode) == ("val_loss", "min")
    assert sweep.report == [r"Epoch (?P<epoch>\d+): val_loss (?P<val_loss>\S+)"]
    assert sweep.scheduler == {"type": "asha", "max_t": 14}
    assert sweep.points == [{"batch-size": 64, "lr": 1.0, "gamma": 0.7}]
    assert "TODO" not in text


def test_a_file_as_it_looks(sweep_of):
    text, _ = sweep_of(MNIST)
    begin, _, rest = text.partition("space:\n")
    assert "command: python train.py {args}  # {args} becomes --NAME VALUE" in begin
    assert rest.startswith(
        """\
  batch-size: choice(32, 64, 128)         # input batch size for training; default 64
  # test-batch-size: 1000                 # does not change training
  # epochs: 14                            # how long to train: see max_t below
  lr: loguniform(0.01, 10.0)              # learning rate; default 1.0
  gamma: uniform(0.0, 0.9)                # default 0.7
  # no-accel: choice("--no-accel", null)  # a flag: also put {no-accel} before {args}
  # seed: 1                               # not searched; --seed {seed} gives each trial its own
"""
    )


def test_what_the_script_requires_is_marked(sweep_of):
    text, sweep = sweep_of(
        """
        parser.add_argument("data", help="folder")
        parser.add_argument("--out-dir", required=True)
        parser.add_argument("--lr", type=float, required=True)
        """
    )
    assert sweep.command == "python train.py DATA --out-dir OUT_DIR {args}"
    assert "TODO: replace DATA" in text
    assert "TODO: replace OUT_DIR" in text
    assert list(sweep.space) == ["lr"]


def test_options_are_written_where_the_script_takes_them(sweep_of):
    _, sweep = sweep_of(
        """
        parser.add_argument("--width", type=int, default=64)
        commands = parser.add_subparsers()
        train = commands.add_parser("train")
        train.add_argument("-lr", type=float, default=0.1)
        train.add_argument("--momentum", type=float, default=0.9)
        commands.add_parser("test").add_argument("--weights")
        """
    )
    assert sweep.command == "python train.py --width {width} train -lr {lr} {args}"
    assert sweep.trainable().words_for({"width": 64, "lr": 0.1, "momentum": 0.9})[2:] == [
        "--width", "64", "train", "-lr", "0.1", "--momentum", "0.9",
    ]  # fmt: skip


def test_a_flag_can_be_searched_as_it_is_told(sweep_of, tmp_path):
    text, _ = sweep_of(
        "p.add_argument('--lr', type=float)\np.add_argument('--amp', action='store_true')"
    )
    assert "also put {amp} before {args}" in text
    edited = text.replace("# amp:", "amp:").replace("train.py {args}", "train.py {amp} {args}")
    (tmp_path / "edited.yaml").write_text(edited)
    sweep = Sweep.of(given_by_file(tmp_path / "edited.yaml"))
    assert [sweep.trainable().words_for({"lr": 1, "amp": amp})[2:] for amp in ("--amp", None)] == [
        ["--amp", "--lr", "1"], ["--lr", "1"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "word", "name"),
    [
        ("import hydra", "{hydra}", "optimizer.lr"),
        ("from lightning.pytorch.cli import LightningCLI", "{args}", "model.learning_rate"),
        ("import sys", "{args}", "lr"),
        ("parser.add_argument('--seed', type=int)", "{args}", "lr"),
    ],
)
def test_a_script_without_options_to_search_has_an_example(sweep_of, script, word, name):
    text, sweep = sweep_of(script)
    fit = "fit " if "Lightning" in script else ""
    assert sweep.command == f"python train.py {fit}{word}"
    assert f"  {name}: loguniform(1e-5, 1e-1)  # TODO: an example" in text
    assert "TUNER_CONFIG" in text


@pytest.mark.parametrize(
    ("command", "kept", "space"),
    [
        (
            ["./train", "--lr", "{lr}", "-w", "{width}"],
            "./train --lr {lr} -w {width}",
            ["lr", "width"],
        ),
        (["./train"], "./train {args}", ["lr"]),
        (["sh", "-c", "a b {lr}"], ["sh", "-c", "a b {lr}"], ["lr"]),
        (["./train", "{lr}", "{trial_dir}", "{{x}}"], "./train {lr} {trial_dir} {{x}}", ["lr"]),
    ],
)
def test_programs_that_are_no_python(sweep_of, command, kept, space):
    text, sweep = sweep_of(None, *command)
    assert sweep.command == kept
    assert list(sweep.space) == space
    assert "tune.report" not in text
    assert "TODO: say how the program reports" in text


def test_a_launcher_of_a_script(sweep_of):
    _, sweep = sweep_of(MNIST, "torchrun", "--nproc-per-node", "2", "train.py")
    assert sweep.command == "torchrun --nproc-per-node 2 train.py {args}"
    assert "lr" in sweep.space


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("tune.report({'val_acc': 1})", "It is told by tune.report in line 2."),
        ("wandb.log({'val/acc': 1})", "TODO: line 2 tells it to wandb.log alone. Add beside it:"),
        ("self.log('val_loss', 1)\nCSVLogger('logs')", "TODO: let the logger of line 3 write into"),
        ("print('done')", "TODO: say how the program reports: call tune.report({...}) in it"),
    ],
)
def test_how_a_script_reports(sweep_of, script, told):
    text, _ = sweep_of(f"p.add_argument('--lr', type=float)\n{script}")
    assert told in text


def test_options_and_metrics_of_a_module_beside_the_script(sweep_of):
    text, sweep = sweep_of(
        "from options import parse\nargs = parse()",
        options="p.add_argument('--lr', type=float)\nprint(f'loss {loss}')",
    )
    assert "The options are those of options.py" in text
    assert (list(sweep.space), sweep.report) == (["lr"], [r"loss (?P<loss>\S+)"])


NAMES = st.from_regex(
    r"[a-z][a-z0-9]{0,8}([-_.][a-z0-9]{1,6}){0,2}", fullmatch=True
) | st.sampled_from(
    ["lr", "dropout", "batch-size", "epochs", "weight_decay", "model.width", "beta2", "no", "null"]
)
DEFAULTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.lists(st.integers(), max_size=3),
)
OPTIONS = st.fixed_dictionaries(
    {"default": DEFAULTS},
    optional={
        "type": st.sampled_from(["int", "float", "str", "bool", "Path"]),
        "choices": st.lists(st.integers() | st.text() | st.none(), max_size=4),
        "help": st.text(),
        "required": st.booleans(),
        "nargs": st.sampled_from(["?", "*", 2]),
        "action": st.sampled_from(["store_true", "count", "append"]),
    },
)


def declared(name, arguments):
    given = "".join(
        f", {key}={value if key == 'type' else repr(value)}" for key, value in arguments.items()
    )
    return f"parser.add_argument({name!r}{given})\n"


@settings(max_examples=examples(300))
@given(
    st.dictionaries(NAMES, OPTIONS, max_size=6),
    st.sampled_from(["--", "-", ""]),
    st.text(),
    st.sampled_from(["sweep.yaml", "sweep.toml"]),
)
def test_whatever_is_written_is_read(tmp_path_factory, options, hyphens, printed, file):
    """Of YAML and TOML alike, whatever a script declares and prints."""
    folder = tmp_path_factory.mktemp("script")
    script = folder / "train.py"
    lines = [declared(f"{hyphens}{name}", arguments) for name, arguments in options.items()]
    script.write_text("".join(lines) + f"print(f'{{epoch}} val_loss', {printed!r}, loss)\n")
    text = first_sweep(script, file=file)
    (folder / file).write_text(text)
    sweep = Sweep.of(given_by_file(folder / file))
    sweep.arguments()
    assert sweep.space
    assert sweep.metric
