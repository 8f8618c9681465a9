//! Taking a lock, or standing in its queue.
//!
//! The node of a name is there exactly as long as there is one holder's node in it: both are made in one
//! change, both go in one, and a lock passes from one to the next in one. Who makes the node of the name has
//! the lock; a node of a holder carries its token in its name, so that no request that is late can
//! touch anybody else's.

use std::time::Duration;

use super::jute::{ANY, Ask, Kind, Op, Stat, code};
use super::names::{self, Inside, Queued};
use super::step::{HolderNode, Node, Step, TRIES, fence_of};
use super::{Known, Waiting};
use crate::clock::Moment;
use crate::store::{Failure, Outcome, Place, Reply, millis};
use crate::token::Token;

/// Who stands behind others gives each of them so much time to come first.
const STEP: Duration = Duration::from_millis(20);
const MOST_STEPS: u32 = 50;
/// So many are passed over in one change.
const MOST_PASSED: usize = 64;
/// What a waiter that comes behind others is told of the holder's ttl.
const UNSEEN: Duration = Duration::from_secs(30);

/// A place in the queue that is taken anew where it was: the number counts only in the same node. (Not
/// 0: within a term, changes count from 1.)
fn ticket(queued: &Queued, node: &Stat) -> u64 {
    (u64::from(node.made as u32) << 32) | u64::from(queued.number.cast_unsigned())
}

fn number(ticket: u64, node: &Stat) -> Option<i32> {
    let is_it = ticket != 0 && ticket >> 32 == u64::from(node.made as u32);
    is_it.then_some((ticket as u32).cast_signed())
}

