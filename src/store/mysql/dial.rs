//! Making a connection: resolve, connect, TLS, password, whether it takes writes, what the session is
//! to know; all by one deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::explain::explain;
use super::login;
use super::statements::VERSION;
use super::wire::{Said, Wire};
use crate::clock::{Deadline, Moment};
use crate::config::{Address, MysqlConfig};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::dial::Connector;
use crate::store::net::hosts::Hosts;
use crate::store::net::stranger::Kind;
use crate::store::net::stream::Stream;
use crate::store::net::tls::Tls;

pub(super) struct Dialer {
    config: MysqlConfig,
    io_timeout: Duration,
    settings: String,
    tls: Option<Tls>,
    connector: Connector,
    hosts: Hosts,
    /// The server commits without waiting for the disk, and is no node of Galera's.
    pub(super) is_unsynced: AtomicBool,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Locks,
    /// There may be no tables yet.
    Setup,
    /// The same, and a replica will do.
    #[cfg_attr(not(feature = "examine"), allow(dead_code))]
    Examining,
}

impl Dialer {
    pub(super) fn new(config: &MysqlConfig, io_timeout: Duration) -> Result<Dialer, Error> {
        // What waits for longer than its client does is of no use to anybody: it would keep a session of
        // the server's, or rows. Only a MariaDB has a limit for all statements, and one for a client that
        // vanishes within a transaction, and reads what stands in this comment.
        let settings = format!(
            "SET SESSION autocommit = 1, completion_type = 0, sql_mode = '', lock_wait_timeout = 1, \
             innodb_lock_wait_timeout = 1 \
             /*M! , max_statement_time = {}, idle_transaction_timeout = {} */; \
             SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
             SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit; SHOW VARIABLES LIKE 'wsrep_on'",
            io_timeout.as_secs_f64(),
            io_timeout.as_secs() + 2,
        );
        Ok(Dialer {
            config: config.clone(),
            io_timeout,
            settings,
            tls: Tls::prepare(config.access.tls.as_ref(), &config.hosts)?,
            connector: Connector::default(),
            hosts: Hosts::new(&config.hosts),
            is_unsynced: AtomicBool::new(false),
        })
    }

    /// Whether another server may take this one's place.
    pub(super) fn may_move(&self) -> bool {
        self.hosts.may_move()
    }

    /// This server has not answered since then: it may be a primary that the others have left.
    pub(super) fn leave(&self, server: ServerId, since: Moment) {
        self.hosts.leave_silent(server, since, self.io_timeout);
    }

    /// A connection to the primary.
    pub(super) fn dial(&self, purpose: Purpose, deadline: Deadline) -> Result<Wire, Error> {
        self.hosts.dial(deadline, |address, server, deadline| {
            let mut wire = self.connect(address, server, deadline)?;
            let settled = self.settle(&mut wire, purpose, deadline);
            settled.map_err(|error| error.at(address))?;
            Ok(wire)
        })
    }

    fn connect(
        &self,
        address: &Address,
        server: ServerId,
        deadline: Deadline,
    ) -> Result<Wire, Error> {
        let tls = self.tls.as_ref().filter(|_| matches!(address, Address::Tcp { .. }));
        let MysqlConfig { access, database, .. } = &self.config;
        access.log_in(address, deadline, |access| {
            let socket = self.connector.connect(address, deadline, &|_| Ok(()))?;
            let mut wire = Wire::new(Stream::new(socket), server);
            // Whoever has greeted us is a MySQL, whatever goes wrong afterwards.
            let greeting = login::greeting(&mut wire, deadline);
            let greeting =
                greeting.map_err(|error| wire.stream.doubt(Kind::Mysql, error).at(address))?;
            wire.login.clone_from(&access.login);
            let access = (access, &**database);
            login::log_in(&mut wire, greeting, address, access, tls, deadline)
                .map_err(|error| error.at(address))?;
            Ok(wire)
        })
    }

