//! What is locked, folder by folder; and breaking a grant, with word of who did it in a node beside.

use std::time::Duration;

use super::jute::{ANY, Ask, Kind, Op, Reply as Said, code};
use super::names;
use super::step::{Node, Step, TRIES};
use super::{ZookeeperStore, fault};
use crate::clock::{Deadline, Moment};
use crate::store::breaking::{Breach, Breaches, Held, LONGEST_BY, LONGEST_REMEMBERED};
use crate::store::listing::{Bookmark, Listed, PAGE, Page, Wanted};
use crate::store::{Failure, LockState};
use crate::token::Token;

impl ZookeeperStore {
    /// The cursor counts folders, and in each of them names, in their order.
    pub(super) fn list_page(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Failure> {
        let mut step = self.step(deadline, deadline);
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
        let mut page = Page::default();
        if let Some(last) = some.last().filter(|_| begins + some.len() < nodes.len()) {
            page.next = Some(Bookmark { name: Some(last.as_bytes().to_vec()), ..from.clone() });
        } else if from.server + 1 < u32::from(names::FOLDERS) {
            page.next = Some(Bookmark { server: from.server + 1, ..Bookmark::default() });
        }
        for (node, name) in some.iter().filter_map(|node| Some((node, names::key(node)?))) {
            let path = format!("{folder}/{node}");
            let name = match name {
                Some(key) => key,
                // It was cut.
                None => {
                    let (_, replies) = step.call(&[Ask::Get(&path)])?;
                    let Some(Ok((key, _))) = replies.first().map(Said::data) else { continue };
                    key.to_vec()
                }
            };
            let Some(name) = name.strip_prefix(&*self.prefix) else { continue };
            if wanted.glob.matches(name)
                && let Some(listed) = step.listed(name, &path)?
                && wanted.has(listed.state.holder.as_ref())
            {
                page.listed.push(listed);
            }
        }
        Ok(page)
    }

    pub(super) fn breaches_of(&self, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let paths: Vec<_> = of.iter().map(|name| note(&self.node(name))).collect();
        let asks: Vec<_> = paths.iter().map(|path| Ask::Get(path)).collect();
        let breach = |said: &Said| match said.code {
            0 | code::NO_NODE => Ok(breach(said).map(|(_, breach)| breach)),
            code::NO_AUTH => Err(fault::no_right(None, &self.session.dialer.root)),
            code => Err(fault::server(code)),
        };
        match self.step(deadline, deadline).call(&asks) {
            Ok((_, replies)) => replies.iter().map(breach).collect(),
            Err(failure) => vec![Err(failure.error)],
        }
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
    /// None where nobody has it.
    fn listed(&mut self, name: &[u8], path: &str) -> Result<Option<Listed>, Failure> {
        let holding = self.holding(path, &[Ask::Children(path)])?;
        let Some((inside, token, held)) = holding else { return Ok(None) };
        let holder = self.shown(token, &held)?;
        let state = LockState { holder, last_fence: Some(held.fence), ..LockState::default() };
        let waiting = Some(inside.waiters.len() as u64);
        Ok(Some(Listed { name: name.to_vec(), state, waiting }))
    }

    pub(super) fn whose(&mut self, name: &[u8]) -> Result<Option<Held>, Failure> {
        let node = self.store.node(name);
        let asks = [Ask::Sync(&node.path), Ask::Children(&node.path)];
        let Some((_, token, held)) = self.holding(&node.path, &asks)? else { return Ok(None) };
        let left = self.left(&held)?;
        let (fence, last) = (Some(held.fence), held.fence);
        Ok((!left.is_zero()).then(|| Held { name: name.into(), token, fence, last, left }))
    }

    /// A give of this very grant, and in the same change the note.
    pub(super) fn break_held(&mut self, held: &Held, by: &[u8]) -> Result<bool, Failure> {
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
