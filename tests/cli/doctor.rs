//! What `leasehold doctor` says to people and to programs.

use std::process::Output;

use crate::*;
use kit::Server;

fn said(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

#[test]
fn a_server_that_is_fit_ends_with_0_and_one_that_is_not_with_1() {
    let server = Server::start();
    let (code, text) = said(leasehold(&server.url(), ["doctor"]));
    assert_eq!(code, Some(0));
    for line in ["round trip p99", "note redis-forgets", "fit for locks: 0 warnings, 1 note"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains('\x1b'), "a pipe has no colours: {text}");
    server.config_set("maxmemory-policy", "allkeys-lru");
    let (code, text) = said(leasehold(&server.url(), ["doctor"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("do:   CONFIG SET maxmemory-policy noeviction"), "{text}");
}

/// Of clients it tells no more than how many there are; names and labels may turn the direction of a line.
#[test]
fn what_others_call_themselves_and_their_locks_commands_no_terminal() {
    let (server, name) = (Server::start(), "n\u{202e}m");
    let config = leasehold::Config::from_url(&server.url()).unwrap().label("a\u{202e}b");
    let client = leasehold::Client::with_config(config).unwrap();
    let _lease = client.lock(name).acquire().unwrap();
    let who = || client.lock(name).inspect().unwrap().holder.and_then(|holder| holder.client);
    eventually(LIMIT, || who().is_some());
    for (words, told) in [
        (&["doctor", "--lock", name][..], "another client holds the lock that doctor tries: n"),
        (
            &["doctor", "--json", "--lock", name],
            "another client holds the lock that doctor tries: n",
        ),
        (&["show", name], "label a\\u{202e}b"),
        (&["ls"], "label a\\u{202e}b"),
    ] {
        let (_, text) = said(leasehold(&server.url(), words));
        assert!(!text.contains(['\x1b', '\u{202e}']), "{words:?}: {text:?}");
        assert!(text.replace("\\\\", "\\").contains(told), "{words:?}: {text}");
        assert!(words[0] != "doctor" || !text.contains("label"), "{text}");
    }
}

#[test]
fn programs_read_json() {
    let server = Server::builder().user("ann", "hunter2").start();
    let command = leasehold(&server.url(), ["doctor", "--json", "--read-only", "--ttl", "10s"]);
    let (code, text) = said(command);
    assert_eq!(code, Some(0));
    assert!(!text.contains("hunter2"), "{text}");
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&said["fit"], &said["findings"][0]["id"]), (&true.into(), &"redis-forgets".into()));
    assert_eq!(said["findings"][0]["severity"], "note");
    let measured = said["measured"].as_array().unwrap();
    let lap = measured.iter().find(|it| it["what"] == "round_trip_p50").unwrap();
    assert!(lap["microseconds"].as_f64().unwrap() > 0.0, "{text}");
    assert_eq!(server.calls("evalsha"), 1, "no lock was taken; one call tries the right");
}

#[test]
fn what_cannot_be_reached_ends_with_69() {
    let mut server = Server::start();
    server.kill();
    assert_eq!(code(leasehold(&server.url(), ["doctor"])), 69);
    assert_eq!(code(leasehold("redis://127.0.0.1?colour=red", ["doctor"])), 64);
}

#[test]
fn a_file_is_examined_and_a_read_only_look_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    // A busy disk is not slow by this measure.
    let url = format!("sqlite:{}/locks.db?io_timeout=20s", dir.path().display());
    assert_eq!(code(leasehold(&url, ["doctor", "--read-only"])), 0);
    assert!(!dir.path().join("locks.db").exists());
    assert_eq!(code(leasehold(&url, ["doctor"])), 0);
}
