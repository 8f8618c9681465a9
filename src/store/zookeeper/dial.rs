//! Making a connection: a server of the ensemble, TLS, the session, who we are, and whether the nodes
//! are there that a program does not make by itself; all by one deadline.

use std::io;
use std::time::Duration;

use super::fault;
use super::jute::{Acl, Ask, Packer, Reply, Unpacker, code, garbled};
use crate::clock::Deadline;
use crate::config::limits::MAX_FENCE;
use crate::config::{Access, Address, ZookeeperConfig};
use crate::error::{Error, ErrorKind};
use crate::store::net::dial::Connector;
use crate::store::net::hosts::Hosts;
use crate::store::net::incoming::Incoming;
use crate::store::net::stranger::Kind;
use crate::store::net::stream::{LEAST, Stream};
use crate::store::net::tls::Tls;
use crate::token::Token;

/// What a server is asked for: a session, and with it the place of a waiter, outlives a connection, or
/// the process, by so much. A server gives no less than two of its ticks, of 2 s each by default.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Of a message that is longer no more is read than which request it answers, ...
pub(super) const LONGEST: usize = 8 << 20;
/// ... and one that is longer still is not of a ZooKeeper.
const ABSURD: usize = 256 << 20;
/// The number of the request, the last change, and whether it was refused.
const HEAD: usize = 4 + 8 + 4;

pub(super) struct Dialer {
    pub(super) config: ZookeeperConfig,
    needs_root: bool,
    /// The node below which all others stand.
    pub(super) root: String,
    tls: Option<Tls>,
    connector: Connector,
    pub(super) hosts: Hosts,
}

/// What a server knows a client by, whichever connection it has.
#[derive(Clone)]
pub(super) struct Identity {
    number: i64,
    password: Vec<u8>,
    pub(super) timeout: Duration,
}

/// What comes, message by message.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Incoming,
    /// So many that come next belong to a message that is not read.
    skipped: usize,
}

impl Inbox {
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let gone = self.skipped.min(self.bytes.rest().len());
        self.bytes.taken(gone);
        self.skipped -= gone;
        let Some((length, rest)) = self.bytes.rest().split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| garbled())?;
        if length > ABSURD {
            return Err(garbled());
        }
        let read = if length > LONGEST { HEAD } else { length };
        let Some(mut message) = rest.get(..read).map(<[u8]>::to_vec) else { return Ok(None) };
        if read < length {
            message[HEAD - 4..].copy_from_slice(&code::TOO_LONG.to_be_bytes());
        }
        self.bytes.taken(4 + read);
        self.skipped = length - read;
        Ok(Some(message))
    }

    /// Reads what has come, or what comes first; nothing if that is not there by then. False if there may be
    /// more, which is read once the messages are taken out.
    pub(super) fn fill(&mut self, stream: &mut Stream, deadline: Deadline) -> Result<bool, Error> {
        let (mut room, mut until) = ([0; 4096], deadline);
        loop {
            match stream.read(&mut room, until) {
                Ok(0) => return Err(Error::new(ErrorKind::Refused, HUNG_UP)),
                Ok(count) => {
                    self.bytes.came(&room[..count]);
                    // Of TLS there may be more that no longer waits in the socket.
                    if count < room.len() || self.bytes.rest().len() > LONGEST {
                        return Ok(count < room.len());
                    }
                    until = Deadline::after(LEAST);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Error::new(ErrorKind::Refused, HUNG_UP));
                }
                Err(error) => return Err(stream.explain("reading from the server", &error)),
            }
        }
    }
}

const HUNG_UP: &str = "the server hung up: it ends, or its ensemble has no majority, or it knows less \
     than this client has seen, or it is no ZooKeeper, or one that wants TLS (tls=yes) or none";

impl Dialer {
    /// Without `needs_root`, the nodes may be missing that a program does not make by itself.
    pub(super) fn new(config: &ZookeeperConfig, needs_root: bool) -> Result<Dialer, Error> {
        // Not all clients go to the same server.
        let mut hosts = config.hosts.clone();
        hosts.rotate_left(Token::random()?.seed() as usize % config.hosts.len().max(1));
        Ok(Dialer {
            root: format!("{}/leasehold", config.chroot),
            config: config.clone(),
            needs_root,
            tls: Tls::prepare(config.access.tls.as_ref(), &config.hosts)?,
            connector: Connector::default(),
            hosts: Hosts::new(&hosts),
        })
    }