impl Step<'_> {
    pub(super) fn take(
        &mut self,
        name: &[u8],
        token: Token,
        ttl: Duration,
        place: Place,
    ) -> Outcome {
        let (began, node, store) = (Moment::now(), self.store.node(name), self.store);
        let own = names::holder(&node.path, token);
        let span = millis(ttl.min(store.claim_window));
        let ttl = millis(ttl);
        let ticket_before = match place {
            Place::Join(ticket) if store.is_heard() => Some(ticket),
            _ => None,
        };
        if ticket_before.is_some() {
            let new = || Waiting { name: name.to_vec(), place: None };
            store.waiting.lock().entry(token).or_insert_with(new);
        }
        let mut begins = !store.is_crowded(name) && ticket_before.unwrap_or(0) == 0;
        // Where to stand: not now, at the end, or at this place.
        let front = names::waiter(&node.path, token, span);
        let mut stand = (ticket_before == Some(0)).then(|| front.clone());
        // Where the place is an old one: in which node it counts.
        let mut counts_in = None;
        for _ in 0..TRIES {
            if begins {
                match self.begin(&node, &own, ttl)? {
                    Some((sent, held)) => {
                        store.note(name, false);
                        return self.granted(token, &held, None, sent);
                    }
                    None => store.note(name, true),
                }
                begins = false;
            }
            let mut asks = Vec::with_capacity(3);
            if let Some(path) = &stand {
                let kind = counts_in.map_or(Kind::Numbered, |_| Kind::Ephemeral);
                asks.push(Ask::One(Op::Create { path, data: b"", kind }));
            }
            if ticket_before.is_some() {
                // Whoever hands the lock over makes this node.
                asks.push(Ask::Exists { path: &own, watch: true });
            }
            asks.push(Ask::Children(&node.path));
            let (sent, replies) = self.call(&asks)?;
            if stand.is_some() && self.expect(replies.first(), &[code::NO_NODE, code::EXISTS])? {
                let made = replies.first().and_then(|said| said.made().ok());
                made.iter().for_each(|(_, stat)| self.saw(sent, stat));
                // One place is enough, however often this begins anew.
                stand = None;
            }
            let found = self.inside(replies.last())?;
            let made = found.as_ref().map(|(_, stat)| stat.made);
            if counts_in.is_some() && counts_in != made {
                // The node was made anew meanwhile, and an old number would stand anywhere in it.
                (stand, counts_in) = (Some(front.clone()), None);
                if let Some((inside, _)) = &found {
                    self.remove(&node, inside.of(token))?;
                    continue;
                }
            }
            let Some((inside, stat)) = found else {
                begins = true;
                continue;
            };
            let Some(holder) = inside.holder else {
                // Somebody has removed it by hand. The node itself may be another one by now, of the same
                // version: it goes only if nothing is in it, and a first waiter's place stands for it.
                if self.heir_in(&inside, None)?.is_none() {
                    let gone = Op::Delete { path: &node.path, version: ANY };
                    let (_, replies) = self.call(&[Ask::One(gone)])?;
                    self.expect(replies.first(), &[code::NO_NODE, code::NOT_EMPTY])?;
                    begins = true;
                    continue;
                }
                let (path, data, version) = (&*node.path, &*node.data, stat.version);
                let seen = Op::Set { path, data, version };
                match self.succeed(&node, seen, &inside, (token, ttl))? {
                    Some(granted) => return granted,
                    None => continue,
                }
            };
            if holder == token {
                // It was handed over, or an earlier take of the same token has come.
                let Some((sent, held)) = self.grow(&own, None, ttl, true)? else { continue };
                self.remove(&node, inside.of(token))?;
                store.note(name, true);
                return self.granted(token, &held, Some(&inside), sent);
            }
            let mut standing = inside.of(token);
            let mine = standing.next();
            // Those of an earlier take of which nothing was heard.
            self.remove(&node, standing)?;
            let rank =
                mine.and_then(|mine| inside.waiters.iter().position(|it| it.node == mine.node));
            let left = if ticket_before == Some(0) && rank.is_some_and(|rank| rank > 0) {
                // Others come before it. Whether the holder has ended is seen when it looks, now and then.
                UNSEEN
            } else {
                let Some(held) = self.held(&names::holder(&node.path, holder))? else { continue };
                // Those before it know as well that the holder's time is over, and come first.
                let grace = match rank {
                    _ if inside.waiters.is_empty() => Duration::ZERO,
                    Some(0) => Duration::ZERO,
                    Some(rank) => {
                        let steps = u32::try_from(rank).map_or(MOST_STEPS, |it| it.min(MOST_STEPS));
                        store.claim_window / 4 + STEP * steps
                    }
                    None => store.claim_window,
                };
                let Some(left) = self.left_seen((name, holder), &held, grace)? else {
                    self.date(&node.path, holder, &held)?;
                    continue;
                };
                if left.is_zero() {
                    let (path, version) = (&names::holder(&node.path, holder), held.stat.version);
                    let ended = Op::Delete { path, version };
                    let before = rank.unwrap_or(inside.waiters.len());
                    match self.pass_over(&node, ended, inside, before, (token, ttl))? {
                        Some(granted) => return granted,
                        None => continue,
                    }
                }
                left
            };
            if let (Some(ticket), None) = (ticket_before, mine) {
                let number = number(ticket, &stat);
                counts_in = number.map(|_| stat.made);
                stand = Some(number.map_or(front.clone(), |number| format!("{front}{number:010}")));
                continue;
            }
            store.note(name, true);
            if let (Some(known), Some(first)) =
                (store.known.lock().get_mut(&holder), inside.waiters.first())
            {
                // It is a grant of this client, and its next waiter may have come with an older ticket.
                known.heir = Some(Box::new(first.clone()));
            }
            if mine.is_some() && !store.clock.lock().is_fresh(Moment::now()) {
                // Else a message that the lock is ours could not be dated.
                self.ask_clock()?;
            }
            if let (Some(mine), Some(waiting)) = (mine, store.waiting.lock().get_mut(&token)) {
                waiting.place = Some(mine.path(&node.path));
            }
            let reply = Reply::Busy {
                free_in: left + Moment::now().since(began),
                ticket: mine.map_or(0, |mine| ticket(mine, &stat)),
                rank: rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0),
                ours: true,
            };
            return self.answer(reply, began);
        }
        self.outrun()
    }

    fn granted(
        &mut self,
        token: Token,
        held: &HolderNode,
        inside: Option<&Inside>,
        sent: Moment,
    ) -> Outcome {
        self.store.waiting.lock().remove(&token);
        let now = Moment::now();
        let looks_from = now.plus(now.since(sent) * 2);
        self.store.remember(token, Known { looks_from, ..held.known(inside, token) });
        self.answer(Reply::Granted { fence: held.fence, block: 1 }, sent)
    }

    /// Makes the node of a name that is free. None if it is not.
    fn begin(
        &mut self,
        node: &Node,
        own: &str,
        ttl: u64,
    ) -> Result<Option<(Moment, HolderNode)>, Failure> {
        let text = ttl.to_string();
        let ops = [
            Op::Create { path: &node.path, data: &node.data, kind: Kind::Lasting },
            Op::Create { path: own, data: b"", kind: Kind::Lasting },
            // So the answer has the number of the change, and the clock.
            Op::Set { path: own, data: text.as_bytes(), version: 0 },
        ];
        for is_first in [true, false] {
            let (sent, made) = self.change(&ops)?;
            match made {
                Ok(stat) => return self.fresh(stat, ttl).map(|held| Some((sent, held))),
                Err(code::EXISTS) => return Ok(None),
                Err(code::NO_NODE) if is_first => {
                    let folder = Op::Create { path: &node.folder, data: b"", kind: Kind::Lasting };
                    let (_, replies) = self.call(&[Ask::One(folder)])?;
                    self.expect(replies.first(), &[code::EXISTS])?;
                }
                Err(refused) => return self.refuse(refused),
            }
        }
        Ok(None)
    }

    /// A holder's node that was made just now.
    fn fresh(&self, stat: Stat, ttl: u64) -> Result<HolderNode, Failure> {
        let held =
            fence_of(&stat).map(|fence| HolderNode { ttl, fence, version: stat.version, stat });
        held.or_else(|error| self.fail(error))
    }

    /// Makes a holder's node last for a ttl from now on, and no shorter than it would: when that was
    /// asked for, and what it is now. None if there is no such node, or it is another grant's, or over.
    pub(super) fn grow(
        &mut self,
        own: &str,
        fence: Option<u64>,
        ttl: u64,
        grows: bool,
    ) -> Result<Option<(Moment, HolderNode)>, Failure> {
        for _ in 0..TRIES {
            let Some((held, left)) = self.lasting(own, fence)? else { return Ok(None) };
            let longest = if grows { ttl.max(millis(left)) } else { ttl };
            let (version, data) = (held.stat.version, held.data(longest));
            let set = Op::Set { path: own, data: data.as_bytes(), version };
            let (sent, changed) = self.change(&[set])?;
            if let Some(stat) = self.unless(changed, &[code::BAD_VERSION, code::NO_NODE])? {
                let held = HolderNode { ttl: longest, version: stat.version, stat, ..held };
                return Ok(Some((sent, held)));
            }
        }
        self.outrun()
    }

    /// The token has a lock whose holder's time is over. Those who stand before it have not come: their
    /// places go, so that nobody waits for them again. One that lives takes its own anew where it was.
    fn pass_over(
        &mut self,
        node: &Node,
        ended: Op<'_>,
        mut inside: Inside,
        before: usize,
        (token, ttl): (Token, u64),
    ) -> Result<Option<Outcome>, Failure> {
        let (new, text) = (names::holder(&node.path, token), ttl.to_string());
        let behind = inside.waiters.split_off(before.min(inside.waiters.len()));
        let (own, behind): (Vec<_>, Vec<_>) = behind.into_iter().partition(|it| it.token == token);
        let gone = inside.waiters.iter().take(MOST_PASSED).chain(&own);
        let gone: Vec<_> = gone.map(|queued| queued.path(&node.path)).collect();
        let mut ops = vec![ended];
        ops.extend(gone.iter().map(|path| Op::Delete { path, version: ANY }));
        ops.push(Op::Create { path: &new, data: b"", kind: Kind::Lasting });
        ops.push(Op::Set { path: &new, data: text.as_bytes(), version: 0 });
        let (sent, changed) = self.change(&ops)?;
        let stat = self.unless(changed, &[code::NO_NODE, code::BAD_VERSION, code::EXISTS])?;
        let Some(stat) = stat else { return Ok(None) };
        let held = self.fresh(stat, ttl)?;
        let left = inside.waiters.into_iter().skip(MOST_PASSED).chain(behind).collect();
        let inside = Inside { holder: Some(token), waiters: left, ..inside };
        Ok(Some(self.granted(token, &held, Some(&inside), sent)))
    }

    /// A lock that nobody holds any more, which a change bears out, goes to the first waiter, or to the
    /// token if nobody waits before it. None if it did not go to the token.
    fn succeed(
        &mut self,
        node: &Node,
        bears_out: Op<'_>,
        inside: &Inside,
        (token, ttl): (Token, u64),
    ) -> Result<Option<Outcome>, Failure> {
        let first = inside.waiters.first();
        let to = first.map_or(token, |first| first.token);
        let (new, text) = (
            names::holder(&node.path, to),
            first.filter(|_| to != token).map_or(ttl, |heir| heir.span).to_string(),
        );
        let gone: Vec<_> = inside.of(to).map(|queued| queued.path(&node.path)).collect();
        let mut ops = vec![bears_out];
        ops.extend(gone.iter().map(|path| Op::Delete { path, version: ANY }));
        ops.push(Op::Create { path: &new, data: b"", kind: Kind::Lasting });
        ops.push(Op::Set { path: &new, data: text.as_bytes(), version: 0 });
        let (sent, changed) = self.change(&ops)?;
        // Others may have been faster.
        let stat = self.unless(changed, &[code::NO_NODE, code::BAD_VERSION, code::EXISTS])?;
        let Some(stat) = stat.filter(|_| to == token) else { return Ok(None) };
        let held = self.fresh(stat, ttl)?;
        Ok(Some(self.granted(token, &held, Some(inside), sent)))
    }

    /// A holder's node that another leader dated is dated by this one: it lasts for its ttl from now on.
    pub(super) fn date(
        &mut self,
        node: &str,
        holder: Token,
        held: &HolderNode,
    ) -> Result<(), Failure> {
        let (path, data) = (names::holder(node, holder), held.dated());
        let set = Op::Set { path: &path, data: data.as_bytes(), version: held.stat.version };
        let changed = self.change(&[set])?.1;
        self.unless(changed, &[code::NO_NODE, code::BAD_VERSION]).map(drop)
    }

    /// Places that are of no use any more: whether all of them were still there.
    pub(super) fn remove<'q>(
        &mut self,
        node: &Node,
        places: impl Iterator<Item = &'q Queued>,
    ) -> Result<bool, Failure> {
        let paths: Vec<_> = places.map(|queued| queued.path(&node.path)).collect();
        let delete = |path| Ask::One(Op::Delete { path, version: ANY });
        let asks: Vec<_> = paths.iter().map(|path| delete(path)).collect();
        if asks.is_empty() {
            return Ok(true);
        }
        let before = self.wrote;
        let (_, replies) = self.call(&asks)?;
        self.wrote = before;
        let mut were_there = replies.iter().map(|said| self.expect(Some(said), &[code::NO_NODE]));
        were_there.try_fold(true, |all, was_there| Ok(all & was_there?))
    }
}
