//! A lock whose holder does not give it is freed by somebody else.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use crate::metrics::Samples;
use crate::stores::{LIMIT, Store, holder, ms, on_each_store, secs};
use kit::history::{judge, now};
use kit::{Dice, Hold, Server, eventually};
use leasehold::command::{break_shown, last_breach};
use leasehold::{Break, Client, Config, Error, ErrorKind, EventKind, LossReason};

on_each_store!(
    c2_a_lock_that_is_broken_is_free_and_its_next_fence_is_larger,
    c9_the_holder_of_a_broken_lock_is_told_who_did_it_at_its_next_renewal,
    c9_whatever_a_holder_does_next_says_who_broke_its_lock,
    c10_a_break_hands_the_lock_to_the_first_who_waits,
    a_break_ends_just_the_grant_that_was_meant,
    a_lease_that_was_left_taken_or_detached_is_broken_too,
    c1_c2_breaks_race_with_releases_renewals_and_those_who_wait,
);

const BY: &str = "root@desk-3";

fn broken(outcome: Result<Break, Error>) -> u64 {
    match outcome.unwrap() {
        Break::Broken { fence } => fence,
        other => panic!("{other:?}"),
    }
}

fn c2_a_lock_that_is_broken_is_free_and_its_next_fence_is_larger(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let lock = operator.lock("n");
    assert_eq!(lock.break_held(None, BY).unwrap(), Break::NotHeld);
    assert_eq!(last_breach(&lock).unwrap(), None);
    let lease = client.lock("n").acquire().unwrap();
    assert_eq!(broken(lock.break_held(None, BY)), lease.fence());
    assert_eq!(holder(&operator, "n"), None);
    let breach = last_breach(&lock).unwrap().expect("it is known");
    assert_eq!(breach.by, BY);
    // No clock of a server here is another one than ours.
    let ago = SystemTime::now().duration_since(breach.at).unwrap_or_default();
    assert!(ago < LIMIT, "{ago:?}");
    let next = lock.try_acquire().unwrap().expect("it is free");
    assert!(next.fence() > lease.fence());
    let error = lease.release().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    next.release().unwrap();
    assert_eq!(lock.break_held(None, BY).unwrap(), Break::NotHeld);
}

fn c9_the_holder_of_a_broken_lock_is_told_who_did_it_at_its_next_renewal(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let (sender, told) = channel();
    let events = client.events().unwrap();
    // Renewed after two seconds; in the other four it would run out.
    let lease = client.lock("n").ttl(secs(6)).acquire().unwrap();
    lease.on_lost(move |event| sender.send(event).unwrap()).unwrap();
    broken(operator.lock("n").break_held(Some(lease.fence()), BY));
    let event = told.recv_timeout(LIMIT).expect("it is told");
    assert_eq!(event.kind, EventKind::Lost(LossReason::Broken));
    let detail = event.detail.as_deref().unwrap();
    assert!(detail.starts_with("broken by an operator (root@desk-3) at 20"), "{detail}");
    assert_eq!(events.next_within(LIMIT).unwrap().as_ref(), Some(&event));
    assert!(!lease.is_valid());
    let error = lease.extend().unwrap_err();
    assert_eq!((error.kind(), error.detail()), (ErrorKind::Lost, &*format!("'n', {detail}")));
}

fn c9_whatever_a_holder_does_next_says_who_broke_its_lock(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let says = |name: &str, act: &dyn Fn(leasehold::Lease) -> Result<(), Error>| {
        let lease = client.lock(name).acquire().unwrap();
        broken(operator.lock(name).break_held(None, "eve\x1b[2J@desk"));
        let error = act(lease).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{name}");
        let detail = error.detail();
        let start = format!("'{name}', broken by an operator (eve\\u{{1b}}[2J@desk) at ");
        assert!(detail.starts_with(&start), "{detail}");
    };
    says("extended", &|lease| lease.extend());
    says("released", &leasehold::Lease::release);
    says("left", &|lease| lease.let_expire_in(secs(5)));
    says("detached", &|lease| lease.detach().map(drop));

    let events = client.events().unwrap();
    let lease = client.lock("dropped").acquire().unwrap();
    broken(operator.lock("dropped").break_held(None, BY));
    drop(lease);
    let event = events.next_within(LIMIT).unwrap().expect("it was late");
    assert_eq!(event.kind, EventKind::ReleasedLate);

    // Of a lease that was lost in another way nobody says so.
    let lease = client.lock("extended").ttl(ms(50)).renew(false).acquire().unwrap();
    eventually(LIMIT, || !lease.is_valid());
    let error = lease.extend().unwrap_err();
    assert!(!error.detail().contains("operator"), "{error}");
}

