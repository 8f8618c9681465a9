//! When the keeper tells the store who this client is: soon after its first lease or wait, and then
//! once a minute as long as there are any. The first time it also asks whether the store could lose
//! grants. A call that takes a lock pays for this with reading one flag.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crate::clock::{Moment, wall_micros};
use crate::jitter::Jitter;
use crate::sync::Turnstile;
use crate::who::Run;

/// Between two requests. A thousand clients make 16 of them a second.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the store keeps what it was told: two requests may fail.
pub(super) const KEPT: Duration = Duration::from_secs(180);
/// The pause after the store refused the record: the user may not write it.
pub(super) const REFUSED: Duration = Duration::from_secs(3600);
/// The delay of the first request: a program that takes a lock and ends soon after sends none.
const FIRST: Duration = Duration::from_millis(50);

pub(super) struct Register {
    tells: bool,
    /// The store is still to be asked whether it could lose grants.
    asks: AtomicBool,
    /// A lease or a wait has begun since the last request. Always true if nothing is to be told.
    is_used: AtomicBool,
    /// When the next one is due, in nanoseconds.
    due: AtomicU64,
    not_before: AtomicU64,
    /// The store may know this client.
    pub(super) is_known: AtomicBool,
    /// In milliseconds of the wall clock.
    pub(super) started: u64,
    /// What the client has run, and until when the store keeps that. Locked while the store is
    /// told, so that the last record to arrive is the newest.
    pub(super) run: Turnstile<Option<(Run, Moment)>>,
}

impl Register {
    pub(super) fn new(tells: bool, asks: bool) -> Register {
        Register {
            tells,
            asks: AtomicBool::new(asks),
            is_used: AtomicBool::new(!tells && !asks),
            due: AtomicU64::new(Moment::NEVER.as_nanos()),
            not_before: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            started: wall_micros() / 1000,
            run: Turnstile::new(None),
        }
    }

    pub(super) fn due(&self) -> Moment {
        Moment::from_nanos(self.due.load(Relaxed))
    }

    /// A lease or a wait has begun. Returns when a request is due, if the keeper does not know that
    /// yet.
    pub(super) fn note(&self, now: impl FnOnce() -> Moment) -> Option<Moment> {
        // Read first: threads that only read share the line in their caches.
        if self.is_used.load(Relaxed) || self.is_used.swap(true, SeqCst) {
            return None;
        }
        let soon = now().plus(FIRST).as_nanos().max(self.not_before.load(SeqCst));
        self.due.fetch_min(soon, SeqCst);
        Some(Moment::from_nanos(soon))
    }

    /// When the request after the present one is due. The second request comes at a random moment
    /// of the first period: otherwise clients that start together would send all their requests
    /// together.
    pub(super) fn next(&self, now: Moment, jitter: &mut Jitter) -> Moment {
        let is_known = self.is_known.load(Relaxed);
        now.plus(if is_known { PERIOD + jitter.up_to(PERIOD / 10) } else { jitter.up_to(PERIOD) })
    }

    /// Whether a request is to be made now. A client that does nothing any more is forgotten.
    pub(super) fn begins(&self, now: Moment, next: Moment, is_busy: impl FnOnce() -> bool) -> bool {
        if self.due() > now {
            return false;
        }
        self.not_before.store(next.as_nanos(), SeqCst);
        self.due.store(Moment::NEVER.as_nanos(), SeqCst);
        // A lease that begins after this finds the flag false, and sets `due` anew.
        let begins = self.is_used.swap(false, SeqCst) || is_busy();
        if begins {
            self.due.fetch_min(next.as_nanos(), SeqCst);
        }
        begins
    }

