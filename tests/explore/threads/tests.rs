//! What is explored, and what the exploration finds where something is wrong.

use std::panic::catch_unwind;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use super::*;
use crate::token::Token;

/// Executions of one scenario in an ordinary run, by each scheduler.
const EXECUTIONS: usize = 1000;
/// A flaw is caught in one of so many.
const PATIENCE: usize = 20 * EXECUTIONS;

fn explore(scenario: Scenario) {
    if std::env::var_os("KIT_LONG").is_some() {
        let seed = Token::random().unwrap().seed();
        println!("seed {seed}");
        run_all(seed, 50 * EXECUTIONS, scenario);
    } else {
        run_all(7, EXECUTIONS, scenario);
    }
}

fn run_all(seed: u64, executions: usize, scenario: Scenario) {
    run(PctScheduler::new_from_seed(seed, 3, executions), scenario);
    run(RandomScheduler::new_from_seed(seed, executions), scenario);
}

fn run(scheduler: impl Scheduler + 'static, scenario: Scenario) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000);
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    shuttle::Runner::new(scheduler, config).run(move || play(scenario));
}

/// With the flaw, somebody is left asleep in the scenario.
fn catch(flaw: Flaw, scenario: Scenario) {
    let flawed = Scenario { flaw: Some(flaw), ..scenario };
    let caught = catch_unwind(|| run_all(7, PATIENCE, flawed));
    let caught = caught.expect_err(&format!("{flaw:?} survives"));
    let said = caught.downcast_ref::<String>().map_or("", String::as_str);
    assert!(said.starts_with("deadlock!"), "{flaw:?}: {said}");
}

#[test]
fn every_way_to_get_it_wrong_is_noticed() {
    catch(Flaw::WakesOnlySleepers, THREE);
    // Its time is over.
    catch(Flaw::LeavesInSilence, ONE_LEAVES);
    // It has its turn, or asks.
    catch(Flaw::LeavesAfterNews, SLOW);
    // Its check is due.
    catch(Flaw::LeavesInSilence, PONDERING);
    catch(Flaw::HidesCuts, Scenario { cuts: 2, ..TWO_NAMES });
    catch(Flaw::WakesOnlyParked, FUTURES);
    catch(Flaw::ParksUnheard, FUTURES);
}

#[test]
fn whoever_stays_has_a_turn() {
    explore(THREE);
    explore(TWO_NAMES);
}

#[test]
fn turns_go_from_client_to_client() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Stays)], &[("a", Stays), ("a", Stays)]];
    explore(Scenario { clients, ..CALM });
    explore(Scenario { rounds: 2, ..TWO_NAMES });
}

#[test]
fn whoever_leaves_keeps_nobody_waiting() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Hurries), ("a", Stays), ("a", Stops)]];
    explore(Scenario { clients, ..CALM });
    let clients: &[&[Wish]] =
        &[&[("a", Stays), ("b", Hurries), ("c", Stops)], &[("a", Stays), ("b", Tries)]];
    explore(Scenario { clients, rounds: 2, ..CALM });
}

#[test]
fn while_one_is_busy_elsewhere_another_listens() {
    explore(SLOW);
    explore(PONDERING);
}

#[test]
fn what_a_cut_connection_did_not_tell_is_asked_for() {
    explore(Scenario { cuts: 2, ..TWO_NAMES });
    explore(Scenario { cuts: 1, trouble: true, ..ONE_LEAVES });
}

#[test]
fn closing_ends_every_wait() {
    explore(Scenario { closes: true, ..THREE });
    explore(CLOSED_BY_A_CHECK);
    explore(KEPT);
    explore(Scenario { closes: true, cuts: 1, trouble: true, ..ONE_LEAVES });
}

#[test]
fn whoever_may_not_listen_asks() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Stays)], &[("a", Stays)]];
    explore(Scenario { clients, forbidden: true, ..CALM });
}

#[test]
fn futures_have_turns_among_threads() {
    let clients: &[&[Wish]] = &[&[("a", Awaits), ("a", Awaits), ("a", Stays), ("a", Awaits)]];
    explore(Scenario { clients, ..CALM });
    explore(FUTURES);
    explore(Scenario { rounds: 2, ..FUTURES });
    explore(Scenario { slow: true, ..FUTURES });
}

#[test]
fn futures_are_dropped_at_any_moment() {
    let clients: &[&[Wish]] = &[&[("a", Drops), ("a", Awaits), ("a", Drops), ("a", Stays)]];
    explore(Scenario { clients, ..CALM });
    let clients: &[&[Wish]] =
        &[&[("a", Drops), ("b", Awaits), ("b", Drops)], &[("a", Awaits), ("b", Stays)]];
    explore(Scenario { clients, rounds: 2, ..CALM });
}

#[test]
fn futures_outlast_cuts_and_trouble_and_see_the_end() {
    explore(Scenario { cuts: 2, ..FUTURES });
    explore(Scenario { cuts: 1, trouble: true, ..FUTURES });
    explore(Scenario { forbidden: true, ..FUTURES });
    explore(Scenario { closes: true, ..FUTURES });
    let clients: &[&[Wish]] = &[&[("a", Awaits), ("a", Drops), ("a", Closes), ("b", Drops)]];
    explore(Scenario { clients, ..CALM });
    explore(Scenario { clients, closes: true, cuts: 1, trouble: true, ..CALM });
}
