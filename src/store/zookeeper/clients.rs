//! What a client says of itself: a node below the root that ends with its session, and one that lasts
//! where it is to outlive the client.

use super::ZookeeperStore;
use super::jute::{ANY, Ask, Kind, Op, Reply as Said, code};
use super::names::{self, LASTING};
use super::step::Step;
use crate::clock::Deadline;
use crate::error::Error;
use crate::store::{Failure, Record, Registry, millis};
use crate::token::ClientId;

impl ZookeeperStore {
    fn record(&self, client: ClientId) -> String {
        format!("{}/c-{client}", self.session.dialer.root)
    }

    /// Its folder, and the node.
    fn lasting_record(&self, client: ClientId) -> (String, String) {
        let folder = names::folder((client.number() % u64::from(names::FOLDERS)) as u8);
        let folder = format!("{}/{folder}", self.session.dialer.root);
        let path = format!("{folder}/{client}{LASTING}");
        (folder, path)
    }
}

impl Registry for ZookeeperStore {
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let mut step = self.step(deadline);
        let kept = if record.outlives {
            let (folder, path) = self.lasting_record(record.client);
            let data = format!("{} {}", millis(record.ttl), record.text);
            step.keep(&path, data.as_bytes(), Kind::Lasting, Some(&folder))
        } else {
            let (path, data) = (self.record(record.client), record.text.as_bytes());
            step.keep(&path, data, Kind::Ephemeral, None)
        };
        kept.map_err(|failure| failure.error)
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        // One that lasts tells more.
        let both = |client: &ClientId| [self.lasting_record(*client).1, self.record(*client)];
        let paths: Vec<_> = clients.iter().flat_map(both).collect();
        let asks: Vec<_> = paths.iter().map(|path| Ask::Get(path)).collect();
        let called = self.step(deadline).call(&asks);
        let (_, replies) = called.map_err(|failure| failure.error)?;
        let read = |said: &Said| {
            let data = said.data().ok().filter(|_| said.code == 0);
            data.map(|(data, _)| data.to_vec())
        };
        let record = |said: &[Said]| {
            let lasting = said.first().and_then(read);
            let lasting = lasting.and_then(|data| Some(names::read_lasting(&data)?.1.to_vec()));
            lasting.or_else(|| said.last().and_then(read))
        };
        Ok(replies.chunks(2).map(record).collect())
    }
}

impl Step<'_> {
    /// Has a node say this, and makes it where it is missing, and its folder.
    fn keep(
        &mut self,
        path: &str,
        data: &[u8],
        kind: Kind,
        folder: Option<&str>,
    ) -> Result<(), Failure> {
        let set = Op::Set { path, data, version: ANY };
        let folder = folder.map(|path| Op::Create { path, data: b"", kind: Kind::Lasting });
        let ops = [Some(set), folder, Some(Op::Create { path, data, kind })];
        for (op, does_it) in ops.into_iter().zip([true, false, true]) {
            let Some(op) = op else { continue };
            let (_, replies) = self.call(&[Ask::One(op)])?;
            if self.expect(replies.first(), &[code::EXISTS, code::NO_NODE])? && does_it {
                break;
            }
        }
        Ok(())
    }
}
