//! `leasehold top`: the busiest locks, on a screen and as lines.

use std::os::fd::AsFd;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::stores::{Store, fill, on_each_shared_deployment, secs};
use crate::terminal::{INTERRUPT, STOP, Shell};
use crate::*;
use kit::{End, Mode, Proxy};

on_each_shared_deployment! {
    a_page_and_json_tell_who_has_what,
    turns_are_counted_while_it_looks,
}

const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

fn a_page_and_json_tell_who_has_what(store: &Store) {
    let client = store.client();
    let lease = client.lock("stock:1").ttl(secs(30)).acquire().unwrap();
    let _other = client.lock("other\x1b[2J\u{202e}").ttl(secs(30)).acquire().unwrap();
    let page = printed(leasehold(&patient(store), ["top", "--looks", "1"]));
    let lines: Vec<_> = page.lines().collect();
    assert!(lines[0].contains(" 2 held, 0 waiting; the store answers in "), "{page}");
    let is_listed = |part: &str| lines[2..].iter().any(|line| line.contains(part));
    assert!(is_listed(" stock:1 ") && is_listed(&lease.fence().to_string()), "{page}");
    assert!(is_listed(" other\\u{1b}[2J\\u{202e} ") && !page.contains(['\x1b', '\u{202e}']));
    let said =
        printed(leasehold(&patient(store), ["top", "--looks=2", "--every=20ms", "--json", "s*"]));
    let looks: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    let look = &looks[1];
    assert_eq!(
        (&look["held"], &look["is_part"], &look["error"]),
        (&1.into(), &false.into(), &Value::Null)
    );
    assert_eq!(look["locks"][0]["name"], "stock:1");
    assert_eq!(look["locks"][0]["fence"], lease.fence());
    assert_eq!(look["locks"][0]["turns_per_second"], 0.0);
}

fn turns_are_counted_while_it_looks(store: &Store) {
    let client = store.client();
    let words = ["top", "--json", "--every", "50ms"];
    let looking = Started::new(leasehold(&patient(store), words));
    let mut lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    let fence_is = |fence: u64| {
        loop {
            let look = looking.lines.recv_timeout(LIMIT).unwrap();
            let look: Value = serde_json::from_str(&look).unwrap();
            if look["locks"][0]["fence"] == fence {
                return look["locks"][0]["turns_per_second"].as_f64().unwrap();
            }
        }
    };
    fence_is(lease.fence());
    for _ in 0..3 {
        lease.release().unwrap();
        lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
        assert!(fence_is(lease.fence()) > 0.0);
    }
}

