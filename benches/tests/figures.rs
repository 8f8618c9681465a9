//! Whether figures mean what they say: every measurement, for a moment, and the arithmetic in its
//! own file. Nothing here asks how fast anything was.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "../src/also.rs"]
mod also;
#[path = "../src/bare.rs"]
mod bare;
#[path = "../src/beside.rs"]
mod beside;
#[path = "../src/byhand.rs"]
mod byhand;
#[path = "../src/ceiling.rs"]
mod ceiling;
#[path = "../src/command.rs"]
mod command;
#[path = "../src/contended.rs"]
mod contended;
#[path = "../src/cores.rs"]
mod cores;
#[path = "../src/cycle.rs"]
mod cycle;
#[cfg(feature = "etcd")]
#[path = "../src/etcd.rs"]
mod etcd;
#[path = "../src/groups.rs"]
mod groups;
#[path = "../src/leases.rs"]
mod leases;
#[path = "../src/limit.rs"]
mod limit;
#[path = "../src/measure.rs"]
mod measure;
#[cfg(feature = "mysql")]
#[path = "../src/mysql.rs"]
mod mysql;
#[path = "../src/pass.rs"]
mod pass;
#[path = "../src/passing.rs"]
mod passing;
#[cfg(feature = "postgres")]
#[path = "../src/postgres.rs"]
mod postgres;
#[path = "../src/report.rs"]
mod report;
#[cfg(feature = "sqlite")]
#[path = "../src/sqlite.rs"]
mod sqlite;
#[path = "../src/stores.rs"]
mod stores;
#[path = "../src/table.rs"]
mod table;
#[path = "../src/theirs.rs"]
mod theirs;
#[path = "../src/turns.rs"]
mod turns;
#[path = "../src/waiters.rs"]
mod waiters;
#[cfg(feature = "zookeeper")]
#[path = "../src/zookeeper.rs"]
mod zookeeper;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use groups::Group;
use stores::Store;
use table::Table;

const MOMENT: Duration = Duration::from_millis(500);

/// Whether a figure is there and makes sense, wherever it was measured.
#[track_caller]
fn check(table: &Table, row: &str, makes_sense: impl Fn(f64) -> bool) {
    let places = cores::Cores::choose().unwrap().places().len();
    for place in 0..places {
        let figure = table.figure(row, place);
        assert!(figure.is_some_and(&makes_sense), "{row}:\n{}", table.text());
    }
}

fn check_cycle(table: &Table) {
    for row in ["a take's bytes replayed, µs", "our take, µs", "by hand: raw2, µs", "our cycle, µs"]
    {
        check(table, row, |figure| figure > 0.0);
    }
    // A second try of each would be two more.
    check(table, "commands a server and cycle", |commands| commands < 3.0);
}

