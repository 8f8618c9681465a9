//! What a node's scripts do to one name, in plain Rust. No I/O, and no clock of its own.

use std::time::Duration;

use super::{Channel, Held, ModelWakeup, micros};
use crate::config::limits::MAX_FENCE;
use crate::store::quorum::dialect::{Asks, Ballot, Said};
use crate::store::{Place, Reach};
use crate::token::Token;

/// How many waiters a script looks at.
const MOST: usize = 64;
const HOUR: u64 = 3_600_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModelNode {
    pub(crate) lock: Option<Held>,
    pub(crate) side: Option<Side>,
    /// In the order of tickets.
    pub(crate) queue: Vec<Entry>,
    pub(crate) marker: Option<Marker>,
    /// What the server calls itself.
    pub(crate) run: u32,
    /// The client's.
    pub(crate) longest: Duration,
    pub(crate) flaws: Flaws,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Side {
    /// Somebody may stand in the queue.
    pub(crate) queued: bool,
    pub(crate) last: u64,
    /// The attempt of the last grant, and whose it was.
    pub(crate) grant: Option<(u64, Token)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) ticket: u64,
    pub(crate) token: Token,
    pub(crate) channel: Channel,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    pub(crate) run: u32,
    pub(crate) over: u64,
    pub(crate) longest: Duration,
}

/// What is wrong with a node on purpose, so that tests can show that they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flaws {
    pub(crate) raises_any_attempt: bool,
    pub(crate) gives_any_attempt: bool,
    pub(crate) grants_late_copies: bool,
    pub(crate) forgets_that_it_forgot: bool,
    pub(crate) tells_one: bool,
    pub(crate) fills_in_quarantine: bool,
    pub(crate) fills_over_others: bool,
    pub(crate) fills_without_the_fence: bool,
    pub(crate) fills_with_a_lower_fence: bool,
}

/// Whom a run of a script told that the lock is free, on which channel.
pub(crate) type Told = Vec<(Channel, Token)>;

impl ModelNode {
    /// Answers a ballot at `now`, the server's clock in microseconds; none where it is an error.
    pub(crate) fn answer(
        &mut self,
        now: u64,
        ballot: &Ballot<'_>,
        wakeup: ModelWakeup,
        hears: &dyn Fn(Channel) -> bool,
    ) -> (Option<Said>, Told) {
        self.lock.take_if(|held| held.until <= now);
        let mut told = Told::new();
        let fills = matches!(ballot.asks, Asks::Fill { .. }) && self.flaws.fills_in_quarantine;
        if !matches!(ballot.asks, Asks::Give { .. })
            && !fills
            && let Some(left) = self.quarantine(now)
        {
            return (Some(Said::Quarantined { left }), told);
        }
        let token = ballot.token;
        let said = match ballot.asks {
            Asks::Take { ttl, place, attempt, block } => {
                let place = match place {
                    Place::Join(ticket) if wakeup.is_open && wakeup.channel.is_some() => {
                        Some(ticket)
                    }
                    _ => None,
                };
                self.take(now, token, ttl, (attempt, block), wakeup.channel, place)
            }
            Asks::Raise { attempt, fence } => Some(self.raise(token, attempt, fence)),
            Asks::Extend { fence, ttl, reach } => Some(self.extend(now, token, fence, ttl, reach)),
            Asks::Fill { fence, ttl, block } => Some(self.fill(now, token, (fence, block), ttl)),
            Asks::Give { attempt, leaves, tells, .. } => {
                let mine = self.is_held_by(token)
                    && !self.side.as_ref().and_then(|side| side.grant).is_some_and(
                        |(known, owner)| {
                            let later = attempt.is_some_and(|attempt| known > attempt);
                            owner == token && later && !self.flaws.gives_any_attempt
                        },
                    );
                if mine {
                    self.lock = None;
                }
                if let Some(channel) = wakeup.channel.filter(|_| leaves) {
                    self.leave(token, channel);
                }
                if mine && tells {
                    self.tell(hears, &mut told);
                }
                Some(if mine { Said::Given } else { Said::NotMine })
            }
        };
        (said, told)
    }

