//! The threads of this process that want one name: who is next, whose turn it is, and what to ask
//! the store.
//!
//! Threads queue here, and only the first of them has a place in the store's queue. Under a grant
//! the turns of those who were waiting when it came (its cohort) follow one another without a
//! command. Where it ends before all of them had one, the rest of the cohort goes on with its
//! ticket: they came before the waiters behind it. Later ones wait for the next ticket, so that a
//! process cannot keep the lock to itself.
//!
//! No I/O, no threads and no clock of its own: answers, notices and moments go in; requests, turns
//! and whom to wake come out. [`room`](super::room) puts threads around it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Pace;
use super::plan::{Ask, Effects, Ending, Limits, Next, Owe, Turn, Validity};
use super::store_place::{SLOW_CHECK, StorePlace, next_time};
use crate::clock::Moment;
use crate::config::drift;
use crate::grant::Terms;
use crate::store::{Answer, Reply};
use crate::token::Token;

/// The threads of this process that want one name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LocalQueue {
    limits: Limits,
    /// In the order of their numbers, which is that of their coming.
    waiters: VecDeque<Queued>,
    /// The first waiter's place in the store's queue. There is none while a turn is held here.
    place: Option<StorePlace>,
    held: Option<SharedGrant>,
    /// Turns that were given and not fetched yet.
    turns: Vec<(u64, Turn)>,
    /// Tokens whose lock was left taken on purpose before the answer to a take for them was read.
    /// Undoing that take would free a lock that somebody may have gone on with.
    left: Vec<Token>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Queued {
    id: u64,
    /// For a grant of its own: used at most once.
    token: Token,
    terms: Terms,
    pace: Pace,
}

/// The grant under which turns pass here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SharedGrant {
    token: Token,
    terms: Terms,
    /// Of the place that it was granted to.
    ticket: u64,
    /// The fence of the turn that is held, and the end of the block.
    fence: u64,
    end: u64,
    /// The last waiter of its cohort.
    mark: u64,
    /// Until then, a take that went astray may still be carried out for the token.
    suspect: Moment,
    /// The answer to a take for the token was not read yet.
    asking: bool,
}

