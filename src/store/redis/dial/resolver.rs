//! Names to addresses, by a deadline.
//!
//! The system's resolver has no deadline, so it runs on a thread of its own. Where that thread is
//! not done when its caller gives up, the next caller that wants the same name waits for it: a
//! resolver that hangs costs one thread for a name, and not one for every call.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::fork::Thread;
use crate::store::redis::fault;
use crate::sync::{Mutex, Turnstile};

#[derive(Default)]
pub(super) struct Resolver {
    /// An answer about one says nothing of another one, and nobody waits for another one's.
    lookups: Mutex<BTreeMap<Named, Arc<Lookup>>>,
}

type Found = io::Result<Vec<SocketAddr>>;
/// A host and a port.
type Named = (String, u16);
/// What is under way.
type Lookup = Turnstile<Option<Receiver<Found>>>;

/// With this many lookups under way, answers that came too late are not kept.
const KEPT: usize = 64;

impl Resolver {
    pub(super) fn resolve(
        &self,
        host: &str,
        port: u16,
        deadline: Deadline,
    ) -> Result<Vec<SocketAddr>, Error> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let named = (host.to_owned(), port);
        let lookup = self.enter(&named);
        let found = finish(&lookup, &named, deadline);
        self.leave(&named, lookup);
        found
    }

    fn enter(&self, named: &Named) -> Arc<Lookup> {
        let mut lookups = self.lookups.lock();
        if let Some(lookup) = lookups.get(named) {
            return Arc::clone(lookup);
        }
        if lookups.len() >= KEPT {
            lookups.retain(|_, lookup| {
                is_in_use(lookup, |answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)))
            });
        }
        Arc::clone(lookups.entry(named.clone()).or_default())
    }

    fn leave(&self, named: &Named, lookup: Arc<Lookup>) {
        let mut lookups = self.lookups.lock();
        drop(lookup);
        if lookups.get(named).is_some_and(|lookup| !is_in_use(lookup, |_| true)) {
            lookups.remove(named);
        }
    }
}

/// Whether somebody is at it, or something is under way that is wanted.
fn is_in_use(lookup: &Arc<Lookup>, is_wanted: impl Fn(&Receiver<Found>) -> bool) -> bool {
    Arc::strong_count(lookup) > 1
        || lookup.enter_now().is_none_or(|under_way| under_way.as_ref().is_some_and(is_wanted))
}