    fn quarantine(&mut self, now: u64) -> Option<Duration> {
        let marker = self.marker.clone();
        let longest = marker.as_ref().map_or(self.longest, |marker| marker.longest);
        let known = marker.filter(|marker| {
            (marker.run == self.run || self.flaws.forgets_that_it_forgot)
                && marker.over <= now + micros(longest)
        });
        let over = known.map_or(now + micros(longest), |marker| marker.over);
        self.marker = Some(Marker { run: self.run, over, longest });
        (over > now).then(|| Duration::from_millis((over - now).div_ceil(1000)))
    }

    fn take(
        &mut self,
        now: u64,
        token: Token,
        ttl: Duration,
        (attempt, block): (u64, u32),
        channel: Option<Channel>,
        join: Option<u64>,
    ) -> Option<Said> {
        if attempt > now + HOUR && !(block == 1 && self.is_everyday(attempt)) {
            return None;
        }
        let more = u64::from(block) - 1;
        let stored = self.side.clone();
        let side = stored.clone().unwrap_or(Side { queued: false, last: 0, grant: None });
        let known = side.grant.filter(|(_, owner)| *owner == token).map(|(known, _)| known);
        if let Some(held) = self.lock.clone().filter(|held| held.token != Some(token)) {
            let mut ticket = 0;
            if let (Some(wanted), Some(channel)) = (join, channel) {
                self.side = Some(Side { queued: true, ..side.clone() });
                ticket = self.stand(now, token, channel, wanted);
            }
            let ours = side.grant.is_some_and(|(_, owner)| held.token == Some(owner));
            return Some(self.busy(now, ticket, channel.map(|channel| (token, channel)), ours));
        }
        let late = known.is_some_and(|known| attempt <= known);
        if late && !(self.lock.is_none() && self.flaws.grants_late_copies) {
            if self.lock.is_none() || known != Some(attempt) {
                return Some(self.busy(now, 0, None, self.lock.is_some()));
            }
            self.grow(now, ttl);
            return Some(Said::Granted { fence: side.last - more });
        }
        let fence = attempt.max(side.last + 1);
        if fence + more > MAX_FENCE {
            return None;
        }
        if let Some(channel) = channel.filter(|_| side.queued) {
            self.leave(token, channel);
        }
        let queued = !self.queue.is_empty();
        self.side = Some(Side { queued, last: fence + more, grant: Some((attempt, token)) });
        self.lock = Some(Held { token: Some(token), until: now + micros(ttl) });
        Some(Said::Granted { fence })
    }

    /// The number of the attempt is not held against the clock: it is near the last fence.
    fn is_everyday(&self, attempt: u64) -> bool {
        let is_long = |number| (1_000_000_000_000_000..10_000_000_000_000_000).contains(&number);
        let of_hundred_seconds = |number| number / 100_000_000;
        let is_as_declared = |marker: &Marker| marker.over == 0 && marker.longest == self.longest;
        let is_near = |side: &Side| {
            !side.queued
                && side.grant.is_some_and(|(known, _)| is_long(known))
                && [attempt, side.last].into_iter().all(is_long)
                && side.last < attempt
                && of_hundred_seconds(side.last) == of_hundred_seconds(attempt)
        };
        self.lock.is_none()
            && self.marker.as_ref().is_some_and(is_as_declared)
            && self.side.as_ref().is_some_and(is_near)
    }

    fn raise(&mut self, token: Token, attempt: u64, fence: u64) -> Said {
        let is_held = self.is_held_by(token);
        match &mut self.side {
            Some(Side { last, grant: Some((known, owner)), .. })
                if is_held
                    && *owner == token
                    && (*known == attempt || self.flaws.raises_any_attempt)
                    && *last <= fence =>
            {
                *last = fence;
                Said::Raised
            }
            _ => Said::NotMine,
        }
    }

