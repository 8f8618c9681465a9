//! The judge finds what it is there to find, and nothing else.

use std::time::Duration;

use leasehold::{Client, Lease, Token};
use tempfile::TempDir;

use super::NAMES;
use super::journal::{Cell, Journal, State};
use super::stores::{LIMIT, ms, open};
use super::verdict::{STEADY, Verdict};
use kit::history::now;
use kit::{Server, Wrong};

const TTL: Duration = ms(30_000);

/// A server, and a directory that those who use it write to.
struct Court {
    server: Server,
    dir: TempDir,
}

/// One who uses it.
struct Party {
    client: Client,
    journal: Journal,
    cell: Cell,
}

impl Court {
    fn new() -> Court {
        Court { server: Server::start(), dir: tempfile::tempdir().unwrap() }
    }

    fn party(&self, name: &str) -> Party {
        let journal = Journal::create(self.dir.path(), name);
        Party { client: open(&self.server.url()), journal, cell: Cell::open(self.dir.path(), 0) }
    }

    /// Somebody who has no business with it.
    fn delete_the_key(&self) {
        self.server.cmd(&["DEL", NAMES[0]]);
    }

    fn verdict(&self) -> Verdict {
        Verdict::of(self.dir.path(), now(), None, &[])
    }
}

impl Party {
    fn take(&mut self, ttl: Duration) -> Lease {
        self.journal.asks(0);
        let lease = self.client.lock(NAMES[0]).ttl(ttl).renew(false).wait(LIMIT).acquire().unwrap();
        self.journal.has(&lease);
        assert!(self.journal.look(&lease));
        lease
    }

    fn release(&mut self, lease: Lease) {
        assert!(self.journal.look(&lease));
        self.journal.ends(State::Over);
        let _ = lease.release();
    }

    fn detach(&mut self, lease: Lease) -> (Token, u64) {
        assert!(self.journal.look(&lease));
        self.journal.ends(State::HandedOn);
        lease.detach().unwrap()
    }

    fn attach(&mut self, (token, fence): (Token, u64)) -> Lease {
        self.journal.asks(0);
        self.journal.is_about(&token.to_string(), fence);
        let lease = self.client.lock(NAMES[0]).attach(token, fence).unwrap();
        lease.extend().unwrap();
        self.journal.has(&lease);
        assert!(self.journal.look(&lease));
        lease
    }
}

#[track_caller]
fn assert_well(court: &Court, leases: usize) {
    let verdict = court.verdict();
    verdict.assert_exclusion();
    assert_eq!((verdict.leases, verdict.out_of_order()), (leases, 0));
}

#[test]
fn control_two_leases_that_are_valid_at_once_are_found() {
    let court = Court::new();
    let (mut one, mut two) = (court.party("one"), court.party("two"));
    let first = one.take(TTL);
    court.delete_the_key();
    let second = two.take(TTL);
    two.cell.write(second.fence());
    one.cell.write(first.fence());
    one.release(first);
    two.release(second);
    let verdict = court.verdict();
    assert!(matches!(verdict.wrong[..], [Wrong::Overlap(..)]), "{verdict}");
    assert_eq!(verdict.refused.len(), 1);
}

#[test]
fn control_leases_one_after_the_other_are_well() {
    let court = Court::new();
    let (mut one, mut two) = (court.party("one"), court.party("two"));
    for _ in 0..3 {
        for party in [&mut one, &mut two] {
            let lease = party.take(TTL);
            party.cell.write(lease.fence());
            party.release(lease);
        }
    }
    // One that nobody has given up is over when it said so.
    let lost = one.take(ms(50));
    std::mem::forget(lost);
    let lease = two.take(TTL);
    two.release(lease);
    assert_well(&court, 8);
}

#[test]
fn control_the_word_of_one_that_was_killed_stands() {
    let court = Court::new();
    let (mut one, mut two) = (court.party("one"), court.party("two"));
    std::mem::forget(one.take(TTL));
    court.delete_the_key();
    let lease = two.take(TTL);
    two.release(lease);
    assert_eq!((court.verdict().overlaps(), court.verdict().orphaned), (1, 1));
}

#[test]
fn control_a_lock_that_was_left_taken_is_not_to_be_had() {
    for state in [State::LeftTaken, State::HandedOn] {
        let court = Court::new();
        let (mut one, mut two) = (court.party("one"), court.party("two"));
        let lease = one.take(TTL);
        one.journal.ends(state);
        lease.let_expire().unwrap();
        court.delete_the_key();
        let lease = two.take(TTL);
        two.release(lease);
        assert_eq!(court.verdict().overlaps(), 1);
    }
}

#[test]
fn control_a_lease_that_is_handed_on_is_another_one() {
    let court = Court::new();
    let (mut one, mut two) = (court.party("one"), court.party("two"));
    let lease = one.take(TTL);
    let handed = one.detach(lease);
    let lease = two.attach(handed);
    two.release(lease);
    // Long before the first one's ttl is over.
    let lease = one.take(TTL);
    one.release(lease);
    assert_well(&court, 3);

    let kept = one.take(TTL);
    // Nobody has handed it on, and both rely on it.
    two.journal.asks(0);
    two.journal.has(&kept);
    assert!(two.journal.look(&kept) && one.journal.look(&kept));
    one.release(kept);
    assert_eq!(court.verdict().shared.len(), 1);
}

#[test]
fn control_the_time_is_found_for_which_somebody_waited_in_vain() {
    let court = Court::new();
    let (mut one, mut steady) = (court.party("one"), court.party(STEADY));
    let lease = one.take(TTL);
    one.release(lease);
    // It is nobody's: no lease says so.
    court.server.cmd(&["SET", NAMES[0], "x", "PX", "400"]);
    let lease = steady.take(TTL);
    steady.release(lease);
    let idle = court.verdict().idle.0;
    assert!(idle >= ms(390), "{idle:?}");
}
