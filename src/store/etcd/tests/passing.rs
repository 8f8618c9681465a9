//! Those who do not live are passed over, and nobody else is.

use kit::{eventually, wait::eventually_some};

use super::super::leases::{Lease, Leases, keep_alive};
use super::super::messages::{Key, Op, Txn};
use super::*;

const SPAN: Duration = Duration::from_secs(1);
/// A lease outlasts every test.
const LONG: Duration = Duration::from_secs(600);

/// Where the server has started again, a connection from before may be tried first.
fn done(store: &EtcdStore, txn: &Txn) -> messages::Done {
    let act = || store.on_wire(Lane::Caller, by(), |wire, by| transact(wire, txn, by));
    eventually_some(LIMIT, || act().ok()).0
}

fn read(store: &EtcdStore, key: &[u8]) -> Option<Key> {
    done(store, &Txn::default().then(Op::get(key))).part(0).first()
}

/// A key of somebody who does nothing any more, under a lease that goes on.
fn dead(store: &EtcdStore, ttl: Duration, waits: Option<Duration>) -> (Vec<u8>, Lease) {
    let token = token();
    let key = store.name(b"n").key(token, 0);
    let made = store.on_wire(Lane::Caller, by(), |wire, by| Leases::exactly(wire, LONG, by));
    let (lease, value) = (made.unwrap(), keys::value(token, ttl, 64, None));
    let value = waits.map_or(value.clone(), |span| keys::waiting(&value, span));
    done(store, &Txn::default().then(Op::put(&key, &value, lease.id)));
    (key, lease)
}

/// Somebody asks whether the token of a key lives, as a waiter behind it does.
fn asks(store: &EtcdStore, key: &[u8]) -> u64 {
    let key = read(store, key).unwrap();
    let ask = Txn::default().if_unchanged(&key.key, key.modified);
    let asked = done(store, &ask.then(Op::put_in_place(&key.key, &keys::asked(&key))));
    assert!(asked.is_so);
    asked.revision
}

/// Looks as a waiter does, and listens, until it is told something.
fn told(store: &EtcdStore) -> store::Notice {
    eventually_some(LIMIT, || {
        let _ = store.free_in(b"n", by());
        let until = Moment::now().plus(Duration::from_millis(20));
        store.listener.hear(until).unwrap().pop().map(|(_, notice)| notice)
    })
}

#[test]
fn c2_c10_dead_waiters_in_a_row_are_passed_over_while_their_leases_go_on() {
    let etcd = Etcd::start();
    let (store, other, waiter, held) = (open(&etcd.url()), open(&etcd.url()), token(), token());
    let fence = taken(&other, held);
    let row = [(); 5].map(|()| dead(&other, TTL, Some(SPAN)));
    listens(&store);
    let (ticket, rank) = joined(&store, waiter, 0);
    assert_eq!(rank, 5);
    assert_eq!(give(&other, held, fence), Reply::Given);
    let store::Notice::Granted { token, fence: later, .. } = told(&store) else {
        panic!("it is passed to nobody");
    };
    assert_eq!((token, Some(later)), (waiter, keys::first_fence(ticket)));
    assert!(later > fence);
    // They would have been in the way for longer than this test takes.
    let leases = etcd.ctl(&["lease", "list"]);
    assert!(row.iter().all(|(_, lease)| leases.contains(&format!("{:x}", lease.id))));
}

