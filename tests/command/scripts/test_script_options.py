"""Options of scripts, as they are usually written with argparse, click and typer."""

import ast
from textwrap import dedent

import pytest

from tuner.command.scripts.printed_lines import printed_lines
from tuner.command.scripts.python_source import UNKNOWN, parse_file
from tuner.command.scripts.script_option import Option, Takes
from tuner.command.scripts.script_options import options_of, read_script


def script_of(text):
    return options_of(ast.parse(dedent(text)))


def options(text):
    return {option.name: option for option in script_of(text).options}


def one(text):
    (option,) = script_of(text).options
    return option


MAIN = """
    import argparse
    from pathlib import Path

    BATCH_SIZE = 64
    MODELS = {"mlp": 1, "cnn": 2}

    def add_optimizer(p):
        group = p.add_argument_group("optimizer")
        group.add_argument("--lr", "--learning-rate", type=float, default=1e-3, metavar="LR",
                           help="learning rate (default: %(default)s)")
        group.add_argument("-m", "--momentum", default=.9, type=float)
        either = group.add_mutually_exclusive_group()
        either.add_argument("--nesterov", action="store_true")

    def main():
        ap = argparse.ArgumentParser(description=__doc__)
        ap.add_argument("data", type=Path, help="where the images are")
        ap.add_argument("-b", "--batch_size", type=int, default=BATCH_SIZE)
        ap.add_argument("--model", choices=list(MODELS), default="mlp")
        ap.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True)
        ap.add_argument("--betas", nargs=2, type=float)
        ap.add_argument("--width", default=2 ** 7)
        ap.add_argument("--clip", type=positive_float, default=None)
        ap.add_argument("--out", type=Path, default=Path("runs"), required=True)
        ap.add_argument("--version", action="version", version="1")
        add_optimizer(ap)
        args = ap.parse_args()
"""


def test_argparse_of_a_usual_script():
    found = options(MAIN)
    assert list(found) == [
        "lr", "momentum", "nesterov", "data", "batch_size", "model", "augment", "betas", "width",
        "clip", "out",
    ]  # fmt: skip
    assert found["lr"] == Option(
        "lr", "--lr", "float", 1e-3, help="learning rate (default: %(default)s)", line=10
    )
    assert (found["momentum"].flag, found["momentum"].default) == ("--momentum", 0.9)
    assert found["nesterov"].takes is Takes.NOTHING
    assert found["data"].is_positional
    assert found["data"].is_required
    assert (found["batch_size"].kind, found["batch_size"].default) == ("int", 64)
    assert found["model"].choices == ("mlp", "cnn")
    assert (found["augment"].takes, found["augment"].off_flag) == (Takes.OR_NO, "--no-augment")
    assert found["betas"].takes is Takes.VALUES
    assert (found["width"].kind, found["width"].default) == ("int", 128)
    assert (found["clip"].kind, found["clip"].default) == ("float", None)
    assert (found["out"].kind, found["out"].default, found["out"].is_required) == (
        "path", "runs", True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'--lr', default=1 / 255, type=float", {"default": 1 / 255, "kind": "float"}),
        ("'--lr', default=os.environ['LR'], type=float", {"default": UNKNOWN, "kind": "float"}),
        ("'--n', default=-1, type=int", {"default": -1}),
        ("'--n', default=2 ** 10_000", {"default": UNKNOWN}),
        ("'--n', type=lambda x: int(x)", {"kind": ""}),
        ("'--amp', type=str2bool, default=True", {"kind": "bool", "takes": Takes.VALUE}),
        ("'--amp', type=bool, default=True", {"kind": "bool", "truth_of_text": True}),
        ("'--names', nargs='*'", {"takes": Takes.VALUES}),
        ("'--name', nargs='?'", {"takes": Takes.VALUE}),
        ("'--name', action='append'", {"takes": Takes.VALUES}),
        ("'-v', action='count'", {"name": "v", "flag": "-v", "takes": Takes.NOTHING}),
        ("'-lr', type=float", {"name": "lr", "flag": "-lr"}),
        ("'--arch', choices=sorted(models())", {"choices": UNKNOWN}),
        ("'--depth', choices=range(2, 5), type=int", {"choices": (2, 3, 4)}),
        ("'--depth', choices=[18] + [34, 50], type=int", {"choices": (18, 34, 50)}),
        ("'file', nargs='?', default='x'", {"is_required": False, "is_positional": True}),
        ("'--model.width', type=int", {"name": "model.width"}),
        ("'--config', type=argparse.FileType('r')", {"kind": "path"}),
    ],
)
def test_arguments_of_add_argument(arguments, expected):
    option = one(f"parser.add_argument({arguments})")
    assert {name: getattr(option, name) for name in expected} == expected


