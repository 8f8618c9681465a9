//! The metrics of a run in a file, and what Prometheus and the dashboard make of metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::{Client, Config};

use crate::*;
use kit::Server;

fn with_file(server: &Server, file: &Path, options: &[&str], name: &str, script: &str) -> Command {
    let file = ["--metrics-file", file.to_str().unwrap()];
    sh(server, &[&file, options].concat(), name, script)
}

/// The value of a series, whose labels are given as they stand there.
fn value(file: &Path, series: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn a_run_leaves_its_metrics_in_a_file() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.prom");
    assert_eq!(code(with_file(&server, &file, &[], "nightly", "exit 7")), 7);
    let of =
        |name: &str| value(&file, &format!("leasehold_{name}{{lock=\"nightly\",run=\"backup\"}}"));
    assert_eq!(of("hold_seconds_count"), Some(1.0));
    assert_eq!(of("held"), Some(0.0));
    assert_eq!(of("run_exit_status"), Some(7.0));
    assert!(of("run_end_timestamp_seconds") >= of("run_start_timestamp_seconds"));
    assert!(of("run_start_timestamp_seconds") > Some(1.7e9));
    // Nothing else is left, and the collector, another user, can read it.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o044, 0o044);

    // Another job under the same lock has other series, and a lock that is taken is told, too.
    let other = folder.path().join("re\"port.prom");
    let mut holder = start(run(&server, &[], "nightly", &HOLD));
    assert_eq!(code(with_file(&server, &other, &["--try", "-E", "9"], "nightly", "true")), 9);
    let labels = "{lock=\"nightly\",run=\"re\\\"port\"";
    let busy = format!("leasehold_acquisitions_total{labels},outcome=\"busy\"}}");
    assert_eq!(value(&other, &busy), Some(1.0));
    assert_eq!(value(&other, &format!("leasehold_run_exit_status{labels}}}")), Some(9.0));
    let text = fs::read_to_string(&other).unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    assert!(series.clone().count() > 80 && series.clone().all(|line| line.contains(labels)));
    holder.end_input();
    holder.code();
}

#[test]
fn the_file_is_there_while_the_command_runs_and_while_it_waits() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.prom", "second.prom"].map(|name| folder.path().join(name));
    let [one, two] = [&first, &second]
        .map(|path| ["--metrics-file".to_owned(), path.to_str().unwrap().to_owned()]);
    let mut holder = start(run(&server, &[&one[0], &one[1]], "n", &HOLD));
    let mut waiter = Started::new(run(&server, &[&two[0], &two[1]], "n", &HOLD));
    eventually(LIMIT, || first.exists() && second.exists());
    let text = fs::read_to_string(&second).unwrap();
    assert!(!text.contains("run_exit_status") && text.contains("leasehold_run_written_timestamp"));
    holder.end_input();
    assert_eq!(holder.code(), 7);
    waiter.says("ready");
    waiter.end_input();
    assert_eq!(waiter.code(), 7);
    assert_eq!(
        value(&second, "leasehold_wait_seconds_count{lock=\"n\",run=\"second\"}"),
        Some(1.0)
    );
}

#[test]
fn a_file_that_cannot_be_written_keeps_no_command_from_running() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder.prom")).unwrap();
    for (path, why) in
        [("none/job.prom", "No such file"), ("folder.prom", "Is a directory"), ("..", "")]
    {
        let path = folder.path().join(path);
        let ended = with_file(&server, &path, &[], "n", "echo ran").output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(0), &b"ran\n"[..]), "{said}");
        assert!(said.starts_with("leasehold: the metrics cannot be written to "), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A Prometheus that looks each second at what this program serves.
struct Prometheus {
    process: Process,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: u16) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/metrics/alerts.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{job_name: shop, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n",
            rules.display()
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stderr(Stdio::null());
        Prometheus { process: Process::spawn(&mut command), port, _folder: folder }
    }

    /// None while it does not answer.
    fn ask(&self, path: &str) -> Option<serde_json::Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        assert!(!head.contains(" 400 "), "{path}: {body}");
        serde_json::from_str(body).ok()
    }

    /// How many series an expression has, and whether one of them is a number.
    fn query(&self, expression: &str) -> (usize, bool) {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(answer) = self.ask(&format!("/api/v1/query?query={escaped}")) else {
            return (0, false);
        };
        let series = answer["data"]["result"].as_array().unwrap();
        let is_number = |one: &serde_json::Value| one["value"][1].as_str() != Some("NaN");
        (series.len(), series.iter().any(is_number))
    }
}

/// Serves the metrics of a client, as the example does.
fn serve(client: &Client) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, client) = (listener.local_addr().unwrap().port(), client.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            // One read has the whole of a request so short.
            let _ = stream.read(&mut request);
            let body = client.metrics_text();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    port
}

/// What panels and variables ask, as Grafana would send it with "All" for each variable.
fn expressions(dashboard: &serde_json::Value) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables: Vec<_> = variables.filter(|variable| variable["type"] == "query").collect();
    let mut asked: Vec<_> = variables
        .iter()
        .map(|variable| {
            let query = text(&variable["query"]["query"]);
            let values = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
            let (series, label) = values.unwrap().rsplit_once(", ").unwrap();
            // Nothing is left of series that lack the label.
            let values = format!("group by ({label}) ({series}) unless group({series})");
            (text(&variable["label"]), values)
        })
        .collect();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for panel in panels.filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        asked.extend(targets.iter().map(|it| (text(&panel["title"]), text(&it["expr"]))));
    }
    for (_, asked) in &mut asked {
        for variable in &variables {
            *asked = asked.replace(&format!("${}", text(&variable["name"])), ".+");
        }
        for span in ["$__rate_interval", "$__range"] {
            *asked = asked.replace(span, "10s");
        }
        assert!(!asked.contains('$'), "{asked}");
    }
    asked
}

