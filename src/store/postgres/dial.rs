//! Making a connection: resolve, connect, TLS, password, which server it is, statements; all by one
//! deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postgres_protocol::message::frontend;

use super::explain::{Need, explain};
use super::fault;
use super::login;
use super::statements::VERSION;
use super::wire::{Row, Wire, unexpected};
use crate::clock::{Deadline, Moment};
use crate::config::{Access, Address, PostgresConfig, TlsWords};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::ServerId;
use crate::store::net::dial::{Connector, Show};
use crate::store::net::hosts::Hosts;
use crate::store::net::stranger::Kind;
use crate::store::net::stream::{LEAST, Stream};
use crate::store::net::tls::Tls;

pub(super) struct Dialer {
    config: PostgresConfig,
    io_timeout: Duration,
    /// So long a statement waits for a row that another session has, and with it what goes out behind it.
    pub(super) row_wait: Duration,
    tls: Option<Tls>,
    connector: Connector,
    hosts: Hosts,
    /// A pooler was seen, and the log has been told.
    pub(super) behind_pooler: AtomicBool,
    /// Grants wait for standbys, or did so once: from one server nobody learns what another one does that
    /// hands a lock over.
    pub(super) has_standbys: AtomicBool,
    /// A session commits without waiting for the disk.
    pub(super) is_unsynced: AtomicBool,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Locks,
    Listening,
    /// There may be no tables yet.
    Setup,
    /// The same, and a standby will do.
    #[cfg_attr(not(feature = "examine"), allow(dead_code))]
    Examining,
}

const LONGEST_ROW_WAIT: Duration = Duration::from_millis(250);

const POOLED: &str = "a pooler stands before the database, as PgBouncer does: each statement is \
     planned anew, and waiters ask again and again instead of being told. A URL that leads to the \
     database itself does without both";

impl Dialer {
    pub(super) fn new(config: &PostgresConfig, io_timeout: Duration) -> Result<Dialer, Error> {
        Ok(Dialer {
            config: config.clone(),
            io_timeout,
            row_wait: (io_timeout / 8).clamp(Duration::from_millis(1), LONGEST_ROW_WAIT),
            tls: Tls::prepare(config.access.tls.as_ref(), &config.hosts)?,
            connector: Connector::default(),
            hosts: Hosts::new(&config.hosts),
            behind_pooler: AtomicBool::new(false),
            has_standbys: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
        })
    }

    /// Whether another server may take this one's place.
    pub(super) fn may_move(&self) -> bool {
        self.hosts.may_move()
    }

    /// Whether grants were seen to wait for standbys. What was seen once stays: a waiter may be told of
    /// its lock by a server that has them while another thread meets one that has none.
    pub(super) fn note_standbys(&self, are_there: bool) {
        self.has_standbys.fetch_or(are_there, Ordering::Relaxed);
    }

    /// This server has not answered since then: it may be a primary that the others have left.
    pub(super) fn leave(&self, server: ServerId, since: Moment) {
        self.hosts.leave_silent(server, since, self.io_timeout);
    }

