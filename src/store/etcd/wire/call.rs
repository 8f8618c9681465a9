//! One stream of a connection: a call that was begun, and what has come of it.

use super::End;
use crate::store::net::incoming::Incoming;

#[derive(Default)]
pub(super) struct Call {
    pub(super) inbox: Incoming,
    /// What the server had no room for yet, and whether the stream ends with it.
    pub(super) outbox: Vec<u8>,
    pub(super) is_last: bool,
    pub(super) window: i64,
    pub(super) read: u32,
    pub(super) code: Option<u32>,
    pub(super) message: String,
    pub(super) end: Option<End>,
}

impl Call {
    pub(super) fn ended(&mut self) {
        let end = match self.code {
            Some(code) => End::Said(code, std::mem::take(&mut self.message)),
            None => End::Reset,
        };
        self.ends(end);
    }

    pub(super) fn ends(&mut self, end: End) {
        self.end.get_or_insert(end);
        // The server reads no more of it.
        self.outbox.clear();
    }
}
