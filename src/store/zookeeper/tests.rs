//! Against a peer that says what a real ensemble would have to be caught saying.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;

use super::jute::code;
use super::names::ROOT;
use super::*;
use crate::config::StoreConfig;
use crate::store::{Place, Reach, Reply};

pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// What the peer hears: on which connection, the kind of request (0: the first message of a connection), and
/// all of it.
pub(super) struct Heard {
    pub(super) connection: usize,
    pub(super) kind: i32,
    pub(super) message: Vec<u8>,
}

impl Heard {
    pub(super) fn has(&self, text: &str) -> bool {
        self.message.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

pub(super) enum Says {
    /// To the first message: for so many milliseconds the session lives; 0: it is over.
    Welcome(i32),
    Reply {
        zxid: i64,
        code: i32,
        body: Vec<u8>,
    },
    Nothing,
    HangUp,
}

pub(super) const fn done(body: Vec<u8>) -> Says {
    Says::Reply { zxid: 0, code: 0, body }
}

pub(super) const fn refused(code: i32) -> Says {
    Says::Reply { zxid: 0, code, body: Vec::new() }
}

pub(super) fn bytes(value: &[u8]) -> Vec<u8> {
    [&(value.len() as i32).to_be_bytes(), value].concat()
}

/// A node as a change of this number at this time left it.
fn stat(changed: i64, at: i64) -> Vec<u8> {
    let longs = [changed, changed, at, at].map(i64::to_be_bytes).concat();
    [longs, vec![0; 36]].concat()
}

fn children(names: &[&str]) -> Vec<u8> {
    children_of(1, names)
}

/// Those of a node that this change made.
fn children_of(made: i64, names: &[&str]) -> Vec<u8> {
    let list: Vec<_> = names.iter().flat_map(|name| bytes(name.as_bytes())).collect();
    let count = names.len() as i32;
    [count.to_be_bytes().to_vec(), list, stat(made, 1)].concat()
}

/// Several changes at once, the last of which set a node.
fn set(changed: i64, at: i64) -> Vec<u8> {
    let end = [&[0xff; 4][..], &[1], &[0xff; 4]].concat();
    [[0, 0, 0, 5, 0, 0, 0, 0, 0].to_vec(), stat(changed, at), end].concat()
}

fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

/// One connection at a time. The root is there, and whatever else is as `says` has it.
pub(super) fn peer(mut says: impl FnMut(&Heard) -> Says + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("zookeeper://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let (mut stream, mut is_first) = (stream.unwrap(), true);
            while let Some(message) = read(&mut stream) {
                let kind = if is_first { [0; 4] } else { message[4..8].try_into().unwrap() };
                let heard = Heard { connection, kind: i32::from_be_bytes(kind), message };
                let (xid, is_root) =
                    (&heard.message[..4], heard.message.ends_with(b"/leasehold\0"));
                let said = match says(&heard) {
                    _ if !is_first && is_root && xid == [0; 4] => done(root()),
                    said => said,
                };
                let answer = match said {
                    Says::Welcome(timeout) => {
                        let times = [0, timeout].map(i32::to_be_bytes).concat();
                        [times, 7_i64.to_be_bytes().to_vec(), bytes(&[1; 16]), vec![0]].concat()
                    }
                    Says::Reply { zxid, code, body } => {
                        [xid, &zxid.to_be_bytes(), &code.to_be_bytes(), &body].concat()
                    }
                    Says::Nothing => continue,
                    Says::HangUp => break,
                };
                is_first = false;
                if stream.write_all(&bytes(&answer)).is_err() {
                    break;
                }
            }
        }
    });
    url
}

fn root() -> Vec<u8> {
    [bytes(ROOT.as_bytes()), stat(1, 1)].concat()
}

pub(super) fn config(url: &str) -> (ZookeeperConfig, Config) {
    let all = Config::from_url(url).unwrap().io_timeout(Duration::from_secs(10));
    let StoreConfig::Zookeeper(zookeeper) = &all.store else { panic!() };
    ((**zookeeper).clone(), all)
}

fn store(says: impl FnMut(&Heard) -> Says + Send + 'static) -> ZookeeperStore {
    let (zookeeper, all) = config(&peer(says));
    ZookeeperStore::new(&zookeeper, &all).unwrap()
}