def test_defaults_may_be_set_later():
    assert one("p.add_argument('--lr', type=float)\np.set_defaults(lr=0.1)").default == 0.1


def test_subcommands_of_argparse():
    script = script_of(
        """
        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int)
        commands = parser.add_subparsers(dest="command")
        train = commands.add_parser("train")
        group = train.add_argument_group("optimizer")
        group.add_argument("--lr", type=float)
        test = commands.add_parser("test")
        test.add_argument("--weights")
        """
    )
    assert script.commands == ("train", "test")
    assert [(option.name, option.command) for option in script.options] == [
        ("seed", ""), ("lr", "train"), ("weights", "test"),
    ]  # fmt: skip


def test_computed_names_are_known_by_their_lines():
    script = script_of("for name in NAMES:\n    parser.add_argument('--' + name)")
    assert (script.options, script.unread) == ((), (2,))


def test_click():
    script = script_of(
        """
        import click

        @click.command(context_settings={"show_default": True})
        @click.argument("data", type=click.Path(exists=True))
        @click.option("-l", "--lr", "rate", default=0.1, type=click.FloatRange(1e-6, 1), help="R")
        @click.option("--layers", default=3, type=click.IntRange(min=1))
        @click.option("--optimizer", type=click.Choice(["adam", "sgd"]), default="adam")
        @click.option("--amp", is_flag=True)
        @click.option("--quick", default=False)
        @click.option("--augment/--plain", default=True)
        @click.option("--size", nargs=2, type=int)
        @click.option("--tag", multiple=True)
        @click.option("--shuffle", type=bool, default=True)
        def main(data, rate, **rest):
            pass
        """
    )
    assert script.commands == ()
    found = {option.name: option for option in script.options}
    assert found["data"].is_positional
    assert found["data"].kind == "path"
    assert found["lr"] == Option("lr", "--lr", "float", 0.1, lower=1e-6, upper=1, help="R", line=6)
    assert (found["layers"].kind, found["layers"].lower) == ("int", 1)
    assert found["optimizer"].choices == ("adam", "sgd")
    assert {name: found[name].takes for name in ("amp", "quick", "augment", "size", "tag")} == {
        "amp": Takes.NOTHING, "quick": Takes.NOTHING, "augment": Takes.OR_NO,
        "size": Takes.VALUES, "tag": Takes.VALUES,
    }  # fmt: skip
    assert found["augment"].off_flag == "--plain"
    assert (found["shuffle"].kind, found["shuffle"].takes) == ("bool", Takes.VALUE)


def test_groups_of_click():
    script = script_of(
        """
        import click

        @click.group()
        @click.option("--verbose", is_flag=True)
        def cli(verbose): ...

        @cli.command()
        @click.option("--lr", default=1e-3)
        def train_model(lr): ...

        @cli.command("eval")
        @click.option("--weights")
        def evaluate(weights): ...
        """
    )
    assert script.commands == ("train-model", "eval")
    assert [(option.name, option.command) for option in script.options] == [
        ("verbose", ""), ("lr", "train-model"), ("weights", "eval"),
    ]  # fmt: skip


