//! Making a connection to one of the members: resolve, connect, TLS, and a token for the user; all by
//! one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};

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
#[cfg(feature = "tls")]
use crate::store::net::tls;
use crate::sync::Mutex;
use crate::token::Token;

pub(super) struct Dialer {
    config: EtcdConfig,
    #[cfg(feature = "tls")]
    tls: Option<std::sync::Arc<rustls::ClientConfig>>,
    connector: Connector,
    /// The member to which a connection is made next.
    next: AtomicUsize,
    /// When each member last did not answer: connections from before may lead to one that is cut off
    /// from the others.
    doubted: Mutex<Vec<Moment>>,
    /// By which the servers know our user, for some minutes.
    token: Mutex<Option<String>>,
}

impl Dialer {
    pub(super) fn new(config: &EtcdConfig) -> Result<Dialer, Error> {
        #[cfg(feature = "tls")]
        let tls = match &config.access.tls {
            Some(files) => {
                let mut tls = tls::config(files).map_err(fault::tls)?.as_ref().clone();
                tls.alpn_protocols = vec![b"h2".to_vec()];
                for host in &config.hosts {
                    tls::server(host)?;
                }
                Some(std::sync::Arc::new(tls))
            }
            None => None,
        };
        // Many programs have the same URL, and the members share the work.
        let first = Token::random()?.seed() as usize % config.hosts.len().max(1);
        Ok(Dialer {
            doubted: Mutex::new(vec![Moment::ZERO; config.hosts.len()]),
            config: config.clone(),
            #[cfg(feature = "tls")]
            tls,
            connector: Connector::default(),
            next: AtomicUsize::new(first),
            token: Mutex::default(),
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
            self.token.lock().take_if(|token| wire.token.as_ref() == Some(token));
        }
        is_forgotten
    }

    /// A connection to any member. It shows each socket before it connects.
    pub(super) fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let (count, first) = (self.members(), self.next.load(Ordering::Relaxed));
        let mut failed: Option<Error> = None;
        for tried in 0..count {
            let member = (first + tried) % count;
            // One that swallows everything must leave time for the others.
            match self.dial_one(member, deadline.share(count - tried), show) {
                Ok(wire) => {
                    self.next.store(member, Ordering::Relaxed);
                    return Ok(wire);
                }
                // One that can be mended tells more than one that is down.
                Err(error) if failed.as_ref().is_none_or(Error::is_retriable) => {
                    failed = Some(error)
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Error::bare(ErrorKind::Refused)))
    }

    fn dial_one(&self, member: usize, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let address = &self.config.hosts[member];
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut stream = Stream::new(self.connector.connect(address, deadline, show)?);
        #[cfg(feature = "tls")]
        if let Some(config) = &self.tls {
            stream.secure(config, address, deadline).map_err(fault::tls)?;
        }
        let mut head = Vec::new();
        hpack::write(&mut head, ":method", "POST");
        hpack::write(&mut head, ":scheme", if stream.is_tls() { "https" } else { "http" });
        hpack::write(&mut head, ":authority", &authority(address));
        let mut wire = Wire::new(stream, member, head);
        let known = self.authenticate(&mut wire, deadline).map_err(|error| error.at(address))?;
        wire.token = known;
        Ok(wire)
    }

    fn authenticate(&self, wire: &mut Wire, deadline: Deadline) -> Result<Option<String>, Error> {
        let access = &self.config.access;
        let (Some(user), Some(password)) = (&access.user, &access.password) else {
            return Ok(None);
        };
        if let Some(token) = &*self.token.lock() {
            return Ok(Some(token.clone()));
        }
        let asked = messages::authenticate(user, &password.0);
        let answer = call(wire, messages::AUTHENTICATE, &asked, messages::authenticated, deadline);
        let (token, _) = answer.map_err(|failure| failure.error)?;
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
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
