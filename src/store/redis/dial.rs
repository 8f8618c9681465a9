//! Making a connection: resolve, connect, TLS, credentials, database; all by one deadline.

use std::sync::Arc;

use redis::{ServerError, Value};

use super::dialect::RunId;
use super::dialect::guard::guarded_by_others;
use super::dialect::keys::MARKER;
use super::fault;
use super::frame;
use super::wire::Wire;
use crate::clock::Deadline;
use crate::config::{Access, Address, Login, Secret};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::dial::{Connector, Show};
use crate::store::net::tls::Tls;

pub(super) struct Dialer {
    access: Access,
    greeting: Greeting,
    tls: Option<Tls>,
    connector: Connector,
}

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

impl Dialer {
    /// An error if TLS can reach no such addresses.
    pub(super) fn new(
        access: &Access,
        greeting: Greeting,
        addresses: &[Address],
    ) -> Result<Dialer, Error> {
        Ok(Dialer {
            access: access.clone(),
            greeting,
            tls: Tls::prepare(access.tls.as_ref(), addresses)?,
            connector: Connector::default(),
        })
    }

    pub(super) fn dial(
        &self,
        address: &Address,
        server: ServerId,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Wire, Error> {
        self.access.log_in(address, deadline, |access| {
            let socket = self.connector.connect(address, deadline, show)?;
            let mut wire = Wire::new(socket, server);
            if let Some(tls) = &self.tls {
                wire.stream.secure(tls, address, deadline)?;
            }
            self.introduce(&mut wire, access, deadline)?;
            wire.login.clone_from(&access.login);
            Ok(wire)
        })
    }

    /// Newer credentials than those that a connection logged in with.
    /// Also the words by which it logs in with them.
    pub(super) fn newer(&self, wire: &Wire) -> Option<(Arc<Login>, Vec<u8>)> {
        let login = self.access.newer(wire.login.as_deref()?)?;
        let user = login.user.as_ref().or(self.access.user.as_ref());
        let auth = redis::cmd("AUTH").arg(user).arg(&login.secret.0).get_packed_command();
        Some((login, auth))
    }

    /// The server did not accept them.
    pub(super) fn refused(&self, login: &Arc<Login>) {
        self.access.refused(login);
    }

    fn introduce(&self, wire: &mut Wire, access: &Access, deadline: Deadline) -> Result<(), Error> {
        let Access { user, password, database, .. } = access;
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        let mut ask = |command: &mut redis::Cmd, about| {
            command.write_packed_command(&mut bytes);
            asked.push(about);
        };
        if let Some(password) = password {
            let mut auth = redis::cmd("AUTH");
            ask(auth.arg(user.as_deref()).arg(&password.0), Asked::Auth(password));
        }
        if *database != 0 {
            ask(redis::cmd("SELECT").arg(*database), Asked::Database);
        }
        if self.greeting.master {
            ask(&mut redis::cmd("ROLE"), Asked::Role);
        }
        if self.greeting.run_id {
            ask(redis::cmd("INFO").arg("server"), Asked::Run);
        }
        if self.greeting.unguarded {
            ask(redis::cmd("GET").arg(MARKER), Asked::Marker);
        }
        if !asked.is_empty() {
            wire.send(&bytes, deadline).map_err(|(_, error)| fault::io("the greeting", &error))?;
        }
        for asked in asked {
            match (asked, wire.receive(deadline)?) {
                (Asked::Marker, said) => check_unguarded(&said)?,
                (Asked::Auth(password), Value::ServerError(error)) => {
                    return Err(without(password, &error));
                }
                (Asked::Database, Value::ServerError(error)) => {
                    let error = fault::server(&error);
                    return Err(match error.kind() {
                        ErrorKind::BadArgument => no_database(*database, error.detail()),
                        _ => error,
                    });
                }
                (_, Value::ServerError(error)) => return Err(fault::server(&error)),
                (Asked::Auth(_) | Asked::Database, _) => {}
                (Asked::Role, role) => check_master(&role)?,
                (Asked::Run, info) => wire.run = Some(read_run(&info)?),
            }
        }
        Ok(())
    }
}

enum Asked<'a> {
    Auth(&'a Secret),
    Database,
    Role,
    Run,
    Marker,
}

fn no_database(database: u32, said: &str) -> Error {
    Error::mended(
        ErrorKind::BadArgument,
        format!(
            "the server has no database {database}: write a smaller number in the URL, or raise \
             'databases' in the server's configuration, where they are 0 to 15 by default ({said})"
        ),
    )
}

fn check_master(role: &Value) -> Result<(), Error> {
    match frame::begins(role, b"master") {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unavailable, "the server is no master at the moment")),
    }
}

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

fn read_run(info: &Value) -> Result<RunId, Error> {
    let text = match info {
        Value::BulkString(text) => &text[..],
        _ => b"",
    };
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"run_id:"));
    let run = line.and_then(|line| RunId::try_from(line.trim_ascii()).ok());
    run.ok_or_else(|| Error::new(ErrorKind::Protocol, "INFO does not tell the server's run id"))
}

/// A server that does not know AUTH repeats its arguments, perhaps cut short.
fn without(password: &Secret, said: &ServerError) -> Error {
    let error = fault::server(said);
    let repeats = said.details().is_some_and(|text| text.contains(&password.0));
    if repeats || error.kind() == ErrorKind::Protocol {
        return Error::new(error.kind(), "AUTH was refused, in words that may hold the password");
    }
    error
}