#[test]
fn it_ends_with_its_reader_though_the_next_look_is_far() {
    let server = Server::start();
    let mut command = leasehold(&server.url(), ["top", "--every", "1h"]);
    let mut looking = Process::spawn(command.stdout(Stdio::piped()));
    let mut out = BufReader::new(looking.handle().stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    assert_eq!(looking.wait(LIMIT).code(), Some(0));
}

fn shown(server: &Server, line: &str) -> Shell {
    shown_of(&server.url(), line)
}

/// A shell in which it has the screen.
pub(crate) fn shown_of(url: &str, line: &str) -> Shell {
    let mut shell = Shell::start_with(url);
    shell.line(line);
    shell.sees("\x1b[?1049h\x1b[?25l");
    shell.sees("by turns; h for help");
    shell
}

/// It has ended, and left the terminal as it was.
#[track_caller]
pub(crate) fn ended(shell: &mut Shell, expected: i32) {
    shell.sees(LEAVE);
    shell.has_ended(expected);
}

#[test]
fn keys_sort_choose_names_help_and_quit() {
    let server = Server::start();
    let client = leasehold::Client::open(&server.url()).unwrap();
    let _leases = ["stock:1", "stock:2", "else"].map(|name| client.lock(name).acquire().unwrap());
    let mut shell = shown(&server, "leasehold top");
    shell.sees(">   0.");
    for order in ["waiting", "since", "ttl", "name"] {
        shell.types("s");
        shell.sees(&format!("by {order}; "));
    }
    shell.types("/stock:*");
    shell.sees("names: stock:*_");
    shell.types("\r");
    shell.sees("2 held, ");
    shell.sees("names stock:*, by name");
    shell.types("h");
    shell.sees("breaks the lock of the selected line");
    shell.types("h");
    shell.sees("stock:2");
    shell.types("q");
    ended(&mut shell, 0);
}

#[test]
fn a_lock_is_broken_after_a_yes_and_not_after_a_no() {
    let server = Server::start();
    let mut holder = start(run(&server, &["--ttl", "6s"], "n", &HOLD));
    let mut shell = shown(&server, "leasehold top");
    shell.types("b");
    shell.sees("Break n, held by ");
    shell.types("n");
    shell.sees("not broken");
    assert!(is_held(&server, "n"));
    // What is typed before the question is seen does not answer it.
    shell.types("by");
    shell.sees("Break n, held by ");
    shell.types("n");
    shell.sees("not broken");
    assert!(is_held(&server, "n"));
    shell.types("b");
    shell.sees("Break n, held by ");
    shell.types("y");
    shell.sees("n: broken, the lease ");
    assert_eq!(holder.code(), 75);
    shell.types("q");
    ended(&mut shell, 0);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let server = Server::start();
    let mut shell = shown(&server, "leasehold top");
    shell.types(INTERRUPT);
    ended(&mut shell, 130);
    shell.line("leasehold top & sleep 0.2; fg");
    shell.sees("by turns; h for help");
    shell.types(STOP);
    shell.sees(LEAVE);
    shell.sees("Stopped");
    shell.line("fg");
    shell.sees("by turns; h for help");
    shell.types("q");
    ended(&mut shell, 0);
}

#[test]
fn an_end_from_outside_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    for (signal, expected) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut shell = Shell::start(&server);
        shell.line("sh -c 'echo pid=$$.; exec leasehold top'");
        shell.sees("pid=");
        let pid: i32 = shell.sees(".").parse().unwrap();
        shell.sees("by turns; h for help");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
        ended(&mut shell, expected);
    }
}

/// Its next look goes to a store that has fallen silent, and would wait for a minute.
#[test]
fn a_signal_ends_a_look_that_hangs() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let url = format!("{}?io_timeout=60s", proxy.url());
    for (signal, expected) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut shell = Shell::start_with(&url);
        shell.line("sh -c 'echo pid=$$.; exec leasehold top --every 100ms'");
        shell.sees("pid=");
        let pid: i32 = shell.sees(".").parse().unwrap();
        shell.sees("by turns; h for help");
        proxy.set(Mode::HoldRequests);
        eventually(LIMIT, || proxy.held() > 0);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
        ended(&mut shell, expected);
        // The first look, before there is a screen.
        proxy.close_all(End::Reset);
        shell.line("leasehold top");
        eventually(LIMIT, || proxy.held() > 0);
        shell.types(INTERRUPT);
        assert_eq!(shell.code(), 130);
        proxy.close_all(End::Reset);
        proxy.set(Mode::Pass);
    }
}

#[test]
fn it_draws_anew_where_the_terminal_has_another_size() {
    let server = Server::start();
    let client = leasehold::Client::open(&server.url()).unwrap();
    let _lease = client.lock("n").acquire().unwrap();
    let mut shell = shown(&server, "leasehold top --every 1h");
    let size = |words: [&str; 4]| {
        let keys = shell.keys.as_fd().try_clone_to_owned().unwrap();
        assert!(Command::new("stty").args(words).stdin(keys).status().unwrap().success());
    };
    size(["rows", "9", "cols", "50"]);
    shell.sees("\x1b[1;1H");
    shell.types("s");
    let frame = shell.sees("\x1b[1;1H");
    assert!(frame.contains("\x1b[9;1H") && !frame.contains("\x1b[10;1H"), "{frame:?}");
    shell.types("q");
    ended(&mut shell, 0);
}

