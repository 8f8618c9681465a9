//! One server: asking now and reading later, so that several servers can be asked at once.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::Pending;
use super::single::{Carried, Letter, Single, connect_by};
use crate::clock::{Deadline, Moment};
use crate::store::outbox::{Concern, ConnectionId};
use crate::store::redis::dialect::Batch;
use crate::store::redis::pool::Lent;
use crate::store::redis::unread::{About, MOST, Subject};
use crate::store::{Failure, Identity, Lane, Owed, Request};
use crate::token::Token;

/// A batch that was sent and not answered yet.
pub(super) struct Started<'a> {
    single: &'a Single,
    slot: Lent<'a>,
    batch: &'a Batch,
    about: About<'a>,
    sent: Moment,
    deadline: Deadline,
}

impl Single {
    pub(super) fn begin<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch,
        about: About<'a>,
        connected_by: Deadline,
        deadline: Deadline,
        is_scattered: bool,
    ) -> Result<Started<'a>, Failure> {
        let connect_by = connect_by(lane, deadline).min(connected_by);
        let mut slot = self.pool.lend(lane, connect_by).map_err(Failure::not_done)?;
        let most = MOST.saturating_sub(batch.replies());
        let letter = Letter { batch, about, most, connect_by, deadline, is_scattered };
        let sent = self.send(&mut slot, &letter)?;
        Ok(Started { single: self, slot, batch, about, sent, deadline })
    }
}

impl Pending for Started<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.slot.wire.as_ref().map(super::super::wire::Wire::fd)
    }

    fn is_answered(&mut self, until: Deadline) -> bool {
        let Some(wire) = &mut self.slot.wire else { return true };
        let count = wire.unread.len() + self.batch.replies();
        wire.has_whole(count, until)
    }

    fn finish(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut slot, batch, about, sent, deadline } = *self;
        let mut carried = single.collect(slot, &batch.calls, sent, deadline);
        single.reload(slot, batch, about, &mut carried, deadline);
        single.pass_over_refusals(&mut carried);
        carried
    }

    fn leave(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut slot, batch, about, sent, deadline: by } = *self;
        let Some(wire) = &mut slot.wire else { return Vec::new() };
        let (on, when) = (wire.unread.on, (sent, by));
        for (index, call) in batch.calls.iter().enumerate() {
            let subject = match about.requests().get(index) {
                Some(&Request::Give { name, token, fence, ttl }) => {
                    let identity = Identity { name: Arc::from(name), token, fence, ttl };
                    let owed = Owed { identity: identity.clone(), until: sent.plus(ttl) };
                    let id = single.outbox.written(owed, Concern::Copy, on, when);
                    Subject::Give(id, identity)
                }
                Some(&Request::Take { token, .. }) => vote(single, token, on, when),
                Some(&Request::Extend { token, reach, .. }) => {
                    vote(single, reach.holder(token), on, when)
                }
                None => Subject::Nothing,
            };
            wire.unread.push(subject, when);
            if call.is_awaited {
                wire.unread.push(Subject::Nothing, when);
            }
        }
        Vec::new()
    }
}

fn vote(single: &Single, token: Token, on: ConnectionId, when: (Moment, Deadline)) -> Subject {
    single.outbox.asked(token, on, when);
    Subject::Vote(token)
}