impl LocalQueue {
    pub(crate) fn new(limits: Limits) -> LocalQueue {
        LocalQueue {
            limits,
            waiters: VecDeque::new(),
            place: None,
            held: None,
            turns: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Nobody waits or holds here, and nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
            && self.place.is_none()
            && self.held.is_none()
            && self.turns.is_empty()
            && self.left.is_empty()
    }

    /// Whether the place of this waiter is in the store's queue, or is to be, and nothing is under
    /// way for it: then only the store can give it a turn.
    pub(crate) fn is_standing(&self, id: u64) -> bool {
        self.waiters.front().is_some_and(|head| head.id == id)
            && self.place.as_ref().is_some_and(|place| !place.asking)
    }

    /// A newcomer. The numbers grow from one to the next.
    pub(crate) fn join(&mut self, id: u64, token: Token, terms: Terms, pace: Pace) {
        self.waiters.push_back(Queued { id, token, terms, pace });
    }

    /// What a waiter's thread has to do now.
    pub(crate) fn next(&mut self, id: u64, now: Moment) -> Next {
        if let Some(index) = self.turns.iter().position(|(whose, _)| *whose == id) {
            return Next::Turn(self.turns.swap_remove(index).1);
        }
        let Some(head) = self.waiters.front_mut() else { return Next::Sleep(Moment::NEVER) };
        if head.id != id || self.held.is_some() {
            return Next::Sleep(Moment::NEVER);
        }
        let (token, terms) = (head.token, head.terms);
        let mut give = None;
        if let Some(place) = &mut self.place {
            if place.asking {
                return Next::Sleep(Moment::NEVER);
            }
            // The place was left to somebody who wants another kind of grant, or is not of the
            // cohort that it was kept for.
            let stranger = place.mark.is_some_and(|mark| id > mark);
            if place.terms != terms || stranger {
                give = Some(owe(place, now));
                let kept = if stranger { (0, None) } else { (place.ticket, place.mark) };
                self.place = Some(StorePlace::new(token, terms, kept));
            } else if now < place.wake {
                if now < place.look {
                    return Next::Sleep(place.wake.min(place.look));
                }
                // One that brings nothing puts the next one off no less.
                place.look = now.plus(head.pace.within(self.limits.look));
                return Next::Look(place.token);
            }
        }
        let place = self.place.take().unwrap_or_else(|| StorePlace::new(token, terms, (0, None)));
        Next::Ask(self.ask(place, give))
    }

    fn ask(&mut self, mut place: StorePlace, give: Option<Owe>) -> Ask {
        place.ask();
        // Alone, one fence is enough, and nothing has to be cut back.
        let block = if self.waiters.len() > 1 { self.limits.turns } else { 1 };
        let (token, ttl, ticket) = (place.token, place.terms.first_ttl(), place.ticket);
        self.place = Some(place);
        Ask { token, ttl, ticket, block, give }
    }

    /// A take was answered.
    pub(crate) fn answered(&mut self, ask: &Ask, answer: &Answer, now: Moment) -> Effects {
        match answer.reply {
            Reply::Granted { fence, block } => self.granted(ask, (fence, block), answer.sent, now),
            Reply::Busy { free_in, ticket, rank, ours } => {
                let free_at = answer.sent.plus(free_in);
                self.busy(ask, answer.sent, (free_at, ticket, rank, ours), now)
            }
            _ => Effects::default(),
        }
    }

    fn granted(
        &mut self,
        &Ask { token, ttl, .. }: &Ask,
        (fence, block): (u64, u32),
        sent: Moment,
        now: Moment,
    ) -> Effects {
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else {
            let effects = self.stray(token, ttl, sent);
            // The message was read before the answer, which is worth more.
            if effects.owe.is_none()
                && let Some((_, turn)) = self.turns.iter_mut().find(|(_, turn)| turn.token == token)
                && turn.fence == fence
            {
                turn.validity = Validity::Whole { sent };
            }
            return effects;
        };
        // Nothing of it is left: asked again with the same token, it is granted anew. Or the thread
        // that asked went, and it is another kind of grant than the next one wants, who gives it.
        let unfit = self.waiters.front().is_some_and(|head| head.terms != place.terms);
        if unfit || sent.plus(ttl).minus(drift(ttl)) <= now {
            let pace = self.waiters.front_mut().and_then(|head| head.pace.next(now, Moment::NEVER));
            place.answered(now, pace.unwrap_or(now));
            return self.wake_head();
        }
        place.asking = false;
        self.hand(fence, block, Validity::Whole { sent })
    }

    fn busy(
        &mut self,
        &Ask { token, ttl, .. }: &Ask,
        sent: Moment,
        (free_at, ticket, rank, ours): (Moment, u64, u32, bool),
        now: Moment,
    ) -> Effects {
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else {
            if let Some(held) = self.held.as_mut().filter(|held| held.token == token) {
                // The message was read before the answer, which tells the ticket.
                held.ticket = if ticket == 0 { held.ticket } else { ticket };
            }
            return self.stray(token, ttl, sent);
        };
        let Some(head) = self.waiters.front_mut() else { return Effects::default() };
        // Free already: the waiters before us are gone, and it is for us to go on at once.
        let rank = if free_at <= sent { 0 } else { rank };
        place.rank = rank;
        // Any other holder may free the lock without telling anybody, so it is asked for often.
        let wake = if ours && ticket != 0 {
            place.look = next_time(free_at, rank, now, head.pace.within(self.limits.look));
            next_time(free_at, rank, now, head.pace.around(SLOW_CHECK))
        } else {
            head.pace.next(now, free_at).unwrap_or(now)
        };
        if ticket != 0 {
            place.ticket = ticket;
        }
        place.answered(sent, wake);
        self.wake_head()
    }

    /// The lock that a token waits for is free after so long by its ttl, as a look says that began at
    /// `since`.
    pub(crate) fn seen(&mut self, token: Token, since: Moment, free_in: Duration, now: Moment) {
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else { return };
        if !free_in.is_zero() {
            let latest = place.look.since(now);
            place.look = next_time(since.plus(free_in), place.rank, now, latest);
        } else {
            place.tell(now, now);
        }
    }

    /// A take brought no answer; with a moment, it was sent then, and may be carried out.
    pub(crate) fn failed(&mut self, ask: &Ask, sent: Option<Moment>, now: Moment) -> Effects {
        let (token, ttl) = (ask.token, ask.ttl);
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else {
            let effects = self.stray(token, ttl, sent.unwrap_or(now).plus(ttl));
            return if sent.is_some() { effects } else { Effects::default() };
        };
        let Some(head) = self.waiters.front_mut() else { return Effects::default() };
        let wake = head.pace.next(now, Moment::NEVER).unwrap_or(now);
        place.failed(sent, wake);
        self.wake_head()
    }

    /// A message says that the lock is the token's, for `span` since a moment; `None` where that
    /// could not be dated.
    pub(crate) fn handed(
        &mut self,
        token: Token,
        (fence, block): (u64, u32),
        since: Option<Moment>,
        span: Duration,
        now: Moment,
    ) -> Effects {
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else {
            // A message may lie unread for as long as nobody listens. By then its token may have
            // been granted the lock by the answer to a poll, hold it, or have left it taken for
            // another process, so nothing is given because of a message. A token that nobody waits
            // for keeps the lock for the window at most.
            return Effects::default();
        };
        let unfit = self.waiters.front().is_some_and(|head| head.terms != place.terms);
        let left = |since: &Moment| !unfit && since.plus(span).minus(drift(span)) > now;
        let Some(since) = since.filter(left) else {
            // Nothing of it is left, or nobody knows: the answer to a poll is worth the whole ttl.
            // Or the next one wants another kind of grant, and gives this one.
            place.tell(now, now);
            return self.wake_head();
        };
        self.hand(fence, block, Validity::Window { since, span })
    }

    /// A message says that the lock is free, for the first that asks.
    pub(crate) fn freed(&mut self, token: Token, now: Moment) -> Effects {
        let Some(place) = self.place.as_mut().filter(|place| place.token == token) else {
            return Effects::default();
        };
        let Some(head) = self.waiters.front_mut() else { return Effects::default() };
        let wake = now.plus(head.pace.up_to(self.limits.spread));
        // Where several servers tell the same, what the first one said stands.
        place.tell(if place.asking { wake } else { wake.min(place.wake) }, now);
        self.wake_head()
    }

    /// Messages may have been lost: the first waiter asks.
    pub(crate) fn reopened(&mut self, now: Moment) -> Effects {
        match &mut self.place {
            Some(place) => {
                place.tell(now, now);
                self.wake_head()
            }
            None => Effects::default(),
        }
    }

    /// The first waiter has the lock.
    fn hand(&mut self, fence: u64, block: u32, validity: Validity) -> Effects {
        let (Some(place), Some(head)) = (self.place.take(), self.waiters.pop_front()) else {
            return Effects::default();
        };
        let newest = self.waiters.back().map_or(0, |waiter| waiter.id);
        self.held = Some(SharedGrant {
            token: place.token,
            terms: place.terms,
            ticket: place.ticket,
            fence,
            end: fence + u64::from(block.min(self.limits.turns).max(1)),
            mark: place.mark.unwrap_or(newest),
            suspect: place.suspect,
            asking: place.asking,
        });
        let token = place.token;
        let followed = self.waiters.front().is_some_and(|next| next.terms == place.terms);
        self.turns.push((head.id, Turn { token, fence, validity, followed }));
        Effects { wake: Some(head.id), owe: None }
    }

    /// The turn with this fence has ended, in time or not: the next one follows here, or the grant
    /// is given up.
    pub(crate) fn end_turn(
        &mut self,
        token: Token,
        fence: u64,
        in_time: bool,
        now: Moment,
    ) -> Ending {
        let Some(held) =
            self.held.as_mut().filter(|held| held.token == token && held.fence == fence)
        else {
            return Ending::Alone;
        };
        let next = self.waiters.front().filter(|next| {
            next.id <= held.mark && next.terms == held.terms && held.fence + 1 < held.end && in_time
        });
        if let Some(id) = next.map(|next| next.id) {
            held.fence += 1;
            let fence = held.fence;
            self.waiters.pop_front();
            let turn = Turn { token, fence, validity: Validity::Passed, followed: true };
            self.turns.push((id, turn));
            return Ending::Passed(id);
        }
        let until = Some(held.suspect).filter(|suspect| *suspect > now);
        let take = match self.next_place() {
            Some(place) if self.limits.spread.is_zero() => Some(self.ask(place, None)),
            Some(mut place) => {
                // In the same write it would come before all who are only told now that the lock is
                // free.
                let pause =
                    self.waiters.front_mut().map(|head| head.pace.up_to(self.limits.spread));
                place.tell(now.plus(pause.unwrap_or_default()), now);
                self.place = Some(place);
                None
            }
            None => None,
        };
        Ending::Give { take, until }
    }

    /// The grant was lost while a turn was held. Its other fences are not used.
    pub(crate) fn lost(&mut self, token: Token, now: Moment) -> Effects {
        let Some(held) = self.held.as_ref().filter(|held| held.token == token) else {
            return Effects::default();
        };
        let owe = Owe { token, ttl: held.terms.first_ttl(), until: held.suspect };
        let owe = (held.suspect > now).then_some(owe);
        let Some(mut place) = self.next_place() else { return Effects { wake: None, owe } };
        place.tell(now, now);
        self.place = Some(place);
        Effects { owe, ..self.wake_head() }
    }

    /// The lock stays taken although the turn is over: it was left to run out.
    pub(crate) fn left_taken(&mut self, token: Token) -> Effects {
        let Some(held) = self.held.as_ref().filter(|held| held.token == token) else {
            return Effects::default();
        };
        if held.asking {
            self.left.push(token);
        }
        self.place = self.next_place();
        self.wake_head()
    }

    /// An answer for a token that does not wait any more is old news where the token holds the
    /// lock, or has left it taken. Anything else that the store did for it is undone.
    fn stray(&mut self, token: Token, ttl: Duration, until: Moment) -> Effects {
        let mut owe = None;
        if let Some(held) = self.held.as_mut().filter(|held| held.token == token) {
            held.asking = false;
        } else if let Some(index) = self.left.iter().position(|left| *left == token) {
            self.left.swap_remove(index);
        } else {
            owe = Some(Owe { token, ttl, until });
        }
        Effects { wake: None, owe }
    }

    /// The grant has ended: the place of the waiter who is first now.
    fn next_place(&mut self) -> Option<StorePlace> {
        let (held, head) = (self.held.take()?, self.waiters.front()?);
        // Without a place to keep it is a wait like any other.
        let keeps = head.id <= held.mark && held.ticket != 0;
        let kept = if keeps { (held.ticket, Some(held.mark)) } else { (0, None) };
        Some(StorePlace::new(head.token, head.terms, kept))
    }

    /// A waiter goes: with its turn, if it was given one before.
    pub(crate) fn leave(&mut self, id: u64, now: Moment) -> (Option<Turn>, Effects) {
        if let Some(index) = self.turns.iter().position(|(whose, _)| *whose == id) {
            return (Some(self.turns.swap_remove(index).1), Effects::default());
        }
        let Some(index) = self.waiters.iter().position(|waiter| waiter.id == id) else {
            return (None, Effects::default());
        };
        self.waiters.remove(index);
        if index > 0 || self.held.is_some() {
            return (None, Effects::default());
        }
        // The next one has its token and its ticket.
        let mut effects = self.wake_head();
        if self.waiters.is_empty() {
            let place = self.place.take().filter(|place| place.known);
            effects.owe = place.map(|place| owe(&place, now));
        }
        (None, effects)
    }

    /// The waiter that has to ask, in a while.
    pub(crate) fn standing_head(&self) -> Option<u64> {
        self.place.as_ref().filter(|place| !place.asking)?;
        self.waiters.front().map(|head| head.id)
    }

    fn wake_head(&self) -> Effects {
        Effects { wake: self.waiters.front().map(|head| head.id), owe: None }
    }
}

fn owe(place: &StorePlace, now: Moment) -> Owe {
    Owe { token: place.token, ttl: place.terms.first_ttl(), until: place.suspect.max(now) }
}
