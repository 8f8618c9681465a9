//! What operators see, folder by folder, and what they do: breaking a grant, with word of who did it in a
//! node beside, and making the first node.

use std::time::Duration;

use super::dial::Dialer;
use super::jute::{ANY, Ask, Kind, Op, Reply as Said, code};
use super::names::{self, ROOT};
use super::session::Session;
use super::step::{HolderNode, Node, Step, TRIES};
use super::{ZookeeperStore, fault};
use crate::clock::{Deadline, Moment};
use crate::error::Error;
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breach, Breaches, LONGEST_BY, LONGEST_REMEMBERED, StoredGrant};
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::net::stream::LEAST;
use crate::store::{Admin, Failure, Lane, LockState, MOST_WAITERS, Seen, Waiter, unforced};
use crate::token::Token;

impl Admin for ZookeeperStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        let mut step = self.step(deadline);
        step.inspect(name).map_err(|failure| failure.error)
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        self.list_folder(wanted, from, deadline).map_err(|failure| failure.error)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        let (mut step, node) = (self.step(deadline), self.node(name));
        let asks = [Ask::Sync(&node.path), Ask::Children(&node.path)];
        let holding = step.holding(&node.path, &asks).map_err(|failure| failure.error)?;
        let Some((_, token, held)) = holding else { return Ok(None) };
        step.seen(token, &held).map_err(|failure| failure.error)?.held(name)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        self.step(deadline).break_held(held, by)
    }

    fn breaches(&self, _lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let paths: Vec<_> = of.iter().map(|name| note(&self.node(name))).collect();
        let asks: Vec<_> = paths.iter().map(|path| Ask::Get(path)).collect();
        let breach = |said: &Said| match said.code {
            0 | code::NO_NODE => Ok(breach(said).map(|(_, breach)| breach)),
            code::NO_AUTH => Err(fault::no_right(None, &self.session.dialer.root)),
            code => Err(fault::server(code)),
        };
        match self.step(deadline).call(&asks) {
            Ok((_, replies)) => replies.iter().map(breach).collect(),
            Err(failure) => vec![Err(failure.error)],
        }
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_around(subject, found)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        unforced(force, "nodes")?;
        let dialer = Dialer::new(&self.session.dialer.config, false)?;
        let root = dialer.root.clone();
        let session = Session::new(dialer, deadline.left())?;
        let ends = root.match_indices('/').map(|(at, _)| at).skip(1).chain([root.len()]);
        ends.into_iter().try_for_each(|end| {
            let (path, is_root) = (&root[..end], end == root.len());
            let data = if is_root { ROOT.as_bytes() } else { b"" };
            let create = Ask::One(Op::Create { path, data, kind: Kind::Lasting });
            let asked = session.call(&[create], deadline.into());
            let (.., replies) = asked.map_err(|failure| failure.error)?;
            match replies.first().map_or(0, |reply| reply.code) {
                0 | code::EXISTS => Ok(()),
                refused => Err(fault::server(refused)),
            }
        })
    }
}