const CREATE: i32 = 15;
const DELETE: i32 = 2;
const GET: i32 = 4;
const SYNC: i32 = 9;
const CHILDREN: i32 = 12;
const MULTI: i32 = 14;

#[test]
fn c5_what_a_server_does_not_know_yet_is_not_taken_for_gone() {
    let token = Token::random().unwrap();
    let own = format!("l-{token}");
    // This server lags until it is told not to.
    let says = move |mut is_awaited: bool| {
        let (own, mut is_behind) = (own.clone(), true);
        move |heard: &Heard| match heard.kind {
            0 => Says::Welcome(10_000),
            SYNC => {
                is_behind = false;
                done(Vec::new())
            }
            GET | CHILDREN if is_behind => refused(code::NO_NODE),
            GET => done([bytes(b"60000"), stat(5, 1)].concat()),
            CHILDREN => done(children(&[&own])),
            // The leader knows.
            MULTI if heard.has(&own) && std::mem::take(&mut is_awaited) => refused(code::NOT_EMPTY),
            _ => done(set(6, 2)),
        }
    };
    let (name, ttl) = (b"n".as_slice(), Duration::from_secs(60));
    let give = Request::Give { name, token, fence: 5, ttl };
    let (giver, extender) = (store(says(true)), store(says(false)));
    let ask = |store: &ZookeeperStore, request| {
        store.ask(Lane::Caller, request, Deadline::after(LIMIT)).unwrap().reply
    };
    assert_eq!(ask(&giver, give), Reply::Given);
    let extend = Request::Extend { name, token, fence: 5, ttl, reach: Reach::Grow };
    assert_eq!(ask(&extender, extend), Reply::Extended);
}

#[test]
fn c10_a_place_that_became_the_lock_meanwhile_is_given() {
    let (token, other) = (Token::random().unwrap(), format!("l-{}", Token::random().unwrap()));
    let (own, place) = (format!("l-{token}"), format!("w-{token}-1000-0000000005"));
    let mut is_handed = false;
    let (gives, given) = channel();
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN if is_handed => done(children(&[&own])),
        CHILDREN => done(children(&[&other, &place])),
        // Just before, the holder has handed it over.
        DELETE => {
            is_handed = true;
            refused(code::NO_NODE)
        }
        MULTI if is_handed && heard.has(&own) => {
            gives.send(()).unwrap();
            done(set(6, 2))
        }
        _ => done(Vec::new()),
    });
    let give = Request::Give { name: NAME, token, fence: 0, ttl: MINUTE };
    let reply = store.ask(Lane::Caller, give, Deadline::after(LIMIT)).unwrap().reply;
    assert_eq!((reply, given.try_iter().count()), (Reply::Given, 1));
}

const NAME: &[u8] = b"n";
const MINUTE: Duration = Duration::from_secs(60);

fn take(store: &ZookeeperStore, token: Token, place: Place) -> Reply {
    let take = Request::Take { name: NAME, token, ttl: MINUTE, place, block: 0 };
    store.ask(Lane::Caller, take, Deadline::after(LIMIT)).unwrap().reply
}

fn held() -> Says {
    done([bytes(b"60000"), stat(5, 1)].concat())
}

#[test]
fn c1_a_name_without_a_holder_is_repaired_only_if_it_is_still_the_same() {
    let other = Token::random().unwrap();
    let mut has_come = false;
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN if has_come => done(children(&[&format!("l-{other}")])),
        // Between this answer and the next request the node goes, and another client makes it anew.
        CHILDREN => {
            has_come = true;
            done(children(&[]))
        }
        GET => held(),
        DELETE => refused(code::NOT_EMPTY),
        MULTI if heard.has("/n") && heard.message[8..12] == CREATE.to_be_bytes() => {
            refused(code::EXISTS)
        }
        // The other node has the same version.
        _ => done(set(6, 2)),
    });
    let reply = take(&store, Token::random().unwrap(), Place::Try);
    assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
}

