//! What a node does that is told of a lock which most others have.

use super::*;

#[test]
fn a_lock_that_is_free_is_stored_with_the_fence_and_no_other_is_touched() {
    let node = Node::new();
    let fence = granted(node.take(1, 1000));
    assert_eq!(node.fill(2, 5000), Said::NotMine, "another's");
    assert_eq!(node.side(), Some((false, 1000, 1000, 1)));
    node.give(1, Some(fence));
    for _ in 0..2 {
        assert_eq!(node.fill(2, 5000), Said::Filled);
        assert_eq!(node.side(), Some((false, 6023, 5000, 2)));
    }
    node.cmd(&["PEXPIRE", "n", "50000"]);
    assert_eq!(node.fill(2, 5000), Said::Filled, "sent twice");
    assert!(node.number(&["PTTL", "n"]) <= 50_000, "the second copy changes nothing");
    assert_eq!(node.extend(2, 5000, TTL, Reach::Grow), Said::Extended);
    assert_eq!(node.give(2, Some(5000)), Said::Given);
    assert_eq!(granted(node.take(3, 1001)), 6024);
    node.assert_ends();
}

#[test]
fn a_fence_that_is_larger_stays() {
    let node = Node::new();
    let fence = granted(node.take(1, 9000));
    node.give(1, Some(fence));
    assert_eq!(node.fill(2, 5000), Said::Filled);
    assert_eq!(node.side(), Some((false, 9000, 5000, 2)));
}

#[test]
fn where_the_side_key_is_lost_somebody_may_stand_in_the_queue() {
    let node = Node::new();
    assert_eq!(node.fill(1, 5000), Said::Filled);
    assert_eq!(node.side(), Some((true, 6023, 5000, 1)));
    node.give(1, Some(5000));
    node.cmd(&["SET", SIDE, "what is this", "PX", "90000"]);
    let ballot = ballot(token(1), Asks::Fill { fence: 5000, ttl: TTL, block: LONGEST_BLOCK });
    assert!(node.try_ask(ballot, open(&channel(1))).is_err());
    assert_eq!(node.text(&["GET", "n"]), None);
}

/// An earlier attempt of the token may have failed, and be given up late.
#[test]
fn what_arrives_late_of_the_same_token_neither_frees_the_lock_nor_takes_it_again() {
    let node = Node::new();
    assert_eq!(node.fill(1, 5000), Said::Filled);
    assert_eq!(node.give(1, Some(4999)), Said::NotMine);
    assert_eq!(node.raise(1, 4999, 7000), Said::NotMine);
    assert!(matches!(node.take(1, 4999), Said::Busy { .. }));
    assert_eq!(node.give(1, Some(5000)), Said::Given);
    for attempt in [4999, 5000] {
        assert!(matches!(node.take(1, attempt), Said::Busy { .. }));
    }
    assert_eq!(node.text(&["GET", "n"]), None);
}
