"""Metrics, checkpoints and hooks that the callbacks of all frameworks share."""

import sys
import types
import warnings
from types import SimpleNamespace

import pytest

from tuner.integration import pytorch_lightning, reporting

pytestmark = pytest.mark.unit
OFFERED = {"val_loss": 0.5, "val_acc": 0.75}


@pytest.mark.parametrize(
    ("metrics", "chosen"),
    [
        (None, OFFERED),
        ([], OFFERED),
        ("val_loss", {"val_loss": 0.5}),
        (["val_loss", "val_acc"], OFFERED),
        ({"loss": "val_loss", "copy": "val_loss"}, {"loss": 0.5, "copy": 0.5}),
    ],
)
def test_metrics_are_chosen_and_renamed(metrics, chosen):
    assert (
        reporting.Selection(metrics).of(OFFERED)
        == reporting.Selection(metrics).all_of(OFFERED)
        == chosen
    )


@pytest.mark.parametrize("metrics", [5, {"loss": 5}, [""], {"": "val_loss"}])
def test_metrics_must_be_names(metrics):
    with pytest.raises(TypeError, match="metrics must be names"):
        reporting.Selection(metrics)


def test_a_missing_metric_is_warned_about_once():
    selection = reporting.Selection(["val_loss", "val_f1"])
    with pytest.warns(UserWarning, match="no metric 'val_f1' here, only 'val_loss', 'val_acc'"):
        assert selection.of(OFFERED) == {"val_loss": 0.5}
    assert selection.of(OFFERED) == {"val_loss": 0.5}


# Lightning's two names; modules that look like them, so that neither is imported.


@pytest.fixture
def namespaces(monkeypatch):
    """Return a function that fakes imported namespaces and returns their callback classes."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def put(*names):
        classes = []
        for name in names:
            base = type(
                "Callback",
                (),
                {
                    hook: lambda self, *given: None
                    for hook in ("on_validation_end", "on_exception", "on_fit_start")
                },
            )
            monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(Callback=base))
            classes.append(base)
        return classes

    return put


@pytest.mark.parametrize(
    "names",
    [["pytorch_lightning"], ["lightning.pytorch"], ["lightning.pytorch", "pytorch_lightning"]],
)
def test_a_callback_derives_from_every_imported_namespace(namespaces, names):
    classes = namespaces(*names)
    callback = pytorch_lightning.TuneReportCheckpointCallback("loss")
    assert [isinstance(callback, base) for base in classes] == [True] * len(names)
    assert isinstance(callback, pytorch_lightning.TuneReportCheckpointCallback)
    assert type(callback).__name__ == "TuneReportCheckpointCallback"


def test_a_subclass_keeps_its_hooks_and_ours(namespaces):
    namespaces("pytorch_lightning")
    heard = []

    class Own(pytorch_lightning.TuneReportCallback):
        def on_validation_end(self, trainer, module):
            heard.append("own")
            super().on_validation_end(trainer, module)

        def handle_hook(self, hook, trainer, *arguments):
            heard.append(hook)

    Own().on_validation_end(None, None)
    assert heard == ["own", "validation_end"]


def test_an_unknown_hook_is_refused(namespaces):
    namespaces("pytorch_lightning")
    with pytest.raises(
        ValueError,
        match=r"on must name hooks.*got 'batch'; there are exception, fit_start, validation_end",
    ):
        pytorch_lightning.TuneReportCallback(on="batch")


def test_without_lightning_the_extra_is_named(namespaces, monkeypatch):
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pytorch_lightning")
    monkeypatch.setattr(
        pytorch_lightning, "_NAMESPACES", ("lightning_that_is_not.pytorch", "nor_this")
    )
    with pytest.raises(ImportError, match=r"tuner-hpo\[lightning\]"):
        pytorch_lightning.TuneReportCallback()


# Workers.


@pytest.mark.parametrize(("num_processes", "num_warnings"), [(1, 1), (2, 0)])
def test_workers_that_train_alone_are_warned_of_once(monkeypatch, num_processes, num_warnings):
    def attempt_of(rank):
        return SimpleNamespace(
            assignment=SimpleNamespace(rank=SimpleNamespace(world_size=2, world_rank=rank))
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rank in (0, 1):
            monkeypatch.setattr(reporting, "current_attempt", lambda rank=rank: attempt_of(rank))
            reporting.warn_if_alone(num_processes, "pass a strategy")
    assert len(caught) == num_warnings
    assert all("each of the 2 workers trains alone" in str(one.message) for one in caught)


def test_a_trial_of_one_worker_is_alone_by_right(monkeypatch):
    monkeypatch.setattr(
        reporting,
        "current_attempt",
        lambda: SimpleNamespace(assignment=SimpleNamespace(rank=None)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reporting.warn_if_alone(1, "pass a strategy")
