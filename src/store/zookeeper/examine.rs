//! Whether a ZooKeeper is fit for locks: its servers, their sessions, the rights on our root.

use super::ZookeeperStore;
use super::dial::{Dialer, TIMEOUT};
use super::fault;
use super::jute::Ask;
use super::session::Session;
use crate::clock::Deadline;
use crate::config::{StoreConfig, ZookeeperConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject, Value, kinds};
use crate::store::Store;

const CONFIG: &str = "/zookeeper/config";
/// What a server says to a word is some hundred bytes.
const LONGEST: usize = 1 << 16;

kinds! { KINDS:
    DOWN Warning "zookeeper-server-down" "a server of the URL does not answer"
        "one failure fewer is survived until it is back"
        "start it, or take it out of the ensemble and the URL";
    CUT_OFF Warning "zookeeper-cut-off" "a server has no majority of its ensemble"
        "clients of it get no lock, and where no server has one, nobody does"
        "start servers, or mend the network between them, until a majority runs: echo srvr | nc HOST 2181";
    DIFFER Warning "zookeeper-differ" "servers of the URL are of several ensembles"
        "programs that reach different ones hold the same lock"
        "name the servers of one ensemble in the URL of all programs";
    ALONE Note "zookeeper-alone" "the server is alone"
        "while it is down, nobody gets a lock and leases end"
        "run three, each with the same server.N lines in its zoo.cfg";
    EVEN Note "zookeeper-even" "the number of members is even"
        "the last one lets no more of them fail, and is one more that can"
        "add one, or take one out, in the server.N lines of each zoo.cfg";
    OLD Warning "zookeeper-old" "the server is too old"
        "locks need what came with 3.6"
        "update it to 3.6 or later";
    RIGHTS Warning "zookeeper-rights" "the user may not do all that a lock needs"
        "a lock cannot be taken or given back"
        "add digest:USER:HASH:crd to what getAcl /leasehold shows: setAcl /leasehold ACL,digest:USER:HASH:crd";
    SESSION Note "zookeeper-session" "sessions do not last as long as is asked for"
        "if shorter, a pause costs waiters their places; if longer, a lock is handed to waiters that were killed"
        "in each zoo.cfg, minSessionTimeout=5000 or less, and maxSessionTimeout=5000 or more";
}

impl ZookeeperStore {
    /// Whether a lock can be tried: a server serves, and the user may do what a lock needs.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Zookeeper(zookeeper) = &subject.config.store else { return Ok(true) };
        let by = || Deadline::after(subject.config.io_timeout);
        let (mut seen, mut down) = (Vec::<Option<String>>::new(), None);
        for host in &zookeeper.hosts {
            let one = ZookeeperConfig { hosts: vec![host.clone()], ..(**zookeeper).clone() };
            let (at, dialer) = (one.display(), Dialer::new(&one, false)?);
            // Not each server may tell, and what it does not tell is not judged.
            let said = dialer.word(b"srvr", by()).unwrap_or_default();
            let session = Session::new(dialer, subject.config.io_timeout)?;
            match session.call(&[Ask::Get(CONFIG)], (by(), by())) {
                Ok((.., replies)) => {
                    let config = replies.first().filter(|it| it.code == 0);
                    let config = config.and_then(|it| it.data().ok());
                    let config = config.map(|(it, _)| String::from_utf8_lossy(it).into_owned());
                    judge(&at, &said, session.timeout(), found);
                    seen.push(config.map(|config| members(&config)));
                }
                Err(failure) => {
                    let error = failure.error;
                    let kind = match error.kind() {
                        ErrorKind::Auth | ErrorKind::Permission => &RIGHTS,
                        _ if is_cut_off(&said) => &CUT_OFF,
                        _ => &DOWN,
                    };
                    found.found(&at, kind, error.detail());
                    down = Some(error).filter(|_| kind.id == DOWN.id).or(down);
                }
            }
        }
        if seen.is_empty() {
            let is_told = found.findings.iter().any(|it| it.id != DOWN.id);
            return down.filter(|_| !is_told).map_or(Ok(false), Err);
        }
        let at = subject.config.display_store();
        weigh(&at, &seen, found);
        found.time(&at, subject, || self.ping(by()).map(|()| None))?;
        let missing = self.missing_right(by())?;
        if let Some(right) = missing {
            found.found(&at, &RIGHTS, format!("on the node 'leasehold', {right}"));
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
fn judge(at: &str, said: &str, timeout: Option<std::time::Duration>, found: &mut Examination) {
    let version = line(said, "Zookeeper version: ").and_then(|it| it.split(['-', ',']).next());
    let (version, mode) = (version.unwrap_or_default(), line(said, "Mode: "));
    for (what, text) in [("version", version), ("mode", mode.unwrap_or_default())] {
        if !text.is_empty() {
            found.text(at, what, text);
        }
    }
    if is_old(version) {
        found.found(at, &OLD, version);
    }
    if let Some(timeout) = timeout.filter(|timeout| *timeout != TIMEOUT) {
        let [given, asked] = [timeout, TIMEOUT].map(|span| span.as_secs_f64());
        found.found(at, &SESSION, format!("{given} s, and not {asked} s"));
    }
}

/// What the servers say of their ensemble: its members that vote, none where one is by itself.
fn weigh(at: &str, seen: &[Option<String>], found: &mut Examination) {
    let mut told = seen.iter().flatten();
    let Some(first) = told.next() else { return };
    // Of several servers that are each by itself, none is another one's.
    let is_other = |other: &String| other != first || first.is_empty();
    let (count, differ) = (first.lines().count(), told.any(is_other));
    found.measured(at, "members", Value::Count(count.max(1) as u64));
    let said = format!("it has {count}");
    for (kind, is_so, said) in [
        (&DIFFER, differ, "they do not name the same members".to_owned()),
        (&ALONE, count < 2, "no other has what it has".to_owned()),
        (&EVEN, count > 0 && count.is_multiple_of(2), said),
    ] {
        if is_so {
            found.found(at, kind, said);
        }
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
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    parts.next().zip(parts.next()).is_some_and(|level| level < (3, 6))
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
