"""Clock and protocol of the quality benchmark, and tuner's searches on a small table."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import record
from benchmarks.quality.clock import run_peer
from benchmarks.quality.conversation import Conversation, PeerFailed
from benchmarks.quality.methods import METHODS, Ours, method_of
from benchmarks.quality.ours import TimedSearcher, run_ours
from benchmarks.quality.peers import dialogue
from benchmarks.quality.peers.dialogue import CONTINUE, PAUSE, STOP, Finished, Order
from benchmarks.quality.running import run_all
from benchmarks.quality.table import WORST, Table
from benchmarks.quality.trace import NUM_WORKERS, duration_s, incumbents
from searchers import BasicVariantGenerator
from tests.benchmarks.quality_tables import CONDITIONAL, GRID, noisy_table, small_table

CONFIGS = [
    {axis.name: axis.suggested(config[axis.name]) for axis in GRID.axes}
    for config in GRID.configs()
]
OURS = [METHODS["ours-random"], METHODS["random"], Ours("", "OptunaSearch", "stopping")]


class Scripted:
    """A search with scripted orders, and verdicts by trial and epoch."""

    def __init__(self, orders, verdicts=None):
        self.orders = list(orders)
        self.verdicts = verdicts or {}
        self.received = []

    def ask(self):
        return self.orders.pop(0) if self.orders else None

    def report(self, trial, epoch, value, cost_s):
        self.received.append(("report", trial, epoch, round(value, 3), cost_s))
        return self.verdicts.get((trial, epoch), CONTINUE)

    def complete(self, trial, epoch, value, cost_s):
        self.received.append(("complete", trial, epoch, round(value, 3), cost_s))


def answer_of(search, **question):
    answer = {"versions": {}} if question["do"] == "begin" else dialogue.reply_of(search, question)
    return {"seconds": 0.5, **answer}


def share_at_work(trace, table):
    """Return the share of the time of all workers that went into reported epochs."""
    return sum(float(table.costs_s[epoch.row]) for epoch in trace.epochs) / (
        NUM_WORKERS * duration_s(table)
    )


def run(search):
    """Run a scripted search on a small table."""
    return run_peer(
        lambda do, **facts: answer_of(search, do=do, **facts), "scripted", small_table(), 0
    )


def run_out(search):
    """Run a scripted search whose orders end before its time is over."""
    with pytest.raises(RuntimeError, match="lets all workers wait"):
        run(search)


class FinishingSearch(Scripted):
    """A scripted search that ends after its last order."""

    def ask(self):
        if not self.orders:
            raise Finished
        return super().ask()


def test_a_finished_search_ends_with_its_last_trial():
    search = FinishingSearch([Order("a", CONFIGS[8], 2), Order("b", CONFIGS[4], 1)])
    assert [(epoch.row, epoch.epoch) for epoch in run(search).epochs] == [(8, 1), (4, 1), (8, 2)]
    assert search.received[-1][:3] == ("complete", "a", 2)


def test_trials_run_concurrently_and_complete_at_the_epoch_of_their_order():
    search = Scripted([Order("a", CONFIGS[8], 2), Order("b", CONFIGS[4], 1)])
    run_out(search)
    assert search.received == [
        ("report", "a", 1, 1.0, 1.0),
        ("report", "b", 1, 1.4, 2.0),
        ("complete", "b", 1, 1.4, 2.0),
        ("report", "a", 2, 0.5, 2.0),
        ("complete", "a", 2, 0.5, 2.0),
    ]


def test_a_stopped_trial_is_not_complete():
    search = Scripted([Order("a", CONFIGS[8], 9)], {("a", 2): STOP})
    run_out(search)
    assert [(kind, epoch) for kind, _, epoch, *_ in search.received] == [
        ("report", 1),
        ("report", 2),
    ]


def test_a_paused_trial_continues_where_it_stopped():
    search = Scripted(
        [
            Order("a", CONFIGS[8], 9),
            *[Order(name, CONFIGS[0], 9) for name in "bcd"],
            Order("a", None, 3),
        ],
        {("a", 1): PAUSE},
    )
    run_out(search)
    assert [(epoch, cost_s) for _, trial, epoch, _, cost_s in search.received if trial == "a"] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (3, 3.0),
    ]


def test_trials_wait_for_a_free_worker():
    search = Scripted([Order(str(number), CONFIGS[8], 1) for number in range(6)])
    run_out(search)
    assert [trial for kind, trial, *_ in search.received if kind == "report"] == list("012345")
    assert [kind for kind, *_ in search.received[:2]] == ["report", "complete"]


def test_a_known_value_costs_nothing():
    search = Scripted(
        [
            Order("a", CONFIGS[8], 3),
            *[Order(name, CONFIGS[0], 5) for name in "bcd"],
            Order("a", None, 2),
        ]
    )
    run_out(search)
    assert [received for received in search.received if received[1] == "a"][-1] == (
        "complete",
        "a",
        2,
        0.5,
        3.0,
    )


def test_a_search_that_asks_only_for_known_values_is_an_error():
    class Stubborn(Scripted):
        def ask(self):
            return super().ask() or (Order("a", None, 1) if self.received else None)

    with pytest.raises(RuntimeError, match="values that it knows"):
        run(Stubborn([Order("a", CONFIGS[8], 1)]))


def test_a_trial_cannot_run_twice_at_once():
    with pytest.raises(RuntimeError, match="asks for trial a, which is running"):
        run(Scripted([Order("a", CONFIGS[8], 1), Order("a", None, 2)]))


def test_the_duration_of_a_search_times_its_workers_is_the_budget():
    table = small_table()
    assert duration_s(table) * NUM_WORKERS == pytest.approx(40 * 9 * (2 * 1 + 2) / 3)


def test_the_values_of_a_raw_table_may_rise_and_one_that_is_not_finite_is_the_worst():
    values = np.full((1, len(GRID), 3), 0.5)
    values[0, 8] = 0.4, 0.6, np.nan
    table = Table("small", GRID, values, np.ones(len(GRID)), {}, is_raw=True)
    search = FinishingSearch([Order("a", CONFIGS[8], 3)])
    trace = run_peer(lambda do, **facts: answer_of(search, do=do, **facts), "scripted", table, 0)
    assert [value for kind, *_, value, _ in search.received if kind == "report"] == [
        0.4,
        0.6,
        round(WORST, 3),
    ]
    assert incumbents(table, trace.epochs)[-1][1] == 0.0, "the checkpoint of the best epoch is kept"


def test_requests_and_replies_are_lines_of_json(monkeypatch):
    setting = {
        "method": "m",
        "space": GRID.described(),
        "max_epochs": 9,
        "num_workers": 4,
        "seed": 1,
    }
    questions = [
        {"do": "begin", "setting": setting},
        {"do": "ask"},
        {"do": "report", "trial": "a", "epoch": 1, "value": 0.5, "cost_s": 1.0},
        {"do": "complete", "trial": "a", "epoch": 1, "value": 0.5, "cost_s": 1.0},
        {"do": "ask"},
    ]
    answers = io.StringIO()
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("".join(json.dumps(question) + "\n" for question in questions))
    )
    monkeypatch.setattr(sys, "stdout", answers)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    settings = []

    def make(given):
        print("libraries may print")
        settings.append(given)
        return Scripted([Order("a", CONFIGS[0], 1)])

    dialogue.serve(make, ("numpy",))
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert all(line.pop("seconds") >= 0 for line in lines)
    assert list(lines[0]["versions"]) == ["numpy"]
    assert lines[1:] == [
        {"trial": "a", "config": CONFIGS[0], "until": 1, "source": None},
        {"verdict": "continue"},
        {},
        {"wait": True},
    ]
    assert (settings[0].method, settings[0].seed) == ("m", 1)


def test_a_search_that_fails_to_start_leaves_its_error_message():
    with (
        Conversation(Path(sys.executable), "nothing_of_that_name") as conversation,
        pytest.raises(PeerFailed, match="nothing_of_that_name"),
    ):
        conversation.ask("ask")


@pytest.mark.parametrize("method", ["tpe", "tpe-hyperband"])
def test_optuna_is_driven_by_ask_and_tell(method):
    table = small_table()
    with Conversation(Path(sys.executable), "optuna_peer") as conversation:
        trace = run_peer(conversation.ask, method, table, 0)
        again = run_peer(conversation.ask, method, table, 0)
    assert trace.epochs == again.epochs
    assert trace.num_suggestions >= 30
    assert trace.epochs[-1].at_s <= duration_s(table)
    assert 0.9 < share_at_work(trace, table) <= 1.0
    assert list(trace.versions) == ["optuna"]
    assert (max(epoch.epoch for epoch in trace.epochs), trace.decision_s > 0) == (9, True)


@pytest.mark.parametrize("method", OURS, ids=lambda method: f"{method.searcher}-{method.scheduler}")
def test_our_searches_run_on_a_table(method):
    table = small_table()
    trace, again = (run_ours(method, table, seed=3) for _ in range(2))
    assert trace.epochs == again.epochs
    assert trace.epochs != run_ours(method, table, seed=4).epochs
    assert [epoch.at_s for epoch in trace.epochs] == sorted(epoch.at_s for epoch in trace.epochs)
    assert trace.epochs[-1].at_s <= duration_s(table)
    assert 0.9 < share_at_work(trace, table) <= 1.0
    assert trace.num_suggestions >= len({epoch.row for epoch in trace.epochs})


@pytest.mark.parametrize("name", ["ours", "ours-random", "ours-tree", "ours-optuna"])
def test_our_searches_run_on_a_conditional_noisy_table(name):
    table = noisy_table()
    trace, again = (run_ours(METHODS[name], table, seed=3) for _ in range(2))
    assert trace.epochs == again.epochs
    assert {epoch.row for epoch in trace.epochs} <= set(range(len(CONDITIONAL)))
    assert len({epoch.row for epoch in trace.epochs}) > 20
    first = {}
    for epoch in trace.epochs:
        first.setdefault(epoch.row, epoch.seed)
    assert set(first.values()) == {0, 1, 2}
    assert first == {row: table.seed_of(3, row, 0) for row in first}


def test_both_kinds_of_searches_draw_the_same_training_seeds():
    table = noisy_table()
    config = CONDITIONAL.suggested(next(iter(CONDITIONAL.configs())))
    search = Scripted([Order(str(number), config, 1) for number in range(8)])
    with pytest.raises(RuntimeError, match="lets all workers wait"):
        run_peer(lambda do, **facts: answer_of(search, do=do, **facts), "scripted", table, seed=3)
    drawn = [table.seed_of(3, 0, start) for start in range(8)]
    values = [value for kind, _, _, value, _ in search.received if kind == "report"]
    assert values == [1.0 + number / 2 for number in drawn]
    assert len(set(drawn)) > 1

    class Stubborn(BasicVariantGenerator):
        def suggest(self, trial_id):
            return dict(config)

    searcher = TimedSearcher(Stubborn(), table, 3)
    assert [searcher.suggest(str(number))["training_seed"] for number in range(8)] == drawn


def test_the_default_compares_only_scouts_after_an_epoch():
    trace = run_ours(METHODS["ours-tree"], small_table(), seed=3)
    reached = list({epoch.row: epoch.epoch for epoch in trace.epochs}.values())
    assert len(reached) == trace.num_suggestions == len(small_table().grid)
    # Two scouts are trained to the end. Later trials are compared after 3 epochs, until enough
    # results show that the order is the same after one.
    assert reached[:2] == [9] * 2
    assert 1 in reached[2:12]
    assert min(reached[12:19]) == 3


def test_a_search_that_cannot_run_does_not_block_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TUNER_QUALITY_ENVIRONMENTS", str(tmp_path))
    path = tmp_path / "results.jsonl"
    assert run_all(["dehb", "random"], ["wine_trees"], 1, path) == ["dehb"]
    assert [kept.key for kept in record.read(path)] == [("random", "wine_trees", 0)]
    assert "benchmarks.quality.environments dehb" in capsys.readouterr().out
    assert run_all(["random"], ["wine_trees"], 1, path) == []
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_searcher_of_tuner_can_be_named_with_arguments():
    assert method_of("random") is METHODS["random"]
    method = method_of("OptunaSearch(seed=3, study_name='s')")
    assert (method.searcher, method.scheduler, method.arguments) == (
        "OptunaSearch",
        "promotion",
        {"seed": 3, "study_name": "s"},
    )


@pytest.mark.parametrize(
    "name",
    [
        "unknown",
        "OptunaSearch",
        "OptunaSearch(3)",
        "OptunaSearch(seed=open)",
        "os.remove(path='x')",
        "1 +",
    ],
)
def test_an_unknown_name_is_rejected(name):
    with pytest.raises(ValueError, match="a search must be one of random"):
        method_of(name)
