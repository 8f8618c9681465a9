//! What the scripts do to one name, in plain Rust: the tests hold it against a real server, and
//! explore clients against it. No I/O, and no clock of its own.

use std::time::Duration;

use super::{Channel, Held, ModelWakeup, micros};
use crate::config::limits::MAX_FENCE;
use crate::store::{BLOCK, Notice, Place, Reach, Reply, Request};
use crate::token::Token;

/// The name that notices carry; requests for any other are taken for this one.
pub(crate) const NAME: &[u8] = b"n";

/// How many of those that are gone a script removes, and how many of them at once.
const MOST: usize = 4000;
const AT_ONCE: usize = 1000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ModelServer {
    pub(crate) lock: Option<Held>,
    pub(crate) side: Option<Side>,
    /// In the order of tickets.
    pub(crate) queue: Vec<Entry>,
    window: Duration,
    flaws: Flaws,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Side {
    /// The last fence reserved.
    pub(crate) last: u64,
    /// Whom the last grant was for, and its first fence, unless that is not known any more.
    pub(crate) grant: Option<(Token, u64)>,
    /// Somebody may stand in the queue.
    pub(crate) queued: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) ticket: u64,
    pub(crate) token: Token,
    pub(crate) channel: Channel,
    /// What its takes ask for.
    pub(crate) ttl: Duration,
}

/// What is wrong with a server on purpose, so that tests can show that they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Flaws {
    /// A lock is handed over for the whole of its ttl.
    pub(crate) full_ttl_at_hand_over: bool,
    /// A give of a token under which no fence was used hands nothing over.
    pub(crate) undo_without_hand_over: bool,
}

/// What is published on a channel that somebody hears.
pub(crate) type Told = (Channel, Notice);

/// One script's run: its moment, who would hear, and what was said.
struct Run<'a> {
    now: u64,
    hears: &'a dyn Fn(Channel) -> bool,
    told: Vec<Told>,
}

impl Run<'_> {
    fn tell(&mut self, channel: Channel, notice: Notice) -> bool {
        let heard = (self.hears)(channel);
        if heard {
            self.told.push((channel, notice));
        }
        heard
    }
}

/// What came of a hand-over.
enum Came {
    Given(Duration),
    /// Nobody stands before the waiter that asks.
    None,
    /// All that were tried are gone, and more are left.
    Some,
}

impl ModelServer {
    pub(crate) fn new(window: Duration, flaws: Flaws) -> ModelServer {
        ModelServer { lock: None, side: None, queue: Vec::new(), window, flaws }
    }

    /// Answers one request at `now`, the server's clock in microseconds, and returns what it tells
    /// to whom. `hears` says which channels have a subscriber.
    pub(crate) fn answer(
        &mut self,
        now: u64,
        request: &Request<'_>,
        wakeup: ModelWakeup,
        hears: &dyn Fn(Channel) -> bool,
    ) -> (Reply, Vec<Told>) {
        self.lock.take_if(|held| held.until <= now);
        let mut run = Run { now, hears, told: Vec::new() };
        let reply = match *request {
            Request::Take { token, ttl, place, block, .. } => {
                let member = wakeup.channel.filter(|_| place != Place::Try);
                let member = member.map(|channel| Entry { ticket: 0, token, channel, ttl });
                let ticket = match place {
                    Place::Join(ticket) if wakeup.is_open => Some(ticket),
                    _ => None,
                };
                self.take(&mut run, token, ttl, block.into(), member, ticket)
            }
            Request::Extend { token, fence, ttl, reach, .. } => {
                self.extend(now, token, fence, ttl, reach)
            }
            Request::Give { token, fence, ttl, .. } => {
                let entry = wakeup.channel.map(|channel| Entry { ticket: 0, token, channel, ttl });
                self.give(&mut run, token, fence, entry)
            }
        };
        (reply, run.told)
    }

    /// A foreign client takes the lock, held or not.
    pub(crate) fn seize(&mut self, until: u64) {
        self.lock = Some(Held { token: None, until });
    }

