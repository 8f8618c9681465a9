//! Whether a quorum is fit for locks: each of its members, and whether they are independent.

use std::time::Duration;

use super::QuorumStore;
use super::round::{majority, too_few};
use crate::config::{StoreConfig, spoken};
use crate::error::Error;
use crate::examination::{Examination, Subject, kind};
use crate::store::redis::several::examine::{Patient, agree, finish, look};

/// Half of what a member refuses.
const FAR_AHEAD: Duration = Duration::from_secs(1800);

impl QuorumStore {
    /// Whether a lock may be tried: at no member then begins a wait.
    pub(super) fn look_at_members(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Quorum(members) = &subject.config.store else { return Ok(true) };
        let (mut patients, mut groups, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (member, node) in members.iter().zip(self.nodes()) {
            match look(member, subject, found) {
                Ok(servers) => {
                    groups.push(patients.len());
                    patients.extend(servers);
                }
                Err(error) => {
                    found.found(&node.shown, kind!("quorum-member-down"), error.detail());
                    errors.push(error);
                }
            }
        }
        if groups.len() < majority(members.len()) {
            return Err(too_few(groups.len(), members.len(), &errors));
        }
        // The first server of each member stands for it: a group's master.
        let firsts: Vec<&Patient> = groups.iter().filter_map(|at| patients.get(*at)).collect();
        compare(&firsts, found);
        agree(&patients, found);
        let is_open = patients.iter().all(Patient::is_open);
        finish(&mut patients, subject, found);
        Ok(is_open)
    }
}

fn compare(members: &[&Patient], found: &mut Examination) {
    let mut loopback = Vec::new();
    for (at, one) in members.iter().enumerate() {
        let others = &members[..at];
        if let Some(other) =
            others.iter().find(|other| !one.run().is_empty() && other.run() == one.run())
        {
            found.found(
                one.at(),
                kind!("quorum-same-server"),
                format!("{} is the same", other.at()),
            );
        } else if let Some(machine) = one.machine() {
            if machine.is_loopback() {
                loopback.push(one.at());
            } else if let Some(other) = others.iter().find(|it| it.machine() == Some(machine)) {
                found.found(one.at(), kind!("quorum-same-host"), format!("{} too", other.at()));
            }
        }
        let ahead = Duration::from_secs(one.behind_us().as_secs());
        if ahead > FAR_AHEAD {
            found.found(one.at(), kind!("quorum-clock-ahead"), format!("by {}", spoken(ahead)));
        }
        if let Some(first) = others.first().filter(|first| first.habits() != one.habits()) {
            found.found(one.at(), kind!("quorum-differ"), format!("{} is another", first.at()));
        }
    }
    if let [first, others @ ..] = &loopback[..] {
        found.listed(first, kind!("quorum-here"), others, " ");
    }
}
