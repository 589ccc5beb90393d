"""The security cases, S1 to S9.

A new test of a case is one more line in its list.
"""

from __future__ import annotations

from .case import Case
from .evidence import Suite

ATTACKS = [
    Case(
        "S1",
        "pickles, YAML tags and planted modules in every file of the directory",
        "opening, restoring and analysing execute nothing",
        [
            Suite(
                "end_to_end/test_restore_trials",
                ["nothing_in_the_directory_is_unpickled_or_imported"],
            ),
            Suite(
                "end_to_end/test_restore_alone",
                ["a_planted_declaration_runs_nothing_and_is_refused"],
            ),
            Suite("security/test_planted_code"),
        ],
    ),
    Case(
        "S2",
        "the network",
        "nothing listens",
        [Suite("execution/local/test_processes", ["no_process_listens_on_the_network"])],
    ),
    Case(
        "S3",
        "other users of the machine",
        "nothing is writable for others; temporary directories are private",
        [
            Suite("storage/test_atomic", ["no_file_is_writable_for_others_under_an_empty_umask"]),
            Suite("storage/test_trees", ["permissions_are_kept_but_for_writing_by_others"]),
            Suite(
                "stores/test_checkpoint_downloads",
                ["a_download_directory_that_others_can_enter_is_refused"],
            ),
            Suite("security/test_permissions_and_links"),
        ],
    ),
    Case(
        "S4",
        "experiment names that lead elsewhere or trouble file systems",
        "refused before anything is made; values of configurations never enter a path",
        [
            Suite("end_to_end/test_bad_input", ["a_name_that_is_no_directory_name"]),
            Suite("end_to_end/test_directory", ["golden_listing"]),
            Suite("security/test_names"),
        ],
    ),
    Case(
        "S5",
        "secrets",
        "found in no file, line of output or process argument",
        [Suite("security/test_secrets")],
    ),
    Case(
        "S6",
        "links out of a checkpoint, and links planted where something is going to be written",
        "refused by name, and not followed",
        [
            Suite(
                "storage/test_trees",
                ["a_link_that_leads_out_is_refused_by_name_before_anything_is_copied"],
            ),
            Suite("storage/test_trees", ["a_link_out_behind_a_linked_directory_is_refused"]),
            Suite(
                "storage/test_trees",
                ["a_copy_replaces_a_link_at_its_place_and_does_not_write_through_it"],
            ),
            Suite("storage/test_atomic", ["a_link_at_the_place_is_replaced_and_not_followed"]),
            Suite("storage/test_lock", ["a_link_in_the_place_of_the_lock_is_refused"]),
            Suite(
                "execution/local/test_processes",
                ["a_link_in_place_of_the_output_is_not_followed"],
            ),
            Suite(
                "callbacks/test_json_logger",
                ["a_link_planted_in_the_place_of_a_file_is_not_followed"],
            ),
            Suite("security/test_permissions_and_links"),
        ],
    ),
    Case(
        "S7",
        "escape sequences and formulas in texts and names",
        "the console writes them out, in CSV they are made harmless",
        [
            Suite(
                "callbacks/test_console",
                ["user_text_is_printed_with_control_characters_written_out"],
            ),
            Suite(
                "callbacks/test_console", ["no_line_is_wider_than_the_terminal_and_none_steers_it"]
            ),
            Suite("callbacks/test_csv_logger", ["texts_come_back_as_they_were"]),
            Suite("security/test_imitations"),
        ],
    ),
    Case(
        "S8",
        "oversized and malformed messages from a trial",
        "that trial fails, the driver's memory stays within 2 MiB",
        [
            Suite(
                "execution/local/test_processes",
                ["a_worker_that_violates_the_protocol_is_killed"],
            ),
            Suite(
                "execution/local/test_worker_connection",
                [
                    "a_frame_that_is_too_long_is_refused_before_it_is_complete",
                    "a_deeply_nested_frame_is_refused",
                ],
            ),
            Suite(
                "execution/test_remote_process",
                ["a_violation_of_the_protocol_is_the_trials_failure"],
            ),
            Suite("execution/local/test_driver_memory"),
        ],
    ),
    Case(
        "S9",
        "a result that pretends to be another trial's, or the engine's",
        "who reports follows from the socket, and output is never parsed",
        [
            Suite("execution/test_session", ["a_child_process_of_the_trial_cannot_report_for_it"]),
            Suite(
                "execution/test_metric_conversion",
                ["values_under_names_of_the_engine_are_left_out_and_named_once"],
            ),
            Suite("security/test_imitations"),
        ],
    ),
]
