//! How a free lock goes to the first living waiter.

use super::*;

/// A holder and so many waiters behind it.
fn crowd(world: &World, waiters: std::ops::Range<u32>) -> u64 {
    let (fence, _) = granted(world.try_take(1));
    world.tickets(waiters);
    fence
}

#[test]
fn a_waiter_is_granted_the_lock_for_the_claim_window_or_its_ttl_if_that_is_shorter() {
    let world = World::new();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let (fence, _) = granted(world.try_take(1));
    let short = Duration::from_secs(40);
    for (client, ttl) in [(2, TTL), (3, short)] {
        let join = Request::Take {
            name: NAME,
            token: token(client),
            ttl,
            place: Place::Join(0),
            block: 1,
        };
        assert!(matches!(world.ask(join, client), Reply::Busy { .. }));
    }
    world.give(1, fence);
    let (fence, span) = listener[0].heard_grant();
    assert_eq!(span, WINDOW);
    assert_eq!(listener[1].heard(), [], "it looks by itself");
    let left = world.number(&["PTTL", "n"]);
    assert!(left <= 60_000, "{left}");
    world.give(2, fence);
    assert_eq!(listener[1].heard_grant().1, short);
    let left = world.number(&["PTTL", "n"]);
    assert!(left <= 40_000, "{left}");
}

#[test]
fn waiters_that_are_gone_are_passed_over() {
    let world = World::new();
    let mut wakeup = world.listen(12);
    let fence = crowd(&world, 2..14);
    assert_eq!(world.give(1, fence), Reply::Given);
    wakeup.heard_grant();
    assert_eq!((world.holder(), world.queue()), (Some(12), vec![13]));
}

#[test]
fn behind_more_dead_waiters_than_a_script_removes_the_lock_stays_free_and_whoever_comes_goes_on() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let fence = crowd(&world, 2..3);
    world.bury(5000);
    assert_eq!(world.give(1, fence), Reply::Given);
    let left = world.number(&["ZCARD", QUEUE]);
    assert!(world.holder().is_none() && (900..=1001).contains(&left), "{left}");
    assert!(world.side().is_some_and(|(.., queued)| queued));
    assert_eq!(world.give(1, fence), Reply::NotMine);
    wakeup.heard_grant();
    assert_eq!((world.holder(), world.queue()), (Some(2), vec![]));
}

#[test]
fn dead_waiters_alone_leave_the_queue_empty() {
    for count in [0, 1, 70] {
        let world = World::new();
        let fence = crowd(&world, 2..3);
        world.bury(count);
        assert_eq!(world.give(1, fence), Reply::Given);
        assert_eq!((world.holder(), world.queue()), (None, vec![]));
        assert!(world.side().is_some_and(|(.., queued)| !queued));
        granted(world.try_take(2));
    }
}

/// One command each, so that a whole host that has gone costs the server milliseconds.
#[test]
fn a_dead_waiter_behind_another_costs_one_command() {
    let world = World::new();
    let fence = crowd(&world, 2..3);
    world.bury(500);
    let cost = world.calls_in(|| assert_eq!(world.give(1, fence), Reply::Given));
    assert!(cost < 500 + 20, "{cost}");
}

#[test]
fn what_is_in_the_queue_and_no_waiter_is_thrown_out() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let fence = crowd(&world, 2..3);
    for strange in ["", "hello", "zz 1 c", "00 x c"] {
        world.cmd(&["ZADD", QUEUE, "1", strange]);
    }
    world.give(1, fence);
    wakeup.heard_grant();
    assert!(world.queue().is_empty());
}

