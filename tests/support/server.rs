//! Private redis-servers on free loopback ports.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempDir;

use super::certificates::{Certificates, ServerCertificate};
use super::process::Process;
use super::watch::{LIMIT, Watch};

/// What a server is started with.
#[derive(Default)]
pub struct ServerBuilder {
    args: Vec<(String, String)>,
    password: Option<String>,
    unix: bool,
    certificate: Option<ServerCertificate>,
    parent: Option<PathBuf>,
}

impl ServerBuilder {
    /// One option as on the command line: `arg("--maxmemory", "1mb")`.
    pub fn arg(mut self, name: &str, value: &str) -> ServerBuilder {
        if name == "--requirepass" {
            self.password = Some(value.to_owned());
        }
        self.args.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens on a unix socket too.
    pub fn unix(mut self) -> ServerBuilder {
        self.unix = true;
        self
    }

    /// Listens for TLS on a second port too.
    pub fn tls(self) -> ServerBuilder {
        self.tls_showing(ServerCertificate::Good)
    }

    pub fn tls_showing(mut self, certificate: ServerCertificate) -> ServerBuilder {
        self.certificate = Some(certificate);
        self
    }

    /// Puts its directory into this one, which outlives a process that is killed.
    pub fn inside(mut self, parent: &Path) -> ServerBuilder {
        self.parent = Some(parent.to_owned());
        self
    }

    pub fn start(self) -> Server {
        let parent = self.parent.clone().unwrap_or_else(env::temp_dir);
        let dir = tempfile::Builder::new().prefix("leasehold-redis-").tempdir_in(parent).unwrap();
        let certificates = self.certificate.map(|_| Certificates::make(dir.path()));
        let mut server =
            Server { options: self, dir, certificates, port: 0, tls_port: 0, process: None };
        // A free port can be taken by somebody else before the server has it.
        for _ in 0..20 {
            (server.port, server.tls_port) = two_free_ports();
            if server.launch() {
                return server;
            }
        }
        panic!("no port stayed free long enough for a server");
    }
}

/// A running redis-server; dropping it kills it and removes its files.
pub struct Server {
    options: ServerBuilder,
    dir: TempDir,
    certificates: Option<Certificates>,
    port: u16,
    tls_port: u16,
    process: Option<Process>,
}

impl Server {
    pub fn start() -> Server {
        Server::builder().start()
    }

    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn tls_port(&self) -> u16 {
        assert!(self.certificates.is_some(), "this server was started without tls()");
        self.tls_port
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        self.running().pid()
    }

    /// With the password, if it has one.
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// The same for a proxy that listens on `port`.
    pub fn url_through(&self, port: u16) -> String {
        format!("redis://{}127.0.0.1:{port}", self.credentials())
    }

    pub fn unix_url(&self) -> String {
        assert!(self.options.unix, "this server was started without unix()");
        let path = self.dir.path().join("redis.sock");
        let password = self.options.password.as_deref().map(encode);
        let query = password.map_or(String::new(), |password| format!("?password={password}"));
        format!("unix://{}{query}", path.display())
    }

    /// `rediss://`, with the authority that signed the server's certificate.
    pub fn tls_url(&self) -> String {
        let ca = self.certificates().ca();
        format!("rediss://{}127.0.0.1:{}?ca={}", self.credentials(), self.tls_port, ca.display())
    }

    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("this server was started with tls()")
    }

    /// SIGSTOP: connections are still accepted, by the kernel, and nothing is answered.
    pub fn stop(&self) {
        self.running().stop();
    }

    pub fn cont(&self) {
        self.running().cont();
    }

    /// SIGKILL. Connecting is refused until `start_again`.
    pub fn kill(&mut self) {
        self.process.take().expect("the server runs").kill();
    }

    /// After `kill`: on the same port, with the data of the last `save`.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        let start = Instant::now();
        // Somebody's outgoing connection may have been given the port for a moment.
        while !self.launch() {
            assert!(start.elapsed() < LIMIT, "port {} is taken by somebody else", self.port);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn save(&self) {
        self.cmd(&["SAVE"]);
    }

    pub fn restart_with_data(&mut self) {
        self.save();
        self.kill();
        self.start_again();
    }

    pub fn restart_empty(&mut self) {
        self.kill();
        // Absent unless somebody saved.
        let _ = fs::remove_file(self.dir.path().join("dump.rdb"));
        self.start_again();
    }

    /// A plain connection of its own for looking at keys; it gives up after ten seconds.
    pub fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).unwrap();
        let connection = client.get_connection_with_timeout(LIMIT).expect("the server answers");
        connection.set_read_timeout(Some(LIMIT)).unwrap();
        connection.set_write_timeout(Some(LIMIT)).unwrap();
        connection
    }

    /// One command on a new connection: `cmd(&["SET", "key", "value"])`.
    #[track_caller]
    pub fn cmd(&self, words: &[&str]) -> redis::Value {
        self.try_cmd(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub fn try_cmd(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.connection())
    }

    pub fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]);
    }

    /// How often a command was called, by clients and by scripts together; `"evalsha"`, or
    /// `"client|list"` for a subcommand. See `watch` for what clients alone sent.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats");
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    pub fn info(&self, section: &str) -> String {
        redis::cmd("INFO").arg(section).query(&mut self.connection()).unwrap()
    }

    /// From now on sees every command that clients send.
    pub fn watch(&self) -> Watch<'_> {
        Watch::start(self)
    }

    /// A socket that has logged in and knows no more of the protocol.
    pub fn bare_connection(&self) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        if let Some(password) = &self.options.password {
            write!(stream, "*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len()).unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n", "the password is right");
        }
        stream
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    fn credentials(&self) -> String {
        let password = self.options.password.as_deref().map(encode);
        password.map_or(String::new(), |password| format!(":{password}@"))
    }

    /// False when the port was taken.
    fn launch(&mut self) -> bool {
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
            // Only our own server's log says that it is our own server which answers there.
            if log.contains("Ready to accept connections") && answers(self.port) {
                self.process = Some(process);
                return true;
            }
            assert!(start.elapsed() < LIMIT * 3, "{command:?} is not ready:\n{log}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.dir.path()).args(["--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--dir", "."]);
        command.args(["--save", "", "--appendonly", "no"]);
        if has_debug_switch() {
            command.args(["--enable-debug-command", "yes"]);
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
        for (name, value) in &self.options.args {
            command.args([name, value]);
        }
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
fn two_free_ports() -> (u16, u16) {
    let [first, second] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    (first.local_addr().unwrap().port(), second.local_addr().unwrap().port())
}

/// PING gets an answer; that it wants a password first is one.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut reply = [0; 5];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply));
    asked.is_ok() && matches!(&reply, b"+PONG" | b"-NOAU")
}

fn read_log(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
