//! One name: who has it, and who waits. Each method is one atomic step, since its caller has the store's
//! mutex.

use std::sync::Arc;
use std::time::Duration;

use super::inbox::Inbox;
use super::{KEPT, micros, reserve_fences};
use crate::clock::Moment;
use crate::store::breaking::{Breach, StoredGrant};
use crate::store::{BLOCK, MOST_WAITERS, Notice, Reach, Reply, Seen, Waiter};
use crate::token::Token;

#[derive(Default)]
pub(super) struct Name {
    /// Whose it is, or was until its ttl ran out.
    grant: Option<Grant>,
    /// The last fence that was reserved for it, or used where its holder has told.
    last_fence: u64,
    /// In the order of their tickets.
    queue: Vec<Standing>,
    last_ticket: u64,
    /// Who broke its lock last, and when.
    breach: Option<(Breach, Moment)>,
    used: Moment,
}

#[derive(Clone, Copy)]
struct Grant {
    token: Token,
    first: u64,
    last: u64,
    since: Moment,
    until: Moment,
    /// A test has it, which outlasts every clock.
    stays: bool,
}

/// A token that waits.
pub(super) struct Standing {
    /// 0 for a token that comes anew, which stands behind all others.
    pub(super) ticket: u64,
    /// As its client says it.
    pub(super) name: Arc<[u8]>,
    pub(super) token: Token,
    pub(super) inbox: Arc<Inbox>,
    /// For how long it is granted a lock that is handed to it.
    pub(super) span: Duration,
    pub(super) since: Moment,
}

impl Grant {
    fn has(&self, fence: u64) -> bool {
        (self.first..=self.last).contains(&fence)
    }

    fn block(&self) -> u32 {
        u32::try_from(self.last - self.first + 1).unwrap_or(u32::MAX)
    }
}

impl Name {
    /// The grant that counts at this moment.
    fn held(&self, now: Moment) -> Option<&Grant> {
        self.grant.as_ref().filter(|grant| now < grant.until)
    }

    /// The same of a token.
    fn held_by(&mut self, token: Token, now: Moment) -> Option<&mut Grant> {
        self.grant.as_mut().filter(|grant| now < grant.until && grant.token == token)
    }

    pub(super) fn take(
        &mut self,
        token: Token,
        ttl: Duration,
        place: Option<Standing>,
        block: u32,
        now: Moment,
    ) -> Reply {
        self.used = now;
        if let Some(grant) = self.held_by(token, now) {
            grant.until = grant.until.max(now.plus(ttl));
            let reply = Reply::Granted { fence: grant.first, block: grant.block() };
            self.leave(token);
            return reply;
        }
        let ticket = place.map_or(0, |place| self.stand(place));
        if self.held(now).is_none() {
            let own = self.queue.iter().find(|place| place.token == token);
            self.hand_over(own.map_or(u64::MAX, |place| place.ticket), now);
        }
        if let Some(grant) = self.held(now) {
            let free_in = grant.until.since(now);
            let rank = self.queue.partition_point(|place| place.ticket < ticket) as u32;
            return Reply::Busy { free_in, ticket, rank, ours: true };
        }
        let fence = reserve_fences(block);
        self.begin(token, (fence, block), (now, now.plus(ttl)));
        self.leave(token);
        Reply::Granted { fence, block }
    }

    pub(super) fn extend(
        &mut self,
        token: Token,
        fence: u64,
        ttl: Duration,
        reach: Reach,
        now: Moment,
    ) -> Reply {
        self.used = now;
        let until = now.plus(ttl);
        let holder = if self.held_by(token, now).is_some() { token } else { reach.holder(token) };
        let Some(grant) = self.held_by(holder, now) else { return Reply::NotMine };
        // A grant that was passed on already has just the one fence that it was passed under.
        let names_it = matches!(reach, Reach::Claim | Reach::Pass(_));
        if names_it && !grant.has(fence) {
            return Reply::NotMine;
        }
        grant.until = if reach == Reach::Set { until } else { grant.until.max(until) };
        if let Reach::Pass(to) = reach {
            (grant.token, grant.first, grant.last) = (to, fence, fence);
            self.last_fence = fence;
        }
        Reply::Extended
    }

    pub(super) fn give(&mut self, token: Token, fence: u64, now: Moment) -> Reply {
        self.used = now;
        self.leave(token);
        let mut reply = Reply::NotMine;
        if let Some(grant) = self.held_by(token, now).copied() {
            if grant.has(fence) {
                self.last_fence = fence;
            }
            if fence == 0 || grant.has(fence) {
                reply = Reply::Given;
            }
            self.grant = None;
        }
        if self.held(now).is_none() {
            self.hand_over(u64::MAX, now);
        }
        reply
    }