fn c10_a_break_hands_the_lock_to_the_first_who_waits(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let waiters = [store.client(), store.client()];
    let lease = client.lock("n").ttl(store.longest_ttl().min(secs(600))).acquire().unwrap();
    std::thread::scope(|scope| {
        let turns: Vec<_> = waiters
            .iter()
            .map(|waiter| {
                let turn =
                    scope.spawn(move || waiter.lock("n").acquire_within(LIMIT).unwrap().fence());
                let attempts = || waiter.counters().attempts;
                eventually(LIMIT, || attempts() > 1);
                turn
            })
            .collect();
        assert_eq!(broken(operator.lock("n").break_held(None, BY)), lease.fence());
        let fences: Vec<_> = turns.into_iter().map(|turn| turn.join().unwrap()).collect();
        assert!(fences.iter().all(|fence| *fence > lease.fence()), "{fences:?}");
        if !matches!(store, Store::Quorum(_)) {
            assert!(fences[0] < fences[1], "in the order of coming: {fences:?}");
        }
    });
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
}

fn a_break_ends_just_the_grant_that_was_meant(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let (one, other) = (client.lock("n"), operator.lock("n"));
    let first = one.acquire().unwrap();
    let fence = first.fence();
    first.release().unwrap();
    assert_eq!(other.break_held(Some(fence), BY).unwrap(), Break::NotHeld);
    let second = one.acquire().unwrap();
    for wrong in [fence, second.fence() + 1, 1] {
        let kept = Break::OtherFence { fence: second.fence() };
        assert_eq!(other.break_held(Some(wrong), BY).unwrap(), kept);
    }
    assert_eq!(holder(&operator, "n").unwrap().fence, Some(second.fence()));
    assert_eq!(broken(other.break_held(Some(second.fence()), BY)), second.fence());
    // Said again, it finds nothing, or what it did; never another one's lock.
    let third = one.acquire().unwrap();
    let kept = Break::OtherFence { fence: third.fence() };
    assert_eq!(other.break_held(Some(second.fence()), BY).unwrap(), kept);
    third.release().unwrap();
    let refused = operator.lock("").break_held(None, BY).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
}

fn a_lease_that_was_left_taken_or_detached_is_broken_too(store: &Store) {
    let (client, operator) = (store.client(), store.client());
    let left = client.lock("left").acquire().unwrap();
    let fence = left.fence();
    left.let_expire().unwrap();
    assert_eq!(broken(operator.lock("left").break_held(None, BY)), fence);
    let (token, fence) = client.lock("detached").acquire().unwrap().detach().unwrap();
    assert_eq!(broken(operator.lock("detached").break_held(Some(fence), BY)), fence);
    let attached = operator.lock("detached").attach(token, fence).unwrap();
    assert_eq!(attached.extend().unwrap_err().kind(), ErrorKind::Lost);
    for name in ["left", "detached"] {
        client.lock(name).try_acquire().unwrap().expect("it is free").release().unwrap();
    }
}

/// How many breaks are tried; `KIT_LONG` asks for ten thousand.
fn rounds(store: &Store) -> usize {
    match (std::env::var_os("KIT_LONG").is_some(), store) {
        (true, _) => 10_000,
        (false, Store::Redis(_)) => 600,
        (false, _) => 120,
    }
}

#[derive(Default)]
struct Told {
    holds: Vec<Hold>,
    /// Fences of leases whose release said that they were ours to the end, or were not.
    released: Vec<u64>,
    lost: Vec<u64>,
}

