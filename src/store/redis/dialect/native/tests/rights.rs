//! Servers that refuse something.

use super::*;
use crate::error::ErrorKind;

/// Another client of the same server, who logs in and may do everything but some.
fn restricted(world: &World, but: &[&str]) -> World {
    allowed(world, &[&["~*", "&*", "+@all"], but].concat())
}

/// One who may do just this.
fn allowed(world: &World, rights: &[&str]) -> World {
    world.allowed(rights, native(WINDOW, None))
}

#[test]
fn a_give_that_may_tell_nobody_frees_the_lock_and_leaves_the_queue_as_it_is() {
    let world = World::new();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let (fence, _) = granted(world.try_take(1));
    let tickets = [2, 3].map(|client| world.ticket(client));
    for but in [&["-publish"][..], &["resetchannels"]] {
        let mute = restricted(&world, but);
        world.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
        assert_eq!(mute.give(1, fence), Reply::Given, "{but:?}");
        assert_eq!((world.holder(), world.queue()), (None, vec![2, 3]));
        assert!(world.side().is_some_and(|(.., queued)| queued));
        assert!(listener.iter_mut().all(|wakeup| wakeup.heard().is_empty()));
    }
    // The last one alone: nothing else says any more that somebody waits.
    world.give(3, 0);
    listener[0].heard_grant();
    world.expire();
    world.join(1, 1);
    world.join(2, tickets[0]);
    let mute = restricted(&world, &["-publish"]);
    assert_eq!(mute.give(1, 0), Reply::Given);
    assert_eq!((world.queue(), world.side().map(|side| side.3)), (vec![2], Some(true)));
    let score = world.number(&["ZSCORE", QUEUE, &World::member(2)]);
    assert_eq!(score as u64, tickets[0]);
    world.assert_everything_ends();
    // They find it by polling.
    granted(world.join(2, tickets[0]));
}

#[test]
fn a_give_that_may_not_use_the_quick_commands_hands_over_all_the_same() {
    let world = World::new();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let (mut fence, _) = granted(world.try_take(1));
    world.tickets(2..4);
    for (client, missing) in [(1, "-zpopmin"), (2, "-setrange")] {
        assert_eq!(restricted(&world, &[missing]).give(client, fence), Reply::Given);
        fence = listener[client as usize - 1].heard_grant().0;
        assert_eq!(world.holder(), Some(client + 1));
        assert_eq!(world.side(), Some((fence + 63, client + 1, fence, true)));
    }
    world.assert_everything_ends();
}

#[test]
fn a_give_that_may_not_look_at_the_queue_frees_a_lock_that_only_the_dead_wait_for() {
    let world = World::new();
    let (fence, _) = granted(world.try_take(1));
    world.tickets(2..4);
    assert_eq!(restricted(&world, &["-zrange"]).give(1, fence), Reply::Given);
    assert_eq!(world.holder(), None);
}

#[test]
fn a_give_that_may_not_set_the_lock_tells_nobody() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    let ticket = world.ticket(2);
    for but in [&["-set", "(+set ~leasehold:*)"][..], &["-set"]] {
        let weak = restricted(&world, but);
        let refused = weak.try_ask(give(1, fence), open(&channel(1))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission, "{but:?}");
        assert_eq!((wakeup.heard(), world.side().map(|side| side.3)), (vec![], Some(true)));
        world.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
        world.join(2, ticket);
    }
    assert_eq!(world.give(1, fence), Reply::Given);
    wakeup.heard_grant();
}

#[test]
fn a_take_that_may_tell_nobody_waits_for_nobody_who_may_be_dead() {
    let world = World::new();
    granted(world.try_take(1));
    world.ticket(2);
    world.expire();
    let mute = restricted(&world, &["-publish"]);
    granted(mute.try_take(3));
    assert_eq!((world.holder(), world.queue()), (Some(3), vec![2]));
    assert!(world.side().is_some_and(|(.., queued)| queued));
}

#[test]
fn nobody_is_told_of_a_lock_that_may_not_be_set() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    granted(world.try_take(1));
    world.ticket(2);
    for but in [&["-set"][..], &["-del"], &["resetkeys", "%R~n", "~leasehold:*"]] {
        let weak = restricted(&world, but);
        if world.holder().is_some() {
            world.expire();
        }
        let refused = weak.try_ask(take(3, Place::Try, 1), open(&channel(3))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission, "{but:?}");
        assert_eq!((world.holder(), wakeup.heard()), (None, vec![]), "{but:?}");
        // What it took out of the queue comes back with the next poll.
        world.join(2, 1);
        assert_eq!(world.holder(), Some(2));
        world.ask(give(2, 0), 9);
        granted(world.try_take(1));
        world.ticket(2);
    }
}

