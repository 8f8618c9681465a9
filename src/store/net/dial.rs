//! Making a connection by a deadline: a name, its addresses, a socket.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr, TcpKeepalive, Type};

use super::failed;
use super::resolver::Resolver;
use crate::clock::Deadline;
use crate::config::Address;
use crate::error::{Error, ErrorKind};

pub(in crate::store) type Show<'a> = dyn Fn(&socket2::Socket) -> Result<(), Error> + 'a;

/// Looks names up, and connects. Each socket is shown before it connects.
#[derive(Default)]
pub(in crate::store) struct Connector(Resolver);

impl Connector {
    pub(in crate::store) fn connect(
        &self,
        address: &Address,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<socket2::Socket, Error> {
        match address {
            Address::Unix(path) => {
                let what = path.display().to_string();
                let address = SockAddr::unix(path).map_err(|error| failed(&what, &error))?;
                connect(&what, &address, deadline, show).map_err(|error| no_socket(path, error))
            }
            Address::Tcp { host, port } => self.connect_tcp(host, *port, deadline, show),
        }
    }

    fn connect_tcp(
        &self,
        host: &str,
        port: u16,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<socket2::Socket, Error> {
        let addresses = self.0.resolve(host, port, deadline)?;
        let mut last = Error::new(ErrorKind::Refused, format!("{host} has no address"));
        for (index, address) in addresses.iter().enumerate() {
            // One address that swallows everything must leave time for the others.
            let until = deadline.share(addresses.len() - index);
            match connect(&address.to_string(), &SockAddr::from(*address), until, show) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Why nobody answers at a path, where the system's own words do not tell.
fn no_socket(path: &Path, error: Error) -> Error {
    if error.kind() != ErrorKind::Refused {
        return error;
    }
    let shown = path.display();
    let said = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!(
            "there is no socket {shown}: start the server, or write the path that it has \
             (a Redis: unixsocket, a MySQL: socket, a PostgreSQL: unix_socket_directories)"
        ),
        Err(error) => format!("{shown}: {error}: correct the path, or let this user go there"),
        Ok(found) if !found.file_type().is_socket() => {
            let what = if found.is_dir() { "a folder" } else { "a file" };
            format!("{shown} is {what} and no socket: write the path of the server's socket")
        }
        Ok(found) if error.detail().contains("ermission denied") => format!(
            "this user may not write to the socket {shown}, which is user {}'s with mode {:04o}: \
             let it (a Redis: unixsocketperm), or run as a user that may",
            found.uid(),
            found.mode() & 0o7777
        ),
        Ok(_) => format!("no server listens on the socket {shown}: start it"),
    };
    Error::mended(error.kind(), said)
}

fn connect(
    what: &str,
    address: &SockAddr,
    until: Deadline,
    show: &Show<'_>,
) -> Result<socket2::Socket, Error> {
    let failed = |error| failed(what, &error);
    loop {
        let domain = Domain::from(i32::from(address.family()));
        let socket = socket2::Socket::new(domain, Type::STREAM, None).map_err(failed)?;
        if !address.is_unix() {
            socket.set_tcp_nodelay(true).map_err(failed)?;
            // A peer that vanished without a word is noticed while nobody waits.
            let probe = TcpKeepalive::new().with_time(Duration::from_secs(60));
            socket.set_tcp_keepalive(&probe).map_err(failed)?;
        }
        show(&socket)?;
        let left = until.left();
        if left.is_zero() {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        match socket.connect_timeout(address, left) {
            // A unix socket whose queue is full says so instead of waiting.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5).min(left));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
            Ok(()) => return Ok(socket),
        }
    }
}