    fn take(
        &mut self,
        run: &mut Run<'_>,
        token: Token,
        ttl: Duration,
        block: u64,
        member: Option<Entry>,
        ticket: Option<u64>,
    ) -> Reply {
        let now = run.now;
        let stored = self.side.clone();
        let side = stored.clone().unwrap_or(Side { last: 0, grant: None, queued: false });
        match &self.lock {
            Some(held) if held.token != Some(token) => {
                let free_in = Duration::from_micros(held.until - now);
                let ours = held.token.is_some() && side.grant.map(|(to, _)| to) == held.token;
                let place = member.zip(ticket).map(|(member, ticket)| {
                    self.side = Some(Side { queued: true, ..side });
                    self.stand(now, member, ticket)
                });
                return self.busy(free_in, place.as_ref(), ours);
            }
            Some(_) => {
                let until = now + micros(ttl);
                if let Some(held) = &mut self.lock {
                    held.until = held.until.max(until);
                }
                if side.queued {
                    self.leave(member.as_ref());
                }
                if let Some((to, first)) = side.grant
                    && to == token
                {
                    let block = (side.last - first + 1) as u32;
                    return Reply::Granted { fence: first, block };
                }
            }
            None => {}
        }
        let mut last = side.last;
        let queued = stored.map_or(!self.queue.is_empty(), |side| side.queued);
        let mut left = queued;
        if queued && self.lock.is_none() {
            let place =
                member.clone().zip(ticket).map(|(member, ticket)| self.stand(now, member, ticket));
            match self.hand_over(run, &mut last, member.as_ref()) {
                Came::Given(free_in) => return self.busy(free_in, place.as_ref(), true),
                Came::Some => return self.busy(Duration::ZERO, place.as_ref(), true),
                Came::None => {}
            }
            self.leave(member.as_ref());
            left = !self.queue.is_empty();
        }
        let first = now.max(last + 1);
        self.side = Some(Side {
            last: (first + block - 1).min(MAX_FENCE),
            grant: Some((token, first)),
            queued: left,
        });
        let until = now + micros(ttl);
        self.lock.get_or_insert(Held { token: Some(token), until });
        Reply::Granted { fence: first, block: block as u32 }
    }

    fn extend(&mut self, now: u64, token: Token, fence: u64, ttl: Duration, reach: Reach) -> Reply {
        let until = now + micros(ttl);
        let grant = self.side.as_ref().and_then(|side| side.grant);
        if let Reach::Pass(to) = reach {
            return self.pass(token, fence, to, until);
        }
        let Some(held) = self.lock.as_mut().filter(|held| held.token == Some(token)) else {
            return Reply::NotMine;
        };
        let last = self.side.as_ref().map_or(0, |side| side.last);
        let other = |(to, first)| to != token || !(first..=last).contains(&fence);
        if reach == Reach::Claim && grant.is_some_and(other) {
            return Reply::NotMine;
        }
        held.until = if reach == Reach::Set { until } else { held.until.max(until) };
        if reach == Reach::Claim && grant.is_none() {
            let last = self.side.as_ref().map_or(0, |side| side.last).max(fence + 1023);
            self.side = Some(Side { last, grant: Some((token, fence)), queued: true });
        }
        Reply::Extended
    }

    fn pass(&mut self, token: Token, fence: u64, to: Token, until: u64) -> Reply {
        let held = self.lock.as_mut();
        let Some(held) = held.filter(|held| [Some(token), Some(to)].contains(&held.token)) else {
            return Reply::NotMine;
        };
        if held.token == Some(token) {
            let side = self.side.take().unwrap_or(Side { last: 0, grant: None, queued: true });
            let (last, queued) = (side.last, side.queued);
            let other = |(owner, first): (Token, u64)| {
                ![token, to].contains(&owner) || !(first..=last).contains(&fence)
            };
            if side.grant.is_some_and(other) {
                self.side = Some(side);
                return Reply::NotMine;
            }
            self.side = Some(Side { last: fence, grant: Some((to, fence)), queued });
        }
        *held = Held { token: Some(to), until: held.until.max(until) };
        Reply::Extended
    }

