//! What a give does, rule by rule.

use std::borrow::Cow;

use super::*;

#[test]
fn a_give_frees_what_is_its_own_and_cuts_the_fences_back() {
    let world = World::new();
    let (first, block) = granted(world.ask(take(1, Place::Try, 10), 1));
    assert_eq!(block, 10);
    assert_eq!(world.give(1, first + 3), Reply::Given);
    assert_eq!(world.side(), Some((first + 3, 1, first, false)));
    assert_eq!(world.holder(), None);
    // A second copy.
    assert_eq!(world.give(1, first + 3), Reply::NotMine);
    assert_eq!(world.side(), Some((first + 3, 1, first, false)));
}

#[test]
fn a_give_of_a_grant_that_was_not_used_cuts_nothing() {
    let world = World::new();
    let (first, _) = granted(world.ask(take(1, Place::Try, 10), 1));
    assert_eq!(world.give(1, 0), Reply::Given);
    assert_eq!(world.side(), Some((first + 9, 1, first, false)));
}

#[test]
fn a_give_after_the_side_key_was_lost_is_true_all_the_same() {
    let world = World::new();
    let (first, _) = granted(world.try_take(1));
    world.cmd(&["DEL", SIDE]);
    assert_eq!(world.give(1, first), Reply::Given);
    assert_eq!(world.number(&["DBSIZE"]), 0);
}

#[test]
fn a_give_leaves_alone_what_it_cannot_read_beside_the_lock() {
    let world = World::new();
    for strange in [&["SET", SIDE, "what is this", "PX", "90000"][..], &["LPUSH", SIDE, "a list"]] {
        world.cmd(&["DEL", SIDE]);
        world.cmd(&["SET", "n", &token(1).to_string(), "PX", "90000"]);
        world.cmd(strange);
        let kind = world.cmd(&["TYPE", SIDE]);
        assert_eq!(world.give(1, 5), Reply::Given);
        assert_eq!((world.holder(), world.cmd(&["TYPE", SIDE])), (None, kind));
    }
}

#[test]
fn a_give_of_a_foreign_or_absent_lock_changes_nothing() {
    let world = World::new();
    assert_eq!(world.give(1, 0), Reply::NotMine);
    assert_eq!(world.give(1, 77), Reply::NotMine);
    assert_eq!(world.number(&["DBSIZE"]), 0);
    for foreign in [&["SET", "n", "their value", "PX", "60000"][..], &["LPUSH", "n", "a list"]] {
        world.cmd(&["DEL", "n"]);
        world.cmd(foreign);
        assert_eq!(world.give(1, 77), Reply::NotMine);
        assert_eq!(world.number(&["EXISTS", "n"]), 1);
    }
}

#[test]
fn a_take_that_landed_late_is_given_uncut_and_handed_over_and_was_not_mine() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (old, _) = granted(world.try_take(1));
    assert_eq!(world.give(1, old), Reply::Given);
    // A second copy of the take that was delayed on its way.
    let (late, _) = granted(world.ask(take(1, Place::Try, 5), 1));
    assert!(late > old);
    world.ticket(2);
    assert_eq!(world.give(1, old), Reply::NotMine);
    assert_eq!(world.holder(), Some(2));
    let (fence, _) = wakeup.heard_grant();
    assert!(fence > late + 4, "none of the late block is given out again");
}

#[test]
fn a_give_hands_over_in_the_order_of_arrival() {
    let world = World::new();
    let mut listener: Vec<_> = (2..6).map(|client| world.listen(client)).collect();
    let (mut fence, _) = granted(world.try_take(1));
    world.tickets(2..6);
    for (holder, client) in (1..5).zip(2..6) {
        assert_eq!(world.give(holder, fence), Reply::Given);
        assert_eq!(world.holder(), Some(client));
        let heard = listener[client as usize - 2].heard();
        let Some(Notice::Granted { name, token: told, fence: next, block, server, span }) =
            heard.last()
        else {
            panic!("{heard:?}")
        };
        assert_eq!((&name[..], *told, *block, *span), (NAME, token(client), 64, WINDOW));
        assert!(*next > fence && server <= next);
        assert_eq!(world.side(), Some((next + 63, client, *next, true)));
        fence = *next;
    }
    assert_eq!(world.give(5, fence), Reply::Given);
    assert_eq!((world.holder(), world.queue()), (None, vec![]));
    world.assert_everything_ends();
}

#[test]
fn a_give_hands_over_also_when_the_lock_was_absent_already() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    world.ticket(2);
    world.expire();
    assert_eq!(world.give(1, fence), Reply::NotMine);
    assert_eq!(world.holder(), Some(2));
    wakeup.heard_grant();
    // A second copy finds the lock taken.
    assert_eq!(world.give(1, fence), Reply::NotMine);
    assert_eq!((world.holder(), wakeup.heard()), (Some(2), vec![]));
}

#[test]
fn a_give_without_a_side_key_still_finds_who_waits() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    world.ticket(2);
    world.cmd(&["DEL", SIDE]);
    assert_eq!(world.give(1, fence), Reply::Given);
    assert!(wakeup.heard_grant().0 > fence);
}

#[test]
fn a_waiter_that_leaves_is_out_of_the_queue() {
    let world = World::new();
    granted(world.try_take(1));
    world.tickets(2..5);
    // Also where the flag was lost.
    let side = world.text(&["GET", SIDE]).unwrap();
    world.cmd(&["SET", SIDE, &side.replacen('1', "0", 1), "PX", "90000"]);
    assert_eq!(world.give(3, 0), Reply::NotMine);
    assert_eq!((world.holder(), world.queue()), (Some(1), vec![2, 4]));
}

#[test]
fn a_client_without_a_channel_leaves_no_queue_and_gives_all_the_same() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    world.ticket(2);
    let deaf = Wakeup { channel: Cow::Borrowed(b""), is_open: false };
    assert_eq!(world.try_ask(give(1, fence), deaf.clone()).unwrap().0, Reply::Given);
    wakeup.heard_grant();
    let gone = world.calls_in(|| {
        assert_eq!(world.try_ask(give(3, 0), deaf).unwrap().0, Reply::NotMine);
    });
    assert_eq!(gone, 2, "a look at each key, and no more");
}

#[test]
fn after_the_last_waiter_a_cycle_costs_what_it_did_before() {
    let world = World::new();
    let mut wakeup = world.listen(2);
    let (fence, _) = granted(world.try_take(1));
    world.ticket(2);
    world.give(1, fence);
    let (fence, _) = wakeup.heard_grant();
    // It used some of its block.
    assert_eq!(world.give(2, fence + 5), Reply::Given);
    assert_eq!(world.side(), Some((fence + 5, 2, fence, false)));
    let mut next = 0;
    assert_eq!(world.calls_in(|| next = granted(world.try_take(1)).0), 4);
    assert!(next > fence + 5);
    assert_eq!(world.calls_in(|| assert_eq!(world.give(1, next), Reply::Given)), 3);
}
