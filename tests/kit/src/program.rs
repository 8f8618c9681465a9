//! `kit`, for those who do not write in Rust: starts servers and ends them with its standard input.

use std::env;
use std::io::{self, BufRead, Write};
use std::process::{Command, ExitCode};

use super::{Cluster, End, Etcd, Mode, Mysql, Postgres, Proxy, SentinelGroup, Server, Zookeeper};

const USAGE: &str = "\
usage: kit redis [OPTION OF redis-server]... [-- COMMAND...]
       kit sentinel [-- COMMAND...]
       kit cluster [-- COMMAND...]
       kit postgres [-- COMMAND...]
       kit mysql [-- COMMAND...]
       kit zookeeper [-- COMMAND...]
       kit etcd [-- COMMAND...]
       kit proxy PORT

Starts a Redis; or a master, a replica and three Sentinels; or a Cluster of three; or a PostgreSQL
or MariaDB with an empty database; or an empty ZooKeeper or etcd; or a proxy in front of the server at
a port. Prints `url=URL ports=PORT,PORT...` once that is ready, the ports of the Sentinels after those
of master and replica.

With a COMMAND, runs it, with the URL as LEASEHOLD_URL, and ends as it does. Without one, obeys the
lines of its standard input, answers each with `ok` or `error: REASON`, and ends with the input,
which is also when the process ends that started it, or at the line `stop`.

  pause N, resume N   the server at the Nth port, from 0 on, which is meant without a number too,
                      stands still, goes on
  kill N, restart N   it is killed; it runs again, empty, on the same port
  fail-over           another server becomes the Sentinels' master
  pass, silent, swallow-replies, lose-reply, hold-requests, deliver, refuse, close
                      what the proxy does; see `Mode`

REDIS_SERVER names another server program than the redis-server in PATH.
";

pub fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let mut halves = words.splitn(2, |word| word == "--");
    let what: Vec<&str> = halves.next().unwrap_or_default().iter().map(String::as_str).collect();
    let Some(mut started) = start(&what) else {
        eprint!("{USAGE}");
        return ExitCode::from(64);
    };
    match halves.next() {
        Some([program, arguments @ ..]) => {
            let mut command = Command::new(program);
            let status = command.args(arguments).env("LEASEHOLD_URL", started.url()).status();
            let code = status.ok().and_then(|status| status.code());
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125))
        }
        _ => {
            serve(&mut started, io::stdin().lock(), io::stdout().lock());
            ExitCode::SUCCESS
        }
    }
}

/// What the program has started. Dropping it ends all of it.
pub(crate) enum Started {
    Redis(Box<Server>),
    Sentinel(Box<SentinelGroup>),
    Cluster(Cluster),
    /// And its database.
    Postgres(Postgres, String),
    Mysql(Mysql, String),
    /// And a path in it.
    Zookeeper(Zookeeper, String),
    Etcd(Etcd),
    Proxy(Proxy),
}

/// None if that is nothing that can be started.
pub(crate) fn start(what: &[&str]) -> Option<Started> {
    Some(match what {
        ["redis", options @ ..] => {
            Started::Redis(Box::new(Server::builder().args(options).start()))
        }
        ["sentinel"] => Started::Sentinel(Box::new(SentinelGroup::start())),
        ["cluster"] => Started::Cluster(Cluster::start()),
        ["postgres"] => {
            let server = Postgres::start();
            let database = server.database();
            Started::Postgres(server, database)
        }
        ["mysql"] => {
            let server = Mysql::start();
            let database = server.database();
            Started::Mysql(server, database)
        }
        ["zookeeper"] => {
            let server = Zookeeper::start();
            let chroot = server.chroot();
            Started::Zookeeper(server, chroot)
        }
        ["etcd"] => Started::Etcd(Etcd::start()),
        ["proxy", port] => Started::Proxy(Proxy::start(port.parse().ok()?)),
        _ => return None,
    })
}

