//! What the command is given, and what becomes of it while it runs.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::*;
use kit::{Server, Stopwatch, eventually};

#[test]
fn the_command_knows_its_name_and_fence() {
    let server = Server::start();
    let fence = |name| {
        let said = printed(sh(&server, &[], name, "echo $LEASEHOLD_FENCE $LEASEHOLD_NAME"));
        let (fence, said) = said.trim_end().split_once(' ').unwrap();
        assert_eq!(said, name);
        fence.parse::<u64>().unwrap()
    };
    assert!(fence("a {b}") < fence("a {b}"));

    let odd = OsStr::from_bytes(b"\xff\xfe");
    let words = [OsStr::new("run"), odd, OsStr::new("--"), OsStr::new("sh"), OsStr::new("-c")];
    let script = OsStr::new("printf %s \"$LEASEHOLD_NAME\"");
    let said = leasehold(&server.url(), words.into_iter().chain([script])).output().unwrap();
    assert_eq!(said.stdout, odd.as_bytes());
}

#[test]
fn the_command_does_not_get_the_toolchain_of_our_checkout() {
    let server = Server::start();
    for (package, source, is_kept) in [
        ("leasehold", "default", false),
        // Set by the user, or by cargo for a program that called us.
        ("leasehold", "env", true),
        ("other", "default", true),
    ] {
        let mut command = run(&server, &[], "n", &["env"]);
        command
            .envs([("CARGO_PKG_NAME", package), ("RUSTUP_TOOLCHAIN_SOURCE", source)])
            .envs([("RUSTUP_TOOLCHAIN", "nightly"), ("CARGO_TARGET_DIR", "/mine")]);
        let said = printed(command);
        let has = |line| said.lines().any(|said| said == line);
        assert_eq!(has("RUSTUP_TOOLCHAIN=nightly"), is_kept, "{package}, {source}");
        assert!(has("CARGO_TARGET_DIR=/mine") && has("LEASEHOLD_NAME=n"), "{said}");
    }
}

#[test]
fn the_command_inherits_three_descriptors_and_no_blocked_signals() {
    let server = Server::start();
    let script = "echo /proc/self/fd/*; grep -E 'SigBlk|SigIgn' /proc/self/status";
    let mut direct = Command::new("sh");
    direct.args(["-c", script]).stdin(Stdio::null());
    let [ours, direct] = [sh(&server, &[], "n", script), direct].map(|command| {
        let said = printed(command);
        let (descriptors, signals) = said.split_once('\n').unwrap();
        // The last 31 bits: real-time signals are the C library's own.
        let set = |line: &str| u64::from_str_radix(&line[8..], 16).unwrap() & 0x7fff_ffff;
        (descriptors.to_owned(), signals.lines().map(set).collect::<Vec<_>>())
    });
    assert_eq!(ours, direct);
}

/// Says what it gets; ends on TERM.
const LISTEN: &str = "\
    trap 'echo usr1' USR1; trap 'echo winch' WINCH; trap 'echo hup' HUP; \
    trap 'echo int' INT; trap 'echo term; exit 5' TERM; \
    echo ready; while :; do sleep 0.01; done";

#[test]
fn signals_are_passed_on_to_the_group() {
    let server = Server::start();
    let mut listening = start(sh(&server, &[], "n", LISTEN));
    for (signal, said) in [
        (Signal::SIGUSR1, "usr1"),
        (Signal::SIGWINCH, "winch"),
        (Signal::SIGHUP, "hup"),
        (Signal::SIGINT, "int"),
        (Signal::SIGTERM, "term"),
    ] {
        listening.process.signal(signal);
        listening.says(said);
    }
    assert_eq!(listening.code(), 5);

    // Also to what the command itself has started.
    let mut group = start(sh(&server, &[], "n", "(sleep 100; true) & echo ready; wait"));
    group.process.signal(Signal::SIGTERM);
    group.is_gone();
    assert_eq!(group.code(), 143);
    assert!(!is_held(&server, "n"));
}

