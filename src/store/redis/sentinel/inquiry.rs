//! Asking one Sentinel where the master is, and to be told when that changes.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::watch::Watch;
use crate::clock::Deadline;
use crate::config::{Address, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::redis::dial::{Dialer, Greeting, Show};
use crate::store::redis::fault;

pub(super) struct Inquiry {
    dialer: Dialer,
    name: String,
    /// All questions, to be sent in one write.
    bytes: Vec<u8>,
    /// Somebody was told that we may not ask for the number of a configuration.
    warned: AtomicBool,
}

/// What a Sentinel tells.
pub(super) struct Found {
    pub(super) address: Address,
    /// The number of the configuration; none where we may not ask.
    pub(super) epoch: Option<u64>,
    /// Tells of every master that comes after this one; none where we may not listen.
    pub(super) watch: Option<Watch>,
}

/// A Sentinel is no server that keeps locks.
const NOBODY: ServerId = ServerId(u32::MAX);

impl Inquiry {
    pub(super) fn new(config: &SentinelConfig) -> Result<Inquiry, Error> {
        let name = config.master.clone();
        let mut bytes = Vec::new();
        let mut ask = |what: &str| {
            redis::cmd("SENTINEL").arg(what).arg(&name).write_packed_command(&mut bytes);
        };
        ask("GET-MASTER-ADDR-BY-NAME");
        ask("MASTER");
        // Last, since a subscriber may ask nothing else. It is carried out with the two before, so
        // that nothing is missed in between.
        redis::cmd("SUBSCRIBE").arg("+switch-master").write_packed_command(&mut bytes);
        let dialer = Dialer::new(&config.access, Greeting::default())?;
        Ok(Inquiry { dialer, name, bytes, warned: AtomicBool::new(false) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether this Sentinel could be asked, as far as can be said without trying.
    pub(super) fn check(&self, host: &Address) -> Result<(), Error> {
        self.dialer.check(host)
    }

    /// `None` if it knows no master of that name.
    pub(super) fn make(
        &self,
        host: &Address,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Option<Found>, Error> {
        let mut wire = self.dialer.dial(host, NOBODY, deadline, show)?;
        let sent = wire.send(&self.bytes, deadline);
        sent.map_err(|(_, error)| fault::io("the question", &error))?;
        let Some(address) = read_address(wire.receive(deadline)?)? else { return Ok(None) };
        let told = wire.receive(deadline)?;
        self.warn(&told);
        let epoch = read_epoch(&told);
        let subscribed = matches!(wire.receive(deadline)?, Value::Array(said)
            if matches!(said.first(), Some(Value::BulkString(kind)) if kind == b"subscribe"));
        Ok(Some(Found { address, epoch, watch: subscribed.then(|| Watch::new(wire)) }))
    }

    /// Says once that a Sentinel which knows less than others is believed like them.
    fn warn(&self, told: &Value) {
        let Value::ServerError(error) = told else { return };
        let error = fault::server(error);
        if error.kind() == ErrorKind::Permission && !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "a Sentinel that has missed a failover of '{}' cannot be told from others without \
                 the right +sentinel|master: {}",
                self.name,
                error.detail()
            );
        }
    }
}

fn read_address(value: Value) -> Result<Option<Address>, Error> {
    let unreadable = || Error::new(ErrorKind::Protocol, "no host and port where a master's belong");
    match value {
        Value::Nil => Ok(None),
        Value::ServerError(error) => Err(fault::server(&error)),
        Value::Array(said) => {
            let [host, port] = [0, 1].map(|at| said.get(at).and_then(text));
            let (host, port) = host.zip(port).ok_or_else(unreadable)?;
            address(host, port).map(Some).ok_or_else(unreadable)
        }
        _ => Err(unreadable()),
    }
}

/// `config-epoch` and its number, among much else.
fn read_epoch(value: &Value) -> Option<u64> {
    let Value::Array(said) = value else { return None };
    let mut pairs = said.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1])));
    let (_, number) = pairs.find(|(field, _)| *field == Some("config-epoch"))?;
    number?.parse().ok()
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Where a master is, in the words of a Sentinel.
pub(super) fn address(host: &str, port: &str) -> Option<Address> {
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(Address::Tcp { host: host.to_owned(), port }).filter(|_| !host.is_empty())
}
