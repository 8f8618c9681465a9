//! Private redis-servers on free loopback ports.

mod files;
mod launch;

pub use files::KeptFile;

use std::env;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use redis::IntoConnectionInfo;
use socket2::Socket;
use tempfile::TempDir;

use self::launch::BUS;
use super::certificates::{Certificates, ServerCertificate};
use super::clocked::{Clock, Offset};
use super::host::keep;
use super::namespace::{Namespace, Place};
use super::process::Process;
use super::watch::{LIMIT, Watch};

/// What a server is started with.
#[derive(Clone, Default)]
pub struct ServerBuilder {
    args: Vec<String>,
    user: Option<String>,
    password: Option<String>,
    unix: bool,
    certificate: Option<ServerCertificate>,
    certificates: Option<Certificates>,
    parent: Option<PathBuf>,
    place: Option<Place>,
    clocked: bool,
    sentinel: Option<String>,
}

impl ServerBuilder {
    /// One option as on the command line: `arg("--maxmemory", "1mb")`.
    pub fn arg(mut self, name: &str, value: &str) -> ServerBuilder {
        if name == "--requirepass" {
            self.password = Some(value.to_owned());
        }
        self.args(&[name, value])
    }

    /// One option of several words: `args(&["--user", "ann", "on", ">secret"])`.
    pub fn args(mut self, words: &[&str]) -> ServerBuilder {
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Only this user is let in; `default` is the one who needs no name.
    pub fn user(mut self, name: &str, password: &str) -> ServerBuilder {
        if name == "default" {
            return self.arg("--requirepass", password);
        }
        (self.user, self.password) = (Some(name.to_owned()), Some(password.to_owned()));
        let secret = format!(">{password}");
        let ours = ["--user", name, "on", &secret, "~*", "&*", "+@all"];
        self.args(&ours).args(&["--user", "default", "off"])
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

    /// The same with certificates that several servers share.
    pub fn tls_with(mut self, certificates: &Certificates) -> ServerBuilder {
        self.certificates = Some(certificates.clone());
        self.tls()
    }

    /// Its clock can be moved: see `Server::shift_clock`.
    pub fn clocked(mut self) -> ServerBuilder {
        self.clocked = true;
        self
    }

    /// Runs in a network of its own, whose cable can be cut.
    pub fn behind(mut self, namespace: &Namespace) -> ServerBuilder {
        self.place = Some(namespace.place());
        self
    }

    /// Is a Sentinel, with these lines in its file.
    pub(super) fn sentinel(mut self, lines: String) -> ServerBuilder {
        self.sentinel = Some(lines);
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
        let made = self.certificates.clone();
        let made = || made.unwrap_or_else(|| Certificates::make(dir.path()));
        let certificates = self.certificate.map(|_| made());
        let clock = self.clocked.then(|| Clock::make(dir.path()));
        let (options, process, kept) = (self, None, Vec::new());
        let mut server =
            Server { options, dir, certificates, clock, port: 0, tls_port: 0, process, kept };
        // A free port can be taken by somebody else before the server has it.
        for _ in 0..20 {
            (server.port, server.tls_port) = launch::two_free_ports();
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
    clock: Option<Clock>,
    port: u16,
    tls_port: u16,
    process: Option<Process>,
    /// Its ports, while it does not run.
    kept: Vec<Socket>,
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

    /// Where it listens; 127.0.0.1 unless it has a network of its own.
    pub fn host(&self) -> Ipv4Addr {
        self.options.place.as_ref().map_or(Ipv4Addr::LOCALHOST, Place::address)
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        self.running().pid()
    }

    /// With the password, if it has one.
    pub fn url(&self) -> String {
        format!("redis://{}{}:{}", self.credentials(), self.host(), self.port)
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
        let ports = [self.port, self.tls_port].into_iter().flat_map(|port| [port, port + BUS]);
        self.kept = ports.filter_map(|port| keep(self.host(), port)).collect();
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Moves the clock of a `clocked` server to this far from the machine's own. Only the wall
    /// clock moves, as when somebody sets it; what measures spans goes on evenly.
    pub fn shift_clock(&self, offset: Offset) {
        self.clock.as_ref().expect("this server was started with clocked()").shift(offset);
    }

    /// After `kill`: on the same port, with the data of the last `save`.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        let start = Instant::now();
        // Before it was kept, somebody's outgoing connection may have been given the port.
        while !self.launch() {
            assert!(start.elapsed() < LIMIT, "port {} is taken by somebody else", self.port);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A plain connection of its own for looking at keys; it gives up after ten seconds. It sends
    /// nothing by itself, since some tests count what a server is asked.
    pub fn connection(&self) -> redis::Connection {
        let info = self.url().into_connection_info().unwrap();
        let quiet = info.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(info.set_redis_settings(quiet)).unwrap();
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
        let mut stream = TcpStream::connect((self.host(), self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        if let Some(password) = &self.options.password {
            let user = self.options.user.as_deref().unwrap_or("default");
            let [user, password] =
                [user, password].map(|word| format!("${}\r\n{word}\r\n", word.len()));
            write!(stream, "*3\r\n$4\r\nAUTH\r\n{user}{password}").unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n", "the password is right");
        }
        stream
    }

    /// Name and password of the only user.
    pub fn login(&self) -> Option<(&str, &str)> {
        let password = self.options.password.as_deref()?;
        Some((self.options.user.as_deref().unwrap_or("default"), password))
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    fn credentials(&self) -> String {
        let [user, password] = [&self.options.user, &self.options.password]
            .map(|word| word.as_deref().map_or(String::new(), encode));
        if password.is_empty() { password } else { format!("{user}:{password}@") }
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
