//! Nodes that refuse something.

use super::*;

/// Another client of the same server, who may do just this.
fn clerk(node: &Node, rights: &[&str]) -> Node {
    node.allowed(rights, quorum(GUARD))
}

const KEYS: [&str; 4] = ["~n", "~leasehold:{n}", "~leasehold:queue:{n}", "~leasehold:marker"];
const COMMANDS: [&str; 9] =
    ["+evalsha", "+script|load", "+info", "+time", "+get", "+set", "+pttl", "+pexpire", "+del"];
const TO_WAIT: [&str; 6] = ["+zadd", "+zrem", "+zrange", "+zrank", "+zscore", "+publish"];

#[test]
fn whoever_has_no_rights_to_queues_takes_and_gives_while_others_wait() {
    let node = Node::new();
    let plain = clerk(&node, &[&KEYS[..], &COMMANDS].concat());
    let mut attempt = 1000;
    for others in [false, true] {
        if others {
            granted(node.take(9, attempt));
            busy(node.join(2, attempt));
            node.expire();
        }
        for wakeup in [NO_WAKEUP, open("leasehold:wake:1")] {
            attempt += 1;
            granted(plain.try_ask(take(3, Place::Try, attempt), wakeup.clone()).unwrap().0);
            assert_eq!(plain.raise(3, attempt, attempt + 5), Said::Raised);
            assert_eq!(plain.extend(3, attempt, TTL, Reach::Claim), Said::Extended);
            let given = plain.try_ask(give(3, Some(attempt)), wakeup.clone()).unwrap().0;
            assert_eq!((given, node.holder()), (Said::Given, None));
            assert_eq!(plain.fill(3, attempt + 5), Said::Filled);
            plain.give(3, None);
            attempt += 2000;
        }
        assert_eq!(node.queue().len(), usize::from(others));
    }
    assert!(node.side().is_some_and(|(queued, ..)| queued));
}

#[test]
fn the_rights_that_are_needed_are_enough() {
    let node = Node::new();
    let mut listener = [2, 3].map(|client| node.listen(client));
    let user = clerk(
        &node,
        &[&KEYS[..], &COMMANDS, &TO_WAIT, &["resetchannels", "&leasehold:wake:*"]].concat(),
    );
    granted(user.take(1, 1000));
    for client in 2..5 {
        busy(user.join(client, 1000));
    }
    assert_eq!(user.give(4, None), Said::NotMine);
    assert_eq!(user.give(1, Some(1000)), Said::Given);
    listener.iter_mut().for_each(Listener::heard_free);
    granted(user.join(3, 1001));
    assert_eq!(node.queue(), [2]);
    user.initialize(GUARD, true).unwrap();
}

#[test]
fn a_give_that_may_tell_nobody_frees_the_lock_and_leaves_the_queue_as_it_is() {
    let node = Node::new();
    let mut wakeup = node.listen(2);
    granted(node.take(1, 1000));
    busy(node.join(2, 1000));
    for but in ["-publish", "resetchannels", "-zrange"] {
        let mute = clerk(&node, &["~*", "&*", "+@all", but]);
        node.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
        assert_eq!(mute.give(1, None), Said::Given, "{but}");
        assert_eq!((node.holder(), node.queue(), wakeup.heard()), (None, vec![2], vec![]));
        assert!(node.side().is_some_and(|(queued, ..)| queued));
    }
}

#[test]
fn a_right_that_is_missing_is_named_and_nobody_is_granted_the_lock() {
    let node = Node::new();
    for missing in ["get", "set", "time"] {
        let weak = clerk(&node, &["~*", "&*", "+@all", &format!("-{missing}")]);
        let refused = weak.try_ask(take(2, Place::Try, 5), NO_WAKEUP).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission);
        assert!(refused.to_string().to_lowercase().contains(missing), "{missing}: {refused}");
        assert_eq!(node.holder(), None);
    }
    let keys = [&KEYS[..3], &COMMANDS, &TO_WAIT].concat();
    let blind = clerk(&node, &keys);
    let refused = blind.try_ask(take(2, Place::Try, 5), NO_WAKEUP).unwrap_err();
    assert_eq!((refused.kind(), node.holder()), (ErrorKind::Permission, None));
}

#[test]
fn a_node_short_of_memory_grants_nothing_new_and_still_extends_and_gives() {
    let node = Node::new();
    let mut wakeup = node.listen(2);
    granted(node.take(1, 1000));
    busy(node.join(2, 1000));
    node.server.config_set("maxmemory", "1mb");
    assert_eq!(node.extend(1, 1000, TTL * 2, Reach::Grow), Said::Extended);
    assert!(node.number(&["PTTL", "n"]) > 1_000_000);
    assert_eq!(granted(node.take(1, 1000)), 1000, "what it has already is told");
    let refused = node.try_ask(take(9, Place::Join(0), 1000), open(&channel(9))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    let raise = ballot(token(1), Asks::Raise { attempt: 1000, fence: 2000 });
    assert_eq!(node.try_ask(raise, NO_WAKEUP).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(node.side(), Some((true, 1000, 1000, 1)));
    assert_eq!(node.give(1, Some(1000)), Said::Given);
    wakeup.heard_free();
    // A request that leaves no queue begins with no removal.
    let refused = node.try_ask(take(9, Place::Join(0), 2000), NO_WAKEUP).unwrap_err();
    assert_eq!((refused.kind(), node.holder()), (ErrorKind::OutOfMemory, None));
    // Without a marker it cannot even begin its quarantine, and grants nothing all the same.
    node.cmd(&["DEL", MARKER]);
    let refused = node.try_ask(take(2, Place::Join(0), 2000), open(&channel(2))).unwrap_err();
    assert_eq!((refused.kind(), node.holder()), (ErrorKind::OutOfMemory, None));
}

#[test]
fn an_everyday_take_that_may_not_write_all_of_it_leaves_nothing() {
    let node = Node::new();
    let first = node.time() / 100_000_000 * 100_000_000;
    granted(node.take(1, first));
    node.expire();
    let keys = ["~n", "%R~leasehold:{n}", "~leasehold:queue:{n}", "~leasehold:marker"];
    for (rights, kind) in [
        ([&keys[..], &COMMANDS, &["+setrange"]].concat(), Some(ErrorKind::Permission)),
        ([&KEYS[..], &COMMANDS].concat(), None),
        ([&KEYS[..], &COMMANDS, &["+setrange"]].concat(), None),
    ] {
        let user = clerk(&node, &rights);
        let before = node.side();
        let asked = user.try_ask(take(2, Place::Try, first + 1), NO_WAKEUP);
        assert_eq!(asked.as_ref().err().map(Error::kind), kind, "{asked:?}");
        match asked {
            Ok((said, _)) => {
                assert_eq!((granted(said), node.holder()), (first + 1, Some(2)));
                assert_eq!(node.give(2, Some(first + 1)), Said::Given);
                node.cmd(&["SET", SIDE, &format!("0 {first} {first} {}", token(1)), "PX", "90000"]);
            }
            Err(_) => assert_eq!((node.holder(), node.side()), (None, before)),
        }
    }
    node.server.config_set("maxmemory", "1mb");
    let refused = node.try_ask(take(2, Place::Try, first + 1), NO_WAKEUP).unwrap_err();
    assert_eq!((refused.kind(), node.holder()), (ErrorKind::OutOfMemory, None));
    assert_eq!(node.side(), Some((false, first, first, 1)));
}
