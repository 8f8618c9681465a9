//! Any number of futures on one thread, without an executor.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Which of them were woken, in that order.
#[derive(Default)]
struct Woken {
    order: Mutex<VecDeque<usize>>,
    changed: Condvar,
}

struct Bell {
    woken: Arc<Woken>,
    number: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.order.lock().unwrap().push_back(self.number);
        self.woken.changed.notify_all();
    }
}

/// Futures, each with the number that it was added under.
pub struct Futures<F> {
    futures: Vec<Option<Pin<Box<F>>>>,
    woken: Arc<Woken>,
}

impl<F> Default for Futures<F> {
    fn default() -> Futures<F> {
        Futures { futures: Vec::new(), woken: Arc::default() }
    }
}

impl<F: Future> Futures<F> {
    /// Takes one in, without polling it.
    pub fn add(&mut self, future: F) -> usize {
        let number = self.futures.len();
        self.futures.push(Some(Box::pin(future)));
        number
    }

    /// Polls one that has not ended; what came of it.
    pub fn poll(&mut self, number: usize) -> Option<F::Output> {
        let bell = Bell { woken: Arc::clone(&self.woken), number };
        let waker = Waker::from(Arc::new(bell));
        let future = self.futures[number].as_mut()?;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => {
                self.futures[number] = None;
                Some(output)
            }
            Poll::Pending => None,
        }
    }

    /// Drops one.
    pub fn stop(&mut self, number: usize) {
        self.futures[number] = None;
    }

    /// Which one is woken next, without polling it; panics if none is within `limit`.
    #[track_caller]
    pub fn woken(&self, limit: Duration) -> usize {
        let (start, mut order) = (Instant::now(), self.woken.order.lock().unwrap());
        loop {
            if let Some(number) = order.pop_front() {
                return number;
            }
            let left = limit.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| panic!("nobody was woken within {limit:?}"));
            order = self.woken.changed.wait_timeout(order, left).unwrap().0;
        }
    }

    /// The next one that ends, and what came of it.
    #[track_caller]
    pub fn next(&mut self, limit: Duration) -> (usize, F::Output) {
        loop {
            let number = self.woken(limit);
            if let Some(output) = self.poll(number) {
                return (number, output);
            }
        }
    }
}

/// Runs one to its end.
#[track_caller]
pub fn block_on<F: Future>(future: F, limit: Duration) -> F::Output {
    let mut futures = Futures::default();
    let number = futures.add(future);
    match futures.poll(number) {
        Some(output) => output,
        None => futures.next(limit).1,
    }
}
