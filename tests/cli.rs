//! The command line, as a program that others start, signal and wait for.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Process, Server, Stopwatch, eventually};

const LIMIT: Duration = Duration::from_secs(20);

/// A command that says when it runs and ends with its standard input.
const HOLD: [&str; 3] = ["sh", "-c", "echo ready; read _; exit 7"];

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn leasehold<W: AsRef<OsStr>>(url: &str, words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env("LEASEHOLD_URL", url).env_remove("RUST_LOG").args(words).stdin(Stdio::null());
    command
}

/// `leasehold run OPTIONS name -- COMMAND`
fn run(server: &Server, options: &[&str], name: &str, words: &[&str]) -> Command {
    leasehold(&server.url(), [&["run"], options, &[name, "--"], words].concat())
}

fn sh(server: &Server, options: &[&str], name: &str, script: &str) -> Command {
    run(server, options, name, &["sh", "-c", script])
}

#[track_caller]
fn code(mut command: Command) -> i32 {
    let Output { status, .. } = command.output().unwrap();
    status.code().unwrap_or_else(|| panic!("{command:?}: {status}"))
}

/// What it prints, if it succeeds.
#[track_caller]
fn printed(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status} {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// A command under way.
struct Started {
    process: Process,
    lines: Receiver<String>,
}

impl Started {
    fn new(mut command: Command) -> Started {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let out = process.handle().stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The test may have seen enough.
                let _ = sender.send(line);
            }
        });
        Started { process, lines }
    }

    #[track_caller]
    fn says(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(LIMIT).as_deref(), Ok(line));
    }

    /// The command and all that it started have ended: nobody has its output open.
    #[track_caller]
    fn is_gone(&self) {
        assert_eq!(self.lines.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
    }

    fn end_input(&mut self) {
        drop(self.process.handle().stdin.take());
    }

    #[track_caller]
    fn code(&mut self) -> i32 {
        self.process.wait(LIMIT).code().expect("it ends by itself")
    }
}

fn start(command: Command) -> Started {
    let started = Started::new(command);
    started.says("ready");
    started
}

fn is_held(server: &Server, name: &str) -> bool {
    server.cmd(&["EXISTS", name]) == redis::Value::Int(1)
}

/// Until it has asked the store at least once more.
fn until_it_asks(server: &Server) {
    let before = server.calls("evalsha");
    eventually(LIMIT, || server.calls("evalsha") > before);
}

#[test]
fn the_second_waits_or_is_turned_away() {
    let server = Server::start();
    let mut first = start(run(&server, &[], "n", &HOLD));
    let turned_away = run(&server, &["-n"], "n", &["echo", "ran"]).output().unwrap();
    assert_eq!(turned_away.status.code(), Some(1));
    assert!(turned_away.stdout.is_empty() && turned_away.stderr.is_empty(), "{turned_away:?}");
    assert_eq!(code(run(&server, &["--try", "-E", "9"], "n", &["true"])), 9);
    assert_eq!(code(run(&server, &["-n", "-E0"], "n", &["false"])), 0);
    assert_eq!(code(run(&server, &["-w", "0"], "n", &["true"])), 1);
    let watch = Stopwatch::start();
    assert_eq!(code(run(&server, &["-w", "0.3"], "n", &["true"])), 1);
    watch.assert_at_least(ms(300));

    let mut second = Started::new(run(&server, &[], "n", &["echo", "mine"]));
    until_it_asks(&server);
    assert!(second.process.try_wait().is_none());
    first.end_input();
    assert_eq!(first.code(), 7);
    second.says("mine");
    assert_eq!(second.code(), 0);
    assert!(!is_held(&server, "n"));
}

#[test]
fn it_ends_as_the_command_did() {
    let server = Server::start();
    assert_eq!(code(sh(&server, &[], "n", "exit 42")), 42);
    assert_eq!(code(sh(&server, &[], "n", "kill -KILL $$")), 137);
    assert_eq!(code(run(&server, &[], "n", &["./no-such-command"])), 127);
    assert_eq!(code(run(&server, &[], "n", &["/etc/passwd"])), 126);
    assert!(!is_held(&server, "n"), "a command that could not be started holds nothing");
    // Renewed many times over.
    assert_eq!(code(sh(&server, &["--ttl", "300ms"], "n", "sleep 1; exit 3")), 3);
}

