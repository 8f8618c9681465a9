//! How a waiter is told that a lock is its own: a watch on the node that it would hold the lock by. The
//! server sends one message as that node is made, and nobody else is told anything.

use std::time::Duration;

use super::ZookeeperStore;
use super::jute::{Ask, Stat};
use super::step::{HolderNode, as_connected};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{self, Notice, ServerId, Teller};
use crate::token::Token;

/// What there is to be read of a lock that was handed over is there at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Of which connection waiters count on being told.
#[derive(Default)]
pub(super) struct Ears {
    open: Option<(u64, ServerId)>,
    is_closed: bool,
}

impl ZookeeperStore {
    /// Whether waiters are told on the connection that there is.
    pub(super) fn is_heard(&self) -> bool {
        let open = self.ears.lock().open;
        open.is_some_and(|(count, server)| {
            self.session.count() == Some(count) && self.clock.lock().server == server
        })
    }

    /// The grants that these new nodes are; of one that cannot be read, that its waiter has to ask.
    fn notices(&self, paths: &[String], by: Teller, deadline: Deadline) -> Vec<(Teller, Notice)> {
        let own = |path: &String| {
            let (node, child) = path.rsplit_once('/')?;
            let token = child.strip_prefix("l-")?.parse::<Token>().ok()?;
            let name = self.waiting.lock().get(&token)?.name.clone();
            Some((name, token, [path.clone(), node.to_owned()]))
        };
        let own: Vec<_> = paths.iter().filter_map(own).collect();
        if own.is_empty() {
            return Vec::new();
        }
        let asks = own.iter().flat_map(|(.., [own, node])| [Ask::Get(own), Ask::Children(node)]);
        let mut step = self.step(as_connected(deadline));
        let replies = step.call(&asks.collect::<Vec<_>>()).map(|(_, replies)| replies);
        let mut replies = replies.unwrap_or_default().into_iter();
        let mut notices = Vec::with_capacity(own.len());
        for (name, token, _) in own {
            let (held, inside) = (replies.next(), replies.next());
            let read = step.read_held(held.as_ref());
            let read = read.and_then(|held| Ok((held, step.inside(inside.as_ref())?)));
            let notice = match read {
                Ok((Some(held), Some((inside, _)))) if self.is_dated_by(&by, &held.stat) => {
                    self.note(&name, true);
                    self.waiting.lock().remove(&token);
                    self.remember(token, held.known(Some(&inside), token));
                    let HolderNode { ttl, fence, stat, .. } = held;
                    let server = u64::try_from(stat.at.saturating_mul(1000)).unwrap_or(0);
                    let span = Duration::from_millis(ttl);
                    Notice::Granted { name, token, fence, block: 1, server, span }
                }
                _ => Notice::Free { name, token },
            };
            notices.push((by, notice));
        }
        notices
    }

    /// Whether the leader that tells has dated it: another may have come since the event was read.
    fn is_dated_by(&self, by: &Teller, stat: &Stat) -> bool {
        let clock = self.clock.lock();
        clock.server == by.server && clock.is_known(stat)
    }
}

impl store::Listener for ZookeeperStore {
    fn are_open(&self, _name: &[u8]) -> bool {
        self.is_heard()
    }

    fn are_any_open(&self) -> bool {
        self.is_heard()
    }

    fn open(&self, _name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        if self.ears.lock().is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let mut step = self.step(deadline);
        // So it is known which leader's clock dates what waiters are told.
        let asked = step.ask_clock();
        asked.map_err(|failure| failure.error)?;
        let (count, server) = (self.session.count(), self.clock.lock().server);
        let count = count.ok_or_else(|| Error::new(ErrorKind::Refused, "the connection ended"))?;
        self.ears.lock().open = Some((count, server));
        Ok(server)
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let open = self.ears.lock().open;
        let Some((count, server)) = open else {
            return Err(Error::new(ErrorKind::Refused, "nobody listens to events"));
        };
        let heard = self.session.hear(count, until);
        let is_same = self.clock.lock().server == server;
        match heard {
            Ok(paths) if is_same => {
                let by = Teller { server, since: Moment::ZERO };
                let deadline = Deadline::at(until.max(Moment::now().plus(AT_ONCE)));
                Ok(self.notices(&paths, by, deadline))
            }
            heard => {
                let mut ears = self.ears.lock();
                ears.open.take_if(|open| *open == (count, server));
                let moved = Error::new(ErrorKind::Unavailable, "the ensemble has a new leader");
                Err(heard.err().unwrap_or(moved))
            }
        }
    }

    fn close(&self) {
        let mut ears = self.ears.lock();
        (ears.open, ears.is_closed) = (None, true);
        drop(ears);
        self.session.deafen();
    }
}
