//! What a node does with a give.

use super::*;

fn told(wakeup: &mut Listener) -> Vec<Vec<u8>> {
    let heard = wakeup.heard().into_iter();
    let free = heard.map(|notice| match notice {
        Notice::Free { name, .. } => name,
        Notice::Granted { .. } => panic!("{notice:?}"),
    });
    free.collect()
}

fn once() -> Vec<Vec<u8>> {
    vec![NAME.to_vec()]
}

/// A holder and so many waiters behind it.
fn crowd(node: &Node, waiters: std::ops::Range<u32>) {
    granted(node.take(1, 1000));
    waiters.for_each(|client| {
        busy(node.join(client, 1000));
    });
}

#[test]
fn a_give_frees_what_its_attempt_or_an_earlier_one_was_granted() {
    let node = Node::new();
    for attempt in [None, Some(1000), Some(1001)] {
        node.cmd(&["DEL", SIDE]);
        granted(node.take(1, 1000));
        assert_eq!(node.give(1, Some(999)), Said::NotMine, "a later one has it");
        assert_eq!(node.give(2, attempt), Said::NotMine, "another's");
        assert_eq!(node.holder(), Some(1));
        assert_eq!(node.give(1, attempt), Said::Given);
        assert_eq!(node.give(1, attempt), Said::NotMine, "a second copy");
        assert_eq!(node.holder(), None);
        assert_eq!(node.side(), Some((false, 1000, 1000, 1)), "fences do not go back");
    }
}

#[test]
fn a_give_frees_a_lock_whose_side_key_is_lost_or_strange() {
    let node = Node::new();
    for strange in [
        &["DEL", SIDE][..],
        &["SET", SIDE, "what is this", "PX", "90000"],
        &["DEL", SIDE],
        &["LPUSH", SIDE, "a list"],
    ] {
        node.cmd(&["SET", "n", &token(1).to_string(), "PX", "90000"]);
        node.cmd(strange);
        let kind = node.cmd(&["TYPE", SIDE]);
        assert_eq!(node.give(1, Some(5)), Said::Given);
        assert_eq!((node.holder(), node.cmd(&["TYPE", SIDE])), (None, kind));
    }
}

#[test]
fn the_first_two_that_hear_it_are_told_and_nobody_is_handed_the_lock() {
    let node = Node::new();
    let mut listener = [3, 5, 6].map(|client| node.listen(client));
    crowd(&node, 2..8);
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    let [three, five, six] = &mut listener;
    assert_eq!((told(three), told(five), told(six)), (once(), once(), vec![]));
    assert_eq!(node.holder(), None);
    assert_eq!(node.queue(), [3, 5, 6, 7], "those that nobody hears are gone");
    // A second copy finds the lock free, and says nothing.
    assert_eq!(node.give(1, Some(1000)), Said::NotMine);
    assert!(listener.iter_mut().all(|wakeup| told(wakeup).is_empty()));
}

#[test]
fn nobody_is_told_of_a_lock_that_was_not_freed_or_quietly() {
    let node = Node::new();
    let mut wakeup = node.listen(2);
    crowd(&node, 2..4);
    assert_eq!(node.give(3, None), Said::NotMine);
    assert_eq!(node.queue(), [2], "but it left");
    let quiet = |leaves| {
        ballot(token(1), Asks::Give { ttl: TTL, attempt: Some(1000), leaves, tells: false })
    };
    assert_eq!(node.ask(quiet(true), 1), Said::Given);
    assert_eq!((told(&mut wakeup), node.queue()), (vec![], vec![2]));
    // An attempt that failed is given up, and the place is kept for the next one.
    granted(node.take(2, 1001));
    node.join(1, 1002);
    let stays =
        ballot(token(1), Asks::Give { ttl: TTL, attempt: Some(1002), leaves: false, tells: true });
    assert_eq!(node.ask(stays, 1), Said::NotMine);
    assert_eq!(node.queue(), [1]);
}

#[test]
fn a_queue_in_which_nobody_hears_is_emptied_in_steps() {
    let node = Node::new();
    crowd(&node, 100..200);
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    assert_eq!(node.queue().len(), 36);
    assert!(node.side().is_some_and(|(queued, ..)| queued));
    granted(node.take(1, 1001));
    assert_eq!(node.give(1, Some(1001)), Said::Given);
    assert!(node.queue().is_empty());
    assert_eq!(node.side(), Some((false, 1001, 1001, 1)));
}

#[test]
fn a_give_costs_the_same_commands_whatever_the_number_of_waiters() {
    let node = Node::new();
    let mut listener = [2, 3].map(|client| node.listen(client));
    let mut cost = Vec::new();
    for (attempt, more) in [(2000, 0), (3000, 5000)] {
        granted(node.take(1, attempt));
        for client in 2..4 {
            busy(node.join(client, attempt));
        }
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        for index in 0..more {
            let member = format!("{:032x} 0 {}", index + 1000, channel(4));
            pipe.zadd(QUEUE, member, 4_000_000_000_000_000u64 + index).ignore();
        }
        pipe.exec(&mut node.server.connection()).unwrap();
        let polls = node.calls_in(|| assert!(busy(node.join(2, attempt + 1)).2 > 0));
        let gives = node.calls_in(|| assert_eq!(node.give(1, None), Said::Given));
        listener.iter_mut().for_each(|wakeup| assert_eq!(told(wakeup), once()));
        cost.push((polls, gives));
    }
    assert_eq!(cost[0], cost[1], "polls and gives");
    assert!(cost[0].0 <= 10 && cost[0].1 <= 9, "{cost:?}");
}

#[test]
fn what_is_in_the_queue_and_no_waiter_is_thrown_out() {
    let node = Node::new();
    let mut wakeup = node.listen(2);
    crowd(&node, 2..3);
    for strange in ["", "hello", "zz 1 c", "00 x c"] {
        node.cmd(&["ZADD", QUEUE, "1", strange]);
    }
    assert_eq!(node.give(1, None), Said::Given);
    assert_eq!((told(&mut wakeup), node.queue()), (once(), vec![2]));
}

#[test]
fn any_name_is_told_as_it_is() {
    let node = Node::new();
    let name = b"a b\0{c}\xff G 1";
    let mut wakeup = node.listen(2);
    let ballot = |client, asks| Ballot { name, token: token(client), asks };
    let take = |client, place| ballot(client, Asks::Take { ttl: TTL, place, attempt: 7, block: 1 });
    granted(node.ask(take(1, Place::Try), 1));
    busy(node.ask(take(2, Place::Join(0)), 2));
    let give = ballot(1, Asks::Give { ttl: TTL, attempt: Some(7), leaves: true, tells: true });
    assert_eq!(node.ask(give, 1), Said::Given);
    assert_eq!(told(&mut wakeup), [name.to_vec()]);
}

#[test]
fn where_channels_lie_in_slots_they_are_told_there() {
    let node = Node::new();
    let sharded = open("leasehold:wake:5{n}");
    granted(node.take(1, 1000));
    let (said, _) = node.try_ask(take(2, Place::Join(0), 1000), sharded).unwrap();
    assert!(busy(said).2 > 0);
    assert_eq!(node.give(1, None), Said::Given);
    assert_eq!(node.server.calls("publish"), 0);
}
