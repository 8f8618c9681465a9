//! Keys that a client uses again, and what its tokens know of them.

use std::collections::BTreeSet;

use super::*;
use crate::token::ClientId;

/// An etcd walks by each key that ever was under a name.
#[test]
fn a_client_uses_the_keys_of_a_name_again_but_none_that_may_be_in_use() {
    let etcd = Etcd::start();
    let (store, client) = (open(&etcd.url()), ClientId::draw().unwrap());
    let token = || Token::of(client).unwrap();
    let key = |of: Token| store.own_keys.get(of).unwrap().key;
    let mut used = BTreeSet::new();
    for _ in 0..20 {
        let (holder, other) = (token(), token());
        let fence = taken(&store, holder);
        // This one finds the lock taken, and leaves no key.
        assert!(matches!(take(&store, other, Place::Try).unwrap().reply, Reply::Busy { .. }));
        used.insert(key(holder));
        assert_eq!(give(&store, holder, fence), Reply::Given);
    }
    assert_eq!(used.len(), 1);
    // Another process has the key, as that of a lease which was handed over.
    let (there, here) = (open(&etcd.url()), token());
    let before = taken(&there, token());
    assert!(matches!(take(&store, here, Place::Try).unwrap().reply, Reply::Busy { .. }));
    listens(&store);
    joined(&store, here, 0);
    assert!(!used.contains(&key(here)), "it has the key of another grant");
    assert_eq!(holder(&store).unwrap().fence, Some(before));
}

#[test]
fn a_client_uses_the_keys_again_that_it_has_detached() {
    let etcd = Etcd::start();
    let (here, there, client) = (open(&etcd.url()), open(&etcd.url()), ClientId::draw().unwrap());
    let pass = |store: &EtcdStore, token, fence, to| {
        let reach = Reach::Pass(to);
        let pass = Request::Extend { name: b"n", token, fence, ttl: TTL, reach };
        assert_eq!(store.ask(Lane::Caller, pass, by()).unwrap().reply, Reply::Extended);
        store.own_keys.get(to).unwrap().key
    };
    let mut used = BTreeSet::new();
    for _ in 0..20 {
        let (holder, other, later) = (Token::of(client).unwrap(), token(), Token::of(client));
        let fence = taken(&here, holder);
        let detached = holder.detached(fence);
        used.insert(pass(&here, holder, fence, detached));
        // While it is in use, it is in nobody's way.
        let tried = take(&here, later.unwrap(), Place::Try).unwrap().reply;
        assert!(matches!(tried, Reply::Busy { .. }));
        used.insert(pass(&there, detached, fence, other));
        assert_eq!(give(&there, other, fence), Reply::Given);
    }
    assert_eq!(used.len(), 1);
}

/// As if a take of this token had been sent, and nothing was heard of it.
fn doubted(store: &EtcdStore, token: Token) {
    let lease = store.on_wire(Lane::Caller, by(), |wire, by| store.leases.take(wire, TTL, by));
    let own = store.own_keys.begin(token, &store.name(b"n"), 0);
    store.own_keys.set(token, &own.in_doubt(lease.unwrap()));
}

/// The next take finds that its lease is gone.
fn lose_lease(etcd: &Etcd, store: &EtcdStore) {
    let lease = store.on_wire(Lane::Caller, by(), |wire, by| store.leases.take(wire, TTL, by));
    let lease = lease.unwrap();
    etcd.ctl(&["lease", "revoke", &format!("{:x}", lease.id)]);
    store.leases.put_back(lease);
}

/// An earlier copy that comes late finds its key there, and does nothing.
#[test]
fn c4_a_take_that_was_surely_not_done_leaves_its_token_one_key() {
    let etcd = Etcd::start();
    let (store, token) = (open(&etcd.url()), token());
    doubted(&store, token);
    let key = store.own_keys.get(token).unwrap().key;
    lose_lease(&etcd, &store);
    let fence = taken(&store, token);
    assert_eq!(store.own_keys.get(token).unwrap().key, key);
    assert_eq!(give(&store, token, fence), Reply::Given);
}

#[test]
fn c4_a_try_that_finds_the_lock_taken_forgets_no_earlier_copy() {
    let etcd = Etcd::start();
    let (store, late, token) = (open(&etcd.url()), open(&etcd.url()), token());
    taken(&late, super::token());
    doubted(&store, token);
    assert!(matches!(take(&store, token, Place::Try).unwrap().reply, Reply::Busy { .. }));
    listens(&late);
    joined(&late, token, 0);
    assert_eq!(give(&store, token, 0), Reply::NotMine);
    assert_eq!(store.inspect(b"n", by()).unwrap().waiters.len(), 0);
}

#[test]
fn a_waiter_without_a_ticket_takes_no_place_that_another_is_about_to_have() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    taken(&other, token());
    let (one, ear) = (token(), listens(&store));
    joined(&store, one, 0);
    // Its place is gone, and it is about to have another.
    store.own_keys.remove(one);
    store.own_keys.begin(one, &store.name(b"n"), 1);
    joined(&store, token(), 0);
    assert!(store.own_keys.get(one).is_some());
    assert_eq!(store.listener.ear(), Some(ear));
}

#[test]
fn c5_who_finds_its_key_used_again_has_lost_the_lock() {
    let etcd = Etcd::start();
    let (store, there, client) = (open(&etcd.url()), open(&etcd.url()), ClientId::draw().unwrap());
    let token = Token::of(client).unwrap();
    let fence = taken(&store, token);
    let key = store.own_keys.get(token).unwrap().key;
    etcd.ctl(&["del", std::str::from_utf8(&key).unwrap()]);
    let later = Token::of(client).unwrap();
    taken(&there, later);
    assert_eq!(there.own_keys.get(later).unwrap().key, key);
    assert_eq!(extend(&store, (token, fence), TTL).unwrap().reply, Reply::NotMine);
    assert!(holder(&store).is_some());
}

#[test]
fn c1_a_later_place_of_its_token_leaves_a_grant_lost() {
    let etcd = Etcd::start();
    let (store, late, token) = (open(&etcd.url()), open(&etcd.url()), token());
    let fence = taken(&store, token);
    let key = store.own_keys.get(token).unwrap().key;
    etcd.ctl(&["del", std::str::from_utf8(&key).unwrap()]);
    let later = taken(&late, token);
    let is_unawaited = |fence| {
        let grant = Identity { name: b"n"[..].into(), token, fence, ttl: TTL };
        store.is_unawaited(&grant, Lane::Caller, by())
    };
    assert_eq!((is_unawaited(fence), is_unawaited(later)), (false, true));
}
