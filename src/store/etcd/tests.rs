//! Rule by rule, on a server of its own.

mod again;
mod bounds;
mod foreign;
mod passing;

use std::time::Duration;

use kit::{Etcd, Mode, Proxy};

use super::own_keys::OwnKey;
use super::waits::Wait;
use super::*;
use crate::config::StoreConfig;
use crate::store::listing::{Bookmark, Wanted};
use crate::store::{self, Admin, Place, Reach};

const TTL: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(20);

fn open(url: &str) -> EtcdStore {
    // Places outlast a machine that is busy for a while.
    opened(url, LIMIT)
}

fn opened(url: &str, claim_window: Duration) -> EtcdStore {
    let config = Config::from_url(url).unwrap().claim_window(claim_window);
    let StoreConfig::Etcd(etcd) = &config.store else { panic!("{url}") };
    EtcdStore::new(etcd, &config).unwrap()
}

fn by() -> Deadline {
    Deadline::after(LIMIT)
}

fn token() -> Token {
    Token::random().unwrap()
}

fn take(store: &EtcdStore, token: Token, place: Place) -> Outcome {
    let take = Request::Take { name: b"n", token, ttl: TTL, place, block: 1 };
    store.ask(Lane::Caller, take, by())
}

/// Its fence.
fn taken(store: &EtcdStore, token: Token) -> u64 {
    match take(store, token, Place::Try).unwrap().reply {
        Reply::Granted { fence, .. } => fence,
        other => panic!("{other:?}"),
    }
}

/// Its ticket, and how many waiters stand before it.
fn joined(store: &EtcdStore, token: Token, ticket: u64) -> (u64, u32) {
    match take(store, token, Place::Join(ticket)).unwrap().reply {
        Reply::Busy { ticket, rank, .. } => (ticket, rank),
        other => panic!("{other:?}"),
    }
}

fn extend(store: &EtcdStore, (token, fence): (Token, u64), ttl: Duration) -> Outcome {
    let extend = Request::Extend { name: b"n", token, fence, ttl, reach: Reach::Grow };
    store.ask(Lane::Caller, extend, by())
}

fn give(store: &EtcdStore, token: Token, fence: u64) -> Reply {
    let give = Request::Give { name: b"n", token, fence, ttl: TTL };
    store.ask(Lane::Caller, give, by()).unwrap().reply
}

fn listens(store: &EtcdStore) -> i64 {
    store.listener.open(b"n", by()).unwrap();
    store.listener.ear().unwrap()
}

/// A place right behind the holder.
fn wait(name: Vec<u8>, ahead: Option<Vec<u8>>) -> Wait {
    Wait {
        name,
        key: b"own".to_vec(),
        created: 7,
        modified: 7,
        span: TTL,
        since: Moment::ZERO,
        ahead,
        is_next: true,
        watch: 0,
        from: 0,
    }
}

fn holder(store: &EtcdStore) -> Option<crate::store::Holder> {
    store.inspect(b"n", by()).unwrap().holder
}

#[test]
fn c1_an_end_that_comes_late_ends_no_grant_that_was_extended_meanwhile() {
    let etcd = Etcd::start();
    let (store, token) = (open(&etcd.url()), token());
    let fence = taken(&store, token);
    let late = Moment::now().plus(TTL * 2);
    let ended = store.own_keys.take_ended(late, 16);
    let [(_, own)]: &[(Token, OwnKey); 1] = ended[..].try_into().unwrap();
    assert!(store.own_keys.take_ended(late, 16).is_empty(), "each is told once");
    assert_eq!(extend(&store, (token, fence), TTL).unwrap().reply, Reply::Extended);
    let ends = || {
        store.on_wire(Lane::Keeper, by(), |wire, by| {
            store.delete(wire, &store.name(b"n"), (token, own), fence, by)
        })
    };
    assert_eq!(ends().unwrap(), None);
    assert_eq!(holder(&store).unwrap().fence, Some(fence));
    assert_eq!(give(&store, token, fence), Reply::Given);
}

