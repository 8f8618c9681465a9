//! What a node does with a take.

use super::*;
use crate::config::limits::MAX_FENCE;

#[test]
fn a_fence_is_the_attempt_where_that_is_larger_than_any_before() {
    let node = Node::new();
    let now = node.time();
    assert_eq!(granted(node.take(1, now)), now);
    assert_eq!(node.side(), Some((false, now, now, 1)));
    node.expire();
    assert_eq!(granted(node.take(2, now + 77)), now + 77);
    node.expire();
    // A clock that is behind.
    assert_eq!(granted(node.take(3, now - HOUR)), now + 78);
    node.expire();
    assert_eq!(granted(node.take(4, 1)), now + 79);
    node.assert_ends();
}

impl Node {
    /// Every key but the marker has a ttl.
    #[track_caller]
    pub(super) fn assert_ends(&self) {
        let marker = self.text(&["GETDEL", MARKER]);
        self.assert_everything_ends();
        if let Some(marker) = marker {
            self.cmd(&["SET", MARKER, &marker]);
        }
    }
}

#[test]
fn a_lock_has_its_whole_ttl_whoever_had_it_before() {
    let node = Node::new();
    let now = node.time();
    for (attempt, is_everyday) in [(5, false), (now, false), (after(now), true)] {
        let (said, calls) = node.timed(take(1, Place::Try, attempt));
        assert_eq!((granted(said), calls == EVERYDAY), (attempt, is_everyday));
        let left = node.number(&["PTTL", "n"]);
        assert!(left > 500_000 && left <= 600_000, "{left}");
        let (said, _) = node.try_ask(take(2, Place::Try, attempt + 1), NO_WAKEUP).unwrap();
        assert!(busy(said).0 > TTL / 2);
        node.expire();
    }
}

#[test]
fn a_clock_that_is_more_than_an_hour_ahead_is_refused() {
    let node = Node::new();
    let far = node.time() + HOUR + 60_000_000;
    let refused = node.try_ask(take(1, Place::Join(0), far), open(&channel(1))).unwrap_err();
    assert!(refused.to_string().contains("more than an hour ahead"), "{refused}");
    assert_eq!((node.holder(), node.side(), node.queue()), (None, None, vec![]));
    let near = node.time() + HOUR - 60_000_000;
    assert_eq!(granted(node.take(1, near)), near);
}

#[test]
fn the_range_of_fences_ends() {
    let node = Node::new();
    let last = MAX_FENCE - 1;
    node.cmd(&["SET", SIDE, &format!("0 {last} 5 {}", token(9)), "PX", "90000"]);
    assert_eq!(granted(node.take(1, 5)), MAX_FENCE);
    node.expire();
    let refused = node.try_ask(take(2, Place::Try, 6), NO_WAKEUP).unwrap_err();
    assert!(refused.to_string().contains("end of its range"), "{refused}");
    assert_eq!(node.holder(), None);
    // What its own attempt was granted is still told.
    node.cmd(&["SET", "n", &token(1).to_string(), "PX", "90000"]);
    assert_eq!(granted(node.take(1, 5)), MAX_FENCE);
    assert_eq!(node.raise(1, 5, MAX_FENCE), Said::Raised);
    let raise = ballot(token(1), Asks::Raise { attempt: 5, fence: MAX_FENCE + 1 });
    assert!(node.try_ask(raise, NO_WAKEUP).is_err());
}

#[test]
fn a_second_copy_is_answered_with_the_same_fence_and_only_grows_the_ttl() {
    let node = Node::new();
    let fence = granted(node.take(1, 1000));
    node.cmd(&["PEXPIRE", "n", "50000"]);
    assert_eq!(granted(node.take(1, 1000)), fence);
    assert!(node.number(&["PTTL", "n"]) > 500_000);
    node.cmd(&["PEXPIRE", "n", "900000"]);
    assert_eq!(granted(node.take(1, 1000)), fence);
    assert!(node.number(&["PTTL", "n"]) > 600_000);
    assert_eq!(node.side(), Some((false, fence, 1000, 1)));
    // Once it was raised, that is what the lock is held under.
    assert_eq!(node.raise(1, 1000, 2000), Said::Raised);
    assert_eq!(granted(node.take(1, 1000)), 2000);
}

