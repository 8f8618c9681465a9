//! Threads for calls that have none of their own. Such a call is parked here, and goes on when it is
//! woken or its time has come.
//!
//! Going on with a call may block. So a thread takes up a call only while another thread stands by:
//! one watches the clock, on a condition variable of its own, and the others rest. (If all slept
//! until the moment that they saw, none would see an earlier one that is filed later.) When no more
//! threads may be started, the last one only ends calls that are over.

#[cfg(test)]
#[cfg(kit)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex};
use crate::system::Thread;

/// A call that is parked.
pub(crate) trait Parked: Send + Sync {
    /// Makes steps until the call would sleep; `None` when it is over.
    fn go_on(&self) -> Option<ParkedSleep>;

    /// Listens for all parked calls, as long as any of them could listen.
    fn listen(&self);
}

/// How a call sleeps.
pub(crate) struct ParkedSleep {
    pub(crate) until: Moment,
    /// When the call is over: from then on, going on with it blocks no thread.
    pub(crate) ends: Moment,
    /// No thread reads the messages that could wake it.
    pub(crate) needs_listener: bool,
    /// The store has not answered it of late, and may not the next time.
    pub(crate) is_stuck: bool,
}

pub(crate) struct Crew {
    most_threads: usize,
    roster: Mutex<Roster>,
    watch: Condvar,
    rest: Condvar,
}

#[derive(Default)]
struct Roster {
    calls: HashMap<u64, ParkedEntry>,
    last_number: u64,
    /// The calls that sleep, by when they go on.
    due: BTreeSet<(Moment, u64)>,
    /// The calls that are to go on, first come, first served; stuck ones last.
    ready: BTreeSet<(bool, u64, u64)>,
    /// How many stuck calls go on now.
    stuck: usize,
    /// The call for which a thread of the crew is to listen, and whether one listens for any call.
    unheard: Option<u64>,
    is_listening: bool,
    threads: HashMap<u64, Thread>,
    /// How many of them rest, or have just been called.
    resting: usize,
    /// Until when one of them watches.
    watched: Option<Moment>,
    is_closed: bool,
}

struct ParkedEntry {
    call: Arc<dyn Parked>,
    ends: Moment,
    is_stuck: bool,
    phase: CallPhase,
}

enum CallPhase {
    Asleep(Moment),
    Ready,
    GoesOn { is_woken: bool },
}

/// A thread that was not needed for so long ends.
const IDLE: Duration = Duration::from_secs(2);

impl Crew {
    pub(crate) fn new(most_threads: usize) -> Crew {
        let (roster, watch, rest) = Default::default();
        Crew { most_threads, roster, watch, rest }
    }

    /// A number for a call that is going to be parked.
    pub(crate) fn number(&self) -> u64 {
        self.roster.lock().next_number()
    }

    /// Parks a call, which goes on at once.
    pub(crate) fn park(
        self: &Arc<Crew>,
        number: u64,
        call: Arc<dyn Parked>,
        ends: Moment,
    ) -> Result<(), Error> {
        let mut roster = self.roster.lock();
        if roster.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if roster.threads.is_empty() {
            self.start(&mut roster)?;
        }
        let phase = CallPhase::Asleep(Moment::NEVER);
        roster.calls.insert(number, ParkedEntry { call, ends, is_stuck: false, phase });
        drop(roster);
        self.wake(number, false);
        Ok(())
    }

    /// Makes a call go on, if it is parked here. `is_over`: it only has to leave.
    pub(crate) fn wake(self: &Arc<Crew>, number: u64, is_over: bool) -> bool {
        let mut roster = self.roster.lock();
        let is_here = roster.make_ready(number, is_over);
        match roster.watched {
            Some(_) => self.watch.notify_one(),
            None => drop(self.has_another(&mut roster)),
        }
        is_here
    }

    /// Every call goes on, to see that the client was closed; then the threads end.
    pub(crate) fn close(&self) {
        let mut roster = self.roster.lock();
        roster.is_closed = true;
        let numbers: Vec<_> = roster.calls.keys().copied().collect();
        for number in numbers {
            roster.make_ready(number, true);
        }
        self.rest.notify_all();
        self.watch.notify_one();
    }