#[test]
fn a_command_gets_term_when_leasehold_is_killed() {
    let server = Server::start();
    let mut listening = start(sh(&server, &[], "n", LISTEN));
    listening.process.kill();
    listening.says("term");
    listening.is_gone();
}

#[test]
fn c9_a_lost_lease_kills_the_command_at_once() {
    let server = Server::start();
    let mut running = start(sh(&server, &["--ttl", "5s"], "n", &format!("trap '' TERM; {LISTEN}")));
    server.cmd(&["DEL", "n"]);
    running.is_gone();
    assert_eq!(running.code(), 75);
}

#[test]
fn nobody_has_to_listen_for_a_command_to_be_killed() {
    let server = Server::start();
    let (unread, mut full) = std::io::pipe().unwrap();
    nix::fcntl::fcntl(&full, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    full.write_all(&[b'x'; 4096]).unwrap();
    let mut command = sh(&server, &["--ttl", "5s"], "n", &format!("exec 2>&-; echo $$; {LISTEN}"));
    command.stderr(full);
    let (mut running, pid) = start_pid(command);
    server.cmd(&["DEL", "n"]);
    eventually(LIMIT, || is_reaped(pid));
    drop(unread);
    assert_eq!(running.code(), 75);
}

#[test]
fn a_lease_that_is_gone_at_the_end_is_75() {
    let server = Server::start();
    let mut running = start(run(&server, &["--ttl", "1h"], "n", &HOLD));
    server.cmd(&["DEL", "n"]);
    running.end_input();
    assert_eq!(running.code(), 75);
}

/// Starts a script that first says its process id.
fn start_pid(command: Command) -> (Started, Pid) {
    let started = Started::new(command);
    let pid = started.lines.recv_timeout(LIMIT).unwrap().parse().unwrap();
    started.says("ready");
    (started, Pid::from_raw(pid))
}

/// The command itself has ended and was waited for; leasehold may still be busy with the store.
fn is_reaped(pid: Pid) -> bool {
    kill(pid, None) == Err(Errno::ESRCH)
}

#[test]
fn at_risk_a_command_may_end_in_its_grace() {
    let server = Server::start();
    let script = format!("echo $$; {LISTEN}");
    let (mut running, pid) = start_pid(sh(&server, &["--ttl", "6s"], "n", &script));
    server.stop();
    let watch = Stopwatch::start();
    running.says("term");
    eventually(LIMIT, || is_reaped(pid));
    watch.assert_at_most(ms(6000), Duration::ZERO);
    assert_eq!(running.code(), 75);
    server.cont();
}

/// Says that it was told to end, and does not.
const DEAF: &str = "trap 'echo term' TERM; echo $$; echo ready; while :; do sleep 0.01; done";

#[test]
fn at_risk_a_deaf_command_is_killed_before_validity_ends() {
    let server = Server::start();
    let (mut running, pid) = start_pid(sh(&server, &["--ttl", "6s", "--grace", "1h"], "n", DEAF));
    server.stop();
    let watch = Stopwatch::start();
    running.says("term");
    eventually(LIMIT, || is_reaped(pid));
    watch.assert_at_most(ms(6000), Duration::ZERO);
    // At the stop at least two thirds of the ttl were left; KILL comes with half a second left.
    watch.assert_at_least(ms(3000));
    assert_eq!(running.code(), 75);
    server.cont();
}

#[test]
fn a_deaf_command_is_killed_after_its_grace_even_if_the_store_is_back() {
    let server = Server::start();
    let (mut running, pid) = start_pid(sh(&server, &["--ttl", "6s", "--grace", "1s"], "n", DEAF));
    server.stop();
    running.says("term");
    // From here on the lease is renewed again.
    server.cont();
    eventually(LIMIT, || is_reaped(pid));
    assert_eq!(running.code(), 75);
    assert!(!is_held(&server, "n"), "it could be given back");
}
