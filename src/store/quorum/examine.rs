//! Whether a quorum is fit for locks: each of its members, and whether they are independent.

use std::time::Duration;

use super::QuorumStore;
use super::round::{majority, too_few};
use crate::config::{StoreConfig, spoken};
use crate::error::Error;
use crate::examination::{Examination, Subject, kinds};
use crate::store::redis::several::examine::{Patient, agree, finish, look};

/// Half of what a member refuses.
const FAR_AHEAD: Duration = Duration::from_secs(1800);

kinds! { KINDS:
    DOWN Warning "quorum-member-down" "a member does not answer"
        "one failure fewer is survived until it is back"
        "start it, or see what is in the way";
    SAME_SERVER Warning "quorum-same-server" "two members are one server"
        "it votes twice, and takes two votes with it when it fails"
        "name servers that share nothing";
    SAME_HOST Warning "quorum-same-host" "members are on one machine"
        "what stops the machine stops all of them: they are not independent"
        "put each member on a machine of its own";
    HERE Note "quorum-here" "members are on this machine"
        "that is fine for trying it out: a machine that stops, stops all of them"
        "put each member on a machine of its own";
    OUR_CLOCK Warning "quorum-clock-ahead" "this machine's clock is far ahead of a member's"
        "a member refuses a client whose clock is more than an hour ahead of its own"
        "let chrony or ntpd set the clock of this machine, or that of the member";
    DIFFER Note "quorum-differ" "members are not alike"
        "what one of them survives, another may not"
        "give all of them one version and the same appendonly and appendfsync";
}

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
                    found.found(&node.shown, &DOWN, error.detail());
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
            found.found(one.at(), &SAME_SERVER, format!("{} is the same", other.at()));
        } else if let Some(machine) = one.machine() {
            if machine.is_loopback() {
                loopback.push(one.at());
            } else if let Some(other) = others.iter().find(|it| it.machine() == Some(machine)) {
                found.found(one.at(), &SAME_HOST, format!("{} too", other.at()));
            }
        }
        let ahead = Duration::from_secs(one.behind_us().as_secs());
        if ahead > FAR_AHEAD {
            found.found(one.at(), &OUR_CLOCK, format!("by {}", spoken(ahead)));
        }
        if let Some(first) = others.first().filter(|first| first.habits() != one.habits()) {
            found.found(one.at(), &DIFFER, format!("{} is another", first.at()));
        }
    }
    if loopback.len() > 1 {
        found.found(loopback[0], &HERE, loopback[1..].join(" "));
    }
}
