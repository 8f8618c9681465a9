//! Replies that a connection owes and that nobody waits for. They come before any other, and are
//! read with the next request on it, or by the keeper.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::{ConnectionId, Oldest, Outbox};
use crate::store::{Failure, Identity, ServerId};
use crate::token::Token;

/// Replies that one connection may owe; before more is owed, they are read.
pub(super) const MOST: usize = 64;

pub(super) enum Subject {
    Nothing,
    /// A give in the outbox.
    Give(u64, Identity),
    /// A take or an extension on one of several servers, of which enough had answered.
    Vote(Token),
}

pub(super) struct Owing {
    pub(super) subject: Subject,
    /// Before its first byte was sent.
    pub(super) sent: Moment,
    /// When nobody waits for the reply any longer.
    by: Deadline,
}

pub(super) struct Unread {
    replies: VecDeque<Owing>,
    /// Where it is told what became of them.
    pub(super) outbox: Arc<Outbox>,
    pub(super) on: ConnectionId,
}

impl Unread {
    pub(super) fn new(server: ServerId) -> Unread {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let on = ConnectionId(server, LAST.fetch_add(1, Ordering::Relaxed));
        Unread { replies: VecDeque::new(), outbox: Arc::default(), on }
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn push(&mut self, subject: Subject, (sent, by): Oldest) {
        self.replies.push_back(Owing { subject, sent, by });
        if self.len() == 1 {
            self.tell();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Owing> {
        let first = self.replies.pop_front();
        self.tell();
        first
    }

    /// The reply that comes first is not waited for any longer.
    pub(super) fn is_overdue(&self) -> bool {
        self.replies.front().is_some_and(|owing| owing.by.has_passed())
    }

    /// Without this the keeper would not read what nobody else does.
    fn tell(&self) {
        self.outbox.owes(self.on, self.replies.front().map(|first| (first.sent, first.by)));
    }

    /// The last `count` replies belong to requests that were not sent at all.
    pub(super) fn take_back(&mut self, count: usize, error: &Error) {
        self.lose(self.len() - count, |_| Failure::not_done(error.clone()));
    }

    fn lose(&mut self, from: usize, why: impl Fn(Moment) -> Failure) {
        let lost = self.replies.split_off(from);
        self.tell();
        for Owing { subject, sent, .. } in lost {
            match subject {
                Subject::Nothing => {}
                Subject::Vote(token) => self.outbox.heard(token, self.on, false),
                Subject::Give(id, _) => {
                    self.outbox.answered(id, Some(self.on), &Err(why(sent)));
                }
            }
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if !self.is_empty() {
            let lost = Error::new(ErrorKind::NoAnswer, "the connection was given up");
            self.lose(0, |sent| Failure::unknown(lost.clone(), sent));
        }
    }
}
