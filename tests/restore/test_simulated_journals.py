"""Recorded events lead a new experiment to the same commands, notices, decisions and trials."""

import pytest

from tests.properties.scenarios import scenario
from tests.tiers import examples
from tuner.core.commands import AnswerReport, AskSearcher
from tuner.core.events import SearchEnded, TurnEnded
from tuner.core.experiment import Experiment
from tuner.core.trial import Trial, trial_fields, trial_from
from tuner.driver.journal_log import JournalLog
from tuner.journal import records
from tuner.journal.saving_cost import SavingCost
from tuner.storage import strict_json
from tuner.testing import simulation
from tuner.testing.simulation import simulated_settings

pytestmark = pytest.mark.property
SEEDS = range(0, 1200, 1200 // examples(20))


class Remembering(Experiment):
    """Records the effects of each event, as text that compares even with NaN."""

    latest = None

    def __init__(self, *collaborators):
        super().__init__(*collaborators)
        self.told = []
        self.commands = []
        Remembering.latest = self

    def handle(self, event, at_s, recorded=None):
        outcome = super().handle(event, at_s, recorded)
        self.told.append(repr((outcome.commands, outcome.notices, outcome.decisions)))
        self.commands += map(repr, outcome.commands)
        return outcome


class Lines:
    """Stands for a journal and its cleaner: keeps the lines."""

    cost = SavingCost()

    def __init__(self):
        self.lines = []

    def append(self, body, since_s=None):
        self.lines.append(strict_json.dumps(body))

    def flush(self):
        pass

    def release(self):
        pass


@pytest.fixture(scope="module", params=SEEDS)
def original(request):
    """Run an experiment and remember everything."""
    planned = scenario(request.param)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(simulation, "Experiment", Remembering)
        result = planned.simulate()
    return planned, result, Remembering.latest


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Silence warnings about odd results."""
    caplog.set_level("ERROR", "tuner")


def again(planned):
    """Return the same experiment without trials."""
    spec = planned.spec()
    return Remembering(
        simulated_settings(spec, {"cpu": planned.num_slots}), spec.scheduler, spec.stopper
    )


def portrait(experiment):
    """Return the complete state of the trials as text."""
    names = [
        name
        for name in Trial.__slots__
        if name not in {"__weakref__", "local_path", "open_checkpoint", "summary", "trainable_name"}
    ]
    trials = [{name: repr(getattr(trial, name)) for name in names} for trial in experiment.trials]
    summaries = [
        {name: repr(vars_of(summary)) for name, summary in trial.summary.items()}
        for trial in experiment.trials
    ]
    return (
        trials,
        summaries,
        +experiment.trial_table.num_by_status,
        +experiment.trial_table.num_by_ending,
        repr(experiment.best.value),
    )


def vars_of(summary):
    return [getattr(summary, name) for name in summary.__slots__]


def test_every_event_leads_to_the_same_when_it_is_read_back(original):
    planned, result, first = original
    second = again(planned)
    for entry in result.history:
        line = strict_json.dumps(records.encode(entry.event, entry.at_s, entry.recorded))
        event, at_s, recorded = records.decode(strict_json.loads(line))
        assert (
            repr(tuple(second.handle(event, at_s).recorded))
            == repr(recorded)
            == repr(tuple(entry.recorded))
        )
    assert second.told == first.told
    assert portrait(second) == portrait(first)


def test_routine_turns_need_no_record_of_their_own(original):
    planned, result, first = original
    journal = Lines()
    log = JournalLog(journal, journal)
    for entry in result.history:
        log.append(entry.event, entry.at_s, entry.recorded)
    second = again(planned)
    for line in journal.lines:
        body = strict_json.loads(line)
        if (routine_end_s := body.get(records.ROUTINE_END)) is not None:
            outcome = second.handle(TurnEnded(), routine_end_s)
            assert all(
                isinstance(command, (AnswerReport, AskSearcher)) for command in outcome.commands
            )
            assert not outcome.notices
        event, at_s, recorded = records.decode(body)
        assert repr(tuple(second.handle(event, at_s).recorded)) == repr(recorded)
    assert second.commands == first.commands
    assert portrait(second) == portrait(first)
    assert second.is_finished


def test_of_several_routine_turns_in_a_row_the_first_counts_since_it_is_the_one_that_answered():
    journal = Lines()
    log = JournalLog(journal, journal)
    for at_s in (5.0, 6.0, 7.0):
        log.append(TurnEnded(is_noop=True), at_s, ())
    log.append(SearchEnded(), 8.0, ())
    log.append(SearchEnded(), 9.0, ())
    assert [strict_json.loads(line).get(records.ROUTINE_END) for line in journal.lines] == [
        5.0,
        None,
    ]


def put_down(experiment):
    """Return the state as written to a file."""
    state = {
        "state": experiment.state_dict(),
        "trials": [trial_fields(trial) for trial in experiment.trials],
    }
    for part in ("scheduler", "stopper"):
        state[part] = getattr(experiment.policies, part).state_dict()
    return strict_json.dumps(state)


def taken_up(planned, text):
    """Return the experiment with the state of a file."""
    experiment = again(planned)
    saved = strict_json.loads(text)
    experiment.load_state_dict(saved["state"], map(trial_from, saved["trials"]))
    for part in ("scheduler", "stopper"):
        getattr(experiment.policies, part).load_state_dict(saved[part])
    return experiment


def test_a_state_and_what_happened_after_it_lead_to_the_same_as_everything_from_the_beginning(
    original,
):
    planned, result, first = original
    whole = again(planned)
    ends_of_turns = [
        index for index, entry in enumerate(result.history) if isinstance(entry.event, TurnEnded)
    ]
    states = {}
    for index, entry in enumerate(result.history):
        whole.handle(entry.event, entry.at_s, entry.recorded)
        if index in ends_of_turns[:: max(1, len(ends_of_turns) // 5)]:
            states[index] = put_down(whole)
    for index, text in states.items():
        later = taken_up(planned, text)
        later.check()
        assert put_down(later) == text
        for entry in result.history[index + 1 :]:
            later.handle(entry.event, entry.at_s, entry.recorded)
        assert later.told == first.told[index + 1 :]
        assert portrait(later) == portrait(first)