#[test]
fn an_everyday_take_that_may_not_write_the_side_key_leaves_nothing() {
    let world = World::new();
    let (fence, _) = granted(world.try_take(1));
    assert_eq!(world.give(1, fence), Reply::Given);
    let side = world.side();
    let weak = restricted(&world, &["-set", "-setrange", "(+set ~n)"]);
    let refused = weak.try_ask(take(2, Place::Try, 1), NO_WAKEUP).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Permission);
    assert!(refused.to_string().contains("SET: "), "{refused}");
    assert_eq!((world.holder(), world.side()), (None, side));
}

#[test]
fn a_client_that_may_set_and_not_set_a_range_takes_all_the_same() {
    let world = World::new();
    let weak = restricted(&world, &["-setrange"]);
    let mut last = 0;
    for _ in 0..3 {
        let (fence, _) = granted(weak.try_take(1));
        assert!(fence > last);
        assert_eq!(world.side(), Some((fence, 1, fence, false)));
        assert!(world.number(&["PTTL", SIDE]) > 100_000_000);
        assert_eq!(weak.give(1, fence), Reply::Given);
        last = fence;
    }
}

const KEYS: [&str; 3] = ["~n", "~leasehold:{n}", "~leasehold:queue:{n}"];
const COMMANDS: [&str; 9] =
    ["+evalsha", "+script|load", "+time", "+get", "+set", "+setrange", "+pttl", "+pexpire", "+del"];
const TO_WAIT: [&str; 7] =
    ["+zadd", "+zrem", "+zpopmin", "+zrange", "+zrank", "+zscore", "+publish"];

#[test]
fn whoever_has_no_rights_to_queues_takes_and_gives_while_others_wait() {
    let world = World::new();
    granted(world.try_take(1));
    let ticket = world.ticket(2);
    world.expire();
    let plain = allowed(&world, &[&KEYS[..], &COMMANDS].concat());
    for may_look in [false, true] {
        if may_look {
            world.cmd(&["ACL", "SETUSER", "clerk", "+zrange"]);
        }
        let (taken, _) = plain.try_ask(take(3, Place::Join(0), 1), NO_WAKEUP).unwrap();
        let (fence, _) = granted(taken);
        assert_eq!(plain.try_ask(give(3, fence), NO_WAKEUP).unwrap().0, Reply::Given);
        assert_eq!((world.holder(), world.queue()), (None, vec![2]));
        assert!(world.side().is_some_and(|(.., queued)| queued));
    }
    // With a channel, too, a give frees the lock.
    let (fence, _) = granted(plain.try_take(3));
    assert_eq!(plain.give(3, fence), Reply::Given);
    assert_eq!(plain.give(3, 0), Reply::NotMine);
    granted(world.join(2, ticket));
    // Where nothing lies beside the name yet.
    world.cmd(&["FLUSHALL"]);
    let (fence, _) = granted(plain.try_take(3));
    assert_eq!(plain.give(3, fence), Reply::Given);
}

#[test]
fn a_right_that_is_missing_to_join_is_named() {
    let world = World::new();
    for missing in ["zadd", "zrange", "zrank", "zscore", "pexpire"] {
        world.cmd(&["FLUSHALL"]);
        granted(world.try_take(1));
        let weak = restricted(&world, &[&format!("-{missing}")]);
        let refused = weak.try_ask(take(2, Place::Join(0), 1), open(&channel(2))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission);
        assert!(refused.to_string().to_lowercase().contains(missing), "{missing}: {refused}");
    }
    // Nor is a right missing to those who come while others wait.
    world.cmd(&["FLUSHALL"]);
    granted(world.try_take(1));
    world.ticket(3);
    for missing in ["zadd", "zrange", "zrank"] {
        world.cmd(&["DEL", QUEUE]);
        let weak = restricted(&world, &[&format!("-{missing}")]);
        let refused = weak.try_ask(take(2, Place::Join(0), 1), open(&channel(2))).unwrap_err();
        assert!(refused.to_string().to_lowercase().contains(missing), "{missing}: {refused}");
        world.assert_everything_ends();
    }
}