#[test]
fn c1_a_renewal_counts_only_while_the_grant_is_not_being_ended() {
    let etcd = Etcd::start();
    let (store, token) = (open(&etcd.url()), token());
    let fence = taken(&store, token);
    let extend = Request::Extend { name: b"n", token, fence, ttl: TTL, reach: Reach::Grow };
    let renewals = store.renewals(&[extend, extend]);
    assert_eq!(renewals.len(), 2);
    store.own_keys.take_ended(Moment::now().plus(TTL * 2), 16);
    assert!(store.renewals(&[extend]).is_empty());
    // Of what is no renewal any more nobody says that it is not ours.
    for outcome in store.renew_all(Lane::Keeper, &renewals, by()) {
        let failure = outcome.unwrap_err();
        assert!(failure.sent.is_some() && failure.error.is_retriable(), "{failure:?}");
    }
    assert_eq!(store.ask(Lane::Keeper, extend, by()).unwrap().reply, Reply::Extended);
}

#[test]
fn c3_an_extension_cuts_nothing_that_an_unknown_one_may_have_promised() {
    let etcd = Etcd::start();
    let (store, other, token) = (open(&etcd.url()), open(&etcd.url()), token());
    let fence = taken(&store, token);
    // As if the first store had sent it and heard nothing.
    let long = Duration::from_secs(600);
    assert_eq!(extend(&other, (token, fence), long).unwrap().reply, Reply::Extended);
    assert!(extend(&store, (token, fence), TTL).unwrap_err().sent.is_some());
    assert_eq!(extend(&store, (token, fence), TTL).unwrap().reply, Reply::Extended);
    let name = store.name(b"n");
    let (_, lives) = store.looked(&name, 1, by()).unwrap().unwrap();
    assert!(lives.seconds > 500, "{lives:?}");
}

#[test]
fn c1_what_an_earlier_copy_has_passed_on_counts_from_a_new_lease() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let (from, to) = (token(), token());
    let fence = taken(&store, from);
    let reach = Reach::Pass(to);
    let pass = Request::Extend { name: b"n", token: from, fence, ttl: TTL, reach };
    assert_eq!(other.ask(Lane::Caller, pass, by()).unwrap().reply, Reply::Extended);
    let modified = || other.own_keys.get(to).unwrap().modified;
    let before = modified();
    std::thread::sleep(Duration::from_millis(1100));
    let third = open(&etcd.url());
    assert_eq!(third.ask(Lane::Caller, pass, by()).unwrap().reply, Reply::Extended);
    let own = third.own_keys.get(to).unwrap();
    assert!(own.modified > before, "it was written anew");
    assert_eq!(give(&third, to, fence), Reply::Given);
}

#[test]
fn c1_no_window_is_promised_for_a_place_under_an_ear_that_may_end() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    taken(&other, token());
    let (waiter, first) = (token(), listens(&store));
    let (ticket, _) = joined(&store, waiter, 0);
    store.listener.end(first);
    let second = listens(&store);
    assert_ne!(first, second);
    let own = store.own_keys.get(waiter).unwrap();
    assert_eq!(own.ear, first);
    assert!(own.until != Moment::NEVER, "it is forgotten some time");
    let follows = |ear| {
        let (name, ahead) = (b"n".to_vec(), Some(b"ahead".to_vec()));
        let wait = wait(name, ahead);
        store.listener.follow(ear, waiter, wait, own.modified)
    };
    assert!(!follows(first) && follows(second));
    // A look does not follow it either: it is put under the new ear first.
    store.listener.forget(waiter);
    assert_eq!(joined(&store, waiter, ticket).0, ticket);
    let own = store.own_keys.get(waiter).unwrap();
    assert_eq!((own.ear, own.until), (second, Moment::NEVER));
}

#[test]
fn a_place_that_was_perhaps_taken_over_leaves_no_ear_on() {
    let etcd = Etcd::start();
    let mut proxy = Proxy::start(etcd.port(0));
    let store = open(&format!("etcd://127.0.0.1:{}", proxy.port()));
    let other = open(&etcd.url());
    taken(&other, token());
    listens(&store);
    let (ticket, _) = joined(&store, token(), 0);
    let later = token();
    let name = store.name(b"n");
    let ear = store.listener.ear().unwrap();
    assert!(store.own_keys.created(&name.all, ticket).is_some() && ear != 0);
    proxy.set(Mode::SwallowReplies);
    let take =
        Request::Take { name: b"n", token: later, ttl: TTL, place: Place::Join(ticket), block: 1 };
    let outcome = store.ask(Lane::Caller, take, Deadline::after(Duration::from_millis(300)));
    assert!(outcome.unwrap_err().sent.is_some());
    assert_eq!(store.listener.ear(), None);
}

