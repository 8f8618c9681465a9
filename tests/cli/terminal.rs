//! In the hands of somebody at a terminal, with a shell that controls jobs.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use crate::{LIMIT, is_held};
use kit::{Process, Server, eventually};

pub(crate) const INTERRUPT: &str = "\x03";
const END: &str = "\x04";
pub(crate) const STOP: &str = "\x1a";

/// An interactive bash on a terminal of its own.
pub(crate) struct Shell {
    // First, so that bash is gone before its terminal is.
    _process: Process,
    pub(crate) keys: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen has been looked at.
    read: usize,
}

impl Shell {
    pub(crate) fn start(server: &Server) -> Shell {
        // What a terminal shows is looked at, and not how fast a busy machine's store is.
        Shell::start_with(&format!("{}?io_timeout=20s", server.url()))
    }

    pub(crate) fn start_with(url: &str) -> Shell {
        let mut shell =
            Shell::start_as(url, &["setsid", "--ctty", "bash", "--noprofile", "--norc", "-i"]);
        shell.sees("$ ");
        shell
    }

    /// Another program in the place of bash.
    pub(crate) fn start_as(url: &str, words: &[&str]) -> Shell {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .stdin(pty.slave.try_clone().unwrap())
            .stdout(pty.slave.try_clone().unwrap())
            .stderr(pty.slave)
            .env("PATH", path())
            .env("LEASEHOLD_URL", url)
            .env_remove("RUST_LOG")
            .envs([("PS1", "$ "), ("TERM", "vt100"), ("HISTFILE", "")]);
        let process = Process::spawn(&mut command);
        // Or the terminal would never hang up.
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, theirs) =
            (File::from(pty.master.try_clone().unwrap()), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut some) {
                theirs.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        Shell { _process: process, keys: pty.master.into(), screen, read: 0 }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// One line, whose echo is read.
    pub(crate) fn line(&mut self, line: &str) {
        self.types(&format!("{line}\n"));
        self.sees("\n");
    }

    /// Waits for a text after the last one seen; gives what came before it.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let start = std::time::Instant::now();
        loop {
            let screen = self.screen.lock().unwrap();
            if let Some(at) = screen[self.read..].find(text) {
                let before = screen[self.read..self.read + at].to_owned();
                self.read += at + text.len();
                return before;
            }
            assert!(start.elapsed() < LIMIT, "no {text:?} in {:?}", &screen[self.read..]);
            drop(screen);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The code of what ran last.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        self.sees("$ ");
        self.line("echo code=$?.");
        self.sees("code=");
        let code = self.sees(".").parse().unwrap();
        // What is typed before its prompt is echoed twice, and the prompt in between.
        self.sees("$ ");
        code
    }

    /// What ran last ended with this code, and left the terminal as it was.
    #[track_caller]
    pub(crate) fn has_ended(&mut self, expected: i32) {
        assert_eq!(self.code(), expected);
        self.line("stty -a");
        let modes = self.sees("$ ");
        assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
    }
}

/// The folder of the command before all others, so that the shell finds it by its name.
fn path() -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = program.parent().unwrap().display();
    format!("{folder}:{}", std::env::var("PATH").unwrap())
}

/// Somebody reads, thinks, and says yes: meanwhile another one may have the lock.
#[test]
fn what_is_broken_at_the_prompt_is_what_was_shown_and_no_later_lease() {
    let server = Server::start();
    let client = leasehold::Client::open(&server.url()).unwrap();
    let lock = client.lock("n").ttl(Duration::from_secs(60));
    let shown = lock.acquire().unwrap();
    let mut shell = Shell::start(&server);
    shell.line("leasehold break n");
    shell.sees(&format!("fence {}", shown.fence()));
    shell.sees("Break it? [y/N] ");
    shown.release().unwrap();
    let later = lock.acquire().unwrap();
    shell.line("y");
    shell.sees(&format!("n: not broken, another lease has it, with fence {}", later.fence()));
    assert_eq!(shell.code(), 1);
    later.extend().unwrap();
    shell.line("leasehold break n");
    shell.sees("Break it? [y/N] ");
    shell.line("y");
    shell.sees(&format!("n: broken, the lease with fence {} is over", later.fence()));
    assert_eq!(shell.code(), 0);
}

