//! What the requests have in common: a call, what of it may have been done, the leader's clock, and
//! what stands in a holder's node.

use std::time::Duration;

use super::clock::Left;
use super::fault;
use super::jute::{ANY, Ask, Kind, Op, Reply as Said, Stat, code};
use super::names::{self, Inside, Queued};
use super::{Known, ZookeeperStore};
use crate::clock::{Deadline, Moment};
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind, plain};
use crate::store::{Answer, By, Failure, Outcome, Reply, ServerId};
use crate::token::{ClientId, HEX, Token};

/// So often a request begins anew because others were faster.
pub(super) const TRIES: u32 = 64;

/// Where a name stands.
pub(super) struct Node {
    pub(super) folder: String,
    pub(super) path: String,
    pub(super) data: Vec<u8>,
}

/// One request under way.
pub(super) struct Step<'a> {
    pub(super) store: &'a ZookeeperStore,
    /// By when to be connected, and by when to be done.
    pub(super) by: By,
    /// Something may have been changed that was asked for at this moment.
    pub(super) wrote: Option<Moment>,
    /// When a change was asked for, and the clock that its answer showed, in microseconds.
    pub(super) shown: Option<(Moment, u64, ServerId)>,
    /// The server is known to know all that was so when the request began.
    pub(super) is_sure: bool,
}

/// What stands in a holder's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HolderNode {
    /// In milliseconds, from the last change on.
    pub(super) ttl: u64,
    pub(super) fence: u64,
    /// That its client left: what dates it for another leader says it again.
    pub(super) version: i32,
    pub(super) stat: Stat,
}

impl HolderNode {
    fn read(said: &Said) -> Result<HolderNode, Error> {
        let (data, stat) = said.data()?;
        let text = std::str::from_utf8(data).unwrap_or_default();
        let words: Vec<_> = text.split(' ').collect();
        let mut numbers = words.iter().map(|word| word.parse::<u64>());
        let foreign = || {
            let what = format!(
                "a holder's node says '{}', which no program of Leasehold writes: once nobody relies on \
                 that lock, deleteall that node (ls -R /leasehold, below the URL's chroot, shows it)",
                plain(text)
            );
            Error::mended(ErrorKind::WrongType, what)
        };
        let ttl = numbers.next().and_then(Result::ok).ok_or_else(foreign)?;
        let fence = match numbers.next() {
            None => fence_of(&stat)?,
            Some(number) => {
                let fence = number.ok().filter(|fence| (1..=MAX_FENCE).contains(fence));
                fence.ok_or_else(foreign)?
            }
        };
        let version = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(stat.version);
        Ok(HolderNode { ttl, fence, version, stat })
    }

    /// The same as it was left, dated anew.
    pub(super) fn dated(&self) -> String {
        format!("{} {} {}", self.ttl, self.fence, self.version)
    }

    /// The same with another ttl. A fence that is not the node's own number stays with it.
    pub(super) fn data(&self, ttl: u64) -> String {
        if self.is_own() { ttl.to_string() } else { format!("{ttl} {}", self.fence) }
    }

    fn is_own(&self) -> bool {
        self.stat.made.cast_unsigned() == self.fence
    }

    pub(super) fn known(&self, inside: Option<&Inside>, token: Token) -> Known {
        let HolderNode { fence, ttl, stat, .. } = *self;
        let heir = inside.and_then(|inside| inside.heir(token)).cloned().map(Box::new);
        let is_passed = !self.is_own();
        Known { fence, ttl, is_passed, version: stat.version, heir, looks_from: Moment::ZERO }
    }
}

/// The fence of a grant is the number of the change that made its node: it grows with each change that
/// the ensemble makes.
pub(super) fn fence_of(stat: &Stat) -> Result<u64, Error> {
    let fence = u64::try_from(stat.made).ok().filter(|fence| (1..=MAX_FENCE).contains(fence));
    fence.ok_or_else(|| Error::new(ErrorKind::Storage, "the ensemble's numbers are no fences"))
}

impl ZookeeperStore {
    /// Asks for changes that are not made, since the last of them makes again what is there by then.
    pub(super) fn missing_right(&self, by: Deadline) -> Result<Option<&'static str>, Error> {
        let path = format!("{}/c-{}", self.session.dialer.root, ClientId::draw()?);
        let make = Op::Create { path: &path, data: b"", kind: Kind::Ephemeral };
        let remove = Op::Delete { path: &path, version: ANY };
        for (right, ops) in
            [("create", [make, make].as_slice()), ("delete", &[make, remove, make, make])]
        {
            let changed = self.step(by).change(ops).map_err(|failure| failure.error)?;
            if changed.1 == Err(code::NO_AUTH) {
                return Ok(Some(right));
            }
        }
        Ok(None)
    }
}

