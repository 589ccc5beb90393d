"""The fault cases of clusters, F33 to F41.

A new test of a case is one more line in its list.
"""

from __future__ import annotations

from .case import Case
from .evidence import Bench, Suite

_NOTHING_LOST = "nothing acknowledged is lost, no row is double or missing"

CLUSTER_FAULTS = [
    Case(
        "F33",
        "nodes of a cluster are killed at random instants, and others join",
        f"{_NOTHING_LOST}, the table is that of one machine, also of trials that are paused and "
        "take over each other's checkpoints, and 25 s after the end no process is left",
        [
            Bench("kill_cluster --kills 50"),
            Bench("kill_cluster --kills 50 --scheduler pbt"),
            Suite(
                "end_to_end/test_cluster",
                [
                    "trials_of_a_node_that_dies_continue_on_others",
                    "results_are_those_of_one_machine_and_no_process_is_left",
                    "a_population_exploits_across_nodes",
                ],
            ),
            Suite(
                "nodes/test_node_events",
                ["trials_of_a_node_that_has_left_continue_elsewhere_from_their_checkpoints"],
            ),
            Suite("simulation/test_run"),
        ],
    ),
    Case(
        "F34",
        "the driver of a cluster is killed at random instants, its start and its restores included",
        f"{_NOTHING_LOST}, every restore ends with the table of one machine, and no process of "
        "nodes is left after 25 s",
        [
            Bench("kill_cluster --kills 100 --victim driver"),
            Suite(
                "end_to_end/test_cluster",
                ["a_driver_that_is_killed_takes_all_with_it_and_is_restored"],
            ),
            Suite(
                "cluster/test_shared_directory",
                ["nodes_of_a_dead_driver_are_given_time_to_end_their_trials"],
            ),
            Suite(
                "cluster/test_node_host",
                ["a_host_that_hears_nothing_of_its_driver_kills_its_trials_and_ends"],
            ),
        ],
    ),
    Case(
        "F35",
        "on a node, a trial, the zygote, the host of trials or the agent dies or hangs",
        f"{_NOTHING_LOST}; what has died is replaced within seconds, and its trials continue from "
        "their checkpoints; a node whose host cannot be started is not used",
        [
            Bench("kill_cluster --kills 20 --victim host"),
            Suite(
                "end_to_end/test_cluster",
                ["an_agent_replaces_its_host", "a_host_that_hangs_is_replaced"],
            ),
            Suite(
                "end_to_end/test_cluster_faults",
                [
                    "trials_of_a_zygote_that_dies_are_started_again_on_the_same_node",
                    "a_trial_that_is_killed_is_tried_again_as_on_one_machine",
                    "a_trial_that_ends_every_node_it_runs_on_is_given_up_and_the_others_finish",
                ],
            ),
            Suite("cluster/test_agent"),
            Suite(
                "cluster/test_node_host",
                [
                    "trials_are_lost_when_their_zygote_is_killed_and_others_run_after_it",
                    "a_host_that_is_killed_takes_its_trials_with_it_and_is_replaced",
                    "a_host_that_was_stopped_for_longer_than_its_lease_does_not_go_on",
                ],
            ),
        ],
    ),
    Case(
        "F36",
        "the driver's connection to the cluster dies, or the cluster is away for a while, or for "
        "good",
        f"{_NOTHING_LOST}; the cluster is looked for, and after the time set the experiment ends "
        "with an error and can be restored",
        [
            Bench("kill_cluster --kills 20 --victim gateway"),
            Suite(
                "end_to_end/test_cluster",
                [
                    "a_gateway_that_dies_is_replaced",
                    "a_cluster_that_comes_back_is_found_again",
                    "a_cluster_that_stays_away_ends_the_experiment_which_can_be_restored",
                    "a_cluster_that_cannot_be_reached_is_an_error_and_leaves_nothing",
                ],
            ),
            Suite("cluster/test_gateway"),
        ],
    ),
    Case(
        "F37",
        "the network between driver and nodes loses, doubles, reorders and delays, is cut for "
        "longer and shorter than the lease, or works in one direction only",
        "each message arrives once and in order, a short cut costs nothing, and no trial ever runs "
        "twice at the same time",
        [
            Suite("cluster/test_link"),
            Suite(
                "end_to_end/test_cluster",
                [
                    "a_short_cut_of_the_network_costs_nothing",
                    "trials_of_a_node_that_is_cut_off_continue_on_others",
                    "a_node_that_was_cut_off_takes_part_again",
                    "a_network_that_loses_doubles_and_reorders_changes_nothing",
                ],
            ),
            Suite(
                "end_to_end/test_cluster_faults",
                [
                    "a_node_that_is_heard_no_more_ends_its_trials_though_it_hears_its_driver",
                    "a_cut_that_is_longer_than_the_lease_and_too_short_to_be_noticed_moves_the_trials",
                ],
            ),
            Suite(
                "cluster/test_cluster_executor",
                [
                    "what_a_node_says_after_it_has_left_is_dropped",
                    "what_a_node_says_about_processes_elsewhere_is_dropped",
                    "after_a_sleep_of_the_machine_what_has_arrived_is_read_first",
                ],
            ),
        ],
    ),
    Case(
        "F38",
        "a node announces its end, has another version, cannot load the code, has a wrong clock, "
        "or lacks what a trial asks for",
        "trials save and move in time; a node that does not fit is named and not used; what no "
        "node has is waited for, and then an error",
        [
            Suite(
                "end_to_end/test_cluster",
                [
                    "trials_move_from_a_node_that_announces_its_end",
                    "a_host_that_is_told_to_end_has_its_trials_moved",
                    "nodes_are_added_for_what_waits",
                ],
            ),
            Suite(
                "end_to_end/test_cluster_faults",
                [
                    "a_node_of_another_version_is_not_used_and_both_versions_are_told",
                    "where_no_node_can_be_used_the_experiment_ends_and_can_be_restored",
                    "a_node_that_alone_cannot_load_the_code_is_not_used",
                    "what_no_node_has_is_waited_for_while_nodes_may_come",
                    "what_no_node_has_is_an_error_after_a_while",
                    "the_clock_of_a_node_may_be_wrong",
                ],
            ),
            Suite("nodes/test_node_events"),
        ],
    ),
    Case(
        "F39",
        "nodes share nothing but an object store, which fails or changes a checkpoint, their disks "
        "are full, or another driver takes over",
        f"{_NOTHING_LOST}; requests are tried again, a damaged checkpoint gives way to the one "
        "before, a full disk costs a checkpoint, a driver that was replaced ends its nodes",
        [
            Suite("end_to_end/test_stored_cluster"),
            Suite("end_to_end/test_stored_cluster_faults"),
            Suite("cluster/test_stored_trials"),
        ],
    ),
    Case(
        "F40",
        "on a Dask cluster, workers with and without their nannies, the scheduler, the gateway and "
        "the driver are killed",
        f"{_NOTHING_LOST}, the table is that of one machine, and 25 s after the end of a driver no "
        "process of trials is left",
        [
            Bench("kill_cluster --engine dask --kills 10"),
            Bench("kill_cluster --engine dask --kills 10 --victim worker"),
            Bench("kill_cluster --engine dask --kills 5 --victim gateway"),
            Bench("kill_cluster --engine dask --kills 5 --victim driver"),
            Bench("kill_cluster --engine dask --kills 2 --victim scheduler"),
            Suite("cluster/test_dask_engine"),
        ],
    ),
    Case(
        "F41",
        "on a Ray cluster, raylets, the head's control store, the gateway and the driver are "
        "killed",
        "as F40",
        [
            Bench("kill_cluster --engine ray --kills 10"),
            Bench("kill_cluster --engine ray --kills 5 --victim gateway"),
            Bench("kill_cluster --engine ray --kills 5 --victim driver"),
            Bench("kill_cluster --engine ray --kills 2 --victim scheduler"),
            Suite("cluster/test_ray_engine"),
        ],
    ),
]