    /// Waits for the threads of a closed crew to end.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut self.roster.lock().threads);
        threads.into_values().for_each(Thread::join);
    }

    /// Whether another thread than this one stands by, or is started.
    fn has_another(self: &Arc<Crew>, roster: &mut Roster) -> bool {
        let is_watched = roster.watched.is_some();
        if !is_watched && roster.resting > 0 {
            self.rest.notify_one();
        }
        let may_start = roster.threads.len() < self.most_threads && !roster.is_closed;
        is_watched || roster.resting > 0 || (may_start && self.start(roster).is_ok())
    }

    fn start(self: &Arc<Crew>, roster: &mut Roster) -> Result<(), Error> {
        let (crew, number) = (Arc::clone(self), roster.next_number());
        let thread = Thread::start(c"leasehold-wait", move || crew.serve(number));
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Exhausted, format!("a thread for calls that wait: {error}"))
        })?;
        roster.threads.insert(number, thread);
        roster.resting += 1;
        Ok(())
    }

    /// The loop of a thread.
    fn serve(self: Arc<Crew>, this: u64) {
        let mut roster = self.roster.lock();
        let mut used = Moment::now();
        roster.resting -= 1;
        loop {
            let now = Moment::now();
            roster.make_due_ready(now);
            let work = self.take_up(&mut roster, now);
            if roster.has_news() {
                self.watch.notify_one();
            }
            if let Some((call, number)) = work {
                drop(roster);
                self.work(&*call, number);
                // With no mutex held: it may be the last to know the client, which ends then.
                drop(call);
                roster = self.roster.lock();
                used = Moment::now();
                continue;
            }
            let is_needed = roster.watched.is_none() && !roster.calls.is_empty();
            if roster.is_closed || (!is_needed && now >= used.plus(IDLE)) {
                roster.threads.remove(&this);
                return;
            }
            let due = roster.next_due().min(now.plus(IDLE));
            if roster.watched.is_some() {
                roster.resting += 1;
                roster = self.rest.wait_for(roster, IDLE);
                roster.resting -= 1;
            } else {
                roster.watched = Some(due);
                roster = self.watch.wait_for(roster, due.since(now));
                roster.watched = None;
            }
        }
    }

    fn work(&self, call: &dyn Parked, number: Option<u64>) {
        let Some(number) = number else {
            call.listen();
            self.roster.lock().is_listening = false;
            return;
        };
        let rest = call.go_on();
        self.roster.lock().went_on(number, rest);
    }

    /// What this thread does next: goes on with a call, or listens for one.
    fn take_up(
        self: &Arc<Crew>,
        roster: &mut Roster,
        now: Moment,
    ) -> Option<(Arc<dyn Parked>, Option<u64>)> {
        let listens = roster.unheard.is_some() && !roster.is_listening;
        if !listens && roster.ready.is_empty() {
            return None;
        }
        let has_another = self.has_another(roster);
        // A call that is gone has woken the next one that could listen.
        if listens
            && has_another
            && let Some(entry) = roster.unheard.take().and_then(|number| roster.calls.get(&number))
        {
            roster.is_listening = true;
            return Some((Arc::clone(&entry.call), None));
        }
        // Where no second thread can be had, one does everything.
        let may_block = has_another || roster.threads.len() == 1;
        let may_be_stuck = roster.stuck < self.most_threads / 2;
        let may_go_on = |(is_stuck, _, number): &&(bool, u64, u64)| {
            (may_block && (may_be_stuck || !is_stuck)) || roster.calls[number].ends <= now
        };
        let ready = roster.ready.iter().find(may_go_on).copied()?;
        roster.ready.remove(&ready);
        let (is_stuck, _, number) = ready;
        let entry = roster.calls.get_mut(&number)?;
        entry.phase = CallPhase::GoesOn { is_woken: false };
        roster.stuck += usize::from(is_stuck);
        Some((Arc::clone(&entry.call), Some(number)))
    }
}

impl Roster {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// False if the call is not here any more.
    fn make_ready(&mut self, number: u64, is_over: bool) -> bool {
        let turn = self.next_number();
        let Some(entry) = self.calls.get_mut(&number) else { return false };
        if is_over {
            entry.ends = Moment::ZERO;
        }
        match &mut entry.phase {
            CallPhase::Asleep(until) => {
                self.due.remove(&(*until, number));
                self.ready.insert((entry.is_stuck, turn, number));
                entry.phase = CallPhase::Ready;
            }
            CallPhase::GoesOn { is_woken } => *is_woken = true,
            CallPhase::Ready => {}
        }
        true
    }

    fn make_due_ready(&mut self, now: Moment) {
        while let Some((_, number)) = self.due.first().filter(|(due, _)| *due <= now).copied() {
            self.make_ready(number, false);
        }
    }

    /// When the next call goes on, or when one is over that still waits for a thread.
    fn next_due(&self) -> Moment {
        let due = self.due.first().map(|(due, _)| *due);
        let ends = self.ready.iter().map(|(.., number)| self.calls[number].ends);
        ends.chain(due).min().unwrap_or(Moment::NEVER)
    }

    /// The thread that watches the clock has to look again.
    fn has_news(&self) -> bool {
        let due = self.due.first().map_or(Moment::NEVER, |(due, _)| *due);
        self.watched.is_some_and(|until| due < until || !self.ready.is_empty())
    }

    fn went_on(&mut self, number: u64, rest: Option<ParkedSleep>) {
        let Some(entry) = self.calls.get_mut(&number) else { return };
        self.stuck -= usize::from(entry.is_stuck);
        let is_woken = matches!(entry.phase, CallPhase::GoesOn { is_woken: true });
        let until = match rest {
            Some(ParkedSleep { until, ends, needs_listener, is_stuck }) => {
                entry.is_stuck = is_stuck;
                entry.ends = if entry.ends == Moment::ZERO { Moment::ZERO } else { ends };
                self.unheard = if needs_listener { Some(number) } else { self.unheard };
                until
            }
            // Its future was dropped meanwhile: it goes on once more, to release its lease.
            None if is_woken => Moment::NEVER,
            None => return drop(self.calls.remove(&number)),
        };
        entry.phase = CallPhase::Asleep(until);
        self.due.insert((until, number));
        if is_woken || self.is_closed {
            self.make_ready(number, false);
        }
    }
}
