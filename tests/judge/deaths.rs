//! What dead waiters cost the living: for how long a lock lies free while a process that lives stands in
//! line for it.
//!
//! `KIT_CHAOS_SECONDS` says how long a run takes, `KIT_SEED` repeats one's choices.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};

use super::journal::{Entry, Journal, State, read};
use super::stores::{LIMIT, Store, ms, secs};
use super::verdict::{Verdict, gaps, union, within};
use kit::history::now;
use kit::wait::Metronome;
use kit::{Child, Dice, chaos_length, child, eventually};

pub const ROLES: child::Roles = &[("stander", stand)];

const TTL: Duration = secs(2);

/// What happens to the processes.
#[derive(Clone, Copy)]
struct Deaths {
    processes: usize,
    names: usize,
    every: Duration,
    /// So many are killed at a time.
    together: usize,
    /// The server is killed and comes back as well, so often.
    restarts: Option<Duration>,
    /// For how long a lock may lie free while a living process stands in line.
    most: Duration,
}

const ONE_BY_ONE: Deaths = Deaths {
    processes: 8,
    names: 3,
    every: ms(500),
    together: 1,
    restarts: None,
    most: Duration::ZERO,
};
const TEN_TOGETHER: Deaths =
    Deaths { processes: 12, names: 1, every: secs(6), together: 10, ..ONE_BY_ONE };

/// A process that wants one lock after the other, until it is told that it is over.
fn stand(args: &[String]) {
    let [url, names, dir, name, seed] = args else { panic!("{args:?}") };
    let (names, seed): (u64, u64) = (names.parse().unwrap(), seed.parse().unwrap());
    let client = Client::open(url).unwrap();
    let (mut dice, over) = (Dice::new(seed), AtomicBool::new(false));
    let mut journal = Journal::create(dir.as_ref(), name);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let name = dice.below(names) as usize;
                let lock = client.lock(format!("n{name}")).ttl(TTL).wait_forever();
                journal.asks(name);
                let lease = match lock.acquire_unless(|| over.load(Ordering::Relaxed)) {
                    Ok(lease) => lease,
                    Err(error) => {
                        journal.refused();
                        let is_over = error.kind() == ErrorKind::Interrupted;
                        assert!(error.is_retriable() || is_over, "{error}");
                        continue;
                    }
                };
                journal.has(&lease);
                let until = now() + dice.ms_below(60);
                while journal.look(&lease) && now() < until {
                    std::thread::sleep(ms(1));
                }
                if journal.entry.state == State::Held {
                    journal.ends(State::Over);
                    drop(lease.release());
                }
            }
        });
        child::hear();
        over.store(true, Ordering::Relaxed);
    });
}

/// Of those who were killed, but for what their clients have said of themselves: that is gone in minutes.
#[allow(unused_variables)]
fn assert_nothing_stays(store: &Store, started: usize) {
    match store {
        #[cfg(feature = "etcd")]
        Store::Etcd(etcd) => {
            let keys = |begin: &str| {
                let keys = etcd.ctl(&["get", "--prefix", "--keys-only", begin]);
                keys.lines().filter(|key| !key.is_empty()).count()
            };
            eventually(LIMIT, || keys("leasehold/lock/") == 0);
            assert_eq!(keys("leasehold/"), keys("leasehold/client/"));
            let is_record = |lease: &str| {
                let said = etcd.ctl(&["lease", "timetolive", lease]);
                said.contains("TTL(180s)") || said.contains("already expired")
            };
            eventually(LIMIT, || {
                let leases = etcd.ctl(&["lease", "list"]);
                let mut leases = leases.lines().skip(1).map(str::trim);
                leases.all(is_record)
            });
            assert!(keys("leasehold/client/") <= started);
        }
        #[cfg(feature = "zookeeper")]
        Store::Zookeeper(chroot) => {
            // All that ends with a session.
            let below = format!("{}/", chroot.path);
            let said = || chroot.server().word("dump").unwrap();
            let is_ours = |line: &str| line.trim().starts_with(&below);
            eventually(LIMIT, || !said().lines().any(is_ours));
        }
        _ => {}
    }
}

