"""Runs an experiment whose searcher delays its second configuration, perhaps for ever.

Arguments: the storage path; how often the first trial has to have reported before the second one is
proposed, 0 for never.
"""

import sys
import threading
from pathlib import Path

import tuner as tune
from searchers import Searcher
from tests.waiting import wait_until


class Slow(Searcher):
    def __init__(self, ledger, num_reports):
        self.ledger, self.num_reports = Path(ledger), num_reports

    def suggest(self, trial_id):
        if trial_id == "t00000":
            return {"x": 0}
        wait_until(self.ledger.read_text, "the first report")
        print("SEARCHES", threading.current_thread().name, flush=True)
        if not self.num_reports:
            threading.Event().wait()
        wait_until(lambda: self.ledger.read_text().count("\n") >= self.num_reports, "reports")
        return {"x": 1}


def train(config):
    for step in range(1, 1_000_000 if config["num_reports"] == 0 else config["num_reports"] + 1):
        tune.report({"step": step})
        with Path(config["ledger"]).open("a") as ledger:
            ledger.write("acknowledged\n")


if __name__ == "__main__":
    storage, num_reports = sys.argv[1], int(sys.argv[2])
    ledger = Path(storage, "ledger")
    ledger.touch()
    searcher = Slow(ledger, num_reports)
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.choice([0, 1]), "ledger": str(ledger), "num_reports": num_reports},
        tune_config=tune.TuneConfig(num_samples=2, search_alg=searcher),
        run_config=tune.RunConfig(name="slow", storage_path=storage, resources={"cpu": 2}),
    )
    try:
        tuner.fit()
    finally:
        print("ENDED", [f"{result.status} {result.ending}" for result in tuner.get_results()])