    /// Whether it was, or has been, just this grant that was broken.
    pub(super) fn break_grant(
        &mut self,
        held: &StoredGrant,
        by: &[u8],
        (now, wall): (Moment, u64),
    ) -> bool {
        let is_it = |grant: &Grant| held.fence.is_none_or(|fence| fence == grant.first);
        if !self.held_by(held.token, now).is_some_and(|grant| is_it(grant)) {
            return self.breach(now).is_some_and(|breach| breach.token == held.token);
        }
        self.breach = Some((Breach::new(held.token, by, wall), now));
        self.give(held.token, 0, now) == Reply::Given
    }

    pub(super) fn breach(&self, now: Moment) -> Option<&Breach> {
        let fresh = self.breach.as_ref().filter(|(_, at)| now.since(*at) < KEPT);
        fresh.map(|(breach, _)| breach)
    }

    /// To the first waiter with a ticket below this one whose client can be told.
    fn hand_over(&mut self, before: u64, now: Moment) {
        while self.queue.first().is_some_and(|place| place.ticket < before) {
            let fence = reserve_fences(BLOCK);
            let Standing { name, token, inbox, span, .. } = self.queue.remove(0);
            let (name, server) = (name.to_vec(), micros(now));
            let granted = Notice::Granted { name, token, fence, block: BLOCK, server, span };
            if inbox.post(granted) {
                self.begin(token, (fence, BLOCK), (now, now.plus(span)));
                break;
            }
        }
    }

    fn begin(&mut self, token: Token, (first, block): (u64, u32), times: (Moment, Moment)) {
        let (last, (since, until)) = (first + u64::from(block) - 1, times);
        self.grant = Some(Grant { token, first, last, since, until, stays: false });
        self.last_fence = last;
    }

    /// Joins the queue, or stays in it: a token has one place. Answers its ticket.
    fn stand(&mut self, mut place: Standing) -> u64 {
        let old = self.queue.iter().position(|other| other.token == place.token);
        if let Some(old) = old.map(|at| self.queue.remove(at)) {
            place.since = old.since;
            if place.ticket == 0 {
                place.ticket = old.ticket;
            }
        }
        if place.ticket == 0 {
            self.last_ticket += 1;
            place.ticket = self.last_ticket;
        }
        self.last_ticket = self.last_ticket.max(place.ticket);
        let (ticket, behind) = (place.ticket, |other: &Standing| other.ticket <= place.ticket);
        self.queue.insert(self.queue.partition_point(behind), place);
        ticket
    }

    fn leave(&mut self, token: Token) {
        self.queue.retain(|place| place.token != token);
    }

    /// A client has ended.
    pub(super) fn leave_all(&mut self, inbox: &Arc<Inbox>) {
        self.queue.retain(|place| !Arc::ptr_eq(&place.inbox, inbox));
    }

    pub(super) fn stays(&mut self) {
        self.grant.iter_mut().for_each(|grant| grant.stays = true);
    }

    /// As if so much time had passed without a request. Whether that has ended the grant.
    pub(super) fn grow_older(&mut self, by: Duration, now: Moment) -> bool {
        let was_held = self.held(now).is_some();
        if let Some(grant) = &mut self.grant {
            grant.since = grant.since.minus(by);
            if !grant.stays {
                grant.until = grant.until.minus(by);
            }
        }
        self.used = self.used.minus(by);
        self.queue.iter_mut().for_each(|place| place.since = place.since.minus(by));
        self.breach = self.breach.take().filter(|(_, at)| now.since(*at) + by < KEPT);
        self.breach.iter_mut().for_each(|(_, at)| *at = at.minus(by));
        let is_free = self.held(now).is_none();
        if is_free {
            // The first waiter would have asked when the ttl was over.
            self.hand_over(u64::MAX, now);
        }
        was_held && is_free
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.held(now).is_none() && self.queue.is_empty() && now.since(self.used) >= KEPT
    }

    pub(super) fn seen(&self, now: Moment) -> Seen {
        let held = self.held(now);
        Seen {
            is_held: held.is_some(),
            token: held.map(|grant| grant.token),
            left: held.map_or(Duration::ZERO, |grant| grant.until.since(now)),
            first: held.map(|grant| grant.first),
            last: Some(self.last_fence).filter(|fence| *fence != 0),
            age: held.map(|grant| now.since(grant.since)),
            waiting: Some(self.queue.len() as u64),
        }
    }

    /// The first of those that wait, and how many more there are.
    pub(super) fn waiting(&self, now: Moment) -> (Vec<Waiter>, u64) {
        let waiter = |place: &Standing| Waiter {
            token_prefix: place.token.shown(),
            waited: Some(now.since(place.since)),
            client: None,
        };
        let waiters = self.queue.iter().take(MOST_WAITERS).map(waiter).collect();
        (waiters, self.queue.len().saturating_sub(MOST_WAITERS) as u64)
    }
}
