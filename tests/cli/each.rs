//! Each subcommand in a pipe and at a terminal, on each store.

use crate::stores::{Store, on_each_shared_deployment, secs};
use crate::terminal::{INTERRUPT, Shell};
use crate::top;
use crate::*;

on_each_shared_deployment! {
    what_is_said_in_a_pipe_and_at_a_terminal,
    what_is_listed_and_broken_is_said_in_a_pipe_and_at_a_terminal,
    what_becomes_of_a_lock_is_told_at_a_terminal_until_it_is_interrupted,
    who_broke_a_lock_is_told_at_the_terminal_of_its_holder,
    a_run_that_has_ended_is_known_until_its_interval_is_over,
    the_busiest_locks_fill_a_screen_that_obeys_its_keys,
    a_store_is_made_ready_in_a_pipe_and_at_a_terminal,
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

fn who_broke_a_lock_is_told_at_the_terminal_of_its_holder(store: &Store) {
    let mut shell = Shell::start_with(&patient(store));
    shell.line("leasehold run --ttl 9s n -- sh -c 'echo he''ld; exec sleep 1000'");
    shell.sees("held");
    assert!(piped(store, &["break", "--yes", "n"], 0).starts_with("n: broken"));
    // The date and the time follow: it was `us`, here.
    shell.sees(&format!("broken by an operator ({}@{}) at 20", user(), host()));
    assert_eq!(shell.code(), 75);
}

fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).unwrap();
    user.unwrap().name
}

fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

fn a_run_that_has_ended_is_known_until_its_interval_is_over(store: &Store) {
    // Too short for the record that the client leaves in the background, and gone when it is asked for.
    let ran = piped(store, &["run", "--once-per", "50s", "n", "--", "sh", "-c", "exit 3"], 3);
    assert_eq!(ran, "");
    let shown: serde_json::Value =
        serde_json::from_str(&piped(store, &["show", "--json", "n"], 0)).unwrap();
    let (client, run) = (&shown["client"], &shown["client"]["run"]);
    assert_eq!((&client["host"], &client["program"]), (&host().into(), &"sh".into()), "{shown}");
    assert_eq!(run["exit_status"], 3, "{shown}");
    let (began, ended) = (run["began_ms"].as_u64().unwrap(), run["ended_ms"].as_u64().unwrap());
    assert!(client["started_ms"].as_u64().unwrap() <= began && began <= ended, "{shown}");
    let said = piped(store, &["show", "n"], 0);
    let who =
        format!("n: taken after a run of {} (shell sh, pid {}) from 20", host(), client["pid"]);
    assert!(said.starts_with(&who), "{said}");
    let what = format!(", exit status 3, fence {}, ", shown["fence"]);
    assert!(said.contains(&what) && !said.contains("unless renewed"), "{said}");

    // Who runs now has not ended, and is held like any other.
    let mut running = start(leasehold(
        &patient(store),
        [&["run", "--once-per", "50s", "m", "--"][..], &HOLD].concat(),
    ));
    let shown: serde_json::Value =
        serde_json::from_str(&piped(store, &["show", "--json", "m"], 0)).unwrap();
    let run = &shown["client"]["run"];
    assert!(run["began_ms"].is_u64() && run["ended_ms"].is_null(), "{shown}");
    assert!(piped(store, &["show", "m"], 0).starts_with("m: held by "));
    running.end_input();
    assert_eq!(running.code(), 7);
}

/// In a pipe, `watching` has it.
fn what_becomes_of_a_lock_is_told_at_a_terminal_until_it_is_interrupted(store: &Store) {
    let mut shell = Shell::start_with(&patient(store));
    shell.line("leasehold watch --every 50ms n");
    shell.sees(" n: free");
    let client = store.client();
    let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    shell.sees(" n: taken: held by ");
    shell.sees(&format!(", fence {}\r\n", lease.fence()));
    lease.release().unwrap();
    shell.sees(" n: released");
    shell.types(INTERRUPT);
    shell.has_ended(130);
}