    fn give(&mut self, run: &mut Run<'_>, token: Token, fence: u64, entry: Option<Entry>) -> Reply {
        let queued = self.side.as_ref().map_or(!self.queue.is_empty(), |side| side.queued);
        let mine = self.lock.as_ref().is_some_and(|held| held.token == Some(token));
        let taken = self.lock.is_some() && !mine;
        if mine {
            self.lock = None;
        }
        if queued || fence == 0 {
            self.leave(entry.as_ref());
        }
        if taken {
            return Reply::NotMine;
        }
        let mut side = self.side.clone().unwrap_or(Side { last: 0, grant: None, queued: false });
        let mut reply = if mine { Reply::Given } else { Reply::NotMine };
        if let Some((to, first)) = side.grant
            && mine
            && fence > 0
            && to == token
        {
            if (first..=side.last).contains(&fence) {
                side.last = fence;
            } else {
                reply = Reply::NotMine;
            }
        }
        if self.side.is_some() {
            self.side = Some(side.clone());
        }
        if queued && !(self.flaws.undo_without_hand_over && fence == 0) {
            let mut last = side.last;
            let came = self.hand_over(run, &mut last, None);
            if let (Came::None, Some(side)) = (came, &mut self.side) {
                side.queued = false;
            }
        }
        reply
    }

    /// Hands the lock to the first waiter that hears it, as far as those before `me` go.
    fn hand_over(&mut self, run: &mut Run<'_>, last: &mut u64, me: Option<&Entry>) -> Came {
        let mut tried = 0;
        loop {
            if self.queue.is_empty() || self.place(me) == Some(0) {
                return Came::None;
            } else if tried >= MOST {
                return Came::Some;
            }
            let entry = self.queue.remove(0);
            let first = run.now.max(*last + 1);
            *last = (first + u64::from(BLOCK) - 1).min(MAX_FENCE);
            let grant = Some((entry.token, first));
            self.side = Some(Side { last: *last, grant, queued: true });
            let span = if self.flaws.full_ttl_at_hand_over {
                entry.ttl
            } else {
                entry.ttl.min(self.window)
            };
            let notice = Notice::Granted {
                name: NAME.to_vec(),
                token: entry.token,
                fence: first,
                block: (*last - first + 1) as u32,
                server: run.now,
                span,
            };
            if run.tell(entry.channel, notice) {
                let until = run.now + micros(span);
                self.lock = Some(Held { token: Some(entry.token), until });
                return Came::Given(span);
            }
            let mine = self.place(me).unwrap_or(usize::MAX);
            let is_gone = |(at, entry): &(usize, &Entry)| *at < mine && !(run.hears)(entry.channel);
            let gone = self.queue.iter().enumerate().take(AT_ONCE).take_while(is_gone).count();
            self.queue.drain(..gone);
            tried += 1 + gone;
        }
    }

    fn stand(&mut self, now: u64, member: Entry, ticket: u64) -> Entry {
        let kept = self.place(Some(&member)).map(|place| self.queue[place].ticket);
        let newest = self.queue.last().map_or(0, |entry| entry.ticket);
        let ticket = match (ticket, kept) {
            (0, Some(kept)) => kept,
            (0, None) => now.max(newest + 1),
            (ticket, _) => ticket,
        };
        self.leave(Some(&member));
        let entry = Entry { ticket, ..member };
        self.queue.push(entry.clone());
        self.queue.sort_by_cached_key(|entry| (entry.ticket, entry.token.to_string()));
        entry
    }

    fn leave(&mut self, entry: Option<&Entry>) {
        if let Some(place) = self.place(entry) {
            self.queue.remove(place);
        }
    }

    /// A place is found by everything but its ticket.
    fn place(&self, entry: Option<&Entry>) -> Option<usize> {
        let entry = entry?;
        let member = |entry: &Entry| (entry.token, entry.channel, entry.ttl.min(self.window));
        self.queue.iter().position(|other| member(other) == member(entry))
    }

    fn busy(&self, free_in: Duration, place: Option<&Entry>, ours: bool) -> Reply {
        let ticket = place.map_or(0, |entry| entry.ticket);
        let rank = self.place(place).unwrap_or(0) as u32;
        Reply::Busy { free_in, ticket, rank, ours }
    }
}