/// Whether Debian's `prometheus` is here, as tests/run has it.
fn has_prometheus() -> bool {
    let asked = Command::new("promtool").arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success()) || {
        assert!(std::env::var_os("KIT_PROMETHEUS").is_none(), "prometheus is missing");
        eprintln!("prometheus is not installed: not judged");
        false
    }
}

#[test]
fn prometheus_has_no_complaint_about_the_text_nor_about_the_rules() {
    if !has_prometheus() {
        return;
    }
    let server = Server::start();
    let config = Config::from_url(&server.url()).unwrap().metrics_group("a\"b\\c*");
    let client = Client::with_config(config).unwrap();
    client.lock("a\"b\\cd").acquire().unwrap().release().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.prom");
    assert_eq!(code(with_file(&server, &file, &[], "n", "true")), 0);
    for text in [client.metrics_text(), fs::read_to_string(&file).unwrap()] {
        let mut promtool = Command::new("promtool");
        let process = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let said = process.wait_with_output().unwrap();
        let words = [said.stdout, said.stderr].concat();
        assert!(said.status.success() && words.is_empty(), "{}", String::from_utf8_lossy(&words));
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/metrics/alerts.yml");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "--lint=all", "--lint-fatal"]).arg(rules);
    assert!(printed(promtool).contains("9 rules found"));
}

/// What each of them ended with and how its call for the lock went, and which alarm comes of it.
const RUNS: [(&str, u8, &str, bool); 6] = [
    ("well", 0, "granted", false),
    ("fails", 1, "granted", true),
    ("loser", 93, "busy", false),
    ("late", 1, "timed_out", false),
    ("storeless", 69, "failed", true),
    ("lost", 75, "granted", true),
];

#[test]
fn a_run_that_failed_is_an_alarm_and_one_that_found_the_lock_taken_is_none() {
    if !has_prometheus() {
        return;
    }
    let (mut series, mut alarms) = (String::new(), String::new());
    for (run, status, ended, is_alarm) in RUNS {
        let labels = format!("lock=\"n\",run=\"{run}\"");
        let mut add = |series_of: &str, value: u8| {
            series += &format!("  - {{series: '{series_of}', values: '{value}'}}\n");
        };
        add(&format!("leasehold_run_exit_status{{{labels}}}"), status);
        for outcome in ["granted", "busy", "timed_out", "failed"] {
            let name = "leasehold_acquisitions_total";
            add(&format!("{name}{{{labels},outcome=\"{outcome}\"}}"), (outcome == ended).into());
        }
        if is_alarm {
            alarms += &format!(
                "    - exp_labels: {{severity: warning, lock: n, run: {run}}}\n      \
                 exp_annotations: {{summary: 'The last run of {run} on  ended with {status}'}}\n"
            );
        }
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/metrics/alerts.yml");
    let text = format!(
        "rule_files: ['{}']\ntests:\n- interval: 1m\n  input_series:\n{series}  alert_rule_test:\n  \
         - alertname: RunFailed\n    eval_time: 1m\n    exp_alerts:\n{alarms}",
        rules.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.yml");
    fs::write(&file, text).unwrap();
    let mut promtool = Command::new("promtool");
    let said = promtool.args(["test", "rules"]).arg(file).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn every_panel_and_variable_of_the_dashboard_has_data_and_a_lost_lease_is_an_alarm() {
    if !has_prometheus() {
        return;
    }
    let server = Server::start();
    let config = Config::from_url(&server.url()).unwrap().metrics_group("stock:*");
    let client = Client::with_config(config).unwrap();
    let prometheus = Prometheus::start(serve(&client));
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../examples/metrics/dashboard.json")).unwrap();
    let asked = expressions(&dashboard);
    assert!(asked.len() >= 18, "{asked:?}");
    let lock = client.lock("stock:1").ttl(ms(300));
    let mut empty = asked.clone();
    eventually(LIMIT * 6, || {
        // Something of everything: a turn with a renewal, a wait that runs out, a loss. On a machine
        // that stands still it may go another way, and then the next round brings it.
        let held = lock.acquire().unwrap();
        drop(lock.try_acquire());
        drop(client.lock("stock:1").acquire_within(ms(200)));
        drop(held);
        let lost = client.lock("n").ttl(ms(20)).acquire().unwrap();
        eventually(LIMIT, || !lost.is_valid());
        drop(lost);
        empty.retain(|(_, expression)| !prometheus.query(expression).1);
        empty.is_empty()
    });
    let label = "count by (lock) (leasehold_held{job=\"shop\"})";
    assert_eq!(prometheus.query(label).0, 2, "one for the group, and one for the rest");
    let is_alarmed = || {
        let alerts = prometheus.ask("/api/v1/alerts")?["data"]["alerts"].clone();
        let is_it = |one: &serde_json::Value| one["labels"]["alertname"] == "LeaseLost";
        alerts.as_array().map(|alerts| alerts.iter().any(is_it))
    };
    eventually(LIMIT * 3, || is_alarmed() == Some(true));
    // The server of Debian loads the rules without an error, each of them.
    let rules = prometheus.ask("/api/v1/rules").unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert_eq!(rules.len(), 9);
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    drop(prometheus.process);
}