/// As a page and as JSON, `top` has it.
fn the_busiest_locks_fill_a_screen_that_obeys_its_keys(store: &Store) {
    let client = store.client();
    let hold = |name| client.lock(name).ttl(secs(60)).acquire().unwrap();
    let leases = ["stock:1", "stock:2", "else"].map(hold);
    let mut shell = top::shown_of(&patient(store), "leasehold top");
    shell.sees(">   0.");
    shell.sees("3 held, ");
    for order in ["waiting", "since", "ttl", "name"] {
        shell.types("s");
        shell.sees(&format!("by {order}; "));
    }
    shell.types("/stock:*\r");
    shell.sees("2 held, ");
    shell.sees("names stock:*, by name");
    shell.types("jb");
    shell.sees("Break stock:2, held by ");
    shell.types("y");
    shell.sees(&format!("stock:2: broken, the lease with fence {} is over", leases[1].fence()));
    assert!(client.lock("stock:2").inspect().unwrap().holder.is_none());
    assert!(client.lock("stock:1").inspect().unwrap().holder.is_some());
    shell.types("h");
    shell.sees("breaks the lock of the selected line");
    shell.types("h");
    shell.sees("1 held, ");
    shell.types("q");
    top::ended(&mut shell, 0);
}

/// What `init` has to do in a store.
enum Readying {
    /// Its tables or nodes are missing.
    Makes,
    /// It guards against lost data.
    Declares,
    Nothing,
}

/// One of this kind to which nobody has come yet.
fn unprepared(store: &Store) -> (String, Readying) {
    let guarded = |url: String| {
        let sign = if url.contains('?') { '&' } else { '?' };
        (format!("{url}{sign}guard_data_loss=yes"), Readying::Declares)
    };
    match store {
        Store::Redis(_) | Store::Cluster(_) | Store::Sentinels(_) => guarded(patient(store)),
        Store::Quorum(_) => (patient(store), Readying::Declares),
        Store::File(_) | Store::Memory(_) => (patient(store), Readying::Nothing),
        #[cfg(feature = "etcd")]
        Store::Etcd(_) => (patient(store), Readying::Nothing),
        #[cfg(feature = "postgres")]
        Store::Postgres(database) => {
            let server = database.server();
            (server.url(&server.database()), Readying::Makes)
        }
        #[cfg(feature = "mysql")]
        Store::Mysql(database) => {
            let server = database.server();
            (server.url(&server.database()), Readying::Makes)
        }
        #[cfg(feature = "zookeeper")]
        Store::Zookeeper(chroot) => {
            let server = chroot.server();
            (server.url(&server.chroot()), Readying::Makes)
        }
    }
}

fn a_store_is_made_ready_in_a_pipe_and_at_a_terminal(store: &Store) {
    let (url, readying) = unprepared(store);
    let init = |words: &[&str]| {
        let words = [&["init"], words].concat();
        let Output { status, stdout, stderr } = leasehold(&url, words).output().unwrap();
        let [said, wrong] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!format!("{said}{wrong}").contains(['\x1b', '\r']), "{said}{wrong}");
        (status.code(), said, wrong)
    };
    let done = || (Some(0), String::new(), String::new());
    let mut shell = Shell::start_with(&url);
    match readying {
        Readying::Makes => {
            let (code, statements, wrong) = init(&[]);
            assert_eq!((code, &*wrong), (Some(0), ""));
            assert!(statements.ends_with('\n'), "{statements}");
            shell.line("leasehold init");
            statements.lines().for_each(|line| _ = shell.sees(line));
            shell.has_ended(0);
            // Printing makes nothing.
            assert_eq!(code_of_a_run(&url), 69);
            shell.line("leasehold init --apply");
            shell.has_ended(0);
            assert_eq!(code_of_a_run(&url), 0);
            assert_eq!(init(&["--apply"]), done());
        }
        Readying::Declares => {
            assert_eq!(init(&[]), done());
            shell.line("leasehold init");
            shell.has_ended(0);
        }
        Readying::Nothing => {
            let (code, said, wrong) = init(&[]);
            assert_eq!((code, &*said), (Some(64), ""));
            assert!(wrong.contains("no guard against lost data"), "{wrong}");
            shell.line("leasehold init");
            shell.sees("no guard against lost data");
            shell.has_ended(64);
        }
    }
    assert_eq!(code_of_a_run(&url), 0);
}

#[track_caller]
fn code_of_a_run(url: &str) -> i32 {
    code(leasehold(url, ["run", "n", "--", "true"]))
}