/// Goes on with what is under way, or begins.
fn finish(
    lookup: &Lookup,
    (host, port): &Named,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, Error> {
    let late = || Error::new(ErrorKind::NoAnswer, format!("looking up {host}"));
    let mut under_way = lookup.enter(deadline).ok_or_else(late)?;
    let earlier = under_way.take().map(|answer| (answer.try_recv(), answer));
    let answer = match earlier {
        // It takes longer than a caller waits; if this is out of date, the next one asks anew.
        Some((Ok(Ok(found)), _)) => return Ok(found),
        Some((Err(TryRecvError::Empty), answer)) => answer,
        // A failure says nothing about now.
        _ => look_up(host.clone(), *port)?,
    };
    match answer.recv_timeout(deadline.left()) {
        Ok(found) => found.map_err(|error| fault::io(&format!("looking up {host}"), &error)),
        Err(RecvTimeoutError::Timeout) => {
            *under_way = Some(answer);
            Err(late())
        }
        Err(RecvTimeoutError::Disconnected) => Err(late()),
    }
}

fn look_up(host: String, port: u16) -> Result<Receiver<Found>, Error> {
    let (found, answer) = mpsc::channel();
    let started = Thread::start(c"leasehold-dns", move || {
        // Nobody may be listening any more.
        let _ = found.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    });
    match started {
        Ok(_) => Ok(answer),
        Err(error) => {
            Err(Error::new(ErrorKind::Exhausted, format!("a thread to look up: {error}")))
        }
    }
}

#[cfg(test)]
#[cfg(kit)]
mod tests {
    use std::time::Duration;

    use super::*;
    use kit::eventually;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A lookup was begun, and will be answered by this.
    fn resolver(host: &str, port: u16, answer: Receiver<Found>) -> Resolver {
        let resolver = Resolver::default();
        let lookup = Arc::new(Turnstile::new(Some(answer)));
        resolver.lookups.lock().insert((host.to_owned(), port), lookup);
        resolver
    }

    fn addresses(text: &str) -> Vec<SocketAddr> {
        vec![text.parse().unwrap()]
    }

    fn soon() -> Deadline {
        Deadline::after(LIMIT)
    }

    #[test]
    fn a_lookup_that_failed_when_nobody_waited_is_made_again() {
        let (found, answer) = mpsc::channel();
        found.send(Err(io::ErrorKind::Other.into())).unwrap();
        let addresses = resolver("localhost", 7, answer).resolve("localhost", 7, soon()).unwrap();
        assert!(addresses.iter().any(|address| address.ip().is_loopback()), "{addresses:?}");
    }

    #[test]
    fn a_lookup_that_takes_longer_than_a_caller_serves_the_next_one() {
        let (found, answer) = mpsc::channel();
        let resolver = resolver("localhost", 7, answer);
        let late = resolver.resolve("localhost", 7, Deadline::after(Duration::from_millis(20)));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::NoAnswer);
        found.send(Ok(addresses("192.0.2.1:7"))).unwrap();
        let found = resolver.resolve("localhost", 7, soon()).unwrap();
        assert_eq!(found, addresses("192.0.2.1:7"));
    }
    #[test]
    fn a_late_answer_is_used_for_the_host_and_the_port_that_it_is_about() {
        for (host, port) in [("elsewhere.invalid", 7), ("localhost", 8)] {
            let (found, answer) = mpsc::channel();
            let resolver = resolver(host, port, answer);
            found.send(Ok(addresses("192.0.2.1:7"))).unwrap();
            let here = resolver.resolve("localhost", 7, soon()).unwrap();
            assert!(here.iter().all(|address| address.ip().is_loopback()), "{host} {here:?}");
            let there = resolver.resolve(host, port, soon()).unwrap();
            assert_eq!(there, addresses("192.0.2.1:7"));
            assert!(resolver.lookups.lock().is_empty());
        }
    }

    #[test]
    fn a_lookup_that_hangs_is_one_for_all_who_want_it_and_holds_up_nobody_else() {
        let (hung, answer) = mpsc::channel();
        let resolver = resolver("localhost", 7, answer);
        std::thread::scope(|scope| {
            let wants = || resolver.resolve("localhost", 7, soon());
            let both = [scope.spawn(wants), scope.spawn(wants)];
            let share = |lookup: &Arc<Lookup>| Arc::strong_count(lookup) == 3;
            eventually(LIMIT, || resolver.lookups.lock().values().any(share));
            resolver.resolve("localhost", 8, soon()).unwrap();
            assert!(both.iter().all(|one| !one.is_finished()));
            drop(hung);
        });
        assert!(resolver.lookups.lock().is_empty());
    }

    #[test]
    fn answers_that_nobody_came_back_for_are_not_kept_for_ever() {
        let (_hung, answer) = mpsc::channel();
        let resolver = resolver("localhost", 0, answer);
        for port in 1..1000 {
            let (found, answer) = mpsc::channel();
            found.send(Ok(addresses("192.0.2.1:7"))).unwrap();
            let lookup = resolver.enter(&("localhost".to_owned(), port));
            *lookup.enter_now().unwrap() = Some(answer);
        }
        let lookups = resolver.lookups.lock();
        assert!(lookups.len() <= KEPT, "{}", lookups.len());
        assert!(lookups.contains_key(&("localhost".to_owned(), 0)), "it is under way");
    }
}