impl ZookeeperStore {
    /// The bookmark counts folders, and in each of them names the last node that was looked at.
    fn list_folder(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Failure> {
        let mut step = self.step(deadline);
        let folder = names::folder(from.server as u8);
        let folder = format!("{}/{folder}", self.session.dialer.root);
        let (_, replies) = step.call(&[Ask::Sync(&folder), Ask::Children(&folder)])?;
        step.expect(replies.last(), &[code::NO_NODE])?;
        let said = replies.last().filter(|said| said.code == 0);
        let children = said.map(Said::children).transpose();
        let mut nodes = children.or_else(|error| step.fail(error))?.unwrap_or_default().0;
        nodes.sort_unstable();
        let after = from.name.as_deref().unwrap_or_default();
        let begins = nodes.partition_point(|node| node.as_bytes() <= after);
        let some = &nodes[begins..nodes.len().min(begins + PAGE)];
        let next = if let Some(last) = some.last().filter(|_| begins + some.len() < nodes.len()) {
            Some(Bookmark { name: Some(last.as_bytes().to_vec()), ..from.clone() })
        } else {
            let is_last = from.server + 1 >= u32::from(names::FOLDERS);
            (!is_last).then(|| Bookmark { server: from.server + 1, ..Bookmark::default() })
        };
        let rows = some.iter().filter_map(|node| step.row(&folder, node, wanted).transpose());
        let page = Page::fill(rows, wanted, &self.prefix)?;
        Ok(Page { next, ..page })
    }
}

/// Where it stands who has broken the lock of a name last.
fn note(node: &Node) -> String {
    format!("{}{}", node.path, names::NOTE)
}

/// A note: a token, the first fence of its grant, and who broke the lock.
fn breach(said: &Said) -> Option<(u64, Breach)> {
    let (data, stat) = said.data().ok().filter(|_| said.code == 0)?;
    let mut words = data.splitn(3, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (token, fence): (Token, u64) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let at = u64::try_from(stat.at).ok()?.saturating_mul(1000);
    Some((fence, Breach::new(token, words.next()?, at)))
}

impl Step<'_> {
    /// What is seen of a holder. Where another leader has dated it, it may last for all of its ttl.
    fn seen(&mut self, token: Token, held: &HolderNode) -> Result<Seen, Failure> {
        let is_held = !self.left(held)?.is_zero();
        let (clock, now) = (self.store.clock.lock(), Moment::now());
        let left = clock.seems_left(&held.stat, Duration::from_millis(held.ttl), now);
        Ok(Seen {
            is_held,
            token: Some(token),
            left: left.max(LEAST),
            first: Some(held.fence),
            last: Some(held.fence),
            age: clock.age(&held.stat, now),
            waiting: None,
        })
    }

    fn inspect(&mut self, name: &[u8]) -> Result<LockState, Failure> {
        let node = self.store.node(name);
        for _ in 0..TRIES {
            // What other servers have done by now is known to this one as well.
            let (_, replies) = self.call(&[Ask::Sync(&node.path), Ask::Children(&node.path)])?;
            let Some((inside, _)) = self.inside(replies.last())? else { break };
            let Some(token) = inside.holder else { break };
            let Some(held) = self.held(&names::holder(&node.path, token))? else { continue };
            let seen = self.seen(token, &held)?;
            let shown = &inside.waiters[..inside.waiters.len().min(MOST_WAITERS)];
            let paths: Vec<_> = shown.iter().map(|queued| queued.path(&node.path)).collect();
            let ask = |path| Ask::Exists { path, watch: false };
            let asks: Vec<_> = paths.iter().map(|path| ask(path)).collect();
            let replies = if asks.is_empty() { Vec::new() } else { self.call(&asks)?.1 };
            let (clock, now) = (self.store.clock.lock(), Moment::now());
            let waiters = shown.iter().zip(&replies).map(|(queued, said)| Waiter {
                token_prefix: queued.token.shown(),
                waited: said.stat().ok().and_then(|stat| clock.age(&stat, now)),
                client: None,
            });
            return Ok(LockState {
                waiters: waiters.collect(),
                more_waiters: inside.waiters.len().saturating_sub(MOST_WAITERS) as u64,
                ..seen.state()
            });
        }
        Ok(LockState::default())
    }

    /// What a node in a folder says of a name that may be wanted, with its whole key; `None` where it is
    /// no such name's, or nobody has it.
    fn row(
        &mut self,
        folder: &str,
        node: &str,
        wanted: &Wanted,
    ) -> Result<Option<(Vec<u8>, Seen)>, Failure> {
        let path = format!("{folder}/{node}");
        let key = match names::key(node) {
            None => return Ok(None),
            Some(Some(key)) => key,
            // It was cut.
            Some(None) => {
                let (_, replies) = self.call(&[Ask::Get(&path)])?;
                let Some(Ok((key, _))) = replies.first().map(Said::data) else { return Ok(None) };
                key.to_vec()
            }
        };
        let name = key.strip_prefix(&*self.store.prefix);
        if !name.is_some_and(|name| wanted.glob.matches(name)) {
            return Ok(None);
        }
        let holding = self.holding(&path, &[Ask::Children(&path)])?;
        let Some((inside, token, held)) = holding else { return Ok(None) };
        let seen = self.seen(token, &held)?;
        Ok(Some((key, Seen { waiting: Some(inside.waiters.len() as u64), ..seen })))
    }

    /// A give of this very grant, and in the same change the note.
    fn break_held(&mut self, held: &StoredGrant, by: &[u8]) -> Result<bool, Failure> {
        let node = self.store.node(&held.name);
        let (path, own) = (note(&node), names::holder(&node.path, held.token));
        let head = format!("{} {} ", held.token, held.fence.unwrap_or(0));
        let text = [head.as_bytes(), &by[..by.len().min(LONGEST_BY)]].concat();
        for _ in 0..TRIES {
            let asks = [Ask::Children(&node.path), Ask::Get(&path)];
            let (_, replies) = self.call(&asks)?;
            let inside = self.inside(replies.first())?;
            let inside = inside.map(|(inside, _)| inside).unwrap_or_default();
            let found = self.held(&own)?.filter(|_| inside.holder == Some(held.token));
            let Some(found) = found.filter(|found| Some(found.fence) == held.fence) else {
                // It was this that did it; who waits on is granted the lock under the same token.
                let last = replies.last().and_then(breach);
                return Ok(last.is_some_and(|(fence, it)| {
                    (Some(fence), it.token) == (held.fence, held.token)
                }));
            };
            let noting = match replies.last().is_some_and(|said| said.code == 0) {
                true => Op::Set { path: &path, data: &text, version: ANY },
                false => Op::Create { path: &path, data: &text, kind: Kind::Lasting },
            };
            let (heir, version) = (self.heir_in(&inside, Some(held.token))?, found.stat.version);
            if self.give_to(&node, (&own, version), heir, &[], Some(noting))? {
                return Ok(true);
            }
        }
        self.outrun()
    }

    /// Removes a note or a lasting record that is of no use any more.
    pub(super) fn sweep_note(&mut self, path: &str, said: &Said) -> Result<(), Failure> {
        let noted = Some(said).filter(|said| said.code == 0).and_then(|said| said.data().ok());
        let Some((data, stat)) = noted else { return Ok(()) };
        let ttl = match path.ends_with(names::LASTING) {
            true => names::read_lasting(data).map_or(Duration::ZERO, |(ttl, _)| ttl),
            false => LONGEST_REMEMBERED,
        };
        let (clock, version) = (&self.store.clock, stat.version);
        if clock.lock().seems_left(&stat, ttl, Moment::now()).is_zero() {
            self.call(&[Ask::One(Op::Delete { path, version })])?;
        }
        Ok(())
    }
}
