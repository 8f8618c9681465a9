//! The replies that a connection owes and that nobody waits for. They come before any other reply, and
//! are read with the next request on it, or by the keeper. What becomes of them is told to the
//! [outbox](crate::store::outbox), at whose head all rules about them stand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Deadline, Moment};
use crate::config::Login;
use crate::error::{Error, ErrorKind};
use crate::store::outbox::{ConnectionId, Outbox, ReplyTimes};
use crate::store::{Failure, Identity, ServerId};
use crate::token::Token;

/// The most replies that one connection may owe; before it owes more, they are read.
pub(super) const MOST: usize = 64;

/// What a reply is to.
pub(super) enum Subject {
    /// A command whose reply tells nothing.
    Nothing,
    /// A copy of a give, by its number in the outbox.
    Give(u64, Identity),
    /// Newer credentials.
    Login(Arc<Login>),
    /// A take or an extension on one server of several, after enough others had answered.
    Vote(Token),
}

pub(super) struct UnreadReply {
    pub(super) subject: Subject,
    /// Before the first byte of its request was sent.
    pub(super) sent: Moment,
    /// When the reply is overdue.
    by: Deadline,
}

pub(super) struct UnreadReplies {
    replies: VecDeque<UnreadReply>,
    /// The outbox that is told what became of them. It is set in `Peer::ready`.
    pub(super) outbox: Arc<Outbox>,
    pub(super) on: ConnectionId,
}

impl UnreadReplies {
    pub(super) fn new(server: ServerId) -> UnreadReplies {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let on = ConnectionId(server, LAST.fetch_add(1, Ordering::Relaxed));
        UnreadReplies { replies: VecDeque::new(), outbox: Arc::default(), on }
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn push(&mut self, subject: Subject, (sent, by): ReplyTimes) {
        self.replies.push_back(UnreadReply { subject, sent, by });
        if self.len() == 1 {
            self.note_oldest();
        }
    }

    pub(super) fn pop(&mut self) -> Option<UnreadReply> {
        let first = self.replies.pop_front();
        self.note_oldest();
        first
    }

    /// The deadline of the oldest reply has passed.
    pub(super) fn is_overdue(&self) -> bool {
        self.replies.front().is_some_and(|owing| owing.by.has_passed())
    }

    /// Tells the outbox of the oldest reply: otherwise the keeper would not read what nobody else reads.
    fn note_oldest(&self) {
        self.outbox
            .note_oldest_unread(self.on, self.replies.front().map(|first| (first.sent, first.by)));
    }

    /// Not a byte of the last `count` requests was sent: they have no replies.
    pub(super) fn take_back(&mut self, count: usize, error: &Error) {
        self.lose(self.len() - count, |_| Failure::not_done(error.clone()));
    }

    fn lose(&mut self, from: usize, why: impl Fn(Moment) -> Failure) {
        let lost = self.replies.split_off(from);
        self.note_oldest();
        for UnreadReply { subject, sent, .. } in lost {
            match subject {
                Subject::Nothing | Subject::Login(_) => {}
                Subject::Vote(token) => self.outbox.vote_read(token, self.on, false),
                Subject::Give(id, _) => {
                    self.outbox.answered(id, Some(self.on), &Err(why(sent)));
                }
            }
        }
    }
}

impl Drop for UnreadReplies {
    fn drop(&mut self) {
        if !self.is_empty() {
            let lost = Error::new(ErrorKind::NoAnswer, "the connection was given up");
            self.lose(0, |sent| Failure::unknown(lost.clone(), sent));
        }
    }
}
