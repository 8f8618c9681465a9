use super::*;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;
use crate::store::{Answer, Listener, REFUSED, Reply};
use crate::wait::Backoff;
use crate::wait::plan::Next;

/// For the exploration of threads: what it looks at, and what it spoils to show that it finds that.
#[cfg(kit)]
#[allow(dead_code, reason = "only where threads are explored")]
impl WaitingRoom {
    /// Nobody waits or listens here any more, and nothing is left of those who did.
    pub(crate) fn is_empty(&self, closed: bool, forbidden: bool) -> bool {
        let waiters = self.waiters.lock();
        // The turn that closing has ended is told to nobody: nobody could follow.
        assert!(!waiters.has_warned || forbidden, "what closing did is taken for a refusal");
        let queues = closed || (waiters.queues.is_empty() && !self.is_occupied());
        queues
            && waiters.sleepers.is_empty()
            && waiters.could_listen.is_empty()
            && waiters.listener.is_none()
            && self.crew.is_empty()
    }

    /// Nobody is woken who does not sleep yet.
    pub(crate) fn forget_wake_ups(&self) {
        self.waiters.lock().sleepers.values_mut().for_each(|sleeper| sleeper.woken = false);
    }

    /// Nobody is found who could listen.
    pub(crate) fn forget_who_could_listen(&self) {
        self.waiters.lock().could_listen.clear();
    }
}

const LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(1);

/// One server that cannot be reached, one that refuses, one that is silent, and one that is well.
/// The first letters of a name say where it is.
#[derive(Default)]
struct Servers {
    tried: Mutex<Vec<String>>,
    heard: AtomicUsize,
    listens: Condvar,
}

impl Servers {
    fn tried(&self) -> Vec<String> {
        self.tried.lock().clone()
    }
}

impl Listener for Servers {
    fn are_open(&self, name: &[u8]) -> bool {
        name.starts_with(b"well") && self.tried.lock().iter().any(|tried| tried.as_bytes() == name)
    }

    fn are_any_open(&self) -> bool {
        self.tried.lock().iter().any(|tried| tried.starts_with("well"))
    }

    fn open(&self, name: &[u8], _: Deadline) -> Result<ServerId, Error> {
        let mut tried = self.tried.lock();
        tried.push(name.escape_ascii().to_string());
        if name == b"silent" {
            // Until somebody listens to the others.
            let until = Moment::now().plus(LIMIT);
            while self.heard.load(Ordering::Relaxed) == 0 && Moment::now() < until {
                tried = self.listens.wait_for(tried, until.since(Moment::now()));
            }
            return Err(Error::bare(ErrorKind::NoAnswer));
        }
        drop(tried);
        match name {
            name if self.are_open(name) => Ok(ServerId::default()),
            b"strict" => Err(Error::bare(ErrorKind::Auth)),
            _ => Err(Error::bare(ErrorKind::Refused)),
        }
    }

    fn hear(&self, _: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let _tried = self.tried.lock();
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.listens.notify_all();
        Ok(Vec::new())
    }

    fn close(&self) {}
}

fn room() -> WaitingRoom {
    WaitingRoom::new(Limits { turns: 1, spread: Duration::ZERO, look: LOOK }, Crew::new(2))
}

fn join(room: &WaitingRoom, name: &str) -> Waiter {
    let terms = Terms {
        ttl: Duration::from_secs(30),
        renew: false,
        max_hold: None,
        group: crate::metrics::Group::REST,
    };
    let pace = Pace::new(Backoff::default(), Duration::from_millis(64), Jitter::seeded(1));
    room.join(&Arc::from(name.as_bytes()), Token::random().unwrap(), terms, pace, None)
}

/// Has a place in the store's queue from then on.
fn place(room: &WaitingRoom, waiter: &Waiter) -> Token {
    let now = Moment::now();
    let (Next::Ask(ask), _) = waiter.next(room, now) else {
        panic!("it is not the waiter's time to ask")
    };
    let free_in = Duration::from_secs(30);
    let reply = Reply::Busy { free_in, ticket: 1, rank: 0, ours: true };
    let answer = Answer { reply, sent: now, server: 0, by: ServerId::default(), again: None };
    assert!(room.answered(&waiter.name, &ask, &Ok(answer), now).is_none());
    assert!(matches!(waiter.next(room, now).0, Next::Sleep(_)));
    ask.token
}

#[test]
fn closing_wakes_a_pause() {
    let room = room();
    std::thread::scope(|scope| {
        scope.spawn(|| room.pause(Moment::NEVER));
        room.close();
    });
    room.pause(Moment::NEVER);
}

