//! Nodes that lost their data, or may have.

use super::*;
use kit::Server;

const QUARANTINE: u64 = 600_000_000;

impl Node {
    #[track_caller]
    fn assert_quarantined(&self) {
        let longest = self.marker().map_or(600_000, |(_, _, longest)| longest);
        let ballots = [
            take(1, Place::Try, 5),
            take(2, Place::Join(0), 6),
            ballot(token(1), Asks::Raise { attempt: 5, fence: 9 }),
            ballot(token(1), Asks::Extend { fence: 5, ttl: TTL, reach: Reach::Grow }),
            ballot(token(1), Asks::Extend { fence: 5, ttl: TTL, reach: Reach::Claim }),
            ballot(token(1), Asks::Fill { fence: 5, ttl: TTL, block: LONGEST_BLOCK }),
        ];
        let before = (self.holder(), self.side(), self.queue());
        for ballot in ballots.into_iter().chain(ballots) {
            let began = self.time();
            let (said, now) = self.try_ask(ballot, open(&channel(1))).unwrap();
            let Said::Quarantined { left } = said else { panic!("{ballot:?} {said:?}") };
            assert!(now >= began && now <= self.time());
            let (run, over, kept) = self.marker().unwrap();
            assert_eq!((run, kept), (self.run(), longest));
            assert_eq!(left.as_millis() as u64, (over - now).div_ceil(1000));
            assert!(left.as_millis() as u64 <= longest);
        }
        assert_eq!(before, (self.holder(), self.side(), self.queue()), "nothing was written");
    }
}

#[test]
fn a_new_node_grants_nothing_for_as_long_as_a_lease_can_last() {
    let node = Node::uninitialized();
    node.assert_quarantined();
    assert!(node.marker().unwrap().1 > node.time() + QUARANTINE / 2);
    assert_eq!(node.number(&["PTTL", MARKER]), -1, "no ttl");
    node.wait_out();
    granted(node.take(1, 1000));
}

#[test]
fn a_quarantine_ends_by_itself() {
    let guard = Guard { max_ttl: Duration::from_millis(120), clustered: false };
    let node = Node::uninitialized();
    let node = node.with(quorum(guard));
    let ttl = guard.max_ttl;
    let take = ballot(token(1), Asks::Take { ttl, place: Place::Try, attempt: 5, block: 1 });
    let mut refused = 0;
    loop {
        let (said, now) = node.try_ask(take, NO_WAKEUP).unwrap();
        let (_, over, _) = node.marker().unwrap();
        match said {
            Said::Quarantined { left } => {
                assert!(now < over && left <= ttl);
                refused += 1;
            }
            said => {
                assert!(node.time() >= over && refused > 0);
                assert_eq!(granted(said), 5);
                break;
            }
        }
    }
}

#[test]
fn a_node_that_was_emptied_while_it_ran_is_in_quarantine() {
    let node = Node::new();
    granted(node.take(1, 1000));
    node.cmd(&["FLUSHALL"]);
    node.assert_quarantined();
}

#[test]
fn a_node_that_comes_back_empty_is_in_quarantine() {
    let node = Node::new();
    granted(node.take(1, 1000));
    let node = node.restarted(Server::restart_empty);
    node.assert_quarantined();
}

#[test]
fn a_node_that_comes_back_with_an_older_file_is_in_quarantine_and_gives_all_the_same() {
    let node = Node::new();
    let run = node.run();
    granted(node.take(1, 1000));
    busy(node.join(2, 1000));
    node.server.save();
    // What the file does not know.
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    assert_eq!(granted(node.join(2, 1001)), 1001);
    let node = node.restarted(|server| {
        server.kill();
        server.start_again();
    });
    assert_eq!((node.holder(), node.queue()), (Some(1), vec![2]));
    assert!(node.marker().is_some_and(|marker| marker.0 == run) && run != node.run());
    let mut wakeup = node.listen(2);
    node.assert_quarantined();
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    assert_eq!(node.holder(), None);
    wakeup.heard_free();
    node.assert_quarantined();
    node.wait_out();
    assert_eq!(granted(node.join(2, 2000)), 2000);
}

#[test]
fn the_markers_own_time_counts_for_a_quarantine_that_another_client_begins() {
    let node = Node::new();
    let longer = Guard { max_ttl: TTL * 2, clustered: false };
    node.initialize(longer, false).unwrap();
    assert_eq!(node.marker().unwrap().2, 1_200_000);
    granted(node.take(1, 1000));
    let node = node.restarted(Server::restart_with_data);
    node.assert_quarantined();
    assert!(node.marker().unwrap().1 > node.time() + QUARANTINE * 3 / 2);
}

