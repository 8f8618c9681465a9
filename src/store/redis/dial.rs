//! Making a connection: resolve, connect, TLS, credentials, database; all by one deadline.

mod resolver;

use std::io;
use std::time::Duration;

use redis::Value;
use socket2::{Domain, SockAddr, TcpKeepalive, Type};

use self::resolver::Resolver;
use super::dialect::RunId;
use super::dialect::guard::guarded_by_others;
use super::dialect::keys::MARKER;
use super::fault;
#[cfg(feature = "tls")]
use super::tls::Tls;
use super::wire::{Socket, Stream, Wire};
use crate::clock::Deadline;
use crate::config::{Access, Address, Secret};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;

pub(super) struct Dialer {
    access: Access,
    greeting: Greeting,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    resolver: Resolver,
}

/// What a connection asks before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Greeting {
    /// Which run of the server this is: another one may have lost what the one before knew.
    pub(super) run_id: bool,
    /// That no other client guards it against lost data, else there is no connection. A user that
    /// may not look has one all the same.
    pub(super) unguarded: bool,
    /// That it is a master, else there is no connection.
    pub(super) master: bool,
}

pub(super) type Show<'a> = dyn Fn(&socket2::Socket) -> io::Result<()> + 'a;

impl Dialer {
    pub(super) fn new(access: &Access, greeting: Greeting) -> Result<Dialer, Error> {
        Ok(Dialer {
            access: access.clone(),
            greeting,
            #[cfg(feature = "tls")]
            tls: access.tls.as_ref().map(Tls::new).transpose()?,
            resolver: Resolver::default(),
        })
    }

    /// Whether connections could be made to this address, as far as can be said without trying.
    pub(super) fn check(&self, address: &Address) -> Result<(), Error> {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            Tls::server(address)?;
        }
        let _ = address;
        Ok(())
    }

    /// A connection that is ready for scripts. Nothing of a request has been sent when it fails.
    ///
    /// It shows each socket before it connects. A thread that keeps a clone of the socket can end
    /// everything that is done with it; an error means that the connection is not wanted any more.
    pub(super) fn dial(
        &self,
        address: &Address,
        server: ServerId,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Wire, Error> {
        let socket = match address {
            Address::Unix(path) => {
                let what = path.display().to_string();
                let address = SockAddr::unix(path).map_err(|error| fault::io(&what, &error))?;
                let connected = connect(&address, deadline, deadline, show);
                connected.map_err(|error| fault::io(&what, &error))?
            }
            Address::Tcp { host, port } => self.connect_tcp(host, *port, deadline, show)?,
        };
        let socket = Socket::new(socket, deadline);
        #[cfg(feature = "tls")]
        let stream = match &self.tls {
            Some(tls) => Stream::Tls(Box::new(tls.handshake(address, socket)?)),
            None => Stream::Plain(socket),
        };
        #[cfg(not(feature = "tls"))]
        let stream = Stream::Plain(socket);
        let mut wire = Wire::new(stream, server);
        self.introduce(&mut wire, deadline)?;
        Ok(wire)
    }

    fn connect_tcp(
        &self,
        host: &str,
        port: u16,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<socket2::Socket, Error> {
        let addresses = self.resolver.resolve(host, port, deadline)?;
        let mut last = Error::new(ErrorKind::Refused, format!("{host} has no address"));
        for (index, address) in addresses.iter().enumerate() {
            // One address that swallows everything must leave time for the others.
            let share = deadline.left() / u32::try_from(addresses.len() - index).unwrap_or(1);
            let until = Deadline::after(share);
            match connect(&SockAddr::from(*address), until, deadline, show) {
                Ok(socket) => {
                    let set = socket.set_tcp_nodelay(true).and_then(|()| {
                        // A peer that vanished without a word is noticed while nobody waits.
                        let probe = TcpKeepalive::new().with_time(Duration::from_secs(60));
                        socket.set_tcp_keepalive(&probe)
                    });
                    match set {
                        Ok(()) => return Ok(socket),
                        Err(error) => last = fault::io(&address.to_string(), &error),
                    }
                }
                Err(error) => last = fault::io(&address.to_string(), &error),
            }
        }
        Err(last)
    }

    /// Says who we are and which database is meant, and asks what has to be known, in one write.
    fn introduce(&self, wire: &mut Wire, deadline: Deadline) -> Result<(), Error> {
        let Access { user, password, database, .. } = &self.access;
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        if let Some(password) = password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = user {
                auth.arg(user);
            }
            auth.arg(password.expose()).write_packed_command(&mut bytes);
            asked.push(Asked::Auth(password));
        }
        if *database != 0 {
            redis::cmd("SELECT").arg(*database).write_packed_command(&mut bytes);
            asked.push(Asked::Database);
        }
        if self.greeting.master {
            redis::cmd("ROLE").write_packed_command(&mut bytes);
            asked.push(Asked::Role);
        }
        if self.greeting.run_id {
            redis::cmd("INFO").arg("server").write_packed_command(&mut bytes);
            asked.push(Asked::Run);
        }
        if self.greeting.unguarded {
            redis::cmd("GET").arg(MARKER).write_packed_command(&mut bytes);
            asked.push(Asked::Marker);
        }
        if !asked.is_empty() {
            wire.send(&bytes, deadline).map_err(|(_, error)| fault::io("the greeting", &error))?;
        }
        for asked in asked {
            match (asked, wire.receive(deadline)?) {
                (Asked::Marker, said) => check_unguarded(&said)?,
                (asked, Value::ServerError(error)) => {
                    let error = fault::server(&error);
                    return Err(match asked {
                        Asked::Auth(password) => without(password, error),
                        _ => error,
                    });
                }
                (Asked::Auth(_) | Asked::Database, _) => {}
                (Asked::Role, role) => check_master(&role)?,
                (Asked::Run, info) => wire.run = Some(read_run(&info)?),
            }
        }
        Ok(())
    }
}