#[test]
fn a_copy_that_comes_after_the_give_takes_nothing() {
    let node = Node::new();
    granted(node.take(1, 1000));
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    for attempt in [1000, 999] {
        let (free_in, _, ticket, ours) = busy(node.join(1, attempt));
        assert_eq!((free_in, ticket, ours), (Duration::ZERO, 0, false));
        assert_eq!((node.holder(), node.queue()), (None, vec![]));
    }
    assert_eq!(granted(node.take(1, 1001)), 1001);
}

#[test]
fn a_later_attempt_of_the_same_token_is_granted_anew_and_an_earlier_one_is_not() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.cmd(&["PEXPIRE", "n", "900000"]);
    assert_eq!(granted(node.take(1, 1001)), 1001);
    let left = node.number(&["PTTL", "n"]);
    assert!(left <= 600_000, "for its own ttl and no other: {left}");
    let (free_in, _, ticket, ours) = busy(node.join(1, 1000));
    assert!(free_in > TTL / 2 && ticket == 0 && ours);
    assert_eq!(node.side(), Some((false, 1001, 1001, 1)));
    assert!(node.queue().is_empty(), "it waits for nobody");
}

#[test]
fn a_lock_of_its_own_without_a_side_key_is_granted_anew() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.cmd(&["DEL", SIDE]);
    assert_eq!(granted(node.take(1, 1000)), 1000);
    assert_eq!(node.side(), Some((false, 1000, 1000, 1)));
}

#[test]
fn a_key_that_is_no_lease_is_an_error_and_nobody_stands_behind_it() {
    let node = Node::new();
    for foreign in [&["SET", "n", "kept for ever"][..], &["LPUSH", "n", "a list"]] {
        node.cmd(foreign);
        for place in [Place::Try, Place::Join(0), Place::Join(7)] {
            let refused = node.try_ask(take(1, place, 5), open(&channel(1))).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WrongType);
        }
        assert_eq!(node.extend(1, 5, TTL, Reach::Grow), Said::NotMine);
        assert_eq!(node.raise(1, 5, 5), Said::NotMine);
        assert_eq!(node.give(1, None), Said::NotMine);
        assert_eq!(node.number(&["DEL", "n"]), 1);
        assert_eq!((node.side(), node.queue()), (None, vec![]));
    }
}

#[test]
fn what_lies_beside_the_name_and_cannot_be_read_is_an_error() {
    let node = Node::new();
    for strange in [&["SET", SIDE, "what is this", "PX", "90000"][..], &["LPUSH", SIDE, "a list"]] {
        node.cmd(&["DEL", SIDE]);
        node.cmd(strange);
        assert!(node.try_ask(take(1, Place::Try, 5), NO_WAKEUP).is_err());
        assert_eq!(node.holder(), None);
    }
}

#[test]
fn waiters_stand_in_the_order_of_arrival_and_polls_keep_it() {
    let node = Node::new();
    granted(node.take(1, 1000));
    let tickets: Vec<u64> = (2..6).map(|client| busy(node.join(client, 1000)).2).collect();
    assert!(tickets.is_sorted_by(|one, two| one < two), "{tickets:?}");
    for (attempt, client) in (2000..).zip([5, 2, 4, 3]) {
        let ticket = tickets[client as usize - 2];
        for sent in [0, ticket] {
            let said = node.ask(take(client, Place::Join(sent), attempt), client);
            let (free_in, rank, told, ours) = busy(said);
            assert_eq!((rank, told, ours), (client - 2, ticket, true));
            assert!(free_in > TTL / 2);
        }
    }
    assert_eq!(node.queue(), [2, 3, 4, 5]);
    assert!(node.side().is_some_and(|(queued, ..)| queued));
    // An entry that was removed comes back to its place.
    node.cmd(&["ZREM", QUEUE, &Node::member(3)]);
    node.ask(take(3, Place::Join(tickets[1]), 3000), 3);
    assert_eq!(node.queue(), [2, 3, 4, 5]);
    node.assert_ends();
}

