//! A server of our own, for as long as the measurement lasts.

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        for program in PROGRAMS {
            // The port is free when it is chosen and might be taken when the server comes to it.
            for _ in 0..3 {
                match start(program, Place::choose(socket)?) {
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
            Socket::Tcp => Place::Port(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()),
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

/// `None` when the server ended before it answered.
fn start(program: &str, place: Place) -> io::Result<Option<Spawned>> {
    let child = Command::new(program)
        .args(place.options())
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
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