#[test]
fn no_colour_and_no_screen_where_none_is_wanted() {
    let server = Server::start();
    let client = leasehold::Client::open(&server.url()).unwrap();
    let _lease = client.lock("n").acquire().unwrap();
    let mut shell = Shell::start(&server);
    for (line, is_coloured) in [("leasehold top", true), ("NO_COLOR=1 leasehold top", false)] {
        shell.line(line);
        shell.sees("\x1b[1;1H");
        shell.types("q");
        let frame = shell.sees(LEAVE);
        assert_eq!(
            frame.contains("\x1b[1m") && frame.contains("\x1b[7m>"),
            is_coloured,
            "{frame:?}"
        );
        assert_eq!(shell.code(), 0);
    }
    for line in ["TERM=dumb leasehold top --looks 1", "leasehold top --looks 1 | cat"] {
        shell.line(line);
        let page = shell.sees("$ ");
        assert!(page.contains(" n ") && !page.contains("\x1b[1m"), "{page:?}");
    }
}

#[test]
fn an_outage_is_said_on_the_screen_and_ends_nothing() {
    let server = Server::start();
    let mut shell = shown(&server, "leasehold top --every 100ms");
    server.stop();
    shell.sees("no look: ");
    server.cont();
    shell.sees(" held, ");
    shell.types("q");
    ended(&mut shell, 0);
    let mut server = server;
    server.kill();
    shell.line("leasehold top");
    assert!(!shell.sees("leasehold: ").contains("\x1b[?1049h"));
    assert_eq!(shell.code(), 69);
    assert_eq!(code(leasehold(&server.url(), ["top", "--looks", "1"])), 69);
    assert_eq!(code(leasehold(&server.url(), ["top", "--looks", "0"])), 64);
}

#[test]
fn names_are_asked_for_by_pages_and_of_many_a_part_in_each_look() {
    let server = Server::start();
    // What an application has there.
    server.cmd(&["DEBUG", "POPULATE", "30000", "key", "10"]);
    let client = leasehold::Client::open(&server.url()).unwrap();
    let _lease = client.lock("n").acquire().unwrap();
    let scans = server.calls("scan");
    let said = printed(leasehold(&server.url(), ["top", "--json", "--looks=4", "--every=20ms"]));
    let looks: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks[0]["is_part"], true);
    assert!(looks.iter().any(|look| look["held"] == 1), "{said}");
    assert!(looks.iter().any(|look| look["is_part"] == false), "{said}");
    let scans = server.calls("scan") - scans;
    assert!((100..=160).contains(&scans), "{scans}");
    assert_eq!(server.calls("keys"), 0);
}

/// With a look each second it may use a twentieth of a core, where nothing was optimised; the least of
/// some counts is what a busy machine does not change.
#[test]
fn a_look_at_a_thousand_locks_takes_little_of_a_core() {
    const LOOKS: u32 = 10;
    let server = Server::start();
    fill(&server, 1000);
    let looking = Started::new(leasehold(&server.url(), ["top", "--json", "--every", "20ms"]));
    let pid = looking.process.pid();
    let look =
        || -> Value { serde_json::from_str(&looking.lines.recv_timeout(LIMIT).unwrap()).unwrap() };
    assert_eq!(look()["held"], 1000);
    let spans = (0..5).map(|_| {
        let before = kit::process::cpu(pid);
        (0..LOOKS).for_each(|_| assert_eq!(look()["held"], 1000));
        (kit::process::cpu(pid) - before) / LOOKS
    });
    let span = spans.min().unwrap();
    let most = if cfg!(debug_assertions) { ms(50) } else { ms(20) };
    assert!(span < most, "{span:?} for each look");
}
