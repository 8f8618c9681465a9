//! Telling subscribers what happens to leases in the background.

mod calls;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::fork::Owned;
use crate::inbox::Inbox;
use crate::sync::Mutex;

use calls::Calls;

/// How many events a subscription keeps for a reader that does not keep up.
const RING: usize = 1024;

/// Something that happened to a lease although its holder made no call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The name of the lock, without the prefix of the URL.
    pub name: Arc<[u8]>,
    /// The fence of the lease: with the name, it says which lease it was.
    pub fence: u64,
    /// More, in words for people: who broke the lock, and when.
    pub detail: Option<Arc<str>>,
    /// The number of its grant; 0 where only the name and the fence are left of it.
    pub(crate) lease: u64,
}

/// What happened to a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// Less than a third of the ttl is left, because renewals have failed or `max_hold` is near.
    /// Finish now.
    AtRisk,
    /// The lease is over, and is no longer valid from now on. This event comes before its validity
    /// would have ended.
    Lost(LossReason),
    /// A lease that went out of scope was gone already, or the store did not say.
    ReleasedLate,
}

/// Why a lease was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LossReason {
    /// The store says that the lock is not yours: it was deleted or flushed, or another holder has
    /// it now.
    NotHeld,
    /// An operator broke the lock, as [`Lock::break_held`](crate::Lock::break_held) does: the event says
    /// who.
    Broken,
    /// Its ttl ran out: the store could not be reached, or renewal was off.
    Expired,
    /// `max_hold` was reached.
    MaxHold,
    /// The client's background thread has failed, because the program's logger panicked there for
    /// example. The client is closed.
    NotRenewed,
}

impl LossReason {
    /// As the log calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            LossReason::NotHeld => "not_held",
            LossReason::Broken => "broken",
            LossReason::Expired => "expired",
            LossReason::MaxHold => "max_hold",
            LossReason::NotRenewed => "not_renewed",
        }
    }
}

pub(crate) type Detail = Option<Arc<str>>;

/// A loss, and what is known besides.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) reason: LossReason,
    pub(crate) detail: Detail,
}

/// A subscription to a client's events, from [`Client::events`](crate::Client::events).
///
/// Each subscription has a ring of its own: a slow reader misses `AtRisk` events (counted by
/// [`dropped`](Events::dropped)), never a `Lost` one. Its descriptor is readable while events wait
/// in it, and when the client is closed, for a loop that polls.
///
/// ```no_run
/// # let client = leasehold::Client::open("redis://127.0.0.1")?;
/// let events = client.events()?;
/// std::thread::spawn(move || {
///     while let Ok(event) = events.next() {
///         eprintln!("{:?} {:?}", event.kind, String::from_utf8_lossy(&event.name));
///     }
/// });
/// # Ok::<(), leasehold::Error>(())
/// ```
pub struct Events {
    ring: Owned<Arc<Ring>>,
}

