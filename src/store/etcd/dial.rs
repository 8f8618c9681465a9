//! Making a connection to one of the members: a token for the user, resolve, connect, TLS; all by one
//! deadline.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::login::{self, Asking, Logins};
use super::messages::{self, Done, Txn};
use super::proto::Message;
use super::wire::Wire;
use super::{fault, hpack};
use crate::clock::{Deadline, Moment};
use crate::config::{Address, EtcdConfig};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
use crate::store::net::dial::{Connector, Show};
use crate::store::net::stream::Stream;
use crate::store::net::tls::Tls;
use crate::sync::Mutex;
use crate::token::Token;

pub(super) struct Dialer {
    config: EtcdConfig,
    tls: Option<Tls>,
    connector: Connector,
    /// The member to which a connection is made next.
    next: AtomicUsize,
    /// When each member last did not answer: connections from before may lead to one that is cut off
    /// from the others.
    doubted: Mutex<Vec<Moment>>,
    logins: Logins,
}

impl Dialer {
    pub(super) fn new(config: &EtcdConfig) -> Result<Dialer, Error> {
        let tls = Tls::prepare(config.access.tls.as_ref(), &config.hosts)?;
        // Many programs have the same URL, and the members share the work.
        let first = Token::random()?.seed() as usize % config.hosts.len().max(1);
        Ok(Dialer {
            doubted: Mutex::new(vec![Moment::ZERO; config.hosts.len()]),
            config: config.clone(),
            tls: tls.map(|tls| tls.speaking(b"h2")),
            connector: Connector::default(),
            next: AtomicUsize::new(first),
            logins: Logins::default(),
        })
    }

    pub(super) fn members(&self) -> usize {
        self.config.hosts.len()
    }

    /// A member did not answer, or cannot serve: others are asked, if there are any.
    pub(super) fn doubt(&self, wire: &Wire) {
        if let Some(doubted) = self.doubted.lock().get_mut(wire.member) {
            *doubted = Moment::now();
        }
        let _ = self.next.compare_exchange(
            wire.member,
            (wire.member + 1) % self.members(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(super) fn is_doubted(&self, wire: &Wire) -> bool {
        let doubted = self.doubted.lock();
        self.members() > 1 && doubted.get(wire.member).is_some_and(|at| wire.made < *at)
    }

    /// Whether the server has forgotten who we are. Then this does so, too, unless it knows better by now.
    pub(super) fn is_forgotten(&self, wire: &Wire, error: &Error) -> bool {
        let is_forgotten = fault::is_lost_token(error.detail());
        if is_forgotten {
            self.logins.forget(wire.token.as_ref());
        }
        is_forgotten
    }

    /// The token of our user; `None` where the URL has none. A login that no member has answered by the
    /// deadline goes on.
    fn token(&self, deadline: Deadline, show: &Show<'_>) -> Result<Option<String>, Error> {
        let (access, called) = (&self.config.access, Moment::now());
        if access.user.is_none() && !access.has_password() {
            return Ok(None);
        }
        if let Some(token) = self.logins.token() {
            return Ok(Some(token));
        }
        let mut asking = self.logins.asking.enter(deadline).ok_or_else(login::unanswered)?;
        if let Some(token) = self.logins.token() {
            return Ok(Some(token));
        }
        if let Some(error) = asking.refused(called) {
            return Err(error);
        }
        let first = &self.config.hosts[self.next.load(Ordering::Relaxed) % self.members()];
        let answered = access.log_in(first, deadline, |access| {
            let (Some(user), Some(password)) = (&access.user, &access.password) else {
                return Ok(None);
            };
            let ask = messages::authenticate(user, &password.0);
            let answered = self.on_members(deadline, |member, until| {
                let connect = || self.connect(member, until, show);
                let answered = asking.log_in(member, (&connect, &ask), until, show);
                answered.map_err(|error| error.at(&self.config.hosts[member]))
            });
            answered.map(Some).inspect_err(|error| asking.failed(error))
        });
        let Some((token, wire)) = answered? else { return Ok(None) };
        *asking = Asking::default();
        self.logins.found(&token, wire);
        Ok(Some(token))
    }

    /// A connection to any member. It shows each socket before it connects.
    pub(super) fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let token = self.token(deadline, show)?;
        self.on_members(deadline, |member, until| {
            let mut wire = self.connect(member, until, show)?;
            wire.token.clone_from(&token);
            Ok(wire)
        })
    }

    /// One whose server was not heard to have forgotten us: this, or the one on which we have just logged
    /// in, or a new one. A token is used for as long as it is good: other members may know one that one
    /// of them has forgotten.
    pub(super) fn known(
        &self,
        mut kept: Option<Box<Wire>>,
        deadline: Deadline,
    ) -> Result<Box<Wire>, Error> {
        if let Some(wire) = kept.take_if(|wire| wire.token.is_some()) {
            return Ok(wire);
        }
        let no_show: &Show<'_> = &|_| Ok(());
        let token = self.token(deadline, no_show)?;
        if token.is_some()
            && let Some(mut wire) = self.logins.take_spare()
            && !self.is_doubted(&wire)
            && !wire.is_stale(Moment::now())
        {
            return Ok(Box::new(wire));
        }
        match kept {
            Some(mut wire) => {
                wire.token = token;
                Ok(wire)
            }
            None => self.dial(deadline, no_show).map(Box::new),
        }
    }

    /// Does something with a member, or with the next where that fails.
    fn on_members<T>(
        &self,
        deadline: Deadline,
        mut act: impl FnMut(usize, Deadline) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (count, first) = (self.members(), self.next.load(Ordering::Relaxed));
        let mut failed: Option<Error> = None;
        for tried in 0..count {
            let member = (first + tried) % count;
            // One that swallows everything must leave time for the others.
            match act(member, deadline.share(count - tried)) {
                Ok(done) => {
                    self.next.store(member, Ordering::Relaxed);
                    return Ok(done);
                }
                // One that can be mended tells more than one that is down.
                Err(error) if failed.as_ref().is_none_or(Error::is_retriable) => {
                    failed = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Error::bare(ErrorKind::Refused)))
    }

    /// To this member, which does not know us yet.
    fn connect(&self, member: usize, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let address = &self.config.hosts[member];
        let mut stream = Stream::new(self.connector.connect(address, deadline, show)?);
        if let Some(tls) = &self.tls {
            stream.secure(tls, address, deadline)?;
        }
        let mut head = Vec::new();
        hpack::write(&mut head, ":method", "POST");
        hpack::write(&mut head, ":scheme", if stream.is_tls() { "https" } else { "http" });
        hpack::write(&mut head, ":authority", &authority(address));
        Ok(Wire::new(stream, member, head))
    }
}

fn authority(address: &Address) -> String {
    match address {
        Address::Tcp { .. } => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}

/// One request, and what it was answered as.
pub(super) fn call<T>(
    wire: &mut Wire,
    path: &str,
    message: &Message,
    read: fn(&[u8]) -> Option<T>,
    deadline: Deadline,
) -> Result<(T, Moment), Failure> {
    let (answer, sent) = wire.call(path, message, deadline)?;
    let answer = read(&answer).ok_or_else(|| Failure::unknown(fault::foreign(), sent))?;
    Ok((answer, sent))
}

/// A transaction, and what it came to.
pub(super) fn transact(
    wire: &mut Wire,
    txn: &Txn,
    deadline: Deadline,
) -> Result<(Done, Moment), Failure> {
    call(wire, messages::TXN, &txn.0, Done::read, deadline)
}
