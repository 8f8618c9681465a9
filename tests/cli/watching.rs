//! `leasehold watch`: what becomes of a lock, told as it happens.

use std::io::Read;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::stores::{Store, on_each_shared_deployment, secs};
use crate::terminal::{INTERRUPT, Shell};
use crate::*;
use kit::{Mode, Proxy};

on_each_shared_deployment! {
    taking_waiting_and_giving_are_told_in_their_order,
    who_has_broken_it_is_told,
}

/// Events as they come.
struct Events(Started);

impl Events {
    fn of(url: &str, name: &str) -> Events {
        Events(Started::new(leasehold(url, ["watch", "--json", "--every", "50ms", name])))
    }

    #[track_caller]
    fn next(&self) -> Value {
        serde_json::from_str(&self.0.lines.recv_timeout(LIMIT).unwrap()).unwrap()
    }

    /// The next one of these events; others may come before it.
    #[track_caller]
    fn until(&self, wanted: &[&str]) -> Value {
        loop {
            let event = self.next();
            if wanted.iter().any(|word| event["event"] == *word) {
                return event;
            }
        }
    }
}

fn taking_waiting_and_giving_are_told_in_their_order(store: &Store) {
    let events = Events::of(&patient(store), "n");
    let first = events.next();
    assert_eq!((&first["event"], &first["name"]), (&"free".into(), &"n".into()));
    let (one, other) = (store.client(), store.client());
    let lease = one.lock("n").ttl(secs(30)).acquire().unwrap();
    let taken = events.next();
    assert_eq!(taken["event"], "taken");
    assert_eq!(taken["fence"], lease.fence());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock("n").wait(LIMIT).acquire().unwrap());
        assert_eq!(events.until(&["waits"])["waiting"], 1);
        lease.release().unwrap();
        let turn = events.until(&["taken", "handed_over"]);
        let lease = waiting.join().unwrap();
        assert_eq!(turn["fence"], lease.fence());
        lease.release().unwrap();
    });
    assert_eq!(events.next()["event"], "given_back");
}

fn who_has_broken_it_is_told(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    let events = Events::of(&patient(store), "n");
    let first = events.next();
    assert_eq!((&first["event"], &first["fence"]), (&"held".into(), &lease.fence().into()));
    client.lock("n").break_held(None, "root@web-3").unwrap();
    let broken = events.next();
    assert_eq!((&broken["event"], &broken["by"]), (&"broken".into(), &"root@web-3".into()));
    assert_eq!(broken["fence"], lease.fence());
    // The next turn is not told as broken because of that.
    let lease = client.lock("n").acquire().unwrap();
    assert_eq!(events.next()["event"], "taken");
    lease.release().unwrap();
    assert_eq!(events.next()["event"], "given_back");
}

#[test]
fn a_ttl_that_runs_out_is_told_as_that() {
    let server = Server::start();
    let events = Events::of(&server.url(), "n");
    events.next();
    let client = leasehold::Client::open(&server.url()).unwrap();
    client.lock("n").ttl(ms(400)).renew(false).acquire().unwrap().let_expire().unwrap();
    assert_eq!(events.next()["event"], "taken");
    assert_eq!(events.next()["event"], "expired");
}

#[test]
fn it_ends_with_its_reader_though_nothing_happens() {
    let server = Server::start();
    let mut command = leasehold(&server.url(), ["watch", "--every", "1h", "n"]);
    let mut watching = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut out = BufReader::new(watching.handle().stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.ends_with(" n: free\n") && !line.contains('\x1b'), "{line:?}");
    drop(out);
    assert_eq!(watching.wait(LIMIT).code(), Some(0));
    let mut said = String::new();
    watching.handle().stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn a_signal_ends_it_at_a_terminal_and_without_one() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold watch n");
    shell.sees(" n: free");
    shell.types(INTERRUPT);
    assert_eq!(shell.code(), 130);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut watching = Started::new(leasehold(&server.url(), ["watch", "n"]));
        watching.lines.recv_timeout(LIMIT).unwrap();
        watching.process.signal(signal);
        let ended = std::os::unix::process::ExitStatusExt::signal(&watching.process.wait(LIMIT));
        assert_eq!(ended, Some(signal as i32));
    }
}

#[test]
fn a_signal_ends_a_look_that_hangs() {
    let server = Server::start();
    for (words, signal) in [
        (&["watch", "n"][..], Signal::SIGINT),
        (&["watch", "n"], Signal::SIGTERM),
        (&["top", "--every", "100ms"], Signal::SIGINT),
    ] {
        let mut proxy = Proxy::start(server.port());
        let url = format!("{}?io_timeout=60s", proxy.url());
        let mut watching = Started::new(leasehold(&url, words));
        watching.lines.recv_timeout(LIMIT).unwrap();
        proxy.set(Mode::HoldRequests);
        eventually(LIMIT, || proxy.held() > 0);
        watching.process.signal(signal);
        let ended = std::os::unix::process::ExitStatusExt::signal(&watching.process.wait(LIMIT));
        assert_eq!(ended, Some(signal as i32), "{words:?}");
    }
}

#[test]
fn an_outage_is_told_once_and_what_came_of_it() {
    let server = Server::start();
    let events = Events::of(&format!("{}?io_timeout=300ms", server.url()), "n");
    events.next();
    server.stop();
    let unseen = events.next();
    assert_eq!(unseen["event"], "unseen");
    assert!(unseen["error"].as_str().unwrap().contains("'n'"), "{unseen}");
    server.cont();
    let client = leasehold::Client::open(&server.url()).unwrap();
    let lease = client.lock("n").acquire().unwrap();
    let taken = events.until(&["taken"]);
    assert_eq!(taken["fence"], lease.fence());
}

#[test]
fn a_name_that_would_command_a_terminal_commands_none() {
    let server = Server::start();
    let evil = "n\x1b[2J\u{202e}";
    let mut watching = Started::new(leasehold(&server.url(), ["watch", evil]));
    let line = watching.lines.recv_timeout(LIMIT).unwrap();
    assert!(line.ends_with(" n\\u{1b}[2J\\u{202e}: free"), "{line}");
    watching.process.kill();
}

#[test]
fn what_can_never_be_watched_is_refused() {
    let mut server = Server::start();
    for words in [&["watch"][..], &["watch", "--every", "1ms", "n"], &["watch", ""]] {
        assert_eq!(code(leasehold(&server.url(), words)), 64, "{words:?}");
    }
    server.kill();
    assert_eq!(code(leasehold(&server.url(), ["watch", "n"])), 69);
}

#[test]
fn a_look_at_a_lock_that_is_free_is_one_command() {
    let server = Server::start();
    let events = Events::of(&server.url(), "n");
    events.next();
    let mut watch = server.watch();
    let looks = server.calls("evalsha");
    eventually(LIMIT, || server.calls("evalsha") >= looks + 5);
    drop(events);
    let commands = watch.client_commands();
    let is_other = |words: &&String| !words.starts_with("EVALSHA ") && !words.starts_with("INFO");
    assert_eq!(commands.iter().filter(is_other).collect::<Vec<_>>(), Vec::<&String>::new());
}