    fn extend(&mut self, now: u64, token: Token, fence: u64, ttl: Duration, reach: Reach) -> Said {
        let passed = matches!(reach, Reach::Pass(to) if self.is_held_by(to));
        if !self.is_held_by(token) && !passed {
            return Said::NotMine;
        }
        match reach {
            Reach::Pass(to) => {
                let lost = Side { queued: true, last: 0, grant: None };
                let Side { queued, last, grant } = self.side.clone().unwrap_or(lost);
                if self.is_held_by(token) {
                    if grant.is_some_and(|(_, owner)| owner != token && owner != to) {
                        return Said::NotMine;
                    }
                    self.side = Some(Side { queued, last: last.max(fence), grant: Some((0, to)) });
                }
                if let Some(held) = &mut self.lock {
                    held.token = Some(to);
                }
                self.grow(now, ttl);
            }
            Reach::Set => {
                self.lock = Some(Held { token: Some(token), until: now + micros(ttl) });
            }
            Reach::Grow => self.grow(now, ttl),
            Reach::Claim => {
                let last = (fence + 1023).min(MAX_FENCE);
                let lost = || Side { queued: true, last, grant: Some((0, token)) };
                self.side.get_or_insert_with(lost);
                self.grow(now, ttl);
            }
        }
        Said::Extended
    }

    fn fill(&mut self, now: u64, token: Token, (fence, block): (u64, u32), ttl: Duration) -> Said {
        if self.lock.is_some() && !self.flaws.fills_over_others {
            return if self.is_held_by(token) { Said::Filled } else { Said::NotMine };
        }
        let (queued, before) =
            self.side.as_ref().map_or((true, 0), |side| (side.queued, side.last));
        let last = match self.flaws {
            Flaws { fills_without_the_fence: true, .. } => before,
            Flaws { fills_with_a_lower_fence: true, .. } => fence,
            _ => before.max((fence + u64::from(block) - 1).min(MAX_FENCE)),
        };
        self.side = Some(Side { queued, last, grant: Some((fence, token)) });
        self.lock = Some(Held { token: Some(token), until: now + micros(ttl) });
        Said::Filled
    }

    fn tell(&mut self, hears: &dyn Fn(Channel) -> bool, told: &mut Told) {
        if self.side.as_ref().is_some_and(|side| !side.queued) {
            return;
        }
        let enough = if self.flaws.tells_one { 1 } else { 2 };
        for _ in 0..MOST {
            let Some(entry) = self.queue.get(told.len()) else { break };
            if hears(entry.channel) {
                told.push((entry.channel, entry.token));
            } else {
                self.queue.remove(told.len());
            }
            if told.len() == enough {
                return;
            }
        }
        if let Some(side) = self.side.as_mut().filter(|_| self.queue.is_empty()) {
            side.queued = false;
        }
    }

    fn stand(&mut self, now: u64, token: Token, channel: Channel, wanted: u64) -> u64 {
        let kept = self.leave(token, channel);
        // It counts itself among those who stand there.
        let newest = self.queue.iter().map(|entry| entry.ticket).max();
        let ticket = match (wanted, kept) {
            (0, Some(kept)) => kept,
            (0, None) => newest.map_or(now, |newest| now.max(newest + 1)),
            (wanted, _) => wanted,
        };
        self.queue.push(Entry { ticket, token, channel });
        self.queue.sort_by_key(|entry| (entry.ticket, entry.token.to_string()));
        ticket
    }

    /// Takes an entry out, and tells its ticket.
    fn leave(&mut self, token: Token, channel: Channel) -> Option<u64> {
        let place = self.place(token, channel)?;
        Some(self.queue.remove(place).ticket)
    }

    fn place(&self, token: Token, channel: Channel) -> Option<usize> {
        self.queue.iter().position(|entry| (entry.token, entry.channel) == (token, channel))
    }

    fn busy(&self, now: u64, ticket: u64, who: Option<(Token, Channel)>, ours: bool) -> Said {
        let place = who.filter(|_| ticket > 0).and_then(|who| self.place(who.0, who.1));
        let until = self.lock.as_ref().map_or(now, |held| held.until);
        Said::Busy {
            free_in: Duration::from_micros(until - now),
            rank: place.unwrap_or(0) as u32,
            ticket,
            holder: 0,
            ours,
        }
    }

    fn grow(&mut self, now: u64, ttl: Duration) {
        if let Some(held) = &mut self.lock {
            held.until = held.until.max(now + micros(ttl));
        }
    }

    fn is_held_by(&self, token: Token) -> bool {
        self.lock.as_ref().is_some_and(|held| held.token == Some(token))
    }
}
