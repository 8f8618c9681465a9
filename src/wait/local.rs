//! The threads of this process that want one name: who is next, whose turn it is, and what to ask
//! the store.
//!
//! Threads queue here, and only the first of them has a place in the store's queue. The threads
//! that wait when a grant comes are its *cohort*: their turns follow one another without a command.
//! If the grant ends before all of them had one, the rest of the cohort keeps its ticket: it came
//! before the waiters of other processes that stand behind it.
//!
//! Threads that come later wait for the next ticket, so that a process cannot keep the lock to
//! itself. There is one exception: if a look at the store shows that no other process waits, the
//! threads that wait here at that moment have turns under the same grant, too.
//!
//! No I/O, no threads and no clock of its own: [`room`](super::room) puts threads around it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Pace;
use super::plan::{Ask, Effects, Ending, Limits, Next, Owe, Turn, Validity};
use super::store_place::{ANEW, SLOW_CHECK, StorePlace, next_time};
use crate::clock::Moment;
use crate::config::drift;
use crate::grant::Terms;
use crate::store::{Answer, Reply};
use crate::token::Token;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LocalQueue {
    limits: Limits,
    /// In the order of their arrival; so are their numbers.
    waiters: VecDeque<LocalWaiter>,
    /// The first waiter's place in the store's queue. There is none while a turn is held here.
    place: Option<StorePlace>,
    held: Option<SharedGrant>,
    /// Turns that were given and not fetched yet.
    turns: Vec<(u64, Turn)>,
    /// Tokens whose lock was left taken on purpose before the answer to a take for them was read.
    /// Undoing that take would free a lock that another process may have gone on with.
    left_taken: Vec<Token>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct LocalWaiter {
    id: u64,
    /// For a grant of its own: used at most once.
    token: Token,
    terms: Terms,
    pace: Pace,
}

/// The grant under which turns pass here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SharedGrant {
    place: StorePlace,
    /// The fence of the turn that is held, and the end of the block.
    fence: u64,
    end: u64,
    /// Whether a look may let more waiters in: only if the store granted the lock to a take. Then
    /// the look probably finds no other process.
    looks: bool,
}

#[derive(PartialEq, Eq)]
enum Follows {
    Now,
    IfNobodyWaits,
}

impl LocalQueue {
    pub(crate) fn new(limits: Limits) -> LocalQueue {
        let (waiters, place, held, turns, left_taken) = Default::default();
        LocalQueue { limits, waiters, place, held, turns, left_taken }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == LocalQueue::new(self.limits)
    }

    /// How many wait, including those that have not fetched their turn yet.
    pub(crate) fn length(&self) -> usize {
        self.waiters.len() + self.turns.len()
    }

    /// The waiter whose place is in the store's queue, or is to be, while nothing is under way for
    /// it: only the store can give it a turn.
    pub(crate) fn only_store_can_wake(&self) -> Option<u64> {
        self.place.filter(|place| !place.asking).and(self.head())
    }

    fn head(&self) -> Option<u64> {
        self.waiters.front().map(|head| head.id)
    }

    fn place_of(&mut self, token: Token) -> Option<&mut StorePlace> {
        self.place.as_mut().filter(|place| place.token == token)
    }

    fn held_by(&mut self, token: Token) -> Option<&mut SharedGrant> {
        self.held.as_mut().filter(|held| held.place.token == token)
    }

    pub(crate) fn join(&mut self, id: u64, token: Token, terms: Terms, pace: Pace) {
        self.waiters.push_back(LocalWaiter { id, token, terms, pace });
    }

    pub(crate) fn next(&mut self, id: u64, now: Moment) -> Next {
        if let Some(turn) = self.fetch(id) {
            return Next::Turn(turn);
        }
        let is_next = |head: &&mut LocalWaiter| head.id == id && self.held.is_none();
        let Some(head) = self.waiters.front_mut().filter(is_next) else {
            return Next::Sleep(Moment::NEVER);
        };
        let (token, terms, mut give) = (head.token, head.terms, None);
        let place = match &mut self.place {
            None => StorePlace::new(token, terms, ANEW),
            Some(place) if place.asking => return Next::Sleep(Moment::NEVER),
            // Another thread left this place. That thread wanted other terms, or this waiter does
            // not belong to the cohort for which the place is kept.
            Some(place) if place.terms != terms || id > place.mark => {
                give = Some(owe(place, now));
                let kept = if id > place.mark { ANEW } else { (place.ticket, place.mark) };
                StorePlace::new(token, terms, kept)
            }
            Some(place) if now >= place.wake => *place,
            Some(place) if now < place.look => return Next::Sleep(place.wake.min(place.look)),
            Some(place) => {
                // A failed look delays the next one as long as a good one.
                place.look = now.plus(head.pace.within(self.limits.look));
                return Next::Look(place.token);
            }
        };
        // A waiter that is alone needs one fence, and its give has no others to return.
        let block = if self.waiters.len() > 1 { self.limits.turns } else { 1 };
        Next::Ask(self.ask(place, block, give))
    }

