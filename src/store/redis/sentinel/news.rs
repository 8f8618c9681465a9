//! What a Sentinel tells without being asked: that there is a new master.

use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::Address;
use crate::error::Error;
use crate::store::redis::frame;
use crate::store::redis::wire::Wire;

/// After so much silence a Sentinel is asked whether it is there. It often runs beside the master,
/// and falls silent with it; before the others have elected a new one, another one must be heard.
const QUIET: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_millis(500);
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

pub(super) struct News {
    wire: Wire,
    alive: Moment,
    asked: Option<Moment>,
}

impl News {
    pub(super) fn new(wire: Wire) -> News {
        News { wire, alive: Moment::now(), asked: None }
    }

    /// The last new master of this name since the last call. Does not wait.
    pub(super) fn read(&mut self, name: &str) -> Result<Option<Address>, Error> {
        self.wire.glance()?;
        let (mut newest, asked) = (None, &mut self.asked);
        let read = self.wire.each_whole(|reply| {
            self.alive = Moment::now();
            match frame::push(reply) {
                Some(frame::Push { kind: b"message", payload, .. }) => {
                    newest = switched(payload, name).or(newest.take());
                    Ok(())
                }
                _ => asked.take().map(drop).ok_or_else(|| frame::unasked(reply)),
            }
        });
        match read {
            // The next call meets the error again.
            Err(_) if newest.is_some() => Ok(newest),
            read => read.map(|()| newest),
        }
    }

    /// Asks a silent Sentinel whether it is there; false once it has not answered. Does not wait.
    pub(super) fn is_alive(&mut self, now: Moment) -> bool {
        match self.asked {
            Some(asked) => now.since(asked) < ANSWER,
            None if now.since(self.alive) < QUIET => true,
            None => {
                let is_sent =
                    self.wire.send(PING, Deadline::after(Duration::from_millis(5))).is_ok();
                // Not `now`: this process may have been stopped since.
                self.asked = Some(Moment::now());
                is_sent
            }
        }
    }
}

/// `<name> <old host> <old port> <new host> <new port>`
fn switched(payload: &[u8], name: &str) -> Option<Address> {
    let words: Vec<&str> = std::str::from_utf8(payload).ok()?.split(' ').collect();
    match words[..] {
        [of, _, _, host, port] if of == name => address(host, port),
        _ => None,
    }
}

/// Where a master is, in the words of a Sentinel.
pub(super) fn address(host: &str, port: &str) -> Option<Address> {
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(Address::Tcp { host: host.to_owned(), port }).filter(|_| !host.is_empty())
}
