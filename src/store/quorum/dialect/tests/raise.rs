//! What a node does with a raise and with an extension.

use super::*;
use crate::store::Seen;

#[test]
fn a_raise_stores_the_fence_and_later_grants_are_above_it() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.cmd(&["PEXPIRE", SIDE, "50000"]);
    for _ in 0..2 {
        assert_eq!(node.raise(1, 1000, 5000), Said::Raised);
        assert_eq!(node.side(), Some((false, 5000, 1000, 1)));
    }
    assert!(node.number(&["PTTL", SIDE]) > 24 * 3_600_000);
    node.give(1, Some(1000));
    assert_eq!(granted(node.take(2, 1001)), 5001);
}

#[test]
fn a_raise_keeps_what_the_side_key_says_of_the_queue() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.join(2, 1000);
    assert_eq!(node.raise(1, 1000, 5000), Said::Raised);
    assert_eq!(node.side(), Some((true, 5000, 1000, 1)));
}

#[test]
fn only_what_is_still_the_attempts_is_raised() {
    let node = Node::new();
    assert_eq!(node.raise(1, 1000, 5000), Said::NotMine, "nothing there");
    granted(node.take(1, 1000));
    assert_eq!(node.raise(2, 1000, 5000), Said::NotMine, "another's");
    assert_eq!(node.raise(1, 999, 5000), Said::NotMine, "of an earlier attempt");
    assert_eq!(node.raise(1, 1001, 5000), Said::NotMine, "of one that never came");
    granted(node.take(1, 2000));
    assert_eq!(node.raise(1, 1000, 5000), Said::NotMine, "overtaken");
    node.expire();
    assert_eq!(node.raise(1, 2000, 5000), Said::NotMine, "over");
    assert_eq!(node.side(), Some((false, 2000, 2000, 1)));
    // The lock is its own, and what it was granted is not known any more.
    granted(node.take(1, 3000));
    for lost in [&["DEL", SIDE][..], &["SET", SIDE, "what is this", "PX", "90000"]] {
        node.cmd(lost);
        assert_eq!(node.raise(1, 3000, 5000), Said::NotMine);
    }
}

#[test]
fn a_raise_below_what_was_granted_confirms_nothing() {
    let node = Node::new();
    granted(node.take(1, 1000));
    assert_eq!(node.raise(1, 1000, 1000), Said::Raised);
    assert_eq!(node.raise(1, 1000, 999), Said::NotMine);
    assert_eq!(node.side(), Some((false, 1000, 1000, 1)));
}

#[test]
fn an_extension_grows_the_ttl_or_sets_it_where_the_lock_is_its_own() {
    let node = Node::new();
    let fence = granted(node.take(1, 1000));
    let left = |node: &Node| node.number(&["PTTL", "n"]);
    for _ in 0..2 {
        assert_eq!(node.extend(1, fence, TTL * 2, Reach::Grow), Said::Extended);
        assert!(left(&node) > 1_000_000);
    }
    assert_eq!(node.extend(1, fence, TTL, Reach::Grow), Said::Extended);
    assert!(left(&node) > 1_000_000, "never shorter");
    assert_eq!(node.extend(2, fence, TTL * 9, Reach::Set), Said::NotMine);
    assert_eq!(node.extend(1, fence, TTL, Reach::Set), Said::Extended);
    assert!(left(&node) <= 600_000);
    node.expire();
    assert_eq!(node.extend(1, fence, TTL, Reach::Grow), Said::NotMine);
}

#[test]
fn an_extension_that_refreshes_keeps_the_fence_alive() {
    let node = Node::new();
    let fence = granted(node.take(1, 1000));
    node.cmd(&["PEXPIRE", SIDE, "50000"]);
    assert_eq!(node.extend(1, fence, TTL, Reach::Grow), Said::Extended);
    assert!(node.number(&["PTTL", SIDE]) <= 50_000);
    assert_eq!(node.extend(1, fence, TTL, Reach::Claim), Said::Extended);
    assert!(node.number(&["PTTL", SIDE]) > 24 * 3_600_000);
    // A side key that was lost comes back, with what the holder relies on.
    node.cmd(&["DEL", SIDE]);
    assert_eq!(node.extend(1, 7000, TTL, Reach::Claim), Said::Extended);
    assert_eq!(node.side(), Some((true, 8023, 0, 1)));
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    assert_eq!(granted(node.take(2, 1001)), 8024);
    node.assert_ends();
}

#[test]
fn a_look_says_under_which_fence_the_holder_has_it() {
    let node = Node::new();
    assert_eq!(node.look(), Seen::default());
    granted(node.take(1, 1000));
    node.raise(1, 1000, 5000);
    let seen = node.look();
    assert_eq!((seen.holder().unwrap().fence, seen.last), (Some(5000), Some(5000)));
    node.cmd(&["SET", "n", "their value", "PX", "60000"]);
    let seen = node.look();
    assert_eq!((seen.holder().unwrap().fence, seen.last), (None, Some(5000)));
}
