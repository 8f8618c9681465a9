//! Which connection a request may use, and how long it waits for one.
//!
//! The pool lends seats, not connections. A seat is a place for one connection, empty at first and
//! after every fault: making it costs nothing and cannot fail, and a caller that gets an empty one
//! dials on its own thread, by its own deadline, and sees its own typed error.
//!
//! Seats that are not in use lie in r2d2, but for the one that was put back last, which is lent next:
//! asking r2d2 each time would cost as much as packing a request. In a forked child they lie in a plain
//! list: the parent may have forked while a thread slept in r2d2, on parking_lot's table of sleeping
//! threads, and the child would sleep there for ever (see `sync`).

use std::convert::Infallible;
use std::marker::PhantomData;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use r2d2::{ManageConnection, PooledConnection};
use scheduled_thread_pool::ScheduledThreadPool;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::fork::{OneProcess, without_signals};
use crate::store::{Failure, Lane};
use crate::sync::{Mutex, Permit, Permits, Turnstile, TurnstileGuard};

#[derive(Clone)]
pub(in crate::store) struct Pools {
    size: u32,
    executor: Arc<Executor>,
}

pub(in crate::store) struct Pool<W: Send + 'static> {
    size: u32,
    /// As many as the callers have seats: a caller that is let in finds one.
    entrance: Permits,
    idle: Idle<W>,
    giver: Turnstile<Option<Box<W>>>,
    keeper: Turnstile<Option<Box<W>>>,
}

enum Idle<W: Send + 'static> {
    // The thread sleeps for as long as the executor is there.
    Pool { last: Mutex<Option<Seat<W>>>, seats: r2d2::Pool<Seats<W>>, _executor: Arc<Executor> },
    List(Mutex<Vec<Option<Box<W>>>>),
}

/// Boxed, since it moves with what a request holds.
type Seat<W> = Box<PooledConnection<Seats<W>>>;

/// A seat in use, with its connection; dropping it puts both back.
pub(in crate::store) struct Lent<'a, W: Send + 'static> {
    pub(in crate::store) wire: Option<Box<W>>,
    home: Home<'a, W>,
}

/// A caller's seat is put back before the next caller is let in.
enum Home<'a, W: Send + 'static> {
    Pool { last: &'a Mutex<Option<Seat<W>>>, seat: Option<Seat<W>>, _permit: Permit<'a> },
    List { list: &'a Mutex<Vec<Option<Box<W>>>>, _permit: Permit<'a> },
    Reserved(TurnstileGuard<'a, Option<Box<W>>>),
}

impl<W: Send + 'static> Drop for Lent<'_, W> {
    fn drop(&mut self) {
        let wire = self.wire.take();
        match &mut self.home {
            Home::Pool { last, seat, .. } => {
                let is_open = wire.is_some();
                if let Some(seat) = seat {
                    ***seat = wire;
                }
                // An empty one would be lent before the open one: while the server stands still,
                // every caller would dial in vain instead of writing.
                if is_open {
                    std::mem::swap(&mut *last.lock(), seat);
                }
                // The one before it goes to r2d2 with this, and before the next caller is let in.
            }
            Home::List { list, .. } => {
                let mut list = list.lock();
                let at = if wire.is_some() { list.len() } else { 0 };
                list.insert(at, wire);
            }
            Home::Reserved(seat) => **seat = wire,
        }
    }
}

impl Pools {
    pub(in crate::store) fn new(size: u32) -> Pools {
        Pools { size, executor: Arc::default() }
    }

    pub(in crate::store) fn make<W: Send + 'static>(&self) -> Result<Pool<W>, Error> {
        static R2D2_USED_IN: OneProcess = OneProcess::new();
        let Pools { size, executor } = self;
        let idle = if R2D2_USED_IN.is_this() {
            let (last, seats) = (Mutex::default(), executor.build(Seats(PhantomData), *size)?);
            Idle::Pool { last, seats, _executor: Arc::clone(executor) }
        } else {
            Idle::List(Mutex::new((0..*size).map(|_| None).collect()))
        };
        let (giver, keeper) = Default::default();
        Ok(Pool { size: *size, entrance: Permits::new(*size), idle, giver, keeper })
    }
}

