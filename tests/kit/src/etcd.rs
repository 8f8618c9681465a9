//! Private etcd servers on free loopback ports: one, or the members of a cluster.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::host::{self, free_port, memory, program};
use super::process::Process;

const LIMIT: Duration = Duration::from_secs(60);

/// Its members end with this process, a moment later.
const END: &str = "sleep 0.2";

pub struct Etcd {
    dir: PathBuf,
    settings: Vec<String>,
    members: Vec<Member>,
    sweeper: Child,
}

struct Member {
    /// For clients, and for the others.
    ports: [u16; 2],
    /// Absent once it was killed.
    process: Option<Process>,
}

impl Etcd {
    /// Whether there is one to start.
    pub fn is_here() -> bool {
        program("etcd", Vec::new()).is_some()
    }

    /// One, in memory: how long a disk takes is not judged here.
    pub fn start() -> Etcd {
        Etcd::start_with(1, &[])
    }

    /// So many members, with these settings.
    pub fn start_with(count: usize, settings: &[&str]) -> Etcd {
        Etcd::start_in(&memory(), count, settings)
    }

    /// The same with their files in this folder, on a disk say.
    pub fn start_in(parent: &Path, count: usize, settings: &[&str]) -> Etcd {
        let (dir, sweeper) = host::place(parent, "etcd", END);
        let settings = settings.iter().map(ToString::to_string).collect();
        let member = || Member { ports: [free_port(), free_port()], process: None };
        let members = (0..count).map(|_| member()).collect();
        let mut etcd = Etcd { dir, settings, members, sweeper };
        (0..count).for_each(|index| etcd.launch(index));
        (0..count).for_each(|index| etcd.await_ready(index));
        etcd
    }

    fn data(&self, index: usize) -> PathBuf {
        self.dir.join(format!("data{index}"))
    }

    fn launch(&mut self, index: usize) {
        let is_tls = self.settings.iter().any(|setting| setting.starts_with("--cert-file"));
        let scheme = if is_tls { "https" } else { "http" };
        let peer = |member: &Member| format!("http://127.0.0.1:{}", member.ports[1]);
        let all = self.members.iter().enumerate();
        let all: Vec<_> = all.map(|(at, member)| format!("m{at}={}", peer(member))).collect();
        let [client, _] = self.members[index].ports;
        let client = format!("{scheme}://127.0.0.1:{client}");
        let peer = peer(&self.members[index]);
        let log = File::create(self.dir.join(format!("log{index}"))).unwrap();
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{index}"), "--data-dir"]).arg(self.data(index));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(",")]).args(&self.settings);
        if self.members.len() == 1 && !self.settings.iter().any(|one| one.contains("heartbeat")) {
            // It has nobody to wait for, and leases of a second are allowed then.
            command.args(["--heartbeat-interval=10", "--election-timeout=100"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.members[index].process = Some(Process::spawn(&mut command));
    }

    fn await_ready(&mut self, index: usize) {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(self.dir.join(format!("log{index}"))).unwrap();
            if log.contains("ready to serve client requests") {
                return;
            }
            let ended = self.members[index].process.as_mut().and_then(Process::try_wait);
            assert!(ended.is_none(), "{ended:?}: {log}");
            assert!(start.elapsed() < LIMIT, "etcd is not ready: {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn port(&self, index: usize) -> u16 {
        self.members[index].ports[0]
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All members.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.hosts())
    }

    pub fn hosts(&self) -> String {
        let ports = (0..self.members.len()).map(|index| self.port(index));
        ports.map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    pub fn process(&self, index: usize) -> &Process {
        self.members[index].process.as_ref().expect("it runs")
    }

    pub fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }

    /// On the same ports, with what it had.
    pub fn start_again(&mut self, index: usize) {
        self.launch(index);
        self.await_ready(index);
    }

    /// Which member leads the others.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        super::wait::eventually(LIMIT, || {
            leader = (0..self.members.len()).find(|index| {
                let endpoint = format!("--endpoints=127.0.0.1:{}", self.port(*index));
                let soon = ["--dial-timeout=2s", "--command-timeout=5s", "endpoint", "status"];
                let said = self.try_ctl(&[&[&*endpoint], &soon[..]].concat()).unwrap_or_default();
                said.split(", ").nth(4) == Some("true")
            });
            leader.is_some()
        });
        leader.unwrap()
    }

    /// What etcdctl says.
    #[track_caller]
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").stdin(Stdio::null()).args(arguments);
        if !arguments.iter().any(|one| one.starts_with("--command-timeout")) {
            // A password alone takes seconds where the machine has other things to do.
            command.args(["--command-timeout=60s", "--dial-timeout=60s"]);
        }
        if !arguments.iter().any(|one| one.starts_with("--endpoints")) {
            command.env("ETCDCTL_ENDPOINTS", self.hosts());
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// How many calls of a method a member has had since it was started.
    pub fn calls(&self, index: usize, method: &str) -> u64 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port(index))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let begin = format!("grpc_server_started_total{{grpc_method=\"{method}\",");
        let line = said.lines().find(|line| line.starts_with(&begin));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// All keys that begin so and were ever there.
    pub fn keys_ever(&self, begin: &str) -> BTreeSet<String> {
        let last = format!("{begin}~");
        self.ctl(&["put", &last, ""]);
        let mut watch = Command::new("etcdctl");
        watch.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", self.hosts());
        watch.args(["watch", "--rev=1", "--prefix", begin]);
        watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watch = Process::spawn(&mut watch);
        let told = BufReader::new(watch.handle().stdout.take().unwrap());
        let lines = told.lines().map(Result::unwrap).take_while(|line| *line != last);
        lines.filter(|line| line.starts_with(begin)).collect()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.clear();
        let _ = fs::remove_dir_all(&self.dir);
        let _ = self.sweeper.kill();
        let _ = self.sweeper.wait();
    }
}
