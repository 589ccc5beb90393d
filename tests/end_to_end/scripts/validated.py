"""A search whose checkpoints are validated asynchronously, and which can be restored.

Run as ``validated.py DIRECTORY FORM HANGS_AT [restore]``. ``FORM`` is ``declared`` or ``reported``:
where the validation function is given. The validation of the checkpoint with number ``HANGS_AT``
does not end; all wait until the training has ended.
"""

import sys
import tempfile
import threading
from pathlib import Path

import tuner as tune
from tests.waiting import wait_until
from tuner import train

DIRECTORY, FORM, HANGS_AT = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
NUM_STEPS = 4


NOTES = DIRECTORY / "validations.txt"


def note(text):
    with NOTES.open("a") as file:
        file.write(f"{text}\n")


def validate(checkpoint, factor):
    step = int(Path(checkpoint.path, "step.txt").read_text())
    note(f"start {step}")
    wait_until(lambda: "trained\n" in NOTES.read_text(), "the end of the training")
    if step == HANGS_AT:
        threading.Event().wait()
    note(f"end {step}")
    return {"accuracy": factor * step, "loss": -1.0}


def validate_config(checkpoint, config):
    return validate(checkpoint, **config)


def learn(config):
    given = (
        {"validation": train.ValidationTaskConfig(fn_kwargs={"factor": 10})}
        if FORM == "declared"
        else {"validate_fn": validate_config, "validate_config": {"factor": 10}}
    )
    for step in range(NUM_STEPS):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step.txt").write_text(str(step))
            metrics = {"loss": 1.0, "step": step}
            train.report(metrics, train.Checkpoint.from_directory(directory), **given)
    note("trained")


def main():
    defaults = train.ValidationTaskConfig(fn_kwargs={"factor": 1})
    declared = train.ValidationConfig(fn=validate, task_config=defaults)
    validation_config = declared if FORM == "declared" else None
    if "restore" in sys.argv:
        tuner = tune.Tuner.restore(DIRECTORY / "exp", learn, validation_config=validation_config)
    else:
        run_config = tune.RunConfig(
            name="exp", storage_path=DIRECTORY, verbose=0, validation_config=validation_config
        )
        tuner = tune.Tuner(learn, run_config=run_config)
    (result,) = tuner.fit()
    for checkpoint, metrics in result.best_checkpoints:
        print(Path(checkpoint.path).name, metrics["loss"], metrics.get("accuracy"))
    print("DONE", result.metrics["accuracy"])


if __name__ == "__main__":
    main()
