//! Keys that are nobody's, and places that are not what they were.

use super::*;
use crate::store::glob::Glob;
use crate::store::listing::PAGE;

#[test]
fn a_foreign_key_at_the_end_of_a_page_hides_no_name() {
    let etcd = Etcd::start();
    let store = open(&etcd.url());
    for number in 1..PAGE {
        put(&store, &format!("leasehold/lock/a{number:03}"), "x");
    }
    put(&store, "leasehold/lock/m", "x");
    for name in [&b"m\0"[..], b"ma"] {
        let take = Request::Take { name, token: token(), ttl: TTL, place: Place::Try, block: 1 };
        store.ask(Lane::Caller, take, by()).unwrap();
    }
    // Among the keys of a name.
    put(&store, "leasehold/lock/ma/0", "x");
    put(&store, "leasehold/lock/ma/~", "x");
    let wanted = Wanted { glob: Glob::new(b"*"), is_all: true };
    let first = store.list(&wanted, &Bookmark::default(), by()).unwrap();
    assert!(first.listed.is_empty());
    let second = store.list(&wanted, &first.next.unwrap(), by()).unwrap();
    let all: Vec<_> = second.listed.iter().map(|one| (&*one.name, one.waiting)).collect();
    assert_eq!(all, [(&b"m\0"[..], Some(0)), (b"ma", Some(2))]);
    assert!(second.next.is_none());
}

fn put(store: &EtcdStore, key: &str, value: &str) {
    let put = Txn::default().then(Op::put(key.as_bytes(), value.as_bytes(), 0));
    store.on_wire(Lane::Caller, by(), |wire, by| transact(wire, &put, by)).unwrap();
}

fn refused(store: &EtcdStore, token: Token, place: Place) {
    let failure = take(store, token, place).unwrap_err();
    assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::WrongType, None));
}

#[test]
fn c13_a_name_that_has_a_foreign_key_is_no_lock() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    put(&store, "leasehold/lock/n/theirs", "x");
    refused(&store, token(), Place::Try);
    listens(&store);
    refused(&store, token(), Place::Join(0));
    assert_eq!(store.listener.waits_for(b"n"), None);
    // It is in the way, and no lease ends it.
    let seen = store.inspect(b"n", by()).unwrap();
    assert_eq!((seen.waiters.len(), seen.holder.unwrap().ttl), (0, UNTOLD));
    etcd.ctl(&["del", "leasehold/lock/n/theirs"]);
    // A later one is in the way of those behind it.
    let (holder, waiter) = (token(), token());
    let fence = taken(&other, holder);
    let (ticket, _) = joined(&store, waiter, 0);
    put(&store, "leasehold/lock/n/theirs", "x");
    refused(&store, token(), Place::Join(0));
    assert_eq!(joined(&store, waiter, ticket), (ticket, 0));
    assert_eq!(give(&other, holder, fence), Reply::Given);
    assert!(matches!(hear(&store, true), Some(store::Notice::Granted { .. })));
    let fence = keys::first_fence(ticket).unwrap();
    assert_eq!(give(&store, waiter, fence), Reply::Given);
    refused(&other, token(), Place::Try);
}

#[test]
fn c13_who_waits_behind_a_key_that_turns_out_foreign_is_told_to_look() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let [holder, between, waiter] = [(); 3].map(|()| token());
    taken(&other, holder);
    listens(&other);
    joined(&other, between, 0);
    listens(&store);
    let (ticket, _) = joined(&store, waiter, 0);
    // The holder's key becomes somebody's, and who stands in between leaves.
    let key = other.own_keys.get(holder).unwrap().key;
    put(&store, std::str::from_utf8(&key).unwrap(), "x");
    assert_eq!(give(&other, between, 0), Reply::NotMine);
    assert_eq!(
        hear(&store, true),
        Some(store::Notice::Free { name: b"n".to_vec(), token: waiter })
    );
    refused(&store, waiter, Place::Join(ticket));
    assert_eq!(store.inspect(b"n", by()).unwrap().waiters.len(), 0);
}

#[test]
fn c2_a_place_that_was_taken_anew_has_the_fences_of_the_new_one() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let (holder, waiter) = (token(), token());
    let fence = taken(&other, holder);
    listens(&store);
    let (ticket, _) = joined(&store, waiter, 0);
    let key = store.own_keys.get(waiter).unwrap().key;
    etcd.ctl(&["del", std::str::from_utf8(&key).unwrap()]);
    let (later, _) = joined(&store, waiter, ticket);
    assert!(later > ticket);
    assert_eq!(give(&other, holder, fence), Reply::Given);
    let Some(store::Notice::Granted { fence, .. }) = hear(&store, true) else { panic!() };
    assert_eq!(Some(fence), keys::first_fence(later));
    assert_eq!(give(&store, waiter, fence), Reply::Given);
}

#[test]
fn c10_who_listens_gets_another_token_when_the_server_has_forgotten_the_first() {
    let etcd = Etcd::start_with(1, &["--auth-token-ttl=1"]);
    let store = open(&format!("etcd://root:root@{}", etcd.hosts()));
    etcd.ctl(&["user", "add", "root:root"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    listens(&store);
    store.listener.end(0);
    std::thread::sleep(Duration::from_secs(3));
    let error = store.listener.open(b"n", by()).unwrap_err();
    assert!(fault::is_lost_token(error.detail()) && error.is_retriable(), "{error}");
    kit::eventually(LIMIT, || store.listener.open(b"n", by()).is_ok());
    // So does who is refused to be told of a key, for the same reason.
    std::thread::sleep(Duration::from_secs(3));
    let (name, ahead) = (b"n".to_vec(), Some(b"leasehold/lock/n/x".to_vec()));
    let wait = super::wait(name, ahead);
    assert!(store.listener.follow(store.listener.ear().unwrap(), token(), wait, 0));
    let error = store.listener.hear(Moment::now().plus(LIMIT)).map(drop).unwrap_err();
    assert!(error.is_retriable(), "{error}");
    store.listener.open(b"n", by()).unwrap();
}

#[test]
fn c7_nobody_waits_while_a_server_that_stands_still_is_asked_to_tell() {
    let etcd = Etcd::start();
    let store = open(&format!("{}?io_timeout=20s", etcd.url()));
    let other = open(&etcd.url());
    let holder = token();
    let fence = taken(&other, holder);
    let key = other.own_keys.get(holder).unwrap().key;
    let ear = listens(&store);
    etcd.process(0).stop();
    let start = Moment::now();
    let follow = |token, ahead, revision| {
        let (name, ahead) = (b"n".to_vec(), Some(ahead));
        let wait = super::wait(name, ahead);
        assert!(store.listener.follow(ear, token, wait, revision));
    };
    // More than its window takes, and more than the socket does.
    (0..64).for_each(|_| follow(token(), vec![b'x'; 100_000], 1 << 40));
    let waiter = token();
    follow(waiter, key, 0);
    let spent = Moment::now().since(start);
    etcd.process(0).cont();
    assert!(spent < Duration::from_secs(5), "{spent:?}");
    // All of it goes out then.
    assert_eq!(give(&other, holder, fence), Reply::Given);
    use store::Notice::{Free, Granted};
    let told = hear(&store, true);
    // It has no place: who is asked may say so.
    assert!(matches!(told, Some(Granted { token, .. } | Free { token, .. }) if token == waiter));
}
