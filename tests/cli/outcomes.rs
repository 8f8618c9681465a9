//! Who gets the lock, who is turned away, and what is said about it.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::*;
use kit::{Server, Stopwatch, eventually};

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

    first.end_input();
    assert_eq!(first.code(), 7);

    for turn in ["auto", "spin"] {
        let mut first = start(run(&server, &[], "n", &HOLD));
        let mut second = Started::new(run(&server, &["--wait-mode", turn], "n", &["echo", "mine"]));
        until_it_asks(&server);
        assert!(second.process.try_wait().is_none());
        first.end_input();
        assert_eq!(first.code(), 7);
        second.says("mine");
        assert_eq!(second.code(), 0);
        assert!(!is_held(&server, "n"));
    }
}

#[test]
fn without_the_right_to_subscribe_a_wait_asks_again_and_again() {
    let server = Server::start();
    server.cmd(&["ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "-subscribe"]);
    let url = format!("redis://mute:secret@127.0.0.1:{}", server.port());
    let mut first = start(run(&server, &[], "n", &HOLD));
    let mut second = Started::new(leasehold(&url, ["run", "n", "--", "echo", "mine"]));
    until_it_asks(&server);
    first.end_input();
    second.says("mine");
    assert_eq!((first.code(), second.code()), (7, 0));
}

#[test]
fn it_ends_as_the_command_did() {
    let server = Server::start();
    assert_eq!(code(sh(&server, &[], "n", "exit 42")), 42);
    assert_eq!(code(sh(&server, &[], "n", "kill -KILL $$")), 137);
    for (words, said) in [
        (&["--", "./none"][..], "cannot run './none': No such file or directory (os error 2)\n"),
        (
            &["--", "cd /; it's"],
            "(os error 2); for a line of a shell, write sh -c 'cd /; it'\\''s'\n",
        ),
    ] {
        let ended = leasehold(&server.url(), [&["run", "n"], words].concat()).output().unwrap();
        assert_eq!(ended.status.code(), Some(127), "{ended:?}");
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert!(printed.ends_with(said), "{printed}");
    }
    assert_eq!(code(run(&server, &[], "n", &["/etc/passwd"])), 126);
    assert!(!is_held(&server, "n"), "a command that could not be started holds nothing");
    // Only renewal keeps it for so long.
    assert_eq!(code(sh(&server, &["--ttl", "3s"], "n", "sleep 4; exit 3")), 3);
}

#[test]
fn mistakes_are_64_and_trouble_with_the_store_is_69() {
    let server = Server::builder().arg("--requirepass", "hunter2").start();
    for words in [
        &["run", "-n", "-w", "1s", "n", "--", "true"][..],
        &["run", "-w", "soon", "n", "--", "true"],
        &["run", "-E", "256", "n", "--", "true"],
        &["run", "--wait-mode", "left", "n", "--", "true"],
        &["run", "n"],
        // Else a name that is forgotten would have the command's first word stand in for it.
        &["run", "--", "true", "now"],
        &["run", "n", "true"],
        &["run", "", "--", "true"],
        &["run", "--ttl", "50ms", "n", "--", "true"],
        &["run", "--once-per", "367d", "n", "--", "true"],
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
fn only_a_store_with_a_guard_is_initialised() {
    let server = Server::start();
    let mut urls = vec![server.url()];
    let folder = tempfile::tempdir().unwrap();
    if cfg!(feature = "sqlite") {
        urls.push(format!("sqlite://{}/locks.db", folder.path().display()));
    }
    for (url, words) in
        urls.iter().flat_map(|url| [(url, &["init"][..]), (url, &["init", "--force"])])
    {
        let refused = leasehold(url, words).output().unwrap();
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("no guard against lost data"), "{said}");
    }
    for words in [&["init", "--store", "redis://a,redis://b"][..], &["init", "name"]] {
        assert_eq!(code(leasehold(&server.url(), words)), 64, "{words:?}");
    }
}

#[test]
fn the_help_of_every_subcommand_has_examples() {
    let help = printed(leasehold("", ["--help"]));
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<_> = listed.lines().filter_map(|it| it.split_whitespace().next()).collect();
    assert!(
        names.starts_with(&["run", "elect", "show"]) && names.ends_with(&["doctor"]),
        "{names:?}"
    );
    // It is not listed, since only those who make packages need it.
    for name in names.into_iter().chain(["pages"]) {
        for asked in ["-h", "--help"] {
            let help = printed(leasehold("", [name, asked]));
            let examples = help.split("\nExamples:\n").nth(1).unwrap_or_default();
            let examples: Vec<_> = examples.lines().take_while(|it| !it.is_empty()).collect();
            let start = format!("  leasehold {name}");
            assert!(!examples.is_empty(), "{name} {asked}: {help}");
            assert!(examples.iter().all(|line| line.starts_with(&start)), "{examples:?}");
        }
    }
}

#[test]
fn packages_get_manual_pages_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    assert_eq!(code(leasehold("", [OsStr::new("pages"), pages.as_os_str()])), 0);
    for (file, said) in [
        ("leasehold.1", "leasehold\\-run(1)"),
        ("leasehold-run.1", "once\\-per"),
        ("leasehold-watch.1", "leasehold watch nightly"),
        ("leasehold-top.1", "leasehold top \\-\\-sort waiting"),
        ("leasehold.bash", "--once-per"),
        ("leasehold.bash", "turns waiting since ttl name"),
        ("_leasehold", "#compdef leasehold"),
        ("_leasehold", "turns\\:"),
        ("leasehold.fish", "complete -c leasehold"),
        ("leasehold.fish", "__fish_leasehold_using_subcommand watch"),
    ] {
        let text = std::fs::read_to_string(pages.join(file)).unwrap();
        assert!(text.contains(said), "{file}: {text}");
    }
    assert_eq!(code(leasehold("", ["pages", "/proc/none"])), 69);
    assert!(!printed(leasehold("", ["--help"])).contains("pages"));
}

#[test]
fn the_table_of_a_postgres_is_made_when_somebody_says_so() {
    let server = kit::Postgres::shared();
    let url = server.url(&server.database());
    let take = || leasehold(&url, ["run", "n", "--", "true"]);
    let refused = take().output().unwrap();
    assert_eq!(refused.status.code(), Some(69));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("leasehold init --store URL --apply"), "{said}");
    let statements = printed(leasehold(&url, ["init"]));
    assert!(statements.contains("CREATE TABLE IF NOT EXISTS leasehold.lease"), "{statements}");
    assert_eq!(code(take()), 69, "printing makes nothing");
    assert_eq!(printed(leasehold(&url, ["init", "--apply"])), "");
    assert_eq!(code(take()), 0);
    assert_eq!(code(leasehold(&url, ["init", "--apply"])), 0);
    assert_eq!(code(leasehold("redis://127.0.0.1", ["init", "--apply"])), 64);
}

#[test]
fn a_postgres_is_known_by_the_authorities_that_this_machine_trusts() {
    let dir = tempfile::tempdir().unwrap();
    let [ours, others] = ["ours", "others"].map(|name| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        kit::Certificates::make(&folder)
    });
    let server = kit::Postgres::start();
    let (certificate, key) = ours.server(kit::ServerCertificate::Good);
    server.show_certificate(&certificate, &key);
    let url = format!("{}?sslrootcert=system", server.url(&server.database()));
    let init = |trusted: &kit::Certificates| {
        leasehold(&url, ["init", "--apply"]).env("SSL_CERT_FILE", trusted.ca()).output().unwrap()
    };
    let refused = init(&others);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("by no authority that is trusted here"), "{said}");
    assert!(init(&ours).status.success());
}