/// What an answer to the greeting is about.
enum Asked<'a> {
    Auth(&'a Secret),
    Database,
    Role,
    Run,
    Marker,
}

fn check_master(role: &Value) -> Result<(), Error> {
    let is_master = matches!(role, Value::Array(said)
        if matches!(said.first(), Some(Value::BulkString(role)) if role == b"master"));
    match is_master {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unavailable, "the server is no master at the moment")),
    }
}

/// Nobody guards the server, or we may not know.
fn check_unguarded(marker: &Value) -> Result<(), Error> {
    match marker {
        Value::Nil => Ok(()),
        Value::BulkString(marker) if marker.len() > size_of::<RunId>() => Err(guarded_by_others()),
        Value::ServerError(error) => match fault::server(error) {
            error if error.kind() == ErrorKind::Permission => Ok(()),
            error => Err(error),
        },
        _ => Err(Error::new(ErrorKind::Protocol, format!("{MARKER} holds something else"))),
    }
}

/// `run_id:` and 40 hex digits, among much else.
fn read_run(info: &Value) -> Result<RunId, Error> {
    let text = match info {
        Value::BulkString(text) => &text[..],
        _ => b"",
    };
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"run_id:"));
    let run = line.and_then(|line| RunId::try_from(line.trim_ascii()).ok());
    run.ok_or_else(|| Error::new(ErrorKind::Protocol, "INFO does not tell the server's run id"))
}

/// What a server said to AUTH. One that does not know the command repeats its arguments, perhaps
/// cut short.
fn without(password: &Secret, said: Error) -> Error {
    if said.kind() == ErrorKind::Protocol || said.detail().contains(password.expose()) {
        return Error::new(said.kind(), "AUTH was refused, in words that may hold the password");
    }
    said
}

/// Connects by `until`, which is not later than the deadline of the whole.
fn connect(
    address: &SockAddr,
    until: Deadline,
    deadline: Deadline,
    show: &Show<'_>,
) -> io::Result<socket2::Socket> {
    let until = until.min(deadline);
    loop {
        let domain = Domain::from(i32::from(address.family()));
        let socket = socket2::Socket::new(domain, Type::STREAM, None)?;
        show(&socket)?;
        let left = until.left();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.connect_timeout(address, left) {
            // A unix socket whose queue is full says so instead of waiting.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5).min(left));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(socket),
        }
    }
}