    /// What the session is to know before the first request; and whether the server takes writes, and
    /// has tables that suit us where they are needed.
    fn settle(&self, wire: &mut Wire, purpose: Purpose, deadline: Deadline) -> Result<(), Error> {
        const TABLES: &str = "; SELECT MAX(number) FROM leasehold_version";
        let tables = if purpose == Purpose::Locks { TABLES } else { "" };
        let (said, refused) = wire.ask(&format!("{}{tables}", self.settings), deadline)?;
        let first = |said: Option<&Said>| {
            said.and_then(|said| said.rows.first())
                .and_then(|row| row.column(0))
                .map(<[u8]>::to_vec)
        };
        if is_read_only(first(said.get(2))) && purpose != Purpose::Examining {
            let replica = "the server is read_only, as replicas are: connect to the primary";
            return Err(Error::new(ErrorKind::ReadOnly, replica));
        }
        if let Some(refusal) = refused {
            return Err(explain(wire, &refusal, "", deadline));
        }
        if purpose == Purpose::Locks {
            check_version(first(said.get(4)))?;
        }
        let clustered =
            said.get(3).and_then(|said| said.rows.first()).and_then(|row| row.column(1));
        if !clustered.is_some_and(|on| on.eq_ignore_ascii_case(b"on")) {
            let row = said.get(2).and_then(|said| said.rows.first());
            let flushed = row.and_then(|row| row.column(1));
            self.is_unsynced.store(flushed.is_some_and(|on| !is_flushed(on)), Ordering::Relaxed);
            return Ok(());
        }
        // A node of Galera's applies what the others have agreed to a moment later: each statement is to
        // wait for what came before it.
        match wire.ask("SET SESSION wsrep_sync_wait = 7", deadline)? {
            (_, None) => Ok(()),
            (_, Some(refusal)) => Err(refusal.error),
        }
    }
}

/// Whether commits wait for the disk, by `innodb_flush_log_at_trx_commit`: MariaDB's 3 does so as 1 does.
pub(super) fn is_flushed(value: &[u8]) -> bool {
    matches!(value, b"1" | b"3")
}

fn is_read_only(found: Option<Vec<u8>>) -> bool {
    found.is_some_and(|found| found != b"0" && !found.eq_ignore_ascii_case(b"off"))
}

fn check_version(found: Option<Vec<u8>>) -> Result<(), Error> {
    let found = found.unwrap_or_else(|| b"0".to_vec());
    if found == VERSION {
        return Ok(());
    }
    let [found, known] = [&*found, VERSION].map(String::from_utf8_lossy);
    let which = format!(
        "the tables of the database have version {found}, and this program knows {known}: use one \
         version of Leasehold for all programs"
    );
    Err(Error::new(ErrorKind::Storage, which))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::config::{Config, StoreConfig};

    /// As a MySQL says who it is that has TLS.
    fn greeting() -> Vec<u8> {
        let mut said = b"\x0a8.0.36\0\x01\0\0\0saltsalt\0".to_vec();
        said.extend_from_slice(b"\xff\xff\x2d\x02\0\xff\xdf\x15");
        said.extend_from_slice(&[[0; 10].as_slice(), b"saltsaltsalt\0"].concat());
        said.extend_from_slice(b"mysql_native_password\0");
        let length = u8::try_from(said.len()).unwrap();
        [&[length, 0, 0, 0], &*said].concat()
    }

    /// A server with TLS of its own liking sends an alert in place of an answer.
    #[test]
    fn a_mysql_that_refuses_our_tls_is_not_said_to_want_tls() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(&greeting()).unwrap();
            // That we want TLS, and the head of the first record.
            let mut heard = [0; 36 + 5];
            socket.read_exact(&mut heard).unwrap();
            let length = usize::from(heard[39]) << 8 | usize::from(heard[40]);
            socket.read_exact(&mut vec![0; length]).unwrap();
            socket.write_all(b"\x15\x03\x03\0\x02\x02\x28").unwrap();
        });
        let url = format!("mysql://u@127.0.0.1:{port}/d?ssl-mode=required");
        let StoreConfig::Mysql(config) = Config::from_url(&url).unwrap().store else { panic!() };
        let dialer = Dialer::new(&config, Duration::from_secs(20)).unwrap();
        let by = Deadline::after(Duration::from_secs(20));
        let Err(error) = dialer.dial(Purpose::Locks, by) else { panic!() };
        server.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert!(!error.detail().contains("the server speaks TLS"), "{error}");
    }
}
