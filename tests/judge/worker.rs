//! A process that takes locks, uses them and ends them in all the ways there are, until it is told
//! that it is over, or killed.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Client, Config, ErrorKind, Lease};

use super::journal::{Cell, Journal, State};
use super::stores::{ms, secs};
use super::verdict::STEADY;
use super::{NAMES, WINDOW};
use kit::history::now;
use kit::{Dice, child};

/// Those of a process that take locks; one more goes on with leases that were handed on.
const THREADS: usize = 2;
/// The longest that a lease is held, or a lock is left taken by its ttl.
const MOST: Duration = secs(1);

/// The name is no other process's, not even that of a dead one.
pub fn play(args: &[String]) {
    let [url, ttl, io_timeout, dir, name, seed] = args else { panic!("{args:?}") };
    let [ttl, io_timeout, seed] = [ttl, io_timeout, seed].map(|text| text.parse().unwrap());
    // A quorum waits a tenth of it for one of its servers.
    let is_quorum = url.matches("://").count() > 1;
    let io_timeout = ms(if is_quorum { io_timeout * 4 } else { io_timeout });
    let config = Config::from_url(url).unwrap().claim_window(WINDOW).io_timeout(io_timeout);
    let client = Client::with_config(config).unwrap();
    let (mut dice, over) = (Dice::new(seed), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..=THREADS {
            let mut worker = Worker {
                client: &client,
                journal: Journal::create(dir.as_ref(), &format!("{name}-{thread}")),
                dir: dir.into(),
                dice: dice.split(),
                ttl: ms(ttl),
                is_steady: name == STEADY,
                over: &over,
            };
            scope.spawn(move || if thread < THREADS { worker.take() } else { worker.go_on() });
        }
        child::hear();
        over.store(true, Ordering::Relaxed);
    });
    child::say(&client.counters().unknown.to_string());
}

struct Worker<'a> {
    client: &'a Client,
    journal: Journal,
    dir: PathBuf,
    dice: Dice,
    ttl: Duration,
    is_steady: bool,
    over: &'a AtomicBool,
}

impl Worker<'_> {
    fn take(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let dice = &mut self.dice;
            let name = usize::from(dice.once_in(5));
            let ttl = self.ttl * (1 << dice.below(3)) / 2;
            let lock = self.client.lock(NAMES[name]).ttl(ttl).renew(dice.below(3) > 0);
            let (way, wait) = (dice.below(8), dice.ms_below(1500));
            self.journal.asks(name);
            let asked = now();
            let gives_up = |after: Duration| now() > asked + after;
            let is_over = || self.over.load(Ordering::Relaxed);
            let taken = match way {
                0 => lock.try_acquire(),
                _ if self.is_steady => lock.wait_forever().acquire_unless(is_over).map(Some),
                1 => lock.acquire_unless(|| is_over() || gives_up(wait)).map(Some),
                _ => lock.acquire_within(wait).map(Some),
            };
            match taken {
                Ok(Some(lease)) => self.hold(lease),
                Ok(None) => self.journal.refused(),
                Err(error) => {
                    self.journal.refused();
                    let is_stopped = error.kind() == ErrorKind::Interrupted;
                    assert!(error.is_retriable() || is_stopped, "{error}");
                }
            }
            std::thread::sleep(self.dice.ms_below(8));
        }
    }

    fn hold(&mut self, lease: Lease) {
        self.journal.has(&lease);
        let mut cell = Cell::open(&self.dir, self.journal.entry.name);
        // Some of them beyond their end, where that is not far.
        let is_long = self.ttl < MOST && self.dice.once_in(24);
        let length = if is_long { MOST } else { self.dice.ms_below(25) };
        let (begun, extends) = (now(), !is_long && self.dice.once_in(4));
        while self.journal.look(&lease) && now() < begun + length {
            if self.dice.once_in(4) {
                cell.write(lease.fence());
            }
            if extends && self.dice.once_in(8) {
                let _ = lease.extend();
            }
            std::thread::sleep(ms(1));
        }
        if self.journal.entry.state == State::Held {
            self.end(lease);
        }
    }

    fn end(&mut self, lease: Lease) {
        match self.dice.below(32) {
            0 | 1 => {
                self.journal.ends(State::HandedOn);
                let Ok((token, fence)) = lease.detach() else {
                    return self.journal.ends(State::Over);
                };
                let letter = format!("{} {token} {fence}", self.journal.entry.name);
                // It is there as a whole or not at all.
                let draft = self.dir.join("drafts").join(fence.to_string());
                fs::write(&draft, letter).unwrap();
                fs::rename(draft, self.dir.join("letters").join(fence.to_string())).unwrap();
            }
            2 if self.ttl < MOST => {
                self.journal.ends(State::LeftTaken);
                if lease.let_expire().is_err() {
                    self.journal.ends(State::Over);
                }
            }
            3 => {
                let after = ms(20) + self.dice.ms_below(300);
                self.journal.ends(State::Over);
                let told = now();
                if lease.let_expire_in(after).is_ok() {
                    self.journal.leaves_taken(told + after);
                }
            }
            way => {
                self.journal.ends(State::Over);
                if way % 3 == 0 { drop(lease) } else { drop(lease.release()) }
            }
        }
    }

    /// With leases that were handed on.
    fn go_on(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let letters = fs::read_dir(self.dir.join("letters")).unwrap();
            let letters: Vec<_> = letters.map(|letter| letter.unwrap().path()).collect();
            for letter in letters {
                let mine = self.dir.join("drafts").join(format!("{}", self.dice.below(u64::MAX)));
                if fs::rename(&letter, &mine).is_ok() {
                    self.go_on_with(&fs::read_to_string(&mine).unwrap());
                }
            }
            std::thread::sleep(ms(3));
        }
    }

    fn go_on_with(&mut self, letter: &str) {
        let words: Vec<_> = letter.split(' ').collect();
        let [name, token, fence] = words[..] else { panic!("{letter}") };
        let (name, fence) = (name.parse().unwrap(), fence.parse().unwrap());
        self.journal.asks(name);
        // From here on it may be over for all that the other one knows.
        self.journal.is_about(token, fence);
        let lock = self.client.lock(NAMES[name]).ttl(self.ttl);
        let lease = lock.attach(token.parse().unwrap(), fence).unwrap();
        if lease.extend().is_ok() {
            self.hold(lease);
        } else {
            self.journal.ends(State::Over);
        }
    }
}
