//! Whether a ZooKeeper is fit for locks: its servers, their sessions, the rights on our root.

use std::time::Duration;

use super::ZookeeperStore;
use super::dial::{Dialer, TIMEOUT};
use super::fault;
use super::jute::Ask;
use super::session::Session;
use crate::clock::Deadline;
use crate::config::{StoreConfig, ZookeeperConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject, Value, findings, kind, level};
use crate::store::Store;

const CONFIG: &str = "/zookeeper/config";
/// What a server says to a word is some hundred bytes.
const LONGEST: usize = 1 << 16;

impl ZookeeperStore {
    /// Whether a lock can be tried: a server serves, and the user may do what a lock needs.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Zookeeper(zookeeper) = &subject.config.store else { return Ok(true) };
        let by = || Deadline::after(subject.config.io_timeout);
        let seen =
            found.each_host(&zookeeper.hosts, kind!("zookeeper-server-down"), |found, host| {
                let one = ZookeeperConfig { hosts: vec![host], ..(**zookeeper).clone() };
                let (at, mut said) = (one.display(), String::new());
                let asked = Dialer::new(&one, false).and_then(|dialer| {
                    // Not each server may tell, and what it does not tell is not judged.
                    said = dialer.word(b"srvr", by()).unwrap_or_default();
                    let session = Session::new(dialer, subject.config.io_timeout)?;
                    let replies = session.call(&[Ask::Get(CONFIG)], by().into());
                    let (.., replies) = replies.map_err(|failure| failure.error)?;
                    judge(&at, &said, session.timeout(), found);
                    let config =
                        replies.first().filter(|it| it.code == 0).and_then(|it| it.data().ok());
                    Ok(config.map(|(config, _)| members(&String::from_utf8_lossy(config))))
                });
                let kind = |error: &Error| match error.kind() {
                    ErrorKind::Auth | ErrorKind::Permission => kind!("zookeeper-rights"),
                    _ if is_cut_off(&said) => kind!("zookeeper-cut-off"),
                    _ => kind!("zookeeper-server-down"),
                };
                (at, asked.map_err(|error| (kind(&error), error)))
            })?;
        if seen.is_empty() {
            return Ok(false);
        }
        let at = subject.config.display_store();
        weigh(&at, &seen, found);
        found.time(&at, subject, || self.ping(by()).map(|()| None))?;
        let missing = self.missing_right(by())?;
        let right = missing.unwrap_or_default();
        findings! { found, &at;
            "zookeeper-rights" if missing.is_some() => "on the node 'leasehold', {right}";
        }
        Ok(missing.is_none())
    }
}

impl Dialer {
    /// What the server says to a word of four letters.
    fn word(&self, word: &[u8], by: Deadline) -> Result<String, Error> {
        let Some(address) = self.config.hosts.first() else { return Ok(String::new()) };
        let mut stream = self.open(address, by)?;
        let failed = |error| fault::io("asking the server", &error);
        stream.send(word, by).map_err(|(_, error)| failed(error))?;
        let (mut said, mut room) = (Vec::new(), [0; 4096]);
        while said.len() < LONGEST {
            match stream.read(&mut room, by) {
                Ok(0) => break,
                Ok(count) => said.extend_from_slice(&room[..count]),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// What a server says of itself.
fn judge(at: &str, said: &str, timeout: Option<Duration>, found: &mut Examination) {
    let version = line(said, "Zookeeper version: ").and_then(|it| it.split(['-', ',']).next());
    for (what, text) in [("version", version), ("mode", line(said, "Mode: "))] {
        text.into_iter().for_each(|text| found.text(at, what, text));
    }
    let version = version.unwrap_or_default();
    let [given, asked] = [timeout.unwrap_or(TIMEOUT), TIMEOUT].map(|span| span.as_secs_f64());
    findings! { found, at;
        "zookeeper-old" if is_old(version) => "{version}";
        "zookeeper-session" if given != asked => "{given} s, and not {asked} s";
    }
}

/// What the servers say of their ensemble: its members that vote, none where one is by itself.
fn weigh(at: &str, seen: &[(String, Option<String>)], found: &mut Examination) {
    let mut told = seen.iter().filter_map(|(_, members)| members.as_deref());
    let Some(first) = told.next() else { return };
    // Of several servers that are each by itself, none is another one's.
    let differ = told.any(|other| other != first || first.is_empty());
    let count = first.lines().count();
    found.measured(at, "members", Value::Count(count.max(1) as u64));
    findings! { found, at;
        "zookeeper-differ" if differ => "they do not name the same members";
        "zookeeper-alone" if count < 2 => "no other has what it has";
        "zookeeper-even" if count > 0 && count.is_multiple_of(2) => "it has {count}";
    }
}

fn line<'a>(said: &'a str, head: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(head))
}

fn is_cut_off(said: &str) -> bool {
    line(said, "Mode: ") == Some("read-only") || said.contains("not currently serving requests")
}

/// Those that vote, a line for each.
fn members(config: &str) -> String {
    let is_voter = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    let mut all: Vec<_> = config.lines().filter(is_voter).collect();
    all.sort_unstable();
    all.join("\n")
}

fn is_old(version: &str) -> bool {
    !version.is_empty() && level(version) < [3, 6, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_before_3_6_is_old_and_one_that_is_not_told_is_not() {
        let old = ["3.4.14", "3.5.10", "2.9"].map(is_old);
        assert_eq!((old, ["3.6.0", "3.10.1", "4.0", ""].map(is_old)), ([true; 3], [false; 4]));
    }

    #[test]
    fn an_observer_does_not_vote() {
        let [one, two] = ["server.1=a:1:2:participant;3", "server.2=b:1:2:observer;3"];
        assert_eq!(members(&format!("{two}\n{one}\nversion=0")), one);
    }
}