#[test]
fn mistakes_are_64_and_trouble_with_the_store_is_69() {
    let server = Server::builder().arg("--requirepass", "hunter2").start();
    for words in [
        &["run", "-n", "-w", "1s", "n", "--", "true"][..],
        &["run", "-w", "soon", "n", "--", "true"],
        &["run", "-E", "256", "n", "--", "true"],
        &["run", "n"],
        &["run", "", "--", "true"],
        &["run", "--ttl", "50ms", "n", "--", "true"],
        &["run", "--once-per", "25h", "n", "--", "true"],
        &["run", "--store", "gopher://there", "n", "--", "true"],
        &["show"],
        &["dance"],
        &[],
    ] {
        assert_eq!(code(leasehold(&server.url(), words)), 64, "{words:?}");
    }
    let wrong = format!("redis://:sw0rdfish@127.0.0.1:{}", server.port());
    let refused = leasehold(&wrong, ["run", "n", "--", "true"]).env("RUST_LOG", "trace").output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(69));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("password") && !said.contains("sw0rdfish"), "c12: {said}");
    assert_eq!(code(leasehold(&wrong, ["show", "n"])), 69);
    for asked in ["--help", "--version"] {
        assert!(printed(leasehold("", [asked])).contains("leasehold"));
    }
}

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
fn the_command_gets_nothing_of_cargo() {
    let server = Server::start();
    let mut command = run(&server, &[], "n", &["env"]);
    let toolchain = "/home/u/.rustup/toolchains/stable";
    command
        .env_clear()
        .env("LEASEHOLD_URL", server.url())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([("HOME", "/home/u"), ("CARGO_PKG_NAME", "leasehold"), ("CARGO_PKG_VERSION", "1")])
        .envs([("CARGO_MANIFEST_DIR", "/src"), ("RUST_RECURSION_COUNT", "1")])
        .envs([("CARGO_HOME", "/home/u/.cargo"), ("RUSTUP_TOOLCHAIN", "stable")])
        .envs([("CARGO_TARGET_DIR", "/mine"), ("LD_LIBRARY_PATH", "/mine")])
        .env("LD_LIBRARY_PATH", format!("{toolchain}/lib:/mine"))
        .env("CARGO", format!("{toolchain}/bin/cargo"));
    let said = printed(command);
    let mut names: Vec<_> = said
        .lines()
        .filter_map(|line| line.split('=').next())
        .filter(|name| *name != "_")
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "CARGO_TARGET_DIR",
            "HOME",
            "LD_LIBRARY_PATH",
            "LEASEHOLD_FENCE",
            "LEASEHOLD_NAME",
            "LEASEHOLD_URL",
            "PATH"
        ]
    );
    assert!(said.contains("LD_LIBRARY_PATH=/mine\n"), "{said}");
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

