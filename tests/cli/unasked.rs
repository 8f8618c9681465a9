//! What is said without being asked for: which store it is, and what keeps a wait from its end.

#[cfg(feature = "sqlite")]
use std::io::Write;

use crate::*;
use kit::{SentinelGroup, Stopwatch};

/// What it says on standard error, and its code.
fn said(mut command: Command) -> (String, Option<i32>) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (String::from_utf8(stderr).unwrap(), status.code())
}

#[test]
#[cfg(feature = "sqlite")]
fn without_a_url_the_store_is_a_file_of_the_user_and_that_is_said() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("leasehold/locks.db");
    let embedded = |words: &[&str]| {
        let mut command = nowhere(words);
        command.env("XDG_STATE_HOME", state.path());
        command
    };
    assert_eq!(printed(embedded(&["show", "--local", "n"])), "n: free\n");
    assert!(!file.parent().unwrap().exists());
    let mut holder = start(embedded(&[&["run", "--local", "n", "--"][..], &HOLD].concat()));
    assert!(file.exists());
    let notice = format!(
        "leasehold: config why=\"no LEASEHOLD_URL: the locks are in {}, for this user on this machine only; \
         LEASEHOLD_URL=sqlite: says that this is meant\"\n",
        file.display()
    );
    let mut another = embedded(&["run", "-n", "n", "--", "true"]);
    another.env("RUST_LOG", "error");
    assert_eq!(said(another), (notice.clone(), Some(1)));
    assert!(printed(embedded(&["show", "n"])).starts_with("n: held by "));
    holder.process.handle().stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(holder.code(), 7);
    assert_eq!(said(embedded(&["show", "n"])), (notice, Some(0)));

    let mut meant = embedded(&["show", "n"]);
    meant.env("LEASEHOLD_URL", "sqlite:");
    for meant in [meant, embedded(&["show", "--local", "n"])] {
        assert_eq!(said(meant), (String::new(), Some(0)));
    }
}

#[test]
fn a_url_that_is_missing_or_misspelt_is_refused_before_anything_runs() {
    let server = Server::start();
    let run = ["run", "n", "--", "echo", "ran"];
    for (name, value, expected) in [
        ("LEASEHOLD_URL", "", "LEASEHOLD_URL is empty"),
        ("LEASEHOLD_URI", &server.url(), "did you mean LEASEHOLD_URL?"),
        ("LEASEHOLD_REQUIRE_URL", "1", "LEASEHOLD_REQUIRE_URL asks for a URL"),
        ("LEASEHOLD_CONF", "/no/such/file", "/no/such/file: "),
    ] {
        let mut command = nowhere(run);
        command.env(name, value);
        let Output { status, stdout, stderr } = command.output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), &*stdout), (Some(64), &b""[..]), "{name}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_fleet_has_its_url_in_a_file() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leasehold.conf");
    std::fs::write(&file, format!("# all nodes\nurl = {}\nrequire_url = yes\n", server.url()))
        .unwrap();
    let command = |words: &[&str]| {
        let mut command = nowhere(words);
        command.env("LEASEHOLD_CONF", &file);
        command
    };
    let mut holder = start(command(&[&["run", "n", "--"][..], &HOLD].concat()));
    assert!(is_held(&server, "n"));
    holder.end_input();
    assert_eq!(holder.code(), 7);
    assert_eq!(said(command(&["show", "n"])), (String::new(), Some(0)));
}

/// What a wait says that the store keeps from getting on, to a file as cron has it.
#[track_caller]
fn says_what_is_wrong(mut command: Command, wrong: impl FnOnce(), expected: &str) {
    let watch = Stopwatch::start();
    let mut waiting = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(waiting.handle().stderr.take().unwrap()).lines();
    wrong();
    let line = lines.next().unwrap().unwrap();
    watch.assert_at_least(ms(5000));
    assert!(line.starts_with("leasehold: wait-stuck lock=n waited_ms="), "{line}");
    assert!(line.contains(" error=\"") && line.contains(expected), "{line}");
    assert!(waiting.try_wait().is_none(), "it goes on waiting");
}

fn wait(url: &str) -> Command {
    leasehold(url, ["run", "n", "--", "true"])
}

#[test]
fn a_wait_for_replicas_that_are_not_there_says_so() {
    let server = Server::start();
    let url = format!("{}?replicas=1", server.url());
    says_what_is_wrong(wait(&url), || (), "too few replicas acknowledged the grant");
}

#[test]
fn a_wait_for_a_store_that_has_gone_says_so() {
    let mut server = Server::start();
    let _holder = start(sh(&server, &[], "n", "echo ready; exec sleep 100"));
    let waiting = wait(&server.url());
    let kill = || {
        until_it_asks(&server);
        server.kill();
    };
    says_what_is_wrong(waiting, kill, "the store cannot be reached");
}

/// A command that runs under a lock, and what `leasehold -v` says meanwhile.
fn verbose(url: &str) -> (Started, impl FnMut(&str) + use<>) {
    let hold = ["run", "-v", "--ttl", "15s", "n", "--", "sh", "-c", "echo ready; exec sleep 100"];
    let mut command = leasehold(url, hold);
    command.stderr(Stdio::piped());
    let mut running = start(command);
    let mut lines = BufReader::new(running.process.handle().stderr.take().unwrap()).lines();
    let says = move |part: &str| assert!(lines.any(|it| it.unwrap().contains(part)), "{part}");
    (running, says)
}

#[test]
fn with_verbose_it_tells_when_the_store_is_back() {
    let server = Server::start();
    let (_running, mut says) = verbose(&server.url());
    server.stop();
    says("leasehold: renewals-failed count=1 of=1 lock=n error=");
    server.cont();
    says("leasehold: INFO: renewals-go-on");
}

#[test]
fn with_verbose_it_tells_of_another_master() {
    let group = SentinelGroup::start();
    group.wait_until_ready();
    let (_running, mut says) = verbose(&group.url());
    group.fail_over();
    says("leasehold: INFO: master-changed group=mymaster address=127.0.0.1:");
}
