//! What clients say of themselves: each node keeps it that can.

use super::QuorumStore;
use super::node::Node;
use crate::clock::Deadline;
use crate::error::Error;
use crate::said::say;
use crate::store::{Record, Registry};
use crate::token::ClientId;

impl Registry for QuorumStore {
    /// Each node that is well keeps it, if it can. None is waited for.
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        self.mention(|node| node.deployment.send_record(record, self.by(deadline)));
        Ok(())
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        let by = Deadline::after(self.node_timeout);
        self.mention(|node| node.deployment.drop_record(client, by));
        Ok(())
    }

    /// Whatever any node knows; one that knows all of them is enough.
    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut known = vec![None; clients.len()];
        for node in self.nodes().iter().filter(|node| node.is_ready()) {
            let unknown: Vec<_> = (0..known.len()).filter(|at| known[*at].is_none()).collect();
            let asked: Vec<_> = unknown.iter().map(|at| clients[*at]).collect();
            if asked.is_empty() || deadline.has_passed() {
                break;
            }
            match node.deployment.records(&asked, self.by(deadline)) {
                Ok(records) => {
                    unknown.into_iter().zip(records).for_each(|(at, record)| known[at] = record);
                }
                Err(error) => say!(Debug, "records-unread", store = &*node.shown, error = error),
            }
        }
        Ok(known)
    }
}

impl QuorumStore {
    /// Says something of the client to each node that is well.
    fn mention(&self, to: impl Fn(&Node) -> Result<(), Error>) {
        for node in self.nodes().iter().filter(|node| node.is_ready()) {
            if let Err(error) = to(node) {
                say!(Debug, "record-untold", store = &*node.shown, error = error);
            }
        }
    }
}
