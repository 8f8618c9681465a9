//! Waits that cannot succeed now: the store is in trouble, or the thread waits for itself. Without
//! a line in the log they look like any other wait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Lock;
use crate::clock::Moment;
use crate::config::spoken;
use crate::error::Error;
use crate::grant::Grant;
use crate::keeper::Core;
use crate::said::say;
use crate::store::millis;

/// Trouble that is over sooner is not logged.
const FIRST: Duration = Duration::from_secs(5);
/// Between two lines about the waits of a client.
const AGAIN: Duration = Duration::from_secs(60);

/// The log says after this time that a thread waits for a lock that it holds.
pub(super) const OWN_AFTER: Duration = Duration::from_secs(3);
/// Such a wait fails after this time, if only the caller's check could end it otherwise.
pub(super) const OWN_REFUSED_AFTER: Duration = Duration::from_secs(5);

/// Logs that a thread waits for a lease of its own: only this thread could end the wait.
pub(super) fn log_own_lease(lock: &Lock, held: &Grant, now: Moment) {
    let since = millis(now.since(held.since));
    say!(
        Warn,
        "waits-for-itself",
        lock = lock.name(),
        fence = held.identity.fence,
        since_ms = since
    );
}

/// The same for an error.
pub(super) fn describe_own_lease(held: &Grant) -> String {
    let since = spoken(Moment::now().since(held.since));
    format!("held by this very thread since {since}, with fence {}", held.identity.fence)
}

/// What keeps a wait from getting on, if anything does.
#[derive(Default)]
pub(super) struct Stuck(Option<Box<Cause>>);

struct Cause {
    since: Moment,
    error: Error,
    /// Only looks have failed. A look that succeeds ends this trouble, but not that of a failed
    /// take.
    by_look: bool,
    is_logged: bool,
}

impl Stuck {
    /// A request that was made at `since` failed.
    pub(super) fn failed(&mut self, error: &Error, by_look: bool, since: Moment) {
        match &mut self.0 {
            Some(cause) if by_look && !cause.by_look => {}
            Some(cause) => (cause.error, cause.by_look) = (error.clone(), by_look),
            None => {
                let error = error.clone();
                self.0 = Some(Box::new(Cause { since, error, by_look, is_logged: false }));
            }
        }
    }

    pub(super) fn answered(&mut self, by_look: bool, lock: &Lock, core: &Core) {
        let over = self.0.take_if(|cause| cause.by_look || !by_look);
        if over.is_some_and(|cause| cause.is_logged) {
            core.complain_at.store(0, Ordering::Relaxed);
            say!(Info, "wait-goes-on", lock = lock.name());
        }
    }

    /// Logs the trouble, once it has lasted long enough. `start`: when the wait began.
    pub(super) fn log(&mut self, now: Moment, start: Moment, lock: &Lock, core: &Core) {
        let lasts = |cause: &&mut Box<Cause>| now.since(cause.since) >= FIRST;
        let Some(cause) = self.0.as_mut().filter(lasts) else { return };
        let next = |due| (due <= now.as_nanos()).then(|| now.plus(AGAIN).as_nanos());
        if core.complain_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err() {
            return;
        }
        cause.is_logged = true;
        let waited = millis(now.since(start));
        say!(Warn, "wait-stuck", lock = lock.name(), waited_ms = waited, error = cause.error);
    }
}
