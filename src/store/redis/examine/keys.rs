//! The keys that are there: the marker of a server that guards against lost data, and keys that no
//! lock could have left like this.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Cmd, Value};

use super::Role;
use super::probe::{Facts, Probe, items, text, words_of};
use crate::clock::wall_micros;
use crate::config::spoken;
use crate::error::Error;
use crate::examination::{Examination, Reading, Subject, Value as Shown, kind};
use crate::store::redis::dialect::keys::{lock_beside, marker_of, slot_behind, with_keys};
use crate::store::redis::dialect::survey::{SURVEY, read};

/// Of so many keys at most.
const KEYS: u64 = 10_000;
const AT_ONCE: u64 = 500;

/// Whether a client may come: of a server that guards, each new run waits from the first one on.
pub(super) fn guard(
    probe: &mut Probe,
    facts: &Facts,
    (role, reading): (Role, Option<Reading>),
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<bool, Error> {
    let (config, at) = (subject.config, probe.at.clone());
    let slot = (role == Role::Node).then(|| slot_behind(&config.prefix, &subject.checkup.name));
    let marker = probe.ask(&[Cmd::new().arg("GET").arg(marker_of(slot)).clone()])?.pop();
    let marker = marker.unwrap_or(Value::Nil);
    if let (Value::ServerError(_), false) = (&marker, config.guard_data_loss) {
        // In another node's slot, or no right to it: the rights are examined apart.
        return Ok(true);
    }
    let Some(marker) = text(&marker) else {
        if config.guard_data_loss && marker == Value::Nil {
            found.found(&at, kind!("redis-new"), "there is no marker");
        }
        return Ok(!config.guard_data_loss || marker != Value::Nil);
    };
    if !config.guard_data_loss {
        if role != Role::Node {
            found.found(&at, kind!("redis-unguarded"), "there is a marker");
        }
        return Ok(role == Role::Node);
    }
    let mut words = marker.split(' ');
    let run = words.next().unwrap_or("");
    let [over, longest] = [(); 2].map(|()| words.next().and_then(|word| word.parse::<u64>().ok()));
    let longest = Duration::from_millis(longest.unwrap_or(0));
    let is_known = facts.info("run_id") == run || facts.info("run_id").is_empty();
    let now = reading.map_or_else(wall_micros, |reading| reading.now());
    let left = over.unwrap_or(0).saturating_sub(now);
    if !is_known {
        found.found(
            &at,
            kind!("redis-quarantine"),
            "it was started again, and its wait has not begun",
        );
    } else if left > 0 {
        let left = spoken(Duration::from_secs(left / 1_000_000 + 1));
        found.found(&at, kind!("redis-quarantine"), format!("for another {left}"));
    }
    if config.longest_ttl() > longest {
        let [ours, theirs] = [config.longest_ttl(), longest].map(spoken);
        found.found(&at, kind!("redis-max-ttl"), format!("{ours} here, {theirs} there"));
    }
    Ok(is_known && left == 0)
}

/// Looks for keys without a ttl, and for locks that something else has, among the first that are there.
pub(super) fn examine(
    probe: &mut Probe,
    facts: &mut Facts,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<(), Error> {
    let prefix = &subject.config.prefix;
    let mut patterns = vec![b"leasehold:*".to_vec()];
    if !prefix.is_empty() {
        patterns.push([&escaped(prefix), &b"*"[..]].concat());
    }
    let (mut looked, mut stuck, mut foreign) = (0, BTreeSet::new(), BTreeSet::new());
    let mut held_by_others = BTreeSet::new();
    for pattern in patterns {
        let mut cursor = "0".to_owned();
        for _ in 0..KEYS / AT_ONCE {
            let mut scan = words_of(&["SCAN", &cursor, "MATCH"]);
            scan.arg(&pattern).arg("COUNT").arg(AT_ONCE);
            let said = probe.ask(&[scan])?.pop().unwrap_or(Value::Nil);
            facts.note(&said, "+scan");
            let [next, keys] = items(&said) else { break };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for key in items(keys).iter().filter_map(bytes) {
                looked += 1;
                match key.strip_prefix(b"leasehold:") {
                    Some(rest) if rest.starts_with(b"marker") => {}
                    Some(_) => {
                        ours.push(key);
                        theirs.extend(lock_beside(key).filter(|lock| lock.starts_with(prefix)));
                    }
                    None => theirs.push(key),
                }
            }
            let mut held = Vec::new();
            for (keys, endless, is_lock) in
                [(ours, &mut stuck, false), (theirs, &mut foreign, true)]
            {
                let asked = keys.iter().map(|key| Cmd::new().arg("PTTL").arg(*key).clone());
                let spans = probe.ask(&asked.collect::<Vec<_>>())?;
                for (key, span) in keys.into_iter().zip(spans) {
                    match span {
                        Value::Int(-1) => _ = endless.insert(key.escape_ascii().to_string()),
                        Value::Int(0..) if is_lock => held.push(key),
                        _ => {}
                    }
                }
            }
            held_by_others.extend(foreign_of(probe, &held)?);
            cursor = text(next).unwrap_or_default();
            if cursor == "0" || cursor.is_empty() {
                break;
            }
        }
    }
    found.measured(&probe.at, "keys_of_locks", Shown::Count(looked));
    for (kind, keys) in [
        (kind!("redis-stuck"), stuck),
        (kind!("redis-foreign"), foreign),
        (kind!("redis-foreign-holder"), held_by_others),
    ] {
        let some: Vec<_> = keys.iter().take(3).cloned().collect();
        if !some.is_empty() {
            let some = some.join(" ");
            found.found(&probe.at, kind, format_args!("{} of {looked}, as {some}", keys.len()));
        }
    }
    Ok(())
}

/// Those of these locks that something else has. Lock and side key are read in one step by the script
/// of `leasehold ls`: between two reads a lock of ours may be given back, and taken by another.
fn foreign_of(probe: &mut Probe, locks: &[&[u8]]) -> Result<Vec<String>, Error> {
    if locks.is_empty() {
        return Ok(Vec::new());
    }
    // A user who may not do it lacks a right that is examined apart.
    probe.ask_one(&["SCRIPT", "LOAD", SURVEY.source])?;
    let asked = locks.iter().map(|lock| {
        let mut call = words_of(&["EVALSHA", SURVEY.digest(), "3"]);
        with_keys(b"", lock, |[lock, side, queue, _]| {
            for key in [lock, side, queue] {
                call.arg(key.concat());
            }
        });
        call
    });
    let said = probe.ask(&asked.collect::<Vec<_>>())?;
    // An error is of a user without rights to this name, or of a slot that moves.
    let is_foreign = |said| read(said).is_ok_and(|survey| survey.is_foreign());
    let foreign =
        locks.iter().zip(said).filter_map(|(lock, said)| is_foreign(said).then_some(lock));
    Ok(foreign.map(|lock| lock.escape_ascii().to_string()).collect())
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::BulkString(bytes) = value { Some(bytes) } else { None }
}

/// Just these bytes, for a pattern.
fn escaped(prefix: &[u8]) -> Vec<u8> {
    prefix.iter().flat_map(|byte| [b'\\', *byte]).collect()
}
