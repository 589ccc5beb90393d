"""An experiment to be run as ``script.py new|restore STORAGE LEDGER RETRY_S``.

Each trial notes in the ledger, outside the storage, which reports were answered.
While the file ``read-only`` stands beside the ledger, the driver's disk takes nothing.
"""

import errno
import logging
import os
import sys
import time
from pathlib import Path

import tuner as tune
from tuner.storage.disk import LocalDisk

NUM_EPOCHS = 40


def train(config):
    for epoch in range(1, NUM_EPOCHS + 1):
        time.sleep(0.05)
        tune.report({"loss": config["x"] / epoch, "ballast": "." * 3000})
        with Path(config["ledger"]).open("a") as ledger:
            ledger.write(f"{tune.get_context().get_trial_id()} {epoch}\n")


def main(how, storage, ledger, retry_s):
    logging.basicConfig()
    flag, genuine = Path(ledger).with_name("read-only"), LocalDisk.write

    def write(disk, descriptor, data):
        if flag.exists():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return genuine(disk, descriptor, data)

    LocalDisk.write = write
    given = {
        "param_space": {"x": tune.grid_search([1.0, 2.0]), "ledger": ledger},
        "run_config": tune.RunConfig(
            storage_path=storage,
            name="exp",
            verbose=0,
            resources={"cpu": 2},
            storage_retry_s=float(retry_s),
            durability="strict",
        ),
    }
    tuner = (
        tune.Tuner.restore(Path(storage, "exp"), train, **given)
        if how == "restore"
        else tune.Tuner(train, **given)
    )
    grid = tuner.fit()
    print(*(len(result.metrics_dataframe) for result in grid), grid.num_errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
