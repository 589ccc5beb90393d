"""The fault cases, F1 to F32.

A new test of a case is one more line in its list.
"""

from __future__ import annotations

from .case import Case
from .evidence import Bench, Suite

FAULTS = [
    Case(
        "F1",
        "the driver is killed at random instants, its start and its restores included",
        "nothing acknowledged is lost, no row is double or missing, no process is left, every "
        "restore ends with the table of the "
        "uninterrupted run, trials repeat only what has no checkpoint, the first new report "
        "comes within 2 s",
        [
            Bench("kill_driver --kills 100"),
            Bench("digits"),
            Suite(
                "end_to_end/test_restore",
                ["an_experiment_that_was_ended_by_a_signal_ends_as_if_it_had_not_been"],
            ),
            Suite("execution/local/test_process_groups", ["no_process_outlives_a_killed_driver"]),
        ],
    ),
    Case(
        "F2",
        "driver and zygote, the driver's process group, or every process at once are killed, "
        "while trials have loader processes",
        "as F1; the next driver ends a loader that has a separate session",
        [
            Bench("kill_driver --kills 50 --victim driver+zygote"),
            Bench("kill_driver --kills 50 --victim group"),
            Bench("kill_driver --kills 50 --victim container"),
            Suite("execution/local/test_process_groups"),
            Suite("execution/local/test_descendants", repeat=20),
        ],
    ),
    Case(
        "F3",
        "power cut",
        "durability group loses at most the last 50 ms and leaves a prefix, strict loses "
        "nothing; both open without repair",
        [
            Suite(
                "journal/test_reader",
                [
                    "a_power_cut_leaves_a_prefix_that_holds_all_that_was_synced_and_a_kill_all_that_was_flushed"
                ],
            ),
            Suite(
                "journal/test_writer",
                ["strict_loses_nothing_to_any_faults_and_a_power_cut_after_them"],
            ),
            Suite("simulation/test_run"),
            Suite("simulation/test_virtual_disk"),
            Bench("power_cut --cuts 100"),
        ],
    ),
    Case(
        "F4",
        "the journal is cut at every byte, snapshots are cut, emptied, deleted",
        "the state is that of the complete lines; an older snapshot, or none, costs time only",
        [
            Suite(
                "journal/test_reader",
                [
                    "cut_at_every_byte_the_whole_lines_remain_and_the_journal_goes_on",
                    "a_torn_end_is_kept_aside_and_told",
                ],
            ),
            Suite(
                "journal/test_reader",
                [
                    "a_recovery_that_fails_can_be_repeated",
                ],
            ),
            Suite(
                "journal/test_snapshot_files", ["a_damaged_one_is_passed_over_wherever_it_is_cut"]
            ),
            Suite(
                "restore/test_restore_from_snapshot",
                ["a_damaged_snapshot_or_one_that_does_not_fit_only_costs_time"],
            ),
        ],
    ),
    Case(
        "F5",
        "bits are flipped and blocks zeroed in journal, snapshot and manifest",
        "never silently a wrong state: the same state, or an error that names file and byte; "
        "salvage keeps all records before it",
        [
            Suite(
                "journal/test_reader",
                [
                    "no_flipped_bit_is_ever_read_as_something_else",
                    "damage_is_reported_with_the_byte_where_its_line_begins",
                    "a_zeroed_block_in_the_middle_is_damage_and_at_the_end_a_torn_write",
                    "every_missing_segment_but_the_last_shows",
                    "a_cut_or_exchanged_sealed_segment_is_damage",
                ],
            ),
            Suite("journal/test_snapshot_files", ["no_flipped_bit_is_read_in_silence"]),
            Suite("storage/test_checkpoints", ["no_flipped_bit_of_a_manifest_goes_unnoticed"]),
            Suite(
                "end_to_end/test_restore_moved_or_damaged",
                [
                    "a_damaged_journal_is_an_error_and_never_a_fresh_start",
                    "an_unreadable_declaration_is_never_a_fresh_start",
                ],
            ),
            Suite("faults/test_damage"),
        ],
    ),
    Case(
        "F6",
        "a trial dies of SIGSEGV, SIGKILL, os._exit, sys.exit or a BaseException",
        "noticed within 200 ms, reported with signal or code and the last lines of stderr, "
        "retried as configured; exit code 0 is a normal end; other trials lose nothing",
        [
            Suite(
                "end_to_end/test_failures",
                ["every_crash_is_reported_with_its_cause_and_the_other_trials_finish"],
                repeat=20,
            ),
            Suite(
                "end_to_end/test_failures",
                ["every_crash_is_retried_from_the_latest_checkpoint_in_a_new_process"],
            ),
            Suite("end_to_end/test_failures", ["leaving_with_code_zero_is_no_failure"], repeat=20),
            Suite(
                "execution/local/test_processes",
                ["a_signal_is_named", "a_segmentation_fault_shows_where_it_happened"],
            ),
            Suite(
                "execution/local/test_processes",
                ["a_process_that_vanishes_is_reported_with_exit_code_and_stderr"],
            ),
            Bench("deaths"),
        ],
    ),
    Case(
        "F7",
        "an exception that cannot be pickled, or whose methods raise",
        "the trial fails with the name of the type and the traceback as text; the driver "
        "receives strings only",
        [
            Suite(
                "execution/local/test_processes",
                [
                    "an_exception_that_cannot_be_formatted_or_pickled_fails_only_its_trial",
                    "an_exception_arrives_as_text",
                ],
            ),
            Suite("execution/test_failures"),
        ],
    ),
    Case(
        "F8",
        "a trial hangs, spins in C, is stopped, or ignores its stop",
        "killed within a second of report_timeout_s and retried, without one a warning; a "
        "trial that ignores its stop is killed after the grace period; others keep their "
        "pace; fit ends",
        [
            Suite("end_to_end/test_failures", ["a_trial_that_never_reports_is_killed_too"]),
            Suite("execution/local/test_processes", ["a_kill_ends_any_worker"]),
            Suite("core/test_experiment", ["a_silent_worker_is_killed_and_its_trial_tried_again"]),
            Suite(
                "core/test_experiment",
                ["a_worker_that_does_not_leave_is_killed_and_its_trial_still_ends_well"],
            ),
            Suite("end_to_end/test_hanging_trials"),
            Suite("core/test_timeouts"),
            Bench("pace --rounds 5"),
        ],
    ),
    Case(
        "F9",
        "every kind of value is reported",
        "each becomes what the documentation says, none ends the experiment, every line of "
        "JSON is strict",
        [
            Suite("execution/test_metric_conversion"),
            Suite("storage/test_strict_json"),
            Suite("callbacks/test_json_logger", ["every_value_becomes_strict_json"]),
            Suite(
                "end_to_end/test_bad_results", ["metrics_that_cannot_be_reported_fail_their_trial"]
            ),
            Suite("end_to_end/test_odd_values"),
        ],
    ),
    Case(
        "F10",
        "no report, an empty one, one without the metric, one after the end, time that runs "
        "backwards",
        "the row is kept, the trial flagged once, nothing raised in the driver, repetitions "
        "change nothing",
        [
            Suite(
                "end_to_end/test_bad_results",
                [
                    "ten_results_without_the_metric_log_one_warning",
                    "a_metric_that_trials_never_report_ends_the_experiment_and_a_restore_names_it_rightly",
                ],
            ),
            Suite("execution/test_session", ["reporting_after_the_end_is_an_error"]),
            Suite("contracts/test_schedulers"),
            Suite("end_to_end/test_odd_values"),
        ],
    ),
    Case(
        "F11",
        "keys appear, vanish and change their order, across restores too",
        "the CSV read back is the table, cell by cell",
        [
            Suite("callbacks/test_csv_logger", ["the_table_read_back_equals_the_rows"]),
            Suite(
                "callbacks/test_csv_logger",
                ["a_new_driver_reads_the_columns_back_and_puts_no_value_under_a_wrong_one"],
            ),
            Suite(
                "callbacks/test_csv_logger",
                ["a_metric_that_turns_up_late_gets_a_column_and_earlier_rows_an_empty_cell"],
            ),
            Suite("end_to_end/test_drifting_keys"),
        ],
    ),
    Case(
        "F12",
        "the disk is full at the k-th write, for every k, and has room again later",
        "journal: trials wait and continue within 5 s, nothing is lost; checkpoint: only it "
        "fails; log files: complete at the end; no success is reported after a failure",
        [
            Suite("journal/test_writer", ["whichever_call_fails_nothing_is_lost_or_double"]),
            Suite(
                "journal/test_writer",
                ["a_short_write_is_cut_back_at_once_and_if_that_fails_before_the_next_write"],
            ),
            Suite(
                "storage/test_checkpoints",
                ["whichever_call_fails_the_commit_raises_and_leaves_nothing_or_gets_by"],
            ),
            Suite(
                "callbacks/test_json_logger",
                ["a_full_disk_loses_and_doubles_nothing_once_there_is_space_again"],
            ),
            Suite("faults/test_every_call_fails"),
            Suite("faults/test_storage_fails"),
            Suite("faults/test_journaling"),
            Suite("faults/test_log_files"),
        ],
    ),
    Case(
        "F13",
        "the storage is read-only at the start, or becomes so",
        "start: raises before any trial runs; later: waits as for a full disk, then ends with "
        "an error and nothing lost",
        [
            Suite("journal/test_writer", ["a_read_only_place_is_refused_at_once"]),
            Suite(
                "end_to_end/test_bad_input",
                [
                    "storage_on_a_read_only_file_system",
                    "storage_where_a_file_is_in_the_way",
                ],
            ),
            Suite("faults/test_storage_fails"),
        ],
    ),
    Case(
        "F14",
        "a write or a sync fails with an input/output error",
        "the file is not synced again, what it was to hold goes into a new segment; if that "
        "fails, a stop with an error; strict loses "
        "nothing",
        [
            Suite(
                "journal/test_writer",
                [
                    "a_failed_sync_of_the_thread_is_mended_at_the_next_flush",
                    "a_sync_of_the_thread_that_fails_while_the_driver_syncs_is_mended_as_well",
                    "a_failed_write_followed_by_another_fault_loses_and_doubles_nothing",
                    "faults_upon_faults_lose_and_double_nothing",
                    "strict_loses_nothing_to_any_faults_and_a_power_cut_after_them",
                ],
            ),
            Suite("faults/test_every_call_fails"),
            Suite("simulation/test_run"),
        ],
    ),
    Case(
        "F15",
        "SIGINT once and twice, SIGTERM, SIGHUP, SIGTERM followed by SIGKILL",
        "the first lets trials save, the second ends within a second; exit code 130, 143, "
        "129; nothing lost, no process left, restorable",
        [
            Suite("end_to_end/test_interrupts"),
            Suite(
                "end_to_end/test_interrupts",
                [
                    "nothing_acknowledged_is_lost_no_process_is_left_and_the_restore_continues",
                    "after_one_ctrl_c_trials_save_fit_returns_and_the_script_goes_on_to_its_end",
                    "another_signal_ends_the_script_where_it_is",
                    "a_second_signal_kills_trials_at_once",
                ],
                repeat=20,
            ),
            Suite(
                "end_to_end/test_restore",
                ["an_experiment_that_was_ended_by_a_signal_ends_as_if_it_had_not_been"],
            ),
        ],
    ),
    Case(
        "F16",
        "a second driver, two restores at once, an owner that is killed or stopped",
        "exactly one wins, the other gets an error that names the owner, a killed owner does "
        "not block the next, a stopped one is replaced only on request",
        [
            Suite("storage/test_lock"),
            Suite("storage/test_lock", ["of_many_that_come_at_once_exactly_one_wins"], repeat=20),
            Suite("faults/test_two_drivers"),
        ],
    ),
    Case(
        "F17",
        "a checkpoint is deleted, emptied or cut behind the engine's back",
        "the trial continues from the previous one, or from the start, and that is recorded; "
        "no trial ends in ERROR",
        [
            Suite(
                "end_to_end/test_restore_moved_or_damaged",
                ["a_damaged_newest_checkpoint_gives_way_to_the_one_before_it"],
            ),
            Suite(
                "storage/test_checkpoints",
                ["the_newest_intact_checkpoint_is_found_and_each_damage_told"],
            ),
            Suite(
                "driver/test_persist_then_act",
                ["a_worker_whose_checkpoint_is_damaged_is_not_started_from_it"],
            ),
            Suite(
                "end_to_end/test_exploits",
                ["a_checkpoint_that_is_harmed_before_an_exploit_is_replaced_by_the_one_before_it"],
            ),
            Suite("core/test_exploits"),
        ],
    ),
    Case(
        "F18",
        "checkpoints are retired under pressure: one kept, pauses, crashes",
        "none that is needed is deleted, at most one more than configured stays, nothing "
        "unfinished is left after a restore",
        [
            Suite("core/test_checkpoints"),
            Suite("guides/test_checkpoint_rules"),
            Suite(
                "storage/test_checkpoints",
                [
                    "a_sweep_removes_the_unfinished_and_the_unrecorded_only",
                    "deleting_takes_the_name_away_first",
                ],
            ),
            Suite("faults/test_leftovers"),
            Suite("simulation/test_run"),
            Suite("core/test_exploits"),
        ],
    ),
    Case(
        "F19",
        "the clock jumps by hours and days",
        "order depends on sequence numbers only, durations are never negative, budgets hold",
        [
            Suite(
                "journal/test_snapshot_files",
                ["the_name_tells_which_is_the_newest_and_not_the_clock"],
            ),
            Suite("driver/test_persist_then_act", ["the_time_of_earlier_sessions_counts"]),
            Suite("end_to_end/test_clock_jumps"),
        ],
    ),
    Case(
        "F20",
        "a configuration holds a lock, a lambda, an object, NaN, 20 MB of numbers",
        "a lock is an error that names its path before any directory is created; large arrays"
        " are stored once; other objects are stored as references",
        [
            Suite(
                "end_to_end/test_bad_input",
                ["what_cannot_be_carried_to_a_worker_names_the_variable"],
            ),
            Suite("end_to_end/test_objects_in_configs"),
            Suite("storage/test_config_codec"),
            Suite("storage/test_array_store"),
        ],
    ),
    Case(
        "F21",
        "a restore with another trainable, space or scheduler, or with code missing",
        "differences are reported, missing parts raise an error before anything is changed, "
        "permitted changes apply",
        [
            Suite("end_to_end/test_restore"),
            Suite("end_to_end/test_restore_alone"),
            Suite("end_to_end/test_restore_changes"),
        ],
    ),
    Case(
        "F22",
        "the driver is killed after every single event",
        "decisions and the final table are those of the uninterrupted run with the same order "
        "of events",
        [
            Suite("restore/test_crash_equivalence"),
            Suite("restore/test_simulated_journals"),
            Suite("restore/test_restore_from_journal"),
            Suite("restore/test_restore_from_snapshot"),
        ],
    ),
    Case(
        "F23",
        "a trial with loader processes and threads is stopped or ends",
        "its whole process group is gone within a second and before its slot is used again",
        [
            Suite(
                "execution/local/test_processes",
                ["an_exit_comes_when_all_descendants_are_gone"],
                repeat=20,
            ),
            Suite(
                "execution/local/test_processes",
                ["a_kill_ends_any_worker", "a_daemon_ends_with_its_trial"],
            ),
        ],
    ),
    Case(
        "F24",
        "heavy loads: 1,000 reports a second, 10,000 trials, 20 MB configurations, slow syncs",
        "saving the state takes at most 5 % of the time, log files not counted; no pause is "
        "longer than 250 ms",
        [Bench("persistence_share")],
    ),
    Case(
        "F25",
        "a logger, callback, stopper or searcher raises",
        "a callback is switched off with one notice; for the others the experiment ends "
        "cleanly and can be continued; nothing is lost",
        [
            Suite(
                "end_to_end/test_callbacks",
                ["a_callback_that_raises_is_disabled_with_one_warning_and_the_others_go_on"],
            ),
            Suite(
                "end_to_end/test_failures",
                ["a_defect_outside_the_trials_is_raised_with_the_way_to_go_on"],
            ),
            Suite(
                "end_to_end/test_failures",
                ["after_a_defect_outside_the_trials_the_experiment_goes_on"],
            ),
            Suite(
                "callbacks/test_callback_list",
                ["one_that_raises_is_reported_once_and_never_called_again"],
            ),
            Suite(
                "callbacks/test_json_logger",
                ["a_defect_met_in_the_background_switches_this_logger_off_only"],
            ),
            Suite("end_to_end/test_defective_parts"),
        ],
    ),
    Case(
        "F26",
        "a directory of an earlier release, records of a later one",
        "the first opens and finishes, the second is refused with the version to use",
        [
            Suite("journal/test_reader", ["a_segment_of_a_newer_version_is_refused"]),
            Suite("journal/test_snapshot_files", ["one_of_a_newer_version_is_refused"]),
            Suite("storage/test_checkpoints", ["a_manifest_of_a_newer_version_is_refused"]),
            Suite("journal/test_records", ["what_this_version_does_not_know_is_refused"]),
            Suite("end_to_end/test_golden"),
        ],
    ),
    Case(
        "F27",
        "a long journal: 1,000 and 10,000 trials of 100 results",
        "restored within 1 s and 2 s, with a driver below 300 MB",
        [Bench("long_journal --trials 1000"), Bench("long_journal --trials 10000")],
    ),
    Case(
        "F28",
        "the journal or its newest segment is removed, emptied, zeroed or overwritten, before the "
        "first snapshot and after, or cut before its last snapshot; a crash or a power cut may "
        "have happened between any two steps before",
        'a restore, resume="auto" and prune raise an error that names what is missing, what '
        "is left and how to salvage it, and change nothing; doctor reports the same; salvage "
        "moves aside files that contradict the journal; no crash and no power cut leads to "
        "such an error",
        [
            Suite("faults/test_incomplete_journal"),
            Suite(
                "storage/test_lock",
                [
                    "a_segment_is_noted_and_stays_noted",
                    "of_a_lock_file_that_is_being_written_the_new_line_counts",
                ],
            ),
            Suite("end_to_end/test_golden"),
            Suite("simulation/test_run"),
        ],
    ),
    Case(
        "F29",
        "the directory or its journal is deleted, moved, replaced or unmounted while the "
        "experiment runs",
        "nothing more is acknowledged, trials exit, the run ends with an error that says what"
        " happened and what can be restored; nothing is written to a directory that takes its"
        " place; a moved directory is restored from its new place",
        [
            Suite("faults/test_lost_storage"),
            Suite(
                "callbacks/test_log_records",
                ["where_the_directory_of_the_experiment_is_gone_none_is_made_in_its_place"],
            ),
        ],
    ),
    Case(
        "F30",
        "the lock file is deleted or replaced while the experiment runs",
        "the driver stops as in F29 and the experiment can be restored; a second driver is "
        "refused, since the journal is held, too",
        [
            Suite(
                "faults/test_lost_storage",
                [
                    "the_run_ends_with_what_has_happened_and_trials_leave_first",
                    "a_second_driver_finds_the_first_though_the_lock_is_gone",
                    "the_segment_that_is_written_is_held_and_no_other",
                    "a_forked_child_does_not_keep_the_segment_when_its_parent_dies",
                ],
            ),
            Suite("faults/test_two_drivers"),
        ],
    ),
    Case(
        "F31",
        "several drivers take an experiment in an object store over from each other, at any step "
        "of each, with listings that are behind",
        "nothing that a driver was told is stored is lost, the journal is one line, a driver "
        "that was replaced stops; a driver that gives a sign of life is not replaced",
        [
            Suite("stores/test_remote_lock"),
            Suite("storage/test_racing_drivers"),
            Bench("racing_drivers --rounds 100"),
        ],
    ),
    Case(
        "F32",
        "the object store answers 503, answers in part or not at all, is away for a while, "
        "carries a request out and loses the answer, or refuses the credentials",
        "each call is retried for the time set and then names the store and the cause, nothing "
        "is created twice or overwritten, missing rights are told at once",
        [Suite("stores/test_object_store_faults"), Suite("stores/test_object_store")],
    ),
]