/// Each lease is either released or broken, whoever comes first, and nobody else has the lock before
/// that.
fn c1_c2_breaks_race_with_releases_renewals_and_those_who_wait(store: &Store) {
    // Whoever is fast may have given each grant before it is broken, for a while.
    let config = Config::from_url(&store.url()).unwrap().io_timeout(secs(60));
    let operator = Client::with_config(config).unwrap();
    let (over, told) = (AtomicBool::new(false), Mutex::new(Told::default()));
    // When each was asked for that ended a grant, and under which fence; and from when to when each call
    // took.
    let mut breaks: Vec<(Duration, u64)> = Vec::new();
    let mut calls: Vec<(Duration, Duration)> = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            // What is handed over does not run out on a busy machine before it is claimed.
            let config = Config::from_url(&store.url()).unwrap().io_timeout(secs(20));
            let client = Client::with_config(config.claim_window(secs(20))).unwrap();
            let (over, told) = (&over, &told);
            scope.spawn(move || take_turns(&client, &mut Dice::new(number), over, told));
        }
        // Also when a break fails: the others would go on for ever.
        let _ends = Ends(&over);
        let (lock, mut dice) = (operator.lock("n"), Dice::new(99));
        let wanted = rounds(store);
        let (mut tries, mut known) = (0, None);
        while breaks.len() < wanted / 2 || tries < wanted {
            tries += 1;
            std::thread::sleep(Duration::from_micros(dice.below(1500)));
            let asked = now();
            // Now and then one that arrives late: it is for a lease of a while ago.
            let if_fence = if dice.below(4) == 0 { known } else { None };
            let outcome = lock.break_held(if_fence, BY).unwrap();
            calls.push((asked, now()));
            match outcome {
                Break::Broken { fence } => breaks.push((asked, fence)),
                Break::OtherFence { fence } => known = Some(fence),
                _ => known = breaks.last().map(|(_, fence)| *fence),
            }
        }
    });
    let Told { mut holds, released, lost } = told.into_inner().unwrap();
    // From then on a lease is not relied on: only its holder does not know that yet. One that was
    // broken before it had come to its holder has been nobody's.
    let is_quorum = matches!(store, Store::Quorum(_));
    let broken_at = |hold: &Hold| {
        let exact = breaks.iter().find(|(_, fence)| *fence == hold.fence);
        // A break may look at members of a quorum that are told a larger fence before it ends the grant,
        // even before its holder has it; or it ends a grant on one member, and its holder gives it on
        // the others before the break comes there, and finds it over. A lease that was lost under none
        // of the fences that were told may have been over since the first call that met it.
        let first = || {
            let meets = |(asked, done): &&_| *asked <= hold.until && *done >= hold.asked;
            calls.iter().find(meets).map(|(asked, _)| *asked)
        };
        let found = exact.map(|(asked, _)| *asked);
        found.or_else(|| first().filter(|_| is_quorum && lost.contains(&hold.fence)))
    };
    holds.retain(|hold| broken_at(hold).is_none_or(|asked| hold.from < asked));
    for hold in &mut holds {
        hold.until = broken_at(hold).map_or(hold.until, |asked| hold.until.min(asked));
    }
    let wrong = judge(&holds);
    assert!(
        wrong.is_empty(),
        "{} of {} turns: {:?}; broken were {breaks:?} by {calls:?}, lost {lost:?}",
        wrong.len(),
        holds.len(),
        &wrong[0]
    );
    for (_, fence) in &breaks {
        assert!(!released.contains(fence), "the lease {fence} was broken and released");
    }
    for fence in &lost {
        let is_broken = breaks.iter().any(|(_, broken)| broken == fence);
        // A lease on two servers of three, of which a break ends one and a release the other, is over,
        // and neither of the two has done it.
        assert!(is_broken || is_quorum, "the lease {fence} was lost, and nobody broke it");
    }
    assert!(!released.is_empty() && !lost.is_empty(), "both happened");
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn take_turns(client: &Client, dice: &mut Dice, over: &AtomicBool, told: &Mutex<Told>) {
    let lock = client.lock("n").ttl(secs(60));
    while !over.load(Ordering::SeqCst) {
        let asked = now();
        let lease = match dice.below(3) {
            0 => match lock.try_acquire().unwrap() {
                Some(lease) => lease,
                None => continue,
            },
            _ => lock.acquire_within(LIMIT).unwrap(),
        };
        let mut hold = Hold::begin(asked, lease.fence());
        std::thread::sleep(Duration::from_micros(dice.below(1500)));
        if dice.below(3) == 0 && lease.extend().is_err() {
            let mut told = told.lock().unwrap();
            told.holds.push(hold);
            told.lost.push(hold.fence);
            continue;
        }
        hold.look(|| lease.is_valid());
        let released = lease.release();
        let mut told = told.lock().unwrap();
        told.holds.push(hold);
        match released {
            Ok(()) => told.released.push(hold.fence),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
                told.lost.push(hold.fence);
            }
        }
    }
}

