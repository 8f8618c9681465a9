//! What is asked of PostgreSQL and MySQL in the same words.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;

use kit::{Mode, Proxy};
use leasehold::{Client, Error};

use crate::stores::{LIMIT, ms};

pub(crate) fn client(url: &str) -> Client {
    Client::open(&with(url, "io_timeout=10s")).unwrap()
}

pub(crate) fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

pub(crate) fn refused(url: &str) -> Error {
    client(url).lock("n").try_acquire().map(drop).unwrap_err()
}

/// A host that lets everybody in, and answers no take, is left for the next one. Here it is another way to
/// the same server.
pub(crate) fn goes_past_a_silent_host(url: &str, port: u16, take: &[u8]) {
    let mut proxy = Proxy::start(port);
    let own = format!("127.0.0.1:{port}");
    let both = url.replace(&own, &format!("127.0.0.1:{},{own}", proxy.port()));
    let client = Client::open(&with(&both, "io_timeout=2s")).unwrap();
    client.lock("n").acquire().unwrap().release().unwrap();
    proxy.set_only(take, Mode::SwallowReplies);
    client.lock("n").wait(LIMIT).acquire().unwrap().release().unwrap();
    assert!(client.counters().unknown > 0, "the first one was silent");
}

/// Turns of four threads with clients of their own, at these URLs by turns, while `trouble` goes on in
/// another one. No two of them are inside at once, and each fence is larger than all before it.
pub(crate) fn contend(urls: &[&str], turns: u32, trouble: impl Fn() + Sync) {
    let (inside, count, is_over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let last = AtomicU64::new(0);
    let play = &|url: &str| {
        let lock = client(url).lock("n").wait(LIMIT);
        for _ in 0..turns {
            let lease = lock.acquire().unwrap();
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            assert!(last.swap(lease.fence(), SeqCst) < lease.fence());
            // Nobody else writes it meanwhile.
            let counted = count.load(SeqCst);
            thread::yield_now();
            count.store(counted + 1, SeqCst);
            inside.fetch_sub(1, SeqCst);
            lease.release().unwrap();
        }
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|at| scope.spawn(move || play(urls[at % urls.len()])));
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                trouble();
                thread::sleep(ms(10));
            }
        });
        let ended = threads.map(|thread| thread.join());
        is_over.store(true, SeqCst);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert_eq!(count.into_inner(), 4 * turns);
}