impl<W: Send + 'static> Pool<W> {
    fn take<'a>(&'a self, permit: Option<Permit<'a>>) -> Option<Lent<'a, W>> {
        let permit = permit?;
        match &self.idle {
            Idle::Pool { last, seats, .. } => {
                let kept = last.lock().take();
                let mut seat = kept.or_else(|| seats.try_get().map(Box::new))?;
                let wire = seat.take();
                Some(Lent { wire, home: Home::Pool { last, seat: Some(seat), _permit: permit } })
            }
            Idle::List(list) => {
                let wire = list.lock().pop()?;
                Some(Lent { wire, home: Home::List { list, _permit: permit } })
            }
        }
    }

    fn idle_callers(&self) -> impl Iterator<Item = Lent<'_, W>> {
        std::iter::from_fn(|| self.take(self.entrance.take_now()))
    }

    pub(in crate::store) fn lend(
        &self,
        lane: Lane,
        deadline: Deadline,
    ) -> Result<Lent<'_, W>, Error> {
        let lent = match lane {
            Lane::Caller => self.take(self.entrance.take(deadline)),
            Lane::Give(_) => self
                .take(self.entrance.take_now())
                .or_else(|| self.giver.enter(deadline).map(reserved)),
            Lane::Keeper => self.keeper.enter(deadline).map(reserved),
        };
        lent.ok_or_else(|| {
            let what = match lane {
                Lane::Caller => format!("all {} connections of the pool were in use", self.size),
                _ => "every connection was in use".to_owned(),
            };
            Error::new(ErrorKind::Exhausted, what)
        })
    }

    /// Lends the seats that are not in use, one after the other, until `lend` says stop.
    pub(in crate::store) fn each_idle(&self, mut lend: impl FnMut(&mut Lent<'_, W>) -> bool) {
        let others = [&self.giver, &self.keeper].into_iter().filter_map(Turnstile::enter_now);
        let mut lent = Vec::new();
        for mut seat in self.idle_callers().chain(others.map(reserved)) {
            let goes_on = lend(&mut seat);
            lent.push(seat);
            if !goes_on {
                break;
            }
        }
        // In the reverse order: the seat that was put back last is lent next.
        while lent.pop().is_some() {}
    }

    /// Uses a connection. Where none can be made, for want of descriptors or the like, one that is
    /// open does for renewals and releases.
    pub(in crate::store) fn on_connection<T>(
        &self,
        lane: Lane,
        connect_by: Deadline,
        mut run: impl FnMut(&mut Lent<'_, W>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let lacks_descriptors = |failure: &Failure| {
            failure.sent.is_none() && failure.error.kind() == ErrorKind::Exhausted
        };
        let lent = self.lend(lane, connect_by).map_err(Failure::not_done);
        match lent.and_then(|mut lent| run(&mut lent)) {
            Err(failure) if lane != Lane::Caller && lacks_descriptors(&failure) => {
                self.lend_open().map_or(Err(failure), |mut lent| run(&mut lent))
            }
            done => done,
        }
    }

    /// Lends a seat that has a connection and is not in use, if there is one.
    fn lend_open(&self) -> Option<Lent<'_, W>> {
        let giver = self.giver.enter_now().map(reserved);
        // Kept until one is found, since the pool would lend them again.
        let mut empty = Vec::new();
        giver.into_iter().chain(self.idle_callers()).find_map(|lent| {
            if lent.wire.is_some() {
                return Some(lent);
            }
            empty.push(lent);
            None
        })
    }
}

fn reserved<W: Send + 'static>(mut seat: TurnstileGuard<'_, Option<Box<W>>>) -> Lent<'_, W> {
    Lent { wire: seat.take(), home: Home::Reserved(seat) }
}

/// The thread with which r2d2 makes seats: one for all pools of a client, started with the first.
#[derive(Default)]
struct Executor(Mutex<Option<Sleeper>>);

/// Between two builds the thread sleeps on a channel of `std`: parking_lot's table of sleeping threads
/// would hold it in every forked child (see `sync`). It ends with the last pool.
#[derive(Clone)]
struct Sleeper {
    thread: Arc<ScheduledThreadPool>,
    /// Once for each build: afterwards the thread sleeps until the next one.
    wake: Sender<()>,
    woken: Arc<Mutex<Receiver<()>>>,
}

