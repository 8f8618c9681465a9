//! A master, its replicas, and three Sentinels that replace it when it fails.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use redis::Value;

use super::certificates::Certificates;
use super::wait::{eventually, eventually_some};
use super::{Server, ServerBuilder};

const NAME: &str = "mymaster";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// For anything that the group does by itself, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct SentinelBuilder {
    replicas: Option<usize>,
    server: ServerBuilder,
    login: Option<(String, String)>,
    sentinel_login: Option<(String, String)>,
    tls: bool,
}

impl SentinelBuilder {
    /// One, unless another number is given.
    pub fn replicas(mut self, count: usize) -> SentinelBuilder {
        self.replicas = Some(count);
        self
    }

    /// One option for master and replicas.
    pub fn arg(mut self, name: &str, value: &str) -> SentinelBuilder {
        self.server = self.server.arg(name, value);
        self
    }

    /// The servers want this user (`default` for one who is not named), also from Sentinels.
    pub fn login(mut self, user: &str, password: &str) -> SentinelBuilder {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// The Sentinels want this user.
    pub fn sentinel_login(mut self, user: &str, password: &str) -> SentinelBuilder {
        self.sentinel_login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Everybody speaks TLS with everybody. Servers and Sentinels listen without it too, for the
    /// tests' own commands.
    pub fn tls(mut self) -> SentinelBuilder {
        self.tls = true;
        self
    }

    pub fn start(self) -> SentinelGroup {
        let dir = tempfile::Builder::new().prefix("leasehold-sentinel-").tempdir().unwrap();
        let certificates = self.tls.then(|| Certificates::make(dir.path()));
        let mut servers: Vec<Server> = Vec::new();
        for _ in 0..=self.replicas.unwrap_or(1) {
            let mut server = self.server.clone();
            if let Some(certificates) = &certificates {
                server = server.tls_with(certificates).arg("--tls-replication", "yes");
            }
            if let Some((user, password)) = &self.login {
                server = server.user(user, password);
                server = server.arg("--masterauth", password).arg("--masteruser", user);
            }
            // As soon as one asks for data, it gets it.
            server = server.arg("--repl-diskless-sync-delay", "0");
            if let Some(master) = servers.first() {
                let port = spoken(master, self.tls).to_string();
                server = server.args(&["--replicaof", "127.0.0.1", &port]);
            }
            servers.push(server.start());
        }
        let lines = self.lines(spoken(&servers[0], self.tls));
        let sentinels = (0..SENTINELS).map(|_| {
            let mut sentinel = ServerBuilder::default().sentinel(lines.clone());
            if let Some(certificates) = &certificates {
                sentinel = sentinel.tls_with(certificates).arg("--tls-replication", "yes");
            }
            if let Some((user, password)) = &self.sentinel_login {
                sentinel = sentinel.user(user, password);
            }
            sentinel.start()
        });
        let sentinels = sentinels.collect();
        let group = SentinelGroup { servers, sentinels, options: self, _dir: dir };
        group.hasten();
        group.wait_until_ready();
        group
    }

    /// What stands in the file of each Sentinel at the start.
    fn lines(&self, port: u16) -> String {
        let mut lines = vec![
            format!("sentinel monitor {NAME} 127.0.0.1 {port} {QUORUM}"),
            format!("sentinel down-after-milliseconds {NAME} 400"),
            // Half of it is how long a failover that was asked for waits for the promotion; all
            // of it, how long a Sentinel waits before it tries again.
            format!("sentinel failover-timeout {NAME} 3000"),
            format!("sentinel parallel-syncs {NAME} 2"),
        ];
        if let Some((user, password)) = &self.login {
            lines.push(format!("sentinel auth-pass {NAME} {password}"));
            lines.push(format!("sentinel auth-user {NAME} {user}"));
        }
        if let Some((user, password)) = &self.sentinel_login {
            lines.push(format!("sentinel sentinel-user {user}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        lines.join("\n") + "\n"
    }
}

pub struct SentinelGroup {
    /// Any of them may be the master. A test may kill, stop and start each.
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
    options: SentinelBuilder,
    _dir: tempfile::TempDir,
}

impl SentinelGroup {
    pub fn start() -> SentinelGroup {
        SentinelGroup::builder().start()
    }

    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// With the users that servers and Sentinels want, if any.
    pub fn url(&self) -> String {
        self.url_through(&self.sentinels.iter().map(Server::port).collect::<Vec<_>>())
    }

    /// The same by other ports of the Sentinels: of proxies, or of only some.
    pub fn url_through(&self, ports: &[u16]) -> String {
        self.write_url("redis+sentinel", ports)
    }

    /// `rediss+sentinel://`, with the authority that signed all certificates.
    pub fn tls_url(&self) -> String {
        let ports: Vec<_> = self.sentinels.iter().map(Server::tls_port).collect();
        let ca = self.servers[0].certificates().ca();
        let url = self.write_url("rediss+sentinel", &ports);
        let more = if url.contains('?') { '&' } else { '?' };
        format!("{url}{more}ca={}", ca.display())
    }

    /// Of whom most Sentinels say that it is the master; an index into `servers`.
    pub fn master_index(&self) -> Option<usize> {
        let named: Vec<_> =
            self.sentinels.iter().filter(|sentinel| sentinel.is_running()).map(named_by).collect();
        let count = |port| named.iter().filter(|named| **named == Some(port)).count();
        self.servers.iter().position(|server| count(spoken(server, self.options.tls)) >= QUORUM)
    }

    #[track_caller]
    pub fn master(&self) -> &Server {
        let index = eventually_some(LIMIT, || self.master_index());
        &self.servers[index]
    }

    #[track_caller]
    pub fn master_mut(&mut self) -> &mut Server {
        let index = eventually_some(LIMIT, || self.master_index());
        &mut self.servers[index]
    }

    /// All the others, also those that do not run.
    #[track_caller]
    pub fn replicas(&self) -> Vec<&Server> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master).collect()
    }

    /// Hears of every new master from now on.
    pub fn elections(&self) -> Elections {
        let (sender, announcements) = channel();
        let running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        for (index, sentinel) in running.enumerate() {
            let connection = sentinel.connection();
            let (ready, is_ready) = channel();
            let sender = sender.clone();
            std::thread::spawn(move || listen(connection, index, &ready, &sender));
            is_ready.recv().expect("a Sentinel takes subscriptions");
        }
        let numbers = self.servers.iter();
        let ports = numbers.map(|server| spoken(server, self.options.tls)).collect();
        Elections { announcements, ports, heard: Vec::new() }
    }

    /// Makes a replica the master, while the old one lives on; returns when most Sentinels have
    /// announced it and the old one is its replica.
    #[track_caller]
    pub fn fail_over(&self) -> Election {
        // Longer than `failover-timeout`: without an announcement by then it was given up, because
        // the replica was not promoted in time.
        const PATIENCE: Duration = Duration::from_secs(4);
        let (mut elections, start) = (self.elections(), Instant::now());
        let election = loop {
            // Refused while the one before is not over.
            let asked = || self.sentinels[0].try_cmd(&["SENTINEL", "FAILOVER", NAME]).is_ok();
            eventually(LIMIT, || !elections.heard.is_empty() || asked());
            if let Some(election) = elections.next_within(PATIENCE) {
                break election;
            }
            assert!(start.elapsed() < LIMIT, "no new master was announced within {LIMIT:?}");
        };
        self.wait_until_ready();
        election
    }

    /// All Sentinels know each other and the same master, and the data of all replicas that run
    /// is up to date: a failover is possible now.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        let sentinels = || self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        let others = sentinels().count() - 1;
        let replicas = self.servers.iter().filter(|server| server.is_running()).count() - 1;
        eventually(LIMIT, || {
            let Some(master) = self.master_index() else { return false };
            let master = &self.servers[master];
            let agreed = sentinels().all(|sentinel| {
                named_by(sentinel) == Some(spoken(master, self.options.tls))
                    && count(sentinel, "SENTINELS", |_| true) >= others
                    && count(sentinel, "REPLICAS", is_up) >= replicas
            });
            let info = if master.is_running() { master.info("replication") } else { return false };
            let online = info.lines().filter(|line| line.contains("state=online")).count();
            agreed && info.contains("role:master") && online >= replicas
        });
    }

    /// Each Sentinel looks around far more often than by itself, and one that was given no
    /// processor for a while does not keep out of elections because of it. (While a master is down it
    /// hears of replicas once a second, and elects none of which it has not heard for five times the
    /// ping's period: so that is more than a fifth of a second.) Older ones know no such command.
    fn hasten(&self) {
        for sentinel in &self.sentinels {
            #[rustfmt::skip]
            let _ = sentinel.try_cmd(&[
                "SENTINEL", "DEBUG", "info-period", "200", "ping-period", "300",
                "ask-period", "100", "publish-period", "200",
                "tilt-trigger", "60000", "tilt-period", "1000",
            ]);
        }
    }

    fn write_url(&self, scheme: &str, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let login = self.options.login.as_ref();
        let login = login.map_or(String::new(), |(user, password)| match user.as_str() {
            "default" => format!(":{password}@"),
            user => format!("{user}:{password}@"),
        });
        let query = self.options.sentinel_login.as_ref();
        let query = query.map_or(String::new(), |(user, password)| match user.as_str() {
            "default" => format!("?sentinel_password={password}"),
            user => format!("?sentinel_user={user}&sentinel_password={password}"),
        });
        format!("{scheme}://{login}{}/{NAME}{query}", hosts.join(","))
    }
}

/// A new master, and when most Sentinels had announced it.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    /// An index into `servers`.
    pub master: usize,
    pub at: Instant,
}

pub struct Elections {
    announcements: Receiver<(usize, u16, Instant)>,
    ports: Vec<u16>,
    heard: Vec<(usize, u16)>,
}

impl Elections {
    #[track_caller]
    pub fn next(&mut self, limit: Duration) -> Election {
        let election = self.next_within(limit);
        election.unwrap_or_else(|| panic!("no new master was announced within {limit:?}"))
    }

