"""Train with checkpoints in an object store; see `tests.end_to_end.test_stored_checkpoints`.

Arguments: ``fit`` or ``restore``, the URL and the local directory. With ``fit``, the trials do not
get beyond some steps, so that the experiment can be killed.
"""

import sys
import tempfile
import threading
from pathlib import Path

import tuner as tune

NUM_STEPS = 10
HANGS_AT = 7 if sys.argv[1] == "fit" else None


def train(config):
    begin = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            begin = int(Path(directory, "step").read_text())
    for step in range(begin + 1, NUM_STEPS + 1):
        if step == HANGS_AT:
            threading.Event().wait()
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            Path(directory, "weights").write_bytes(bytes(100_000))
            tune.report({"loss": 1 / step, "begin": begin}, checkpoint=tune.Checkpoint(directory))


if __name__ == "__main__":
    what, url, local_dir = sys.argv[1:]
    if what == "restore":
        tuner = tune.Tuner.restore(f"{url}/killed", train, local_dir=local_dir)
    else:
        tuner = tune.Tuner(
            train,
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=2),
            run_config=tune.RunConfig(
                name="killed",
                storage_path=url,
                local_dir=local_dir,
                mirror_s=0.1,
                resources={"cpu": 2},
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    for result in tuner.fit():
        frame = result.metrics_dataframe
        steps = ",".join(str(step) for step in frame["training_iteration"])
        print(result.trial_id, steps, int(frame["begin"].iloc[-1]), flush=True)
