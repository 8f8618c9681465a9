//! What a store cannot do: the one list of the tests that are not played on it, and why. A test that is
//! named here is left out by what runs it, which says so.

use std::io::Write;

/// These tests are not played on these stores.
pub struct Cannot {
    /// Names of functions, or of behaviours in the table of all languages (with `rust::` before it, in
    /// that language alone); a macro's name is that of all tests that it makes, and a file's that of all
    /// in it that are written for one store.
    pub tests: &'static [&'static str],
    pub on: &'static [&'static str],
    pub why: Why,
}

pub enum Why {
    /// It cannot be there, as `docs/explained/promises.md` tells.
    CannotBe(&'static str),
    /// It might be, but what the test looks at, or what it brings about, is of one store alone.
    SeenOnly(&'static str),
}

use Why::{CannotBe, SeenOnly};

const ALL_BUT_REDIS: &[&str] = &["file", "memory", "postgres", "mysql", "zookeeper", "etcd"];

/// What is true of each play of several drivers, each of which is a process, and of the shell's.
pub const ONE_PROCESS: &str = "A store in memory belongs to one process. No other process sees \
                               it, and none can be stopped or killed while another one continues.";

const FULL: &str = "Each server has words of its own for a full disk. A file's is tried in tests/locking, an etcd's \
                    alarm in tests/faults/refused.rs, and a ZooKeeper whose disk is full ends by itself.";

pub const CANNOT: &[Cannot] = &[
    Cannot {
        tests: &[
            "c7_a_pool_that_is_used_up",
            "c9_renewal_goes_on_while_every_connection_of_the_pool_waits",
        ],
        on: &["zookeeper"],
        why: CannotBe(
            "A ZooKeeper's client has one connection for all of its threads, and so no pool that could be used up.",
        ),
    },
    Cannot {
        tests: &["c6_a_ghost_of_a_closed_client_is_gone_after_one_ttl"],
        on: &["zookeeper"],
        why: CannotBe(
            "A ZooKeeper rejects requests that arrive after the client has closed its session.",
        ),
    },
    Cannot {
        tests: &["c3_an_extension_that_lands_late_never_shortens_a_later_one"],
        on: &["zookeeper"],
        why: CannotBe(
            "A ZooKeeper closes a connection when its session moves to another one. So no delayed request \
             arrives after a later one.",
        ),
    },
    Cannot {
        tests: &[
            "wait_a_spinning_waiter_notices_that_another_library_has_let_go",
            "a_foreign_key_that_can_expire_is_a_busy_lock",
            "a_foreign_key_without_a_ttl_is_refused",
            "c9_a_key_that_was_deleted_by_hand_is_told_by_the_next_renewal",
            "c7_a_wait_that_hardly_pauses_ends_by_its_time_and_by_its_check",
            "c1_control_a_plain_delete_lets_two_in",
        ],
        on: ALL_BUT_REDIS,
        why: CannotBe("Only on a Redis do other libraries keep their locks under the same names."),
    },
    Cannot {
        tests: &[
            "unknown_a_release_that_nobody_confirms",
            "a_try_takes_no_longer_than_its_lock_lets_a_silent_store_take_and_is_not_busy_then",
            "on_each_server",
            "on_each_own_server",
        ],
        on: &["file", "memory"],
        why: CannotBe(
            "A file and a store in memory have no server that could stop answering, and no network.",
        ),
    },
    Cannot {
        tests: &[
            "on_each_shared_store",
            "on_each_shared_deployment",
            "c3_a_process_that_was_stopped_sees_its_leases_invalid",
            "c14_a_process_that_just_ends_leaves_its_locks_to_their_ttl",
            "a_lease_goes_from_one_process_to_another",
            "c10_stopped_waiters_hold_a_lock_up_for_one_window_each",
            "c10_three_stopped_waiters_hold_a_lock_up_for_three_windows_of_a_second",
            "a_waiter_that_dies_with_its_turn_costs_one_claim_window",
            "a_waiter_that_stood_still_in_its_turn_knows_and_waits_on",
            "a_waiter_that_was_killed_before_its_turn_costs_nothing",
            "a_fork_while_threads_wait_is_told_to_the_child_and_disturbs_nobody",
            "processes_have_their_turns_in_the_order_of_coming",
        ],
        on: &["memory"],
        why: CannotBe(ONE_PROCESS),
    },
    Cannot {
        tests: &["fork_the_child_goes_on_with_client_and_lock_the_parent_loses_nothing"],
        on: &["memory"],
        why: CannotBe(
            "A forked child has a copy of its parent's memory, in which locks would exclude no other \
             process: it gets an error.",
        ),
    },
    Cannot {
        tests: &[
            "c2_turns_end_when_their_server_is_found_to_have_forgotten_the_lock",
            "c5_whatever_is_done_with_a_lease_that_has_vanished_says_so_and_leaves_the_next_alone",
            "c9_a_lease_that_vanishes_is_told_by_the_next_renewal",
            "c9_one_of_many_leases_that_vanishes_is_told_and_the_others_stay",
            "c10_a_lock_that_was_deleted_keeps_nobody_waiting_for_two_seconds",
            "c10_a_queue_that_was_deleted_keeps_nobody_waiting_for_two_seconds",
        ],
        on: &["memory"],
        why: CannotBe(
            "Nothing but its clients reaches a store in memory: no lock and no queue vanishes there.",
        ),
    },
    Cannot {
        tests: &["rust::fork_the_child_goes_on_with_client_and_lock_the_parent_loses_nothing"],
        on: &["file"],
        why: CannotBe("In Rust no child opens an SQLite file once its parent has."),
    },
    Cannot {
        tests: &["c9_a_lease_whose_etcd_lease_was_revoked_is_told_by_the_next_renewal"],
        on: &["redis", "file", "memory", "postgres", "mysql", "zookeeper"],
        why: CannotBe("Only an etcd has leases of its own, which an operator can revoke."),
    },
    Cannot {
        tests: &["on_each_queue"],
        on: &["quorum"],
        why: CannotBe("A quorum has no queue across its servers."),
    },
    Cannot {
        tests: &["a_waiter_that_was_killed_before_its_turn_costs_nothing"],
        on: &["file", "mysql", "zookeeper"],
        why: CannotBe(
            "A file, a MySQL and a ZooKeeper do not see at once that a waiter was killed: waiters pass \
             over it when its place in the queue has expired.",
        ),
    },
    Cannot {
        tests: &[
            "a_waiter_that_dies_with_its_turn_costs_one_claim_window",
            "a_lease_that_was_handed_over_has_its_window_first_and_soon_the_whole_ttl",
            "the_shortest_claim_window_is_long_enough_to_claim_in",
        ],
        on: &["file", "mysql"],
        why: CannotBe(
            "On a file and on a MySQL no release hands a lock over: a waiter acquires it, for the whole \
             ttl at once.",
        ),
    },
    Cannot {
        tests: &["a_grant_is_renewed_over_many_turns_and_each_has_its_own_time"],
        on: &["file", "zookeeper"],
        why: CannotBe(
            "On a file and on a ZooKeeper a grant has one fence, so the threads of a process do not pass \
             a lock on among themselves.",
        ),
    },
    Cannot {
        tests: &["c10_a_queue_that_was_deleted_keeps_nobody_waiting_for_two_seconds"],
        on: &["etcd"],
        why: CannotBe(
            "On an etcd the place of a waiter is the key that becomes its lock: who deletes a queue deletes locks.",
        ),
    },
    Cannot {
        tests: &[
            "tests/faults/refused.rs",
            "tests/queue/servers.rs",
            "c13_a_server_that_is_loading_is_tried_again",
            "c13_a_server_that_is_busy_with_a_script_is_tried_again",
            "c13_a_server_that_cannot_save_is_tried_again",
            "c13_a_server_that_misses_its_replicas_is_tried_again",
            "c13_a_replica_that_misses_its_master_is_tried_again",
            "c13_a_cluster_without_its_slots_is_tried_again",
            "c3_the_time_that_a_server_stood_still_is_no_validity",
            "c6_flushed_scripts_are_loaded_again",
            "c6_killed_connections_cost_a_retry",
            "a_wait_outlasts_a_restart_of_the_server",
            "c9_a_flushed_server_is_a_lost_lease_and_the_next_fence_is_larger",
            "c10_a_server_that_was_flushed_keeps_nobody_waiting_for_two_seconds",
            "c2_fence_grows_when_the_server_forgets_all_while_held",
            "c2_fence_grows_when_the_server_comes_back_empty",
            "c10_any_number_of_dead_waiters_costs_next_to_nothing",
            "c10_thousands_of_dead_waiters_are_passed_over_at_once",
        ],
        on: ALL_BUT_REDIS,
        why: SeenOnly(
            "A Redis is told to do so: to forget all, to refuse a command, to pause, to load, to close connections. \
             What others refuse is in tests/servers.",
        ),
    },
    Cannot {
        tests: &[
            "looking_costs_a_process_one_command_a_second",
            "there_is_one_wake_up_connection_a_client_and_none_without_contention",
            "a_turn_that_is_given_back_at_once_costs_two_commands_and_no_claim",
            "threads_that_come_again_while_nobody_else_waits_cost_a_look_and_no_more",
            "a_thousand_who_wait_idly_cost_next_to_nothing_and_all_get_their_turn",
            "threads_have_their_turns_in_the_order_of_coming_without_a_command",
            "locks_of_other_terms_pass_no_turns",
            "c10_six_hundred_names_and_two_hundred_of_one_wait_with_few_threads",
            "c6_a_take_whose_reply_was_lost_is_given_and_made_anew",
            "c6_a_take_that_lands_after_its_call_gave_up_is_given_again",
            "c6_the_giving_of_a_ghost_never_touches_another_holder",
            "c6_a_wait_with_many_unknown_outcomes_does_not_give_all_of_them_for_ever",
            "a_try_is_one_command_and_a_cycle_exactly_two",
            "c9_renewal_comes_at_a_third_of_the_ttl_and_stops_with_the_release",
            "c9_renewal_stops_with_let_expire",
            "one_keeper_renews_two_thousand_leases_and_what_piles_up_goes_in_pipelines",
        ],
        on: ALL_BUT_REDIS,
        why: SeenOnly(
            "The commands that a Redis was sent are counted, one by one, as it shows them. What others are sent \
             is counted in tests/steps and in the unit tests of each store.",
        ),
    },
    Cannot {
        tests: &[
            "tests/locking/letting_go.rs",
            "tests/locking/letting_go_faults.rs",
            "c14_dropping_a_lease_waits_shortly_for_a_connection_and_leaves_the_rest_to_the_keeper",
            "c14_dropping_a_lease_waits_shortly_for_connecting",
        ],
        on: ALL_BUT_REDIS,
        why: CannotBe(
            "Only on a Redis and on a quorum is a dropped lease released without waiting for the reply.",
        ),
    },
    Cannot {
        tests: &[
            "c1_a_waiter_that_stood_still_in_its_turn_knows_although_the_clocks_have_drifted",
            "what_is_left_of_a_block_is_not_used_once_its_grant_is_lost",
            "c2_a_fence_is_kept_for_as_long_as_the_url_says_and_grows_after_that",
            "c2_fence_grows_when_the_servers_clock_was_set_back",
            "c2_fence_at_the_end_of_its_range_is_refused_and_nothing_touched",
            "c2_side_keys_live_25_hours_and_nothing_else_is_left",
        ],
        on: ALL_BUT_REDIS,
        why: SeenOnly(
            "A Redis's clock, and what its keys say of fences, is set by hand. The others' rows and keys are tried \
             in tests/servers and in the unit tests of each store.",
        ),
    },
    Cannot {
        tests: &["nobody_is_overtaken_by_more_than_one_turn_of_each_other"],
        on: ALL_BUT_REDIS,
        why: SeenOnly(
            "It takes a Redis far less time to be asked than a turn takes here. On all stores those are judged who \
             stand in line, by c10_who_waits_in_a_crowd_sees_one_turn_of_each_other_whatever_the_turns_take.",
        ),
    },
    Cannot {
        tests: &["c13_a_redis_that_cannot_write_its_file_says_that_its_disk_is_full"],
        on: ALL_BUT_REDIS,
        why: SeenOnly(FULL),
    },
    Cannot {
        tests: &["c13_a_postgresql_whose_disk_is_full_is_told_as_that"],
        on: &["redis", "file", "memory", "mysql", "zookeeper", "etcd"],
        why: SeenOnly(FULL),
    },
    Cannot {
        tests: &["c13_a_mysql_whose_disk_is_full_is_told_as_that"],
        on: &["redis", "file", "memory", "postgres", "zookeeper", "etcd"],
        why: SeenOnly(FULL),
    },
    Cannot {
        tests: &["c10_a_process_far_from_its_mysql_sees_one_turn_of_a_near_one"],
        on: &["redis", "file", "memory", "postgres", "zookeeper", "etcd"],
        why: SeenOnly(
            "Who waits at a MySQL asks again and again, and one that is nearer asks sooner. A file is never far, and \
             the others say whose turn it is.",
        ),
    },
    Cannot {
        tests: &[
            "tests/faults/floods.rs",
            "tests/faults/process.rs",
            "tests/faults/ways.rs",
            "c7_no_time_and_more_than_an_hour_are_no_io_timeout",
            "c7_a_server_with_a_password_that_stands_still",
            "c7_connecting_that_leads_nowhere",
            "c7_connecting_that_is_refused",
            "c7_a_name_server_that_does_not_answer",
            "a_server_that_was_never_there_ends_a_wait_after_the_io_timeout",
            "c6_what_a_long_outage_leaves_to_give_does_not_pile_up_in_every_try",
            "c9_many_leases_that_end_unrenewed_do_not_keep_one_from_being_renewed",
            "c7_futures_end_in_time_however_many_are_not_answered",
            "futures_go_on_beside_those_that_are_not_answered",
            "a_future_outlasts_a_lost_reply",
            "a_wait_that_spins_asks_less_and_less_often",
            "a_last_try_that_the_limit_cuts_short_is_a_timeout_all_the_same",
            "c13_an_error_names_the_lock_and_whose_bound_was_broken",
        ],
        on: ALL_BUT_REDIS,
        why: SeenOnly(
            "What is tried is above all stores, and the same for each: options, waits, futures, sockets, names, \
             signals, descriptors, TLS. It is tried on a Redis, and each server's own TLS in tests/servers.",
        ),
    },
];

/// Why a test is not played on a store.
pub fn why_not(test: &str, kind: &str) -> Option<&'static str> {
    let is_it = |it: &&Cannot| it.tests.contains(&test) && it.on.contains(&kind);
    let cannot = CANNOT.iter().find(is_it)?;
    let (CannotBe(why) | SeenOnly(why)) = cannot.why;
    Some(why)
}

/// Whether it is, which is told past what keeps the words of tests that pass.
pub fn is_left_out(test: &str, kind: &str) -> bool {
    let why = why_not(test, kind);
    if let Some(why) = why {
        let _ = writeln!(std::io::stderr(), "left out on {kind}: {test}. {why}");
    }
    why.is_some()
}