    fn fetch(&mut self, id: u64) -> Option<Turn> {
        let index = self.turns.iter().position(|(whose, _)| *whose == id)?;
        Some(self.turns.swap_remove(index).1)
    }

    fn ask(&mut self, mut place: StorePlace, block: u32, give: Option<Owe>) -> Ask {
        place.ask();
        self.place = Some(place);
        let StorePlace { token, terms, ticket, .. } = place;
        Ask { token, ttl: terms.first_ttl(), ticket, block, give }
    }

    pub(crate) fn answered(&mut self, ask: &Ask, answer: &Answer, now: Moment) -> Effects {
        let (token, ttl, sent) = (ask.token, ask.ttl, answer.sent);
        if self.place_of(token).is_none() {
            return self.answered_late(ask, answer);
        }
        let (Some(place), Some(head)) = (&mut self.place, self.waiters.front_mut()) else {
            return Effects::default();
        };
        match answer.reply {
            Reply::Granted { fence, block } => {
                place.asking = false;
                let is_left = sent.plus(ttl).minus(drift(ttl)) > now;
                let validity = is_left.then_some(Validity::Whole { sent });
                let wake = self.hand((fence, block), validity, true, now);
                Effects { wake, owe: None }
            }
            Reply::Busy { free_in, ticket, rank, ours } => {
                let free_at = sent.plus(free_in);
                // The lock is free, so the waiters before us are gone: ask again at once.
                place.rank = if free_in.is_zero() { 0 } else { rank };
                // Without a place, or behind a holder that is no client of this library, no message
                // comes: poll.
                let wake = if ours && ticket != 0 {
                    let look = head.pace.within(self.limits.look);
                    place.look = next_time(free_at, place.rank, now, look);
                    next_time(free_at, place.rank, now, head.pace.within(SLOW_CHECK))
                } else if let Some(again) = answer.again {
                    sent.plus(head.pace.within(again)).max(now)
                } else {
                    head.pace.next(now, free_at).unwrap_or(now)
                };
                if ticket != 0 {
                    place.ticket = ticket;
                }
                place.answered(sent, wake);
                Effects { wake: Some(head.id), owe: None }
            }
            _ => Effects::default(),
        }
    }

    /// An answer for a token that does not wait any more: a message was read first, or the thread
    /// has left.
    fn answered_late(&mut self, ask: &Ask, answer: &Answer) -> Effects {
        let effects = self.stray(ask.token, ask.ttl, answer.sent);
        if effects.owe.is_some() {
            return effects;
        }
        match answer.reply {
            Reply::Granted { fence, .. } => {
                let is_it = |turn: &Turn| turn.token == ask.token && turn.fence == fence;
                if let Some((_, turn)) = self.turns.iter_mut().find(|(_, turn)| is_it(turn)) {
                    // The answer is worth more than the message.
                    turn.validity = Validity::Whole { sent: answer.sent };
                }
            }
            Reply::Busy { ticket, .. } if ticket != 0 => {
                if let Some(held) = self.held_by(ask.token) {
                    held.place.ticket = ticket;
                }
            }
            _ => {}
        }
        effects
    }

    /// A look that began at `since` says that the lock's ttl is over after `free_in`.
    pub(crate) fn seen(&mut self, token: Token, since: Moment, free_in: Duration, now: Moment) {
        let Some(place) = self.place_of(token) else { return };
        if free_in.is_zero() {
            place.wake_at(now, now);
        } else {
            let latest = place.look.since(now);
            place.look = next_time(since.plus(free_in), place.rank, now, latest);
        }
    }