    fn next_within(&mut self, limit: Duration) -> Option<Election> {
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            let (sentinel, port, at) = self.announcements.recv_timeout(left).ok()?;
            self.heard.retain(|(who, _)| *who != sentinel);
            self.heard.push((sentinel, port));
            if self.heard.iter().filter(|(_, named)| *named == port).count() >= QUORUM {
                let master = self.ports.iter().position(|known| *known == port);
                return Some(Election { master: master.expect("a server of this group"), at });
            }
        }
    }
}

/// Until the connection ends or nobody listens.
fn listen(
    mut connection: redis::Connection,
    sentinel: usize,
    ready: &Sender<()>,
    sender: &Sender<(usize, u16, Instant)>,
) {
    connection.set_read_timeout(None).unwrap();
    let mut channel = connection.as_pubsub();
    channel.subscribe("+switch-master").unwrap();
    ready.send(()).unwrap();
    while let Ok(message) = channel.get_message() {
        // mymaster <old host> <old port> <new host> <new port>
        let text: String = message.get_payload().unwrap();
        let port = text.rsplit(' ').next().and_then(|port| port.parse().ok());
        let announcement = (sentinel, port.expect("a port"), Instant::now());
        if sender.send(announcement).is_err() {
            return;
        }
    }
}

fn spoken(server: &Server, tls: bool) -> u16 {
    if tls { server.tls_port() } else { server.port() }
}

fn named_by(sentinel: &Server) -> Option<u16> {
    let answer = sentinel.try_cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
    let (_, port): (String, String) = redis::from_redis_value(answer).ok()?;
    port.parse().ok()
}

type Fields = std::collections::HashMap<String, String>;

/// How many such servers a Sentinel knows.
fn count(sentinel: &Server, what: &str, is_one: impl Fn(&Fields) -> bool) -> usize {
    let answer = sentinel.try_cmd(&["SENTINEL", what, NAME]).unwrap_or(Value::Nil);
    let known: Vec<Fields> = redis::from_redis_value(answer).unwrap_or_default();
    known.iter().filter(|fields| is_one(fields)).count()
}

fn is_up(fields: &Fields) -> bool {
    let is = |name: &str, wanted: &str| fields.get(name).is_some_and(|value| value == wanted);
    is("flags", "slave") && is("master-link-status", "ok")
}