TYPER = """
    from enum import Enum
    from typing import Annotated, Literal, Optional
    import typer

    class Optimizer(str, Enum):
        adam = "adam"
        sgd = "sgd"

    def main(
        data: str,
        lr: float = 1e-3,
        batch_size: Annotated[int, typer.Option("--batch-size", "-b", min=8, help="Images.")] = 32,
        dropout: float = typer.Option(0.1, "--dropout", max=0.5),
        optimizer: Optimizer = Optimizer.adam,
        norm: Literal["batch", "layer"] = "batch",
        amp: bool = False,
        quick: Annotated[bool, typer.Option("--quick")] = False,
        seed: Optional[int] = None,
        depth: int | None = None,
        name: Annotated[str, typer.Argument()] = "x",
        width: int = typer.Option(..., help="Width."),
    ):
        ...

    typer.run(main)
"""


def test_typer():
    found = options(TYPER)
    assert found["data"].is_positional
    assert found["data"].is_required
    assert (found["lr"].flag, found["lr"].kind, found["lr"].default) == ("--lr", "float", 1e-3)
    batch = found["batch-size"]
    assert (batch.flag, batch.kind, batch.default, batch.lower, batch.help) == (
        "--batch-size", "int", 32, 8, "Images.",
    )  # fmt: skip
    assert (found["dropout"].default, found["dropout"].upper) == (0.1, 0.5)
    assert (found["optimizer"].choices, found["optimizer"].default) == (("adam", "sgd"), "adam")
    assert found["norm"].choices == ("batch", "layer")
    assert (found["amp"].takes, found["amp"].off_flag) == (Takes.OR_NO, "--no-amp")
    assert found["quick"].takes is Takes.NOTHING
    assert (found["seed"].kind, found["depth"].kind) == ("int", "int")
    assert found["name"].is_positional
    assert not found["name"].is_required
    assert (found["width"].is_required, found["width"].flag) == (True, "--width")


@pytest.mark.parametrize(("commands", "expected"), [(1, ()), (2, ("train-0", "train-1"))])
def test_an_app_of_typer_with_one_command_is_the_program_itself(commands, expected):
    functions = "".join(
        f"@app.command()\ndef train_{number}(lr: float = 0.1): ...\n" for number in range(commands)
    )
    script = script_of(f"import typer\napp = typer.Typer()\n{functions}")
    assert script.commands == expected
    assert [option.command for option in script.options] == list(expected or [""])


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("import hydra", "hydra"),
        ("from lightning.pytorch.cli import LightningCLI", "lightning"),
        ("from transformers import HfArgumentParser", "transformers"),
        ("import fire", "fire"),
        ("from absl import app, flags", "absl"),
        ("import sys", ""),
    ],
)
def test_other_libraries_are_known_by_name(text, library):
    assert script_of(text).library == library


@pytest.mark.parametrize("statement", ["from options import parse", "import options"])
def test_options_of_a_module_beside_the_script(tmp_path, statement):
    script = tmp_path / "train.py"
    script.write_text(f"import json\n{statement}\n")
    (tmp_path / "options.py").write_text("parser.add_argument('--lr', type=float)")
    found = read_script(script)
    assert [option.name for option in found.options] == ["lr"]
    assert [file.name for file in found.files] == ["train.py", "options.py"]


def test_a_script_is_not_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it is run')\nparser.add_argument('--lr')")
    assert len(read_script(script).options) == 1


def test_a_file_that_is_no_python_is_refused(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("x = 1\nprint 'loss'\n")
    with pytest.raises(ValueError, match=r"train\.py:2: this is no Python.*after --"):
        read_script(script)


def test_long_chains_and_odd_escapes_are_read(tmp_path):
    script = tmp_path / "train.py"
    chain = "if x == 0: pass\n" + "".join(f"elif x == {n}: pass\n" for n in range(1, 2000))
    script.write_text(f"pattern = '\\d'\n{chain}parser.add_argument('--lr')")
    assert len(read_script(script).options) == 1
    assert list(printed_lines(parse_file(script))) == []


def test_bytes_that_are_no_text_are_refused(tmp_path):
    script = tmp_path / "train.py"
    script.write_bytes(b"\x7fELF\x00\xff")
    with pytest.raises(ValueError, match="this is no Python"):
        read_script(script)