    /// A take brought no answer. If it was `sent`, it may be carried out.
    pub(crate) fn failed(&mut self, ask: &Ask, sent: Option<Moment>, now: Moment) -> Effects {
        let (token, ttl) = (ask.token, ask.ttl);
        let until = sent.map_or(now, |sent| sent.plus(ttl));
        if self.place_of(token).is_none() {
            if let Some(held) = self.held_by(token) {
                // A message has granted the lock, and the take may still arrive after the give.
                held.place.suspect = held.place.suspect.max(until);
            }
            return self.stray(token, ttl, until);
        }
        let (Some(place), Some(head)) = (&mut self.place, self.waiters.front_mut()) else {
            return Effects::default();
        };
        place.answered(sent.unwrap_or(now), head.pace.next(now, Moment::NEVER).unwrap_or(now));
        place.suspect = place.suspect.max(until);
        Effects { wake: Some(head.id), owe: None }
    }

    /// A message says that the lock was handed to the token for `span`. `since`: from when on, if
    /// that could be dated. Returns the waiter to be woken, as `freed` and `reopened` do.
    ///
    /// A message causes no give. It may lie unread for as long as no thread listens. By then its
    /// token may hold the lock by the answer to a poll, or may have left it taken.
    pub(crate) fn handed(
        &mut self,
        token: Token,
        grant: (u64, u32),
        since: Option<Moment>,
        span: Duration,
        now: Moment,
    ) -> Option<u64> {
        self.place_of(token)?;
        let is_left = |since: &Moment| since.plus(span).minus(drift(span)) > now;
        let since = since.filter(is_left);
        let validity = since.map(|since| Validity::Window { since, span });
        self.hand(grant, validity, false, now)
    }

    /// A message says that the lock is free, for the first that asks.
    pub(crate) fn freed(&mut self, token: Token, now: Moment) -> Option<u64> {
        self.place_of(token)?;
        let (place, head) = (self.place.as_mut()?, self.waiters.front_mut()?);
        let wake = now.plus(head.pace.jitter.up_to(self.limits.spread));
        // Several servers may send this message: the earliest wake stands.
        place.wake_at(if place.asking { wake } else { wake.min(place.wake) }, now);
        Some(head.id)
    }

    /// Messages may have been lost: the first waiter asks.
    pub(crate) fn reopened(&mut self, now: Moment) -> Option<u64> {
        self.place.as_mut()?.wake_at(now, now);
        self.head()
    }

    /// Gives the turn to the first waiter. It asks instead if no validity is left, or if it wants
    /// other terms than the thread whose place it took over.
    fn hand(
        &mut self,
        (fence, block): (u64, u32),
        validity: Option<Validity>,
        looks: bool,
        now: Moment,
    ) -> Option<u64> {
        let (mut place, head) = (self.place?, self.waiters.front_mut()?);
        let id = head.id;
        let Some(validity) = validity.filter(|_| head.terms == place.terms) else {
            place.wake_at(head.pace.next(now, Moment::NEVER).unwrap_or(now), now);
            self.place = Some(place);
            return Some(id);
        };
        self.place = None;
        self.waiters.pop_front();
        let StorePlace { token, terms, ticket, asking, suspect, .. } = place;
        let mark = place.mark.min(self.waiters.back().map_or(0, |newest| newest.id));
        let place = StorePlace { asking, suspect, ..StorePlace::new(token, terms, (ticket, mark)) };
        let end = fence + u64::from(block.min(self.limits.turns).max(1));
        self.held = Some(SharedGrant { place, fence, end, looks });
        let followed = self.waiters.front().is_some_and(|next| next.terms == terms);
        self.turns.push((id, Turn { token, fence, validity, followed }));
        Some(id)
    }

    /// Whether the next waiter may have a turn under the grant, once the turn with this fence has
    /// ended.
    fn following(&self, token: Token, fence: u64, in_time: bool) -> Option<Follows> {
        let is_it = |held: &&SharedGrant| held.place.token == token && held.fence == fence;
        let SharedGrant { place, end, looks, .. } = self.held.as_ref().filter(is_it)?;
        let is_left = in_time && fence + 1 < *end;
        let next = self.waiters.front().filter(|next| is_left && next.terms == place.terms)?;
        if next.id <= place.mark {
            Some(Follows::Now)
        } else {
            looks.then_some(Follows::IfNobodyWaits)
        }
    }

    /// Whether to look, before the turn with this fence ends, if another process waits at the
    /// store: the next waiter here came after the grant, and after the last look.
    pub(crate) fn has_to_look(&self, token: Token, fence: u64, in_time: bool) -> bool {
        self.following(token, fence, in_time) == Some(Follows::IfNobodyWaits)
    }

