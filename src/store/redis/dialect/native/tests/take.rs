//! What a take does, rule by rule.

use std::borrow::Cow;

use super::*;
use crate::error::ErrorKind;

#[test]
fn a_key_that_is_no_lease_is_an_error_and_nobody_stands_behind_it() {
    let world = World::new();
    for foreign in [&["SET", "n", "kept for ever"][..], &["LPUSH", "n", "a list"]] {
        world.cmd(foreign);
        for place in [Place::Try, Place::Join(0), Place::Join(7)] {
            let refused = world.try_ask(take(1, place, 1), open(&channel(1))).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WrongType);
        }
        assert_eq!(world.claim(1, 1), Reply::NotMine);
        world.cmd(&["DEL", "n"]);
        assert_eq!(world.number(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_poll_that_finds_its_own_lock_is_granted_the_same_fences_for_the_whole_ttl() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    let ticket = world.ticket(2);
    world.give(1, fence);
    let (first, span) = wakeup.heard_grant();
    assert!(span == WINDOW && world.number(&["PTTL", "n"]) <= 60_000);
    // Once more, as two copies of one poll.
    for _ in 0..2 {
        assert_eq!(granted(world.join(2, ticket)), (first, 64));
        assert!(world.number(&["PTTL", "n"]) > 500_000);
    }
    assert_eq!((world.queue(), world.holder()), (vec![], Some(2)));
}

#[test]
fn a_poll_that_finds_its_own_lock_leaves_the_queue() {
    let world = World::new();
    granted(world.try_take(1));
    let ticket = world.ticket(2);
    assert_eq!(world.queue(), [2]);
    // As if it had been granted without its entry being removed.
    world.cmd(&["SET", "n", &token(2).to_string(), "PX", "50000"]);
    granted(world.join(2, ticket));
    assert!(world.queue().is_empty());
    // The same where the side key knows of the grant.
    assert!(world.side().is_some_and(|(_, owner, _, queued)| owner == 2 && queued));
    world.cmd(&["ZADD", QUEUE, "1", &World::member(2)]);
    granted(world.join(2, ticket));
    assert!(world.queue().is_empty());
}

#[test]
fn a_claim_never_takes_and_never_joins() {
    let world = World::new();
    assert_eq!(world.claim(1, 1), Reply::NotMine);
    assert_eq!(world.number(&["DBSIZE"]), 0);
    granted(world.try_take(2));
    assert_eq!(world.claim(1, 1), Reply::NotMine);
    assert_eq!((world.queue(), world.holder()), (vec![], Some(2)));
}

#[test]
fn a_claim_sets_the_whole_ttl_under_fences_of_its_own_only() {
    let world = World::new();
    let (fence, _) = granted(world.ask(take(1, Place::Try, 8), 1));
    world.cmd(&["PEXPIRE", "n", "50000"]);
    world.cmd(&["PEXPIRE", SIDE, "50000"]);
    for other in [fence - 1, fence + 8, 1] {
        assert_eq!(world.claim(1, other), Reply::NotMine);
    }
    assert!(world.number(&["PTTL", "n"]) <= 50_000);
    // The turn of the second thread, say.
    assert_eq!(world.claim(1, fence + 1), Reply::Extended);
    assert!(world.number(&["PTTL", "n"]) > 500_000);
    assert!(world.number(&["PTTL", SIDE]) > 24 * 3_600_000, "the side key lives on too");
}

#[test]
fn a_claim_brings_back_a_side_key_that_was_lost() {
    let world = World::new();
    let (fence, _) = granted(world.ask(take(1, Place::Try, 8), 1));
    world.cmd(&["DEL", SIDE]);
    // Somebody joined before the claim came.
    world.ticket(2);
    assert_eq!(world.claim(1, fence), Reply::Extended);
    assert_eq!(world.give(1, fence + 7), Reply::Given);
    let (next, _) = granted(world.join(2, 0));
    assert!(next > fence + 7);
}

#[test]
fn a_claim_says_the_servers_time() {
    let world = World::new();
    let (reply, now) = world.try_ask(take(1, Place::Try, 1), open(&channel(1))).unwrap();
    let (fence, _) = granted(reply);
    assert_eq!(fence, now, "of a name that is new");
    let claim =
        Request::Extend { name: NAME, token: token(1), fence, ttl: TTL, reach: Reach::Claim };
    let (_, later) = world.try_ask(claim, open(&channel(1))).unwrap();
    assert!(later > now && later < now + 60_000_000);
}

#[test]
fn a_join_of_a_free_lock_is_granted_and_touches_no_queue() {
    let world = World::new();
    let mut last = 0;
    for round in 0..3 {
        let calls = world.calls_in(|| {
            let (fence, block) = granted(world.join(1, 0));
            assert!(fence > last && block == 1);
            last = fence;
        });
        // GET, TIME, GET, SET, SET; and where there is no side key, whether anybody waits.
        assert_eq!(calls, if round == 0 { 6 } else { 5 });
        // GET, GET, DEL.
        assert_eq!(world.calls_in(|| assert_eq!(world.give(1, last), Reply::Given)), 3);
        assert_eq!(world.side(), Some((last, 1, last, false)));
    }
    assert_eq!(world.cmd(&["KEYS", "*"]), world.cmd(&["KEYS", SIDE]));
}

#[test]
fn the_everyday_fence_is_the_servers_time_whatever_its_digits() {
    let world = World::new();
    let mut last = granted(world.try_take(1)).0;
    world.give(1, last);
    // A tenth of all times have a microsecond of fewer digits.
    for _ in 0..200 {
        let before = world.time();
        let (reply, server) = world.try_ask(take(1, Place::Try, 1), NO_WAKEUP).unwrap();
        let (fence, block) = granted(reply);
        assert!(fence > last && (before..=world.time()).contains(&fence), "{last} {fence}");
        assert_eq!((fence, block, world.side()), (server, 1, Some((fence, 1, fence, false))));
        // A second copy.
        assert_eq!(granted(world.try_take(1)), (fence, 1));
        assert_eq!(world.give(1, fence), Reply::Given);
        last = fence;
    }
}

#[test]
fn the_everyday_take_of_a_lock_that_is_held_changes_nothing() {
    let world = World::new();
    let (fence, _) = granted(world.try_take(1));
    assert_eq!(world.give(1, fence), Reply::Given);
    let side = world.text(&["GET", SIDE]);
    for theirs in [&["SET", "n", "theirs", "PX", "60000"][..], &["LPUSH", "n", "a list"]] {
        world.cmd(theirs);
        let kind = world.cmd(&["TYPE", "n"]);
        let taken = world.try_ask(take(2, Place::Try, 1), NO_WAKEUP);
        assert!(!matches!(taken, Ok((Reply::Granted { .. }, _))), "{taken:?}");
        assert_eq!((world.cmd(&["TYPE", "n"]), world.text(&["GET", SIDE])), (kind, side.clone()));
        world.cmd(&["DEL", "n"]);
    }
    let (later, _) = granted(world.try_take(2));
    assert!(later > fence);
}

#[test]
fn fences_grow_where_the_clock_is_behind_the_last_one() {
    let world = World::new();
    let ahead = world.time() + 3_600_000_000;
    for last in [ahead, 1 << 52] {
        world.cmd(&["SET", SIDE, &format!("0 {last} {last} {}", token(1)), "PX", "90000"]);
        assert_eq!(granted(world.try_take(2)), (last + 1, 1));
        assert_eq!(world.give(2, last + 1), Reply::Given);
    }
}

#[test]
fn a_side_key_of_the_last_ten_thousand_seconds_keeps_its_ttl_and_an_older_one_gets_it_anew() {
    let (world, window) = (World::new(), 10_000_000_000);
    for (age, is_kept) in [(0, true), (window, false), (10 * window, false), (100 * window, false)]
    {
        let last = world.time() - age;
        let side = format!("0 {last} {last} {}", token(1));
        world.cmd(&["SET", SIDE, &side, "PX", "7200000"]);
        let (fence, _) = granted(world.try_take(2));
        assert_eq!(world.side(), Some((fence, 2, fence, false)));
        let left = world.number(&["PTTL", SIDE]);
        assert_eq!(left <= 7_200_000, is_kept, "{left} ms, after {age} µs");
        assert!(is_kept || left > 100_000_000, "{left} ms");
        assert_eq!(world.give(2, fence), Reply::Given);
    }
}

#[test]
fn as_many_fences_are_reserved_as_are_asked_for() {
    let world = World::new();
    let (first, block) = granted(world.ask(take(1, Place::Try, 10), 1));
    assert_eq!((block, world.side()), (10, Some((first + 9, 1, first, false))));
    world.expire();
    // Nobody has said how many were used.
    world.cmd(&["SET", SIDE, &format!("0 {} {} {}", first + 9, first, token(1)), "PX", "90000"]);
    let (next, _) = granted(world.try_take(2));
    assert!(next > first + 9);
}

#[test]
fn a_block_ends_where_the_range_ends() {
    let world = World::new();
    let last = crate::config::limits::MAX_FENCE - 3;
    world.cmd(&["SET", SIDE, &format!("0 {last} {last} {}", token(1)), "PX", "90000"]);
    assert_eq!(granted(world.ask(take(1, Place::Try, 10), 1)), (last + 1, 3));
    world.expire();
    let refused = world.try_ask(take(2, Place::Join(0), 1), open(&channel(2))).unwrap_err();
    assert!(refused.to_string().contains("end of its range"), "{refused}");
    assert_eq!((world.holder(), world.queue()), (None, vec![]));
}

#[test]
fn waiters_stand_in_the_order_of_arrival_and_polls_keep_it() {
    let world = World::new();
    granted(world.try_take(1));
    let tickets = world.tickets(2..7);
    assert!(tickets.is_sorted_by(|one, two| one < two), "{tickets:?}");
    // Second copies of a first request, and polls, in any order.
    for client in [6, 3, 2, 5, 4] {
        let ticket = tickets[client as usize - 2];
        for ticket_sent in [0, ticket] {
            match world.join(client, ticket_sent) {
                Reply::Busy { free_in, ticket: told, rank, ours } => {
                    assert_eq!((told, rank, ours), (ticket, client - 2, true));
                    assert!(free_in <= TTL && free_in > TTL / 2);
                }
                reply => panic!("{reply:?}"),
            }
        }
    }
    assert_eq!(world.queue(), [2, 3, 4, 5, 6]);
}

#[test]
fn tickets_are_unique_though_the_clock_stands_or_goes_back() {
    let world = World::new();
    granted(world.try_take(1));
    let ahead = world.ticket(2) + 3_600_000_000;
    let member = World::member(3);
    world.cmd(&["ZADD", QUEUE, &ahead.to_string(), &member]);
    assert_eq!((world.ticket(4), world.ticket(5)), (ahead + 1, ahead + 2));
}

#[test]
fn an_old_ticket_leads_back_to_the_old_place_also_under_a_new_token() {
    let world = World::new();
    granted(world.try_take(1));
    let tickets = world.tickets(2..5);
    // Its entry was removed, as that of a waiter that seemed to be dead.
    world.cmd(&["ZREM", QUEUE, &World::member(3)]);
    assert_eq!(world.queue(), [2, 4]);
    world.join(3, tickets[1]);
    assert_eq!(world.queue(), [2, 3, 4]);
    // A cancelled waiter's ticket goes to another thread of its process.
    world.give(2, 0);
    world.join(20, tickets[0]);
    assert_eq!(world.queue(), [20, 3, 4]);
}

#[test]
fn a_waiter_behind_a_foreign_holder_is_told_so_and_finds_the_lock_by_polling() {
    let world = World::new();
    for value in ["0", "their value"] {
        world.cmd(&["SET", "n", value, "PX", "60000"]);
        for _ in 0..2 {
            let busy = world.join(2, 0);
            assert!(matches!(busy, Reply::Busy { rank: 0, ours: false, .. }), "{busy:?}");
        }
    }
    assert_eq!(world.side(), Some((0, 0, 0, true)), "a give looks into the queue");
    world.assert_everything_ends();
    world.cmd(&["DEL", "n"]);
    granted(world.join(2, 0));
    assert!(world.queue().is_empty());
}

#[test]
fn a_client_that_cannot_listen_now_takes_no_place() {
    let world = World::new();
    granted(world.try_take(1));
    let name = channel(2);
    for wakeup in [
        Wakeup { channel: Cow::Borrowed(b""), is_open: true },
        Wakeup { channel: name.as_bytes().into(), is_open: false },
    ] {
        let (busy, _) = world.try_ask(take(2, Place::Join(0), 1), wakeup).unwrap();
        assert!(matches!(busy, Reply::Busy { ticket: 0, rank: 0, ours: true, .. }), "{busy:?}");
        assert!(world.queue().is_empty());
    }
    world.expire();
    let (taken, _) = world.try_ask(take(2, Place::Join(0), 1), NO_WAKEUP).unwrap();
    granted(taken);
}

#[test]
fn a_try_does_not_overtake_the_queue() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    granted(world.try_take(1));
    world.ticket(2);
    world.expire();
    let busy = world.try_take(3);
    assert!(matches!(busy, Reply::Busy { ticket: 0, ours: true, .. }), "{busy:?}");
    assert_eq!(world.holder(), Some(2));
    wakeup.heard_grant();
}

#[test]
fn a_dead_queue_does_not_block_a_try() {
    let world = World::new();
    granted(world.try_take(1));
    world.tickets(2..40);
    world.expire();
    granted(world.try_take(50));
    assert_eq!((world.queue(), world.holder()), (vec![], Some(50)));
    assert!(world.side().is_some_and(|(.., queued)| !queued));
}

#[test]
fn a_join_behind_a_living_waiter_sees_it_served_and_stands_behind_it() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    granted(world.try_take(1));
    world.ticket(2);
    world.expire();
    let busy = world.join(3, 0);
    assert!(matches!(busy, Reply::Busy { rank: 0, ours: true, free_in, .. } if free_in == WINDOW));
    wakeup.heard_grant();
    assert_eq!((world.holder(), world.queue()), (Some(2), vec![3]));
}

