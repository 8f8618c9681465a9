//! Which server of a Cluster tells the waiters for a name.

use std::sync::{Arc, OnceLock, Weak};

use super::super::dialect::keys::slot;
use super::super::listener::{Endpoint, Endpoints};
use super::slots::Map;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};

/// Where the slots are, for whoever was made before that could be known.
#[derive(Default)]
pub(in crate::store::redis) struct Whereabouts(pub(super) OnceLock<Weak<Map>>);

/// Names are told of by the server that has their slot.
pub(in crate::store::redis) struct ByOwner {
    prefix: Vec<u8>,
    whereabouts: Arc<Whereabouts>,
}

impl ByOwner {
    pub(in crate::store::redis) fn new(prefix: &[u8], whereabouts: &Arc<Whereabouts>) -> ByOwner {
        ByOwner { prefix: prefix.to_vec(), whereabouts: Arc::clone(whereabouts) }
    }

    fn map(&self) -> Result<Arc<Map>, Error> {
        let map = self.whereabouts.0.get().and_then(Weak::upgrade);
        map.ok_or_else(|| Error::bare(ErrorKind::Closed))
    }
}

impl Endpoints for ByOwner {
    fn endpoint(&self, name: &[u8]) -> Result<Endpoint, Error> {
        self.map()?.endpoint(slot_of(&self.prefix, name))
    }

    fn find(&self, _name: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.map()?.freshen(deadline)
    }

    fn slot(&self, name: &[u8]) -> Option<u16> {
        Some(slot_of(&self.prefix, name))
    }

    /// They pass on to one another what is said on channels that belong to no slot.
    fn are_apart(&self) -> bool {
        false
    }

    fn is_one(&self) -> bool {
        false
    }
}

pub(super) fn slot_of(prefix: &[u8], name: &[u8]) -> u16 {
    match prefix {
        [] => slot(name),
        prefix => slot(&[prefix, name].concat()),
    }
}
