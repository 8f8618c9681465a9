//! A quorum of five servers on which everything goes wrong that can: they are killed and come back
//! empty or with old files, stand still, are cut off, are far away; clients stand still; clocks
//! jump. Leases that are valid never overlap, and fences are in order. The same is done with locks
//! written by hand, whose mistakes must be found.
//!
//! `KIT_CHAOS_SECONDS` says how long a run takes, `KIT_SEED` repeats one's choices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::chaos::by_hand::{ByHand, Mistake};
use super::chaos::crew::{self, Counts, Log};
use super::chaos::figures::Figures;
use super::chaos::nodes::{self, Node};
use super::chaos::ours::{self, Ours};
use super::chaos::storm::{self, Climate, Fault, Kind};
use super::chaos::{self, SITES, ms};
use kit::history::{judge, now};
use kit::wait::{Metronome, eventually_some};
use kit::{Child, Clock, Dice, Hold, Link, Wrong, chaos_length, child, eventually};
use leasehold::Client;

const LIMIT: Duration = Duration::from_secs(30);
const SEED: &str = "KIT_SEED";
/// How far a client's clock may be off: nodes refuse those that are an hour ahead.
const MOST_SKEW: Duration = Duration::from_secs(1000);
/// The same where nodes forget which fences they granted. Then it is the clients' clocks that are
/// past them, and they must agree as well as a quarantine is long.
const LITTLE_SKEW: Duration = ms(900);
/// In each process.
const THREADS: usize = 3;

/// Each of these runs has more threads than the machine has processors.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) const ROLES: kit::child::Roles = &[("clients", clients)];

/// A process of clients at one site: tells of each hold, and goes on until it is told to end.
fn clients(args: &[String]) {
    let (url, seed) = (&args[0], args[1].parse().unwrap());
    let (log, over) = (Log::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (over, log) = (&over, &log);
        let crew = scope.spawn(move || our_crew(&[url], Dice::new(seed), log, over));
        let teller = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(ms(50));
                tell(log);
            }
        });
        child::hear();
        over.store(true, Ordering::Relaxed);
        crew.join().unwrap();
        teller.join().unwrap();
        tell(log);
    });
    let Counts { calls, granted, unknown, .. } = *log.counts.lock().unwrap();
    child::say(&format!("counts {calls} {granted} {unknown}"));
}

fn tell(log: &Log) {
    for hold in log.holds.lock().unwrap().drain(..) {
        child::say(&hold.to_line());
    }
}

/// Some threads for each of these URLs.
fn our_crew(urls: &[&String], mut dice: Dice, log: &Log, over: &AtomicBool) {
    let clients: Vec<_> = urls.iter().map(|url| Client::open(url).unwrap()).collect();
    std::thread::scope(|scope| {
        for number in 0..THREADS * urls.len() {
            let (client, dice) = (&clients[number % clients.len()], dice.split());
            scope.spawn(move || {
                crew::work(&mut Ours::new(client, number % 2 == 0), dice, log, over);
            });
        }
    });
    let unknown: u64 = clients.iter().map(|client| client.counters().unknown).sum();
    log.counts.lock().unwrap().unknown += unknown;
}

/// Threads and two processes on these nodes, in such a climate.
fn run_ours(
    clocked: bool,
    climate: &Climate,
    skew: Duration,
    length: Duration,
) -> (Vec<Hold>, Vec<Fault>, Counts) {
    let mut dice = Dice::from_env(SEED);
    let mut nodes = nodes::start(clocked);
    let urls: Vec<_> = (0..SITES).map(|site| ours::url(&nodes::ports(&nodes, site))).collect();
    Client::open(&urls[0]).unwrap().initialize(false).unwrap();
    let links: Vec<_> = (0..SITES).map(|site| nodes::links(&nodes, site)).collect();
    let dirs = [(); SITES].map(|()| tempfile::tempdir().unwrap());
    let clocks: Vec<_> = dirs.iter().map(|dir| Clock::make(dir.path())).collect();
    let mut children: Vec<_> = urls
        .iter()
        .zip(&clocks)
        .map(|(url, clock)| {
            let seed = dice.below(u64::MAX).to_string();
            Child::start_by("clients", &[url, &seed], Some(clock))
        })
        .collect();
    let (log, over) = (Log::default(), AtomicBool::new(false));
    let mut faults = std::thread::scope(|scope| {
        let (over, log, urls) = (&over, &log, urls.iter().collect::<Vec<_>>());
        let (ours, storms, mut theirs) = (dice.split(), dice.split(), dice.split());
        scope.spawn(move || our_crew(&urls, ours, log, over));
        let nodes = &mut nodes;
        let storm = scope.spawn(move || storm::rage(nodes, climate, storms, over));
        let sites = children.iter_mut().zip(&clocks).zip(&links).map(|((child, clock), links)| {
            let site = Site { child, clock, links, skew };
            let dice = theirs.split();
            scope.spawn(move || site.suffer(dice, over))
        });
        let sites: Vec<_> = sites.collect();
        std::thread::sleep(length);
        over.store(true, Ordering::Relaxed);
        let mut faults = storm.join().unwrap();
        faults.extend(sites.into_iter().flat_map(|site| site.join().unwrap()));
        faults
    });
    let (mut holds, mut counts) =
        (log.holds.into_inner().unwrap(), log.counts.into_inner().unwrap());
    for child in &mut children {
        child.tell("over");
        for line in child.rest(LIMIT) {
            match line.strip_prefix("counts ") {
                Some(numbers) => counts.add(counts_from(numbers)),
                None => holds.push(Hold::from_line(&line).expect("a hold")),
            }
        }
        assert!(child.wait(LIMIT).success());
    }
    faults.sort_by_key(|fault| fault.at);
    assert_well(&nodes, &urls[0]);
    (holds, faults, counts)
}