#[test]
fn a_free_lock_goes_to_whoever_asks_and_he_leaves_the_queue() {
    let node = Node::new();
    granted(node.take(1, 1000));
    for client in 2..4 {
        node.join(client, 1000);
    }
    node.expire();
    granted(node.join(3, 1001));
    assert_eq!((node.holder(), node.queue()), (Some(3), vec![2]));
    assert!(node.side().is_some_and(|(queued, ..)| queued));
    node.expire();
    granted(node.join(2, 1001));
    assert!(node.queue().is_empty());
    assert!(node.side().is_some_and(|(queued, ..)| !queued));
}

#[test]
fn a_client_that_cannot_listen_takes_no_place_and_leaves_the_one_it_had() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.join(2, 1000);
    let name = channel(3);
    let deaf = Wakeup { channel: name.as_bytes().into(), is_open: false };
    for wakeup in [NO_WAKEUP, deaf.clone()] {
        let (said, _) = node.try_ask(take(3, Place::Join(0), 1000), wakeup).unwrap();
        assert_eq!((busy(said).2, node.queue()), (0, vec![2]));
    }
    node.join(3, 1001);
    node.expire();
    granted(node.try_ask(take(3, Place::Join(0), 1002), deaf).unwrap().0);
    assert_eq!(node.queue(), [2]);
}

#[test]
fn holders_are_told_apart_the_same_way_on_every_node() {
    let nodes = [Node::new(), Node::new()];
    let holder = |node: &Node| match node.take(9, 5000) {
        Said::Busy { holder, ours, .. } => (holder, ours),
        said => panic!("{said:?}"),
    };
    let mut seen = Vec::new();
    let long = "x".repeat(10_000);
    let ours = token(1).to_string();
    for value in [&ours, "0", "their value", "\u{0}\u{ff}", &long] {
        for node in &nodes {
            node.cmd(&["SET", "n", value, "PX", "60000"]);
        }
        let [one, two] = nodes.each_ref().map(holder);
        assert_eq!(one, two);
        assert!(!seen.contains(&one) && !one.1, "{one:?}");
        seen.push(one);
    }
    for node in &nodes {
        node.cmd(&["DEL", "n"]);
        granted(node.take(1, 6000));
        assert_eq!(holder(node), (seen[0].0, true));
    }
}

/// GET, the marker, SET, SETRANGE.
const EVERYDAY: u64 = 4;

/// A later number of the same hundred seconds, or the first of the next ones.
fn after(number: u64) -> u64 {
    let next = number + 7;
    if next / 100_000_000 == number / 100_000_000 { next } else { next + 7 }
}

impl Node {
    /// What it says, and how many commands that took.
    fn timed(&self, ballot: Ballot<'_>) -> (Said, u64) {
        let mut said = None;
        let calls = self.calls_in(|| said = Some(self.try_ask(ballot, NO_WAKEUP).unwrap().0));
        (said.unwrap(), calls)
    }

    /// Its side key is as after a grant, and lasts for a minute.
    fn side_is(&self, queued: u8, last: u64, attempt: u64) {
        let side = format!("{queued} {last} {attempt} {}", token(9));
        self.cmd(&["SET", SIDE, &side, "PX", "60000"]);
    }

    fn lasts(&self) -> bool {
        self.number(&["PTTL", SIDE]) > 60_000
    }
}

