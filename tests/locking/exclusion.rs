//! Never two holders, and fences in the order of holding: judged by what the holders saw and by
//! what the guarded resource took.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use crate::stores::{LIMIT, Store, ms, on_each_store};
use kit::history::{judge, now};
use kit::{Hold, Server, Wrong};
use leasehold::Client;
use nix::fcntl::{Flock, FlockArg};

on_each_store!(
    c1_c2_threads_hold_one_after_the_other_and_lose_nothing,
    c1_control_holders_that_ignore_validity_overlap,
);

/// The guarded resource: a number in a file that refuses a smaller fence than it has seen.
struct Register(File);

impl Register {
    fn open(path: &Path) -> Register {
        let options =
            File::options().read(true).write(true).create(true).truncate(false).open(path);
        Register(options.unwrap())
    }

    /// Works on fence and number while nobody else does; false if the fence is too small.
    fn access(&self, fence: u64, work: impl FnOnce(&mut u64)) -> bool {
        let file = self.0.try_clone().unwrap();
        let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, no)| no).unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let (seen, number) = text.split_once(' ').unwrap_or(("0", "0"));
        let (seen, mut number) = (seen.parse::<u64>().unwrap(), number.parse().unwrap());
        if fence < seen {
            return false;
        }
        work(&mut number);
        file.rewind().unwrap();
        // Both are of one width, so that nothing of the text before stays.
        write!(file, "{fence:020} {number:020}").unwrap();
        true
    }

    fn number(&self) -> u64 {
        let mut number = 0;
        assert!(self.access(u64::MAX, |now| number = *now));
        number
    }
}

#[derive(Default)]
struct Report {
    turns: Vec<Hold>,
    accepted: u64,
    refused: u64,
}

/// Takes the lock again and again for a while; every fourth turn stalls beyond its ttl.
fn contend(client: &Client, register: &Path, span: Duration) -> Report {
    const TTL: Duration = ms(40);
    let register = Register::open(register);
    let lock = client.lock("contended").ttl(TTL).wait(LIMIT);
    let (start, mut report) = (now(), Report::default());
    // A busy machine may not give everybody a turn in this time.
    while now() - start < span || report.turns.len() < 8 {
        let asked = now();
        let lease = lock.acquire().unwrap();
        let fence = lease.fence();
        let mut turn = Hold::begin(asked, fence);
        let mut number = None;
        register.access(fence, |seen| number = Some(*seen));
        // What a holder does later must be refused by the register if somebody has come after.
        let stalls = report.turns.len() % 4 == 3;
        loop {
            let over = now() > turn.from + TTL * 2;
            turn.look(|| lease.is_valid());
            if !stalls || over {
                break;
            }
            std::thread::sleep(ms(1));
        }
        report.turns.push(turn);
        let written = number.is_some_and(|number| register.access(fence, |now| *now = number + 1));
        *(if written { &mut report.accepted } else { &mut report.refused }) += 1;
        drop(lease);
    }
    report
}

fn check(reports: Vec<Report>, register: &Path) {
    let accepted: u64 = reports.iter().map(|report| report.accepted).sum();
    let refused: u64 = reports.iter().map(|report| report.refused).sum();
    let turns: Vec<_> = reports.into_iter().flat_map(|report| report.turns).collect();
    assert!(turns.len() > 10 && refused > 0, "{} turns, {refused} refused", turns.len());
    assert_eq!(judge(&turns), []);
    assert_eq!(Register::open(register).number(), accepted, "a write that was accepted is lost");
}

fn c1_c2_threads_hold_one_after_the_other_and_lose_nothing(store: &Store) {
    let dir = tempfile::tempdir().unwrap();
    let register = dir.path().join("register");
    let clients = [store.client(), store.client()];
    let reports = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|index| {
                scope.spawn({
                    let (client, register) = (&clients[index % 2], &register);
                    move || contend(client, register, ms(1200))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    check(reports, &register);
}

/// The judge finds what it is there to find: with the lock of this library, used wrongly.
fn c1_control_holders_that_ignore_validity_overlap(store: &Store) {
    let client = store.client();
    let both = Barrier::new(2);
    let turns = std::thread::scope(|scope| {
        let hold = || {
            let asked = now();
            let lease = client.lock("n").ttl(ms(30)).wait(LIMIT).acquire().unwrap();
            let turn = Hold::begin(asked, lease.fence());
            // The second one gets there when the ttl of the first one has run out.
            both.wait();
            Hold { until: now(), ..turn }
        };
        let threads = [scope.spawn(hold), scope.spawn(hold)];
        threads.map(|thread| thread.join().unwrap())
    });
    let wrong = judge(&turns);
    assert!(matches!(wrong[..], [Wrong::Overlap(..)]), "{wrong:?}");
}

/// And with the lock that people write by hand: SET NX PX, work, plain DEL. The first holder's
/// ttl runs out, it deletes the second one's lock, and a third one comes in.
#[test]
fn c1_control_a_plain_delete_lets_two_in() {
    let server = Server::start();
    let take = || {
        let take = ["SET", "plain", "x", "NX", "PX", "60000"];
        (server.cmd(&take) == redis::Value::Okay).then(now)
    };
    let first = take().unwrap();
    server.cmd(&["PEXPIRE", "plain", "1"]);
    let second = kit::wait::eventually_some(LIMIT, take);
    let turn = |from, fence| Hold { asked: from, from, until: now(), fence };
    assert_eq!(judge(&[Hold { until: second, ..turn(first, 1) }, turn(second, 2)]), []);
    server.cmd(&["DEL", "plain"]);
    let third = take().expect("the second one's lock is gone");
    let wrong = judge(&[turn(second, 2), turn(third, 3)]);
    assert!(matches!(wrong[..], [Wrong::Overlap(..)]), "{wrong:?}");
}
