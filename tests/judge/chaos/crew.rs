//! Clients that take the lock again and again, whatever the lock is made of.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ms;
use kit::history::now;
use kit::{Dice, Hold, Stopwatch};

/// One way to have a lock, for one thread: at most one lease at a time.
pub trait Scheme {
    /// The fence, unless it was not to be had in this time.
    fn acquire(&mut self, wait: Duration) -> Option<u64>;

    /// Whether one may rely on it still.
    fn is_valid(&self) -> bool;

    /// Longer, perhaps.
    fn extend(&mut self) {}

    /// One way or another.
    fn release(&mut self, dice: &mut Dice);

    /// How long a lease is valid if nothing is done about it.
    fn ttl(&self) -> Duration;

    /// How rare it is that one is held for long, once in so many times.
    fn held_long_once_in(&self) -> u64;
}

/// What the clients of one process saw.
#[derive(Default)]
pub struct Log {
    pub holds: Mutex<Vec<Hold>>,
    pub counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub calls: u64,
    pub granted: u64,
    pub unknown: u64,
    /// By how much a call came back too late, at worst.
    pub overrun: Duration,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.calls += other.calls;
        self.granted += other.granted;
        self.unknown += other.unknown;
        self.overrun = self.overrun.max(other.overrun);
    }
}

/// Until it is over.
pub fn work(scheme: &mut dyn Scheme, mut dice: Dice, log: &Log, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let wait = dice.ms_below(500);
        let (asked, watch) = (now(), Stopwatch::start());
        let fence = scheme.acquire(wait);
        let mut hold = fence.map(|fence| Hold::begin(asked, fence));
        let overrun = watch.busy().saturating_sub(wait);
        {
            let mut counts = log.counts.lock().unwrap();
            counts.calls += 1;
            counts.granted += u64::from(fence.is_some());
            counts.overrun = counts.overrun.max(overrun);
        }
        let Some(hold) = &mut hold else { continue };
        use_lease(scheme, hold, &mut dice, over);
        scheme.release(&mut dice);
        log.holds.lock().unwrap().push(*hold);
        // Others are to come in too.
        std::thread::sleep(dice.ms_below(10));
    }
}

fn use_lease(scheme: &mut dyn Scheme, hold: &mut Hold, dice: &mut Dice, over: &AtomicBool) {
    // Some are held to their end and beyond, by those who never give up what is valid still.
    let ttl = scheme.ttl();
    let length = match (dice.once_in(scheme.held_long_once_in()), dice.below(3) > 0) {
        (true, true) => ttl * 2,
        (true, false) => ttl / 2,
        (false, _) => dice.ms_below(25),
    };
    let extends = dice.once_in(4) && length < ttl;
    while hold.look(|| scheme.is_valid())
        && now() < hold.from + length
        && !over.load(Ordering::Relaxed)
    {
        if extends && dice.once_in(8) {
            scheme.extend();
        }
        std::thread::sleep(ms(1));
    }
}
