//! What must hold.

use super::world::{Broken, Life, Task, World};

impl World {
    /// In every state.
    pub(super) fn check(&self) -> Result<(), Broken> {
        let mut valid = 0;
        for (c, client) in self.clients.iter().enumerate() {
            let now = self.clock(c);
            let held = client.threads.iter().filter_map(|thread| match &thread.task {
                Task::Holding(lease) if client.life != Life::Gone => Some(lease),
                _ => None,
            });
            for lease in held.chain(&client.left) {
                // What the server forgot is ordered by the fences alone.
                if !lease.is_valid(now) || lease.first < self.record.forgotten {
                    continue;
                }
                valid += 1;
                if valid > 1 {
                    return Err("two leases are valid".to_owned());
                }
                let (token, fence) = (lease.token, lease.fence);
                let until = lease.valid_until.as_nanos() - client.ahead;
                match self.server.holder(self.server_time()) {
                    Some((holder, end)) if holder == Some(token) => {
                        if self.true_time(end) < until {
                            return Err(format!("the lease with fence {fence} outlasts its lock"));
                        }
                    }
                    _ => return Err(format!("the lease with fence {fence} is valid, not locked")),
                }
            }
        }
        Ok(())
    }

    /// A turn begins to be valid.
    pub(super) fn began(&mut self, c: usize, t: usize, fence: u64) -> Result<(), Broken> {
        let last = self.record.last_fence;
        // Two that hold together after the server forgot the first are in order all the same, but
        // not in that in which they began.
        if fence == last || fence < last && fence >= self.record.forgotten {
            return Err(format!("a turn begins with fence {fence} after one with {last}"));
        }
        self.record.last_fence = last.max(fence);
        if self.setup.ordered && !self.record.disturbed {
            return self.check_order(c, t);
        }
        Ok(())
    }

    /// While one waits, each of the others has one turn.
    fn check_order(&mut self, c: usize, t: usize) -> Result<(), Broken> {
        let before: usize = self.clients[..c].iter().map(|client| client.threads.len()).sum();
        let waiting = self.clients.iter_mut().flat_map(|client| &mut client.threads);
        for thread in waiting.filter(|thread| thread.is_waiting() && thread.stands) {
            let turns = &mut thread.overtaken[before + t];
            *turns += 1;
            if *turns > 1 {
                return Err("another had two turns while somebody waited".to_owned());
            }
        }
        Ok(())
    }

    /// Somebody of the client has a place in the queue.
    pub(super) fn stands(&self, c: usize) -> bool {
        let token = self.clients[c].queue.standing();
        token.is_some_and(|token| self.server.queue().any(|(other, _)| other == token))
    }

    /// A waiter behind a place that was taken waits as of now.
    pub(super) fn stood(&mut self, c: usize) {
        if !self.stands(c) {
            return;
        }
        for thread in &mut self.clients[c].threads {
            thread.stands |= thread.is_waiting();
        }
    }

    /// When everything has come to rest: nobody is owed anything, and nothing is left behind.
    pub(super) fn check_rest(&self) -> Result<(), Broken> {
        for client in &self.clients {
            if client.life != Life::Running {
                continue;
            }
            if !client.queue.is_empty() {
                return Err(format!("a queue never ends: {:?}", client.queue));
            }
            if !client.owed.is_empty() {
                return Err("something is owed for ever".to_owned());
            }
        }
        if self.record.ghosts {
            return Ok(());
        }
        for (token, channel) in self.server.queue() {
            if self.clients[usize::from(channel)].life == Life::Running {
                return Err(format!("a place is left in the queue, of {token:?}"));
            }
        }
        Ok(())
    }
}
