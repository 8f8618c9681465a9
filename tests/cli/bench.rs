//! `leasehold bench`, as a program that reads its JSON sees it. Nothing here asks how fast
//! anything was.

#![cfg(feature = "cli")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use kit::Server;
use kit::wait::{eventually, eventually_some};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("bench")
        .args(arguments)
        .env_remove("LEASEHOLD_URL")
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_cycle_is_two_commands_and_every_key_is_there() {
    let report = json(&bench(&["--spawn-redis", "--json", "--seconds", "1"]));
    let store = report["store"].as_str().unwrap();
    assert!(store.starts_with("redis://127.0.0.1:"), "{store}");
    let cores = std::thread::available_parallelism().unwrap().get();
    for place in ["same", "cross"] {
        if place == "cross" && cores == 1 {
            assert!(report[place].is_null(), "{report}");
            continue;
        }
        for key in ["rtt_us", "limit_cycle_us", "cycle_us", "cycle_ratio"] {
            assert!(report[place][key].as_f64().unwrap() > 0.0, "{place} {key}: {report}");
        }
        assert_eq!(report[place]["commands_per_cycle"], 2.0, "{place}: {report}");
    }
}

#[test]
fn a_quorum_has_no_bare_limit() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let url = servers.each_ref().map(Server::url).join(",") + "?node_timeout=900ms";
    leasehold::Client::open(&url).unwrap().initialize(false).unwrap();
    let output = bench(&["--store", &url, "--json", "--seconds", "1"]);
    let report = json(&output);
    assert_eq!(report["store"].as_str().unwrap().matches("redis://").count(), 3, "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("one server without TLS"), "{said}");
    let refused = bench(&["--store", &url, "--contended", "2"]);
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
}

#[test]
fn held_leases_are_counted_and_none_is_lost() {
    let arguments =
        ["--spawn-redis", "--json", "--leases", "300", "--hold-seconds", "3", "--ttl", "6s"];
    let report = json(&bench(&arguments));
    assert_eq!(report["leases"], 300, "{report}");
    assert_eq!(report["lost"], 0, "{report}");
    // They fall due after a third of the ttl.
    assert!(report["renewed"].as_u64().unwrap() > 0, "{report}");
    for key in ["bytes_per_lease", "keeper_core_share"] {
        assert!(report.get(key).is_some(), "{report}");
    }
}

#[test]
fn leases_leave_nothing_on_the_server() {
    let server = Server::start();
    let url = format!("{}?prefix=any%7b", server.url());
    json(&bench(&["--store", &url, "--json", "--leases", "1500", "--hold-seconds", "1"]));
    assert_eq!(keys(&server), 0);
}

