//! A network of its own for servers, at the end of a cable that can be cut: packets are dropped
//! without a word, as by a broken switch. It takes root.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::process::Process;

/// Nothing outlives the process that keeps it alive: it is nowhere named.
pub struct Namespace {
    keeper: Process,
    /// The near end of the cable; the far one is `far` in the network itself.
    near: String,
    address: Ipv4Addr,
}

/// Where a server is started.
#[derive(Clone)]
pub(crate) struct Place {
    keeper: i32,
    address: Ipv4Addr,
}

/// Which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Both,
    /// Requests arrive and are answered; nobody hears it.
    Replies,
}

impl Namespace {
    /// Or the reason why there cannot be one here.
    pub fn create() -> Result<Namespace, String> {
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "sleep", "infinity"]);
        keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = Process::spawn(&mut keeper);
        let pid = keeper.pid().as_raw();
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{pid}/ns/net");
        let start = Instant::now();
        while std::fs::read_link(&theirs).is_ok_and(|link| link == ours) {
            if keeper.try_wait().is_some() {
                return Err("a network of its own (unshare --net) takes root".to_owned());
            }
            assert!(start.elapsed() < Duration::from_secs(10), "unshare does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (near, [here, there]) = cable(pid)?;
        run("ip", &["address", "add", &format!("{here}/30"), "dev", &near])?;
        run("ip", &["link", "set", &near, "up"])?;
        let namespace = Namespace { keeper, near, address: there };
        namespace.inside(&["ip", "address", "add", &format!("{there}/30"), "dev", "far"])?;
        namespace.inside(&["ip", "link", "set", "far", "up"])?;
        namespace.inside(&["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// For tests that are nothing without one: `None`, and a word why, where there cannot be one.
    pub fn create_or_skip() -> Option<Namespace> {
        Namespace::create().inspect_err(|why| println!("skipped: {why}")).ok()
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The name of its near end.
    pub fn cable(&self) -> &str {
        &self.near
    }

    /// From now on nothing arrives, and nobody is told: connections stay, and connecting hangs.
    pub fn cut(&self) {
        self.cut_only(Cut::Both);
    }

    pub fn cut_only(&self, what: Cut) {
        // Before the first one, so that not even half of an exchange comes after it.
        if what == Cut::Both {
            run("tc", &["qdisc", "replace", "dev", &self.near, "root", "blackhole"]).unwrap();
        }
        self.inside(&["tc", "qdisc", "replace", "dev", "far", "root", "blackhole"]).unwrap();
    }

    /// What is still waited for is sent again soon, as TCP does.
    pub fn heal(&self) {
        // Absent where it was not cut.
        let _ = run("tc", &["qdisc", "delete", "dev", &self.near, "root"]);
        let _ = self.inside(&["tc", "qdisc", "delete", "dev", "far", "root"]);
    }

    pub(super) fn place(&self) -> Place {
        Place { keeper: self.keeper.pid().as_raw(), address: self.address }
    }

    fn inside(&self, words: &[&str]) -> Result<(), String> {
        finish(self.place().enter(words[0]).args(&words[1..]))
    }
}

impl Place {
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A command that runs there, or here.
    pub(super) fn command(place: Option<&Place>, program: impl AsRef<OsStr>) -> Command {
        match place {
            Some(place) => place.enter(program),
            None => Command::new(program),
        }
    }

    fn enter(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        // It becomes the program, so that the process that was started is the program itself.
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper)).arg("--").arg(program);
        command
    }
}

/// Lays a cable to the network of this process; the name of its near end is nobody else's, and
/// the two addresses go with the name.
fn cable(keeper: i32) -> Result<(String, [Ipv4Addr; 2]), String> {
    /// 198.18.0.0/15, which is for tests of networks, has so many networks of four addresses.
    const NETWORKS: u32 = 1 << 15;
    let mut last = String::new();
    for attempt in 0..50 {
        let number = (std::process::id() * 50 + attempt) % NETWORKS;
        let near = format!("leasehold{number}");
        let keeper = keeper.to_string();
        #[rustfmt::skip]
        let laid = run("ip", &[
            "link", "add", &near, "type", "veth", "peer", "name", "far", "netns", &keeper,
        ]);
        match laid {
            Ok(()) => {
                let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number * 4;
                return Ok((near, [1, 2].map(|last| Ipv4Addr::from(base + last))));
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    finish(Command::new(program).args(args))
}

fn finish(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {complaint}")) }
}
