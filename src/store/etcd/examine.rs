//! Whether an etcd is fit for locks: its members, its space, the user's rights, keys that stay for ever.

use super::EtcdStore;
use super::dial::{Dialer, transact};
use super::explain;
use super::fault::foreign;
use super::keys::{self, Name};
use super::messages::{Done, Op, Txn};
use super::proto::{Field, Message, read};
use crate::clock::Deadline;
use crate::config::{EtcdConfig, StoreConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject, Value, findings, kind, level};
use crate::store::{Lane, Store};
use crate::token::{ClientId, Token};

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";

/// What a member says of itself. Numbers of members are compared only.
#[derive(Default, Clone)]
struct Status {
    cluster: i64,
    member: i64,
    version: String,
    size: u64,
    errors: String,
}

impl Status {
    fn read(message: &[u8]) -> Option<Status> {
        let mut it = Status::default();
        let text = |field: Field<'_>| String::from_utf8_lossy(field.bytes()).into_owned();
        read(message, |number, field| match number {
            1 => {
                let _ = read(field.bytes(), |number, field| match number {
                    1 => it.cluster = field.number(),
                    2 => it.member = field.number(),
                    _ => {}
                });
            }
            2 => it.version = text(field),
            3 => it.size = field.count(),
            8 => it.errors += &text(field),
            _ => {}
        })?;
        Some(it)
    }
}

/// The members that vote.
fn voters(message: &[u8]) -> Option<Vec<i64>> {
    let mut all = Vec::new();
    read(message, |number, field| {
        let (mut id, mut is_learner) = (0, false);
        let _ = read(field.bytes(), |number, field| match number {
            1 => id = field.number(),
            5 => is_learner = field.number() != 0,
            _ => {}
        });
        if number == 2 && !is_learner {
            all.push(id);
        }
    })?;
    Some(all)
}

impl EtcdStore {
    /// Whether a lock can be tried: there is a leader, and the user may do what a lock needs.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Etcd(etcd) = &subject.config.store else { return Ok(true) };
        let by = || Deadline::after(subject.config.io_timeout);
        let mut all = Vec::new();
        let seen = found.each_host(&etcd.hosts, kind!("etcd-member-down"), |_, host| {
            let one = EtcdConfig { hosts: vec![host], ..(**etcd).clone() };
            let wire = Dialer::new(&one).and_then(|dialer| dialer.dial(by(), &|_| Ok(())));
            let asked = wire.and_then(|mut wire| {
                let mut ask = |path| wire.call(path, &Message::default(), by());
                let status = ask(STATUS).map_err(|failure| failure.error)?.0;
                let members = ask(MEMBERS).map_err(|failure| failure.error)?.0;
                all = voters(&members).ok_or_else(foreign)?;
                Status::read(&status).ok_or_else(foreign)
            });
            // A member without a leader answers nothing else.
            let kind = |error: &Error| match error.detail().contains("no leader") {
                true => kind!("etcd-no-leader"),
                false => kind!("etcd-member-down"),
            };
            (one.display(), asked.map_err(|error| (kind(&error), error)))
        })?;
        if seen.is_empty() {
            return Ok(false);
        }
        let at = subject.config.display_store();
        judge(&at, &seen, &all, found);
        if let Err(error) = self.try_rights(subject) {
            if !matches!(error.kind(), ErrorKind::Auth | ErrorKind::Permission) {
                // A full space is an alarm, and the trial shows what else keeps locks from working.
                return Ok(true);
            }
            let lacking = |wire: &mut _, by| Ok(explain::lacking(wire, &self.prefix, by));
            let mends = self.on_wire(Lane::Caller, by(), lacking).unwrap_or_default();
            found.advise(&at, kind!("etcd-rights"), error.detail(), mends.join("; "));
            return Ok(false);
        }
        found.time(&at, subject, || self.ping(by()).map(|()| None))?;
        self.look_for_stuck(subject, &at, found);
        Ok(true)
    }

    /// Asks for changes that are not made, since something is never so.
    fn try_rights(&self, subject: Subject<'_>) -> Result<(), Error> {
        let (name, token) = (self.name(&subject.checkup.name), Token::random()?);
        let client = keys::client(&self.prefix, ClientId::draw()?);
        for key in [name.key(token, 0), name.note(), client] {
            let tried = Txn::default()
                .if_unchanged(&key, 1 << 60)
                .then(Op::put(&key, b"", 0))
                .otherwise(Op::first(&name.all));
            self.once(&tried, subject)?;
        }
        Ok(())
    }

    fn once(&self, txn: &Txn, subject: Subject<'_>) -> Result<Done, Error> {
        let by = Deadline::after(subject.config.io_timeout);
        let done = self.on_wire(Lane::Caller, by, |wire, by| transact(wire, txn, by));
        done.map(|(done, _)| done).map_err(|failure| failure.error)
    }

    /// Looks for keys without a lease, among the first that are there.
    fn look_for_stuck(&self, subject: Subject<'_>, at: &str, found: &mut Examination) {
        let (first, end) = Name::range(&self.prefix);
        let some = Txn::default().then(Op::between(&first, &end, 10_000));
        // The user may see some names only.
        let Ok(mut done) = self.once(&some, subject) else { return };
        let keys = done.part(0).keys;
        let (looked, mut stuck) = (keys.len(), keys.iter().filter(|key| key.lease == 0));
        found.measured(at, "keys_of_locks", Value::Count(looked as u64));
        if let Some(one) = stuck.next() {
            let (count, key) = (stuck.count() + 1, one.key.escape_ascii());
            found.found(at, kind!("etcd-stuck"), format!("{count} of {looked}, as {key}"));
        }
    }
}

fn judge(at: &str, seen: &[(String, Status)], voters: &[i64], found: &mut Examination) {
    for (at, Status { cluster, version, size, errors, .. }) in seen {
        found.text(at, "version", version);
        found.measured(at, "space_used_bytes", Value::Count(*size));
        let is_other = seen.first().is_some_and(|(_, first)| first.cluster != *cluster);
        findings! { found, at;
            "etcd-differ" if is_other => "it is of another one than the first";
            "etcd-alarm" if errors.contains("alarm:") => "{errors}";
            "etcd-old" if is_old(version) => "{version}";
        }
    }
    let unnamed = voters.iter().filter(|id| seen.iter().all(|(_, it)| it.member != **id)).count();
    let count = voters.len();
    findings! { found, at;
        "etcd-alone" if count == 1 => "it has {count}";
        "etcd-even" if count.is_multiple_of(2) => "it has {count}";
        "etcd-unnamed" if unnamed > 0 => "{unnamed} of {count}";
    }
}

/// Whether a leader that stood still may end leases of others.
fn is_old(version: &str) -> bool {
    let level = level(version);
    level < [3, 4, 31] || ([3, 5, 0]..[3, 5, 13]).contains(&level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_that_end_leases_of_others_are_told_apart() {
        let old = ["3.3.27", "3.4.30", "3.5.12", "3.5.0-rc.1"].map(is_old);
        assert_eq!((old, ["3.4.31", "3.5.13", "3.6.0"].map(is_old)), ([true; 4], [false; 3]));
    }
}