impl Executor {
    fn build<M>(&self, seats: M, size: u32) -> Result<r2d2::Pool<M>, Error>
    where
        M: ManageConnection,
    {
        let sleeper = self.sleeper()?;
        let _ = sleeper.wake.send(());
        let built = r2d2::Pool::builder()
            .max_size(size)
            // A PING before each use would double the cost of a lock.
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&sleeper.thread))
            .build(seats);
        sleeper.sleep();
        built.map_err(|error| failed(&error.to_string()))
    }

    fn sleeper(&self) -> Result<Sleeper, Error> {
        let mut sleeper = self.0.lock();
        if let Some(sleeper) = &*sleeper {
            return Ok(sleeper.clone());
        }
        let start = || {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("leasehold-pool")
                .build()
        };
        // It panics where no thread can be had.
        let thread = without_signals(|| catch_unwind(start));
        let thread = Arc::new(thread.map_err(|_| failed("no thread can be started"))?);
        let (wake, woken) = channel();
        let started = Sleeper { thread, wake, woken: Arc::new(Mutex::new(woken)) };
        started.sleep();
        Ok(sleeper.insert(started).clone())
    }
}

impl Sleeper {
    fn sleep(&self) {
        let woken = Arc::clone(&self.woken);
        self.thread.execute(move || {
            // An error says that no other build will come.
            let _ = woken.lock().recv();
        });
    }
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Exhausted, format!("the pool: {what}"))
}

struct Seats<W>(PhantomData<fn() -> W>);

impl<W: Send + 'static> ManageConnection for Seats<W> {
    type Connection = Option<Box<W>>;
    type Error = Infallible;

    fn connect(&self) -> Result<Option<Box<W>>, Infallible> {
        Ok(None)
    }

    fn is_valid(&self, _: &mut Option<Box<W>>) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Option<Box<W>>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Tells which thread made it.
    struct Maker;

    impl ManageConnection for Maker {
        type Connection = thread::ThreadId;
        type Error = Infallible;

        fn connect(&self) -> Result<thread::ThreadId, Infallible> {
            Ok(thread::current().id())
        }

        fn is_valid(&self, _: &mut thread::ThreadId) -> Result<(), Infallible> {
            Ok(())
        }

        fn has_broken(&self, _: &mut thread::ThreadId) -> bool {
            false
        }
    }

    #[test]
    fn pools_built_at_the_same_time_and_later_share_one_thread() {
        let executor = Executor::default();
        assert!(executor.0.lock().is_none());
        let build = || executor.build(Maker, 3).unwrap();
        let pools: Vec<_> = thread::scope(|scope| {
            let builds: Vec<_> = (0..8).map(|_| scope.spawn(build)).collect();
            builds.into_iter().map(|build| build.join().unwrap()).collect()
        });
        let first = *pools[0].get().unwrap();
        for pool in pools.iter().chain([&build()]) {
            let slots: Vec<_> = (0..3).map(|_| *pool.try_get().unwrap()).collect();
            assert_eq!(slots, [first; 3]);
        }
    }

    #[test]
    fn an_empty_seat_put_back_last_is_not_lent_before_an_open_one() {
        use std::time::Duration;
        let (giver, keeper) = Default::default();
        let idle = Idle::List(Mutex::new(vec![None, None]));
        let in_child = Pool { size: 2, entrance: Permits::new(2), idle, giver, keeper };
        for pool in [Pools::new(2).make().unwrap(), in_child] {
            let lend = || pool.lend(Lane::Caller, Deadline::after(Duration::from_secs(1))).unwrap();
            let (mut open, empty) = (lend(), lend());
            open.wire = Some(Box::new(()));
            drop(open);
            drop(empty);
            assert!(lend().wire.is_some());
        }
    }

    #[test]
    fn lending_an_open_seat_leaves_the_others_in_their_order() {
        use crate::clock::Moment;
        for giver_is_open in [false, true] {
            let pool = Pools::new(8).make().unwrap();
            let lend =
                |lane| pool.lend(lane, Deadline::after(std::time::Duration::from_secs(1))).unwrap();
            {
                let mut all: Vec<_> = (0..8).map(|_| lend(Lane::Caller)).collect();
                if giver_is_open {
                    lend(Lane::Give(Deadline::at(Moment::NEVER))).wire = Some(Box::new(()));
                }
                // Given back last, so lent first.
                all[5..].iter_mut().for_each(|lent| lent.wire = Some(Box::new(())));
                all.into_iter().for_each(drop);
            }
            let shown = || {
                let all: Vec<_> = (0..8).map(|_| lend(Lane::Caller)).collect();
                let open: Vec<_> = all.iter().map(|lent| lent.wire.is_some()).collect();
                all.into_iter().rev().for_each(drop);
                open
            };
            let before = shown();
            let kept = pool.lend_open();
            assert!(kept.is_some() && pool.lend_open().is_some(), "two at the same time");
            drop(kept);
            assert_eq!(shown(), before);
        }
    }
}