/// By a clock of which it is known only that it is a hundredth off, as the holder's may be.
fn slowly(span: Duration) -> Duration {
    span + span / 50 + Duration::from_millis(5)
}

/// Only on the connection that there is.
pub(super) fn as_connected(done: Deadline) -> By {
    By { connect: Deadline::at(Moment::ZERO), done }
}

impl Step<'_> {
    /// Answers to some requests, and when they were sent.
    pub(super) fn call(&mut self, asks: &[Ask<'_>]) -> Result<(Moment, Vec<Said>), Failure> {
        let writes = asks.iter().any(|ask| matches!(ask, Ask::One(_) | Ask::Multi(_)));
        match self.store.session.call(asks, self.by) {
            Ok((sent, _, replies)) => Ok((sent, replies)),
            Err(failure) => {
                let sent = failure.sent.filter(|_| writes).or(self.wrote);
                Err(Failure { error: failure.error, sent })
            }
        }
    }

    /// Changes all of this or nothing: the last node that was set, or why not.
    pub(super) fn change(
        &mut self,
        ops: &[Op<'_>],
    ) -> Result<(Moment, Result<Stat, i32>), Failure> {
        let (sent, replies) = self.call(&[Ask::Multi(ops)])?;
        let changed = replies.first().map_or(Ok(Err(code::NO_NODE)), Said::changes);
        let changed = changed.map_err(|error| Failure::unknown(error, sent))?;
        if let Ok(stat) = &changed {
            self.saw(sent, stat);
        }
        Ok((sent, changed))
    }

    /// A change was made.
    pub(super) fn saw(&mut self, sent: Moment, stat: &Stat) {
        self.wrote = Some(sent);
        if stat.at == 0 {
            // Nothing but removals.
            return;
        }
        let mut clock = self.store.clock.lock();
        clock.saw(stat, Moment::now());
        if clock.is_known(stat) {
            // It is cut to whole milliseconds, and showed no more than the next one.
            let micros = stat.at.saturating_add(1).saturating_mul(1000);
            self.shown = Some((sent, u64::try_from(micros).unwrap_or(0), clock.server));
        }
    }

    pub(super) fn fail<T>(&self, error: Error) -> Result<T, Failure> {
        Err(Failure { error, sent: self.wrote })
    }

    pub(super) fn refuse<T>(&self, refused: i32) -> Result<T, Failure> {
        if refused == code::NO_AUTH {
            let right = self.store.missing_right(self.by.done).unwrap_or_default();
            return self.fail(fault::no_right(right, &self.store.session.dialer.root));
        }
        self.fail(fault::server(refused))
    }

    /// A change that was made, or none where it was refused for a reason that may occur.
    pub(super) fn unless<T>(
        &self,
        changed: Result<T, i32>,
        may_be: &[i32],
    ) -> Result<Option<T>, Failure> {
        match changed {
            Err(refused) if !may_be.contains(&refused) => self.refuse(refused),
            changed => Ok(changed.ok()),
        }
    }

    /// The same of one answer: whether it was done.
    pub(super) fn expect(&self, said: Option<&Said>, may_be: &[i32]) -> Result<bool, Failure> {
        let code = said.map_or(0, |said| said.code);
        let done = if code == 0 { Ok(()) } else { Err(code) };
        self.unless(done, may_be).map(|done| done.is_some())
    }

    pub(super) fn outrun<T>(&self) -> Result<T, Failure> {
        self.fail(Error::new(ErrorKind::Unavailable, "others were faster, again and again"))
    }

    /// The answer that counts from this moment.
    pub(super) fn answer(&self, reply: Reply, sent: Moment) -> Outcome {
        // A clock that was asked before bounds less, and one that was asked later says nothing of it.
        let shown = self.shown.filter(|(asked, ..)| *asked >= sent);
        let (server, by) = shown.map_or((0, ServerId::default()), |(_, server, by)| (server, by));
        Ok(Answer { reply, sent, server, by, again: None })
    }

    /// Asks the leader's clock, by a node that is gone with the same change.
    pub(super) fn ask_clock(&mut self) -> Result<(), Failure> {
        let token = Token::random().map_err(Failure::not_done)?;
        let root = &self.store.session.dialer.root;
        let path = format!("{root}/t-{}", token.hex(&mut [0; HEX]));
        let (before, ops) = (
            self.wrote,
            [
                Op::Create { path: &path, data: b"", kind: Kind::Ephemeral },
                Op::Set { path: &path, data: b"", version: 0 },
                Op::Delete { path: &path, version: ANY },
            ],
        );
        let changed = self.change(&ops)?.1;
        // Nobody's lock is any different.
        self.wrote = before;
        match changed {
            Ok(_) => Ok(()),
            Err(refused) => self.refuse(refused),
        }
    }

    /// The holder's node of a token, if there is one.
    pub(super) fn held(&mut self, path: &str) -> Result<Option<HolderNode>, Failure> {
        let (_, replies) = self.call(&[Ask::Get(path)])?;
        self.read_held(replies.first())
    }

    /// The same where it is this grant's, if any is meant, with how long it lasts. None is certain, however
    /// far the server was behind.
    pub(super) fn lasting(
        &mut self,
        path: &str,
        fence: Option<u64>,
    ) -> Result<Option<(HolderNode, Duration)>, Failure> {
        loop {
            if let Some(held) = self.held(path)? {
                let left = self.left(&held)?;
                if fence.is_none_or(|fence| fence == held.fence && !left.is_zero()) {
                    return Ok(Some((held, left)));
                }
            }
            if self.is_sure {
                return Ok(None);
            }
            self.sync()?;
        }
    }

    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        self.call(&[Ask::Sync(&self.store.session.dialer.root)])?;
        self.is_sure = true;
        Ok(())
    }

    /// What stands in the node of a name, as the last of these asks tells, with its holder.
    pub(super) fn holding(
        &mut self,
        path: &str,
        asks: &[Ask<'_>],
    ) -> Result<Option<(Inside, Token, HolderNode)>, Failure> {
        let (_, replies) = self.call(asks)?;
        let inside = self.inside(replies.last())?.map(|(inside, _)| inside).unwrap_or_default();
        let Some(token) = inside.holder else { return Ok(None) };
        Ok(self.held(&names::holder(path, token))?.map(|held| (inside, token, held)))
    }

    pub(super) fn read_held(&self, said: Option<&Said>) -> Result<Option<HolderNode>, Failure> {
        match said {
            Some(said) if said.code == 0 => {
                HolderNode::read(said).map(Some).or_else(|e| self.fail(e))
            }
            Some(said) if said.code != code::NO_NODE => self.refuse(said.code),
            _ => Ok(None),
        }
    }

    /// How long its ttl lasts at most. Where another leader has dated it, all of it.
    pub(super) fn left(&mut self, held: &HolderNode) -> Result<Duration, Failure> {
        Ok(self.left_if_dated(held)?.unwrap_or(Duration::from_millis(held.ttl)))
    }

    pub(super) fn left_if_dated(&mut self, held: &HolderNode) -> Result<Option<Duration>, Failure> {
        self.left_of(held, Duration::from_millis(held.ttl))
    }

    /// The same until so long after its ttl, for one who waits for it: if its client has not changed it for
    /// that long, as this client has seen itself, it is over, however often other leaders have dated it.
    pub(super) fn left_seen(
        &mut self,
        (name, holder): (&[u8], Token),
        held: &HolderNode,
        more: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let lasts = Duration::from_millis(held.ttl) + more;
        let seen = slowly(lasts).saturating_sub(self.store.seen_for(name, holder, held));
        if seen.is_zero() {
            return Ok(Some(seen));
        }
        Ok(self.left_of(held, lasts)?.map(|left| left.min(seen)))
    }

    fn left_of(&mut self, held: &HolderNode, ttl: Duration) -> Result<Option<Duration>, Failure> {
        for _ in 0..TRIES {
            let left = self.store.clock.lock().left(&held.stat, ttl, Moment::now());
            match left {
                Left::AtMost(left) => return Ok(Some(left)),
                Left::Undated => return Ok(None),
                Left::AskClock => self.ask_clock()?,
            }
        }
        self.outrun()
    }

    /// Who waits first. If nobody does, the node of the name is to go, which nothing else may stand in.
    pub(super) fn heir_in<'i>(
        &self,
        inside: &'i Inside,
        but: Option<Token>,
    ) -> Result<Option<&'i Queued>, Failure> {
        let heir = inside.heir(but);
        if let (None, Some(node)) = (heir, &inside.foreign) {
            let root = &self.store.session.dialer.root;
            let said = format!(
                "the node '{}' stands in that of this name, and Leasehold has not made it: deleteall it \
                 (ls -R {root} shows where)",
                plain(node)
            );
            return self.fail(Error::mended(ErrorKind::WrongType, said));
        }
        Ok(heir)
    }

    /// What stands in the node of a name; none where there is no such node.
    pub(super) fn inside(&self, said: Option<&Said>) -> Result<Option<(Inside, Stat)>, Failure> {
        match said {
            Some(said) if said.code == 0 => {
                let read = said.children().map(|(all, stat)| Some((Inside::read(&all), stat)));
                read.or_else(|error| self.fail(error))
            }
            Some(said) if said.code != code::NO_NODE => self.refuse(said.code),
            _ => Ok(None),
        }
    }
}
