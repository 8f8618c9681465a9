//! `leasehold elect`: which of the nodes runs the command, and what ends it.

use nix::sys::signal::Signal;

use crate::stores::{Store, on_each_shared_store};
use crate::*;
use kit::{Server, eventually};

on_each_shared_store!(c1_c2_one_node_leads_and_the_next_one_when_it_has_ended,);

/// `leasehold elect OPTIONS n -- sh -c SCRIPT`
fn elect(url: &str, options: &[&str], script: &str) -> Command {
    leasehold(url, [&["elect"], options, &["n", "--", "sh", "-c", script]].concat())
}

/// Says its fence, and ends with its input.
const LEAD: &str = "echo $LEASEHOLD_NAME $LEASEHOLD_FENCE; read _; exit 7";

fn fence(node: &Started) -> u64 {
    let line = node.lines.recv_timeout(LIMIT).expect("it leads");
    line.strip_prefix("n ").and_then(|fence| fence.parse().ok()).expect("a fence")
}

fn c1_c2_one_node_leads_and_the_next_one_when_it_has_ended(store: &Store) {
    let url = patient(store);
    let mut first = Started::new(elect(&url, &[], LEAD));
    let fences = fence(&first);
    let mut second = Started::new(elect(&url, &[], LEAD));
    // It says who it is in the background.
    eventually(LIMIT, || printed(leasehold(&url, ["show", "n"])).contains("(shell sh, pid "));
    assert!(second.lines.recv_timeout(ms(200)).is_err(), "two lead");
    first.end_input();
    assert_eq!(first.code(), 7);
    assert!(fence(&second) > fences);
    second.process.signal(Signal::SIGTERM);
    assert_eq!(second.code(), 143);
    let shown = printed(leasehold(&url, ["show", "n"]));
    assert!(shown.contains("free"), "{shown}");
}

#[test]
fn c9_a_lost_lease_kills_the_command_and_the_node_stands_again() {
    let server = Server::start();
    let script = format!("trap '' TERM; {LEAD}");
    let mut node = Started::new(elect(&server.url(), &["--ttl", "5s"], &script));
    let first = fence(&node);
    server.cmd(&["DEL", "n"]);
    assert!(fence(&node) > first);
    node.end_input();
    assert_eq!(node.code(), 7);
}

#[test]
fn a_node_stands_again_when_its_command_has_ended_if_it_is_told_to() {
    let server = Server::start();
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_FENCE; exit 3";
    let mut node = Started::new(elect(&server.url(), &["--stand-again"], script));
    let fences = [(); 3].map(|()| fence(&node));
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    node.process.signal(Signal::SIGTERM);
    let code = node.code();
    assert!([143, 3].contains(&code), "{code}");
}

#[test]
fn a_signal_ends_a_node_that_stands_by_and_one_that_leads() {
    let server = Server::start();
    let mut leader = Started::new(elect(&server.url(), &["--stand-again"], LEAD));
    fence(&leader);
    let mut standby = Started::new(elect(&server.url(), &[], LEAD));
    until_it_asks(&server);
    standby.process.signal(Signal::SIGTERM);
    assert_eq!(standby.code(), 143);
    leader.process.signal(Signal::SIGTERM);
    leader.is_gone();
    assert_eq!(leader.code(), 143);
    assert!(!is_held(&server, "n"));
}

#[test]
fn a_node_waits_for_a_store_that_is_away() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let mut node = Started::new(elect(&url, &[], LEAD));
    assert!(node.lines.recv_timeout(ms(300)).is_err());
    server.start_again();
    fence(&node);
    node.end_input();
    assert_eq!(node.code(), 7);
    eventually(LIMIT, || !is_held(&server, "n"));
}

#[test]
fn what_can_never_lead_is_refused() {
    let server = Server::start();
    for words in [
        &["elect", "n"][..],
        &["elect", "", "--", "true"],
        &["elect", "--ttl", "50ms", "n", "--", "true"],
        &["elect", "--wait", "1s", "n", "--", "true"],
        &["elect", "--grace", "soon", "n", "--", "true"],
    ] {
        assert_eq!(code(leasehold(&server.url(), words)), 64, "{words:?}");
    }
    let command = |word: &str| code(leasehold(&server.url(), ["elect", "n", "--", word]));
    assert_eq!((command("./none"), command("/etc/passwd")), (127, 126));
    assert!(!is_held(&server, "n"), "a command that could not be started holds nothing");
    let wrong = format!("redis://:sw0rdfish@127.0.0.1:{}", server.port());
    server.cmd(&["CONFIG", "SET", "requirepass", "other"]);
    assert_eq!(code(leasehold(&wrong, ["elect", "n", "--", "true"])), 69);
}
