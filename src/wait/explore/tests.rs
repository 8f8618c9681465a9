//! How much is explored in an ordinary run, and what the search finds where something is wrong.

use super::search::{Found, Seen, breadth_first, walks};
use super::setup::{Kind, Setup, Wrong, ms};
use crate::wait::local::Mutant;

fn show(what: &str, seen: Result<Seen, Box<Found>>, start: std::time::Instant) {
    match seen {
        Ok(seen) => println!("{what}: {seen:?} in {:?}", start.elapsed()),
        Err(found) => panic!("{what}: {found:?}"),
    }
}

#[test]
fn a_two_faults() {
    let start = std::time::Instant::now();
    show("two", breadth_first(&Setup::new(&[1, 1]).faults(1, &Kind::ALL), 400_000), start);
}

fn walk(setup: Setup) {
    let start = std::time::Instant::now();
    let many = std::env::var("MANY").map_or(100_000, |m| m.parse().unwrap());
    show("walk", walks(&setup, 0..100_000_000, many), start);
}

#[test]
fn b_walk_1() {
    walk(Setup::new(&[1, 1, 1]).rounds(2).faults(4, &Kind::ALL));
}
#[test]
fn b_walk_2() {
    walk(Setup::new(&[3, 2]).rounds(2).faults(4, &Kind::ALL));
}
#[test]
fn b_walk_3() {
    walk(Setup::new(&[1, 1, 1, 1]).rounds(2).faults(5, &Kind::ALL));
}
#[test]
fn b_walk_4() {
    walk(Setup::new(&[2, 1, 1]).rounds(3).renewing().faults(6, &Kind::ALL).until(ms(10_000)));
}
#[test]
fn b_walk_5() {
    walk(Setup::new(&[2, 2, 2]).rounds(3).faults(0, &Kind::ALL).until(ms(10_000)));
}
#[test]
fn b_walk_6() {
    walk(Setup::new(&[2, 2, 1]).rounds(3).renewing().faults(2, &[Kind::Stop, Kind::Die, Kind::Cancel, Kind::TimeOut, Kind::Close]).until(ms(10_000)));
}

#[test]
fn b_walk_7() {
    walk(Setup::new(&[2, 2, 1]).rounds(3).ordered().faults(0, &[]).until(ms(10_000)));
}

#[test]
fn b_walk_8() {
    walk(Setup::new(&[3, 2, 1]).mixed().rounds(3).renewing().faults(5, &Kind::ALL).until(ms(10_000)));
}
#[test]
fn b_walk_9() {
    walk(Setup::new(&[1, 1]).rounds(4).renewing().faults(5, &[Kind::Late]).until(ms(10_000)));
}
#[test]
fn b_walk_a() {
    walk(Setup::new(&[2, 1]).rounds(4).faults(5, &[Kind::Late, Kind::Mute, Kind::Cancel, Kind::TimeOut]).until(ms(10_000)));
}

#[test]
fn b_walk_b() {
    walk(Setup::new(&[3, 1]).mixed().rounds(3).faults(4, &[Kind::Cancel, Kind::TimeOut]).until(ms(10_000)));
}
#[test]
fn b_walk_c() {
    walk(Setup::new(&[1, 1, 1]).rounds(3).faults(4, &[Kind::Break, Kind::Foreign]).until(ms(10_000)));
}

macro_rules! mutant {
    ($($name:ident $wrong:expr, $setup:expr;)*) => { $(
        #[test]
        fn $name() {
            let setup = $setup.wrong($wrong);
            let start = std::time::Instant::now();
            match walks(&setup, 0..1_000_000, 300_000) {
                Ok(seen) => panic!("{:?} survives {seen:?}", setup.wrong),
                Err(found) => println!("MUT {:?}: {} in {:?}", setup.wrong, found.what, start.elapsed()),
            }
        }
    )* }
}

mutant! {
    m_late Wrong::Machine(Mutant::LateRegistration), Setup::new(&[1, 1]);
    m_nopoll Wrong::Machine(Mutant::NoPollAfterWindow), Setup::new(&[1, 1, 1]).faults(1, &[Kind::Die, Kind::Stop]);
    m_held Wrong::Machine(Mutant::GivesHeldToken), Setup::new(&[1, 1]).faults(1, &[Kind::Mute]);
    m_receipt Wrong::DatedFromReceipt, Setup::new(&[1, 1]).faults(1, &[Kind::Mute]);
    m_full Wrong::FullTtl, Setup::new(&[1, 1, 1]).faults(1, &[Kind::Stop, Kind::Die]);
    m_undo Wrong::UndoFreesOnly, Setup::new(&[1, 1, 1]).faults(2, &[Kind::Cancel]);
    m_one Wrong::TellsOne, Setup::new(&[1, 1, 1, 1]).faults(2, &[Kind::Stop]);
}
