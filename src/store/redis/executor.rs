//! The thread with which r2d2 makes the slots of its pools: one for all pools of a client, started
//! with the first of them.
//!
//! r2d2 makes all slots while a pool is built, and has nothing left to do afterwards. Its thread
//! then sleeps on a mutex of `std`, not of parking_lot: parking_lot's table of sleeping threads would
//! hold it in every forked child (see `sync`).

use std::panic::catch_unwind;
use std::sync::Arc;

use r2d2::{ManageConnection, Pool};
use scheduled_thread_pool::ScheduledThreadPool;

use crate::error::{Error, ErrorKind};
use crate::fork::without_signals;
use crate::sync::{Condvar, Mutex};

#[derive(Default)]
pub(super) struct Executor {
    thread: Mutex<Option<Arc<ScheduledThreadPool>>>,
    builds: Arc<Builds>,
}

/// How many pools are being built; with none, the thread sleeps.
#[derive(Default)]
struct Builds {
    count: Mutex<usize>,
    begun: Condvar,
}

impl Builds {
    fn begin(&self) {
        *self.count.lock() += 1;
        self.begun.notify_all();
    }

    fn await_one(&self) {
        let mut count = self.count.lock();
        while *count == 0 {
            count = self.begun.wait(count);
        }
    }
}

impl Executor {
    pub(super) fn build<M>(&self, slots: M, size: u32) -> Result<Pool<M>, Error>
    where
        M: ManageConnection,
    {
        let thread = self.thread()?;
        self.builds.begin();
        let built = Pool::builder()
            .max_size(size)
            // A PING before each use would double the cost of a lock.
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&thread))
            .build(slots);
        *self.builds.count.lock() -= 1;
        let builds = Arc::clone(&self.builds);
        thread.execute(move || builds.await_one());
        built.map_err(|error| failed(&error.to_string()))
    }

    fn thread(&self) -> Result<Arc<ScheduledThreadPool>, Error> {
        let mut thread = self.thread.lock();
        if let Some(thread) = &*thread {
            return Ok(Arc::clone(thread));
        }
        let start = || {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("leasehold-pool")
                .build()
        };
        // It panics where no thread can be had.
        let started = catch_unwind(|| without_signals(start));
        let started = Arc::new(started.map_err(|_| failed("no thread can be started"))?);
        *thread = Some(Arc::clone(&started));
        Ok(started)
    }
}

/// Its pools have left it by now, since they hold it: the thread wakes, and ends.
impl Drop for Executor {
    fn drop(&mut self) {
        self.thread.lock().take();
        self.builds.begin();
    }
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Exhausted, format!("the pool: {what}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
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
        assert!(executor.thread.lock().is_none());
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
}
