//! A server of our own, for as long as the measurement lasts.

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Folder;
use super::bare::{Address, Bare};
use super::pin::field;
use crate::exit::Failure;

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
const START: Duration = Duration::from_secs(5);

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Socket {
    Tcp,
    Unix,
}

pub(super) struct Spawned {
    child: Child,
    place: Place,
}

enum Place {
    Port(u16),
    /// A socket in a folder of its own.
    Socket(Folder),
}

impl Spawned {
    /// Starts a server that keeps nothing and that only this machine reaches; `None` where none
    /// is installed.
    pub(super) fn start(socket: Socket) -> Result<Option<Spawned>, Failure> {
        Spawned::start_with(socket, &[], &[])
    }

    /// The same with a file of settings, if any, and options besides.
    pub(super) fn start_with(
        socket: Socket,
        file: &[&str],
        options: &[&str],
    ) -> Result<Option<Spawned>, Failure> {
        for program in PROGRAMS {
            // The port is free when it is chosen and might be taken when the server comes to it.
            for _ in 0..3 {
                match start(program, Place::choose(socket)?, file, options) {
                    Ok(Some(spawned)) => return Ok(Some(spawned)),
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) => return Err(Failure::unavailable(format!("{program}: {error}"))),
                }
            }
        }
        Ok(None)
    }

    pub(super) fn url(&self) -> String {
        match &self.place {
            Place::Port(port) => format!("redis://127.0.0.1:{port}"),
            Place::Socket(folder) => format!("unix://{}", folder.socket()),
        }
    }

    /// Of a server that is reached by one.
    pub(super) fn port(&self) -> u16 {
        match &self.place {
            Place::Port(port) => *port,
            Place::Socket(_) => 0,
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let process = i32::try_from(self.child.id()).map_err(|_| nix::Error::ESRCH)?;
        Ok(kill(Pid::from_raw(process), signal)?)
    }

    /// Whether it is this server that answers at the port.
    fn answers(&self) -> bool {
        let bare = Address::of(&self.url()).map(|address| Bare::connect(&address));
        let Some(Ok(mut bare)) = bare else { return false };
        let info = bare.info("server").unwrap_or_default();
        field(&info, "process_id") == Some(&self.child.id().to_string())
    }
}

impl Place {
    fn choose(socket: Socket) -> Result<Place, Failure> {
        Ok(match socket {
            Socket::Tcp => Place::Port(free_port()?),
            Socket::Unix => Place::Socket(Folder::create()?),
        })
    }

    /// What the server has to be told.
    fn options(&self) -> [String; 4] {
        match self {
            Place::Port(port) => {
                ["--bind".into(), "127.0.0.1".into(), "--port".into(), port.to_string()]
            }
            Place::Socket(folder) => {
                ["--port".into(), "0".into(), "--unixsocket".into(), folder.socket()]
            }
        }
    }
}

impl Folder {
    fn socket(&self) -> String {
        self.0.join("redis.sock").display().to_string()
    }
}

fn free_port() -> io::Result<u16> {
    /// A Cluster's nodes talk at a port that is 10,000 further up.
    const HIGHEST: u16 = u16::MAX - 10_000;
    // Kept until one fits, so that none comes twice.
    let mut listeners = Vec::new();
    loop {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        if port <= HIGHEST {
            return Ok(port);
        }
        listeners.push(listener);
    }
}

/// `None` when the server ended before it answered.
fn start(
    program: &str,
    place: Place,
    file: &[&str],
    options: &[&str],
) -> io::Result<Option<Spawned>> {
    let child = Command::new(program)
        .args(file)
        .args(place.options())
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut spawned = Spawned { child, place };
    let started = Instant::now();
    while spawned.child.try_wait()?.is_none() {
        if spawned.answers() {
            return Ok(Some(spawned));
        }
        if started.elapsed() > START {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It keeps nothing, so there is nothing to end in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
