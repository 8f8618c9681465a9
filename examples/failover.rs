//! Servers that fail while a lock is held: on one Redis, on one with the guard against lost data, and
//! on a quorum of three.
//!
//! `cargo run --example failover` starts its own servers, so `redis-server` has to be installed. They
//! keep nothing on disk: a server that is killed comes back without its data. So does a replica that
//! had not received a lock when it became the master.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

type Outcome = Result<(), Box<dyn Error>>;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(10);

fn main() -> Outcome {
    let program = program();
    if let Err(error) = Command::new(&program).arg("--version").stdout(Stdio::null()).status() {
        eprintln!("{program}: {error}. This example needs servers that it can kill.");
        return Ok(());
    }
    let name = format!("stock:{:x}", RandomState::new().hash_one(0));
    one_server(&name)?;
    one_guarded_server(&name)?;
    three_servers(&name)
}

fn one_server(name: &str) -> Outcome {
    println!("1. One Redis");
    let mut server = Server::start()?;
    let url = server.url();
    let (a, b) = (Client::open(&url)?, Client::open(&url)?);
    let first = a.lock(name).acquire()?;
    println!("   A holds {name}, fence {}.", first.fence());
    server.fail()?;
    println!("   The server is killed and comes back without its data.");

    let second = b.lock(name).try_acquire()?.ok_or("an empty server refused a lock")?;
    println!("   B asks and has it, fence {}.", second.fence());
    assert!(first.is_valid() && second.is_valid());
    assert!(second.fence() > first.fence());
    println!("   WRONG: two holders. A goes on until its next renewal, 10 s from now at most.");
    println!("   The larger fence is B's, since fences follow the clock: a resource that compares");
    println!("   fences turns A away. One that does not has two who write.");
    match first.extend() {
        Err(error) if error.kind() == ErrorKind::Lost => println!("   A asks, and hears: {error}"),
        other => return Err(format!("a lock that was lost was extended: {other:?}").into()),
    }
    second.release()?;
    println!();
    Ok(())
}

fn one_guarded_server(name: &str) -> Outcome {
    const LONGEST: Duration = Duration::from_secs(2);
    println!("2. One Redis, with guard_data_loss=yes and max_ttl={LONGEST:?}");
    let mut server = Server::start()?;
    let url = format!("{}?guard_data_loss=yes&max_ttl={LONGEST:?}", server.url());
    let (a, b) = (Client::open(&url)?, Client::open(&url)?);
    // As `leasehold init` does, once: the server is new, and no client relies on a lease there.
    a.initialize(false)?;
    let first = a.lock(name).ttl(LONGEST).acquire()?;
    let fence = first.fence();
    println!("   A holds it, fence {fence}.");
    server.fail()?;
    println!("   The server is killed and comes back without its data.");

    match b.lock(name).try_acquire() {
        Err(error) => println!("   B asks, and hears: {error}"),
        Ok(lease) => return Err(format!("the guard let somebody in: {lease:?}").into()),
    }
    let start = Instant::now();
    let second = b.lock(name).ttl(LONGEST).wait(LONGEST * 10).acquire()?;
    assert!(!first.is_valid());
    assert!(second.fence() > fence);
    println!("   B waits and has it {:.1?} later, fence {}.", start.elapsed(), second.fence());
    println!(
        "   RIGHT: by then nobody believes in an older lease; A's is over. It costs that time."
    );
    second.release()?;
    println!();
    Ok(())
}

fn three_servers(name: &str) -> Outcome {
    const TTL: Duration = Duration::from_secs(10);
    println!("3. A quorum of three");
    let mut servers = [Server::start()?, Server::start()?, Server::start()?];
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let url = urls.join(",");
    let (a, b) = (Client::open(&url)?, Client::open(&url)?);
    a.initialize(false)?;
    let first = a.lock(name).ttl(TTL).acquire()?;
    let fence = first.fence();
    println!("   A holds it, fence {fence}.");
    servers[0].kill()?;
    println!("   One server is killed.");
    first.extend()?;
    assert!(first.is_valid());
    assert!(b.lock(name).try_acquire()?.is_none());
    println!("   A still holds it and has extended it; B asks and does not get it.");

    servers[0].start_again()?;
    println!("   It comes back without its data, and another one stands still.");
    servers[1].signal(Signal::SIGSTOP)?;
    let refused = b.lock(name).try_acquire();
    servers[1].signal(Signal::SIGCONT)?;
    match refused {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("   B asks, and hears: {error}");
        }
        other => return Err(format!("a server without its data voted: {other:?}").into()),
    }
    assert!(first.is_valid());
    println!("   RIGHT: who has forgotten what it granted has no vote. A holds it all the time.");

    first.release()?;
    let second = b.lock(name).ttl(TTL).acquire()?;
    assert!(second.fence() > fence);
    println!("   A releases. B has it by the votes of the two others, fence {}.", second.fence());
    second.release()?;
    Ok(())
}

/// A server of our own, which ends with this.
struct Server {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    fn start() -> Result<Server, Box<dyn Error>> {
        // The port is free now, but another program might use it in a moment.
        for _ in 0..5 {
            let folder = tempfile::tempdir()?;
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut server = Server { process: launch(port, &folder)?, port, folder };
            if server.is_ready()? {
                return Ok(server);
            }
        }
        Err("no server starts".into())
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Killed, and back without its data.
    fn fail(&mut self) -> Outcome {
        self.kill()?;
        self.start_again()
    }

    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    fn start_again(&mut self) -> Outcome {
        self.process = launch(self.port, &self.folder)?;
        if self.is_ready()? { Ok(()) } else { Err("the server does not start again".into()) }
    }

    fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?)
    }

    /// Whether it is this one that answers, as soon as it does; false if it has ended.
    fn is_ready(&mut self) -> Result<bool, Box<dyn Error>> {
        let client = redis::Client::open(self.url())?;
        let own = format!("process_id:{}\r\n", self.process.id());
        let start = Instant::now();
        while self.process.try_wait()?.is_none() {
            let info = client.get_connection().and_then(|mut server| {
                redis::cmd("INFO").arg("server").query::<String>(&mut server)
            });
            if info.is_ok_and(|info| info.contains(&own)) {
                return Ok(true);
            }
            if start.elapsed() > START {
                return Err("a server does not answer".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.kill();
    }
}

fn launch(port: u16, folder: &TempDir) -> io::Result<Child> {
    Command::new(program())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}