#[test]
fn the_command_has_the_keyboard_and_can_be_stopped_and_continued() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold run n -- cat");
    // Once echoed by the terminal, once said by cat.
    shell.line("hello");
    shell.sees("hello");
    for _ in 0..2 {
        shell.types(STOP);
        shell.sees("Stopped");
        shell.sees("$ ");
        shell.line("fg");
        shell.line("leasehold run n -- cat");
        shell.line("again");
        shell.sees("again");
    }
    shell.types(END);
    assert_eq!(shell.code(), 0);
    assert!(!is_held(&server, "n"));
}

#[test]
fn a_script_around_it_is_stopped_with_it() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("sh -c 'leasehold run n -- cat; echo do\"\"ne'");
    shell.line("hello");
    shell.sees("hello");
    shell.types(STOP);
    shell.sees("Stopped");
    shell.sees("$ ");
    shell.line("fg");
    shell.line("again");
    shell.sees("again");
    shell.types(END);
    shell.sees("done");
    assert_eq!(shell.code(), 0);
}

#[test]
fn without_a_shell_that_could_continue_it_nothing_is_stopped() {
    let server = Server::start();
    let words = ["setsid", "--ctty", "leasehold", "run", "n", "--", "cat"];
    let mut shell = Shell::start_as(&server.url(), &words);
    eventually(LIMIT, || is_held(&server, "n"));
    shell.line("hello");
    shell.sees("hello");
    shell.types(STOP);
    shell.line("again");
    shell.sees("again");
    shell.types(END);
    eventually(LIMIT, || !is_held(&server, "n"));
}

#[test]
fn in_the_background_it_is_stopped_when_it_reads() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold run n -- cat &");
    eventually(LIMIT, || is_held(&server, "n"));
    // bash tells what became of its jobs before each prompt.
    let mut tries = 0;
    while !shell.screen.lock().unwrap().contains("Stopped") {
        tries += 1;
        assert!(tries < 2000, "{:?}", shell.screen.lock().unwrap());
        shell.types("\n");
        std::thread::sleep(Duration::from_millis(10));
    }
    shell.line("fg");
    shell.sees("leasehold run n -- cat\r\n");
    shell.line("hello");
    shell.sees("hello");
    shell.types(END);
    assert_eq!(shell.code(), 0);
}

#[test]
fn ctrl_c_ends_the_command_and_the_loop_around_it() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    let sleep = "sh -c \"echo ru''ns; exec sleep 100\"";
    shell.line(&format!("for i in 1 2; do leasehold run n -- {sleep}; echo af''ter; done"));
    shell.sees("runs");
    shell.types(INTERRUPT);
    assert_eq!(shell.code(), 130);
    assert!(!is_held(&server, "n"));
    // So does a wait.
    server.cmd(&["SET", "n", "another's", "PX", "60000"]);
    shell.line("for i in 1 2; do leasehold run n -- true; echo af''ter; done");
    shell.sees("waiting ");
    shell.types(INTERRUPT);
    assert_eq!(shell.code(), 130);
    server.cmd(&["DEL", "n"]);
    // A command that makes its own of ^C decides about its end.
    shell.line(
        "leasehold run n -- sh -c \"trap 'exit 3' INT; echo ru''ns; \
                while :; do sleep 0.01; done\"",
    );
    shell.sees("runs");
    shell.types(INTERRUPT);
    assert_eq!(shell.code(), 3);
    let screen = shell.screen.lock().unwrap();
    assert!(!screen.contains("after"), "{screen:?}");
}

#[test]
fn a_pager_behind_it_keeps_the_keyboard() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line(
        "leasehold run n -- echo from the command | sh -c 'cat; read key </dev/tty; echo $key$key'",
    );
    shell.sees("from the command");
    shell.types("key\n");
    shell.sees("keykey");
    assert_eq!(shell.code(), 0);
    // And the command gets it when it asks.
    shell
        .line("echo | leasehold run n -- sh -c 'echo ru\"\"ns; read key </dev/tty; echo $key$key'");
    shell.sees("runs");
    shell.types("key\n");
    shell.sees("keykey");
    assert_eq!(shell.code(), 0);
}