/// The fences that a process has for its threads are all used up by a break.
#[test]
fn c2_no_fence_that_was_reserved_for_a_broken_lease_is_used_again() {
    let server = Server::start();
    let (client, operator) =
        (crate::stores::open(&server.url()), crate::stores::open(&server.url()));
    // Reserved far beyond the clock, so that time alone makes no fence large enough.
    let ahead = 1u64 << 52;
    server.cmd(&[
        "SET",
        "leasehold:{n}",
        &format!("0 {ahead} {ahead} {:032x}", 1),
        "PX",
        "90000000",
    ]);
    std::thread::scope(|scope| {
        let holder = operator.lock("n").acquire().unwrap();
        let waiting = scope.spawn(|| client.lock("n").acquire_within(LIMIT).unwrap());
        eventually(LIMIT, || server.cmd(&["ZCARD", "leasehold:queue:{n}"]) == redis::Value::Int(1));
        holder.release().unwrap();
        let lease = waiting.join().unwrap();
        broken(operator.lock("n").break_held(None, BY));
        let next = operator.lock("n").acquire().unwrap();
        assert!(next.fence() >= lease.fence() + 64, "{} after {}", next.fence(), lease.fence());
    });
}

#[test]
fn just_the_grant_that_was_shown_is_broken_also_where_no_fence_is_known() {
    let server = Server::start();
    let client = crate::stores::open(&server.url());
    let lock = client.lock("n");
    let first = lock.acquire().unwrap();
    server.cmd(&["DEL", "leasehold:{n}"]);
    let shown = holder(&client, "n").unwrap();
    assert_eq!(shown.fence, None);
    first.release().unwrap();
    let second = lock.acquire().unwrap();
    let kept = Break::OtherFence { fence: second.fence() };
    assert_eq!(break_shown(&lock, &shown, BY).unwrap(), kept);
    let shown = holder(&client, "n").unwrap();
    assert_eq!(broken(break_shown(&lock, &shown, BY)), second.fence());
    assert_eq!(break_shown(&lock, &shown, BY).unwrap(), Break::NotHeld);
}

/// What stands in its place is left there, and the lock is ended by its token.
#[test]
fn a_side_key_of_another_type_keeps_no_lock_from_being_broken() {
    let server = Server::start();
    let client = crate::stores::open(&server.url());
    let lease = client.lock("n").acquire().unwrap();
    server.cmd(&["DEL", "leasehold:{n}"]);
    server.cmd(&["RPUSH", "leasehold:{n}", "x"]);
    assert_eq!(client.lock("n").break_held(None, BY).unwrap(), Break::Broken { fence: 0 });
    assert_eq!(server.cmd(&["EXISTS", "n"]), redis::Value::Int(0));
    assert_eq!(server.cmd(&["LLEN", "leasehold:{n}"]), redis::Value::Int(1));
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
}

/// Members that say nothing cost the others no time that they need, whichever of them these are.
#[test]
fn a_quorum_with_silent_members_breaks_a_lock_in_a_short_time() {
    for silent in [[0, 1], [3, 4]] {
        let quorum = crate::stores::Quorum::start(5);
        let lease = quorum.client().lock("n").renew(false).acquire().unwrap();
        silent.iter().for_each(|at| quorum.nodes[*at].stop());
        let config = quorum.config().io_timeout(secs(10));
        let operator = Client::with_config(config).unwrap();
        let outcome = operator.lock("n").break_held(Some(lease.fence()), BY);
        silent.iter().for_each(|at| quorum.nodes[*at].cont());
        assert_eq!(broken(outcome), lease.fence());
    }
}

