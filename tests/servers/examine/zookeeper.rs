//! ZooKeeper.

use kit::{Zookeeper, eventually};
use leasehold::{Checkup, ErrorKind, Severity};

use super::{LIMIT, advice, assert_finds, assert_healthy, begun, examine, ids, open};

fn together(servers: &[Zookeeper]) -> String {
    let hosts = servers.iter().map(|it| format!("127.0.0.1:{}", it.port()));
    format!("zookeeper://{}", hosts.collect::<Vec<_>>().join(","))
}

#[test]
fn an_ensemble_has_no_findings_and_servers_that_are_missing_are_found() {
    let mut servers = Zookeeper::ensemble_of(3, &["-Dreadonlymode.enabled=true"]);
    let (url, other) = (together(&servers), Zookeeper::start());
    let found = begun(&url);
    assert_healthy(&found);
    for what in ["version", "mode", "members", "round_trip_p99", "acquire_and_release"] {
        assert!(found.measured.iter().any(|it| it.what == what), "{what}");
    }
    assert_healthy(&examine(&servers[0].url("")));
    begun(&other.url(""));
    assert_finds(&format!("{url},127.0.0.1:{}", other.port()), "zookeeper-differ");
    servers[0].crash();
    // Until the others have a leader, they may not serve.
    let found = || open(&url).examine(&Checkup::default());
    eventually(LIMIT, || found().is_ok_and(|it| ids(&it) == ["zookeeper-server-down"]));
    servers[1].crash();
    let last = servers[2].url("");
    eventually(LIMIT, || servers[2].word("srvr").is_ok_and(|it| it.contains("read-only")));
    assert_eq!(ids(&examine(&last)), ["zookeeper-cut-off"]);
}

#[test]
fn a_single_server_is_a_note_and_so_are_sessions_that_it_cuts_or_draws_out() {
    for (limit, said) in [
        ("maxSessionTimeout=2000", "2 s, and not 5 s"),
        ("minSessionTimeout=9000", "9 s, and not 5 s"),
    ] {
        let server = Zookeeper::start_with(&["-Dzookeeper.forceSync=no"], &[limit]);
        let found = begun(&server.url(""));
        assert!(found.findings.iter().all(|it| it.severity == Severity::Note));
        assert_eq!(ids(&found), ["zookeeper-session", "zookeeper-alone"]);
        assert!(found.findings[0].what.ends_with(said), "{}", found.findings[0].what);
    }
    let (server, other) = (Zookeeper::start(), Zookeeper::start());
    assert_eq!(ids(&begun(&server.url(""))), ["zookeeper-alone"]);
    begun(&other.url(""));
    assert_finds(&together(&[server, other]), "zookeeper-differ");
}

#[test]
fn two_members_are_a_note() {
    let servers = Zookeeper::ensemble_of(2, &[]);
    assert_eq!(ids(&begun(&together(&servers))), ["zookeeper-even"]);
}

#[test]
fn rights_that_are_missing_are_found_and_nothing_is_changed() {
    // Of admin:pw and of app:pw.
    const ADMIN: &str = "digest:admin:HyfYpDg4zqvjWwhkAYRiLwvklpU=:cdrwa";
    const APP: &str = "ZUmrOH+NqIBTBJgKHGgQPRrLd34=";
    let server = Zookeeper::start();
    let said = |lines: &str| server.shell(&format!("addauth digest admin:pw\n{lines}"));
    let changes = || {
        let said = said("stat /leasehold");
        said.lines().find(|line| line.contains("cversion = ")).unwrap().to_owned()
    };
    let url = server.url("").replace("://", "://app:pw@");
    said(&format!("create /leasehold 1 {ADMIN}"));
    assert_eq!(ids(&examine(&url)), ["zookeeper-rights"]);
    for (rights, missing) in [("rd", ", create"), ("cr", ", delete"), ("cd", "")] {
        said(&format!("setAcl /leasehold {ADMIN},digest:app:{APP}:{rights}"));
        let before = changes();
        let found = examine(&url);
        assert_eq!(ids(&found).last(), Some(&"zookeeper-rights"), "{:#?}", found.findings);
        let what = &found.findings.last().unwrap().what;
        assert!(what.ends_with(missing), "{what}");
        // No lock was tried.
        assert!(found.measured.iter().all(|it| it.what != "acquire_and_release"));
        assert_eq!(changes(), before);
        let turn = open(&url).lock("n").try_acquire().and_then(|lease| lease.unwrap().release());
        // Without delete, it shows only where something is to be removed.
        let Err(error) = turn else { continue };
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        let right = missing.strip_prefix(", ").unwrap_or("read");
        assert!(error.detail().contains(&format!("the right to {right} is missing")), "{error}");
    }
    let found = examine(&url);
    let (_, mend) = advice(&found, "zookeeper-rights").rsplit_once(": ").unwrap();
    said(&mend.replace("ACL,", &format!("{ADMIN},")).replace("USER", "app").replace("HASH", APP));
    assert_eq!(ids(&examine(&url)), ["zookeeper-alone"]);
}