#[test]
fn the_rights_that_are_needed_are_enough() {
    let world = World::new();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let rights = [&KEYS[..], &COMMANDS, &TO_WAIT, &["resetchannels", "&leasehold:wake:*"]].concat();
    let user = allowed(&world, &rights);
    let (fence, _) = granted(user.try_take(1));
    let tickets = user.tickets(2..5);
    assert_eq!(user.give(1, fence), Reply::Given);
    let (fence, _) = listener[0].heard_grant();
    assert_eq!(user.claim(2, fence), Reply::Extended);
    assert_eq!(user.give(3, 0), Reply::NotMine);
    assert_eq!(user.give(2, fence), Reply::Given);
    granted(user.join(4, tickets[2]));
}

#[test]
fn a_server_short_of_memory_still_frees_and_hands_over() {
    let world = World::new();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let (fence, _) = granted(world.try_take(1));
    world.tickets(2..4);
    let short = |world: &World| world.server.config_set("maxmemory", "1mb");
    short(&world);
    let refused = world.try_ask(take(9, Place::Join(0), 1), open(&channel(9))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    assert_eq!(world.queue(), [2, 3]);

    // A give of one's own, and one that finds the lock absent.
    assert_eq!(world.give(1, fence), Reply::Given);
    assert_eq!(world.holder(), Some(2));
    let (second, _) = listener[0].heard_grant();
    world.expire();
    assert_eq!(world.give(2, second), Reply::NotMine);
    let (third, _) = listener[1].heard_grant();
    assert!(second > fence && third > second);
    assert_eq!(world.holder(), Some(3));

    // Nor does a queue that is empty, or a take of a lock that nobody waits for, leave anything.
    assert_eq!(world.give(3, third), Reply::Given);
    let refused = world.try_ask(take(9, Place::Join(0), 1), open(&channel(9))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    assert_eq!((world.holder(), world.queue()), (None, vec![]));
}

#[test]
fn a_try_that_takes_nothing_new_needs_no_memory() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let first = granted(world.try_take(1));
    world.ticket(2);
    world.server.config_set("maxmemory", "1mb");
    let tried = |client| world.try_ask(take(client, Place::Try, 1), NO_WAKEUP).unwrap().0;
    assert!(matches!(tried(9), Reply::Busy { .. }));
    assert_eq!(granted(tried(1)), first, "a second copy");
    assert_eq!(world.give(1, first.0), Reply::Given);
    let (fence, _) = wakeup.heard_grant();
    assert_eq!(granted(tried(2)).0, fence, "what was handed over");
}

#[test]
fn a_give_of_a_lock_that_is_absent_needs_no_memory_though_the_queue_is_empty() {
    let world = World::new();
    let (fence, _) = granted(world.try_take(1));
    world.ticket(2);
    world.expire();
    world.server.config_set("maxmemory", "1mb");
    world.cmd(&["DEL", QUEUE]);
    assert_eq!(world.try_ask(give(1, fence), NO_WAKEUP).unwrap().0, Reply::NotMine);
    assert!(world.side().is_some_and(|(.., queued)| !queued));
}

#[test]
fn a_take_under_pressure_serves_who_stands_first() {
    let world = World::new();
    let mut wakeup = world.listen(3);
    granted(world.try_take(1));
    world.tickets(2..4);
    world.expire();
    world.server.config_set("maxmemory", "1mb");
    assert!(matches!(world.try_take(9), Reply::Busy { .. }));
    wakeup.heard_grant();
    assert_eq!((world.holder(), world.queue()), (Some(3), vec![]));
}

#[test]
fn a_lease_is_claimed_under_pressure_though_its_side_key_is_lost() {
    let world = World::new();
    let (fence, _) = granted(world.try_take(1));
    world.server.config_set("maxmemory", "1mb");
    for side in ["kept", "lost"] {
        if side == "lost" {
            world.cmd(&["DEL", SIDE]);
        }
        world.cmd(&["PEXPIRE", "n", "1000"]);
        assert_eq!(world.claim(1, fence), Reply::Extended, "{side}");
        assert!(world.number(&["PTTL", "n"]) > 1000, "{side}");
        assert!(world.side().is_some());
    }
}
