//! How much is explored in an ordinary run, and what the search finds where something is wrong.
//!
//! `KIT_LONG=1` explores much more, from seeds that differ from run to run and are printed.

use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use super::search::{Seen, breadth_first, walks};
use super::setup::{Kind, Setup, Wrong, ms};

/// How a world is explored, up to so many states.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// All of it, or as much as there is room for.
    Breadth(usize),
    Walks(usize),
}

use Way::{Breadth, Walks};

/// What can go wrong without a message that is late or lost: nobody is held up for long then.
const PEOPLE: [Kind; 5] = [Kind::Stop, Kind::Die, Kind::Close, Kind::Cancel, Kind::TimeOut];

fn worlds() -> Vec<(Way, Setup)> {
    let long = ms(10_000);
    vec![
        (Breadth(200_000), Setup::new(&[1, 1])),
        (Breadth(200_000), Setup::new(&[1, 1]).rounds(2)),
        (Breadth(200_000), Setup::new(&[2, 1])),
        (Breadth(100_000), Setup::new(&[1, 1, 1])),
        (Breadth(200_000), Setup::new(&[1, 1]).faults(1, &Kind::ALL)),
        (Walks(150_000), Setup::new(&[1, 1, 1]).rounds(2).faults(4, &Kind::ALL)),
        (Walks(150_000), Setup::new(&[3, 2]).rounds(2).faults(4, &Kind::ALL)),
        (Walks(150_000), Setup::new(&[1, 1, 1, 1]).rounds(2).faults(5, &Kind::ALL)),
        (
            Walks(150_000),
            Setup::new(&[2, 1, 1]).rounds(3).renewing().faults(6, &Kind::ALL).until(long),
        ),
        (
            Walks(150_000),
            Setup::new(&[3, 2, 1]).rounds(3).mixed().renewing().faults(5, &Kind::ALL).until(long),
        ),
        (
            Walks(150_000),
            Setup::new(&[2, 2, 1]).rounds(3).renewing().faults(2, &PEOPLE).until(long),
        ),
        (
            Walks(75_000),
            Setup::new(&[2, 1]).rounds(3).drift(90).renewing().faults(4, &Kind::ALL).until(long),
        ),
        (
            Walks(75_000),
            Setup::new(&[1, 1, 1]).rounds(3).drift(-90).faults(4, &Kind::ALL).until(long),
        ),
        // Nobody sleeps beside a free lock for longer than a window for each that was stopped.
        (
            Walks(150_000),
            Setup::new(&[1, 1, 1, 1, 1]).rounds(2).faults(4, &[Kind::Stop, Kind::Flush]),
        ),
        (
            Walks(150_000),
            Setup::new(&[3, 1])
                .rounds(3)
                .mixed()
                .faults(4, &[Kind::Cancel, Kind::TimeOut])
                .until(long),
        ),
        (
            Walks(150_000),
            Setup::new(&[1, 1, 1]).rounds(3).faults(4, &[Kind::Break, Kind::Foreign]).until(long),
        ),
        (
            Walks(150_000),
            Setup::new(&[1, 1]).rounds(4).renewing().faults(5, &[Kind::Late]).until(long),
        ),
        (
            Walks(300_000),
            Setup::new(&[2, 1])
                .rounds(4)
                .faults(5, &[Kind::Late, Kind::Mute, Kind::Cancel, Kind::TimeOut])
                .until(long),
        ),
        (Breadth(200_000), Setup::new(&[2, 1]).rounds(2).ordered()),
        (Walks(150_000), Setup::new(&[1, 1, 1, 1]).rounds(4).ordered().until(long)),
        (Walks(150_000), Setup::new(&[2, 2, 1]).rounds(3).turns(64).ordered().until(long)),
        (Walks(150_000), Setup::new(&[3, 2, 1]).rounds(4).turns(2).ordered().until(long)),
        (Walks(150_000), Setup::new(&[3, 2]).rounds(4).mixed().turns(1).ordered().until(long)),
        // Threads that come again and again while nobody, or somebody, waits at the server.
        (Walks(150_000), Setup::new(&[2, 1]).rounds(6).turns(8).ordered().until(long)),
        (
            Walks(150_000),
            Setup::new(&[2, 1]).rounds(5).turns(8).renewing().faults(3, &Kind::ALL).until(long),
        ),
        (Walks(150_000), Setup::new(&[4, 1]).rounds(4).mixed().renewing().ordered().until(long)),
    ]
}