#[test]
fn c1_a_dead_holder_is_passed_over_after_its_ttl_and_one_that_renews_is_not() {
    let mut etcd = Etcd::start();
    let (store, other, waiter) = (open(&etcd.url()), open(&etcd.url()), token());
    let (key, mut lease) = dead(&other, SPAN, None);
    listens(&store);
    let (ticket, _) = joined(&store, waiter, 0);
    // As each election does with the leases of the dead.
    let mut renew = || {
        let all = std::slice::from_mut(&mut lease);
        let renewed = other.on_wire(Lane::Keeper, by(), |wire, by| {
            keep_alive(wire, all, by).map_err(Failure::not_done)
        });
        assert!(renewed.is_err() || renewed.unwrap() == [true]);
    };
    let since = Moment::now();
    eventually(LIMIT, || {
        renew();
        store.free_in(b"n", by()).unwrap();
        Moment::now().since(since) > SPAN * 2
    });
    let value = read(&store, &key).unwrap();
    assert_eq!(keys::said(&value.value, value.created).unwrap().asked, None, "it may be there");
    etcd.kill(0);
    etcd.start_again(0);
    // It listens on another connection.
    let soon = || Moment::now().plus(Duration::from_millis(20));
    eventually(LIMIT, || store.listener.hear(soon()).is_err());
    eventually(LIMIT, || store.listener.open(b"n", by()).is_ok());
    eventually(LIMIT, || take(&store, waiter, Place::Join(ticket)).is_ok());
    assert_eq!(store.listener.waits_for(b"n"), Some(waiter));
    // Each election begins the life of its lease anew, and this one does not wait for that.
    eventually(LIMIT, || {
        renew();
        let _ = store.free_in(b"n", by());
        read(&store, &key).is_none()
    });
    assert!(matches!(told(&store), store::Notice::Granted { .. }));
}

#[test]
fn c1_a_holder_that_was_asked_counts_no_renewal_that_it_has_not_written() {
    let etcd = Etcd::start();
    let (store, other, token) = (open(&etcd.url()), open(&etcd.url()), token());
    let fence = taken(&store, token);
    let key = store.own_keys.get(token).unwrap().key;
    let asked = asks(&other, &key);
    let request = Request::Extend { name: b"n", token, fence, ttl: TTL, reach: Reach::Grow };
    assert_eq!(store.renewals(&[request]).len(), 1, "it is renewed by its lease alone");
    assert_eq!(store.ask(Lane::Keeper, request, by()).unwrap().reply, Reply::Extended);
    let written = read(&store, &key).unwrap();
    let who = keys::said(&written.value, written.created).unwrap();
    assert!(written.modified > asked && who.asked.is_none(), "{who:?}");
    assert_eq!((who.token, who.first), (token, fence));
    // So whoever asked finds that it lives.
    let pass = Txn::default().if_unchanged(&key, asked).then(Op::delete(&key));
    assert!(!done(&other, &pass).is_so);
    assert_eq!(store.renewals(&[request]).len(), 1);
    assert_eq!(give(&store, token, fence), Reply::Given);
}

#[test]
fn c1_a_ttl_that_is_longer_than_its_key_says_is_written() {
    let etcd = Etcd::start();
    let (store, token) = (open(&etcd.url()), token());
    let fence = taken(&store, token);
    let own = store.own_keys.get(token).unwrap();
    let longer = TTL + Duration::from_secs(1);
    assert!(own.lease.unwrap().span >= longer, "its lease alone would do");
    assert_eq!(extend(&store, (token, fence), longer).unwrap().reply, Reply::Extended);
    let key = read(&store, &own.key).unwrap();
    assert_eq!(keys::said(&key.value, key.created).unwrap().ttl, longer);
}

#[test]
fn c1_a_waiter_that_was_asked_counts_its_window_from_before_and_answers() {
    let etcd = Etcd::start();
    // Its ear is renewed soon, and something of its window is left then.
    let (store, other) = (opened(&etcd.url(), SPAN * 6), open(&etcd.url()));
    let (held, waiter) = (token(), token());
    let fence = taken(&other, held);
    listens(&store);
    let (ticket, _) = joined(&store, waiter, 0);
    let key = store.own_keys.get(waiter).unwrap().key;
    asks(&other, &key);
    let asked = micros(Moment::now());
    // Its ear is renewed, and its key was written since.
    let notice = eventually_some(LIMIT, || {
        let heard = store.listener.hear(Moment::now().plus(Duration::from_millis(20)));
        heard.unwrap().pop().map(|(_, notice)| notice)
    });
    assert_eq!(notice, store::Notice::Free { name: b"n".to_vec(), token: waiter });
    assert_eq!(give(&other, held, fence), Reply::Given);
    let server = eventually_some(LIMIT, || {
        let heard = store.listener.hear(Moment::now().plus(Duration::from_millis(20))).unwrap();
        heard.into_iter().find_map(|(_, notice)| match notice {
            store::Notice::Granted { server, .. } => Some(server),
            store::Notice::Free { .. } => None,
        })
    });
    assert!(server <= asked, "whoever asked waits no longer than a window since then");
    // What it was told to do: the take that claims the lock.
    let outcome = take(&store, waiter, Place::Join(ticket)).unwrap().reply;
    assert!(matches!(outcome, Reply::Granted { .. }), "{outcome:?}");
    let key = read(&store, &key).unwrap();
    let who = keys::said(&key.value, key.created).unwrap();
    assert_eq!((who.waits, who.asked), (None, None));
}