/// A waiter for a name on a server that is gone tries again and again, and would always come
/// first.
#[test]
fn a_server_that_cannot_be_heard_keeps_nobody_from_hearing_another_one() {
    let (room, listener) = (room(), Servers::default());
    let [gone, well, other] = ["gone", "well", "well too"].map(|name| join(&room, name));
    let deadline = Deadline::after(LIMIT);
    gone.open(&room, &listener, deadline);
    gone.open(&room, &listener, deadline);
    well.open(&room, &listener, deadline);
    gone.open(&room, &listener, deadline);
    other.open(&room, &listener, deadline);
    assert_eq!(listener.tried(), ["gone", "well", "well too"]);
}

#[test]
fn what_fails_for_one_name_does_not_put_off_what_is_due_for_another_one() {
    let (room, listener) = (room(), Servers::default());
    let [one, other] = ["gone", "gone too"].map(|name| join(&room, name));
    let deadline = Deadline::after(LIMIT);
    one.open(&room, &listener, deadline);
    std::thread::sleep(waiter::REOPEN);
    other.open(&room, &listener, deadline);
    one.open(&room, &listener, deadline);
    assert_eq!(listener.tried(), ["gone", "gone too", "gone"]);
}

#[test]
fn a_server_that_lets_nobody_listen_makes_nobody_deaf_to_another_one() {
    let (room, listener) = (room(), Servers::default());
    let [strict, well, other] = ["strict", "well", "well too"].map(|name| join(&room, name));
    let deadline = Deadline::after(LIMIT);
    well.open(&room, &listener, deadline);
    place(&room, &well);
    strict.open(&room, &listener, deadline);
    other.open(&room, &listener, deadline);
    strict.open(&room, &listener, deadline);
    assert_eq!(listener.tried(), ["well", "strict", "well too"]);
    well.sleep(&room, Moment::now(), Some(&listener), deadline);
    assert_eq!(listener.heard.load(Ordering::Relaxed), 1);
    // Nor does it say anything about names that lie elsewhere.
    let waiters = room.waiters.lock();
    assert_eq!(waiters.refusal(b"strict").unwrap().kind(), ErrorKind::Auth);
    assert!(waiters.refusal(b"well").is_none());
}

#[test]
fn a_server_that_let_nobody_listen_is_asked_again_in_a_while() {
    let (room, listener) = (room(), Servers::default());
    let strict = join(&room, "strict");
    let deadline = Deadline::after(LIMIT);
    strict.open(&room, &listener, deadline);
    let again = room.waiters.lock().open_at(b"strict", &listener);
    assert!(again > Moment::now() && again <= Moment::now().plus(REFUSED));
    for failed in room.waiters.lock().failed_openings.values_mut() {
        failed.retry_at = Moment::now();
    }
    strict.open(&room, &listener, deadline);
    assert_eq!(listener.tried(), ["strict", "strict"]);
}

#[test]
fn while_one_opens_a_connection_to_a_silent_server_another_listens() {
    let (room, listener) = (room(), Servers::default());
    let [silent, well] = ["silent", "well"].map(|name| join(&room, name));
    let deadline = Deadline::after(LIMIT);
    well.open(&room, &listener, deadline);
    place(&room, &silent);
    place(&room, &well);
    std::thread::scope(|scope| {
        // It has listened, and sees to its own name now.
        room.waiters.lock().listener = Some(silent.id);
        scope.spawn(|| {
            while listener.heard.load(Ordering::Relaxed) == 0 && !deadline.has_passed() {
                well.next(&room, Moment::now());
                well.sleep(&room, deadline.moment(), Some(&listener), deadline);
            }
        });
        while !room.waiters.lock().could_listen.contains(&well.id) {
            std::thread::yield_now();
        }
        room.waiters.lock().listener = None;
        silent.sleep(&room, deadline.moment(), Some(&listener), deadline);
        assert_eq!(listener.tried(), ["well", "silent"]);
    });
    assert!(!deadline.has_passed());
}

/// A server that was started again elsewhere, behind the same address, has another clock. What it
/// says may be heard before the thread that has opened the connection to it has told anybody.
#[test]
fn c3_what_a_server_says_is_not_dated_by_the_clock_of_the_one_before() {
    let (early, now) = (Moment::now().minus(Duration::from_secs(2)), Moment::now());
    for (since, is_dated) in [(early, true), (now, false)] {
        let (room, server) = (room(), ServerId::default());
        let waiter = join(&room, "n");
        let token = place(&room, &waiter);
        let mut waiters = room.waiters.lock();
        let dating = waiters.datings.entry(server).or_default();
        dating.restart(early);
        dating.sample(early, 1_700_000_000_000_000);
        let (name, span) = (b"n".to_vec(), Duration::from_secs(30));
        let clock = 1_700_000_001_000_000;
        let granted = Notice::Granted { name, token, fence: 1, block: 1, server: clock, span };
        waiters.notice(Teller { server, since }, granted, now);
        drop(waiters);
        // Else it asks, and what it is answered counts from then.
        assert_eq!(matches!(waiter.next(&room, now).0, Next::Turn(_)), is_dated);
    }
}
