//! A PostgreSQL whose server, network or pooler misbehaves.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::postgres::{made, of};
use crate::sql::{client, goes_past_a_silent_host};
use crate::stores::{LIMIT, STALL, Store, eventually_free, ms, secs};
use kit::{Babble, Mode, Postgres, Proxy, eventually, unless_starved};
use leasehold::{Client, ErrorKind};
use log::{Level, LevelFilter, Log, Metadata, Record};

#[test]
fn c10_threads_that_come_again_leave_the_lock_to_those_who_can_only_ask() {
    let store = Store::postgres();
    let (_pooler, port) = of(&store).server().pooler();
    let pooled = format!("postgres://postgres@127.0.0.1:{port}/{}", of(&store).name);
    let grants = |url: &str, name: &str| {
        let lock = client(url).lock(name).wait(LIMIT);
        let turn = || {
            let lease = lock.acquire().unwrap();
            let fence = lease.fence();
            thread::sleep(ms(30));
            lease.release().unwrap();
            fence
        };
        let by_two_threads = |turns: usize| {
            let turns = || (0..turns).map(|_| turn()).collect::<Vec<_>>();
            thread::scope(|scope| {
                [scope.spawn(turns), scope.spawn(turns)].map(|it| it.join().unwrap())
            })
            .concat()
        };
        // A look does not wait for a connection that has to be made first.
        by_two_threads(2);
        let mut fences = by_two_threads(8);
        fences.sort_unstable();
        1 + fences.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
    };
    unless_starved(STALL, || assert!(grants(&store.url(), "n") < 5));
    for (url, name) in [(&store.url(), "n".repeat(2000)), (&pooled, "p".to_owned())] {
        let grants = grants(url, &name);
        assert!(grants >= 7, "{grants} grants for 16 turns");
    }
}

#[test]
fn c7_a_postgres_that_answers_no_take_is_left_for_the_next_host() {
    let store = Store::postgres();
    goes_past_a_silent_host(&store.url(), of(&store).server().port(), b"_take\0");
}

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

#[test]
fn c1_an_explanation_that_comes_too_late_is_nobodys_answer() {
    let store = Store::postgres();
    let mut proxy = Proxy::start(of(&store).server().port());
    let own = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), of(&store).name);
    let client = Client::open(&format!("{own}?io_timeout=2s&pool=1")).unwrap();
    let lease = client.lock("m").ttl(secs(600)).acquire().unwrap();
    client.lock("n").acquire().unwrap().release().unwrap();
    of(&store).sql("UPDATE leasehold.lease SET last = 9007199254740991 WHERE name = 'n'");
    proxy.set_only(b"AS found WHERE", Mode::HoldRequests);
    let error = client.lock("n").try_acquire().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let asked = proxy.held();
    assert!(asked > 0, "{error}");
    // It is another's by now.
    of(&store).sql("UPDATE leasehold.lease SET token = gen_random_uuid() WHERE name = 'm'");
    thread::scope(|scope| {
        let extending = scope.spawn(|| lease.extend());
        eventually(LIMIT, || extending.is_finished() || proxy.held() > asked);
        proxy.deliver();
        let error = extending.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    });
}

#[test]
fn c4_the_server_soon_sees_that_a_machine_is_gone() {
    let server = Postgres::start();
    let url = server.url(&made(&server));
    let (one, two) = (client(&url), client(&url));
    let lease = one.lock("n").acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| two.lock("n").acquire_within(LIMIT).unwrap().release());
        // How long each of its connections may still be silent until it asks.
        let silences = || {
            let ours = format!("0100007F:{:04X}", server.port());
            let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let open = lines.filter(|line| line[1] == ours && line[3] == "01");
            open.map(|line| line[5].to_owned()).collect::<Vec<_>>()
        };
        let is_soon = |timer: &String| {
            let ticks =
                timer.strip_prefix("02:").map(|left| u64::from_str_radix(left, 16).unwrap());
            ticks.is_some_and(|ticks| ticks <= 1000)
        };
        // Requests of both, and one that listens.
        eventually(LIMIT, || silences().len() >= 3 && silences().iter().all(is_soon));
        lease.release().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Hears what is said of poolers.
struct Lines(Mutex<Vec<(Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let said = record.args().to_string();
        if said.contains("pooler") {
            self.0.lock().unwrap().push((record.level(), said));
        }
    }

    fn flush(&self) {}
}

#[test]
fn that_a_pooler_stands_before_the_server_is_said_once_by_each_client() {
    kit::child::alone(|| {
        log::set_logger(&LINES).unwrap();
        log::set_max_level(LevelFilter::Debug);
        let store = Store::postgres();
        let (_pooler, port) = of(&store).server().pooler();
        let pooled = format!("postgres://postgres@127.0.0.1:{port}/{}", of(&store).name);
        // Of each several connections, at the same time.
        let uses = |url: &str| {
            let client = client(url);
            let lease = client.lock("n").acquire().unwrap();
            thread::scope(|scope| {
                let wait = || client.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
                let waiting = [(); 3].map(|()| scope.spawn(wait));
                (0..20).for_each(|_| drop(client.lock("n").inspect().unwrap()));
                lease.release().unwrap();
                waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
            });
        };
        let said = || std::mem::take(&mut *LINES.0.lock().unwrap());
        uses(&store.url());
        assert_eq!(said(), []);
        for _ in 0..2 {
            uses(&pooled);
            let lines = said();
            let [(Level::Warn, line), (Level::Warn, untold)] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert!(line.starts_with("pooler why=\"a pooler stands before the database"), "{line}");
            assert!(line.contains("waiters ask again and again"), "{line}");
            assert!(untold.starts_with("waiters-untold error="), "{untold}");
        }
    });
}