impl Deaths {
    fn strike(self, mut store: Store) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (metronome, mut dice) = (Metronome::start(), Dice::from_env("KIT_SEED"));
        let url = store.url();
        let mut started = 0;
        let mut start = |dice: &mut Dice| {
            started += 1;
            let (names, seed) = (self.names.to_string(), dice.below(u64::MAX).to_string());
            let path = dir.path().display().to_string();
            Child::start("stander", &[&url, &names, &path, &format!("p{started}"), &seed])
        };
        let mut children: Vec<_> = (0..self.processes).map(|_| start(&mut dice)).collect();
        let (began, mut away) = (Instant::now(), Vec::new());
        let mut restarted = Instant::now();
        while began.elapsed() < chaos_length(6, 60) {
            std::thread::sleep(self.every);
            let first = dice.below(self.processes as u64) as usize;
            let row = (0..self.together).map(|more| (first + more) % self.processes);
            row.clone().for_each(|place| children[place].kill());
            row.for_each(|place| children[place] = start(&mut dice));
            if self.restarts.is_some_and(|every| restarted.elapsed() >= every) {
                let from = now();
                store.crash();
                store.start_again();
                // Until all have come back.
                away.push((from, now() + secs(1)));
                restarted = Instant::now();
            }
        }
        children.iter_mut().for_each(|child| child.tell("over"));
        children.iter_mut().for_each(|child| assert!(child.wait(LIMIT * 2).success()));
        let stall = metronome.longest_gap();
        assert_nothing_stays(&store, started);
        self.judge(dir.path(), (&away, stall));
        fs::remove_dir_all(dir.path()).unwrap();
    }

    fn judge(self, dir: &Path, (away, stall): (&[(Duration, Duration)], Duration)) {
        let (entries, over) = (read(dir), now());
        let (mut verdict, mut spans) = (Verdict::default(), Vec::new());
        for name in 0..self.names {
            let of_name: Vec<Entry> =
                entries.iter().map(|(_, entry)| *entry).filter(|it| it.name == name).collect();
            let holds = verdict.judge_leases(of_name.iter().copied());
            // Those that were killed while they waited have no end.
            let lived = of_name.iter().filter(|entry| !entry.answered.is_zero());
            let waits = union(lived.map(|entry| (entry.asked, entry.answered)).collect());
            let gaps = gaps(&holds, over);
            let idle =
                gaps.iter().map(|gap| within(*gap, &waits).saturating_sub(within(*gap, away)));
            spans.extend(idle.filter(|span| !span.is_zero()));
        }
        spans.sort();
        assert!(spans.len() > 10, "nothing happened");
        let at = |permille: usize| spans[(spans.len() - 1) * permille / 1000];
        let long = spans.iter().filter(|span| **span > secs(1)).count();
        println!(
            "free beside living waiters: p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}, {long} over 1 s, of {}; \
             a stall of {stall:?}\n{verdict}",
            at(500),
            at(990),
            at(999),
            at(1000),
            spans.len()
        );
        verdict.assert_exclusion();
        assert_eq!(verdict.out_of_order(), 0);
        assert!(at(1000) < self.most + stall * 5, "{:?}", at(1000));
    }
}

/// Makes both runs for a store: for how long a lock may lie free in them, in tenths of a second.
macro_rules! deaths {
    ($($module:ident, $feature:literal, $store:ident, $one:literal, $ten:literal;)+) => {$(
        #[cfg(feature = $feature)]
        mod $module {
            use super::*;

            #[test]
            fn c1_c2_c10_waiters_that_are_killed_one_by_one_hold_up_the_living_once() {
                Deaths { most: ms($one * 100), ..ONE_BY_ONE }.strike(Store::$store());
            }

            #[test]
            fn c1_c2_c10_ten_waiters_that_are_killed_together_cost_no_more_than_one() {
                Deaths { most: ms($ten * 100), ..TEN_TOGETHER }.strike(Store::$store());
            }
        }
    )+};
}

deaths! {
    on_postgres, "postgres", own_postgres, 40, 30;
    on_zookeeper, "zookeeper", own_zookeeper, 40, 30;
    on_etcd, "etcd", own_etcd, 40, 30;
}

/// Each election begins the lives of all leases anew.
#[cfg(feature = "etcd")]
#[test]
fn c1_c2_c10_on_an_etcd_that_restarts_again_and_again_the_dead_hold_nobody_up_for_long() {
    let run = Deaths { restarts: Some(ms(2500)), most: secs(8), ..ONE_BY_ONE };
    run.strike(Store::own_etcd());
}

#[cfg(feature = "zookeeper")]
#[test]
#[ignore = "a Java takes some seconds to start"]
fn c1_c2_c10_on_a_zookeeper_that_restarts_again_and_again_the_dead_hold_nobody_up_for_long() {
    let run = Deaths { restarts: Some(ms(6000)), most: secs(12), ..ONE_BY_ONE };
    run.strike(Store::own_zookeeper());
}
