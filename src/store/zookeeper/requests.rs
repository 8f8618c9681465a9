//! Giving a lock up and making it last longer; and removing what nobody uses any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::jute::{ANY, Ask, Kind, Op, code};
use super::names::{self, FOLDERS, LASTING, NOTE, Queued};
use super::step::{HolderNode, Node, Step, TRIES, as_connected};
use super::{Known, ZookeeperStore};
use crate::clock::{Deadline, Moment};
use crate::store::{By, Failure, Outcome, Reach, Reply, Request, millis};
use crate::token::Token;

/// One give in so many removes names whose holders have ended and that nobody has asked for since, ...
const SWEEP_EVERY: u32 = 64;
/// ... no more than these at once.
const SWEEP: usize = 32;
/// ... and the lock of the give was free before that.
const SWEEP_FOR: Duration = Duration::from_millis(200);

impl ZookeeperStore {
    /// Extensions, in one piece where their nodes are as this client last saw them.
    pub(super) fn extend_all(&self, requests: &[Request<'_>], by: By) -> Vec<Outcome> {
        let plans: Vec<_> = requests.iter().map(|request| self.plan(request)).collect();
        let asks = plans.iter().flatten().map(|plan| {
            let (path, data, version) = (&plan.path, plan.data.as_bytes(), plan.known.version);
            Ask::One(Op::Set { path, data, version })
        });
        let asks: Vec<_> = asks.collect();
        let mut step = self.step(by);
        let called = if asks.is_empty() { Ok((Moment::now(), vec![])) } else { step.call(&asks) };
        let (sent, mut replies) = match called {
            Ok((sent, replies)) => (sent, replies.into_iter()),
            Err(failure) => return vec![Err(failure); requests.len()],
        };
        let finish = |(request, plan): (&Request<'_>, &Option<Plan>)| {
            let mut step = self.step(by);
            let said = plan.as_ref().and_then(|plan| Some((plan, replies.next()?)));
            match said {
                Some((plan, said)) if said.code == 0 => {
                    let stat = said.stat().map_err(|error| Failure::unknown(error, sent))?;
                    step.saw(sent, &stat);
                    let known = Known { version: stat.version, ..plan.known.clone() };
                    self.remember(plan.token, known);
                    step.answer(Reply::Extended, sent)
                }
                Some((_, said)) if !matches!(said.code, code::BAD_VERSION | code::NO_NODE) => {
                    step.refuse(said.code)
                }
                // Another one has changed it, or it is not known: it has to be looked at.
                _ => step.extend(request),
            }
        };
        requests.iter().zip(&plans).map(finish).collect()
    }

    fn plan(&self, request: &Request<'_>) -> Option<Plan> {
        let Request::Extend { name, token, fence, ttl, reach } = *request else { return None };
        let mut known = self.known.lock().get(&token).cloned()?;
        let ttl = millis(ttl);
        let is_plain = match reach {
            Reach::Grow | Reach::Claim => ttl >= known.ttl,
            Reach::Set => true,
            Reach::Pass(_) => false,
        };
        // One that was passed on has its fence beside the ttl, and is looked at.
        let is_plain = is_plain && known.fence == fence && !known.is_passed;
        known.ttl = ttl;
        is_plain.then(|| Plan {
            token,
            path: names::holder(&self.node(name).path, token),
            data: ttl.to_string(),
            known,
        })
    }
}

/// An extension whose node needs no look.
struct Plan {
    token: Token,
    path: String,
    data: String,
    /// As it is afterwards, but for the version.
    known: Known,
}

impl Step<'_> {
    /// An extension that looks first.
    pub(super) fn extend(&mut self, request: &Request<'_>) -> Outcome {
        let Request::Extend { name, token, fence, ttl, reach } = *request else {
            return self.refuse(code::NO_NODE);
        };
        let (began, node, ttl) = (Moment::now(), self.store.node(name), millis(ttl));
        let own = names::holder(&node.path, token);
        let (holder, extended) = match reach {
            Reach::Pass(to) => (to, self.pass(&node, token, to, fence, ttl)?),
            _ => (token, self.grow(&own, Some(fence), ttl, reach != Reach::Set)?),
        };
        self.store.known.lock().remove(&token);
        let Some((sent, held)) = extended else { return self.answer(Reply::NotMine, began) };
        self.store.remember(holder, held.known(None, holder));
        self.answer(Reply::Extended, sent)
    }

    /// A lock becomes another token's, or is by now.
    fn pass(
        &mut self,
        node: &Node,
        token: Token,
        to: Token,
        fence: u64,
        ttl: u64,
    ) -> Result<Option<(Moment, HolderNode)>, Failure> {
        let (own, new) = (names::holder(&node.path, token), names::holder(&node.path, to));
        for _ in 0..TRIES {
            let Some((held, left)) = self.lasting(&own, Some(fence))? else {
                return self.grow(&new, Some(fence), ttl, true);
            };
            let (longest, version) = (ttl.max(millis(left)), held.stat.version);
            let data = format!("{longest} {fence}");
            let ops = [
                Op::Delete { path: &own, version },
                Op::Create { path: &new, data: b"", kind: Kind::Lasting },
                Op::Set { path: &new, data: data.as_bytes(), version: 0 },
            ];
            let (sent, changed) = self.change(&ops)?;
            if let Some(stat) = self.unless(changed, &[code::NO_NODE, code::BAD_VERSION])? {
                return Ok(Some((
                    sent,
                    HolderNode { ttl: longest, fence, version: stat.version, stat },
                )));
            }
        }
        self.outrun()
    }

