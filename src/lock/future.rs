//! Futures: calls that take a lock, and that no thread waits with.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Lock;
use super::call::AcquireCall;
use super::state::{AcquireState, Policy};
use super::steps::AcquireStep;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::sync::Mutex;
use crate::token::Token;
use crate::wait::crew::{Parked, ParkedSleep};

/// The future of [`Lock::acquire_async`]: a call that acquires a lock, on any executor.
///
/// The call begins when the future is first polled. Then it joins the queue, and its
/// [`wait`](Lock::wait) begins to count. Polling never blocks: a few threads of the client do the work
/// for all of its futures. There are at most two more of them than the client's `pool`, and they end
/// when nothing waits. In a forked child, the first poll may open the store.
///
/// Dropping the future ends the wait. The client leaves the queue at once, and releases the lock if it
/// was handed over already. Both happen in the background.
///
/// The future ends as [`Lock::acquire`] does, but never with
/// [`WouldDeadlock`](ErrorKind::WouldDeadlock), because the client cannot tell which task holds a lock.
/// In a forked child, a future that began in the parent fails with [`Forked`](ErrorKind::Forked).
#[must_use = "a future does nothing before it is polled"]
pub struct Acquiring(FutureStage);

enum FutureStage {
    New(Lock),
    Begun(Arc<ParkedCall>),
    Over,
}

/// What the future shares with the crew.
struct ParkedCall {
    lock: Lock,
    keeper: Arc<Keeper>,
    number: u64,
    /// `None` once the call is over. Locked while a thread goes on with it.
    state: Mutex<Option<AcquireState>>,
    front: Mutex<Front>,
}

/// What the future and the crew both use; locked for a moment only.
#[derive(Default)]
struct Front {
    waker: Option<Waker>,
    outcome: Option<Result<Lease, Error>>,
    is_dropped: bool,
}

impl Acquiring {
    pub(super) fn new(lock: &Lock) -> Acquiring {
        Acquiring(FutureStage::New(lock.clone()))
    }
}

impl Future for Acquiring {
    type Output = Result<Lease, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Acquiring(stage) = self.get_mut();
        let outcome = match stage {
            FutureStage::New(lock) => match ParkedCall::begin(lock, context.waker()) {
                Ok(waiting) => {
                    *stage = FutureStage::Begun(waiting);
                    return Poll::Pending;
                }
                Err(error) => lock.named(Err(error)),
            },
            // A forked child does not have the threads that may hold its mutexes.
            FutureStage::Begun(waiting) if !waiting.keeper.is_here() => {
                Err(Error::bare(ErrorKind::Forked))
            }
            FutureStage::Begun(waiting) => match waiting.poll(context.waker()) {
                Some(outcome) => outcome,
                None => return Poll::Pending,
            },
            FutureStage::Over => panic!("polled after it was over"),
        };
        *stage = FutureStage::Over;
        Poll::Ready(outcome)
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let FutureStage::Begun(waiting) = &self.0 {
            waiting.abandon();
        }
    }
}

impl ParkedCall {
    /// A call that queues joins the queue here, so that futures have their turns in the order in
    /// which they were first polled.
    fn begin(lock: &Lock, waker: &Waker) -> Result<Arc<ParkedCall>, Error> {
        // First of all: cloning a waker runs code of the program's.
        let front = Front { waker: Some(waker.clone()), ..Front::default() };
        let (terms, lock) = (lock.check()?, lock.clone());
        let keeper = Arc::clone(lock.keepers.here()?);
        let token = Token::of(keeper.client())?;
        let mut state = AcquireState::waits(&lock, token, terms, lock.wait);
        let crew = Arc::clone(&keeper.core()?.room.crew);
        let number = crew.number();
        state.parked = Some(number);
        let mut call = AcquireCall::new(&lock, &keeper, &mut state, None)?;
        if call.state.policy == Policy::Queue {
            call.join()?;
        }
        let ends = call.ends();
        call.park();
        let (state, front) = (Mutex::new(Some(state)), Mutex::new(front));
        let waiting = Arc::new(ParkedCall { lock, keeper, number, state, front });
        crew.park(number, Arc::<ParkedCall>::clone(&waiting), ends).inspect_err(|_| {
            waiting.front.lock().is_dropped = true;
            waiting.go_on();
        })?;
        Ok(waiting)
    }

