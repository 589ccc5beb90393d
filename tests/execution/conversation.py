"""A scripted driver's end of a worker's connection that records what it receives."""

import dataclasses

from tuner.execution.assignment import Assignment
from tuner.execution.session import run_attempt
from tuner.execution.worker_protocol import to_event
from tuner.storage import strict_json

CONTINUE = {"verdict": "continue", "save": False}
SAVE = {"verdict": "continue", "save": True}
STOP = {"verdict": "stop", "save": False}
STOP_AND_SAVE = {"verdict": "stop", "save": True}
PAUSE_AND_SAVE = {"verdict": "pause", "save": True}


class Script:
    """A channel with answers; after the last one every report is answered with continue."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.said = []

    def send(self, message):
        message = strict_json.loads(strict_json.dumps(message))
        assert to_event("t00000", 1, message)
        self.said.append(message)

    def receive(self, timeout_s=None):
        return self.answers.pop(0) if self.answers else CONTINUE

    @property
    def kinds(self):
        return [message["kind"] for message in self.said]

    @property
    def results(self):
        return [message["metrics"] for message in self.said if message["kind"] == "result"]

    @property
    def exit(self):
        assert self.kinds.count("exited") == 1
        assert self.kinds[-1] == "exited"
        return self.said[-1]

    @property
    def outcome(self):
        return self.exit["outcome"]


def assignment(trial_dir, **changes):
    given = Assignment(
        trial_id="t00000", attempt=1, config={"x": 1}, experiment_name="exp", trial_dir=trial_dir,
        experiment_tag="0_x=1",
        resources={"cpu": 1.0}, gpu_ids=(), checkpoint_dir=None, iteration=0, time_total_s=0.0,
        counters={}, next_checkpoint=0, seed=42,
        sync_checkpoints=False,
    )  # fmt: skip
    return dataclasses.replace(given, **changes)


def converse(trainable, trial_dir, *answers, **changes):
    """Run one attempt to its end and return what was said."""
    script = Script(*answers)
    run_attempt(trainable, assignment(trial_dir, **changes), script)
    return script
