use std::io::Write;
use std::time::Duration;

use super::*;
use crate::store::redis::wire::{Socket, Stream};
use crate::store::{Identity, Place, ServerId};

/// The other end is closed: nothing here is sent or read.
fn wire() -> Wire {
    pair().0
}

fn pair() -> (Wire, socket2::Socket) {
    let (ours, theirs) =
        socket2::Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    let socket = Socket::new(ours, Deadline::at(Moment::NEVER));
    (Wire::new(Stream::Plain(socket), ServerId::default()), theirs)
}

fn debt(name: &str, sent: Moment) -> Debt {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let (name, ttl) = (Arc::from(name.as_bytes()), Duration::from_secs(1));
    let identity = Identity { name, token, fence: 1, ttl };
    Debt { due: Due::Give(Owed { identity, until: sent }), sent, by: Deadline::at(Moment::NEVER) }
}

fn slot(debts: &[&str]) -> Slot {
    let mut slot = Slot { wire: Some(wire()) };
    owe(&mut slot, debts);
    slot
}

fn owe(slot: &mut Slot, debts: &[&str]) {
    let debts = debts.iter().map(|name| debt(name, Moment::now()));
    slot.wire.as_mut().unwrap().account.debts.extend(debts);
}

fn owes(slot: &Slot) -> Vec<String> {
    let debts = slot.wire.iter().flat_map(|wire| &wire.account.debts);
    let name = |debt: &Debt| String::from_utf8(debt.due.name().to_vec()).unwrap();
    debts.map(name).collect()
}

fn fetch(owing: &Owing, slot: &mut Slot, name: &str, lane: Lane) -> Result<Fetched, Error> {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let (name, ttl, place) = (name.as_bytes(), Duration::from_secs(1), Place::Try);
    let take = Request::Take { name, token, ttl, place, block: 1 };
    owing.fetch(slot, About::Requests(&[take]), lane, Deadline::at(Moment::ZERO))
}

#[test]
fn a_take_comes_behind_the_give_of_its_name_and_any_wire_will_do_for_another() {
    let owing = Owing::default();
    owing.lay_down(&mut slot(&["a", "b"]));
    let (wire_of_c, other_end) = pair();
    let mut slot_of_c = Slot { wire: Some(wire_of_c) };
    owe(&mut slot_of_c, &["c"]);
    owing.lay_down(&mut slot_of_c);
    let mut mine = Slot { wire: Some(wire()) };
    assert_eq!(fetch(&owing, &mut mine, "d", Lane::Caller).unwrap(), Fetched::Nothing);
    assert_eq!(owes(&mine), [""; 0]);
    assert_eq!(fetch(&owing, &mut mine, "b", Lane::Caller).unwrap(), Fetched::Nothing);
    assert_eq!(owes(&mine), ["a", "b"]);
    // What it had before lies there, and is what an empty slot gets first.
    let mut empty = Slot::default();
    fetch(&owing, &mut empty, "d", Lane::Keeper).unwrap();
    assert!(empty.wire.is_some() && owes(&empty).is_empty());
    let mut empty = Slot::default();
    fetch(&owing, &mut empty, "d", Lane::Keeper).unwrap();
    assert!(empty.wire.is_none(), "the keeper waits for nobody before it has renewed");
    fetch(&owing, &mut empty, "d", Lane::Caller).unwrap();
    assert_eq!(owes(&empty), ["c"]);
    owing.lay_down(&mut empty);
    (&other_end).write_all(b":1").unwrap();
    fetch(&owing, &mut empty, "d", Lane::Keeper).unwrap();
    assert_eq!(owes(&empty), ["c"], "else it would make another one for each round");
}

#[test]
fn a_name_that_is_being_read_elsewhere_is_waited_for() {
    let owing = Owing::default();
    owing.lay_down(&mut slot(&["a", "b"]));
    let (mut one, mut two) = (Slot::default(), Slot::default());
    fetch(&owing, &mut one, "a", Lane::Caller).unwrap();
    let late = fetch(&owing, &mut two, "b", Lane::Caller).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NoAnswer);
    assert!(owing.since().is_some());
    let wire = one.wire.as_mut().unwrap();
    wire.account.debts.clear();
    owing.settled(&wire.account, Vec::new());
    assert_eq!(fetch(&owing, &mut two, "b", Lane::Caller).unwrap(), Fetched::Nothing);
    assert_eq!((owing.since(), owing.count.load(Ordering::Acquire)), (None, 0));
}

#[test]
fn where_two_wires_owe_for_a_name_one_is_read_first() {
    let owing = Owing::default();
    owing.lay_down(&mut slot(&["a"]));
    owing.lay_down(&mut slot(&["a"]));
    let mut mine = Slot::default();
    assert_eq!(fetch(&owing, &mut mine, "a", Lane::Caller).unwrap(), Fetched::ReadFirst);
    let wire = mine.wire.as_mut().unwrap();
    wire.account.debts.clear();
    owing.settled(&wire.account, Vec::new());
    assert_eq!(fetch(&owing, &mut mine, "a", Lane::Caller).unwrap(), Fetched::Nothing);
    assert_eq!(owes(&mine), ["a"]);
}

#[test]
fn what_a_lost_wire_owes_is_unknown_and_nobody_waits_for_it() {
    let owing = Owing::default();
    owing.lay_down(&mut slot(&["a", "b"]));
    let mut mine = Slot::default();
    fetch(&owing, &mut mine, "a", Lane::Caller).unwrap();
    let error = Error::bare(ErrorKind::Refused);
    owing.abandon(mine.wire.take().unwrap(), &error);
    assert_eq!(owing.since(), Some(Moment::ZERO), "there is something to tell");
    let ended = owing.take_ended();
    assert!(ended.iter().all(|(_, outcome)| outcome.as_ref().unwrap_err().sent.is_some()));
    assert_eq!((ended.len(), owing.since()), (2, None));
    fetch(&owing, &mut mine, "b", Lane::Caller).unwrap();
    assert!(mine.wire.is_none());
}

#[test]
fn each_round_comes_to_a_wire_that_is_due_once() {
    let owing = Owing::default();
    owing.lay_down(&mut slot(&["a"]));
    let (mut keeper, now) = (Slot::default(), Moment::now());
    let before = now.minus(Duration::from_secs(1));
    assert!(!owing.fetch_due(&mut keeper, before, now), "it was sent after that");
    assert!(owing.fetch_due(&mut keeper, now, now));
    owing.lay_down(&mut keeper);
    assert!(!owing.fetch_due(&mut keeper, now, now));
    assert!(owing.fetch_due(&mut keeper, now, now.plus(Duration::from_nanos(1))));
}
