from hypothesis import given
from hypothesis import strategies as st

from tuner.core.events import ResultReported, TurnEnded, WorkerStarted
from tuner.journal.records import encode
from tuner.journal.result_records import RowCounter, numbered
from tuner.journal.rows import JournalRows, MemoryRows, current, surviving
from tuner.journal.writer import Journal


def rows(*iterations, attempt=1):
    return [{"training_iteration": iteration, "attempt": attempt} for iteration in iterations]


def counted(reported):
    """Return the results of a trial that has never gone on from another one's checkpoint."""
    return [row for _, row in current(numbered((0, row) for row in reported))]


def test_results_come_in_the_order_of_their_iteration():
    assert counted(rows(1, 2, 3)) == rows(1, 2, 3)


def test_repeated_results_of_a_retry_supersede_the_earlier_rows():
    # Saved at 2, crashed after 4, went on at 3.
    assert counted(rows(1, 2, 3, 4) + rows(3, 4, 5, attempt=2)) == rows(1, 2) + rows(
        3, 4, 5, attempt=2
    )


def test_rows_beyond_a_retry_are_gone_even_if_it_came_less_far():
    assert counted(rows(1, 2, 3, 4) + rows(2, attempt=2)) == rows(1) + rows(2, attempt=2)


def test_a_retry_from_the_beginning_supersedes_everything():
    assert counted(rows(1, 2, 3) + rows(1, attempt=2)) == rows(1, attempt=2)


def test_iterations_may_be_skipped():
    assert counted(rows(1, 5, 9)) == rows(1, 5, 9)


@given(st.lists(st.integers(1, 20)))
def test_iterations_grow_and_the_last_report_always_counts(iterations):
    kept = [row["training_iteration"] for row in counted(rows(*iterations))]
    assert kept == sorted(set(kept))
    assert kept[-1:] == iterations[-1:]


def test_results_without_an_iteration_are_counted():
    assert counted([{"loss": 1}, {"loss": 2}]) == [{"loss": 1}, {"loss": 2}]


def test_results_before_an_exploit_stay_and_iterations_may_repeat():
    # At 4 it took over a checkpoint of 2, crashed after 4, and went on at 3.
    reported = [(0, row) for row in rows(1, 2, 3, 4)] + [
        (1, row) for row in rows(3, 4, attempt=2) + rows(4, 5, attempt=3)
    ]
    kept = current(numbered(reported))
    assert [row for _, row in kept] == rows(1, 2, 3, 4) + rows(3, attempt=2) + rows(4, 5, attempt=3)
    assert [branch for branch, _ in kept] == [0, 0, 0, 0, 1, 1, 1]
    kept = current(numbered([*reported[:4], (1, rows(1, attempt=2)[0])]))
    assert [row for _, row in kept] == rows(1, 2, 3, 4) + rows(1, attempt=2)


def test_the_configuration_of_each_row_is_that_of_its_branch():
    memory = MemoryRows(
        {"t1": rows(1, 2, 2, 3), "t2": rows(1)},
        {"t1": [0, 0, 1, 1]},
        {"t1": [{"lr": 1}, {"lr": 2}]},
    )
    assert [row["training_iteration"] for row in memory.of("t1")] == [1, 2, 2, 3]
    assert memory.configs("t1") == [{"lr": 1}, {"lr": 1}, {"lr": 2}, {"lr": 2}]
    assert memory.configs("t2") is None


def test_rows_in_memory_are_those_of_the_trial_and_copies():
    reported = {"t1": rows(1, 2), "t2": rows(1)}
    memory = MemoryRows(reported)
    memory.of("t1")[0]["attempt"] = 9
    assert memory.of("t1") == [row | {"num_exploits": 0} for row in rows(1, 2)]
    assert memory.of("t3") == []


def write_journal(experiment, *events):
    with Journal(experiment, sync="process") as journal:
        journal.append(*[encode(event, stamp=float(number)) for number, event in enumerate(events)])


def reported(trial_id, attempt, iteration, loss, row=None):
    metrics = {"loss": loss, "training_iteration": iteration}
    return ResultReported(trial_id, attempt, metrics, row=row)


def test_rows_of_a_journal_are_told_apart_by_trial(tmp_path):
    write_journal(
        tmp_path,
        WorkerStarted("t1", 1, 99),
        reported("t1", 1, 1, 0.5),
        reported("t2", 1, 1, 0.7),
        TurnEnded(),
        reported("t1", 1, 2, 0.4),
    )
    rows = JournalRows(tmp_path)
    assert [row["loss"] for row in rows.of("t1")] == [0.5, 0.4]
    assert rows.of("t2") == [{"loss": 0.7, "training_iteration": 1, "num_exploits": 0}]
    assert rows.of("t3") == []


def test_rows_of_a_journal_are_those_of_the_latest_attempt(tmp_path):
    retried = [
        reported("t1", 1, 1, 0.9),
        reported("t1", 1, 2, 0.8),
        reported("t1", 2, 2, 0.7),
        reported("t1", 1, 3, 0.1),
        reported("t1", 2, 3, 0.6),
    ]
    write_journal(tmp_path, *retried)
    assert [row["loss"] for row in JournalRows(tmp_path).of("t1")] == [0.9, 0.7, 0.6]


def test_results_without_a_row_follow_those_that_have_one(tmp_path):
    # An earlier release went on with what this one had begun, and this one once more.
    mixed = [
        reported("t1", 1, 1, 0.9),
        reported("t1", 1, 2, 0.8, row=2),
        reported("t1", 1, 3, 0.7, row=3),
        reported("t1", 2, 3, 0.6),
        reported("t1", 2, 4, 0.5),
        reported("t1", 3, 5, 0.4, row=5),
        reported("t1", 4, 6, 0.3),
    ]
    write_journal(tmp_path, *mixed)
    losses = [row["loss"] for row in JournalRows(tmp_path).of("t1")]
    assert losses == [0.9, 0.8, 0.6, 0.5, 0.4, 0.3]


def test_the_journal_is_not_read_before_rows_are_asked_for(tmp_path):
    rows = JournalRows(tmp_path)
    write_journal(tmp_path, reported("t1", 1, 1, 0.5))
    assert len(rows.of("t1")) == 1


def test_floats_that_are_not_finite_come_back_from_the_journal(tmp_path):
    write_journal(tmp_path, reported("t1", 1, 1, float("inf")))
    assert JournalRows(tmp_path).of("t1")[0]["loss"] == float("inf")


def test_of_results_with_gaps_a_new_attempt_supersedes_all_behind_its_checkpoint():
    first = [
        {"training_iteration": iteration, "iterations_since_restore": iteration}
        for iteration in (10, 20, 30)
    ]
    # It went on at 20.
    second = [
        {"training_iteration": iteration, "iterations_since_restore": iteration - 20}
        for iteration in (35, 45)
    ]
    counter = RowCounter()
    began = [0, None, None, 20, None]
    numbers = [counter.row_of(0, *one) for one in zip(first + second, began, strict=True)]
    assert numbers == [1, 2, 3, 3, 4]
    assert surviving(numbers) == [0, 1, 3, 4]
