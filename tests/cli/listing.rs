//! What is locked, and freeing it: in a pipe, and where nobody can be asked.

use std::collections::HashSet;

use crate::stores::fill;
use crate::*;

#[test]
fn what_is_locked_is_listed_a_line_each_and_nothing_that_a_terminal_obeys() {
    let server = Server::start();
    assert_eq!(printed(leasehold(&server.url(), ["ls"])), "");
    let _holders = ["stock:1", "other\x1b[2J"].map(|name| start(run(&server, &[], name, &HOLD)));
    let listed = printed(leasehold(&server.url(), ["ls"]));
    let mut lines: Vec<_> = listed.lines().collect();
    lines.sort_unstable();
    assert!(lines[0].starts_with("other\\u{1b}[2J: held by "), "{listed}");
    assert!(lines[1].starts_with("stock:1: held by ") && lines[1].contains(", fence "), "{listed}");
    assert_eq!(lines.len(), 2);
    let json = printed(leasehold(&server.url(), ["ls", "--json", "stock:*"]));
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&object["name"], &object["held"]), (&"stock:1".into(), &true.into()));
    assert_eq!(object["waiting"], 0);
}

/// What clients have sent last, as far as the log of slow commands has it: all, if all are slow.
fn logged(server: &Server) -> Vec<Vec<String>> {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let log: Vec<Entry> =
        redis::from_redis_value(server.cmd(&["SLOWLOG", "GET", "20000"])).unwrap();
    log.into_iter().map(|(_, _, _, words, ..)| words).collect()
}

/// Counted, so that no machine is too slow for it.
#[test]
fn a_hundred_thousand_locks_are_listed_as_they_come_and_by_pages() {
    let server = Server::start();
    fill(&server, 100_000);
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "20000"]);
    let mut command = leasehold(&server.url(), ["ls", "order:*"]);
    let mut listing = Process::spawn(command.stdout(Stdio::piped()));
    let mut out = BufReader::new(listing.handle().stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains(": held by "), "{line}");
    // A pipe that nobody reads takes some hundred lines, which are no more than twenty pages.
    let asked = server.calls("scan");
    assert!((1..=20).contains(&asked), "{asked}");
    // The first pages are like all others.
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let logged = logged(&server);
    let mut names = HashSet::from([line.split(": ").next().unwrap().to_owned()]);
    names.extend(out.lines().map(|line| line.unwrap().split(": ").next().unwrap().to_owned()));
    assert_eq!(names.len(), 100_000);
    assert_eq!(listing.wait(LIMIT).code(), Some(0));

    // No command of it looks at more than a page, and no script at more than one name.
    let (scans, scripts) = (server.calls("scan"), server.calls("evalsha"));
    assert!(scans >= 300_000 / 512, "{scans} for 300,000 keys");
    assert!(scripts >= 100_000, "{scripts} for 100,000 names");
    assert_eq!(server.calls("keys"), 0);
    let of = |what: &str| logged.iter().filter(|words| words[0] == what).collect::<Vec<_>>();
    let (scans, scripts) = (of("SCAN"), of("EVALSHA"));
    assert!(!scans.is_empty() && !scripts.is_empty(), "{} and {}", scans.len(), scripts.len());
    assert!(scans.iter().all(|words| words.ends_with(&["COUNT".into(), "256".into()])));
    assert!(scripts.iter().all(|words| words[2] == "3" && words.len() == 6), "{scripts:?}");
}

#[test]
fn a_lock_is_broken_by_a_script_and_its_command_ends() {
    let server = Server::start();
    let url = server.url();
    let mut holder = start(run(&server, &["--ttl", "6s"], "n", &HOLD));
    // Nobody is there to be asked.
    assert_eq!(code(leasehold(&url, ["break", "n"])), 64);
    assert!(is_held(&server, "n"));
    assert_eq!(code(leasehold(&url, ["break", "--yes", "--if-fence", "1", "n"])), 1);
    assert!(is_held(&server, "n"));
    let said = printed(leasehold(&url, ["break", "--yes", "n"]));
    assert!(said.starts_with("n: broken, the lease with fence "), "{said}");
    assert_eq!(holder.code(), 75);
    assert_eq!(code(leasehold(&url, ["break", "--yes", "n"])), 1);
    let json = leasehold(&url, ["break", "--yes", "--json", "n"]).output().unwrap().stdout;
    let object: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(object, serde_json::json!({ "name": "n", "outcome": "not_held", "fence": null }));
}

#[test]
fn a_wait_that_ran_out_says_who_has_the_lock_where_no_terminal_is() {
    let server = Server::start();
    let _holder = start(run(&server, &[], "n", &HOLD));
    let said = |options: &[&str]| {
        let output = run(&server, options, "n", &["true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let waited = said(&["--wait", "300ms"]);
    assert!(waited.starts_with("leasehold: n is taken, held by "), "{waited}");
    assert_eq!(waited.lines().count(), 1, "{waited}");
    assert_eq!(said(&["--try"]), "");
}
