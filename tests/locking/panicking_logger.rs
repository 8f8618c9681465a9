//! A logger of the host's that panics on the client's own threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kit::futures::block_on;
use kit::{Server, eventually};
use leasehold::{Client, ErrorKind, EventKind, LossReason};

const LIMIT: Duration = Duration::from_secs(20);

struct Panics;

impl log::Log for Panics {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // As the system has it: it is no thread of std's.
        let here = std::fs::read_to_string("/proc/thread-self/comm").unwrap() == "leasehold\n";
        assert!(!here || record.level() > log::Level::Warn, "on purpose");
    }

    fn flush(&self) {}
}

#[test]
fn c9_each_of_the_leases_that_are_lost_together_is_told_of_though_the_logger_panics() {
    kit::child::alone(|| {
        log::set_logger(&Panics).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let server = Server::start();
        let client = Client::open(&server.url()).unwrap();
        let events = client.events().unwrap();
        let names: Vec<_> = (0..8).map(|number| format!("n{number}")).collect();
        let take = |name: &String| client.lock(name).ttl(Duration::from_secs(3)).acquire();
        let leases: Vec<_> = names.iter().map(|name| take(name).unwrap()).collect();
        let (calls, called) = std::sync::mpsc::channel();
        for lease in &leases {
            let calls = calls.clone();
            lease.on_lost(move |event| calls.send(event.fence).unwrap()).unwrap();
        }
        // They are renewed in one round, mostly.
        let mut gone = vec!["DEL"];
        gone.extend(names.iter().map(String::as_str));
        server.cmd(&gone);
        let mut told = Vec::new();
        while let Ok(Some(event)) = events.next_within(LIMIT) {
            assert!(matches!(event.kind, EventKind::Lost(_)), "{event:?}");
            told.push(event.fence);
        }
        let mut fences: Vec<_> = leases.iter().map(leasehold::Lease::fence).collect();
        let mut heard: Vec<_> =
            fences.iter().map(|_| called.recv_timeout(LIMIT).unwrap()).collect();
        for all in [&mut told, &mut heard, &mut fences] {
            all.sort_unstable();
        }
        assert_eq!((&told, &heard), (&fences, &fences));
        assert!(called.try_recv().is_err());
        client.close().unwrap();
    });
}

#[test]
fn c9_a_client_whose_thread_failed_says_so_and_holds_nothing() {
    kit::child::alone(|| {
        log::set_logger(&Panics).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let server = Server::start();
        let client = Client::open(&server.url()).unwrap();
        let events = client.events().unwrap();
        let lost = client.lock("lost").ttl(Duration::from_millis(300)).acquire().unwrap();
        let other = client.lock("other").acquire().unwrap();

        server.cmd(&["DEL", "lost"]);
        let mut told = Vec::new();
        let end = loop {
            match events.next_within(LIMIT) {
                Ok(Some(event)) => told.push((event.fence, event.kind)),
                Ok(None) => panic!("nothing came, after {told:?}"),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(told[0], (lost.fence(), EventKind::Lost(LossReason::NotHeld)));
        assert_eq!(told[1..], [(other.fence(), EventKind::Lost(LossReason::NotRenewed))]);
        assert_eq!(end, ErrorKind::Closed);
        eventually(LIMIT, || !other.is_valid());
        assert_eq!(client.lock("new").try_acquire().unwrap_err().kind(), ErrorKind::Closed);
        client.close().unwrap();
    });
}

/// Panics once on a thread that goes on with futures.
struct PanicsOnce(AtomicU32);

impl log::Log for PanicsOnce {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let is_first = || self.0.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(thread != "leasehold-wait\n" || !is_first(), "on purpose");
    }

    fn flush(&self) {}
}

#[test]
fn c13_a_future_on_whose_behalf_a_logger_panics_says_so_and_ends_no_other() {
    static LOGGER: PanicsOnce = PanicsOnce(AtomicU32::new(0));
    kit::child::alone(|| {
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
        let server = Server::start();
        let client = Client::open(&server.url()).unwrap();
        let gone = Client::open(&{ Server::start() }.url()).unwrap();
        // What is logged is that nobody can be told of this name.
        let failed = block_on(gone.lock("n").acquire_async(), LIMIT).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
        let failed = block_on(gone.lock("n").acquire_async(), LIMIT).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Refused, "{failed}");
        assert!(LOGGER.0.load(Ordering::Relaxed) > 1);
        block_on(client.lock("n").acquire_async(), LIMIT).unwrap().release().unwrap();
        gone.close().unwrap();
    });
}