#[test]
fn a_lease_that_was_kept_and_is_gone_is_used_for_nothing() {
    let etcd = Etcd::start();
    let (store, one) = (open(&etcd.url()), token());
    let fence = taken(&store, one);
    assert_eq!(give(&store, one, fence), Reply::Given);
    let leases = etcd.ctl(&["lease", "list"]);
    for lease in leases.lines().skip(1) {
        etcd.ctl(&["lease", "revoke", lease.trim()]);
    }
    taken(&store, token());
}

#[test]
fn who_waits_knows_how_many_stand_before_it() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let fence = taken(&other, token());
    listens(&store);
    let waiters = [token(), token(), token()];
    let tickets = waiters.map(|waiter| joined(&store, waiter, 0));
    assert_eq!(tickets.map(|(_, rank)| rank), [0, 1, 2]);
    assert!(fence < tickets[0].0 * 1024);
    // Those behind do not count.
    let again = [0, 1, 2].map(|at| joined(&store, waiters[at], tickets[at].0));
    assert_eq!(again, tickets);
    assert_ne!(give(&store, waiters[0], 0), Reply::Given);
    let again = [1, 2].map(|at| joined(&store, waiters[at], tickets[at].0).1);
    assert_eq!(again, [0, 1]);
}

#[test]
fn a_name_with_more_waiters_than_a_page_has_is_listed_once() {
    use crate::store::glob::Glob;
    use crate::store::listing::PAGE;

    let etcd = Etcd::start();
    let store = open(&etcd.url());
    let fence = taken(&store, token());
    listens(&store);
    for _ in 0..PAGE {
        joined(&store, token(), 0);
        // Places end with an ear that nobody keeps.
        store.listener.hear(Moment::now()).unwrap();
    }
    for name in [&b"a"[..], b"z/%"] {
        let take = Request::Take { name, token: token(), ttl: TTL, place: Place::Try, block: 1 };
        store.ask(Lane::Caller, take, by()).unwrap();
    }
    // Nothing of ours.
    etcd.ctl(&["put", "leasehold/lock/m", "x"]);
    let wanted = Wanted { glob: Glob::new(b"*"), is_all: false };
    let (mut from, mut all) = (Bookmark::default(), Vec::new());
    loop {
        let page = store.list(&wanted, &from, by()).unwrap();
        all.extend(page.listed);
        let Some(next) = page.next else { break };
        assert_ne!(next, from);
        from = next;
    }
    let names: Vec<_> = all.iter().map(|listed| &listed.name[..]).collect();
    assert_eq!(names, [&b"a"[..], b"n", b"z/%"]);
    assert_eq!((all[1].waiting, all[1].state.last_fence), (Some(PAGE as u64), Some(fence)));
}

#[test]
fn a_break_is_told_from_one_of_an_earlier_place_of_the_same_token() {
    let etcd = Etcd::start();
    let (store, operator, token) = (open(&etcd.url()), open(&etcd.url()), token());
    let whose = || operator.held(b"n", by()).unwrap().unwrap();
    let fence = taken(&store, token);
    let first = whose();
    assert_eq!(first.fence, Some(fence));
    for _ in 0..2 {
        assert!(operator.break_grant(&first, b"me", by()).unwrap(), "it was this that did it");
    }
    let later = taken(&store, token);
    let second = whose();
    assert_eq!(give(&store, token, later), Reply::Given);
    assert!(!operator.break_grant(&second, b"me", by()).unwrap(), "it was given");
}

