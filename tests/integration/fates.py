"""A scheduler that does to each trial what its configuration says, and what the training code of all frameworks has in common."""

import json
from pathlib import Path

import tuner as tune
from schedulers import Pause, Reason, Resume, Scheduler, Stop


class Fates(Scheduler):
    """Pauses ``"pause"`` at each result, and stops ``"stop"`` at its second."""

    def on_trial_result(self, trial, result):
        match trial.config["fate"]:
            case "pause":
                return [Pause(trial.trial_id, Reason("test"))]
            case "stop" if result["training_iteration"] == 2:
                return [Stop(trial.trial_id, Reason("test"))]
        return []

    def on_idle(self, trials, num_free_slots):
        return [Resume(trial.trial_id, Reason("test")) for trial in trials if trial.status == "PAUSED"]


def note(name, content):
    """Leave a file in the trial's directory."""
    Path(tune.get_context().get_trial_dir(), name).write_text(json.dumps(content))
