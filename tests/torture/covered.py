"""Classes of bugs that other tests of this repository look for, and those that cannot happen here."""

#: What it is, where it was seen, and which tests look for it: file, name.
COVERED = [
    (
        "a loss is told of a lock that was properly released",
        "redis-semaphore#205, redis-semaphore#206, madelson/DistributedLock#85",
        [
            (
                "bindings/python/tests/test_loss.py",
                "test_a_lease_that_was_released_is_never_told_to_be_lost",
            )
        ],
    ),
    (
        "a wake-up is lost in a failover",
        "redisson#2181, redisson#6026",
        [("tests/servers/sentinel.rs", "one_that_sleeps_is_woken_by_the_new_master")],
    ),
    (
        "a fair queue hangs on dead waiters",
        "redisson#1104, redisson#2099, redisson#2883, redisson#3178",
        [
            (
                "tests/judge/deaths.rs",
                "c1_c2_c10_ten_waiters_that_are_killed_together_cost_no_more_than_one",
            ),
            (
                "tests/queue/deaths.rs",
                "all_waiters_that_are_interrupted_end_and_are_in_nobodys_way",
            ),
        ],
    ),
    (
        "a waiter whose session has died waits on",
        "etcd#19597, etcd#22387, CURATOR-62",
        [
            (
                "tests/servers/zookeeper.rs",
                "c9_c10_a_session_that_ends_costs_waiters_no_more_than_asking_again_and_leases_nothing",
            ),
            (
                "src/store/etcd/waits.rs",
                "c10_a_watch_that_is_over_is_made_anew_by_those_who_waited_for_it",
            ),
        ],
    ),
    (
        "two leaders after a reconnect or the loss of a session",
        "curator#1211, curator#1137, etcd#10811",
        [
            (
                "tests/servers/zookeeper.rs",
                "c1_c2_c10_an_ensemble_that_loses_its_leader_keeps_leases_places_and_order",
            ),
            ("tests/servers/etcd.rs", "c1_c2_leases_outlive_the_leader_and_fences_grow"),
        ],
    ),
    (
        "two holders within one millisecond",
        "ShedLock#1968, ShedLock#3577",
        [
            (
                "tests/locking/exclusion.rs",
                "c1_c2_threads_hold_one_after_the_other_and_lose_nothing",
            ),
            ("tests/quorum/waiting.rs", "c1_c2_those_who_ask_at_once_all_get_their_turns"),
        ],
    ),
    (
        "the lock is written in the user's transaction, or released before its commit",
        "ShedLock#3577",
        [
            (
                "bindings/spring/src/test/java/dev/leasehold/spring/boot/LockedTransactionTest.java",
                "aLockedMethodIsReleasedAfterItsCommit",
            )
        ],
    ),
    (
        "a session lock leaks behind a pooler",
        "pgbouncer#102, pgbouncer#418, authentik#23876",
        [
            (
                "tests/servers/postgres.rs",
                "behind_a_pooler_locks_are_as_good_and_waiters_ask_again_and_again",
            )
        ],
    ),
    (
        "a connection is killed in the database",
        "madelson/DistributedLock#5, madelson/DistributedLock#263",
        [
            (
                "tests/servers/postgres_sessions.rs",
                "c6_sessions_that_are_terminated_again_and_again_stop_nobody",
            ),
            (
                "tests/servers/mysql_sessions.rs",
                "c6_sessions_of_a_mysql_that_are_killed_again_and_again_stop_nobody_and_lose_nothing",
            ),
        ],
    ),
    (
        "different names share one lock",
        "spring-integration#11146, spring-integration#11157, spring-integration#2660",
        [
            ("tests/locking/names.rs", "two_names_never_share_a_lock"),
            ("src/store/redis/dialect/keys.rs", "no_two_names_share_what_stands_beside_them"),
        ],
    ),
    (
        "the server has lost its scripts",
        "redlock-rb#27, redlock-rb#148, resque-scheduler#298",
        [("tests/faults/server.rs", "c6_flushed_scripts_are_loaded_again")],
    ),
    (
        "a check of the replicas refuses wrongly, or passes",
        "redisson#4822, redisson#4706",
        [("tests/servers/replicas.rs", "a_grant_that_too_few_replicas_have_is_given_back")],
    ),
    (
        "no memory, a full disk, a replica that is asked to write",
        "RedLock.net#101, node-redlock#11",
        [
            (
                "tests/faults/refused.rs",
                "c13_without_memory_nothing_is_taken_and_leases_can_still_be_extended_and_released",
            ),
            ("tests/faults/refused.rs", "c13_a_replica_is_read_only_and_said_so_at_once"),
        ],
    ),
]

#: What it is, where it was seen, and why it cannot happen here.
ABSENT = [
    (
        "of several names, some are acquired",
        "redisson#1160, redisson#4456, node-redlock#55",
        "Leasehold has no lock over several names",
    ),
    (
        "permits of a semaphore leak",
        "redisson#4462, dv/redis-semaphore#49",
        "Leasehold has no semaphores",
    ),
]
