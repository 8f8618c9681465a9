//! Candidates of one election are killed and stopped, and cut off from their store. At most one of them
//! leads by what its lease says, fences grow, and it is measured for how long nobody leads after a kill.
//!
//! `KIT_CHAOS_SECONDS` says how long a run takes, `KIT_SEED` repeats one's choices.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::{Client, Config, Election, Error, Term};

use super::journal::{Entry, Journal, Relied, State, read};
use super::stores::{LIMIT, Store, ms, secs};
use super::verdict::{Verdict, within};
use kit::history::now;
use kit::wait::Metronome;
use kit::{Child, Dice, Link, chaos_length, child, eventually};

pub const ROLES: child::Roles = &[("candidate", stand)];

const CANDIDATES: usize = 4;
const TTL: Duration = secs(1);
/// For so long may nobody lead once the killed leader's lease has ended.
const IDLE: Duration = secs(3);

impl Relied for Term {
    /// There is none to be seen: its fence tells it from others.
    fn token(&self) -> String {
        format!("{:032x}", u128::from(self.fence()) << 64)
    }

    fn fence(&self) -> u64 {
        self.fence()
    }

    fn left(&self) -> Duration {
        self.remaining()
    }
}

/// A process that stands for election again and again, until it is told that it is over. Work stops when
/// it is told to, except once in a while: then it goes on for as long as its lease is valid.
fn stand(args: &[String]) {
    let [url, dir, name, seed] = args else { panic!("{args:?}") };
    let config = Config::from_url(url).unwrap().io_timeout(ms(300)).claim_window(ms(150));
    let election = Client::with_config(config).unwrap().election("leader").ttl(TTL);
    std::thread::scope(|scope| {
        scope.spawn(|| campaign(&election, Dice::new(seed.parse().unwrap()), dir.as_ref(), name));
        child::hear();
        election.stop();
    });
}

fn campaign(election: &Election, mut dice: Dice, dir: &Path, name: &str) {
    let journal = RefCell::new(Journal::create(dir, name));
    journal.borrow_mut().asks(0);
    let campaign = election.clone().stand_again(true).run_as_leader(|term| {
        let mut journal = journal.borrow_mut();
        journal.has(term);
        let (is_slow, length) = (dice.once_in(4), now() + dice.ms_below(3000));
        while journal.look(term) && now() < length && (is_slow || term.is_leader()) {
            std::thread::sleep(ms(1));
        }
        if journal.entry.state == State::Held {
            journal.ends(State::Over);
        }
        // The next term, which begins with the next call.
        journal.asks(0);
        Ok::<(), Error>(())
    });
    campaign.unwrap();
}

/// The process that leads at this moment, by what was written down.
fn leader(dir: &Path, names: &[String]) -> Option<usize> {
    let now = now();
    let leads = |entry: &Entry| entry.state == State::Held && entry.word > now;
    let entries = read(dir);
    let (owner, _) = entries.iter().find(|(_, entry)| leads(entry))?;
    names.iter().position(|name| name == owner)
}

fn rage(mut store: Store) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (metronome, mut dice) = (Metronome::start(), Dice::from_env("KIT_SEED"));
    let link = Link::to_address(([127, 0, 0, 1], store.port().unwrap()).into());
    let url = store.url_through(link.port());
    let (mut started, mut names) = (0, vec![String::new(); CANDIDATES]);
    let mut start = |place: usize, dice: &mut Dice| {
        started += 1;
        names[place] = format!("c{started}");
        let (seed, path) = (dice.below(u64::MAX).to_string(), dir.path().display().to_string());
        (Child::start("candidate", &[&url, &path, &names[place], &seed]), names.clone())
    };
    let mut known = Vec::new();
    let mut children = Vec::new();
    for place in 0..CANDIDATES {
        let (child, all) = start(place, &mut dice);
        children.push(child);
        known = all;
    }
    let (begun, mut kills, mut away) = (Instant::now(), Vec::new(), Vec::new());
    // On a busy machine there are fewer terms, and only what happened is judged.
    let goes_on = |kills: usize| {
        let enough = kills >= 10 || begun.elapsed() > LIMIT * 6;
        begun.elapsed() < chaos_length(24, 240) || !enough
    };
    while goes_on(kills.len()) {
        std::thread::sleep(ms(300) + dice.ms_below(1200));
        let Some(place) = leader(dir.path(), &known) else { continue };
        let from = now();
        match dice.below(8) {
            0 => {
                // For longer than its lease lasts: when it goes on, another one leads.
                children[place].stop();
                std::thread::sleep(TTL * 2);
                children[place].cont();
            }
            1 => {
                link.cut();
                std::thread::sleep(TTL / 2 + dice.ms_below(1500));
                link.heal();
                away.push((from, now() + secs(1)));
            }
            2 => {
                store.crash();
                store.start_again();
                away.push((from, now() + secs(1)));
            }
            _ => {
                children[place].kill();
                kills.push(now());
                (children[place], known) = start(place, &mut dice);
            }
        }
    }
    children.iter_mut().for_each(|child| child.tell("over"));
    children.iter_mut().for_each(|child| assert!(child.wait(LIMIT * 2).success()));
    judge(dir.path(), &kills, &away, metronome.longest_gap());
    eventually(LIMIT, || store.client().lock("leader").inspect().unwrap().holder.is_none());
    fs::remove_dir_all(dir.path()).unwrap();
}

/// For how long nobody led after a kill, leaving out those while the store was away.
fn judge(dir: &Path, kills: &[Duration], away: &[(Duration, Duration)], stall: Duration) {
    let (entries, mut verdict) = (read(dir), Verdict::default());
    let holds = verdict.judge_leases(entries.iter().map(|(_, entry)| *entry));
    let after = |kill: &Duration| {
        let next = holds.iter().map(|hold| hold.from).filter(|from| from > kill).min()?;
        within((*kill, next), away).is_zero().then_some(next - *kill)
    };
    let mut without: Vec<_> = kills.iter().filter_map(after).collect();
    without.sort();
    let (kills, terms) = (without.len(), holds.len());
    assert!(kills > 3 && terms > kills, "nothing happened: {kills} kills, {terms} terms");
    let (p50, max) = (without[kills / 2], without[kills - 1]);
    println!(
        "without a leader after a kill, ttl {TTL:?}: p50 {p50:?}, max {max:?}, of {kills}; a stall of \
         {stall:?}\n{verdict}"
    );
    verdict.assert_exclusion();
    assert_eq!(verdict.out_of_order(), 0);
    assert!(max < TTL + IDLE + stall * 5, "{max:?}");
}

#[test]
fn c1_c2_c9_on_redis_one_candidate_leads_at_a_time_whatever_happens() {
    rage(Store::own_redis());
}

#[cfg(feature = "postgres")]
#[test]
fn c1_c2_c9_on_postgres_one_candidate_leads_at_a_time_whatever_happens() {
    rage(Store::own_postgres());
}

#[cfg(feature = "etcd")]
#[test]
fn c1_c2_c9_on_etcd_one_candidate_leads_at_a_time_whatever_happens() {
    rage(Store::own_etcd());
}