#[test]
fn a_cycle_that_nobody_waits_for_costs_few_commands() {
    let node = Node::new();
    let first = node.time() / 100_000_000 * 100_000_000;
    granted(node.take(1, first));
    assert_eq!(node.give(1, Some(first)), Said::Given);
    for attempt in first + 1..first + 4 {
        let (said, calls) = node.timed(take(1, Place::Try, attempt));
        assert_eq!((granted(said), calls), (attempt, EVERYDAY));
        assert_eq!(node.side(), Some((false, attempt, attempt, 1)));
        // A second copy is told the same, and one after the give takes nothing.
        assert_eq!(granted(node.take(1, attempt)), attempt);
        // GET, GET, DEL.
        assert_eq!(node.calls_in(|| assert_eq!(node.give(1, Some(attempt)), Said::Given)), 3);
        busy(node.take(1, attempt));
        assert_eq!(node.holder(), None);
    }
    node.assert_ends();
}

#[test]
fn what_is_not_everyday_is_looked_at_closely() {
    let node = Node::new();
    let block = node.time() / 100_000_000 * 100_000_000;
    let near = block + 50_000_000;
    let marker = node.marker().unwrap();
    let is_everyday = |attempt, fence| {
        let (said, calls) = node.timed(take(1, Place::Try, attempt));
        assert_eq!((granted(said), node.holder()), (fence, Some(1)));
        node.expire();
        calls == EVERYDAY
    };
    node.side_is(0, near, near);
    assert!(is_everyday(near + 1, near + 1) && !node.lasts());
    node.side_is(0, near + 1023, near);
    assert!(is_everyday(near + 1024, near + 1024) && !node.lasts());
    // The numbers of another hundred seconds, those that are not larger, and shorter ones.
    for (last, attempt, fence) in [
        (near, block + 100_000_000, block + 100_000_000),
        (block - 1, block, block),
        (near, near, near + 1),
        (near, near - 1, near + 1),
        (near, near / 10 + 100, near + 1),
        (near / 10, near, near),
        (near / 10, near / 10 + 1, near / 10 + 1),
    ] {
        node.side_is(0, last, last);
        assert!(!is_everyday(attempt, fence) && node.lasts(), "{last} {attempt}");
    }
    node.side_is(1, near, near);
    assert!(!is_everyday(near + 1, near + 1) && node.lasts());
    // Others that the server was declared for, and a quarantine that is over.
    for marker in [format!("{} 0 600001", marker.0), format!("{} {} 600000", marker.0, near - HOUR)]
    {
        node.cmd(&["SET", MARKER, &marker]);
        node.side_is(0, near, near);
        assert!(!is_everyday(near + 1, near + 1) && node.lasts(), "{marker}");
    }
    node.cmd(&["SET", MARKER, &format!("{:040x} 0 600000", 7)]);
    node.side_is(0, near, near);
    let (said, _) = node.timed(take(1, Place::Try, near + 1));
    assert!(matches!(said, Said::Quarantined { .. }) && node.holder().is_none());
}

#[test]
fn a_number_too_far_ahead_is_let_in_only_beside_one_that_was() {
    let node = Node::new();
    let far = (node.time() + 2 * HOUR) / 100_000_000 * 100_000_000;
    node.side_is(0, far, far);
    assert_eq!(granted(node.take(1, far + 1)), far + 1);
    node.expire();
    assert!(node.try_ask(take(1, Place::Try, far + 100_000_000), NO_WAKEUP).is_err());
    assert!(node.holder().is_none());
}

#[test]
fn c2_a_block_of_fences_is_one_grants_alone() {
    let node = Node::new();
    let take = |client: u32, attempt, block| {
        let (token, place) = (token(client), Place::Try);
        let take = ballot(token, Asks::Take { ttl: TTL, place, attempt, block });
        node.ask(take, client)
    };
    for _ in 0..2 {
        assert_eq!(take(1, 1000, 64), Said::Granted { fence: 1000 });
    }
    // Another node has granted more: its whole block is kept from others here, too.
    assert_eq!(node.raise(1, 1000, 1500 + 63), Said::Raised);
    assert_eq!(take(1, 1000, 64), Said::Granted { fence: 1500 });
    assert_eq!(node.give(1, Some(1000 + 63)), Said::Given);
    assert_eq!(take(2, 1001, 1), Said::Granted { fence: 1500 + 64 });
}
