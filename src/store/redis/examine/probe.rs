//! A connection of the examination's own, on which nothing is said but questions.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use redis::{Cmd, Value};
use socket2::SockRef;

use crate::clock::Deadline;
use crate::config::{Access, Address};
use crate::error::Error;
use crate::examination::{Examination, Kind, level};
use crate::store::redis::dial::{Dialer, Greeting};
use crate::store::redis::fault;
use crate::store::redis::server_source::NO_SERVER;
use crate::store::redis::wire::Wire;

pub(super) struct Probe {
    wire: Wire,
    span: Duration,
    pub(super) address: Address,
    /// How findings name it.
    pub(super) at: String,
    pub(super) user: String,
}

impl Probe {
    pub(super) fn dial(access: &Access, address: &Address, span: Duration) -> Result<Probe, Error> {
        let dialer = Dialer::new(access, Greeting::default(), std::slice::from_ref(address))?;
        let dialed = dialer.dial(address, NO_SERVER, Deadline::after(span), &|_| Ok(()));
        let wire = dialed.map_err(|error| about(address, error))?;
        let user = wire.login.as_ref().and_then(|login| login.user.as_ref());
        let user = user.or(access.user.as_ref()).map_or("default", String::as_str);
        Ok(Probe {
            user: user.to_owned(),
            wire,
            span,
            address: address.clone(),
            at: address.to_string(),
        })
    }

    /// What it says to each command. They are sent together.
    pub(super) fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        let by = Deadline::after(self.span);
        let bytes = commands.iter().flat_map(Cmd::get_packed_command).collect::<Vec<u8>>();
        let sent = self.wire.send(&bytes, by).map_err(|(_, error)| fault::io("sending", &error));
        sent.map_err(|error| about(&self.address, error))?;
        let received = commands.iter().map(|_| self.wire.receive(by));
        received.collect::<Result<_, _>>().map_err(|error| about(&self.address, error))
    }

    pub(super) fn ask_one(&mut self, words: &[&str]) -> Result<Value, Error> {
        Ok(self.ask(&[words_of(words)])?.pop().unwrap_or(Value::Nil))
    }

    /// Takes a finding in where the user lacks rights.
    pub(super) fn lacks(&self, kind: Kind, rights: &[impl Display], found: &mut Examination) {
        let rights = rights.iter().map(|right| format!(" {right}")).collect::<String>();
        if !rights.is_empty() {
            let advice = format!("ACL SETUSER {}{rights}", self.user);
            found.advise(&self.at, kind, rights.trim_start(), advice);
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.wire.stream.is_tls()
    }

    /// The address of its machine, unless it is a socket's file.
    pub(super) fn machine(&self) -> Option<IpAddr> {
        let peer = SockRef::from(&self.wire.fd()).peer_addr().ok()?;
        peer.as_socket().map(|address| address.ip())
    }
}

/// Says which server, if that is not said yet.
fn about(address: &Address, error: Error) -> Error {
    if error.detail().contains(&address.to_string()) { error } else { error.at(address) }
}

pub(super) fn words_of(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn items(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

/// Fields and values that follow one another, as CONFIG GET and SENTINEL MASTER have them.
pub(super) fn pairs(value: &Value) -> HashMap<String, String> {
    let (pairs, _) = items(value).as_chunks::<2>();
    pairs.iter().filter_map(|[field, value]| Some((text(field)?, text(value)?))).collect()
}

/// Whether the user lacks a right.
pub(super) fn refused(said: &Value) -> bool {
    matches!(said, Value::ServerError(error) if error.code() == "NOPERM")
}

/// What a server tells of itself.
#[derive(Default)]
pub(super) struct Facts {
    info: HashMap<String, String>,
    config: HashMap<String, String>,
    /// In microseconds.
    pub(super) slowest: Option<u64>,
    /// The rights that were missing for looking.
    pub(super) refused: BTreeSet<&'static str>,
}

/// The settings that matter to a lock and that INFO does not have.
const SETTINGS: [&str; 9] = [
    "appendfsync",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "timeout",
    "tcp-keepalive",
    "client-output-buffer-limit",
    "maxclients",
    "cluster-require-full-coverage",
    "cluster-node-timeout",
];

impl Facts {
    pub(super) fn gather(probe: &mut Probe) -> Result<Facts, Error> {
        let mut questions = vec![words_of(&["INFO", "ALL"]), words_of(&["SLOWLOG", "GET", "16"])];
        questions.extend(SETTINGS.iter().map(|name| words_of(&["CONFIG", "GET", name])));
        let mut said = probe.ask(&questions)?.into_iter();
        let mut facts = Facts::default();
        if let Some(info) = said.next() {
            facts = Facts::read(&info);
            facts.note(&info, "+info");
        }
        if let Some(slow) = said.next() {
            facts.note(&slow, "+slowlog|get");
            let spans = items(&slow).iter().filter_map(|entry| match items(entry).get(2) {
                Some(Value::Int(micros)) => u64::try_from(*micros).ok(),
                _ => None,
            });
            facts.slowest = spans.max();
        }
        for setting in said {
            facts.note(&setting, "+config|get");
            facts.config.extend(pairs(&setting));
        }
        Ok(facts)
    }

    /// What INFO says.
    pub(super) fn read(info: &Value) -> Facts {
        let lines = text(info).unwrap_or_default();
        let fields = lines.lines().filter_map(|line| line.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Facts { info, ..Facts::default() }
    }

    pub(super) fn note(&mut self, said: &Value, right: &'static str) {
        if refused(said) {
            self.refused.insert(right);
        }
    }

    pub(super) fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    pub(super) fn setting(&self, name: &str) -> &str {
        self.config.get(name).map_or("", String::as_str)
    }

    /// A number of INFO, or else a setting.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        [self.info(name), self.setting(name)].into_iter().find_map(|value| value.parse().ok())
    }

    /// Seconds of its processor so far.
    pub(super) fn cpu(&self) -> Option<f64> {
        let seconds = |name| self.info(name).parse::<f64>().ok();
        Some(seconds("used_cpu_sys")? + seconds("used_cpu_user")?)
    }

    /// Its replicas, as a master tells of them: fields and values of each.
    pub(super) fn replicas(&self) -> Vec<HashMap<&str, &str>> {
        let lines = (0..16).map(|number| self.info(&format!("slave{number}")));
        let told = lines.filter(|line| !line.is_empty());
        told.map(|line| line.split(',').filter_map(|pair| pair.split_once('=')).collect()).collect()
    }

    pub(super) fn version(&self) -> &str {
        [self.info("valkey_version"), self.info("redis_version")]
            .into_iter()
            .find(|version| !version.is_empty())
            .unwrap_or("")
    }

    /// Which Redis it is like.
    pub(super) fn level(&self) -> Option<[u32; 3]> {
        let version = self.info("redis_version");
        (!version.is_empty()).then(|| level(version))
    }
}
