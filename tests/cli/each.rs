//! Each subcommand in a pipe and at a terminal, on each store.

use crate::stores::{Store, on_each_deployment};
use crate::terminal::Shell;
use crate::*;

on_each_deployment! {
    what_is_said_in_a_pipe_and_at_a_terminal,
    what_is_listed_and_broken_is_said_in_a_pipe_and_at_a_terminal,
}

/// What it prints into a pipe, which no terminal would obey anything of.
#[track_caller]
fn piped(store: &Store, words: &[&str], expected: i32) -> String {
    let (code, said) = ended(store, words);
    assert_eq!(code, Some(expected), "{words:?}: {said}");
    said
}

/// What else the machine does, makes the servers of a test more fit or less.
#[track_caller]
fn examined(store: &Store, words: &[&str]) -> String {
    let (code, said) = ended(store, words);
    assert!(matches!(code, Some(0 | 1)), "{words:?}: {code:?} {said}");
    said
}

#[track_caller]
fn ended(store: &Store, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = leasehold(&patient(store), words).output().unwrap();
    let said = String::from_utf8(stdout).unwrap();
    let all = format!("{said}{}", String::from_utf8_lossy(&stderr));
    assert!(!all.contains('\x1b') && !all.contains('\r'), "{words:?}: {all}");
    assert!(said.is_empty() || said.ends_with('\n'), "{words:?}: {all}");
    (status.code(), said)
}

fn what_is_said_in_a_pipe_and_at_a_terminal(store: &Store) {
    assert_eq!(piped(store, &["run", "n", "--", "echo", "ran"], 0), "ran\n");
    assert!(piped(store, &["show", "n"], 0).starts_with("n: free"));
    assert!(piped(store, &["show", "--json", "n"], 0).contains("\"held\":false"));
    assert!(examined(store, &["doctor"]).contains("fit for locks"));
    assert!(examined(store, &["doctor", "--json"]).starts_with('{'));

    let mut shell = Shell::start_with(&patient(store));
    shell.line("leasehold run n -- sh -c 'tty -s <&1; echo code$?'");
    shell.sees("code0");
    assert_eq!(shell.code(), 0);
    let mut holder = start(leasehold(&patient(store), [&["run", "n", "--"][..], &HOLD].concat()));
    shell.line("leasehold show n");
    shell.sees("n: held by ");
    assert_eq!(shell.code(), 0);
    shell.line("leasehold run -w 1s n -- true");
    shell.sees("n is taken");
    assert_eq!(shell.code(), 1);
    holder.end_input();
    assert_eq!(holder.code(), 7);
    shell.line("leasehold doctor");
    shell.sees("fit for locks");
    assert!(matches!(shell.code(), 0 | 1));
}

fn what_is_listed_and_broken_is_said_in_a_pipe_and_at_a_terminal(store: &Store) {
    let hold = |name| {
        let words = [&["run", "--ttl", "15s", name, "--"][..], &HOLD].concat();
        start(leasehold(&patient(store), words))
    };
    let (mut first, mut second) = (hold("n"), hold("m"));
    let listed = piped(store, &["ls", "n*"], 0);
    assert!(listed.starts_with("n: held by ") && listed.lines().count() == 1, "{listed}");
    assert!(piped(store, &["break", "--yes", "n"], 0).starts_with("n: broken"));
    assert!(piped(store, &["break", "--yes", "n"], 1).starts_with("n: not broken"));
    assert_eq!(first.code(), 75);

    let mut shell = Shell::start_with(&patient(store));
    shell.line("leasehold ls");
    shell.sees("m: held by ");
    assert_eq!(shell.code(), 0);
    for (answer, expected) in [("n", 1), ("y", 0), ("y", 1)] {
        shell.line("leasehold break m");
        // The third time nobody is to be broken, and nobody is asked.
        if second.process.try_wait().is_none() && (answer, expected) != ("y", 1) {
            shell.sees("Break it? [y/N] ");
            shell.line(answer);
        }
        assert_eq!(shell.code(), expected);
    }
    assert_eq!(second.code(), 75);
}