#[test]
fn the_first_in_the_queue_takes_a_free_lock_and_the_others_stay() {
    let world = World::new();
    granted(world.try_take(1));
    let first = world.ticket(2);
    world.tickets(3..6);
    world.expire();
    // Nobody is told: it is known to live, since it asks.
    granted(world.join(2, first));
    assert_eq!((world.holder(), world.queue()), (Some(2), vec![3, 4, 5]));
    assert!(world.side().is_some_and(|(.., queued)| queued));
}

#[test]
fn a_waiter_that_cannot_hear_now_is_not_in_its_own_way() {
    let world = World::new();
    let _wakeup = world.listen(2);
    granted(world.try_take(1));
    let ticket = world.ticket(2);
    world.expire();
    let name = channel(2);
    let deaf = Wakeup { channel: name.as_bytes().into(), is_open: false };
    let (reply, _) = world.try_ask(take(2, Place::Join(ticket), 1), deaf).unwrap();
    granted(reply);
    assert!(world.queue().is_empty());
}

#[test]
fn behind_more_dead_waiters_than_a_script_removes_the_next_poll_goes_on() {
    let world = World::new();
    granted(world.try_take(1));
    world.ticket(2);
    world.bury(9000);
    world.expire();
    for left in [4996, 992] {
        let busy = world.join(2, 0);
        assert!(matches!(busy, Reply::Busy { free_in: Duration::ZERO, rank, .. } if rank == left));
        assert_eq!(world.holder(), None);
        assert_eq!(world.queue().len(), left as usize + 1);
    }
    granted(world.join(2, 0));
    assert_eq!((world.holder(), world.queue()), (Some(2), vec![]));
}