    fn poll(&self, waker: &Waker) -> Option<Result<Lease, Error>> {
        // Cloning and dropping run code of the program's, so no mutex is held.
        let mut waker = Some(waker.clone());
        let mut front = self.front.lock();
        let outcome = front.outcome.take();
        if outcome.is_none() {
            std::mem::swap(&mut front.waker, &mut waker);
        }
        drop(front);
        outcome
    }

    /// Nobody waits for the outcome any more.
    fn abandon(self: &Arc<ParkedCall>) {
        let Ok(core) = self.keeper.core_even_closed() else { return };
        let mut front = self.front.lock();
        front.is_dropped = true;
        let (waker, has_lease) = (front.waker.take(), matches!(front.outcome, Some(Ok(_))));
        drop(front);
        drop(waker);
        let crew = &core.room.crew;
        if !crew.wake(self.number, true)
            && has_lease
            && crew.park(self.number, Arc::<ParkedCall>::clone(self), Moment::ZERO).is_err()
        {
            // The client was closed, and the lease has ended.
            self.go_on();
        }
    }

    /// Makes steps until the call would sleep; the outcome, if it is over.
    fn until_sleep(&self, state: &mut AcquireState) -> Result<ParkedSleep, Result<Lease, Error>> {
        let mut call = AcquireCall::new(&self.lock, &self.keeper, state, None).map_err(Err)?;
        let ended = loop {
            if self.front.lock().is_dropped {
                break Err(Error::bare(ErrorKind::Interrupted));
            }
            match call.step() {
                Ok(AcquireStep::GoOn) => {}
                Ok(AcquireStep::SleepUntil(wake)) => {
                    if let Some(rest) = call.sleep(wake) {
                        call.park();
                        return Ok(rest);
                    }
                }
                Ok(AcquireStep::Granted(lease)) => break Ok(lease),
                Err(error) => break Err(error),
            }
        };
        Err(call.over_with(ended))
    }

    /// Hands the outcome to the future and wakes its task. Releases a lease that no future will
    /// fetch.
    fn deliver(&self, outcome: Option<Result<Lease, Error>>) {
        let mut front = self.front.lock();
        let outcome = outcome.or(front.outcome.take());
        let unwanted = if front.is_dropped {
            outcome
        } else {
            front.outcome = outcome;
            None
        };
        let waker = front.waker.take();
        drop(front);
        drop(unwanted);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Parked for ParkedCall {
    fn go_on(&self) -> Option<ParkedSleep> {
        let mut state = self.state.lock();
        let Some(going) = state.as_mut() else {
            drop(state);
            contained(|| self.deliver(None));
            return None;
        };
        let outcome = match contained(|| self.until_sleep(going)) {
            Some(Ok(rest)) => return Some(rest),
            Some(Err(outcome)) => outcome,
            None => Err(Error::new(ErrorKind::Unknown, "the wait was abandoned after a panic")),
        };
        *state = None;
        drop(state);
        contained(|| self.deliver(Some(self.lock.named(outcome))));
        None
    }

    fn listen(&self) {
        contained(|| {
            let core = self.keeper.core_even_closed().ok()?;
            core.store.listener().map(|listener| core.room.listen(listener))
        });
    }
}

/// `None` if `act` panicked: the program's logger and wakers may. That ends no other call.
fn contained<T>(act: impl FnOnce() -> T) -> Option<T> {
    // The panic's value is not dropped: its `Drop` is code of the program's, too.
    catch_unwind(AssertUnwindSafe(act)).map_err(std::mem::forget).ok()
}