#[test]
fn a_job_that_was_stopped_for_longer_than_the_ttl_does_not_go_on() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold run --ttl 4s n -- sh -c \"echo ru''ns; read _; echo went''on\"");
    shell.sees("runs");
    shell.types(STOP);
    shell.sees("Stopped");
    eventually(LIMIT, || !is_held(&server, "n"));
    shell.line("fg");
    shell.sees("was lost");
    assert_eq!(shell.code(), 75);
    assert!(!shell.screen.lock().unwrap().contains("wenton"));
}

#[test]
fn a_killed_command_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold run --ttl 5s n -- sh -c \"stty -icanon; echo ru''ns; exec sleep 100\"");
    shell.sees("runs");
    server.cmd(&["DEL", "n"]);
    shell.sees("was lost");
    assert_eq!(shell.code(), 75);
    shell.line("stty -a");
    let modes = shell.sees("$ ");
    assert!(modes.contains(" icanon"), "{modes}");
}

#[test]
fn a_wait_shows_one_line_and_clears_it() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold run --ttl 6s n -- sleep 100 &");
    eventually(LIMIT, || is_held(&server, "n"));
    // A key that is deleted by hand wakes nobody: who spins notices it.
    shell.line("leasehold run --wait-mode spin n -- echo ra''n");
    shell.sees("waiting ");
    let line = shell.sees("held by ");
    assert!(line.contains(" for n, free in ") && line.contains("s unless renewed, "), "{line}");
    // It goes on in the same line, without a new one.
    let between = shell.sees("waiting ");
    assert!(between.contains('\r') && !between.contains('\n'), "{between:?}");
    shell.types(STOP);
    shell.sees("Stopped");
    shell.line("fg");
    shell.sees("waiting ");
    // The holder finds out when it renews, and then the waiter is told.
    server.cmd(&["DEL", "n"]);
    let end = shell.sees("ran\r\n");
    let after = end.rsplit('\r').next().unwrap();
    assert!(!after.contains("waiting"), "not cleared: {end:?}");
    shell.sees("$ ");

    server.cmd(&["SET", "n", "another's", "PX", "60000"]);
    shell.line("leasehold run n -- echo ra''n");
    shell.sees("waiting ");
    shell.types(INTERRUPT);
    assert_eq!(shell.code(), 130);
    shell.line("leasehold run -w 100ms n -- echo ra''n");
    shell.sees("leasehold: n is taken");
    assert_eq!(shell.code(), 1);
    let token = server.cmd(&["GET", "n"]);
    assert_eq!(token, redis::Value::BulkString(b"another's".to_vec()), "the wait touched nothing");
    shell.line("kill %1; wait");
    shell.sees("$ ");
}

#[test]
fn a_wait_shows_its_place_in_line() {
    let server = Server::start();
    let mut holder = crate::start(crate::run(&server, &[], "n", &crate::HOLD));
    let _first = crate::Started::new(crate::run(&server, &[], "n", &["true"]));
    eventually(LIMIT, || server.cmd(&["ZCARD", "leasehold:queue:{n}"]) != redis::Value::Int(0));
    let mut shell = Shell::start(&server);
    shell.line("NO_COLOR=1 leasehold run n -- echo ra''n");
    shell.sees("waiting ");
    let line = shell.sees(", 2 of 2 in line, free in ");
    assert!(!line.contains("\x1b[3") && !line.contains("\x1b[1m"), "{line:?}");
    // Nor does it take a client that says who it is.
    let mut quiet = Shell::start_with(&(server.url() + "?register=no"));
    quiet.line("leasehold run n -- echo ra''n");
    quiet.sees("waiting ");
    quiet.sees(", 3 of 3 in line, free in ");
    holder.end_input();
    quiet.sees("ran\r\n");
    shell.sees("ran\r\n");
    assert_eq!(shell.code(), 0);
}

#[test]
fn an_examination_has_colours_where_they_are_wanted() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.line("leasehold doctor");
    shell.sees("\x1b[33mnote\x1b[0m redis-forgets");
    assert_eq!(shell.code(), 0);
    server.config_set("maxmemory-policy", "allkeys-lru");
    shell.line("NO_COLOR=1 leasehold doctor");
    assert!(!shell.sees("not fit for locks").contains("\x1b[3"));
    assert_eq!(shell.code(), 1);
}