#[test]
fn c10_who_has_lost_its_place_is_not_taken_for_one_who_waits() {
    let etcd = Etcd::start();
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    taken(&other, token());
    listens(&store);
    let lost: [fn(&EtcdStore, Token, u64) -> Reply; 2] =
        [give, |store, token, fence| extend(store, (token, fence), TTL).unwrap().reply];
    for lose in lost {
        let waiter = token();
        let (ticket, _) = joined(&store, waiter, 0);
        assert_eq!(store.listener.waits_for(b"n"), Some(waiter));
        let key = store.own_keys.get(waiter).unwrap().key;
        etcd.ctl(&["del", std::str::from_utf8(&key).unwrap()]);
        let fence = keys::first_fence(ticket).unwrap();
        assert_eq!(lose(&store, waiter, fence), Reply::NotMine);
        assert_eq!(store.listener.waits_for(b"n"), None);
        assert_eq!(store.free_in(b"n", by()).unwrap(), UNTOLD);
    }
}

#[test]
fn a_break_that_came_too_late_leaves_its_lease_to_the_next() {
    let etcd = Etcd::start();
    let (store, operator, token) = (open(&etcd.url()), open(&etcd.url()), token());
    let leases = || etcd.ctl(&["lease", "list"]).lines().count();
    let fence = taken(&store, token);
    let grant = operator.held(b"n", by()).unwrap().unwrap();
    let before = leases();
    let lease = operator.on_wire(Lane::Caller, by(), |wire, by| {
        operator.leases.take(wire, grant.left + admin::REMEMBERED, by)
    });
    operator.leases.put_back(lease.unwrap());
    assert!(operator.break_grant(&grant, b"me", by()).unwrap());
    assert_eq!(leases(), before + 1);
    assert_ne!(give(&store, token, fence), Reply::Given);
}

/// What a waiter is told; nothing is, for a while, if `is_told` is false.
fn hear(store: &EtcdStore, is_told: bool) -> Option<store::Notice> {
    let until = Moment::now().plus(if is_told { LIMIT } else { Duration::from_millis(200) });
    while Moment::now() < until {
        if let Some((_, notice)) = store.listener.hear(until).unwrap().pop() {
            return Some(notice);
        }
    }
    None
}

#[test]
fn c10_a_waiter_behind_others_is_told_of_its_turn_however_they_leave() {
    let etcd = Etcd::start();
    let stores = [(); 4].map(|()| open(&etcd.url()));
    for (leaves_first, gives_to_next) in [(false, true), (true, false)] {
        let tokens = [(); 4].map(|()| token());
        let mut fences = [taken(&stores[0], tokens[0]), 0, 0, 0];
        let mut tickets = [0; 4];
        for at in 1..4 {
            listens(&stores[at]);
            (tickets[at], _) = joined(&stores[at], tokens[at], 0);
            fences[at] = keys::first_fence(tickets[at]).unwrap();
        }
        let revision = || store_revision(&stores[0]);
        let is_told = |at: usize| match hear(&stores[at], true) {
            Some(store::Notice::Granted { token, fence, .. }) => {
                assert_eq!((token, fence), (tokens[at], fences[at]));
            }
            other => panic!("{other:?}"),
        };
        // Who stands in between leaves the queue before its turn.
        if leaves_first {
            assert_eq!(give(&stores[2], tokens[2], 0), Reply::NotMine);
            assert_eq!(hear(&stores[3], false), None);
        }
        assert_eq!(give(&stores[0], tokens[0], fences[0]), Reply::Given);
        is_told(1);
        let before = revision();
        assert_eq!(give(&stores[1], tokens[1], fences[1]), Reply::Given);
        if gives_to_next {
            is_told(2);
            assert_eq!(give(&stores[2], tokens[2], fences[2]), Reply::Given);
        }
        is_told(3);
        let gives = if gives_to_next { 2 } else { 1 };
        assert_eq!(revision(), before + gives, "nobody had to write in order to know");
        assert_eq!(give(&stores[3], tokens[3], fences[3]), Reply::Given);
    }
}

fn store_revision(store: &EtcdStore) -> u64 {
    let any = Txn::default().then(Op::get(b"any"));
    let done = store.on_wire(Lane::Caller, by(), |wire, by| transact(wire, &any, by));
    done.unwrap().0.revision
}
