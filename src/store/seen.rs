//! What a store knows of one name, and what that is to those who ask.

use std::sync::Arc;
use std::time::Duration;

use super::breaking::StoredGrant;
use super::{Holder, LockState};
use crate::error::{Error, ErrorKind};
use crate::token::Token;

/// The facts of one name, as a store has read them in one step. Whatever people are shown of the name is
/// made of them here, so that all stores show the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) is_held: bool,
    /// Whose it is; `None` where something else than a lock of this library has the name.
    pub(crate) token: Option<Token>,
    /// For how long it stays held if nobody extends it.
    pub(crate) left: Duration,
    /// The first fence of the grant, and the last one that was reserved, as far as they are known. The
    /// last one may be known of a name that is free.
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
    /// For how long it has been granted, by the store's clock.
    pub(crate) age: Option<Duration>,
    /// How many processes stand in the queue.
    pub(crate) waiting: Option<u64>,
}

impl Seen {
    /// As [`Lock::inspect`](crate::Lock::inspect) tells it.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.is_held.then(|| Holder {
            // What has no token of ours may be somebody's secret.
            token_prefix: self.token.map_or_else(String::new, Token::shown),
            ttl: self.left,
            fence: self.first,
            held: self.age,
            client: None,
        })
    }

    /// The grant that may be broken. An error where what has the name is no lock.
    pub(crate) fn held(&self, name: &[u8]) -> Result<Option<StoredGrant>, Error> {
        if !self.is_held {
            return Ok(None);
        }
        let token =
            self.token.ok_or_else(|| Error::new(ErrorKind::WrongType, StoredGrant::FOREIGN))?;
        Ok(Some(StoredGrant {
            name: Arc::from(name),
            token,
            fence: self.first,
            last: self.last.filter(|_| self.first.is_some()).unwrap_or(0),
            left: self.left,
        }))
    }

    /// Without those who wait.
    pub(crate) fn state(&self) -> LockState {
        LockState { holder: self.holder(), last_fence: self.last, ..LockState::default() }
    }
}