impl Events {
    /// Waits for the next event.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] when the client is closed and nothing is left to read,
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn next(&self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.wait_until(None)? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, for `wait` at most; `None` if there was none.
    ///
    /// # Errors
    /// As for [`next`](Events::next).
    pub fn next_within(&self, wait: Duration) -> Result<Option<Event>, Error> {
        // Beyond what the clock can count is for ever.
        self.wait_until(Instant::now().checked_add(wait))
    }

    /// The next event, if there is one already.
    ///
    /// # Errors
    /// As for [`next`](Events::next).
    pub fn try_next(&self) -> Result<Option<Event>, Error> {
        self.next_within(Duration::ZERO)
    }

    /// How many `AtRisk` events this subscription has dropped, because the program did not read
    /// them in time.
    pub fn dropped(&self) -> u64 {
        self.ring.dropped.load(Ordering::Relaxed)
    }

    /// Has this subscription told of a loss that may have come before it.
    #[cfg(feature = "capi")]
    pub(crate) fn tell_again(&self, loss: &Event) {
        self.ring.push(loss);
    }

    fn wait_until(&self, limit: Option<Instant>) -> Result<Option<Event>, Error> {
        self.ring.birth.check()?;
        self.ring.events.next(limit)
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.events.as_fd()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

struct Ring {
    events: Inbox<Event>,
    dropped: AtomicU64,
}

impl Ring {
    fn push(&self, event: &Event) {
        self.events.put(|events| {
            let full = events.len();
            let is_at_risk = |event: &Event| event.kind == EventKind::AtRisk;
            if full >= RING && is_at_risk(event) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Losses stay, even if the queue grows: there are no more of them than leases. Beyond this
            // length nothing is at risk any more, so a crowd of them does not hold up the keeper.
            if full == RING {
                events.retain(|event| !is_at_risk(event));
                self.dropped.fetch_add((full - events.len()) as u64, Ordering::Relaxed);
            }
            events.push_back(event.clone());
        });
    }
}

/// Where events are raised.
pub(crate) struct Hub {
    /// `None` once it is closed.
    rings: Mutex<Option<Vec<Weak<Ring>>>>,
    /// `None` until somebody wants something called.
    calls: Mutex<Option<Arc<Calls>>>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub { rings: Mutex::new(Some(Vec::new())), calls: Mutex::default() }
    }
}

impl Hub {
    pub(crate) fn subscribe(&self) -> Result<Events, Error> {
        let ring = Arc::new(Ring { events: Inbox::new("events")?, dropped: AtomicU64::new(0) });
        let mut rings = self.rings.lock();
        let rings = rings.as_mut().ok_or_else(|| Error::bare(ErrorKind::Closed))?;
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(Arc::downgrade(&ring));
        Ok(Events { ring: Owned::new(ring) })
    }

    pub(crate) fn raise(&self, event: &Event) {
        let rings = self.rings.lock();
        rings.iter().flatten().filter_map(Weak::upgrade).for_each(|ring| ring.push(event));
    }

    /// Wakes every reader; what is queued can still be read.
    pub(crate) fn close(&self) {
        let rings = self.rings.lock().take();
        for ring in rings.iter().flatten().filter_map(Weak::upgrade) {
            ring.events.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::time::{ClockId, clock_gettime};

    use super::*;

    fn event(kind: EventKind, fence: u64) -> Event {
        Event { kind, name: Arc::from(&b"n"[..]), fence, lease: fence, detail: None }
    }

    #[test]
    fn c9_a_full_ring_drops_and_counts_at_risk_and_keeps_every_loss() {
        let hub = Hub::default();
        let events = hub.subscribe().unwrap();
        let ring = RING as u64;
        for fence in 1..=ring {
            hub.raise(&event(EventKind::AtRisk, fence));
        }
        let losses = ring + 1..=3 * ring;
        for fence in losses.clone() {
            hub.raise(&event(EventKind::Lost(LossReason::NotHeld), fence));
        }
        hub.raise(&event(EventKind::AtRisk, 3 * ring + 1));
        assert_eq!(events.dropped(), ring + 1);
        let mut fences = Vec::new();
        while let Some(event) = events.try_next().unwrap() {
            fences.push(event.fence);
        }
        assert_eq!(fences, losses.collect::<Vec<_>>());
    }

    #[test]
    fn c9_losses_that_nobody_reads_do_not_slow_the_keeper_down() {
        let hub = Hub::default();
        let events = hub.subscribe().unwrap();
        // A busy machine does not count.
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = used();
        for fence in 1..=100_000 {
            hub.raise(&event(EventKind::Lost(LossReason::NotHeld), fence));
            hub.raise(&event(EventKind::AtRisk, fence));
        }
        let took = used() - before;
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(events.dropped(), 100_000);
    }

    #[test]
    fn a_closed_hub_ends_readers_after_what_is_queued() {
        let hub = Hub::default();
        let events = hub.subscribe().unwrap();
        hub.raise(&event(EventKind::AtRisk, 1));
        hub.close();
        assert_eq!(events.next().unwrap().fence, 1);
        assert_eq!(events.next().unwrap_err().kind(), ErrorKind::Closed);
        assert!(hub.subscribe().is_err());
    }

    #[test]
    fn a_reader_may_wait_longer_than_the_clock_can_count() {
        let hub = Hub::default();
        let events = hub.subscribe().unwrap();
        hub.raise(&event(EventKind::AtRisk, 1));
        assert!(events.next_within(Duration::MAX).unwrap().is_some());
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_events_wait() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

        let readable = |events: &Events| {
            let mut watched = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
            poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
        };
        let hub = Hub::default();
        let events = hub.subscribe().unwrap();
        assert!(!readable(&events));
        for fence in 1..=3 {
            hub.raise(&event(EventKind::AtRisk, fence));
        }
        assert!(readable(&events));
        for _ in 1..=3 {
            assert!(events.try_next().unwrap().is_some());
        }
        assert!(!readable(&events));
        hub.close();
        assert!(readable(&events));
    }
}