#[test]
fn a_measurement_that_is_stopped_leaves_the_server_as_it_was() {
    let server = Server::start();
    let before = cores(&server);
    let mut stopped = Stopped(
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["bench", "--seconds", "600", "--store", &server.url()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let started =
        || keys(&server) > 0 && (cores(&server) != before || !before.contains([',', '-']));
    eventually(Duration::from_secs(20), started);
    let pid = Pid::from_raw(i32::try_from(stopped.0.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = eventually_some(Duration::from_secs(20), || stopped.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert_eq!(keys(&server), 0);
    assert_eq!(cores(&server), before);
}

/// A process that does not outlive the test.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn keys(server: &Server) -> i64 {
    match server.cmd(&["DBSIZE"]) {
        redis::Value::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Where the server's main thread may run, as the kernel writes it.
fn cores(server: &Server) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// A program that says how it was started, and that each cycle took it 2.5 µs.
const PROGRAM: &str = r#"#!/bin/sh
(tr '\0' ' ' </proc/$$/cmdline; echo) >"$0.started"
grep Cpus_allowed_list /proc/self/status >>"$0.started"
echo "url $LEASEHOLD_URL" >>"$0.started"
while read -r cycles; do
    printf "%${cycles}s\n" | sed 's/ /2500 /g'
done
echo ended >>"$0.started"
"#;

fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn another_program_takes_turns_and_is_told_the_store_without_showing_its_password() {
    let server = Server::start();
    server.cmd(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), PROGRAM);
    let also = format!("sh={}", program.display());
    let report = json(&bench(&["--store", &url, "--json", "--seconds", "1", "--also", &also]));
    let cores = std::thread::available_parallelism().unwrap().get();
    for place in ["same", "cross"].into_iter().take(cores) {
        let (ours, sh) = (&report[place], &report[place]["also"]["sh"]);
        assert_eq!(sh["cycle_us"], 2.5, "{report}");
        for (key, base) in [("over_ours", "cycle_us"), ("cycle_ratio", "limit_cycle_us")] {
            let ratio = 2.5 / ours[base].as_f64().unwrap();
            assert!((sh[key].as_f64().unwrap() - ratio).abs() < 0.01, "{key}: {report}");
        }
        assert!(ours["cycle_ratio"].as_f64().unwrap() > 0.0, "{report}");
    }
    let started = fs::read_to_string(program.with_extension("started")).unwrap();
    let [command, core, given, end] = started.lines().collect::<Vec<_>>()[..] else {
        panic!("{started}");
    };
    assert!(command.contains(" leasehold-bench:") && !command.contains("hunter2"), "{command}");
    assert!(!core.contains([',', '-']), "{core}");
    assert_eq!(given, format!("url {url}"));
    assert_eq!(end, "ended");
}

#[test]
fn another_program_that_fails_ends_the_measurement_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    for (command, code, reason) in [
        ("other=/no/such/program", 69, "other: it has ended: exit status: 127"),
        ("other=sh -c 'read n; exit 3'", 69, "other: it has ended: exit status: 3"),
        ("other=sh -c 'read n; echo 12; read n'", 69, "other: it answers 1 numbers for 4 cycles"),
        ("other=sh -c 'read n; echo fast; read n'", 69, "other: it answers \"fast\""),
        ("other", 64, "there is no = in it"),
    ] {
        let output = bench(&["--store", &url, "--seconds", "1", "--also", command]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains(reason), "{command}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_cannot_be_measured_is_said_with_its_exit_code() {
    for (arguments, code, reason) in [
        (&["--store", "redis://127.0.0.1:1"][..], 69, "refused"),
        (&["--store", "http://127.0.0.1"], 64, "scheme"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.to_lowercase().contains(reason), "{said}");
    }
}

/// Spawned servers on both kinds of sockets, and waiters of one process each.
#[test]
fn handing_over_has_every_figure_by_the_number_of_waiters() {
    for (socket, scheme) in
        [("--spawn-redis", "redis://127.0.0.1:"), ("--spawn-redis=unix", "unix:")]
    {
        let report = json(&bench(&[socket, "--json", "--seconds", "1", "--contended", "2,4"]));
        assert!(report["store"].as_str().unwrap().starts_with(scheme), "{report}");
        assert!(report["rtt_us"].as_f64().unwrap() > 0.0, "{report}");
        for waiters in ["2", "4"] {
            let figure = |key: &str| {
                let figure = report[key][waiters].as_f64();
                figure.unwrap_or_else(|| panic!("{key} of {waiters}: {report}"))
            };
            assert!(figure("handover_p50_rtt") > 0.0);
            assert!(figure("handover_p99_rtt") >= figure("handover_p50_rtt"));
            // A turn that came from elsewhere was asked for, and had been given back.
            assert!(figure("commands_per_acquisition") >= 2.0, "{report}");
            assert!(figure("max_wait_ratio") > 0.0);
            assert!(figure("most_overtaken_by_one") >= figure("most_overtaken_by_later"));
            let fairness = &report["fairness_max_over_min"][waiters];
            assert!(fairness.is_null() || fairness.as_f64().unwrap() >= 1.0, "{report}");
            let about = &report["waiters"][waiters];
            assert!(about["hold_us"].as_f64().unwrap() >= 1000.0, "{report}");
            assert!(about["turns"].as_u64() > about["handovers"].as_u64(), "{report}");
            assert_eq!(about["errors"], 0, "{report}");
        }
        for threads in ["2", "8"] {
            assert!(report["local_handover_us"][threads].as_f64().unwrap() > 0.0, "{report}");
        }
        assert!(report.get("spin").is_none(), "{report}");
    }
}

#[test]
fn waiters_are_spread_as_asked_and_compared_with_others_that_poll() {
    let server = Server::start();
    let before = cores(&server);
    let url = server.url();
    let spread = ["--contended", "4", "--processes", "3+1", "--where", "apart"];
    let work = ["--hold", "2ms", "--think", "1ms"];
    let mut arguments = vec!["--store", &url, "--json", "--seconds", "1", "--controls"];
    arguments.extend(spread);
    arguments.extend(work);
    let report = json(&bench(&arguments));
    for report in [&report, &report["spin"]] {
        let about = &report["waiters"]["4"];
        assert_eq!(about["processes"], serde_json::json!([3, 1]), "{report}");
        assert!(about["hold_us"].as_f64().unwrap() >= 2000.0, "{report}");
        assert!(about["turns"].as_u64().unwrap() > 0, "{report}");
        assert!(report["max_wait_ratio"]["4"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!(keys(&server), 0);
    assert_eq!(cores(&server), before);
}

#[test]
fn idle_waiters_are_told_by_what_they_cost() {
    let arguments = ["--contended", "6", "--processes", "2", "--idle", "1s", "--json"];
    let server = Server::start();
    let report = json(&bench(&[&["--store", &server.url()][..], &arguments].concat()));
    assert!(report["idle_core_share"]["6"].as_f64().unwrap() >= 0.0, "{report}");
    assert!(report["idle_commands_per_second"]["6"].as_f64().unwrap() >= 0.0, "{report}");
    assert_eq!(keys(&server), 0);
}

#[test]
fn waiting_processes_end_with_the_one_that_started_them() {
    let server = Server::start();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut started = Stopped(
            Command::new(env!("CARGO_BIN_EXE_leasehold"))
                .args(["bench", "--contended", "3", "--seconds", "600", "--store", &server.url()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let parent = started.0.id();
        // Three of one waiter each, and those of 2 and of 8 threads.
        let workers = eventually_some(Duration::from_secs(20), || {
            let children = children(parent);
            (children.len() == 5).then_some(children)
        });
        kill(Pid::from_raw(i32::try_from(parent).unwrap()), signal).unwrap();
        eventually_some(Duration::from_secs(20), || started.0.try_wait().unwrap());
        let ended = || workers.iter().all(|worker| !is_worker(worker));
        eventually(Duration::from_secs(20), ended);
    }
}

fn groups(groups: &str) -> Value {
    json(&bench(&["--spawn-redis", "--json", "--seconds", "1", "--groups", groups]))
}

/// Whether a figure is there and makes sense, wherever it was measured.
#[track_caller]
fn figure(row: &Value, key: &str, makes_sense: impl Fn(f64) -> bool) {
    let cores = std::thread::available_parallelism().unwrap().get();
    for place in ["same", "cross"].into_iter().take(cores) {
        let figure = row[place][key].as_f64();
        assert!(figure.is_some_and(&makes_sense), "{place} {key}: {row}");
    }
}

#[test]
fn a_quorum_is_measured_against_bare_sockets_and_with_one_node_dead() {
    let report = groups("quorum3,quorum5,quorum5_one_dead");
    for row in ["quorum3", "quorum5"] {
        for key in ["limit_acquire_us", "acquire_us", "limit_cycle_us", "cycle_us"] {
            figure(&report[row], key, |figure| figure > 0.0);
        }
        // A second round would be one more.
        figure(&report[row], "scripts_per_node_and_acquire", |scripts| scripts < 1.5);
    }
    for key in ["acquire_us", "one_dead_acquire_us", "one_dead_ratio"] {
        figure(&report["quorum5_one_dead"], key, |figure| figure > 0.0);
    }
}

#[test]
fn a_lock_on_a_cluster_costs_two_commands_too() {
    let report = groups("cluster");
    figure(&report["cluster"], "cycle_ratio", |ratio| ratio > 0.0);
    figure(&report["cluster"], "commands_per_cycle", |commands| commands < 2.5);
}

#[test]
fn with_sentinels_it_is_told_how_long_a_failover_takes_a_waiter() {
    if std::env::var_os("LEASEHOLD_LONG").is_none() {
        return;
    }
    let report = groups("sentinel");
    figure(&report["sentinel"], "cycle_ratio", |ratio| ratio > 0.0);
    let failover = &report["sentinel"]["failover_ms"];
    assert!(failover["p50"].as_f64() <= failover["max"].as_f64(), "{report}");
    assert!(failover["times"].as_u64().unwrap() > 0, "{report}");
}

/// Also those of which one stands still just then.
#[test]
fn servers_of_a_group_end_with_the_bench_that_is_stopped() {
    for (group, count) in [("quorum5_one_dead", 5), ("sentinel", 5)] {
        let mut started = Stopped(
            Command::new(env!("CARGO_BIN_EXE_leasehold"))
                .args(["bench", "--spawn-redis", "--seconds", "600", "--groups", group])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let parent = started.0.id();
        let servers = eventually_some(Duration::from_secs(20), || {
            let children = children(parent);
            (children.len() == count).then_some(children)
        });
        kill(Pid::from_raw(i32::try_from(parent).unwrap()), Signal::SIGINT).unwrap();
        let status = eventually_some(Duration::from_secs(60), || started.0.try_wait().unwrap());
        assert_eq!(status.code(), Some(130), "{group}");
        assert!(!servers.iter().any(|server| is_server(server)), "{group}");
    }
}

fn is_server(process: &str) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("redis-server")
}

fn children(parent: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    text.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn is_worker(process: &str) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).any(|word| word == b"--worker")
}

#[test]
fn waiters_that_cannot_be_measured_are_a_mistake() {
    for (arguments, reason) in [
        (&["--spawn-redis", "--contended", "8", "--processes", "31+1"][..], "32 waiters"),
        (&["--spawn-redis", "--contended", "1"], "1 is not in 2"),
        (&["--store", "sqlite:/tmp/x.db", "--contended", "2"], "redis://"),
        (&["--spawn-redis", "--hold", "1ms"], "--contended"),
        (&["--spawn-redis=pipe"], "tcp, unix"),
        (&["--groups", "quorum5"], "--spawn-redis"),
        (&["--spawn-redis", "--groups", "quorum4"], "quorum3, quorum5"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
