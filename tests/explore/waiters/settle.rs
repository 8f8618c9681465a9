//! How a run ends when nothing else goes wrong: each living waiter gets the lock soon.

use super::step::{Choices, Step};
use super::world::{Broken, Life, Link, Task, World};

/// More than any end takes.
const MOST: usize = 4_000;

impl World {
    /// Goes on without faults to the end, and says what is wrong with it. First those who are
    /// stopped stay stopped, and hold up the others for a bounded time; then they go on too.
    pub(super) fn settle(&mut self, steps: &mut Vec<Step>) -> Result<(), Broken> {
        self.faults = 0;
        self.hurry(steps)?;
        // Half of those that know of a broken wake-up connection wait without one.
        if self.now / 1_000_000 % 4 < 2 {
            self.mend(steps)?;
        }
        self.notice(steps)?;
        self.run_out(steps)?;
        for c in 0..self.clients.len() {
            if self.clients[c].life == Life::Stopped {
                self.take(Step::Continue(c as u8), steps)?;
            }
        }
        self.mend(steps)?;
        self.run_out(steps)?;
        self.check_rest()
    }

    fn take(&mut self, step: Step, steps: &mut Vec<Step>) -> Result<(), Broken> {
        steps.push(step);
        self.apply(step)
    }

    /// Nothing is late any more.
    fn hurry(&mut self, steps: &mut Vec<Step>) -> Result<(), Broken> {
        for wire in &mut self.wires {
            wire.slow = false;
        }
        // What was given up is carried out in one half of the ends, and never in the other.
        let drop_them = (self.now / 1_000_000).is_multiple_of(2);
        while let Some(at) = self.wires.iter().position(|wire| wire.orphan) {
            let at = at as u8;
            self.take(if drop_them { Step::Drop(at) } else { Step::Carry(at) }, steps)?;
        }
        for client in &mut self.clients {
            client.listener.slow = false;
        }
        let seized = matches!(self.server.holder(self.server_time()), Some((None, _)));
        if seized && drop_them {
            self.take(Step::Unseize, steps)?;
        }
        Ok(())
    }

    /// Clients find out that their wake-up connections are broken.
    fn notice(&mut self, steps: &mut Vec<Step>) -> Result<(), Broken> {
        for c in 0..self.clients.len() {
            if self.clients[c].runs() && matches!(self.clients[c].listener.link, Link::Torn { .. })
            {
                self.take(Step::Notice(c as u8), steps)?;
            }
        }
        Ok(())
    }

    /// They open new ones.
    fn mend(&mut self, steps: &mut Vec<Step>) -> Result<(), Broken> {
        self.notice(steps)?;
        for c in 0..self.clients.len() {
            if self.clients[c].runs() && self.clients[c].listener.link == Link::Closed {
                self.take(Step::Reopen(c as u8), steps)?;
            }
        }
        Ok(())
    }

    fn run_out(&mut self, steps: &mut Vec<Step>) -> Result<(), Broken> {
        let mut idle_since = self.now;
        for _ in 0..MOST {
            let Choices { prompt, free, .. } = self.choices();
            let release = free.iter().find(|step| matches!(step, Step::Release(..)));
            if self.is_used() || !self.is_waited_for() {
                idle_since = self.now;
            }
            if let Some(step) = prompt.first().or(release) {
                self.take(*step, steps)?;
                continue;
            }
            let owes = self.clients.iter().any(|client| client.runs() && !client.owed.is_empty());
            if !self.is_waited_for() && !owes {
                return Ok(());
            }
            let next = self.next_moment().ok_or("somebody waits for nothing at all")?;
            let idle = std::time::Duration::from_nanos(next - idle_since);
            if self.is_waited_for() && !self.is_used() && idle > self.record.patience {
                let most = self.record.patience;
                return Err(format!("somebody sleeps on: for {idle:?}, and {most:?} at most"));
            }
            self.take(Step::Pass(next), steps)?;
        }
        Err("it never ends".to_owned())
    }

    /// Somebody who takes steps wants the lock.
    fn is_waited_for(&self) -> bool {
        let mut running = self.clients.iter().filter(|client| client.runs());
        running.any(|client| client.threads.iter().any(|thread| thread.is_waiting()))
    }

    /// A lease is valid, or the lock is a foreign client's.
    fn is_used(&self) -> bool {
        if matches!(self.server.holder(self.server_time()), Some((None, _))) {
            return true;
        }
        self.clients.iter().enumerate().any(|(c, client)| {
            let now = self.clock(c);
            client.life != Life::Gone
                && client.threads.iter().any(
                    |thread| matches!(&thread.task, Task::Holding(lease) if lease.is_valid(now)),
                )
        })
    }
}
