"""A small experiment on the nodes of a cluster, played without any, and written to a directory."""

from tests.core.conversation import BOOM, Conversation, starts, suggest
from tuner import RunConfig, TuneConfig
from tuner.core.commands import AskSearcher
from tuner.core.events import (
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    WorkerStarted,
)
from tuner.journal.records import encode
from tuner.journal.writer import Journal
from tuner.spec.experiment_spec import make_spec
from tuner.spec.record import write_declaration

OBJECTIVE = {"metric": "loss", "mode": "min"}
A, B, C = "t00000", "t00001", "t00002"


def train(config):
    pass


class Recorded(Conversation):
    """A conversation of which the records are kept; listeners hear what an observer does."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.records, self.listeners = [], []
        handle = self.experiment.handle

        def record(event, at_s):
            effects = handle(event, at_s)
            self.records.append(encode(event, at_s, effects.recorded))
            for listen in self.listeners:
                listen(event, effects, at_s)
            return effects

        self.experiment.handle = record

    def let_start(self, commands):
        """Suggest what is asked for and start what has room; return the trials that started."""
        started = []
        while commands:
            begun = starts(commands)
            started += [trial_id for trial_id, _ in begun]
            asked = [one.trial_id for one in commands if isinstance(one, AskSearcher)]
            commands = []
            for trial_id, attempt in begun:
                commands += self.say(WorkerStarted(trial_id, attempt, pid=1))
            for trial_id in asked:
                commands += self.say(suggest(trial_id))
        return started


def conversation(*listeners, max_trials=3, **settings):
    """Return an experiment on two nodes: one is lost, one drains, and a third one joins."""
    settings = {"node_wait_s": 300.0, "capacity": {}, "max_failures": 1, **OBJECTIVE, **settings}
    talk = Recorded(max_trials=max_trials, **settings)
    talk.listeners += listeners
    talk.let_start(talk.say(NodeJoined("a", {"cpu": 1.0, "gpu": 1.0}, {"zone": "x"})))
    talk.now_s = 5.0
    talk.let_start(talk.say(NodeJoined("b", {"cpu": 1.0})))
    talk.now_s = 20.0
    for trial_id in (A, B):
        talk.report(trial_id, 1, loss=0.5, time_total_s=10.0)
    talk.let_start(talk.exit(A, Outcome.COMPLETED))
    talk.now_s = 50.0
    talk.let_start(talk.say(NodeLeft("b", "nothing was heard of it for 30 s")))
    talk.now_s = 60.0
    talk.let_start(talk.exit(C, Outcome.FAILED, BOOM))
    talk.let_start(talk.say(NodeJoined("c", {"cpu": 1.0}), NodeDraining("a", 30.0)))
    return talk


def write(directory, talk=None, **run):
    """Write such an experiment to a directory, as a driver leaves it that was killed."""
    talk = talk or conversation()
    directory.mkdir(parents=True)
    spec = make_spec(
        train,
        {"x": 1},
        TuneConfig(num_samples=3, **OBJECTIVE),
        RunConfig(name=directory.name, storage_path=directory.parent, **run),
    )
    write_declaration(spec, talk.experiment.settings, directory)
    for trial in talk.experiment.trials:
        (directory / trial.trial_id).mkdir()
    with Journal(directory, sync="process") as journal:
        journal.append(*talk.records)
    return directory