fn counts_from(line: &str) -> Counts {
    let numbers: Vec<_> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    // A process that was stopped cannot tell how late its calls came back.
    Counts { calls: numbers[0], granted: numbers[1], unknown: numbers[2], overrun: Duration::ZERO }
}

/// A process of clients, and how it reaches the nodes.
struct Site<'a> {
    child: &'a mut Child,
    clock: &'a Clock,
    links: &'a [Arc<Link>],
    skew: Duration,
}

impl Site<'_> {
    fn suffer(&self, mut dice: Dice, over: &AtomicBool) -> Vec<Fault> {
        let kinds = [Kind::ClientStopped, Kind::ClientClockMoved, Kind::SiteFar];
        let mut faults = Vec::new();
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(dice.ms_below(400));
            let kind = kinds[dice.below(kinds.len() as u64) as usize];
            faults.push(Fault { at: now(), kind });
            match kind {
                Kind::ClientStopped => {
                    self.child.stop();
                    std::thread::sleep(dice.ms_below(600));
                    self.child.cont();
                }
                // Fences begin with it, and are in order all the same.
                Kind::ClientClockMoved => {
                    self.clock.shift(storm::some_offset(&mut dice, self.skew));
                }
                // Not so far that nothing arrives in time.
                _ => {
                    let delay = dice.ms_below(45);
                    self.links.iter().for_each(|link| link.slow_replies(delay));
                    std::thread::sleep(dice.ms_below(1000));
                    self.links.iter().for_each(|link| link.slow_replies(ms(0)));
                }
            }
        }
        faults
    }
}

/// Nothing was left behind, and the lock is to be had.
fn assert_well(nodes: &[Node], url: &str) {
    // Where the clock was ahead, a key may have been told to end in the future.
    let is_free = |node: &Node| node.is_clocked || node.is_free();
    eventually(ours::MAX_TTL * 2 + LIMIT, || nodes.iter().all(is_free));
    let lock = Client::open(url).unwrap().lock(chaos::NAME);
    // A client that was never answered does not wait until those who lost data may vote.
    let lease = eventually_some(LIMIT, || lock.acquire_within(LIMIT).ok());
    lease.release().unwrap();
}

fn our_climate() -> Climate {
    let kinds = [Kind::Cut, Kind::CutReplies, Kind::Slow, Kind::Stopped, Kind::Torn];
    let kinds = kinds.into_iter().chain([Kind::KilledAndEmpty, Kind::KilledWithFile]);
    Climate {
        kinds: kinds.collect(),
        calm: ms(600),
        trouble: ms(900),
        rest: ours::MAX_TTL,
        most: 2,
        beyond: true,
        disaster: Some(Duration::from_secs(5)),
    }
}

#[test]
fn c1_c2_on_five_servers_nothing_overlaps_and_fences_are_in_order_whatever_fails() {
    let _alone = alone();
    let metronome = Metronome::start();
    let (holds, faults, counts) =
        run_ours(false, &our_climate(), LITTLE_SKEW, chaos_length(15, 600));
    let stall = metronome.longest_gap();
    let wrong = judge(&holds);
    let figures = Figures { holds: &holds, wrong: &wrong, faults: &faults, counts };
    println!("{figures}");
    assert!(wrong.is_empty(), "{figures}\n{wrong:#?}");
    assert!(holds.len() > 5 && faults.len() > 5, "nothing happened:\n{figures}");
    assert!(counts.overrun < Duration::from_secs(1) + stall, "a stall of {stall:?}\n{figures}");
}