    /// Whether a client that closes tells the store to forget it: not while it has a run to be
    /// remembered.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_known.load(Relaxed) && self.run.enter_now().is_some_and(|run| run.is_none())
    }

    /// Whether to ask the store now if it could lose grants: once.
    pub(super) fn take_ask(&self) -> bool {
        self.asks.swap(false, Relaxed)
    }

    /// Whether to tell the store. A client that does not want to be known rests for good.
    pub(super) fn tells_or_rests(&self) -> bool {
        if !self.tells {
            self.is_used.store(true, SeqCst);
            self.due.store(Moment::NEVER.as_nanos(), SeqCst);
        }
        self.tells
    }

    pub(super) fn rests(&self, until: Moment) {
        self.not_before.store(until.as_nanos(), SeqCst);
        self.due.store(until.as_nanos(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000_000);

    fn at(seconds: f64) -> Moment {
        START.plus(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_thousand_clients_that_start_together_send_less_than_twenty_requests_a_second() {
        const CLIENTS: usize = 1000;
        const SPAN: usize = 1800;
        let clients: Vec<_> =
            (0..CLIENTS as u64).map(|seed| (Register::new(true, true), seed)).collect();
        let mut sent = vec![0; SPAN];
        for (register, seed) in clients {
            let (mut jitter, mut second) = (Jitter::seeded(seed), 0);
            register.note(|| at(0.0));
            while second < SPAN {
                let now = register.due();
                register.note(|| now);
                assert!(register.begins(now, register.next(now, &mut jitter), || true));
                register.is_known.store(true, Relaxed);
                sent[second] += 1;
                second = register.due().since(START).as_secs() as usize;
            }
        }
        // After the first of each, which comes with its first lock.
        let sent = &sent[1..];
        let busiest = sent.windows(20).map(|some| some.iter().sum::<usize>()).max().unwrap();
        assert!(busiest < 20 * 20, "{busiest} in 20 s");
        let (all, seconds) = (sent.iter().sum::<usize>(), SPAN - 1);
        assert!((seconds * CLIENTS / 66..seconds * CLIENTS / 60).contains(&all), "{all}");
        assert!(KEPT >= (PERIOD + PERIOD / 10) * 5 / 2, "two of them may fail");
    }

    #[test]
    fn it_is_told_soon_after_the_first_use_and_again_while_anything_goes_on() {
        let register = Register::new(true, false);
        assert_eq!(register.due(), Moment::NEVER);
        assert_eq!(register.note(|| at(0.0)), Some(at(0.05)));
        assert_eq!(register.note(|| at(0.01)), None, "that is no news");
        assert!(!register.begins(at(0.04), at(60.0), || true));
        assert!(register.begins(at(0.05), at(60.05), || false));
        assert_eq!(register.due(), at(60.05));
        // One long lease, and nothing new.
        assert!(register.begins(at(60.05), at(120.0), || true));
        assert!(!register.begins(at(120.0), at(180.0), || false), "nothing goes on");
        assert_eq!(register.due(), Moment::NEVER);
        // Not twice in a minute, whatever comes and goes.
        assert_eq!(register.note(|| at(121.0)), Some(at(180.0)));
        assert!(register.begins(at(180.0), at(240.0), || false));
        assert_eq!(register.note(|| at(180.1)), Some(at(240.0)));
        register.rests(at(3780.0));
        assert_eq!((register.note(|| at(300.0)), register.due()), (None, at(3780.0)));
    }

    #[test]
    fn who_does_not_want_to_be_known_is_never_told_of() {
        let register = Register::new(false, false);
        assert_eq!(register.note(|| at(0.0)), None);
        assert!(!register.begins(at(9999.0), at(99999.0), || true));
        // The store is asked all the same, once.
        let register = Register::new(false, true);
        assert_eq!(register.note(|| at(0.0)), Some(at(0.05)));
        assert!(register.begins(at(0.05), at(60.0), || true));
        assert!(register.take_ask() && !register.take_ask() && !register.tells_or_rests());
        assert_eq!((register.due(), register.note(|| at(1.0))), (Moment::NEVER, None));
    }
}