    /// A connection to the primary. It shows each socket before it connects.
    pub(super) fn dial(
        &self,
        purpose: Purpose,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Wire, Error> {
        self.hosts.dial(deadline, |address, server, until| {
            let longest = self.config.connect_timeout.map(Deadline::after);
            let until = longest.map_or(until, |longest| until.min(longest));
            self.dial_one((address, server), purpose, until, show)
        })
    }

    fn dial_one(
        &self,
        (address, server): (&Address, ServerId),
        purpose: Purpose,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Wire, Error> {
        let mut wire = self.config.access.log_in(address, deadline, |access| {
            self.log_in((address, server), access, deadline, show)
        })?;
        self.ask_who(&mut wire, purpose, deadline)?;
        if purpose == Purpose::Locks {
            self.settle(&mut wire)?;
        }
        Ok(wire)
    }

    fn log_in(
        &self,
        (address, server): (&Address, ServerId),
        access: &Access,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Wire, Error> {
        let mut stream = Stream::new(self.connector.connect(address, deadline, show)?);
        if let (Some(tls), Address::Tcp { .. }) = (&self.tls, address) {
            let asked = ask_for_tls(&mut stream, deadline);
            let doubt = |error| stream.doubt(Kind::Postgres, error);
            asked.map_err(|error| doubt(error).at(address))?;
            stream.secure(tls, address, deadline)?;
        }
        let mut wire = Wire::new(stream, server);
        let said = login::log_in(&mut wire, &self.config, access, deadline);
        let doubt = |error| wire.stream.doubt(Kind::Postgres, error);
        wire.process = said.map_err(|error| doubt(error).at(address))?;
        wire.login.clone_from(&access.login);
        Ok(wire)
    }

    /// Whether it is the primary, and has tables that suit us where they are needed; and whether it is
    /// the server itself that answers: a pooler has numbers of its own.
    fn ask_who(&self, wire: &mut Wire, purpose: Purpose, deadline: Deadline) -> Result<(), Error> {
        // A client that is gone without a word has its rows, and its ear, no longer than 25 s.
        const WHO: &str = "SELECT pg_backend_pid(), pg_is_in_recovery(), \
             current_setting('transaction_read_only'), set_config('tcp_user_timeout', '25000', false), \
             set_config('tcp_keepalives_idle', '10', false), \
             set_config('tcp_keepalives_interval', '5', false), \
             set_config('tcp_keepalives_count', '3', false), current_setting('synchronous_commit'), \
             current_setting('synchronous_standby_names') <> ''";
        const TABLES: &str = "; SELECT max(number) FROM leasehold.version";
        let needs_tables = purpose == Purpose::Locks;
        let question = format!("{WHO}{}", if needs_tables { TABLES } else { "" });
        let (rows, refused) = wire.ask(&question, 1 + usize::from(needs_tables), deadline)?;
        let row = rows.first().and_then(Option::as_ref).ok_or_else(|| unexpected("nothing"))?;
        if row.column(1) == Some(b"t") && purpose != Purpose::Examining {
            let replica = "the server is a replica: connect to the primary";
            return Err(Error::new(ErrorKind::ReadOnly, replica));
        }
        if row.column(2) == Some(b"on") && purpose != Purpose::Examining {
            let set = "default_transaction_read_only is set for this user, database or server";
            return Err(Error::new(ErrorKind::ReadOnly, set));
        }
        if let Some(refusal) = refused {
            let is_right = refusal.error.kind() == ErrorKind::Permission;
            return Err(match is_right {
                true => explain(wire, refusal.error, Need::Version, deadline),
                false => refusal.error,
            });
        }
        wire.behind_pooler = row.column(0) != Some(wire.process.to_string().as_bytes());
        if wire.behind_pooler && !self.behind_pooler.swap(true, Ordering::Relaxed) {
            say!(Warn, "pooler", why = POOLED);
        }
        wire.is_synced = wire.behind_pooler || row.column(7) != Some(b"off");
        self.note_standbys(row.column(8) == Some(b"t"));
        if needs_tables { check_version(rows.get(1).and_then(Option::as_ref)) } else { Ok(()) }
    }

    /// What the session is to know before the first statement. Behind a pooler no session keeps it, and
    /// settle.sql says in each transaction what a grant cannot do without.
    fn settle(&self, wire: &mut Wire) -> Result<(), Error> {
        let commit = self.config.synchronous_commit;
        if wire.behind_pooler {
            wire.commit = commit.unwrap_or_default();
            return Ok(());
        }
        wire.is_synced = commit.map_or(wire.is_synced, |word| word != "off");
        self.is_unsynced.store(!wire.is_synced, Ordering::Relaxed);
        let commit = commit.map_or(String::new(), |on| format!("SET synchronous_commit = {on};"));
        // A table without statistics would be read as a whole. What waits for longer than its client
        // does is of no use to anybody. Without warnings, a commit that stopped waiting for its standbys
        // would look like any other.
        wire.begin_with(&format!(
            "SET default_transaction_isolation = 'read committed'; SET jit = off; \
             SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; {commit} \
             SET client_min_messages = warning; \
             SET statement_timeout = {}; SET lock_timeout = {}",
            self.io_timeout.as_millis(),
            self.row_wait.as_millis()
        ))
    }
}

fn check_version(row: Option<&Row>) -> Result<(), Error> {
    let found = row.and_then(|row| row.column(0)).unwrap_or(b"0");
    if found == VERSION {
        return Ok(());
    }
    let [found, known] = [found, VERSION].map(String::from_utf8_lossy);
    let which = format!(
        "the tables in the schema leasehold have version {found}, and this program knows {known}: \
         use one version of Leasehold for all programs"
    );
    Err(Error::new(ErrorKind::Storage, which))
}

fn ask_for_tls(stream: &mut Stream, deadline: Deadline) -> Result<(), Error> {
    let (mut ask, mut said) = (bytes::BytesMut::new(), [0]);
    frontend::ssl_request(&mut ask);
    let sent = stream.send(&ask, deadline);
    sent.map_err(|(_, error)| fault::io("asking for TLS", &error))?;
    // Just this byte: the rest is the handshake's.
    let read = stream.read(&mut said, deadline);
    match (read.map_err(|error| fault::io("asking for TLS", &error))?, &said) {
        (1, b"S") => Ok(()),
        (1, b"N") => {
            let off = TlsWords::POSTGRES.off;
            let mend = format!("turn it on there (ssl = on), or write {off}");
            Err(Error::new(ErrorKind::Tls, format!("the server has no TLS: {mend}")))
        }
        // A server that cannot serve says so in other words, and a proxy without one just hangs up.
        (count, _) => {
            if count > 0 {
                // What kind of server it is shows in some bytes more.
                let _ = stream.read(&mut [0; 64], Deadline::after(LEAST).min(deadline));
            }
            Err(Error::new(ErrorKind::Refused, "the server hung up when it was asked for TLS"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, StoreConfig};

    #[test]
    fn c1_a_server_without_standbys_does_not_speak_for_one_that_has_some() {
        let config = Config::from_url("postgres://bob@h,other/db").unwrap();
        let StoreConfig::Postgres(postgres) = config.store else { panic!() };
        let dialer = Dialer::new(&postgres, Duration::from_secs(1)).unwrap();
        for seen in [false, true, false] {
            dialer.note_standbys(seen);
        }
        assert!(dialer.has_standbys.load(Ordering::Relaxed));
    }
}