/// Then there may be two at once, and the fences tell them apart.
#[test]
fn c2_on_five_servers_of_which_one_has_a_clock_that_jumps_fences_are_in_order() {
    let _alone = alone();
    let mut climate = our_climate();
    // It does not forget, too: a quarantine lasts as long as the clock says that measures it.
    climate.kinds.retain(|kind| ![Kind::KilledAndEmpty, Kind::KilledWithFile].contains(kind));
    climate.disaster = None;
    climate.calm = ms(300);
    let (holds, faults, counts) = run_ours(true, &climate, MOST_SKEW, chaos_length(8, 120));
    let wrong = judge(&holds);
    let figures = Figures { holds: &holds, wrong: &wrong, faults: &faults, counts };
    println!("{figures}");
    assert_eq!(figures.out_of_order(), 0, "{figures}\n{wrong:#?}");
    assert!(holds.len() > 5, "nothing happened:\n{figures}");
}

/// Runs a lock written by hand until this is found, or for so long; what was wrong by then.
fn run_by_hand(
    mistake: Mistake,
    climate: &Climate,
    most: Duration,
    is_found: fn(&Wrong) -> bool,
) -> Vec<Wrong> {
    let _alone = alone();
    let mut dice = Dice::from_env(SEED);
    let mut nodes = nodes::start(false);
    let ports: Vec<_> = (0..SITES).map(|site| nodes::ports(&nodes, site)).collect();
    let (log, over) = (Log::default(), AtomicBool::new(false));
    let start = Instant::now();
    let faults = std::thread::scope(|scope| {
        let (over, log) = (&over, &log);
        for number in 0..THREADS * SITES {
            let mut scheme = ByHand::new(mistake, &ports[number % SITES], dice.split());
            let dice = dice.split();
            scope.spawn(move || crew::work(&mut scheme, dice, log, over));
        }
        let nodes = &mut nodes;
        let storm = scope.spawn(move || storm::rage(nodes, climate, dice, over));
        let found = || judge(&log.holds.lock().unwrap()).iter().any(is_found);
        while start.elapsed() < most && !found() {
            std::thread::sleep(ms(100));
        }
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap()
    });
    let took = start.elapsed();
    let (holds, counts) = (log.holds.into_inner().unwrap(), *log.counts.lock().unwrap());
    let mut wrong = judge(&holds);
    wrong.retain(is_found);
    let figures = Figures { holds: &holds, wrong: &wrong, faults: &faults, counts };
    println!("{mistake:?} after {took:?}\n{figures}");
    assert!(!holds.is_empty());
    wrong
}

fn by_hand_climate(kinds: &[Kind]) -> Climate {
    let kinds = kinds.to_vec();
    Climate {
        kinds,
        calm: ms(200),
        trouble: ms(500),
        rest: ms(0),
        most: 3,
        beyond: true,
        disaster: None,
    }
}

const NETWORK: [Kind; 5] = [Kind::Cut, Kind::CutReplies, Kind::Slow, Kind::Torn, Kind::Stopped];

fn is_overlap(wrong: &Wrong) -> bool {
    matches!(wrong, Wrong::Overlap(..))
}

#[test]
fn a_careful_lock_written_by_hand_passes_while_no_server_forgets() {
    let climate = by_hand_climate(&NETWORK);
    let wrong = run_by_hand(Mistake::None, &climate, chaos_length(4, 60), is_overlap);
    assert_eq!(wrong, []);
}

#[test]
fn control_servers_that_forget_and_vote_at_once_let_two_in() {
    let mut climate = by_hand_climate(&[Kind::KilledAndEmpty]);
    climate.calm = ms(300);
    climate.most = chaos::NODES;
    assert_ne!(run_by_hand(Mistake::None, &climate, LIMIT * 4, is_overlap), []);
}

#[test]
fn control_holders_that_never_look_at_their_validity_overlap() {
    let climate = by_hand_climate(&NETWORK);
    assert_ne!(run_by_hand(Mistake::NoValidity, &climate, LIMIT * 4, is_overlap), []);
}

#[test]
fn control_a_majority_of_those_who_answer_is_none() {
    let mut climate = by_hand_climate(&[Kind::Cut]);
    climate.most = chaos::NODES - 1;
    assert_ne!(run_by_hand(Mistake::OfAnswers, &climate, LIMIT * 4, is_overlap), []);
}

#[test]
fn control_late_answers_that_count_let_two_in() {
    let climate = by_hand_climate(&[Kind::Slow, Kind::CutReplies]);
    assert_ne!(run_by_hand(Mistake::LateAnswers, &climate, LIMIT * 4, is_overlap), []);
}

#[test]
fn control_fences_of_counters_that_know_nothing_of_each_other_are_out_of_order() {
    let climate = by_hand_climate(&[Kind::Cut]);
    let is_found = |wrong: &Wrong| !is_overlap(wrong);
    assert_ne!(run_by_hand(Mistake::PlainCounters, &climate, LIMIT * 4, is_found), []);
}