/// Until the input ends. If nobody reads the output any more, it ends too.
pub(crate) fn serve(started: &mut Started, input: impl BufRead, mut output: impl Write) {
    let mut say = |line: String| writeln!(output, "{line}").and_then(|()| output.flush()).is_ok();
    let ports: Vec<_> = started.ports().iter().map(u16::to_string).collect();
    if !say(format!("url={} ports={}", started.url(), ports.join(","))) {
        return;
    }
    for line in input.lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["stop"] {
            return;
        }
        let answer = match started.obey(&words) {
            Ok(()) => "ok".to_owned(),
            Err(reason) => format!("error: {reason}"),
        };
        if !say(answer) {
            return;
        }
    }
}

impl Started {
    fn url(&self) -> String {
        match self {
            Started::Redis(server) => server.url(),
            Started::Sentinel(group) => group.url(),
            Started::Cluster(cluster) => cluster.url(),
            Started::Postgres(server, database) => server.url(database),
            Started::Mysql(server, database) => server.url(database),
            Started::Zookeeper(server, chroot) => server.url(chroot),
            Started::Etcd(etcd) => etcd.url(),
            Started::Proxy(proxy) => proxy.url(),
        }
    }

    fn ports(&self) -> Vec<u16> {
        match self {
            Started::Redis(server) => vec![server.port()],
            Started::Sentinel(group) => {
                group.servers.iter().chain(&group.sentinels).map(Server::port).collect()
            }
            Started::Cluster(cluster) => {
                cluster.nodes.iter().map(|node| node.server.port()).collect()
            }
            Started::Postgres(server, _) => vec![server.port()],
            Started::Mysql(server, _) => vec![server.port()],
            Started::Zookeeper(server, _) => vec![server.port()],
            Started::Etcd(etcd) => vec![etcd.port(0)],
            Started::Proxy(proxy) => vec![proxy.port()],
        }
    }

    /// The one at the Nth of `ports`.
    fn server(&mut self, number: usize) -> Option<&mut Server> {
        match self {
            Started::Redis(server) => (number == 0).then_some(server),
            Started::Sentinel(group) => {
                group.servers.iter_mut().chain(&mut group.sentinels).nth(number)
            }
            Started::Cluster(cluster) => cluster.nodes.get_mut(number).map(|node| &mut node.server),
            _ => None,
        }
    }

    fn obey(&mut self, words: &[&str]) -> Result<(), String> {
        match (&mut *self, words) {
            (Started::Sentinel(group), ["fail-over"]) => drop(group.fail_over()),
            (Started::Proxy(proxy), [word]) => match *word {
                "pass" => proxy.set(Mode::Pass),
                "silent" => proxy.set(Mode::Silent),
                "swallow-replies" => proxy.set(Mode::SwallowReplies),
                "lose-reply" => proxy.set(Mode::LoseReply(End::Reset)),
                "hold-requests" => proxy.set(Mode::HoldRequests),
                "deliver" => proxy.deliver(),
                "refuse" => proxy.set(Mode::Refuse),
                "close" => proxy.close_all(End::Fin),
                _ => return Err(format!("{word} is nothing that a proxy does")),
            },
            (_, [verb, number @ ..]) => {
                let number = match number {
                    [] => 0,
                    [number] => number.parse().map_err(|error| format!("{number}: {error}"))?,
                    _ => return Err("too many words".to_owned()),
                };
                let server = self.server(number);
                let server = server.ok_or_else(|| format!("there is no server {number}"))?;
                match (*verb, server.is_running()) {
                    ("pause", true) => server.stop(),
                    ("resume", true) => server.cont(),
                    ("kill", true) => server.kill(),
                    ("restart", false) => server.start_again(),
                    (_, true) => {
                        return Err(format!("{verb} is nothing that a running server does"));
                    }
                    (_, false) => return Err(format!("server {number} does not run")),
                }
            }
            (_, []) => return Err("an empty line".to_owned()),
        }
        Ok(())
    }
}
