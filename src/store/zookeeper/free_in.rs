//! For how long a lock stays taken, as a waiter asks now and then.

use std::time::Duration;

use super::hash;
use super::jute::{Ask, code};
use super::names;
use super::step::{HolderNode, Step};
use crate::store::Failure;
use crate::token::Token;

impl Step<'_> {
    /// For a waiter that looks now and then: what this server knows will do.
    pub(super) fn free_in(&mut self, name: &[u8]) -> Result<Duration, Failure> {
        let node = self.store.node(name);
        // All that waits is listed only where the holder is another one.
        let last = self.store.crowded.lock().get(&hash(name)).copied().flatten();
        let place = self.store.place_in(name);
        if let Some(token) = last {
            let own = names::holder(&node.path, token);
            let there = place.iter().map(|path| Ask::Exists { path, watch: false });
            let asks: Vec<_> = [Ask::Get(&own)].into_iter().chain(there).collect();
            let (_, replies) = self.call(&asks)?;
            if replies.get(1).is_some_and(|said| said.code == code::NO_NODE) {
                // Others have passed over it, or it has become the lock.
                return Ok(Duration::ZERO);
            }
            if let Some(held) = self.read_held(replies.first())? {
                return self.free_after(name, token, &held);
            }
        }
        let holding = self.holding(&node.path, &[Ask::Children(&node.path)])?;
        let Some((inside, token, held)) = holding else { return Ok(Duration::ZERO) };
        if let Some(last) = self.store.crowded.lock().get_mut(&hash(name)) {
            *last = Some(token);
        }
        let is_there =
            |place: &String| inside.waiters.iter().any(|it| it.path(&node.path) == *place);
        if !place.as_ref().is_none_or(is_there) {
            return Ok(Duration::ZERO);
        }
        self.free_after(name, token, &held)
    }

    fn free_after(
        &mut self,
        name: &[u8],
        holder: Token,
        held: &HolderNode,
    ) -> Result<Duration, Failure> {
        let left = self.left_seen((name, holder), held, Duration::ZERO)?;
        Ok(left.unwrap_or(Duration::from_millis(held.ttl)))
    }
}
