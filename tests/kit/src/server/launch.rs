//! How a server's process comes to run, and how one knows that it does.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::super::process::Process;
use super::super::watch::LIMIT;
use super::{Place, Server};

/// A cluster's nodes talk at a port that is so much further up.
pub(super) const BUS: u16 = 10_000;
const SENTINEL_FILE: &str = "sentinel.conf";
/// What a server says, and what a Sentinel says.
const READY: [&str; 2] = ["Ready to accept connections", "Sentinel ID is"];

impl Server {
    /// False when the port was taken.
    pub(super) fn launch(&mut self) -> bool {
        let log_path = self.dir.path().join("redis.log");
        let log = File::create(&log_path).unwrap();
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        let mut process = Process::spawn(&mut command);
        let start = Instant::now();
        loop {
            let exited = process.try_wait();
            let log = read_log(&log_path);
            if let Some(status) = exited {
                if log.contains("Address already in use") {
                    return false;
                }
                panic!("{command:?} ended with {status}:\n{log}");
            }
            let ready = READY.iter().any(|line| log.contains(line));
            // Only our own server's log says that it is our own server which answers there.
            if ready && answers((self.host(), self.port)) {
                self.process = Some(process);
                self.kept.clear();
                return true;
            }
            assert!(start.elapsed() < LIMIT * 3, "{command:?} is not ready:\n{log}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self) -> Command {
        let mut command = Place::command(self.options.place.as_ref(), binary());
        command.current_dir(self.dir.path());
        if let Some(lines) = &self.options.sentinel {
            let path = self.dir.path().join(SENTINEL_FILE);
            // It writes into it what it has learnt, and is to know that when it is started again.
            if !path.exists() {
                fs::write(&path, lines).unwrap();
            }
            command.args([SENTINEL_FILE, "--sentinel"]);
        } else if has_debug_switch() {
            command.args(["--enable-debug-command", "yes"]);
        }
        command.args(["--port", &self.port.to_string(), "--bind", &self.host().to_string()]);
        command.args(["--daemonize", "no", "--protected-mode", "no", "--dir", "."]);
        command.args(["--save", "", "--appendonly", "no"]);
        if let Some(clock) = &self.clock {
            clock.wind(&mut command);
        }
        if self.options.unix {
            command.args(["--unixsocket", "redis.sock", "--unixsocketperm", "700"]);
        }
        if let Some(which) = self.options.certificate {
            let (certificate, key) = self.certificates().server(which);
            command.args(["--tls-port", &self.tls_port.to_string()]);
            command.arg("--tls-cert-file").arg(certificate).arg("--tls-key-file").arg(key);
            command.arg("--tls-ca-cert-file").arg(self.certificates().ca());
            command.args(["--tls-auth-clients", "optional"]);
        }
        command.args(&self.options.args);
        command
    }
}

fn binary() -> PathBuf {
    env::var_os("REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Before 7.0 DEBUG was always allowed and there was no option for it.
fn has_debug_switch() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let output = Command::new(binary()).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {:?}: {error}", binary()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_once("v=").map_or("", |(_, rest)| rest);
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.unwrap_or_else(|| panic!("no version in {text:?}")) >= 7
    })
}

/// Both at once, so that they differ.
pub(super) fn two_free_ports() -> (u16, u16) {
    const HIGHEST: u16 = u16::MAX - BUS;
    let mut listeners = Vec::new();
    let mut ports = Vec::new();
    while ports.len() < 2 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        ports.extend(Some(listener.local_addr().unwrap().port()).filter(|port| *port <= HIGHEST));
        listeners.push(listener);
    }
    (ports[0], ports[1])
}

/// PING gets an answer; that it wants a password first is one.
fn answers(address: (Ipv4Addr, u16)) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut reply = [0; 5];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply));
    asked.is_ok() && matches!(&reply, b"+PONG" | b"-NOAU")
}

fn read_log(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