    /// A look that began after the last turn under this token says that no process waits at the
    /// store.
    pub(crate) fn nobody_waits(&mut self, token: Token) {
        let newest = self.waiters.back().map_or(0, |newest| newest.id);
        if let Some(held) = self.held_by(token) {
            // Drop the ticket: processes that join the store's queue now go before our later
            // threads, and before those of the present ones that get no turn under this grant.
            (held.place.mark, held.place.ticket) = (newest, 0);
        }
    }

    /// The turn with this fence has ended, in time or not. The next turn follows here, or the grant
    /// ends.
    pub(crate) fn end_turn(
        &mut self,
        token: Token,
        fence: u64,
        in_time: bool,
        now: Moment,
    ) -> Ending {
        let next = self.head();
        let follows = self.following(token, fence, in_time) == Some(Follows::Now);
        let is_it = |held: &&mut SharedGrant| held.place.token == token && held.fence == fence;
        let Some(held) = self.held.as_mut().filter(is_it) else { return Ending::TO_STORE };
        if let Some(id) = next.filter(|_| follows) {
            self.waiters.pop_front();
            held.fence += 1;
            let fence = held.fence;
            let turn = Turn { token, fence, validity: Validity::Passed, followed: true };
            self.turns.push((id, turn));
            return Ending::Passed(id);
        }
        let suspect = held.place.suspect;
        self.end_grant();
        if let (Some(place), Some(head)) = (&mut self.place, self.waiters.front_mut()) {
            // Sent in one write with the give, our take would overtake all whom the give tells that
            // the lock is free.
            place.wake = now.plus(head.pace.jitter.up_to(self.limits.spread));
        }
        let place = self.place.filter(|_| self.limits.spread.is_zero());
        // A whole block: threads that come during its turn need fences, too.
        let take = place.map(|place| self.ask(place, self.limits.turns, None));
        Ending::Give { take, until: Some(suspect).filter(|suspect| *suspect > now) }
    }

    /// The grant was lost while a turn was held. Its other fences are not used.
    pub(crate) fn lost(&mut self, token: Token, now: Moment) -> Effects {
        let Some(SharedGrant { place, .. }) = self.held_by(token).cloned() else {
            return Effects::default();
        };
        self.end_grant();
        Effects { wake: self.head(), owe: (place.suspect > now).then(|| owe(&place, now)) }
    }

    /// The lock stays taken although the turn is over: it was left to run out.
    pub(crate) fn left_taken(&mut self, token: Token) -> Option<u64> {
        if self.held_by(token)?.place.asking {
            self.left_taken.push(token);
        }
        self.end_grant();
        self.head()
    }

    /// Undoes what a take did whose token neither holds the lock nor has left it taken.
    fn stray(&mut self, token: Token, ttl: Duration, until: Moment) -> Effects {
        let mut owe = None;
        if let Some(held) = self.held_by(token) {
            held.place.asking = false;
        } else if let Some(index) = self.left_taken.iter().position(|left| *left == token) {
            self.left_taken.swap_remove(index);
        } else {
            owe = Some(Owe { token, ttl, until });
        }
        Effects { wake: None, owe }
    }

    /// Gives the waiter that is first now a place of its own.
    fn end_grant(&mut self) {
        let (Some(held), Some(head)) = (self.held.take(), self.waiters.front()) else { return };
        let StorePlace { ticket, mark, .. } = held.place;
        // Without a ticket there is no place to keep.
        let kept = if head.id <= mark && ticket != 0 { (ticket, mark) } else { ANEW };
        self.place = Some(StorePlace::new(head.token, head.terms, kept));
    }

    /// A waiter goes: with its turn, if it was given one before.
    pub(crate) fn leave(&mut self, id: u64, now: Moment) -> (Option<Turn>, Effects) {
        let (turn, was_head) = (self.fetch(id), self.head() == Some(id));
        self.waiters.retain(|waiter| waiter.id != id);
        if !was_head || self.held.is_some() {
            return (turn, Effects::default());
        }
        // The next waiter takes over its place: token and ticket.
        let unused = self.place.take_if(|_| self.waiters.is_empty());
        (turn, Effects { wake: self.head(), owe: unused.map(|place| owe(&place, now)) })
    }
}

fn owe(place: &StorePlace, now: Moment) -> Owe {
    Owe { token: place.token, ttl: place.terms.first_ttl(), until: place.suspect.max(now) }
}
