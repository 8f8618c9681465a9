//! Breaking a lock: ending the grant of another client. For the operator at three in the morning.

use std::fmt::Display;
use std::time::Duration;

use super::Lock;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::breaking::{Breach, StoredGrant};
use crate::store::{Failure, Holder, Lane, Store};

/// What became of [`Lock::break_held`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Break {
    /// The grant with this fence is over. The lock is free, or the first waiter's.
    Broken {
        /// 0 where the store no longer knew it.
        fence: u64,
    },
    /// The lock is free.
    NotHeld,
    /// The lock is held under this other fence, and stays held.
    OtherFence {
        /// 0 where the store no longer knows it.
        fence: u64,
    },
}

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Before the next grant is looked for.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

impl Lock {
    /// Breaks the lock: frees it although its holder has not released it, because the holder hangs or
    /// left it held. The store hands the lock to the first waiter at once. The new fence is larger than
    /// any that the holder has used. So a resource that compares fences rejects later writes of the
    /// old holder.
    ///
    /// **Nothing stops the holder itself** until it learns of the break, at its next renewal at the
    /// latest. Then its lease is lost. Its event, error and log say who broke it, if the store still
    /// knows.
    ///
    /// `if_fence` breaks only the lease with this fence, as [`inspect`](Lock::inspect) reports it.
    /// Without it, the call ends whichever lease is held at that moment. `by` says who breaks it, such
    /// as `root@web-3`. The store keeps 200 bytes of it at most.
    ///
    /// ```no_run
    /// use leasehold::Break;
    ///
    /// # let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// match client.lock("nightly").break_held(None, "root@web-3")? {
    ///     Break::Broken { fence } => println!("the lease {fence} is over"),
    ///     Break::NotHeld => println!("the lock was free"),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::WrongType`] where something else than a lock of this library uses the name.
    /// - [`ErrorKind::Unknown`] if the request was sent and no reply came: call it again to find out.
    /// - Others for whatever kept the store from answering.
    ///
    /// The call ends within the client's `io_timeout`. On a quorum, a majority of the members has to
    /// break it.
    pub fn break_held(&self, if_fence: Option<u64>, by: &str) -> Result<Break, Error> {
        self.break_if(|held| if_fence.is_none_or(|wanted| held.has(wanted)), by)
    }

    fn break_if(&self, is_meant: impl Fn(&StoredGrant) -> bool, by: &str) -> Result<Break, Error> {
        let core = self.keepers.here()?.core()?;
        self.check_name()?;
        let deadline = Deadline::after(core.config.io_timeout);
        let (mut asked, mut may_be_done) = (None::<StoredGrant>, false);
        loop {
            let found = match &asked {
                Some(held) => Ok(Some(held.clone())),
                None => core.with_store(|store| store.held(&self.name, deadline)),
            };
            let Some(held) = self.named(found)? else { return Ok(Break::NotHeld) };
            let fence = held.fence.unwrap_or(0);
            if !is_meant(&held) {
                return Ok(Break::OtherFence { fence });
            }
            let broken = core.with_store(|store| store.break_grant(&held, by.as_bytes(), deadline));
            match broken {
                Ok(true) => {
                    say!(Info, "broken", lock = &*self.name, fence = fence, by = by);
                    return Ok(Break::Broken { fence });
                }
                // Another client may have broken the next grant since, and the note names that
                // client.
                Ok(false) if may_be_done => return self.named(Err(unconfirmed("it is over"))),
                Ok(false) if deadline.has_passed() => {
                    let what = "each grant was over before it was broken";
                    return self.named(Err(Error::new(ErrorKind::NoAnswer, what)));
                }
                // The grant was released, or ran out.
                Ok(false) => {
                    asked = None;
                    std::thread::sleep(SHORT_PAUSE);
                }
                // Asked again for the same grant, the store says whether it has done it.
                Err(Failure { error, sent }) if error.is_retriable() && !deadline.has_passed() => {
                    (asked, may_be_done) = (Some(held), may_be_done || sent.is_some());
                    std::thread::sleep(PAUSE.min(deadline.left()));
                }
                Err(Failure { error, sent: None }) if !may_be_done => {
                    return self.named(Err(error));
                }
                Err(Failure { error, .. }) => return self.named(Err(unconfirmed(error))),
            }
        }
    }
}

/// Who has broken the lock last, if that was not long ago: the store knows it for a minute longer
/// than the broken lease would have lasted, and for an hour at most.
///
/// # Errors
/// Whatever kept the store from answering, by the client's `io_timeout`; on a quorum, most members.
/// [`ErrorKind::BadArgument`] for a name that none can be.
pub fn last_breach(lock: &Lock) -> Result<Option<Breach>, Error> {
    let core = lock.keepers.here()?.core()?;
    lock.check_name()?;
    let deadline = Deadline::after(core.config.io_timeout);
    let ask = |store: &dyn Store| store.breaches(Lane::Caller, &[&lock.name], deadline);
    lock.named(core.with_store(ask).pop().unwrap_or(Ok(None)))
}

/// [`Lock::break_held`] for just the grant that [`Lock::inspect`] has shown, and for no later one, also
/// where the store knows no fence for it.
///
/// # Errors
/// Those of [`Lock::break_held`].
pub fn break_shown(lock: &Lock, shown: &Holder, by: &str) -> Result<Break, Error> {
    let is_shown = |held: &StoredGrant| {
        held.token.shown() == shown.token_prefix && shown.fence.is_none_or(|fence| held.has(fence))
    };
    lock.break_if(is_shown, by)
}

fn unconfirmed(why: impl Display) -> Error {
    Error::new(ErrorKind::Unknown, format!("the break was not confirmed ({why})"))
}
