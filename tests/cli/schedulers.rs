//! What the guides and examples say of cron and systemd, run as those run it.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::*;
use kit::Server;

/// As cron starts them, but for what they run.
#[test]
fn the_lines_for_cron_in_the_guide_run_once_in_their_time() {
    let (server, failing) = (Server::start(), Server::start());
    let home = tempfile::tempdir().unwrap();
    let text = include_str!("../../docs/how-to/once-per-period.md");
    let table = text.split_once("```crontab\n").unwrap().1.split_once("```").unwrap().0;
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let mut jobs = 0;
    for line in table.lines().filter(|line| line.contains("leasehold run")) {
        jobs += 1;
        let words: Vec<_> = line.split_whitespace().skip(5).collect();
        let script = words.iter().find(|word| word.starts_with("/opt/")).unwrap();
        let name = script.strip_prefix("/opt/").unwrap().strip_suffix(".sh").unwrap();
        let cron = |server: &Server, job: &str| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &words.join(" ").replace(script, job)]);
            let path = format!("{}:/usr/bin:/bin", bin.display());
            shell.env_clear().env("PATH", path).env("HOME", home.path());
            shell.env("LEASEHOLD_REQUIRE_URL", "1").env("LEASEHOLD_URL", server.url());
            let ended = shell.output().unwrap();
            let said = [ended.stdout, ended.stderr].concat();
            (ended.status.code(), String::from_utf8(said).unwrap())
        };
        let ran = (Some(0), "ran\n".to_owned());
        assert_eq!(cron(&server, "echo ran"), ran, "{line}");
        let again = if line.contains("--once-per") { (Some(0), String::new()) } else { ran };
        assert_eq!(cron(&server, "echo ran"), again, "{line}");
        let failed = (Some(0), format!("{name}: status 1\n"));
        assert_eq!(cron(&failing, "false"), failed, "{line}");
    }
    assert_eq!(jobs, 3);
}

/// What a unit file of the examples says, and the words of what it starts behind `leasehold`.
fn unit(name: &str) -> (String, Vec<String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/systemd");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/leasehold "));
    let words = start.unwrap().split(' ').map(str::to_owned).collect();
    (text, words)
}

fn started_by(unit: &[String], job: &str, url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let options = unit.iter().take_while(|word| !word.starts_with("/usr/local/bin/"));
    command.args(options).args(["sh", "-c", job]);
    command.env("LEASEHOLD_REQUIRE_URL", "1").env("LEASEHOLD_URL", url);
    command
}

#[test]
fn the_timer_of_the_examples_runs_a_job_once_and_its_other_nodes_do_not_fail() {
    let server = Server::start();
    let (text, words) = unit("nightly.service");
    let node = || started_by(&words, "echo ran", &server.url()).output().unwrap();
    assert_eq!(node().stdout, b"ran\n");
    let other = node();
    assert_eq!((other.status.code(), other.stdout), (Some(93), Vec::new()));
    assert!(text.contains("SuccessExitStatus=93"));
    // A run that is made up for may come when the interval is over, and reach into the next night.
    assert!(!include_str!("../../examples/systemd/nightly.timer").contains("\nPersistent=true"));
}

#[test]
fn the_service_of_the_examples_is_taken_over_by_a_node_that_stands_by() {
    let server = Server::start();
    let (_, words) = unit("worker.service");
    let job = "trap 'exit 0' TERM; echo $LEASEHOLD_FENCE; while :; do sleep 0.05; done";
    let node = || Started::new(started_by(&words, job, &server.url()));
    let fence = |node: &Started| node.lines.recv_timeout(LIMIT).unwrap().parse::<u64>().unwrap();
    let mut active = node();
    let first = fence(&active);
    let mut standby = node();
    until_it_asks(&server);
    // As systemd stops a service with KillMode=mixed.
    active.process.signal(Signal::SIGTERM);
    assert_eq!(active.code(), 0);
    assert!(fence(&standby) > first);
    standby.process.signal(Signal::SIGTERM);
    assert_eq!(standby.code(), 0);
}

#[test]
fn systemd_accepts_the_units_of_the_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/systemd");
    let mut analyze = Command::new("systemd-analyze");
    analyze.arg("verify").args(["worker.service", "nightly.timer"].map(|name| folder.join(name)));
    // Programs that are not installed here are all that it may complain of.
    let Ok(output) = analyze.output() else { return eprintln!("systemd-analyze is missing") };
    let said = String::from_utf8_lossy(&output.stderr);
    let ours = |line: &&str| line.contains("worker.") || line.contains("nightly.");
    for line in said.lines().filter(ours) {
        assert!(line.contains("is not executable"), "{said}");
    }
}