#[test]
fn c10_a_place_that_was_asked_is_taken_over_where_it_stands() {
    let etcd = Etcd::start();
    let (store, other, held) = (open(&etcd.url()), open(&etcd.url()), token());
    let (left, later) = (token(), token());
    let fence = taken(&other, held);
    listens(&store);
    let (ticket, _) = joined(&store, left, 0);
    let key = store.own_keys.get(left).unwrap().key;
    asks(&other, &key);
    assert_eq!(joined(&store, later, ticket).0, ticket);
    let read = read(&store, &key).unwrap();
    let who = keys::said(&read.value, read.created).unwrap();
    assert_eq!((read.created, who.token, who.asked), (ticket, later, None));
    assert_eq!(give(&other, held, fence), Reply::Given);
    let store::Notice::Granted { token, fence, .. } = told(&store) else {
        panic!("its place is another one");
    };
    assert_eq!((token, Some(fence)), (later, keys::first_fence(ticket)));
}

#[test]
fn c10_a_holder_that_was_asked_passes_the_rest_of_its_cohort_its_ticket() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let (before, after) = (token(), token());
    let fence = taken(&store, before);
    let key = store.own_keys.get(before).unwrap().key;
    listens(&other);
    joined(&other, token(), 0);
    asks(&other, &key);
    let place = Place::Join(keys::created(fence));
    let take = Request::Take { name: b"n", token: after, ttl: TTL, place, block: 1 };
    let give = Request::Give { name: b"n", token: before, fence, ttl: TTL };
    let done = store.run(Lane::Caller, &[take, give], by());
    let replies: Vec<_> = done.into_iter().map(|outcome| outcome.unwrap().reply).collect();
    assert_eq!(replies, [Reply::Granted { fence: fence + 1, block: 1 }, Reply::Given]);
    let read = read(&store, &key).unwrap();
    assert!(keys::is_of(&read, after) && read.created == keys::created(fence));
}

#[test]
fn c10_a_window_that_is_over_is_no_promise_and_the_lock_is_taken_from_its_place() {
    let etcd = Etcd::start();
    let (store, other, held, waiter) = (open(&etcd.url()), open(&etcd.url()), token(), token());
    let fence = taken(&other, held);
    let ear = listens(&store);
    let (ticket, _) = joined(&store, waiter, 0);
    let place = store.own_keys.get(waiter).unwrap();
    // Its ear was renewed long ago.
    let ahead = Some(other.own_keys.get(held).unwrap().key);
    let OwnKey { key, created, modified, .. } = place;
    let wait = Wait { key, created, modified, ..wait(b"n".to_vec(), ahead) };
    assert!(store.listener.follow(ear, waiter, wait, modified));
    assert_eq!(give(&other, held, fence), Reply::Given);
    assert_eq!(told(&store), store::Notice::Free { name: b"n".to_vec(), token: waiter });
    assert!(store.own_keys.take_ended(Moment::now(), 16).is_empty(), "its place would be ended");
    let Reply::Granted { fence, .. } = take(&store, waiter, Place::Join(ticket)).unwrap().reply
    else {
        panic!("it has lost its turn");
    };
    assert_eq!(Some(fence), keys::first_fence(ticket));
}