    pub(super) fn give(&mut self, name: &[u8], token: Token, fence: u64) -> Outcome {
        let (began, node, store) = (Moment::now(), self.store.node(name), self.store);
        let known = store.known.lock().remove(&token);
        let waited = store.waiting.lock().remove(&token).is_some();
        let own = names::holder(&node.path, token);
        // Somebody may have come since it began to be held.
        let is_new = known.as_ref().is_none_or(|known| began < known.looks_from);
        let heir = known.and_then(|known| known.heir);
        let is_seen = heir.is_some() || is_new && !store.is_crowded(name);
        let is_known = !waited && fence != 0 && is_seen;
        let given = (is_known && self.give_to(&node, (&own, ANY), heir.as_deref(), &[], None)?)
            || self.give_looking(name, &node, token, waited || fence == 0)?;
        let count = store.gives.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(SWEEP_EVERY) {
            // It does not matter how that ends, and the give does not wait for it for long.
            let done = self.by.done.min(Deadline::after(SWEEP_FOR));
            let _ = store.step(as_connected(done)).sweep(count / SWEEP_EVERY);
        }
        self.answer(if given { Reply::Given } else { Reply::NotMine }, began)
    }

    /// Whether it was as it was thought to be.
    pub(super) fn give_to(
        &mut self,
        node: &Node,
        (own, version): (&str, i32),
        heir: Option<&Queued>,
        places: &[String],
        noting: Option<Op<'_>>,
    ) -> Result<bool, Failure> {
        let gone = heir.map(|heir| heir.path(&node.path));
        let new = heir.map(|heir| (names::holder(&node.path, heir.token), heir.span.to_string()));
        let mut ops = vec![Op::Delete { path: own, version }];
        let paths = places.iter().chain(&gone);
        ops.extend(paths.map(|path| Op::Delete { path, version: ANY }));
        ops.push(match &new {
            Some((path, span)) => Op::Create { path, data: span.as_bytes(), kind: Kind::Lasting },
            None => Op::Delete { path: &node.path, version: ANY },
        });
        ops.extend(noting);
        let changed = self.change(&ops)?.1;
        let may_be = [code::NO_NODE, code::NOT_EMPTY, code::EXISTS, code::BAD_VERSION];
        Ok(self.unless(changed, &may_be)?.is_some())
    }

    /// The same where it has to be seen who waits, and a place in the queue goes as well.
    fn give_looking(
        &mut self,
        name: &[u8],
        node: &Node,
        token: Token,
        has_waited: bool,
    ) -> Result<bool, Failure> {
        let own = names::holder(&node.path, token);
        for _ in 0..TRIES {
            let mut asks = vec![Ask::Children(&node.path)];
            if has_waited {
                // Its place may be news to this server.
                asks.splice(..0, [Ask::Unwatch(&own), Ask::Sync(&own)]);
                self.is_sure = true;
            }
            let (_, replies) = self.call(&asks)?;
            let (inside, _) = self.inside(replies.last())?.unwrap_or_default();
            if inside.holder != Some(token) {
                if !self.is_sure {
                    self.sync()?;
                    continue;
                }
                // Where somebody has removed its place, it may have been handed the lock.
                match self.remove(node, inside.of(token))? {
                    true => return Ok(false),
                    false => continue,
                }
            }
            let heir = self.heir_in(&inside, Some(token))?;
            self.store.note(name, heir.is_some());
            let places: Vec<_> = inside.of(token).map(|queued| queued.path(&node.path)).collect();
            if self.give_to(node, (&own, ANY), heir, &places, None)? {
                return Ok(true);
            }
        }
        self.outrun()
    }

    /// Removes some names whose holders have ended, and that nobody has asked for since.
    pub(super) fn sweep(&mut self, count: u32) -> Result<(), Failure> {
        let folder = format!("{}/{}", self.store.session.dialer.root, names::folder(count as u8));
        let (_, replies) = self.call(&[Ask::Children(&folder)])?;
        let Some(Ok((names, _))) = replies.first().map(|said| said.children()) else {
            return Ok(());
        };
        // Other ones each time.
        let start = (count / u32::from(FOLDERS)) as usize * SWEEP % names.len().max(1);
        let some = names.iter().cycle().skip(start).take(names.len().min(SWEEP));
        let paths: Vec<_> = some.map(|name| format!("{folder}/{name}")).collect();
        let children: Vec<_> = paths.iter().map(|path| Ask::Children(path)).collect();
        if children.is_empty() {
            return Ok(());
        }
        let (_, replies) = self.call(&children)?;
        let mut ends = Vec::new();
        for (path, said) in paths.iter().zip(&replies) {
            if path.ends_with(NOTE) || path.ends_with(LASTING) {
                ends.push((path, None, path.clone()));
            } else if let Ok(Some((inside, _))) = self.inside(Some(said))
                && let Some(holder) = inside.holder.filter(|_| inside.waiters.is_empty())
            {
                ends.push((path, Some(holder), names::holder(path, holder)));
            }
        }
        let gets: Vec<_> = ends.iter().map(|(.., own)| Ask::Get(own)).collect();
        if gets.is_empty() {
            return Ok(());
        }
        let (_, replies) = self.call(&gets)?;
        for ((path, holder, own), said) in ends.iter().zip(&replies) {
            let Some(holder) = *holder else {
                self.sweep_note(path, said)?;
                continue;
            };
            let Ok(Some(held)) = self.read_held(Some(said)) else { continue };
            let version = held.stat.version;
            match self.left_if_dated(&held)? {
                None => self.date(path, holder, &held)?,
                Some(Duration::ZERO) => {
                    let ops =
                        [Op::Delete { path: own, version }, Op::Delete { path, version: ANY }];
                    // Somebody may have come meanwhile.
                    self.change(&ops)?.1.ok();
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
