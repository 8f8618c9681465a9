//! What clients say of themselves: a key under a lease of its own.

use std::time::Duration;

use super::EtcdStore;
use super::dial::transact;
use super::keys;
use super::leases::Leases;
use super::messages::{Op, Txn};
use crate::clock::Deadline;
use crate::error::Error;
use crate::store::{Lane, Record, Registry};
use crate::token::ClientId;

/// A client that closes waits no longer until it is forgotten.
const LEAVES: Duration = Duration::from_millis(100);

impl Registry for EtcdStore {
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let key = keys::client(&self.prefix, record.client);
        let kept = self.on_wire(Lane::Keeper, deadline, |wire, deadline| {
            // The one before it ends by itself.
            let lease = Leases::exactly(wire, record.ttl, deadline)?;
            let put = Op::put(&key, record.text.as_bytes(), lease.id);
            transact(wire, &Txn::default().then(put), deadline)?;
            *self.record.lock() = Some(lease.id);
            Ok(())
        });
        kept.map_err(|failure| failure.error)
    }

    fn unregister(&self, _client: ClientId) -> Result<(), Error> {
        let lease = self.record.lock().take();
        let revoked = self.revoke(lease.as_slice(), Deadline::after(LEAVES));
        revoked.map_err(|failure| failure.error)
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys = clients.iter().map(|client| keys::client(&self.prefix, *client));
        self.read(Lane::Caller, keys, deadline).map_err(|failure| failure.error)
    }
}
