//! Gives that nobody waits for, in a Cluster: those that were not done where they were sent are sent
//! once more, and whoever takes the name comes behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;

use super::super::dialect::Batch;
use super::super::fault;
use super::single::{Carried, Gives, Heard};
use super::slots::Doubt;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Outcome, Owed, Request};
use crate::sync::{Condvar, Mutex};

/// For so long after a slot has moved a give may still be under way to where it was.
pub(super) const UNSURE: Duration = Duration::from_secs(5);

/// Gives that are being sent once more, by their names.
#[derive(Default)]
pub(super) struct Errands {
    under_way: Mutex<UnderWay>,
    done: Condvar,
}

#[derive(Default)]
pub(super) enum UnderWay {
    #[default]
    Nothing,
    /// Which ones is not known yet.
    Some,
    These(Vec<Arc<[u8]>>),
}

impl UnderWay {
    fn has(&self, name: &[u8]) -> bool {
        match self {
            UnderWay::Nothing => false,
            UnderWay::Some => true,
            UnderWay::These(names) => names.iter().any(|other| **other == *name),
        }
    }
}

/// Until when gives may lie about that were not done where they were sent.
#[derive(Default)]
pub(super) struct Unsure(AtomicU64);

impl Unsure {
    pub(super) fn set(&self) {
        let until = Moment::now().plus(UNSURE).as_nanos();
        self.0.fetch_max(until, Ordering::AcqRel);
    }

    pub(super) fn is_set(&self) -> bool {
        Moment::from_nanos(self.0.load(Ordering::Acquire)) > Moment::now()
    }
}

/// Looks at what is answered to gives that nobody waits for.
pub(super) struct Watched {
    pub(super) gives: Arc<dyn Gives>,
    pub(super) doubt: Doubt,
    pub(super) unsure: Arc<Unsure>,
}

impl Gives for Watched {
    fn pack(&self, gives: &[Request<'_>]) -> Batch {
        self.gives.pack(gives)
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        let outcome = self.gives.read(give, plain(carried, &self.doubt));
        if matches!(&outcome, Err(failure) if failure.sent.is_none()) {
            self.unsure.set();
        }
        outcome
    }
}

impl Errands {
    pub(super) fn wait_for(&self, name: &[u8], deadline: Deadline) {
        let mut under_way = self.under_way.lock();
        while under_way.has(name) && !deadline.has_passed() {
            under_way = self.done.wait_for(under_way, deadline.left());
        }
    }

    pub(super) fn are(&self, under_way: UnderWay) {
        *self.under_way.lock() = under_way;
        self.done.notify_all();
    }
}

/// A give that was not done, for a reason that may be the server's alone.
pub(super) fn may_be_done_elsewhere(outcome: &Outcome) -> bool {
    matches!(outcome, Err(failure) if failure.sent.is_none() && failure.error.is_retriable())
}

/// A give that a server has said it cannot do now.
pub(super) fn is_for_later(owed: &Owed, outcome: &Outcome) -> bool {
    let not_now = |failure: &Failure| failure.error.kind() == ErrorKind::Unavailable;
    may_be_done_elsewhere(outcome)
        && outcome.as_ref().is_err_and(not_now)
        && owed.until > Moment::now()
}

/// What a server says that does not serve a slot at the moment, so that it is asked again later.
pub(super) fn plain(carried: Carried, doubt: &Doubt) -> Carried {
    let Ok(Heard { value: Value::ServerError(error), .. }) = &carried else { return carried };
    let (code, details) = (error.code(), error.details().unwrap_or(""));
    let kind = fault::server(error).kind();
    if code == "CLUSTERDOWN" {
        doubt.store(true, Ordering::Release);
    }
    let moves = matches!(code, "MOVED" | "ASK") || kind == ErrorKind::ReadOnly;
    if !moves {
        return carried;
    }
    doubt.store(true, Ordering::Release);
    let what = format!("the slot is on its way to another server ({code} {details})");
    Err(Failure::not_done(Error::new(ErrorKind::Unavailable, what)))
}
