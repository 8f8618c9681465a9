//! Many leases held by one client: none may be lost, and neither memory nor the keeper's time may
//! grow beyond what a program can spare.

use std::fs;
use std::time::{Duration, Instant};

use leasehold::{Client, EventKind, Lease};

use super::bare::{Address, Bare};
use super::ours;
use super::record::Recorded;
use super::redis::forget;
use super::report::Held;
use super::watch::Watch;
use crate::exit::Failure;

pub(super) struct Plan {
    pub(super) count: usize,
    pub(super) hold: Duration,
    pub(super) ttl: Duration,
}

pub(super) fn hold(
    url: &str,
    client: &Client,
    name: &str,
    plan: &Plan,
    watch: &Watch,
) -> Result<Held, Failure> {
    // A cycle first, so that what a client needs once is not counted with the leases.
    ours::cycle(&client.lock(name))?;
    let mut leases = Vec::with_capacity(plan.count);
    let held = take_and_hold(client, name, plan, watch, &mut leases);
    watch.say("giving back");
    let late = leases.drain(..).map(Lease::release).filter(Result::is_err).count();
    clean_up(url, client, name, plan.count, watch);
    let mut held = held?;
    held.lost = held.lost.max(late as u64);
    Ok(held)
}

fn take_and_hold(
    client: &Client,
    name: &str,
    plan: &Plan,
    watch: &Watch,
    leases: &mut Vec<Lease>,
) -> Result<Held, Failure> {
    let events = client.events()?;
    watch.say("taking");
    let before = resident();
    for number in 0..plan.count {
        watch.check()?;
        let lock = client.lock(numbered(name, number)).ttl(plan.ttl).no_max_hold();
        leases.push(ours::take(&lock)?);
    }
    let names = (plan.count * numbered(name, 0).len()) as u64;
    let bytes_per_lease = before
        .zip(resident())
        .map(|(before, after)| after.saturating_sub(before).saturating_sub(names))
        .map(|bytes| bytes as f64 / plan.count as f64);

    watch.say("holding");
    let keeper_before = keeper_time();
    let started = Instant::now();
    let mut told = 0;
    while let Some(left) = plan.hold.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        watch.check()?;
        let event = events.next_timeout(left.min(Duration::from_millis(100)))?;
        told += u64::from(event.is_some_and(|event| matches!(event.kind, EventKind::Lost(_))));
    }
    let elapsed = started.elapsed().as_secs_f64();
    let keeper_share = keeper_before
        .zip(keeper_time())
        .map(|(before, after)| after.saturating_sub(before).as_secs_f64() / elapsed);
    let invalid = leases.iter().filter(|lease| !lease.is_valid()).count() as u64;
    let counters = client.counters();
    Ok(Held {
        store: client.store().to_owned(),
        leases: plan.count,
        seconds: elapsed,
        ttl_ms: plan.ttl.as_millis(),
        lost: told.max(invalid).max(counters.lost),
        renewed: counters.renewed,
        bytes_per_lease,
        keeper_share,
    })
}

/// All of them equally long.
fn numbered(name: &str, number: usize) -> String {
    format!("{name}:{number:08}")
}

/// Removes what the store keeps of names that nobody holds any more.
fn clean_up(url: &str, client: &Client, name: &str, count: usize, watch: &Watch) {
    let Some(address) = Address::of(url) else {
        watch.note("what the store keeps of released names stays; it sweeps it by and by");
        return;
    };
    let removed = Bare::connect(&address).and_then(|mut bare| {
        let recorded = Recorded::of(&client.lock(name), &address, &mut bare)?;
        forget(&mut bare, recorded.keys());
        let all: Vec<usize> = (0..count).collect();
        for some in all.chunks(1000) {
            let keys = some.iter().flat_map(|number| {
                let other = numbered(name, *number);
                let keys = recorded.keys().into_iter();
                keys.map(move |key| replaced(key, name.as_bytes(), other.as_bytes()))
            });
            forget(&mut bare, keys.collect());
        }
        Ok(())
    });
    if let Err(failure) = removed {
        watch.note(&format!("the fences of the names stay for 25 hours: {failure}"));
    }
}

/// A key as it is for another name.
fn replaced(key: &[u8], name: &[u8], other: &[u8]) -> Vec<u8> {
    match key.windows(name.len()).position(|window| window == name) {
        Some(at) => [&key[..at], other, &key[at + name.len()..]].concat(),
        None => key.to_vec(),
    }
}

/// The memory that the process has in use, in bytes. With many leases the allocator's slack and
/// everything else that is not a lease is a small part of the difference.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// How long the keeper's thread has run.
fn keeper_time() -> Option<Duration> {
    let own = std::process::id().to_string();
    for entry in fs::read_dir("/proc/self/task").ok()? {
        let thread = entry.ok()?;
        // The main thread has the program's name, which is the keeper's too.
        let main = thread.file_name().to_str() == Some(own.as_str());
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        if !main && read("comm")?.trim_end() == "leasehold" {
            let nanos = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
            return Some(Duration::from_nanos(nanos));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_one_name_tells_that_of_another() {
        assert_eq!(replaced(b"{a:1}:side", b"a:1", b"a:1:07"), b"{a:1:07}:side");
        assert_eq!(replaced(b"other", b"a:1", b"a:1:07"), b"other");
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert!(resident().unwrap() > 100_000);
    }
}