#[test]
fn c10_an_old_place_does_not_count_in_a_node_that_was_made_anew() {
    let (token, other) = (Token::random().unwrap(), format!("l-{}", Token::random().unwrap()));
    let (stands, stood) = channel();
    let mut made = 1;
    let mut places = Vec::new();
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CREATE if heard.has("/w-") => {
            made = 2;
            let number = if heard.message.ends_with(&[3]) { "-0000000009" } else { "-0000000005" };
            places = vec![format!("w-{token}-1000{number}")];
            stands.send(number).unwrap();
            done([bytes(b"w"), stat(7, 2)].concat())
        }
        CHILDREN => {
            let all: Vec<_> = places.iter().chain([&other]).map(String::as_str).collect();
            done(children_of(made, &all))
        }
        GET => held(),
        DELETE => {
            places.clear();
            done(Vec::new())
        }
        3 => refused(code::NO_NODE),
        _ => done(set(6, 2)),
    });
    store.open(NAME, Deadline::after(LIMIT)).unwrap();
    let Reply::Busy { ticket, .. } = take(&store, token, Place::Join(1 << 32 | 5)) else {
        panic!()
    };
    assert_eq!(ticket, 2 << 32 | 9);
    assert_eq!(stood.try_iter().collect::<Vec<_>>(), ["-0000000005", "-0000000009"]);
}

#[test]
fn what_else_stands_in_the_node_of_a_name_is_told_at_once() {
    let token = Token::random().unwrap();
    let own = format!("l-{token}");
    let (tries, tried) = channel();
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN => done(children(&[&own, "odd"])),
        GET => held(),
        _ => {
            tries.send(()).unwrap();
            refused(code::NOT_EMPTY)
        }
    });
    let give = Request::Give { name: NAME, token, fence: 5, ttl: MINUTE };
    let failure = store.ask(Lane::Caller, give, Deadline::after(LIMIT)).unwrap_err();
    assert_eq!(failure.error.kind(), crate::ErrorKind::WrongType);
    assert_eq!(tried.try_iter().count(), 1);
}

#[test]
fn who_looks_again_lists_the_waiters_only_where_the_holder_is_another_one() {
    let own = format!("l-{}", Token::random().unwrap());
    let (lists, listed) = channel();
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN => {
            lists.send(()).unwrap();
            done(children(&[&own]))
        }
        GET => held(),
        _ => done(set(6, 2)),
    });
    store.note(NAME, true);
    for _ in 0..3 {
        assert_ne!(Store::free_in(&store, NAME, Deadline::after(LIMIT)).unwrap(), Duration::ZERO);
    }
    assert_eq!(listed.try_iter().count(), 1);
}

/// Of a node that stands since long ago: this change was its last one.
fn stat_since(changed: i64, at: i64, version: i32) -> Vec<u8> {
    let longs = [5, changed, 1, at].map(i64::to_be_bytes).concat();
    [longs, version.to_be_bytes().to_vec(), vec![0; 32]].concat()
}

#[test]
fn c10_a_dead_holder_is_over_after_its_ttl_however_many_leaders_date_it_anew() {
    let own = format!("l-{}", Token::random().unwrap());
    let mut term = 1;
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN => done(children(&[&own])),
        // Since the last look there was an election, and somebody came.
        GET => {
            term += 1;
            let dated = stat_since(term << 32 | 5, term * 1_000_000, term as i32);
            done([bytes(b"300 5 1"), dated].concat())
        }
        _ => done(set(term << 32 | 6, term * 1_000_000)),
    });
    store.note(NAME, true);
    let free_in = || Store::free_in(&store, NAME, Deadline::after(LIMIT)).unwrap();
    let begun = Moment::now();
    while !free_in().is_zero() {
        assert!(Moment::now().since(begun) < LIMIT, "each leader has counted it anew");
    }
}

#[test]
fn c1_a_holder_that_extends_its_lease_is_not_over_however_long_it_holds_it() {
    let own = format!("l-{}", Token::random().unwrap());
    let mut version = 1;
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN => done(children(&[&own])),
        GET => {
            version += 1;
            let text = if version % 2 == 0 { "100".into() } else { format!("100 5 {version}") };
            let at = i64::from(version) * 1_000_000;
            done([bytes(text.as_bytes()), stat_since(2 << 32 | 5, at, version)].concat())
        }
        _ => done(set(2 << 32 | 6, i64::from(version) * 1_000_000)),
    });
    store.note(NAME, true);
    let (began, mut looks) = (Moment::now(), 0);
    while Moment::now().since(began) < Duration::from_millis(400) || looks < 20 {
        assert!(!Store::free_in(&store, NAME, Deadline::after(LIMIT)).unwrap().is_zero());
        looks += 1;
    }
}

