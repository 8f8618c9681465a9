//! One server: asking now and reading later, so that several servers can be asked at once.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::Pending;
use super::replies::Again;
use super::single::{Carried, Letter, Single, connect_by};
use crate::clock::{Deadline, Moment};
use crate::store::redis::dialect::Batch;
use crate::store::redis::owing::{About, Debt, Due, MOST};
use crate::store::redis::pool::Lent;
use crate::store::{Failure, Identity, Lane, Owed, Request};

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
        let letter = Letter { batch, about, lane, most, connect_by, deadline, is_scattered };
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
        let count = wire.account.debts.len() + self.batch.replies();
        wire.has_whole(count, until)
    }

    fn finish(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut slot, batch, about, sent, deadline } = *self;
        let mut carried = single.collect(slot, &batch.calls, sent, deadline, Again::Yes);
        single.reload(slot, batch, about, &mut carried, deadline);
        single.pass_over_refusals(&mut carried);
        carried
    }

    fn leave(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut slot, batch, about, sent, deadline: by } = *self;
        let Some(wire) = &mut slot.wire else { return Vec::new() };
        for (index, call) in batch.calls.iter().enumerate() {
            wire.account.debts.push_back(Debt { due: due(about, index, sent), sent, by });
            if call.is_awaited {
                let due = due(About::Nothing, index, sent);
                wire.account.debts.push_back(Debt { due, sent, by });
            }
        }
        single.owing.lay_down(slot);
        Vec::new()
    }
}

/// What the reply to a call is about that nobody waits for.
fn due(about: About<'_>, call: usize, sent: Moment) -> Due {
    match about {
        About::Nothing => Due::Other(Arc::from(&b""[..])),
        About::Name(name) => Due::Other(Arc::from(name)),
        About::Requests(requests) | About::Ballots(requests) => match requests.get(call) {
            Some(&Request::Give { name, token, fence, ttl }) => {
                let identity = Identity { name: Arc::from(name), token, fence, ttl };
                Due::Give(Owed { identity, until: sent.plus(ttl) })
            }
            Some(&Request::Take { name, token, .. }) => Due::Vote(Arc::from(name), token),
            Some(&Request::Extend { name, token, reach, .. }) => {
                Due::Vote(Arc::from(name), reach.holder(token))
            }
            None => Due::Other(Arc::from(&b""[..])),
        },
    }
}