#[test]
fn most_of_a_quorum_know_who_has_broken_a_lock_last_and_fewer_do_not() {
    let mut quorum = crate::stores::Quorum::start(3);
    let (client, operator) = (quorum.client(), quorum.client());
    let _lease = client.lock("n").acquire().unwrap();
    let lock = operator.lock("n");
    broken(lock.break_held(None, BY));
    quorum.nodes[0].kill();
    assert_eq!(last_breach(&lock).unwrap().expect("it is known").by, BY);
    quorum.nodes[1].kill();
    assert_eq!(last_breach(&lock).unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// Also of one that its process has used for several threads.
#[test]
fn each_fence_of_a_grant_on_a_quorum_names_it() {
    let quorum = crate::stores::Quorum::start(3);
    // A turn may be over before the next thread has looked.
    let found = (0..20).any(|_| breaks_a_later_turn_of_a_grant(&quorum));
    assert!(found, "no grant had several fences");
}

fn breaks_a_later_turn_of_a_grant(quorum: &crate::stores::Quorum) -> bool {
    let (client, operator) = (quorum.client(), quorum.client());
    let lock = client.lock("n").ttl(secs(60));
    let first = operator.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        let turn = || {
            let lease = lock.acquire_within(LIMIT).unwrap();
            // The turns behind the one that was broken do not know of that yet.
            let Some(held) = holder(&operator, "n") else { return false };
            assert!(held.held.is_some_and(|since| since < LIMIT), "{held:?}");
            if held.fence != Some(lease.fence()) {
                let wrong = held.fence.unwrap() - 64;
                let kept = operator.lock("n").break_held(Some(wrong), BY).unwrap();
                assert!(matches!(kept, Break::OtherFence { .. }), "{kept:?}");
                let outcome = operator.lock("n").break_held(Some(lease.fence() + 1), BY);
                assert_eq!(broken(outcome), lease.fence());
                return true;
            }
            false
        };
        let turns = [scope.spawn(turn), scope.spawn(turn), scope.spawn(turn)];
        eventually(LIMIT, || Samples::of(&client).all("waiting") == 3.0);
        std::thread::sleep(ms(100));
        first.release().unwrap();
        let broke = turns.map(|turn| turn.join().unwrap());
        broke.contains(&true)
    })
}

/// One that was away for the last break knows an older one.
#[test]
fn the_newest_break_on_a_quorum_is_told() {
    let quorum = crate::stores::Quorum::start(3);
    let client = quorum.client();
    let break_by = |by: &str| {
        let lease = client.lock("n").acquire().unwrap();
        broken(client.lock("n").break_held(None, by));
        drop(lease);
    };
    break_by("one");
    let old = quorum.nodes[0].cmd(&["GET", "leasehold:broken:{n}"]);
    let redis::Value::BulkString(old) = old else { panic!("{old:?}") };
    break_by("two");
    let old = String::from_utf8(old).unwrap();
    quorum.nodes[0].cmd(&["SET", "leasehold:broken:{n}", &old, "PX", "60000"]);
    assert_eq!(last_breach(&client.lock("n")).unwrap().unwrap().by, "two");
}

#[test]
fn a_key_that_is_no_lock_of_ours_is_not_broken() {
    let server = Server::start();
    let client = crate::stores::open(&server.url());
    for (key, value) in
        [("text", "an application's own"), ("hex", "0123456789ABCDEF0123456789ABCDEF")]
    {
        server.cmd(&["SET", key, value, "PX", "60000"]);
        let refused = client.lock(key).break_held(None, BY).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType);
        assert_eq!(server.cmd(&["EXISTS", key]), redis::Value::Int(1));
    }
    server.cmd(&["RPUSH", "list", "x"]);
    let refused = client.lock("list").break_held(None, BY).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType);
    assert_eq!(server.cmd(&["LLEN", "list"]), redis::Value::Int(1));
    // Left taken for longer than its side key is kept, it is ours nonetheless.
    client.lock("old").acquire().unwrap().let_expire().unwrap();
    server.cmd(&["DEL", "leasehold:{old}"]);
    assert_eq!(client.lock("old").break_held(Some(1), BY).unwrap(), Break::OtherFence { fence: 0 });
    assert_eq!(client.lock("old").break_held(None, BY).unwrap(), Break::Broken { fence: 0 });
}
