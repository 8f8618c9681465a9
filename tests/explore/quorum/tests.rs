//! How much is explored in an ordinary run, and what the search finds where something is wrong.
//!
//! `KIT_LONG=1` explores larger worlds as well.

use std::sync::Mutex;
use std::time::Instant;

use super::search::{Seen, breadth_first};
use super::setup::{Flaw, Setup};

/// No hint is larger than a fence that was given out.
const PLAIN: &[u8] = &[0];
const TWICE: &[u8] = &[0, 0];

fn two() -> Setup {
    Setup::new(&[PLAIN, PLAIN])
}

fn three() -> Setup {
    Setup::new(&[PLAIN, PLAIN, PLAIN])
}

/// One client makes a second attempt while messages of its first one are still under way.
fn again() -> Setup {
    Setup::new(&[TWICE, PLAIN])
}

/// Nodes that have not seen the same.
const UNEVEN: [u8; 3] = [0, 1, 2];

/// Each is explored to its end.
fn worlds() -> Vec<Setup> {
    vec![
        two().repeats(1),
        two().last(UNEVEN).repeats(1),
        three(),
        again(),
        Setup::new(&[&[1, 3], &[2]]),
        Setup::new(&[&[1], &[3]]).last(UNEVEN),
        two().exclusive().repeats(2),
        three().exclusive(),
        again().exclusive(),
        Setup::new(&[&[1, 3], &[2]]).exclusive(),
        two().fills(2).repeats(1),
        two().last(UNEVEN).fills(3),
        Setup::new(&[&[1], &[3]]).last(UNEVEN).fills(2),
        two().exclusive().fills(2).jumps(1).repeats(1),
        two().last(UNEVEN).exclusive().fills(3).restarts(3),
    ]
}

/// Each is explored as far as there is room for.
fn larger_worlds() -> Vec<Setup> {
    vec![
        two().last(UNEVEN).repeats(2),
        three().last(UNEVEN),
        three().repeats(1),
        again().repeats(1),
        again().last(UNEVEN),
        Setup::new(&[TWICE, TWICE]),
        Setup::new(&[&[1, 4], &[2, 3]]),
        three().exclusive().repeats(1),
        again().exclusive().repeats(1),
        Setup::new(&[TWICE, TWICE]).exclusive(),
        Setup::new(&[TWICE, PLAIN, PLAIN]).exclusive(),
        three().fills(2),
        again().fills(1),
        Setup::new(&[&[1, 3], &[2]]).fills(1),
        again().exclusive().fills(1),
        again().exclusive().fills(2).jumps(1),
        three().exclusive().fills(2).jumps(1),
        again().exclusive().fills(3).restarts(3),
    ]
}

fn explore(worlds: Vec<Setup>, most: usize) -> Seen {
    let (left, seen) = (Mutex::new(worlds), Mutex::new(Seen::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(setup) = pop(&left) {
                    let start = Instant::now();
                    let explored =
                        breadth_first(&setup, most).unwrap_or_else(|found| panic!("{found:?}"));
                    println!("{setup:?}: {explored}, in {:?}", start.elapsed());
                    assert!(explored.exhausted || most > ROOM, "{setup:?} has become larger");
                    seen.lock().unwrap().add(&explored);
                }
            });
        }
    });
    seen.into_inner().unwrap()
}

fn pop<T>(list: &Mutex<Vec<T>>) -> Option<T> {
    list.lock().unwrap().pop()
}

/// More than any of the ordinary worlds has.
const ROOM: usize = 400_000;

#[test]
fn c2_fences_of_a_quorum_are_in_order_whatever_the_network_and_the_clocks_do() {
    let seen = explore(worlds(), ROOM);
    println!("all of it: {seen}");
    assert!(seen.states >= 400_000, "{seen}");
    let successes = [seen.at_once, seen.raised, seen.later, seen.refused];
    assert!(successes.into_iter().all(|count| count >= 50_000), "{seen}");
    assert!(seen.whole >= 1000, "{seen}");
    assert!(seen.returned >= 1000, "{seen}");
    if std::env::var_os("KIT_LONG").is_some() {
        println!("larger ones: {}", explore(larger_worlds(), 2_000_000));
    }
}

/// What is wrong on purpose is found, and only that.
fn is_caught(flaw: Flaw, setup: Setup) {
    match breadth_first(&setup.clone().wrong(flaw), ROOM) {
        Ok(seen) => panic!("{flaw:?} survives: {seen}"),
        Err(found) => println!("{flaw:?} is caught: {found:?}"),
    }
    if let Err(found) = breadth_first(&setup, ROOM) {
        panic!("without {flaw:?}: {found:?}");
    }
}

#[test]
fn caught_a_majority_of_the_grants_instead_of_all_nodes() {
    is_caught(Flaw::MajorityOfTheGranted, two());
}

#[test]
fn caught_a_raise_without_asking_whose_the_key_is() {
    is_caught(Flaw::RaisesWhoeverHasIt, two());
}

#[test]
fn caught_a_late_grant_that_counts_as_a_confirmation() {
    is_caught(Flaw::CountsLateGrants, two());
}

#[test]
fn caught_one_round_of_plain_increments() {
    is_caught(Flaw::TakesTheLargestGrant, two());
}

#[test]
fn caught_a_node_that_forgot_its_data_and_votes() {
    is_caught(Flaw::Forgets, two());
}

/// The key is the attempt's, by its first request come again, and others had it in between.
#[test]
fn caught_a_raise_to_less_than_the_node_gave_out() {
    is_caught(Flaw::RaisesPastLargerFences, two().repeats(1));
}

#[test]
fn caught_a_late_give_that_frees_the_next_attempt() {
    is_caught(Flaw::GivesLaterAttempts, again().exclusive());
}

#[test]
fn caught_a_key_that_was_stored_and_counts_as_a_grant() {
    is_caught(Flaw::CountsFills, two().fills(1));
}

/// A late one frees a node on which another one holds the lock, for the next client.
#[test]
fn caught_a_key_that_is_stored_over_anothers() {
    is_caught(Flaw::FillsOverOthers, three().exclusive().fills(1));
}

#[test]
fn caught_a_key_that_is_stored_without_its_fence() {
    is_caught(Flaw::FillsWithoutTheFence, two().exclusive().fills(2).restarts(2));
}

#[test]
fn caught_a_fence_that_is_stored_over_a_larger_one() {
    is_caught(Flaw::FillsWithASmallerFence, again().fills(1));
}

/// A competitor had the third node.
#[test]
fn caught_a_call_that_does_not_wait_for_the_node_that_another_had() {
    is_caught(Flaw::ReturnsBare, two().exclusive().jumps(1));
}

#[test]
fn caught_a_call_that_tells_the_node_and_does_not_wait_for_its_answer() {
    is_caught(Flaw::CountsSentFills, two().exclusive().fills(1).jumps(1));
}

/// What happens to a lease that stays on two nodes of three.
#[test]
fn caught_a_clock_that_jumps_where_a_bare_majority_has_the_lock() {
    is_caught(Flaw::NeverFills, two().exclusive().jumps(1));
}
