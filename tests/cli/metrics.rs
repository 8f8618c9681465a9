//! What Prometheus and the dashboard make of metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::{Client, Config};

use crate::*;
use kit::Server;

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
    let mut promtool = Command::new("promtool");
    let process = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(client.metrics_text().as_bytes()).unwrap();
    let said = process.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].concat();
    assert!(said.status.success() && words.is_empty(), "{}", String::from_utf8_lossy(&words));
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/metrics/alerts.yml");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "--lint=all", "--lint-fatal"]).arg(rules);
    assert!(printed(promtool).contains("7 rules found"));
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
    assert_eq!(rules.len(), 7);
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    drop(prometheus.process);
}
