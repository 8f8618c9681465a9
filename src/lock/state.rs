//! How far a call that takes a lock has come: its phase, and what it has learnt so far.

use std::time::Duration;

use super::Lock;
use super::stuck::Stuck;
use crate::clock::Moment;
use crate::error::Error;
use crate::grant::Terms;
use crate::store::Holder;
use crate::token::Token;
use crate::traced::CallSpan;
use crate::wait::{Ask, Pace, Waiter};

/// What a call does while another holder has the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// It returns. Only trouble with the store is tried again.
    Return,
    /// It polls.
    ///
    /// `keeps_place`: it keeps its place between polls, on stores that order those who poll (SQLite,
    /// MySQL). Never for a single try: the place that it keeps would block its own next try.
    Spin { keeps_place: bool },
    /// It joins its process's queue for the name.
    Queue,
}

/// How far a call has come. It outlives each `AcquireCall`: a future keeps it while it is parked.
pub(super) struct AcquireState {
    pub(super) terms: Terms,
    pub(super) policy: Policy,
    pub(super) start: Moment,
    /// When the wait is over.
    pub(super) limit: Moment,
    /// The call's number with the crew, if it is a future: no thread waits with it.
    pub(super) parked: Option<u64>,
    /// The token with which it tries by itself, and then joins the queue.
    pub(super) token: Token,
    /// How often it has asked for the lock.
    pub(super) tries: u32,
    pub(super) phase: AcquirePhase,
    pub(super) store: StoreHealth,
    pub(super) own: OwnLeaseCheck,
    pub(super) holder: HolderLook,
    /// When it got its lease.
    pub(super) granted_at: Moment,
    pub(super) span: CallSpan,
}

/// Who says what the call does next: its own pace, or the queue.
pub(super) enum AcquirePhase {
    /// It asks by itself: the first try of a call that queues, all tries of any other.
    Trying(Trying),
    /// It stands in its process's queue for the name.
    Queued(Queued),
}

pub(super) struct Trying {
    /// From the last reply; 0 while there is none.
    pub(super) ticket: u64,
    /// Made when it is first asked: most calls do not wait.
    pub(super) pace: Option<Pace>,
    /// When it asks next.
    pub(super) wake: Moment,
    /// How long the last reply took.
    pub(super) round_trip: Duration,
    /// The token stands in the store, at the latest until then: among the waiters, or as a holder
    /// whose grant came too late.
    pub(super) stands: Option<Moment>,
}

pub(super) struct Queued {
    pub(super) waiter: Waiter,
    /// The request that is under way for the queue, which counts on hearing what came of it.
    pub(super) asking: Option<Asking>,
}

pub(super) struct Asking {
    pub(super) ask: Ask,
    /// It may have been sent.
    pub(super) is_sent: bool,
}

/// What the call has learnt of the store.
#[derive(Default)]
pub(super) struct StoreHealth {
    /// The store has answered this call.
    pub(super) is_answered: bool,
    /// What is wrong with the store, as far as the tries since its last answer tell.
    pub(super) trouble: Option<Error>,
    pub(super) stuck: Stuck,
}

/// Whether the thread waits for a lease that it holds by itself.
pub(super) struct OwnLeaseCheck {
    /// Such a wait has no end: it is refused before it begins.
    pub(super) may_deadlock: bool,
    /// When to look next; then the log is told, and later the wait is refused.
    pub(super) due: Moment,
}

/// Who has the lock, for the sentence of a wait that runs out.
pub(super) struct HolderLook {
    pub(super) due: Moment,
    pub(super) seen: Option<Box<Holder>>,
}

impl AcquireState {
    /// Made in its place: it is large, and a cycle would pay for each copy.
    #[inline]
    pub(super) fn new(lock: &Lock, token: Token, terms: Terms, policy: Policy) -> AcquireState {
        let start = Moment::now();
        AcquireState {
            terms,
            policy,
            start,
            // No wait is shorter: a try gets an answer.
            limit: start.plus(lock.patience()),
            parked: None,
            token,
            tries: 0,
            phase: AcquirePhase::Trying(Trying::default()),
            store: StoreHealth::default(),
            own: OwnLeaseCheck { may_deadlock: false, due: Moment::NEVER },
            holder: HolderLook { due: Moment::NEVER, seen: None },
            granted_at: Moment::ZERO,
            span: CallSpan::new(|| lock.group_label()),
        }
    }
}

impl Default for Trying {
    fn default() -> Trying {
        let (ticket, pace, round_trip, stands) = Default::default();
        Trying { ticket, pace, wake: Moment::ZERO, round_trip, stands }
    }
}

impl AcquirePhase {
    pub(super) fn is_queued(&self) -> bool {
        matches!(self, AcquirePhase::Queued(_))
    }

    /// `None` while the call stands in the queue.
    pub(super) fn trying(&mut self) -> Option<&mut Trying> {
        match self {
            AcquirePhase::Trying(trying) => Some(trying),
            AcquirePhase::Queued(_) => None,
        }
    }

    /// `None` while the call asks by itself.
    pub(super) fn queued(&mut self) -> Option<&mut Queued> {
        match self {
            AcquirePhase::Queued(queued) => Some(queued),
            AcquirePhase::Trying(_) => None,
        }
    }

    pub(super) fn leave_queue(&mut self) -> Option<Queued> {
        if !self.is_queued() {
            return None;
        }
        match std::mem::replace(self, AcquirePhase::Trying(Trying::default())) {
            AcquirePhase::Queued(queued) => Some(queued),
            AcquirePhase::Trying(_) => None,
        }
    }
}
