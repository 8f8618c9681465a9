//! What clients say of themselves.

use super::MemoryStore;
use super::gate::Whose;
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::store::{Record, Registry};
use crate::token::ClientId;

impl Registry for MemoryStore {
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        self.memory.gate.pass_to_look(Whose::Background, deadline)?;
        let (now, text) = (Moment::now(), record.text.as_bytes().to_vec());
        let mut records = self.memory.records.lock();
        records.retain(|_, (_, until)| now < *until);
        records.insert(record.client, (text, now.plus(record.ttl)));
        Ok(())
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        self.memory.records.lock().remove(&client);
        Ok(())
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.memory.gate.pass_to_look(Whose::Background, deadline)?;
        let (now, records) = (Moment::now(), self.memory.records.lock());
        let record = |client: &ClientId| {
            let (text, _) = records.get(client).filter(|(_, until)| now < *until)?;
            Some(text.clone())
        };
        Ok(clients.iter().map(record).collect())
    }
}
