"""A process service in which nothing runs: a test says what becomes of the processes."""

from tuner.execution.failures import ExitInfo
from tuner.execution.process_service import Gone, Listening, Said, Woken
from tuner.storage import strict_json

ENDED = ExitInfo(0)


class FakeProcesses:
    """Records what an executor asks for, and says what it is told to.

    Attributes:
        assigned: What processes that are not gone were given to do, by key.
        sent: Messages to processes, by key.
        asked: What else was asked, as name, key, and the remaining arguments.
        refusals: Exceptions that the next starts raise, None for one that succeeds.
        watched: What is to be called when something is readable.
        preloaded: Modules that were to be preloaded.
        listening: Node, and whether that of the whole group, of processes that are to listen, by
            key.
        listens: Whether it says at once that they do.
    """

    isolates = True

    def __init__(self):
        self.assigned, self.sent, self.asked = {}, {}, []
        self.refusals, self.watched, self.preloaded = [], [], []
        self.is_closed, self.listening, self.listens = False, {}, True
        self._said = []

    # What a test has them do.

    def say(self, *events):
        """Say events behind those that were not fetched yet."""
        for event in events:
            if isinstance(event, Gone):
                self.assigned.pop(event.key, None)
        self._said += events

    def send_from(self, key, *messages):
        """Have a process send messages, all at once."""
        self.say(Said(key, list(messages)))

    def end(self, key, exit_info=ENDED, stderr=""):
        """Have a process end."""
        self.say(Gone(key, exit_info, stderr))

    @property
    def keys(self):
        """The keys of the processes that are there, in the order of their starts."""
        return list(self.assigned)

    def take_asked(self):
        """Remove and return what was asked."""
        asked, self.asked = self.asked, []
        return asked

    # The ProcessService protocol.

    def listen(self, key, node="", *, is_local=True):
        self.listening[key] = (node, is_local)
        if self.listens:
            self.say(Listening(key, "127.0.0.1", 29500))

    def start(self, key, assignment):
        if self.refusals and (refusal := self.refusals.pop(0)):
            raise refusal
        self.listening.pop(key, None)
        self.assigned[key], self.sent[key] = assignment, []

    def reassign(self, key, assignment):
        if key in self.assigned:
            self.assigned[key] = assignment
            self.asked.append(("reassign", key))

    def send(self, key, line):
        if key in self.assigned:
            self.sent[key].append(strict_json.loads(line))

    def kill(self, key, grace_s=0.0):
        self.listening.pop(key, None)
        if key in self.assigned:
            self.asked.append(("kill", key, grace_s))

    def expect_exit(self, key):
        self.asked.append(("expect_exit", key))

    def dump_stack(self, key):
        self.asked.append(("dump_stack", key))

    def preload(self, modules):
        self.preloaded += modules

    def watch(self, readable, on_readable):
        self.watched.append(on_readable)

    def wait(self, timeout_s):
        said, self._said = self._said, []
        if not said:
            assert timeout_s is not None, "nothing would ever happen"
        return said

    def wake(self):
        self.say(Woken())

    def close(self, deadline_s):
        self.is_closed = True
