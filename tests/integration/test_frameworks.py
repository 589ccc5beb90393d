"""Training with a framework is paused, resumed, cloned and stopped without a trace in its curve."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAININGS = Path(__file__).parent / "trainings"
NEEDS = {
    "keras_training": "keras",
    "lightning_training": "lightning",
    "transformers_training": "transformers",
}


@pytest.fixture(scope="module", params=NEEDS)
def trained(request, run_training):
    if importlib.util.find_spec(NEEDS[request.param]) is None:
        pytest.skip(f"{NEEDS[request.param]} is not installed")
    return run_training(
        request.param,
        **({"namespace": "lightning"} if request.param == "lightning_training" else {}),
    )


LOAD = """
import runpy, sys
from tuner import Checkpoint
file, *paths = sys.argv[1:]
loss_of = runpy.run_path(file, run_name="trainings")["loss_of"]
print(*[loss_of(Checkpoint(path)) for path in paths])
"""


def losses_of(checkpoints, training):
    """Return the losses of models, loaded from checkpoints in another process as the guide says."""
    arguments = [sys.executable, "-c", LOAD, str(TRAININGS / f"{training}.py"), *checkpoints]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
    assert ran.returncode == 0, ran.stderr
    return [float(loss) for loss in ran.stdout.splitlines()[-1].split()]


def test_a_trial_that_was_paused_after_each_epoch_has_the_curve_of_one_that_was_not(
    trained, column
):
    assert (
        column(trained["go"], "training_iteration")
        == column(trained["pause"], "training_iteration")
        == [1, 2, 3, 4]
    )
    assert column(trained["go"], "loss") == column(trained["pause"], "loss")
    assert column(trained["go"], "rate") == column(trained["pause"], "rate")
    assert len(set(column(trained["pause"], "pid"))) == 4


def test_a_stopped_trial_is_terminated_and_its_callbacks_see_the_end_of_training(
    trained, column, closed
):
    assert trained["stop"].status == "TERMINATED"
    assert column(trained["stop"], "training_iteration") == [1, 2]
    assert closed(trained["stop"]) == closed(trained["go"]) == "success"


def test_a_clone_continues_the_donors_schedule_with_its_own_rate(trained, column):
    donor = column(trained["go"], "rate")
    assert column(trained["follow"], "rate")[-3:] == pytest.approx(
        [10 * rate for rate in donor[-3:]]
    )


def test_each_result_has_a_checkpoint(trained):
    assert len(list(Path(trained["pause"].path).glob("checkpoint_*"))) == 4


def test_a_saved_model_is_loaded_in_one_line(trained, request):
    result, training = trained["go"], request.node.callspec.params["trained"]
    paths = [result.checkpoint.path]
    if training == "lightning_training":
        (file,) = Path(paths[0]).glob("[!.]*")
        assert file.name == "checkpoint.ckpt"
    losses = losses_of(paths, training)
    assert losses == pytest.approx([result.metrics["loss"]] * len(paths), rel=1e-4)


@pytest.mark.parametrize("library", ["lightgbm", "sklearn", "xgboost"])
def test_a_trial_without_a_checkpoint_has_no_model(library):
    module = pytest.importorskip(f"tuner.integration.{library}")
    get_model = (
        module.get_model if library == "sklearn" else module.TuneReportCheckpointCallback.get_model
    )
    with pytest.raises(TypeError, match="checkpoint must be a Checkpoint, got None"):
        get_model(None)


def test_keras_without_its_backend_is_not_reported_missing(tmp_path):
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    code = "import sys; sys.modules['tensorflow'] = None; import tuner.integration.keras"
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"} | {
        "HOME": str(tmp_path)
    }
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    message = ran.stderr.splitlines()[-1]
    assert "Keras is installed, but cannot be imported with its backend" in message
    assert "tensorflow" in message
    assert "KERAS_BACKEND=torch" in message
