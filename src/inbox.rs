//! What one thread leaves for another that waits: in its sleep, or with a descriptor in a loop that
//! polls.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex};

pub(crate) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    arrived: Condvar,
    /// Holds one byte while the queue is not empty, or is closed; never more, so that neither end
    /// can ever block.
    pipe: (PipeReader, PipeWriter),
}

struct Queue<T> {
    items: VecDeque<T>,
    closed: bool,
    /// The byte is in the pipe.
    raised: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(what: &str) -> Result<Inbox<T>, Error> {
        let pipe = std::io::pipe().map_err(|error| {
            Error::new(ErrorKind::Exhausted, format!("a pipe for {what}: {error}"))
        })?;
        let queue = Queue { items: VecDeque::new(), closed: false, raised: false };
        Ok(Inbox { queue: Mutex::new(queue), arrived: Condvar::default(), pipe })
    }

    /// Changes what is in it.
    pub(crate) fn put(&self, change: impl FnOnce(&mut VecDeque<T>)) {
        let mut queue = self.queue.lock();
        change(&mut queue.items);
        self.settle(&mut queue);
        self.arrived.notify_one();
    }

    /// Waits for the next item, no longer than until `limit`; an error when nothing more comes.
    pub(crate) fn next(&self, limit: Option<Instant>) -> Result<Option<T>, Error> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(item) = queue.items.pop_front() {
                self.settle(&mut queue);
                return Ok(Some(item));
            }
            if queue.closed {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
            queue = match left {
                None => self.arrived.wait(queue),
                Some(left) if left.is_zero() => return Ok(None),
                Some(left) => self.arrived.wait_for(queue, left),
            };
        }
    }

    /// Wakes everybody who waits. What is in it can still be had.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.settle(&mut queue);
        self.arrived.notify_all();
    }

    /// Makes the descriptor say what is so.
    fn settle(&self, queue: &mut Queue<T>) {
        let wanted = queue.closed || !queue.items.is_empty();
        let done = match (queue.raised, wanted) {
            (false, true) => (&self.pipe.1).write_all(&[1]).is_ok(),
            (true, false) => (&self.pipe.0).read_exact(&mut [0]).is_ok(),
            _ => return,
        };
        queue.raised = queue.raised != done;
    }
}

/// Readable while something is in it, and when it is closed.
impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.0.as_fd()
    }
}