#[test]
fn a_client_whose_leases_would_outlast_a_quarantine_is_refused_and_told_both_numbers() {
    let node = Node::new();
    let longer = Guard { max_ttl: TTL * 2, clustered: false };
    let other = quorum(longer);
    let ask = |node: &Node| {
        let ballot = take(1, Place::Try, 5);
        let value = node.carry(&other.pack(&[ballot], &|_| NO_WAKEUP));
        other.read(&ballot, (value, None), Moment::now())
    };
    let refused = ask(&node).unwrap_err().error;
    assert_eq!((refused.kind(), node.holder()), (ErrorKind::BadArgument, None));
    let said = refused.to_string();
    assert!(said.contains("to 10 m,") && said.contains("to 20 m;"), "{said}");
    node.initialize(longer, false).unwrap();
    granted(ask(&node).unwrap().0);
    node.expire();
    // One with shorter leases may go on.
    granted(node.take(2, 1000));
    // But the longer ones may still run: only force makes a quarantine shorter than they are.
    node.initialize(GUARD, false).unwrap();
    assert_eq!(node.marker(), Some((node.run(), 0, 1_200_000)));
    node.initialize(GUARD, true).unwrap();
    // After a restart, it begins the quarantine all the same, so that it can be set up afterwards.
    let node = node.restarted(Server::restart_with_data);
    assert_eq!(ask(&node).unwrap_err().error.kind(), ErrorKind::BadArgument);
    assert_eq!(node.marker().unwrap().0, node.run());
    node.wait_out();
    // The longer ones, of which this marker knows nothing, may have been granted before that.
    for _ in 0..2 {
        let began = node.time();
        let refused = node.initialize(longer, false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let (run, over, longest) = node.marker().unwrap();
        assert_eq!((run, longest), (node.run(), 1_200_000));
        // What was waited for counts.
        assert!(over <= node.time() + QUARANTINE && over > began + QUARANTINE / 2);
        node.assert_quarantined();
    }
    node.wait_out();
    node.initialize(longer, false).unwrap();
    assert_eq!(node.marker(), Some((node.run(), 0, 1_200_000)));
    node.expire();
    granted(ask(&node).unwrap().0);
}

#[test]
fn a_longer_ttl_needs_no_wait_long_after_a_node_came_back() {
    let node = Node::new();
    let longer = Guard { max_ttl: TTL * 2, clustered: false };
    let long_ago = node.time() - HOUR;
    node.cmd(&["SET", MARKER, &format!("{} {long_ago} 600000", node.run())]);
    node.initialize(longer, false).unwrap();
    assert_eq!(node.marker(), Some((node.run(), 0, 1_200_000)));
}

#[test]
fn a_node_that_came_back_waits_the_longer_time_if_it_is_declared_at_once() {
    let node = Node::new();
    let longer = Guard { max_ttl: TTL * 2, clustered: false };
    let node = node.restarted(Server::restart_with_data);
    assert!(node.initialize(longer, false).is_err());
    let (run, over, longest) = node.marker().unwrap();
    assert_eq!((run, longest), (node.run(), 1_200_000));
    assert!(over > node.time() + QUARANTINE);
    // Once more does not begin it anew.
    assert!(node.initialize(longer, false).is_err());
    assert_eq!(node.marker().unwrap().1, over);
    node.assert_quarantined();
}

#[test]
fn a_clock_that_went_back_makes_no_quarantine_longer_than_it_ever_is() {
    let node = Node::new();
    let ahead = node.time() + 5 * HOUR;
    node.cmd(&["SET", MARKER, &format!("{} {ahead} 600000", node.run())]);
    node.assert_quarantined();
    assert!(node.marker().unwrap().1 <= node.time() + QUARANTINE);
}

#[test]
fn a_marker_that_is_none_is_an_error_until_it_is_overwritten() {
    let node = Node::new();
    for strange in [&["SET", MARKER, "what is this"][..], &["LPUSH", MARKER, "a list"]] {
        node.cmd(&["DEL", MARKER]);
        node.cmd(strange);
        let refused = node.try_ask(take(1, Place::Try, 5), NO_WAKEUP).unwrap_err();
        assert!(refused.to_string().contains("marker"), "{refused}");
        assert!(node.initialize(GUARD, false).is_err());
        assert_eq!(node.holder(), None);
        node.initialize(GUARD, true).unwrap();
    }
    granted(node.take(1, 1000));
}

#[test]
fn a_new_node_that_is_initialized_grants_at_once() {
    let node = Node::uninitialized();
    for force in [false, false, true] {
        node.initialize(GUARD, force).unwrap();
        assert_eq!(node.marker(), Some((node.run(), 0, 600_000)));
    }
    granted(node.take(1, 1000));
    node.initialize(GUARD, false).unwrap();
    assert_eq!(node.holder(), Some(1));
}

#[test]
fn a_node_in_quarantine_is_initialized_by_force_only() {
    let node = Node::uninitialized();
    node.assert_quarantined();
    let refused = node.initialize(GUARD, false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("nothing for another"), "{refused}");
    node.assert_quarantined();
    node.initialize(GUARD, true).unwrap();
    granted(node.take(1, 1000));
    // One that was used before, too; and to ask begins its quarantine.
    let node = node.restarted(Server::restart_with_data);
    assert!(node.initialize(GUARD, false).is_err());
    assert!(node.marker().is_some_and(|(run, over, _)| run == node.run() && over > 0));
    node.wait_out();
    node.initialize(GUARD, false).unwrap();
    assert_eq!(node.marker(), Some((node.run(), 0, 600_000)));
}

#[test]
fn a_script_that_is_loaded_late_is_told_the_run_as_well() {
    let node = Node::new();
    let fence = granted(node.take(1, 1000));
    for said in [Said::Raised, Said::Extended] {
        node.cmd(&["SCRIPT", "FLUSH"]);
        let asked = match said {
            Said::Raised => node.raise(1, 1000, fence),
            _ => node.extend(1, fence, TTL, Reach::Grow),
        };
        assert_eq!(asked, said);
    }
    node.cmd(&["SCRIPT", "FLUSH"]);
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    node.cmd(&["SCRIPT", "FLUSH"]);
    granted(node.take(1, 1001));
    assert_eq!(node.marker(), Some((node.run(), 0, 600_000)));
}

#[test]
fn in_a_cluster_the_marker_lies_in_the_slot_of_the_name() {
    let guard = Guard { max_ttl: TTL, clustered: true };
    let node = Node::uninitialized().with(quorum(guard));
    assert!(matches!(node.take(1, 5), Said::Quarantined { .. }));
    let keys: Vec<String> = redis::from_redis_value(node.cmd(&["KEYS", "*"])).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].as_bytes(), marker_in_cluster());
    node.cmd(&["DEL", &keys[0]]);
    node.initialize(guard, false).unwrap();
    granted(node.take(1, 5));
}
