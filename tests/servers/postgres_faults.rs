//! A PostgreSQL whose server, network or pooler misbehaves.

use std::thread;
use std::time::{Duration, Instant};

use crate::postgres::{client, made, of};
use crate::stores::{LIMIT, STALL, Store, eventually_free, ms, secs};
use kit::{Babble, Mode, Postgres, Proxy, eventually, unless_starved};
use leasehold::ErrorKind;

#[test]
fn c7_answers_to_more_or_less_than_was_asked_are_no_answers() {
    const DONE: &[u8] = b"C\0\0\0\x0dUPDATE 1\0";
    const READY: &[u8] = b"Z\0\0\0\x05I";
    let store = Store::postgres();
    let mut proxy = Proxy::start(of(&store).server().port());
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), of(&store).name);
    let (client, other) = (client(&url), store.client());
    for (first, pause, said) in [
        (DONE, Duration::ZERO, "more than it was asked"),
        (READY, secs(60), "less than it was asked"),
    ] {
        client.lock("n").acquire().unwrap().release().unwrap();
        let asked = Instant::now();
        proxy.set_only(b"leasehold_quick_take", Mode::Babble(Babble { first, then: DONE, pause }));
        let error = client.lock("n").try_acquire().map(drop).unwrap_err();
        proxy.set(Mode::Pass);
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.detail().contains(said), "{error}");
        assert!(asked.elapsed() < secs(5), "{error}");
        // The server has done it, so it is undone.
        eventually_free(&other, "n");
    }
}