#[test]
fn a_sweep_reaches_every_name() {
    const COUNT: usize = 100;
    let names: Vec<_> = (0..COUNT).map(|at| format!("left{at:03}")).collect();
    let (sweeps, swept) = channel();
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN if heard.has("/left") => {
            sweeps.send(heard.message.clone()).unwrap();
            done(children(&[]))
        }
        _ => done(children(&names.iter().map(String::as_str).collect::<Vec<_>>())),
    });
    let by = Deadline::after(LIMIT);
    for round in 0..4 {
        store.step(by).sweep(u32::MAX / 2 + round * u32::from(names::FOLDERS)).unwrap();
    }
    let all: std::collections::HashSet<_> =
        swept.try_iter().map(|message| message[8..].to_vec()).collect();
    assert_eq!(all.len(), COUNT);
}

#[test]
fn a_record_that_outlives_its_client_is_swept_once_its_time_is_over() {
    let (removes, removed) = channel();
    let hour = 3_600_000;
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN if heard.has("~record") => done(children(&[])),
        CHILDREN => done(children(&["aa~record", "bb~record", "cc~record"])),
        GET if heard.has("aa~record") => done([bytes(b"1000 pid=1"), stat(7, 7)].concat()),
        GET if heard.has("bb~record") => done([bytes(b"99999999999 pid=1"), stat(7, 7)].concat()),
        GET => done([bytes(b"nothing of ours"), stat(7, 7)].concat()),
        DELETE => {
            removes.send(heard.message.clone()).unwrap();
            done(Vec::new())
        }
        _ => done(set(8, 2 * hour)),
    });
    let (begun, mut seen) = (Moment::now(), Vec::new());
    while !["aa~record", "cc~record"].iter().all(|it| seen.contains(it)) {
        assert!(Moment::now().since(begun) < LIMIT, "{seen:?}");
        let (token, ttl) = (Token::random().unwrap(), Duration::from_secs(60));
        let give = Request::Give { name: b"n", token, fence: 5, ttl };
        store.ask(Lane::Caller, give, Deadline::after(LIMIT)).unwrap();
        seen.extend(removed.try_iter().filter_map(|message| {
            let has = |it: &&str| message.windows(it.len()).any(|some| some == it.as_bytes());
            ["aa~record", "bb~record", "cc~record"].into_iter().find(has)
        }));
    }
    assert!(!seen.contains(&"bb~record"), "its time is not over");
}

/// What is left by holders that have ended, and by breaks of long ago, as another leader dated it.
#[test]
fn what_an_earlier_leader_dated_is_swept_as_well() {
    let token = Token::random().unwrap();
    let (dates, dated) = channel();
    let (removes, removed) = channel();
    let (own, hour) = (format!("l-{token}"), 3_600_000);
    let store = store(move |heard| match heard.kind {
        0 => Says::Welcome(10_000),
        CHILDREN if heard.has("/left") => done(children(&[&own])),
        CHILDREN if heard.has("~broken") => done(children(&[])),
        CHILDREN => done(children(&["left", "old~broken"])),
        GET if heard.has("~broken") => done([bytes(b"x"), stat(1 << 32 | 9, 7)].concat()),
        GET => done([bytes(b"100"), stat(1 << 32 | 9, 7)].concat()),
        MULTI if heard.has("/left/l-") => {
            dates.send(()).unwrap();
            done(set(2 << 32 | 8, 2 * hour))
        }
        // In the version that was seen.
        DELETE if heard.has("old~broken") && heard.message.ends_with(&[0; 4]) => {
            removes.send(()).unwrap();
            done(Vec::new())
        }
        CREATE | DELETE => refused(code::NO_NODE),
        _ => done(set(2 << 32 | 7, 2 * hour)),
    });
    let (begun, mut is_dated, mut is_removed) = (Moment::now(), false, false);
    // A sweep has little time, and on a busy machine a later one goes on.
    while !(is_dated && is_removed) {
        assert!(Moment::now().since(begun) < LIMIT, "dated: {is_dated}, removed: {is_removed}");
        let (token, ttl) = (Token::random().unwrap(), Duration::from_secs(60));
        let give = Request::Give { name: b"n", token, fence: 5, ttl };
        store.ask(Lane::Caller, give, Deadline::after(LIMIT)).unwrap();
        is_dated |= dated.try_recv().is_ok();
        is_removed |= removed.try_recv().is_ok();
    }
}