#[test]
fn new_servers_grant_once_they_are_initialised() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let quorum = servers.each_ref().map(Server::url).join(",");
    let alone = Server::start();
    for url in [quorum, format!("{}?guard_data_loss=yes", alone.url())] {
        for _ in 0..2 {
            assert_eq!(printed(leasehold(&url, ["init"])), "");
        }
        assert_eq!(printed(leasehold(&url, ["run", "n", "--", "echo", "ran"])), "ran\n");
    }

    let late = Server::start();
    let url = format!("{}?guard_data_loss=yes", late.url());
    let refused = leasehold(&url, ["run", "-n", "n", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("leasehold init --force ends the wait"), "{said}");
    let refused = leasehold(&url, ["init"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("if it has never granted a lock, leasehold init --force"), "{said}");
    assert_eq!(code(leasehold(&url, ["init", "--force"])), 0);
    assert_eq!(printed(leasehold(&url, ["run", "-n", "n", "--", "echo", "ran"])), "ran\n");
}

#[test]
fn a_command_runs_while_most_servers_of_a_quorum_are_there() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let url = servers.each_ref().map(Server::url).join(",");
    assert_eq!(printed(leasehold(&url, ["init"])), "");
    let mut holder = start(leasehold(&url, [&["run", "n", "--"][..], &HOLD].concat()));
    servers[1].kill();
    let shown = printed(leasehold(&url, ["show", "n"]));
    assert!(shown.starts_with("n: held by "), "{shown}");
    assert_eq!(code(leasehold(&url, ["run", "--try", "n", "--", "echo", "ran"])), 1);
    holder.end_input();
    assert_eq!(holder.code(), 7);
    assert_eq!(printed(leasehold(&url, ["run", "n", "--", "echo", "ran"])), "ran\n");
    servers[2].kill();
    let refused = leasehold(&url, ["run", "--try", "n", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1 of 3 servers"), "{refused:?}");
}

#[test]
fn a_ttl_out_of_bounds_is_told_those_that_count() {
    let server = Server::start();
    let url = format!("{}?max_ttl=1s", server.url());
    for (options, ttl) in [
        (&["--ttl", "2s"][..], "2 s"),
        (&["--once-per", "1h"], "1 h"),
        (&[], "30 s"),
        (&["--ttl", "1ms"], "1 ms"),
        (&["--ttl", "99ms"], "99 ms"),
    ] {
        let words = [&["run"], options, &["n", "--", "echo", "ran"]].concat();
        let refused = leasehold(&url, words).output().unwrap();
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        let bounds = format!(
            "the ttl, with renewal, is {ttl}; it goes from 100 ms to 1 s, this store's max_ttl"
        );
        assert!(said.contains(&bounds) && refused.stdout.is_empty(), "{said}");
        let asked = ttl.replace(' ', "");
        let advice = format!("; for more, all programs need ?max_ttl={asked} in the URL");
        assert_eq!(said.contains(&advice), !ttl.ends_with("ms"), "{said}");
    }
    let words = ["run", "--ttl", "1s", "n", "--", "echo", "ran"];
    assert_eq!(printed(leasehold(&url, words)), "ran\n");
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
            "last_fence": null, "held_ms": null, "client": null, "waiters": [], "more_waiters": 0
        })
    );
    let url = format!("{}?label=nightly%20run", server.url());
    let mut holder = start(leasehold(&url, [&["run", "n", "--"], &HOLD[..]].concat()));
    eventually(LIMIT, || json()["client"].is_object());
    let held = json();
    let (fence, token) = (held["fence"].as_u64().unwrap(), held["token_prefix"].as_str().unwrap());
    let client = &held["client"];
    let texts = ["id", "program", "language", "label"].map(|key| client[key].as_str().unwrap());
    assert_eq!(texts, [&token[..12], "sh", "shell", "nightly run"]);
    assert_eq!(client["pid"].as_i64(), Some(holder.process.pid().as_raw().into()));
    let host = client["host"].as_str().unwrap();
    assert!(held["held_ms"].as_u64().unwrap() < 20_000, "{held}");
    assert!(client["started_ms"].as_u64().unwrap() > 1_700_000_000_000, "{held}");
    assert_eq!((held["held"].as_bool(), held["last_fence"].as_u64()), (Some(true), Some(fence)));
    assert!((1..=30_000).contains(&held["ttl_ms"].as_u64().unwrap()), "{held}");
    let said = show(&[]);
    let pid = client["pid"].as_i64().unwrap();
    let who = format!("n: held by {host} (shell sh, pid {pid}, label nightly run) since ");
    assert!(said.starts_with(&who), "{said}");
    let what = format!(", fence {fence}, client {}, free in ", &token[..12]);
    assert!(said.contains(&what) && said.ends_with(" unless renewed\n"), "{said}");

    // And who waits, in order.
    let mut waiting = Vec::new();
    for place in 1..=2 {
        waiting.push(Started::new(run(&server, &[], "n", &HOLD)));
        eventually(LIMIT, || json()["waiters"].as_array().unwrap().len() == place);
    }
    let pids = || {
        let waiters = json()["waiters"].as_array().unwrap().clone();
        waiters.iter().map(|one| one["client"]["pid"].as_i64()).collect::<Vec<_>>()
    };
    let pid_of = |started: &Started| Some(i64::from(started.process.pid().as_raw()));
    let expected: Vec<_> = waiting.iter().map(pid_of).collect();
    eventually(LIMIT, || pids() == expected);
    let said = show(&[]);
    for (line, place) in said.lines().skip(1).zip(1..) {
        let who = format!("{place}. waits: {host} (shell sh, pid ");
        assert!(line.starts_with(&who) && line.contains(") since "), "{said}");
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    waiting.iter().for_each(|started| started.process.signal(Signal::SIGTERM));
    eventually(LIMIT, || pids().is_empty());
    holder.end_input();
    holder.code();
    assert_eq!(show(&[]), format!("n: free, last fence {fence}\n"));

    // What is no lock of ours keeps its value to itself.
    for value in ["hunter2 is my password", "0123456789abcdef0123456789abcdef"] {
        server.cmd(&["SET", "n", value, "PX", "60000"]);
        let said = "n: held without a fence: an application's own key, another library's lock, \
                    or one that was left taken for more than a day, ";
        assert!(show(&[]).starts_with(said), "{}", show(&[]));
        assert_eq!((json()["held"].as_bool(), json()["token_prefix"].as_str()), (Some(true), None));
    }
    server.cmd(&["SET", "n", "hunter2"]);
    let refused = leasehold(&server.url(), ["show", "n"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("the name is in use by something that is not a lease: 'n'"), "{said}");
    assert!(!said.contains("hunter2") && refused.status.code() == Some(69), "{said}");
    server.cmd(&["DEL", "n"]);

    // A reader that has seen enough is no failure.
    let mut show = leasehold(&server.url(), ["show", "n"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(show.stdout(writer).status().unwrap().code(), Some(0));
}

#[test]
fn once_per_interval_leaves_it_taken() {
    let server = Server::start();
    let once = || run(&server, &["--once-per", "4s"], "n", &["echo", "ran"]);
    let watch = Stopwatch::start();
    let slow = "sleep 2; echo ran";
    assert_eq!(printed(sh(&server, &["--once-per", "4s"], "n", slow)), "ran\n");
    assert_eq!(code(once()), 1);
    // The interval counts from when the lock was taken, not from the end of the command.
    assert!(is_held(&server, "n"));
    eventually(LIMIT, || !is_held(&server, "n"));
    watch.assert_at_least(ms(3990));
    watch.assert_at_most(ms(4000), ms(1500));
    assert_eq!(printed(once()), "ran\n");
    // With --wait it waits for the next interval.
    let watch = Stopwatch::start();
    let waiting = run(&server, &["--once-per", "4s", "-w", "20s"], "n", &["echo", "ran"]);
    assert_eq!(printed(waiting), "ran\n");
    watch.assert_at_least(ms(2000));
    // A command that takes longer than its interval leaves nothing.
    assert_eq!(code(sh(&server, &["--once-per", "3s"], "m", "sleep 3.5")), 0);
    assert!(!is_held(&server, "m"));
    assert_eq!(code(run(&server, &["--once-per", "1h"], "m", &["./no-such-command"])), 127);
    assert!(!is_held(&server, "m"));
}

#[test]
fn an_interval_may_be_a_week_or_a_year() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let mut urls = vec![server.url(), format!("{}?guard_data_loss=yes&max_ttl=366d", server.url())];
    if cfg!(feature = "sqlite") {
        urls.push(format!("sqlite://{}/locks.db", folder.path().display()));
    }
    for (url, interval, left) in
        urls.iter().flat_map(|url| [(url, "7d", 7 * 24), (url, "366d", 366 * 24)])
    {
        server.cmd(&["FLUSHALL"]);
        let name = format!("{interval} in {url}");
        let once = || leasehold(url, ["run", "--once-per", interval, &name, "--", "echo", "ran"]);
        if url.contains("guard") {
            assert_eq!(code(leasehold(url, ["init", "--force"])), 0);
        }
        assert_eq!(printed(once()), "ran\n");
        assert_eq!(code(once()), 1, "{name}");
        let shown = printed(leasehold(url, ["show", &name]));
        assert!(shown.contains(&format!("free in {}h", left - 1)), "{shown}");
    }
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