#[test]
fn show_tells_who_has_it() {
    let server = Server::start();
    let show = |words: &[&str]| printed(leasehold(&server.url(), [&["show", "n"], words].concat()));
    let json = || serde_json::from_str::<serde_json::Value>(&show(&["--json"])).unwrap();
    assert_eq!(show(&[]), "n: free\n");
    assert_eq!(
        json(),
        serde_json::json!({
            "name": "n", "held": false, "token_prefix": null, "ttl_ms": null, "fence": null,
            "last_fence": null
        })
    );
    let mut holder = start(run(&server, &[], "n", &HOLD));
    let held = json();
    let (fence, token) = (held["fence"].as_u64().unwrap(), held["token_prefix"].as_str().unwrap());
    assert_eq!((held["held"].as_bool(), held["last_fence"].as_u64()), (Some(true), Some(fence)));
    assert!((1..=30_000).contains(&held["ttl_ms"].as_u64().unwrap()), "{held}");
    assert!(show(&[]).starts_with(&format!("n: held by {token}, fence {fence}, free in ")));
    holder.end_input();
    holder.code();
    assert_eq!(show(&[]), format!("n: free, last fence {fence}\n"));

    // A reader that has seen enough is no failure.
    let mut show = leasehold(&server.url(), ["show", "n"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(show.stdout(writer).status().unwrap().code(), Some(0));
}

#[test]
fn once_per_interval_leaves_it_taken() {
    let server = Server::start();
    let once = || run(&server, &["--once-per", "2s"], "n", &["echo", "ran"]);
    let watch = Stopwatch::start();
    assert_eq!(printed(once()), "ran\n");
    assert_eq!(code(once()), 1);
    // What is left is less than the interval, and it comes from when the lock was taken.
    assert!(is_held(&server, "n"));
    eventually(LIMIT, || !is_held(&server, "n"));
    watch.assert_at_least(ms(1990));
    watch.assert_at_most(ms(2000), ms(600));
    assert_eq!(printed(once()), "ran\n");
    // With --wait it waits for the next interval.
    let watch = Stopwatch::start();
    let waiting = run(&server, &["--once-per", "2s", "-w", "20s"], "n", &["echo", "ran"]);
    assert_eq!(printed(waiting), "ran\n");
    watch.assert_at_least(ms(1000));
    // A command that takes longer than its interval leaves nothing.
    assert_eq!(code(sh(&server, &["--once-per", "500ms"], "m", "sleep 1")), 0);
    assert!(!is_held(&server, "m"));
    assert_eq!(code(run(&server, &["--once-per", "1h"], "m", &["./no-such-command"])), 127);
    assert!(!is_held(&server, "m"));
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
fn a_wait_ends_by_a_signal_unless_that_is_ignored() {
    let server = Server::start();
    let _holder = start(run(&server, &[], "n", &HOLD));
    for (signal, expected) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut waiting = Started::new(run(&server, &[], "n", &["echo", "ran"]));
        until_it_asks(&server);
        waiting.process.signal(signal);
        assert_eq!(waiting.code(), expected);
        waiting.is_gone();
    }
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_leasehold")]);
    command.args(["run", "n", "--", "echo", "ran"]).env("LEASEHOLD_URL", server.url());
    let mut waiting = Started::new(command);
    until_it_asks(&server);
    waiting.process.signal(Signal::SIGHUP);
    until_it_asks(&server);
    waiting.process.signal(Signal::SIGTERM);
    assert_eq!(waiting.code(), 143);
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
    let mut running = start(sh(&server, &["--ttl", "3s"], "n", &format!("trap '' TERM; {LISTEN}")));
    server.cmd(&["DEL", "n"]);
    running.is_gone();
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
    let (mut running, pid) = start_pid(sh(&server, &["--ttl", "3s"], "n", &script));
    server.stop();
    let watch = Stopwatch::start();
    running.says("term");
    eventually(LIMIT, || is_reaped(pid));
    watch.assert_at_most(ms(3000), Duration::ZERO);
    assert_eq!(running.code(), 75);
    server.cont();
}

#[test]
fn at_risk_a_deaf_command_is_killed_before_validity_ends() {
    const DEAF: &str = "\
        trap 'echo term' TERM; echo $$; echo ready; while :; do sleep 0.01; done";
    let server = Server::start();
    // By the end of the grace; by validity, which ends before the grace does.
    for (grace, least) in [("100ms", 100), ("1h", 400)] {
        let options = ["--ttl", "3s", "--grace", grace];
        let (mut running, pid) = start_pid(sh(&server, &options, "n", DEAF));
        server.stop();
        let watch = Stopwatch::start();
        running.says("term");
        let told = Stopwatch::start();
        eventually(LIMIT, || is_reaped(pid));
        watch.assert_at_most(ms(3000), Duration::ZERO);
        // The script says it as soon as its present sleep is over.
        told.assert_at_least(ms(least - 50));
        assert_eq!(running.code(), 75);
        server.cont();
        eventually(LIMIT, || !is_held(&server, "n"));
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn without_a_url_the_store_is_a_file_of_the_user() {
    let state = tempfile::tempdir().unwrap();
    let embedded = |words: &[&str]| {
        let mut command = leasehold("", words.iter().map(OsString::from));
        command.env("XDG_STATE_HOME", state.path());
        command
    };
    let mut holder = start(embedded(&[&["run", "n", "--"][..], &HOLD].concat()));
    assert!(state.path().join("leasehold/locks.db").exists());
    assert_eq!(code(embedded(&["run", "-n", "n", "--", "true"])), 1);
    assert!(printed(embedded(&["show", "n"])).starts_with("n: held by "));
    holder.process.handle().stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(holder.code(), 7);
    assert!(printed(embedded(&["show", "n"])).starts_with("n: free, last fence "));
}
