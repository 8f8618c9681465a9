use std::sync::mpsc::channel;
use std::thread;

use super::super::dial::LONGEST;
use super::super::jute::code;
use super::super::line::UNSEEN;
use super::super::tests::{Heard, LIMIT, Says, config, done, peer, refused};
use super::*;

const T: i32 = 6_000;
const ASK: Ask<'_> = Ask::Exists { path: "/n", watch: false };

fn session(says: impl FnMut(&Heard) -> Says + Send + 'static) -> Session {
    let (zookeeper, all) = config(&peer(says));
    Session::new(Dialer::new(&zookeeper, true).unwrap(), all.io_timeout).unwrap()
}

fn serving(heard: &Heard) -> Says {
    if heard.kind == 0 { Says::Welcome(T) } else { refused(-101) }
}

fn ask(session: &Session, within: Duration) -> Result<u64, Failure> {
    let by = Deadline::after(within);
    session.call(&[ASK], by.into()).map(|(_, count, _)| count)
}

#[test]
fn a_new_session_is_not_told_older_news_than_the_one_before_it() {
    let (told, hears) = channel();
    let session = session(move |heard| match heard.kind {
        0 => {
            let long =
                |at: usize| i64::from_be_bytes(heard.message[at..at + 8].try_into().unwrap());
            let (seen, number) = (long(4), long(16));
            told.send((seen, number)).unwrap();
            // The old one is over when it comes back.
            Says::Welcome(if number == 0 { T } else { 0 })
        }
        9 => Says::HangUp,
        _ => Says::Reply { zxid: 100, code: 0, body: Vec::new() },
    });
    ask(&session, LIMIT).unwrap();
    let by = Deadline::after(LIMIT);
    assert!(session.call(&[Ask::Sync("/n")], by.into()).is_err());
    ask(&session, LIMIT).unwrap();
    assert_eq!(hears.try_iter().collect::<Vec<_>>(), [(0, 0), (100, 7), (100, 0)]);
}

#[test]
fn who_has_no_time_left_ends_nobody_elses_connection() {
    let session = session(serving);
    let count = ask(&session, LIMIT).unwrap();
    let line = session.state.lock().line.clone().unwrap();
    let writes = line.stream.enter_now().unwrap();
    // Nor does it wait for one that has more.
    assert!(ask(&session, Duration::from_millis(100)).unwrap_err().sent.is_none());
    drop(writes);
    assert_eq!(ask(&session, LIMIT).unwrap(), count);
}

#[test]
fn nobody_waits_for_one_who_writes_in_order_to_find_the_connection() {
    let session = session(serving);
    ask(&session, LIMIT).unwrap();
    thread::sleep(UNSEEN * 2);
    let line = session.state.lock().line.clone().unwrap();
    let writes = line.stream.enter_now().unwrap();
    thread::scope(|scope| {
        let (found, finds) = channel();
        let session = &session;
        scope.spawn(move || found.send(session.connected(Deadline::after(LIMIT)).is_ok()));
        let is_found = finds.recv_timeout(LIMIT);
        drop(writes);
        assert!(is_found.unwrap());
    });
}

#[test]
fn who_may_not_dial_does_not() {
    let (dialed, dials) = channel();
    let session = session(move |heard| {
        dialed.send(()).unwrap();
        serving(heard)
    });
    let never = Deadline::at(Moment::ZERO);
    assert!(session.call(&[ASK], By { connect: never, done: Deadline::after(LIMIT) }).is_err());
    assert!(dials.try_recv().is_err());
}

#[test]
fn a_slow_answer_is_waited_for_and_heartbeats_go_on_meanwhile() {
    let mut is_slow = true;
    let (beats, beat) = channel();
    let session = session(move |heard| {
        match heard.kind {
            3 if std::mem::take(&mut is_slow) => thread::sleep(Duration::from_millis(2_200)),
            11 => beats.send(()).unwrap(),
            _ => {}
        }
        serving(heard)
    });
    let count = ask(&session, LIMIT).unwrap();
    assert_eq!(ask(&session, LIMIT).unwrap(), count);
    beat.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_server_that_says_nothing_is_left_although_nobody_waits_for_it_for_long() {
    let session = session(|heard| match heard.kind {
        0 => Says::Welcome(2_000),
        _ if heard.connection == 0 => Says::Nothing,
        _ => done(Vec::new()),
    });
    let begun = Moment::now();
    while ask(&session, Duration::from_millis(300)).is_err() {
        assert!(Moment::now().since(begun) < LIMIT);
    }
}

#[test]
fn who_has_little_time_to_dial_fails_alone() {
    let (swallows, swallowed) = channel();
    let session = session(move |heard| {
        if heard.connection > 0 {
            return serving(heard);
        }
        swallows.send(()).unwrap();
        Says::Nothing
    });
    thread::scope(|scope| {
        let hasty = scope.spawn(|| ask(&session, Duration::from_millis(300)));
        swallowed.recv_timeout(LIMIT).unwrap();
        ask(&session, LIMIT).unwrap();
        assert!(hasty.join().unwrap().is_err());
    });
}

#[test]
fn a_silent_server_is_not_the_first_that_is_dialed_again() {
    let (dialed, dials) = channel();
    let silent = |which| {
        let dialed = dialed.clone();
        peer(move |heard| match heard.kind {
            0 => {
                dialed.send(which).unwrap();
                Says::Welcome(2_000)
            }
            _ => Says::Nothing,
        })
    };
    let [one, other] = [1, 2].map(|which| silent(which).replace("zookeeper://", ""));
    let (zookeeper, all) = config(&format!("zookeeper://{one},{other}"));
    let session = Session::new(Dialer::new(&zookeeper, true).unwrap(), all.io_timeout).unwrap();
    let next = || {
        let begun = Moment::now();
        loop {
            let _ = ask(&session, Duration::from_millis(300));
            match dials.try_recv() {
                Ok(which) => break which,
                Err(_) => assert!(Moment::now().since(begun) < LIMIT),
            }
        }
    };
    assert_ne!(next(), next());
}

#[test]
fn an_answer_that_is_too_long_fails_its_own_request_alone() {
    let session = session(|heard| match heard.kind {
        12 => done(vec![0; LONGEST + 1]),
        _ => serving(heard),
    });
    let (count, by) = (ask(&session, LIMIT).unwrap(), Deadline::after(LIMIT));
    let (_, same, replies) = session.call(&[Ask::Children("/n"), ASK], by.into()).unwrap();
    let codes: Vec<_> = replies.iter().map(|reply| reply.code).collect();
    assert_eq!((same, &*codes), (count, &[code::TOO_LONG, code::NO_NODE][..]));
    assert_eq!(ask(&session, LIMIT).unwrap(), count);
}

#[cfg(kit)]
#[test]
fn a_server_that_is_slow_to_extend_is_left_only_if_it_says_nothing() {
    kit::unless_starved(kit::STALL, || {
        let session = session(|heard| match heard.kind {
            9 => Says::Nothing,
            _ => serving(heard),
        });
        let count = ask(&session, LIMIT).unwrap();
        let by = Deadline::after(SILENCE + UNSEEN);
        assert!(session.call(&[Ask::Sync("/n")], by.into()).is_err());
        // It has just said something.
        ask(&session, LIMIT).unwrap();
        session.leave_if_silent();
        assert_eq!(ask(&session, LIMIT).unwrap(), count);
        let by = Deadline::after(SILENCE + UNSEEN);
        assert!(session.call(&[Ask::Sync("/n")], by.into()).is_err());
        session.leave_if_silent();
        assert_ne!(ask(&session, LIMIT).unwrap(), count);
    });
}
