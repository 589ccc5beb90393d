"""How scripts tell their metrics; patterns are tried on what the scripts really print."""

import ast
import re
from textwrap import dedent
from types import SimpleNamespace

import pytest

from tuner.command.scripts.script_reports import Way, reporting_of

VALUES = {
    "epoch": 7, "epochs": 20, "step": 300, "loss": 0.25, "val_loss": 0.5, "acc": 0.75,
    "test_loss": 0.125, "correct": 9712, "total": 10_000, "lr": 1e-5, "elapsed": 12.5,
    "top1": SimpleNamespace(avg=71.5, val=70.0), "metrics": {"val/acc": 0.875},
    "running_loss": 12.5, "loader": range(50), "optimizer": "adam", "nan": float("nan"),
    "batch": 40,
}  # fmt: skip


def reporting(text):
    return reporting_of(ast.parse(dedent(text)))


def printed(text, capsys):
    """Run a script whose variables are `VALUES`, and return the lines that it prints."""
    exec(compile(dedent(text), "script", "exec"), {**VALUES})  # noqa: S102  (the test's own texts)
    return capsys.readouterr().out.splitlines()


def metrics_in(lines, patterns):
    found = {}
    for line in lines:
        for pattern in patterns:
            if match := re.search(pattern, line):
                found |= match.groupdict()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('print(f"epoch {epoch}: val_loss={val_loss:.4f}")', {"epoch": "7", "val_loss": "0.5000"}),
        (
            'print(f"Epoch [{epoch + 1}/{epochs}], Loss: {loss:.4f}, Val Acc: {acc:.1%}")',
            {"epoch": "8", "loss": "0.2500", "val_acc": "75.0%"},
        ),
        (
            'print("epoch %3d | loss %8.3f | acc %-8.2f |" % (epoch, loss, acc))',
            {"epoch": "7", "loss": "0.250", "acc": "0.75"},
        ),
        (
            r"print('\nLoss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n'.format(test_loss, 97, 99, 97.1))",
            {"test_loss": "0.1250", "accuracy": "97"},
        ),
        ('print("loss", loss)', {"loss": "0.25"}),
        ('print(f"epoch {epoch} loss {1 / epoch + lr:.2f}")', {"epoch": "7", "loss": "0.14"}),
        ('print(f"acc {correct / epoch:.0f}")', {"acc": "1387"}),
        ('print("Epoch:", epoch, "Loss:", loss, sep="")', {"epoch": "7", "loss": "0.25"}),
        ('print("[%d] loss=%.2f (%.1fs)" % (step, loss, elapsed))',
         {"step": "300", "loss": "0.25"}),
        ('print("train loss: " + str(loss) + " val loss: " + str(val_loss))',
         {"train_loss": "0.25", "val_loss": "0.5"}),
        ('print(f"Loss: {running_loss / len(loader):.3f}")', {"running_loss": "0.250"}),
        ('print(f"{epoch:>4}/{epochs} Prec@1 {top1.avg:.2f}")', {"epoch": "7", "top1": "71.50"}),
        ('print("val acc {acc}".format(acc=acc))', {"val_acc": "0.75"}),
        ('print("val acc {0[val/acc]:.3f}".format(metrics))', {"val_acc": "0.875"}),
        ('print(f"val acc: {metrics[\'val/acc\']}")', {"val_acc": "0.875"}),
        ('import json\nprint(json.dumps({"epoch": epoch, "val_loss": val_loss}))',
         {"epoch": "7", "val_loss": "0.5"}),
        ('print({"epoch": epoch, "val_loss": val_loss})', {"epoch": "7", "val_loss": "0.5"}),
        ('line = f"step {step}\\tloss {loss:.3g}"\nprint(line)', {"step": "300", "loss": "0.25"}),
        ('print(f"loss={nan}, acc={acc}")', {"loss": "nan", "acc": "0.75"}),
        ('print(f"lr {lr} with {optimizer} ends at loss {loss}.")', {"loss": "0.25"}),
        ('print(f"| epoch {epoch:3d} | {batch:5d} batches | ms {elapsed:5.2f} | loss {loss:5.2f}")',
         {"epoch": "7", "loss": "0.25"}),
    ],
)  # fmt: skip
def test_patterns_match_what_is_printed(text, expected, capsys):
    found = reporting(text)
    assert found.way is Way.OUTPUT
    assert metrics_in(printed(text, capsys), found.patterns) == expected
    assert list(found.metrics) == list(expected)


MNIST = """
    def train(epoch):
        for batch in range(3):
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\\tLoss: {:.6f}'.format(
                epoch, batch * 64, total, 100. * batch / 938, loss))

    def test():
        print('\\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\\n'.format(
            test_loss, correct, total, 100. * correct / total))

    for epoch in range(1, 3):
        train(epoch)
        test()
    print(f"best loss {test_loss}")
"""


def test_a_line_about_held_out_data_is_chosen_with_the_epoch_of_another(capsys):
    found = reporting(MNIST)
    assert (found.metric, found.mode) == ("test_loss", "min")
    assert metrics_in(printed(MNIST, capsys), found.patterns) == {
        "epoch": "2", "test_loss": "0.1250", "accuracy": "97",
    }  # fmt: skip
    assert found.line == 8


@pytest.mark.parametrize(
    ("call", "way", "metric", "mode"),
    [
        ("tune.report({'val_acc': acc, 'epoch': 1})", Way.REPORT, "val_acc", "max"),
        ("train.report(dict(loss=1))", Way.REPORT, "", "min"),
        ("from tuner import report\nreport({'loss': 1})", Way.REPORT, "loss", "min"),
        ("tune.report(loss=1)", Way.REPORT, "loss", "min"),
        ("row = {'loss': 1}\ntune.report(metrics=row)\ntune.report(row)", Way.REPORT, "", "min"),
        ("row = {'loss': 1}\ntune.report(row)", Way.REPORT, "loss", "min"),
        ("open(os.environ['TUNER_REPORT'], 'w')", Way.LINES, "", "min"),
        ("wandb.log({'val/accuracy': 1})", Way.TRACKER, "val/accuracy", "max"),
        ("class A:\n  def f(self): self.log('val_loss', x)", Way.TRACKER, "val_loss", "min"),
        ("writer.add_scalar('Loss/val', x, step)", Way.TRACKER, "Loss/val", "min"),
        ("self.log('val_loss', 1)\nlogger = CSVLogger('logs')", Way.CSV, "val_loss", "min"),
        ("print('done')", Way.NONE, "", "min"),
        ("print(epoch)", Way.NONE, "", "min"),
        ("writer.write(f'loss {x}')", Way.NONE, "", "min"),
    ],
)
def test_other_ways(call, way, metric, mode):
    found = reporting(call)
    assert (found.way, found.metric, found.mode) == (way, metric, mode)


def test_a_report_is_preferred_to_what_is_printed():
    assert reporting("print(f'loss {x}')\ntune.report({'val_loss': 1})").way is Way.REPORT


def test_lines_of_logging():
    found = reporting('logger.info("epoch %d: val_loss %.3f", epoch, val_loss)')
    assert metrics_in(["INFO:root:epoch 3: val_loss 0.125"], found.patterns) == {
        "epoch": "3", "val_loss": "0.125",
    }  # fmt: skip


def test_a_text_made_of_itself_has_an_end():
    assert reporting("line = ''\nline = line + f'loss {loss}'\nprint(line)").metrics == ("loss",)
