//! Names to addresses, by a deadline.
//!
//! The system's resolver has no deadline, so it runs on a thread of its own. Where that thread is
//! not done when its caller gives up, the next caller that wants the same name waits for it: a
//! resolver that hangs costs one thread for a name, and not one for every call.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::net;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::system::Thread;

#[derive(Default)]
pub(super) struct Resolver(Arc<Lookups>);

#[derive(Default)]
struct Lookups {
    /// An answer about one says nothing of another one, and nobody waits for another one's.
    all: Mutex<BTreeMap<Named, Lookup>>,
    answered: Condvar,
}

type Named = (String, u16);
type Found = Result<Vec<SocketAddr>, Error>;

#[derive(Default)]
struct Lookup {
    waiting: usize,
    found: Option<Found>,
}

/// With this many lookups under way, answers that came too late are not kept.
const KEPT: usize = 64;

impl Resolver {
    pub(super) fn resolve(&self, host: &str, port: u16, deadline: Deadline) -> Found {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let named = (host.to_owned(), port);
        let mut lookups = self.begin(&named)?;
        loop {
            let left = deadline.left().min(Duration::from_secs(3600));
            let lookup = lookups.entry(named.clone()).or_default();
            if lookup.found.is_none() && !left.is_zero() {
                lookups = self.0.answered.wait_for(lookups, left);
                continue;
            }
            lookup.waiting -= 1;
            let late = || Err(Error::new(ErrorKind::NoAnswer, format!("looking up {host}")));
            let found = lookup.found.clone();
            if lookup.waiting == 0 && found.is_some() {
                lookups.remove(&named);
            }
            return found.unwrap_or_else(late);
        }
    }

    fn begin(&self, named: &Named) -> Result<MutexGuard<'_, BTreeMap<Named, Lookup>>, Error> {
        let mut lookups = self.0.all.lock();
        // It takes longer than a caller waits; if this is out of date, the next one asks anew. A
        // failure says nothing about now.
        let is_wanted =
            |lookup: &Lookup| lookup.waiting > 0 || !matches!(lookup.found, Some(Err(_)));
        if !lookups.get(named).is_some_and(is_wanted) {
            if lookups.len() >= KEPT {
                lookups.retain(|_, lookup| lookup.waiting > 0 || lookup.found.is_none());
            }
            let (all, (host, port)) = (Arc::clone(&self.0), named.clone());
            let started = Thread::start(c"leasehold-dns", move || {
                let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
                let found =
                    found.map_err(|error| net::failed(&format!("looking up {host}"), &error));
                all.answer(&(host, port), found);
            });
            let failed =
                |error| Error::new(ErrorKind::Exhausted, format!("a thread to look up: {error}"));
            started.map_err(failed)?;
            lookups.insert(named.clone(), Lookup::default());
        }
        lookups.entry(named.clone()).or_default().waiting += 1;
        Ok(lookups)
    }
}

impl Lookups {
    fn answer(&self, named: &Named, found: Found) {
        if let Some(lookup) = self.all.lock().get_mut(named) {
            lookup.found = Some(found);
        }
        self.answered.notify_all();
    }
}

#[cfg(test)]
#[cfg(kit)]
mod tests {
    use super::*;
    use kit::eventually;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A lookup was begun, and is not answered.
    fn resolver(host: &str, port: u16) -> Resolver {
        let resolver = Resolver::default();
        resolver.begins(host, port);
        resolver
    }

    impl Resolver {
        fn begins(&self, host: &str, port: u16) {
            self.0.all.lock().insert((host.to_owned(), port), Lookup::default());
        }

        fn answers(&self, host: &str, port: u16, found: Found) {
            self.0.answer(&(host.to_owned(), port), found);
        }

        fn is_idle(&self) -> bool {
            self.0.all.lock().is_empty()
        }
    }

    fn addresses(text: &str) -> Vec<SocketAddr> {
        vec![text.parse().unwrap()]
    }

    fn failed() -> Found {
        Err(Error::bare(ErrorKind::Refused))
    }

    fn soon() -> Deadline {
        Deadline::after(LIMIT)
    }

    #[test]
    fn a_lookup_that_failed_when_nobody_waited_is_made_again() {
        let resolver = resolver("localhost", 7);
        resolver.answers("localhost", 7, failed());
        let addresses = resolver.resolve("localhost", 7, soon()).unwrap();
        assert!(addresses.iter().any(|address| address.ip().is_loopback()), "{addresses:?}");
    }

    #[test]
    fn a_lookup_that_takes_longer_than_a_caller_serves_the_next_one() {
        let resolver = resolver("localhost", 7);
        let late = resolver.resolve("localhost", 7, Deadline::after(Duration::from_millis(20)));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::NoAnswer);
        resolver.answers("localhost", 7, Ok(addresses("192.0.2.1:7")));
        let found = resolver.resolve("localhost", 7, soon()).unwrap();
        assert_eq!(found, addresses("192.0.2.1:7"));
    }

    #[test]
    fn a_late_answer_is_used_for_the_host_and_the_port_that_it_is_about() {
        for (host, port) in [("elsewhere.invalid", 7), ("localhost", 8)] {
            let resolver = resolver(host, port);
            resolver.answers(host, port, Ok(addresses("192.0.2.1:7")));
            let here = resolver.resolve("localhost", 7, soon()).unwrap();
            assert!(here.iter().all(|address| address.ip().is_loopback()), "{host} {here:?}");
            let there = resolver.resolve(host, port, soon()).unwrap();
            assert_eq!(there, addresses("192.0.2.1:7"));
            assert!(resolver.is_idle());
        }
    }

    #[test]
    fn a_lookup_that_hangs_is_one_for_all_who_want_it_and_holds_up_nobody_else() {
        let resolver = resolver("localhost", 7);
        std::thread::scope(|scope| {
            let wants = || resolver.resolve("localhost", 7, soon());
            let both = [scope.spawn(wants), scope.spawn(wants)];
            let share = |lookup: &Lookup| lookup.waiting == 2;
            eventually(LIMIT, || resolver.0.all.lock().values().any(share));
            resolver.resolve("localhost", 8, soon()).unwrap();
            assert!(both.iter().all(|one| !one.is_finished()));
            resolver.answers("localhost", 7, failed());
            for one in both {
                assert_eq!(one.join().unwrap().unwrap_err().kind(), ErrorKind::Refused);
            }
        });
        assert!(resolver.is_idle());
    }

    #[test]
    fn answers_that_nobody_came_back_for_are_not_kept_for_ever() {
        let resolver = resolver("localhost", 0);
        for port in 1..1000 {
            resolver.begins("localhost", port);
            resolver.answers("localhost", port, Ok(addresses("192.0.2.1:7")));
            resolver.resolve("localhost", 1000 + port, soon()).unwrap();
        }
        let lookups = resolver.0.all.lock();
        assert!(lookups.len() <= KEPT, "{}", lookups.len());
        assert!(lookups.contains_key(&("localhost".to_owned(), 0)), "it is under way");
    }
}
