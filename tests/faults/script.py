"""An experiment to be run as ``script.py new|restore STORAGE LEDGER RETRY_S``.

Each trial notes in the ledger, outside the storage, which reports were answered. It waits before
epoch `HALT_EPOCH` until there is a file ``go`` beside the ledger. While the file ``read-only``
stands there, the driver's disk takes nothing.
"""

import errno
import logging
import os
import sys
from pathlib import Path

import tuner as tune
from tests.waiting import wait_until
from tuner.driver import signals, storage_retry
from tuner.journal.rows import JournalRows
from tuner.storage.disk import LocalDisk

NUM_EPOCHS = 12
HALT_EPOCH = 4
HEARD = "a signal was heard"


def train(config):
    for epoch in range(1, NUM_EPOCHS + 1):
        if epoch == HALT_EPOCH:
            wait_until(Path(config["ledger"]).with_name("go").exists)
        tune.report({"loss": config["x"] / epoch, "ballast": "." * 3000})
        with Path(config["ledger"]).open("a") as ledger:
            ledger.write(f"{tune.get_context().get_trial_id()} {epoch}\n")


def tell_signals():
    genuine = signals.Interrupts._handle

    def handle(interrupts, number, frame):
        genuine(interrupts, number, frame)
        os.write(2, f"{HEARD}\n".encode())

    signals.Interrupts._handle = handle


def main(how, storage, ledger, retry_s):
    logging.basicConfig()
    flag, genuine = Path(ledger).with_name("read-only"), LocalDisk.write

    def write(disk, descriptor, data):
        if flag.exists():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return genuine(disk, descriptor, data)

    LocalDisk.write = write
    # No test waits for these; two signals in a row are two requests here.
    storage_retry.STOPPING_RETRY_S, signals._ECHO_S = 0.5, 0.0
    tell_signals()
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
    rows = JournalRows(Path(storage, "exp"))
    print(*(len(rows.of(result.trial_id)) for result in grid), grid.num_errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