#[test]
fn a_cycle_is_two_commands() {
    let echo = "x=sh -c 'while read -r n; do printf \"%${n}s\\n\" | sed \"s/ /2500 /g\"; done'";
    let tables = command::cycles(&[echo.parse().unwrap()], &[], MOMENT).unwrap();
    check_cycle(&tables[0]);
    check(&tables[0], "commands a server and cycle", |commands| (2.0..2.1).contains(&commands));
    check(&tables[0], "  release not waited for", |commands| (2.0..2.1).contains(&commands));
    check(&tables[0], "the cycle of x, µs", |figure| figure == 2.5);
    check(&tables[0], "  over raw2f", |ratio| ratio > 0.0);
    #[cfg(feature = "sqlite")]
    assert!(tables[1].figure("our cycle, µs", 0).unwrap() > 0.0);
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_is_measured_with_and_without_waiting_for_the_disk() {
    let table = postgres::measure(MOMENT * 4).unwrap();
    for row in [
        "our cycle, µs",
        "  over the limit",
        "  the lease dropped, over the limit",
        "hand-over, p50, µs",
    ] {
        for column in 0..2 {
            let figure = table.figure(row, column);
            assert!(figure.is_some_and(|figure| figure > 0.0), "{row}:\n{}", table.text());
        }
    }
}

#[cfg(feature = "mysql")]
#[test]
fn a_mysql_is_measured_beside_what_people_lock_with_there() {
    let table = mysql::measure(MOMENT * 4).unwrap();
    for row in ["our cycle, µs", "  over the limit", "hand-over, p50, µs", "  of GET_LOCK, over it"]
    {
        for column in 0..2 {
            let figure = table.figure(row, column);
            assert!(figure.is_some_and(|figure| figure > 0.0), "{row}:\n{}", table.text());
        }
    }
}

#[test]
fn groups_are_measured_against_as_many_bare_sockets() {
    // A node of a quorum has 100 ms to answer in.
    kit::unless_starved(std::time::Duration::from_millis(40), || {
        let tables = groups::measure(&[Group::Cluster, Group::Quorum3], &[], MOMENT).unwrap();
        tables.iter().for_each(check_cycle);
    });
}

#[test]
fn a_quorum_is_measured_with_one_server_stopped() {
    // A node has 100 ms to answer in.
    kit::unless_starved(std::time::Duration::from_millis(40), || {
        let tables = groups::measure(&[Group::OneDead], &[], MOMENT).unwrap();
        check(&tables[0], "our take with one dead, µs", |figure| figure > 0.0);
    });
}

#[test]
fn hand_overs_are_measured_between_clients_and_between_threads() {
    let place = waiters::Where::Thread;
    let holds = [Duration::from_millis(1)];
    let (waiters, store) = (&[2, 4], Store::Redis);
    let options = contended::Options { waiters, clients: None, holds: &holds, store, place };
    let tables = contended::measure(&options, MOMENT * 4).unwrap();
    for (row, least) in [
        ("hand-over, p50, round trips", 0.0),
        ("  over PING's p99", 0.0),
        ("commands an acquisition", 1.0),
        ("  called inside scripts", 5.0),
        ("p99 of the wait over a round", 0.0),
    ] {
        for column in 0..2 {
            let figure = tables[0].figure(row, column);
            assert!(figure.is_some_and(|figure| figure > least), "{row}:\n{}", tables[0].text());
        }
    }
    assert!(tables[1].figure("hand-over, p50, µs", 0).is_some_and(|figure| figure > 0.0));
}

#[test]
fn fairness_is_measured_on_every_other_store() {
    // A Redis has a table of its own.
    for store in Store::value_variants().iter().filter(|store| **store != Store::Redis) {
        let (holds, place) = ([Duration::from_millis(1)], waiters::Where::Thread);
        let options = contended::Options {
            waiters: &[2],
            clients: None,
            holds: &holds,
            store: *store,
            place,
        };
        let tables = contended::measure(&options, MOMENT * 4).unwrap();
        for (row, least) in [("hand-over, p50, µs", 0.0), ("most turns over fewest", 0.99)] {
            let figure = tables[0].figure(row, 0);
            assert!(figure.is_some_and(|figure| figure > least), "{row}:\n{}", tables[0].text());
        }
    }
}

#[cfg(all(feature = "etcd", feature = "zookeeper"))]
#[test]
fn a_page_is_written_of_whatever_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    for what in
        [&["zookeeper", "--alone"][..], &["etcd", "--alone"], &["leases", "10", "--ttl", "1s"]]
    {
        let asked = ["bench", "--seconds", "1", "--report", page.to_str().unwrap()];
        let cli = command::Cli::parse_from(asked.iter().chain(what));
        let tables = command::run(&cli).unwrap();
        let written = std::fs::read_to_string(&page).unwrap();
        for table in &tables {
            assert!(written.contains(&format!("<h2>{}</h2>", table.title())), "{what:?}");
        }
        assert!(written.contains("class=\"bar c0\""), "{what:?}: {written}");
        if what[1] == "--alone" {
            for row in ["our cycle, µs", "  over the limit", "hand-over, p50, µs"] {
                let figure = tables[0].figure(row, 1);
                assert!(figure.is_some_and(|figure| figure > 0.0), "{}", tables[0].text());
            }
        }
    }
}

#[test]
fn what_runs_beside_is_asked_for_where_it_is_measured() {
    let refused = |words: &[&str]| {
        let cli = command::Cli::try_parse_from(words).unwrap();
        command::run(&cli).err().unwrap().to_string()
    };
    let error = refused(&["bench", "--beside", "redis-py", "leases", "10"]);
    assert!(error.contains("--beside"), "{error}");
    assert!(command::Cli::try_parse_from(["bench", "--beside", "redis-py", "--json"]).is_ok());
}

#[test]
fn no_lease_is_lost_while_many_are_held() {
    kit::unless_starved(Duration::from_millis(300), || {
        let table = leases::measure(300, Duration::from_secs(2), MOMENT).unwrap();
        assert_eq!(table.figure("lost", 0), Some(0.0));
        assert!(table.figure("renewals", 0).is_some_and(|renewals| renewals > 300.0));
    });
}

#[test]
fn handing_over_is_measured_beside_another_that_answers() {
    let x = also::Also::new("x", "sh -c 'while read -r asked; do echo 5000; done'".to_owned());
    let table = pass::measure(&[x], MOMENT).unwrap();
    assert_eq!(table.figure("x, µs", 0), Some(5.0));
    for row in ["PING, µs", "Leasehold, µs"] {
        assert!(table.figure(row, 1).is_some_and(|figure| figure > 0.0), "{}", table.text());
    }
}

#[test]
fn one_server_serves_so_many_locks_a_second() {
    // What it starts otherwise is this program, which is no bench here.
    let echo = "sh -c 'while read -r n; do printf \"%${n}s\\n\" | sed \"s/ /2500 /g\"; done'";
    let table = ceiling::measure(also::Also::new("x", echo.to_owned()), 2, MOMENT * 4).unwrap();
    for row in ["locks a second: x", "locks a second: raw2f", "ours over raw2f"] {
        assert!(table.figure(row, 0).is_some_and(|figure| figure > 0.0), "{}", table.text());
    }
}

#[test]
fn a_program_of_ours_tells_what_each_of_its_cycles_took() {
    let server = kit::Server::start();
    let mut told = Vec::new();
    ceiling::serve(&server.url(), "bench", "2\n3\n".as_bytes(), &mut told).unwrap();
    let told = String::from_utf8(told).unwrap();
    let counts: Vec<_> = told.lines().map(|line| line.split_whitespace().count()).collect();
    assert_eq!(counts, [2, 3], "{told}");
}
