//! Private ZooKeeper servers on free loopback ports, alone or as an ensemble, and folders of one that a
//! test program shares: to start a Java takes seconds.

use std::fs::{self, File};
use std::io;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::host::{self, free_port, memory};
use super::wait::eventually;

const LIMIT: Duration = Duration::from_secs(120);

const JAR: &str = "/usr/share/java/zookeeper.jar";

const END: &str = r#"[ -e "$1/pid" ] && kill -KILL "$(cat "$1/pid")""#;

pub struct Zookeeper {
    dir: PathBuf,
    port: u16,
    /// What Java is told besides.
    options: Vec<String>,
    lines: String,
    /// Absent once it was killed.
    server: Option<Child>,
    watcher: Child,
}

impl Zookeeper {
    /// Whether there is one to start.
    pub fn is_here() -> bool {
        Path::new(JAR).is_file()
    }

    /// Answers as soon as it is written down: how long a disk takes is not judged here.
    pub fn start() -> Zookeeper {
        Zookeeper::start_with(&["-Dzookeeper.forceSync=no"], &[])
    }

    /// With these options of Java's and these lines of its configuration.
    pub fn start_with(options: &[&str], lines: &[&str]) -> Zookeeper {
        Zookeeper::start_in(&memory(), options, lines)
    }

    /// With its files in this folder, on a disk say.
    pub fn start_in(parent: &Path, options: &[&str], lines: &[&str]) -> Zookeeper {
        let mut server = Zookeeper::place(parent, options, lines);
        server.launch();
        server.await_ready();
        server
    }

    /// Three that decide by majority.
    pub fn ensemble() -> Vec<Zookeeper> {
        Zookeeper::ensemble_of(3, &[])
    }

    /// So many of them, with these options of Java's besides.
    pub fn ensemble_of(count: usize, options: &[&str]) -> Vec<Zookeeper> {
        let options = [&["-Dzookeeper.forceSync=no"], options].concat();
        let ports: Vec<[u16; 2]> = (0..count).map(|_| [free_port(), free_port()]).collect();
        let peers = ports.iter().enumerate();
        let peers: Vec<_> = peers
            .map(|(at, [follow, elect])| format!("server.{at}=127.0.0.1:{follow}:{elect}"))
            .chain(["initLimit=20".to_owned(), "syncLimit=10".to_owned()])
            .collect();
        let lines: Vec<&str> = peers.iter().map(String::as_str).collect();
        let start = |id: usize| {
            let mut server = Zookeeper::place(&memory(), &options, &lines);
            fs::write(server.dir.join("myid"), id.to_string()).unwrap();
            server.launch();
            server
        };
        let servers: Vec<Zookeeper> = (0..count).map(start).collect();
        servers.iter().for_each(Zookeeper::await_ready);
        servers
    }

    /// One that all tests of this program share; it ends with the program.
    pub fn shared() -> &'static Zookeeper {
        static SHARED: OnceLock<Zookeeper> = OnceLock::new();
        SHARED.get_or_init(Zookeeper::start)
    }

    /// A folder for one, and who removes it.
    fn place(parent: &Path, options: &[&str], lines: &[&str]) -> Zookeeper {
        let (dir, watcher) = host::place(parent, "zookeeper", END);
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let lines = lines.iter().map(|line| format!("{line}\n")).collect();
        Zookeeper { dir, port: free_port(), options, lines, server: None, watcher }
    }

    /// A path that nothing stands at yet.
    pub fn chroot(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        format!("/test{}", LAST.fetch_add(1, Ordering::Relaxed))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn url(&self, chroot: &str) -> String {
        format!("zookeeper://127.0.0.1:{}{chroot}", self.port)
    }

    /// What the server says to one of its words of four letters.
    pub fn word(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(word.as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    pub fn is_leader(&self) -> bool {
        self.word("srvr").is_ok_and(|said| said.contains("Mode: leader"))
    }

    pub fn await_ready(&self) {
        eventually(LIMIT, || self.word("srvr").is_ok_and(|said| said.contains("Mode: ")));
    }

    /// Lines of ZooKeeper's own shell, said to it here; what it answers.
    pub fn shell(&self, lines: &str) -> String {
        let mut java = Command::new("java");
        java.args(["-XX:TieredStopAtLevel=1", "-cp", JAR, "org.apache.zookeeper.ZooKeeperMain"]);
        java.args(["-server", &format!("127.0.0.1:{}", self.port)]).stdin(Stdio::piped());
        java.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = java.spawn().unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(format!("{lines}\nquit\n").as_bytes()).unwrap();
        drop(input);
        let output = shell.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Without a word to anybody.
    pub fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = fs::remove_file(self.dir.join("pid"));
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// It does nothing until it goes on.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).unwrap();
    }

    /// On the same port, with what it had.
    pub fn start_again(&mut self) {
        self.launch();
        self.await_ready();
    }

    fn launch(&mut self) {
        let file = self.dir.join("zoo.cfg");
        let lines = format!(
            "tickTime=500\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n{}",
            self.dir.display(),
            self.port,
            self.lines,
        );
        fs::write(&file, lines).unwrap();
        let path = self.dir.join("log");
        let log = File::create(&path).unwrap();
        let mut java = Command::new("java");
        java.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        java.arg("-Dzookeeper.preAllocSize=1024").args(&self.options);
        java.args(["-cp", &jars()]);
        java.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&file);
        java.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = java.spawn().unwrap();
        fs::write(self.dir.join("pid"), server.id().to_string()).unwrap();
        host::await_launch(&mut server, &path, |_| {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.server = Some(server);
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
        let _ = self.watcher.wait();
    }
}

/// With what Debian's package leaves out: a log, and parts of what TLS needs.
fn jars() -> String {
    let others =
        ["slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common"];
    let others = others.map(|name| format!(":/usr/share/java/{name}.jar"));
    format!("{JAR}{}", others.concat())
}