#[test]
fn c1_c2_c10_a_million_states_hold_and_everybody_who_waits_is_served() {
    let long = std::env::var_os("KIT_LONG").is_some();
    let (more, seed) = if long { (20, now()) } else { (1, 0) };
    let (left, seen) = (Mutex::new(worlds()), Mutex::new(Seen::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((way, setup)) = pop(&left) {
                    let (start, seeds) = (Instant::now(), seed..seed.saturating_add(1 << 40));
                    let explored = match way {
                        // What is not exhausted takes much room.
                        Breadth(most) => breadth_first(&setup, most * more.min(4)),
                        Walks(most) => walks(&setup, seeds, most * more),
                    };
                    let explored = explored.unwrap_or_else(|found| panic!("{found:?}"));
                    println!("{:?} {way:?}: {explored} in {:?}", setup.threads, start.elapsed());
                    seen.lock().unwrap().add(&explored);
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    println!("all of it: {seen}, seeds from {seed}");
    assert!(seen.states >= 1_000_000, "{seen}");
}

fn pop<T>(list: &Mutex<Vec<T>>) -> Option<T> {
    list.lock().unwrap().pop()
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Nothing is left out of the smallest worlds.
#[test]
fn worlds_without_faults_are_explored_to_their_end() {
    for setup in [Setup::new(&[1, 1]), Setup::new(&[2])] {
        let seen = breadth_first(&setup, 1_000_000).unwrap_or_else(|found| panic!("{found:?}"));
        assert!(seen.exhausted, "{seen}");
    }
}

/// What is wrong on purpose is found, and only that.
fn is_caught(wrong: Wrong, setup: Setup) {
    let found = match walks(&setup.clone().wrong(wrong), 0..u64::MAX, 300_000) {
        Ok(seen) => panic!("{wrong:?} survives: {seen}"),
        Err(found) => found,
    };
    println!("{wrong:?} is caught, after seed {}: {}", found.seed, found.what);
    if let Err(found) = walks(&setup, 0..found.seed + 1, usize::MAX) {
        panic!("without {wrong:?}: {found:?}");
    }
}

#[test]
fn caught_validity_dated_from_receipt() {
    let setup = Setup::new(&[1, 1]).faults(1, &[Kind::Mute]);
    is_caught(Wrong::DatedFromReceipt, setup);
}

#[test]
fn caught_validity_dated_as_if_clocks_did_not_drift_apart() {
    let setup = Setup::new(&[1, 1]).rounds(3).drift(90).faults(2, &[Kind::Mute]).until(ms(10_000));
    is_caught(Wrong::DatedWithoutDrift, setup);
}

#[test]
fn caught_the_full_ttl_at_hand_over() {
    is_caught(Wrong::FullTtl, Setup::new(&[1, 1, 1]).faults(1, &[Kind::Stop, Kind::Die]));
}

#[test]
fn caught_an_undo_without_hand_over() {
    is_caught(Wrong::UndoFreesOnly, Setup::new(&[1, 1, 1]).faults(2, &[Kind::Cancel]));
}

#[test]
fn caught_no_registration_before_the_take() {
    is_caught(Wrong::LateRegistration, Setup::new(&[1, 1]));
}

#[test]
fn caught_a_give_because_of_a_message_that_lay_unread() {
    let setup = Setup::new(&[1, 1, 1]).rounds(2).faults(3, &[Kind::Mute, Kind::LetExpire]);
    is_caught(Wrong::UndoesNotices, setup);
}

#[test]
fn caught_a_give_of_a_lock_that_was_left_taken_before_its_take_was_answered() {
    let setup = Setup::new(&[2, 1]).rounds(2).faults(2, &[Kind::Late, Kind::LetExpire]);
    is_caught(Wrong::ForgetsWhatWasLeft, setup);
}

#[test]
fn caught_a_new_ticket_for_the_rest_of_a_cohort() {
    let wrong = Wrong::NewTicketForTheRest;
    is_caught(wrong, Setup::new(&[3, 1]).rounds(4).turns(1).ordered());
    is_caught(wrong, Setup::new(&[4, 1]).rounds(4).mixed().ordered());
}

#[test]
fn caught_turns_that_pass_on_under_a_token_that_was_refused() {
    let setup = Setup::new(&[4, 1]).turns(4).faults(3, &[Kind::Flush, Kind::Late]);
    is_caught(Wrong::RefusesOneTurn, setup);
}

#[test]
fn caught_a_grant_given_before_the_rest_of_its_cohort_stands() {
    is_caught(Wrong::GivesFirst, Setup::new(&[3, 1]).rounds(4).turns(1).ordered());
}

#[test]
fn caught_turns_of_latecomers_though_somebody_waits_at_the_server() {
    is_caught(
        Wrong::PassesUnasked,
        Setup::new(&[2, 1]).rounds(5).turns(8).ordered().until(ms(10_000)),
    );
}

#[test]
fn caught_turns_of_those_who_come_after_the_look() {
    is_caught(
        Wrong::PassesLater,
        Setup::new(&[2, 1]).rounds(5).turns(8).ordered().until(ms(10_000)),
    );
}

#[test]
fn caught_a_waiter_that_never_looks() {
    let setup = Setup::new(&[1, 1, 1]).faults(1, &[Kind::Stop]);
    is_caught(Wrong::NeverLooks, setup);
}

#[test]
fn caught_a_look_that_is_not_followed_by_a_question() {
    let setup = Setup::new(&[1, 1, 1]).faults(1, &[Kind::Flush]);
    is_caught(Wrong::LooksWithoutAsking, setup);
}
