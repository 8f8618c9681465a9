//! Which server of a Cluster tells the waiters for a name: the one that has its slot.

use std::sync::{Arc, Weak};

use super::slots::Map;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::redis::dialect::keys::slot_behind;
use crate::store::redis::listener::{Endpoint, Endpoints};

/// The listener has it, and is itself reached from the map.
pub(in crate::store::redis) struct SlotEndpoints {
    prefix: Vec<u8>,
    map: Weak<Map>,
}

impl SlotEndpoints {
    pub(in crate::store::redis) fn new(prefix: &[u8], map: &Arc<Map>) -> SlotEndpoints {
        SlotEndpoints { prefix: prefix.to_vec(), map: Arc::downgrade(map) }
    }

    fn map(&self) -> Result<Arc<Map>, Error> {
        self.map.upgrade().ok_or_else(|| Error::bare(ErrorKind::Closed))
    }
}

impl Endpoints for SlotEndpoints {
    fn endpoint(&self, name: &[u8]) -> Result<Endpoint, Error> {
        let node = self.map()?.owner(slot_behind(&self.prefix, name))?;
        Ok(Endpoint { key: node.key, target: Arc::clone(&node.target) })
    }

    fn find(&self, _name: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.map()?.freshen(deadline)
    }

    fn slot(&self, name: &[u8]) -> Option<u16> {
        Some(slot_behind(&self.prefix, name))
    }

    /// They repeat what was published on channels that belong to no slot.
    fn are_apart(&self) -> bool {
        false
    }

    fn is_one(&self) -> bool {
        false
    }
}
