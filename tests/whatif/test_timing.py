import pytest

from tuner.whatif.recording import Timing, _TimingReader, read_timing


def result(at_s, iteration, trained_s=1.0, trial_id="a"):
    return {
        "k": "result",
        "t": at_s,
        "id": trial_id,
        "m": {"training_iteration": iteration, "time_this_iter_s": trained_s},
    }


def started(at_s, attempt=1, trial_id="a"):
    return {"k": "started", "t": at_s, "id": trial_id, "a": attempt}


def exited(at_s, outcome="completed", trial_id="a"):
    return {"k": "exited", "t": at_s, "id": trial_id, "outcome": outcome}


def turn(at_s):
    return {"k": "turn", "t": at_s}


def suggested(at_s, trial_id="a"):
    return {"k": "suggested", "t": at_s, "id": trial_id}


def watched(*records, **how):
    watch = _TimingReader(**{"is_uniform": True, **how})
    for record in records:
        watch.see(record)
    return watch.timing()


BEGIN = [turn(0.5), suggested(0.6), started(0.75)]


@pytest.mark.parametrize("begin", [BEGIN, [{**suggested(0.6), "turn": 0.5}, started(0.75)]])
def test_a_start_takes_from_the_turn_that_asked_for_the_trial_until_its_code_runs(begin):
    timing = watched(*begin)
    assert (timing.begin_s, timing.of_trial("a").start_s, timing.start_s) == (0.5, 0.25, 0.25)


def test_where_requests_differ_a_trial_waits_for_others_to_leave():
    records = [
        turn(0.0),
        suggested(0.0, "b"),
        suggested(0.0),
        started(0.25, trial_id="b"),
        exited(4.0, trial_id="b"),
        started(4.5),
    ]
    assert watched(*records, is_uniform=False).of_trial("a").start_s == 0.5
    assert watched(*records).of_trial("a").start_s == 4.5


def test_a_trial_that_was_suggested_early_starts_from_when_it_has_a_slot():
    asked = [turn(0.5), *[suggested(0.5, trial_id) for trial_id in "abcd"]]
    starts = [started(0.75, trial_id="a"), started(1.0, trial_id="b")]
    ends = [
        exited(1.5, trial_id="b"),
        exited(1.75, trial_id="a"),
        started(1.75, trial_id="c"),
        started(2.5, trial_id="d"),
    ]
    timing = watched(*asked, *starts, *ends, num_slots=2)
    assert [timing.of_trial(trial_id).start_s for trial_id in "abcd"] == [0.25, 0.5, 0.25, 0.75]


def test_a_slot_whose_trial_did_not_start_is_free_again():
    asked = [turn(0.5), *[suggested(0.5, trial_id) for trial_id in "ab"]]
    assert (
        watched(*asked, exited(1.0, "failed"), started(1.25, trial_id="b"), num_slots=1)
        .of_trial("b")
        .start_s
        == 0.25
    )


def test_time_between_results_without_training_is_a_wait():
    trial_timing = watched(
        *BEGIN, result(2.0, 1), result(3.5, 2), result(4.0, 3, trained_s=9.0)
    ).of_trial("a")
    assert trial_timing.waits_s == {1: 0.25, 2: 0.5, 3: 0.0}
    assert trial_timing.reported_s == {1: 2.0, 2: 3.5, 3: 4.0}


def test_saving_and_leaving_are_told_apart():
    saved = {"k": "saved", "t": 2.5, "id": "a"}
    timing = watched(*BEGIN, result(2.0, 1), saved, exited(2.75, "stopped"))
    assert (timing.save_s, timing.leave_s, timing.of_trial("a").exit_s) == (0.5, 0.25, 0.25)


def test_if_no_trial_was_stopped_the_quickest_exit_is_the_duration_of_exits():
    other = [started(0.75, trial_id="b"), result(2.0, 1, trial_id="b"), exited(2.5, trial_id="b")]
    assert watched(*BEGIN, result(2.0, 1), exited(5.0), *other).leave_s == 0.5


def test_the_first_result_of_a_later_attempt_has_no_wait():
    timing = watched(
        *BEGIN,
        result(2.0, 1),
        exited(2.5, "stopped"),
        started(7.0, 2),
        result(9.0, 2),
        result(10.5, 3),
    )
    assert timing.of_trial("a").waits_s == {1: 0.25, 3: 0.5}
    assert timing.of_trial("a").worker_s == pytest.approx(0.25 + 1.75 + 3.5)


def test_a_worker_that_a_dead_driver_left_is_counted_until_its_last_word():
    timing = watched(
        *BEGIN, result(2.0, 1), {"k": "restarted", "t": 2.0}, started(3.0, 2), result(5.0, 2)
    )
    assert timing.of_trial("a").worker_s == pytest.approx(0.25 + 1.25 + 2.0)
    assert timing.elapsed_s == 5.0


def test_without_a_journal_nothing_is_known(tmp_path):
    timing = read_timing(tmp_path, is_uniform=True)
    assert timing == Timing()
    assert timing.of_trial("a").waits_s == {}
