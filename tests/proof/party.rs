//! One client: a driver in some language, and the thread that tells it what to do and writes down what
//! its leases say. The thread outlives the driver.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use kit::Dice;
use kit::history::now;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::journal::{Journal, Relied, State};
use super::{NAMES, Scene, encoded, is_for_a_shell};
use crate::driver::{Driver, Language};

/// The journals of those who cannot say whether they hold a lock still.
pub(super) const UNWORDED: &str = "unworded";
/// How many writes a client keeps to offer them late.
const MOST_KEPT: usize = 64;
/// What a driver answers that was asked for what it should have, in a way that is right.
const SURPRISES: [&str; 5] =
    ["bad_argument", "wrong_type", "unsupported", "forked", "incompatible_schema"];

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    Away,
    Idle,
    Waiting,
    Holding,
}

/// Where the others find a client's processes.
#[derive(Default)]
pub(super) struct Seat {
    group: Mutex<Option<Pid>>,
    /// A fault, and nothing of ours, has ended them.
    is_killed: AtomicBool,
    stage: AtomicU8,
}

impl Seat {
    pub(super) fn has_begun(&self) -> bool {
        self.group.lock().unwrap().is_some()
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Away,
            1 => Stage::Idle,
            2 => Stage::Waiting,
            _ => Stage::Holding,
        }
    }

    /// To all of its processes, if there are any.
    pub(super) fn signal(&self, signal: Signal) {
        // Its number cannot be another's while it is here.
        if let Some(group) = *self.group.lock().unwrap() {
            let _ = killpg(group, signal);
        }
    }

    pub(super) fn kill(&self) {
        let group = self.group.lock().unwrap();
        // Else its next death is nobody's doing.
        if let Some(group) = *group {
            self.is_killed.store(true, Ordering::Relaxed);
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    fn is_at(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

/// What a driver has said of a lease.
struct Word(u64);

impl Relied for Word {
    /// Drivers do not tell it; the fence is as good.
    fn token(&self) -> String {
        format!("{:016x}", self.0)
    }

    fn fence(&self) -> u64 {
        self.0
    }

    fn left(&self) -> Duration {
        Duration::ZERO
    }
}

/// The driver was killed.
struct Gone;

pub(super) struct Party<'a> {
    scene: &'a Scene<'a>,
    language: &'a Language,
    place: usize,
    url: String,
    dice: Dice,
    journal: Journal,
    driver: Driver,
    /// Of the driver that runs now.
    ttls: [Duration; NAMES.len()],
    /// Names and fences of leases that are over, to write with.
    kept: Vec<(usize, u64)>,
}

impl<'a> Party<'a> {
    pub(super) fn new(
        scene: &'a Scene<'a>,
        language: &'a Language,
        place: usize,
        url: String,
        dice: Dice,
    ) -> Party<'a> {
        let is_worded = language.name != "shell";
        let folder: PathBuf =
            if is_worded { scene.folder.into() } else { scene.folder.join(UNWORDED) };
        let owner = if place == 0 { super::verdict::STEADY } else { &language.name };
        let journal = Journal::create(&folder, &format!("{owner}-{place}"));
        let (ttls, kept, driver) = ([Duration::ZERO; NAMES.len()], Vec::new(), language.start());
        Party { scene, language, place, url, dice, journal, driver, ttls, kept }
    }

    fn is_steady(&self) -> bool {
        self.place == 0
    }

    fn is_shell(&self) -> bool {
        self.language.name == "shell"
    }

    fn seat(&self) -> &Seat {
        &self.scene.seats[self.place]
    }

    fn is_over(&self) -> bool {
        self.scene.over.load(Ordering::Relaxed)
    }

    pub(super) fn play(mut self) {
        loop {
            let went = self.run();
            self.seat().is_at(Stage::Away);
            if went.is_ok() || self.is_over() {
                // It is as good as any moment to be killed.
                self.seat().signal(Signal::SIGKILL);
                *self.seat().group.lock().unwrap() = None;
                return;
            }
            *self.seat().group.lock().unwrap() = None;
            if !self.seat().is_killed.swap(false, Ordering::Relaxed) {
                self.scene.tally.surprise(&self.language.name, "its driver", "ended by itself");
            }
            self.driver = self.language.start();
        }
    }

    /// As long as the driver lives.
    fn run(&mut self) -> Result<(), Gone> {
        self.open()?;
        *self.seat().group.lock().unwrap() = Some(self.driver.group());
        while !self.is_over() {
            self.turn()?;
            self.offer_late_writes();
            self.seat().is_at(Stage::Idle);
            std::thread::sleep(self.dice.ms_below(2));
        }
        self.ask("close").map(drop)
    }

    fn ask(&mut self, line: &str) -> Result<String, Gone> {
        self.driver.try_ask(line).ok_or(Gone)
    }

    fn open(&mut self) -> Result<(), Gone> {
        let url = self.url.clone();
        // A server that is away now comes back.
        while self.ask(&format!("open {url}"))? != "ok" && !self.is_over() {
            std::thread::sleep(ms(50));
        }
        let is_shell = self.is_shell();
        for name in (0..NAMES.len()).filter(|name| !is_shell || is_for_a_shell(*name)) {
            let ttl = 300 + self.dice.below(1700);
            self.ttls[name] = ms(ttl);
            // A command is told of its loss, and has no word to ask for.
            let renew = if self.dice.once_in(3) && !is_shell { " renew=no" } else { "" };
            let wait = if is_shell { " wait=1500" } else { "" };
            let line = format!("lock k{name} {} ttl={ttl}{renew}{wait}", encoded(name));
            let said = self.ask(&line)?;
            if said != "ok" {
                self.scene.tally.surprise(&self.language.name, &line[..40.min(line.len())], &said);
            }
        }
        Ok(())
    }

    fn name(&mut self) -> usize {
        loop {
            // Now and then, all are at the same three.
            let name =
                if self.scene.is_control || self.dice.once_in(4) { 3 } else { NAMES.len() as u64 };
            let name = self.dice.below(name) as usize;
            if !self.is_shell() || is_for_a_shell(name) {
                return name;
            }
        }
    }

    fn turn(&mut self) -> Result<(), Gone> {
        let name = self.name();
        let line = if self.is_shell() {
            format!("acquire l k{name}")
        } else if self.is_steady() {
            format!("acquire_within l k{name} 20000")
        } else if self.dice.once_in(8) {
            format!("try l k{name}")
        } else {
            format!("acquire_within l k{name} {}", self.dice.below(1500))
        };
        self.journal.asks(name);
        self.seat().is_at(Stage::Waiting);
        let asked = now();
        if self.is_steady() {
            self.scene.tally.waits(name);
        }
        let said = self.ask(&line)?;
        let Some(fence) = said.strip_prefix("ok ").and_then(|fence| fence.parse().ok()) else {
            self.journal.refused();
            // A command says a sentence after its status.
            let code = said.split(" leasehold: ").next().unwrap_or_default();
            self.scene.tally.refused(&self.language.name, code);
            if SURPRISES.contains(&said.as_str()) {
                self.scene.tally.surprise(&self.language.name, &line, &said);
            }
            if self.is_steady() {
                self.scene.tally.waited(name, (asked, now()));
            }
            return Ok(());
        };
        let answered = now();
        if self.is_steady() {
            self.scene.tally.waited(name, (asked, answered));
        }
        self.seat().is_at(Stage::Holding);
        self.scene.tally.acquired(&self.language.name, name);
        let held = if self.is_shell() {
            self.hold_without_word(name, fence)
        } else {
            self.hold(name, fence)
        };
        // Of one that died, the store keeps the lock until its ttl is over.
        let until = if held.is_ok() { now() } else { now() + self.ttls[name] };
        self.scene.tally.taken(name, (answered, until));
        if self.kept.len() < MOST_KEPT {
            self.kept.push((name, fence));
        }
        held
    }

    /// For how long the lease is valid, which it was asked after the moment that comes with it.
    fn left(&mut self) -> Result<(Duration, Duration), Gone> {
        let before = now();
        if self.ask("valid l")? != "yes" {
            return Ok((before, Duration::ZERO));
        }
        let said = self.ask("remaining l")?;
        let left = said.strip_prefix("ok ").and_then(|ms| ms.parse::<i64>().ok()).unwrap_or(0);
        Ok((before, ms(u64::try_from(left).unwrap_or(0))))
    }

    fn look(&mut self) -> Result<bool, Gone> {
        let (before, left) = self.left()?;
        Ok(self.journal.looked(before, left))
    }

    fn hold(&mut self, name: usize, fence: u64) -> Result<(), Gone> {
        self.journal.has(&Word(fence));
        let (begun, ttl) = (now(), self.ttls[name]);
        let length = match self.dice.below(72) {
            _ if self.scene.is_control => self.dice.ms_below(400),
            // Beyond its end, unless it is renewed.
            0 if !self.is_steady() => ttl * 5 / 4,
            1..4 => self.dice.ms_below(120),
            _ => self.dice.ms_below(5),
        };
        let extends = self.dice.once_in(6);
        while self.look()? {
            if !self.scene.resource.write(name, fence) && self.look()? {
                self.scene.resource.complain(name, fence);
            }
            self.scene.latest[name].fetch_max(fence, Ordering::Relaxed);
            if now() >= begun + length {
                return self.end();
            }
            if extends && self.dice.once_in(4) {
                self.ask("extend l")?;
            }
            std::thread::sleep(self.dice.ms_below(8));
        }
        // It is over by its own word. Whoever has it now is not to be disturbed by this.
        self.ask("release l").map(drop)
    }

    fn end(&mut self) -> Result<(), Gone> {
        if self.dice.once_in(24) {
            let after = 5 + self.dice.below(200);
            self.journal.ends(State::Over);
            let told = now();
            if self.ask(&format!("let_expire l {after}"))? == "ok" {
                self.journal.leaves_taken(told + ms(after));
                // For `taken`: the store knows it for free then.
                std::thread::sleep(ms(after));
            }
            return Ok(());
        }
        self.journal.ends(State::Over);
        self.ask("release l").map(drop)
    }

    /// A command has no word of validity. That it had the lock, and its fence, is known.
    fn hold_without_word(&mut self, name: usize, fence: u64) -> Result<(), Gone> {
        self.journal.has(&Word(fence));
        let moment = now();
        (self.journal.entry.from, self.journal.entry.until) = (moment, moment);
        self.journal.ends(State::Over);
        if self.scene.resource.write(name, fence) {
            self.scene.latest[name].fetch_max(fence, Ordering::Relaxed);
        }
        std::thread::sleep(self.dice.ms_below(10));
        self.ask("release l").map(drop)
    }

    /// With fences of leases that are over, after another holder has written.
    fn offer_late_writes(&mut self) {
        let latest = &self.scene.latest;
        let is_stale =
            |(name, fence): &(usize, u64)| latest[*name].load(Ordering::Relaxed) > *fence;
        let (stale, kept) = self.kept.drain(..).partition::<Vec<_>, _>(is_stale);
        self.kept = kept;
        // Some of them: the resource has more to do.
        for (name, fence) in stale.into_iter().filter(|_| self.dice.once_in(4)) {
            self.scene.resource.write_late(name, fence);
        }
    }
}