#[test]
fn a_hand_over_costs_the_same_commands_whatever_the_number_of_waiters() {
    let world = World::new();
    world.stay_within_a_hundred_seconds();
    let mut listener = [2, 3, 4].map(|client| world.listen(client));
    let mut fence = crowd(&world, 2..5);
    let mut cost = Vec::new();
    for more in [0, 10_000] {
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        let behind = world.time();
        for index in 0..more {
            let member = format!("{:032x} 1000 {}", index + 1000, channel(4));
            pipe.zadd(QUEUE, member, behind).ignore();
        }
        pipe.exec(&mut world.server.connection()).unwrap();
        let gives = world.calls_in(|| assert_eq!(world.give(1, fence), Reply::Given));
        listener[0].heard_grant();
        world.expire();
        let takes = world.calls_in(|| assert!(granted(world.join(1, 1)).0 > fence));
        let joins = world.calls_in(|| assert!(world.ticket(9) > 0));
        let leaves = world.calls_in(|| assert_eq!(world.give(9, 0), Reply::NotMine));
        cost.push([gives, takes, joins, leaves]);
        fence = world.side().unwrap().2;
        // Back to the same three.
        world.cmd(&["ZREMRANGEBYSCORE", QUEUE, "2", "+inf"]);
        world.tickets(2..5);
        listener.iter_mut().for_each(|wakeup| drop(wakeup.heard()));
    }
    assert_eq!(cost[0], cost[1], "gives, takes, joins, leaves");
    let [gives, takes, joins, leaves] = cost[0];
    assert!(gives <= 14 && takes <= 14 && joins <= 10 && leaves <= 5, "{:?}", cost[0]);
}

#[test]
fn a_hand_over_reads_and_writes_any_key_as_it_is() {
    let world = World::new();
    let name = b"a b\0{c}\xff G 1";
    let (mut wakeup, ttl) = (world.listen(2), TTL);
    let take = |client, place| Request::Take { name, token: token(client), ttl, place, block: 1 };
    let (fence, _) = granted(world.ask(take(1, Place::Try), 1));
    world.ask(take(2, Place::Join(0)), 2);
    assert_eq!(world.ask(Request::Give { name, token: token(1), fence, ttl }, 1), Reply::Given);
    let heard = wakeup.heard();
    assert!(matches!(&heard[..], [Notice::Granted { name: told, .. }] if told == name));
}

#[test]
fn every_key_ends_by_itself_whatever_happened() {
    let world = World::new();
    let _listener = [3, 4].map(|client| world.listen(client));
    let fence = crowd(&world, 2..6);
    world.assert_everything_ends();
    world.give(1, fence);
    world.assert_everything_ends();
    world.expire();
    world.try_take(9);
    world.assert_everything_ends();
    world.expire();
    granted(world.try_take(9));
    world.assert_everything_ends();
    let (left, hour) = (world.number(&["PTTL", SIDE]), 3_600_000);
    assert!(left > 28 * hour - 60_000 && left <= 28 * hour, "{left}");
}

#[test]
fn the_first_join_and_the_first_hand_over_in_a_hundred_seconds_keep_the_queue_alive() {
    let world = World::new();
    world.stay_within_a_hundred_seconds();
    let _listener = [2, 3].map(|client| world.listen(client));
    let fence = crowd(&world, 2..5);
    let left = || world.number(&["PTTL", QUEUE]) > 200_000;
    // As if the last grant had been so long ago.
    for (age, is_kept) in [(0, false), (200_000_000, true)] {
        let last = fence - age;
        world.cmd(&["SET", SIDE, &format!("1 {last} {last} {}", token(1)), "PX", "7200000"]);
        for join in [true, false] {
            world.cmd(&["PEXPIRE", QUEUE, "100000"]);
            if join {
                world.give(9, 0);
                world.ticket(9);
            } else {
                assert_eq!(world.give(1, last), Reply::Given);
                world.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
            }
            assert_eq!(left(), is_kept, "{age}, {join}");
        }
    }
}

#[test]
fn a_poll_keeps_the_queue_alive() {
    let world = World::new();
    crowd(&world, 2..4);
    let ticket = 5;
    world.cmd(&["PEXPIRE", QUEUE, "100000"]);
    world.join(2, ticket);
    let left = world.number(&["PTTL", QUEUE]);
    assert!(left > 200_000 && left <= 300_000, "{left}");
}
