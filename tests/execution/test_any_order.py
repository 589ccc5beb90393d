"""Whatever processes do, in any order, each attempt and each validation ends exactly once."""

from collections import Counter
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execution.executor_conversation import (
    CRASHED,
    DONE,
    FAILED,
    SHORTAGE,
    STARTED,
    STAYS,
    UNFIT,
    Conversation,
    result,
)
from tests.execution.fake_processes import ENDED
from tests.tiers import examples
from tuner.core.commands import AnswerReport, KillValidation, KillWorker
from tuner.core.events import ResultReported, ValidationEnded, WorkerExited
from tuner.core.worker_records import Failure, ReportReply
from tuner.execution.process_service import Gone, HungUp, StackDumped, Unstarted, Violated, Woken

TRIALS = ("t00001", "t00002", "t00003")
NUM_WORKERS = {"t00001": 0, "t00002": 1, "t00003": 3}
REFUSAL = Unstarted(0, Failure("OSError", "no"), is_shortage=False)

messages = st.sampled_from(
    [
        STARTED, result(), result(part=None), DONE, STAYS, FAILED, UNFIT, {"kind": "saving"}, 3,
        {"kind": "validated", "metrics": {}},
    ]
)  # fmt: skip
said = st.one_of(
    messages,
    st.sampled_from(
        [
            Violated(0, "no JSON"), HungUp(0), StackDumped(0, ""), Gone(0, ENDED), Gone(0, CRASHED),
            Gone(0, None), Unstarted(0, Failure("OSError", "later")), REFUSAL,
        ]
    ),
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(TRIALS)),
    st.tuples(st.sampled_from(["answer", "stay", "kill", "validate", "give up"]), st.just("")),
    st.tuples(st.just("refuse"), st.sampled_from([SHORTAGE, TypeError("a lock")])),
    st.tuples(st.just("say"), st.tuples(st.integers(0, 5), said)),
    st.tuples(st.just("say"), st.tuples(st.integers(0, 5), said)),
)


class Driver:
    """Starts attempts and validations one after the other, and counts how often each ends."""

    def __init__(self, directory):
        self.talk = Conversation(directory)
        self.open, self.attempts, self.tries = {}, Counter(), 0
        self.started, self.ended = set(), Counter()

    def step(self, name, what):
        match name:
            case "start" if what not in self.open:
                self.attempts[what] += 1
                self.open[what] = self.attempts[what]
                self.started.add((what, self.open[what]))
                self.talk.start(what, self.open[what], num_workers=NUM_WORKERS[what])
            case "validate":
                self.tries += 1
                self.started.add(("validation", self.tries))
                self.talk.validate(num_try=self.tries)
            case "give up":
                self.carry_out(KillValidation("t00001", 0, self.tries, "late"))
            case "refuse":
                self.talk.processes.refusals.append(what)
            case "say" if self.talk.processes.keys:
                self.say(*what)
            case "kill":
                self.carry_out(*(KillWorker(*each, "late") for each in self.open.items()))
            case "answer":
                replies = (ReportReply.CONTINUE, {})
                self.answer(*replies)
            case "stay":
                self.answer(ReportReply.EXPLOIT, {"stay": True})

    def answer(self, reply, options):
        self.carry_out(*(AnswerReport(*each, reply, **options) for each in self.open.items()))

    def say(self, number, event):
        processes = self.talk.processes
        key = processes.keys[number % len(processes.keys)]
        if not hasattr(event, "key"):
            processes.send_from(key, event)
            return
        if isinstance(event, Unstarted):
            processes.assigned.pop(key)
        processes.say(type(event)(key, *(getattr(event, each) for each in event.__slots__[1:])))

    def carry_out(self, *commands):
        self.talk.executor.carry_out(commands)

    def collect(self):
        self.talk.processes.say(Woken())  # starts that wait are not retried without a wake
        for event in self.talk.events():
            match event:
                case WorkerExited():
                    self.ended[event.trial_id, event.attempt] += 1
                    assert self.open.pop(event.trial_id) == event.attempt
                case ValidationEnded():
                    self.ended["validation", event.num_try] += 1
                case ResultReported():
                    assert self.open[event.trial_id] == event.attempt

    def finish(self):
        """End all processes; what waits to be started again is killed."""
        self.talk.processes.refusals.clear()
        while self.talk.processes.keys:
            for key in self.talk.processes.keys:
                self.talk.processes.end(key)
            self.collect()
        self.step("kill", "")
        for number in range(1, self.tries + 1):
            self.carry_out(KillValidation("t00001", 0, number, "late"))
        self.collect()


@settings(max_examples=examples(400))
@given(st.lists(steps, max_size=40))
def test_each_start_has_exactly_one_end_whatever_processes_do(script):
    with TemporaryDirectory() as directory:
        driver = Driver(directory)
        for name, what in script:
            driver.step(name, what)
            driver.collect()
        driver.finish()
        assert driver.ended == Counter(driver.started)
        assert driver.talk.executor._processes == {}