    /// Who may do what with nodes that are made: where a user is named, nobody else.
    pub(super) fn acl(&self) -> Acl {
        if self.config.access.has_password() { Acl::Ours } else { Acl::Anybody }
    }

    /// A connection to a server that serves and knows the last change that was seen, with the session that
    /// there was, if it is not over.
    pub(super) fn dial(
        &self,
        (before, seen): (Option<&Identity>, i64),
        deadline: Deadline,
    ) -> Result<(Stream, Inbox, Identity), Error> {
        self.hosts.dial(deadline, |address, _, until| {
            let made = match self.dial_one(address, (before, seen), until)? {
                None => self.dial_one(address, (None, seen), until)?,
                made => made,
            };
            made.ok_or_else(|| Error::bare(ErrorKind::Refused))
        })
    }

    /// None if the session is over.
    fn dial_one(
        &self,
        address: &Address,
        before: (Option<&Identity>, i64),
        deadline: Deadline,
    ) -> Result<Option<(Stream, Inbox, Identity)>, Error> {
        self.config.access.log_in(address, deadline, |access| {
            let mut stream = self.open(address, deadline)?;
            let mut inbox = Inbox::default();
            let said = self.begin((&mut stream, &mut inbox), access, before, deadline);
            let doubt = |error| stream.doubt(Kind::Zookeeper, error);
            let identity = said.map_err(|error| doubt(error).at(address))?;
            Ok(identity.map(|identity| (stream, inbox, identity)))
        })
    }

    /// A connection on which nothing was said yet.
    pub(super) fn open(&self, address: &Address, deadline: Deadline) -> Result<Stream, Error> {
        let mut stream = Stream::new(self.connector.connect(address, deadline, &|_| Ok(()))?);
        if let Some(tls) = &self.tls {
            stream.secure(tls, address, deadline)?;
        }
        Ok(stream)
    }

    fn begin(
        &self,
        (stream, inbox): (&mut Stream, &mut Inbox),
        access: &Access,
        (before, seen): (Option<&Identity>, i64),
        deadline: Deadline,
    ) -> Result<Option<Identity>, Error> {
        let mut out = Vec::new();
        let mut packer = Packer { out: &mut out, acl: self.acl() };
        let none = [0; 16];
        let (number, password) =
            before.map_or((0, none.as_slice()), |it| (it.number, &it.password));
        packer.connect(seen, TIMEOUT.as_millis() as i32, number, password);
        let mut answers = 1;
        if let (Some(user), Some(password)) = (&access.user, &access.password) {
            packer.auth(format!("{user}:{}", password.0).as_bytes());
            answers += 1;
        }
        packer.ask(0, &Ask::Get(&self.root));
        let sent = stream.send(&out, deadline);
        sent.map_err(|(_, error)| fault::io("sending to the server", &error))?;
        let mut next = || loop {
            if let Some(message) = inbox.next()? {
                return Ok::<_, Error>(message);
            }
            if deadline.has_passed() {
                return Err(fault::silent());
            }
            inbox.fill(stream, deadline)?;
        };
        let welcome = next()?;
        let mut from = Unpacker(&welcome);
        let (_, timeout, number) = (from.int()?, from.int()?, from.long()?);
        let Ok(timeout @ 1..) = u64::try_from(timeout) else { return Ok(None) };
        let password = from.bytes()?.to_vec();
        let mut reply = Reply::read(&next()?)?.1;
        for _ in 1..answers {
            if reply.code != 0 {
                return Err(fault::server(-115));
            }
            reply = Reply::read(&next()?)?.1;
        }
        match reply.code {
            0 => fault::check_root(reply.data()?.0)?,
            code::NO_NODE if !self.needs_root => {}
            code::NO_AUTH => return Err(fault::no_right(Some("read"), &self.root)),
            refused => return Err(fault::server(refused)),
        }
        if u64::try_from(reply.zxid).is_ok_and(|zxid| zxid > MAX_FENCE) {
            return Err(Error::new(ErrorKind::Storage, TOO_MANY_TERMS));
        }
        let timeout = Duration::from_millis(timeout);
        Ok(Some(Identity { number, password, timeout }))
    }
}

const TOO_MANY_TERMS: &str = "the ensemble has had more than two million elections, and its numbers are \
     too large for fences: use a new ensemble, and names or resources that no old fence has guarded";
