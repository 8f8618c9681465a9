//! Servers are played by threads that have the other ends of their connections.

use std::io::{Read, Write};
use std::sync::{Arc, mpsc};
use std::thread;

use super::super::subscription::QUIET;
use super::super::{Publisher, Publishers};
use super::*;
use crate::store::net::dial::Show;
use crate::store::{Listener as _, Notice};
use crate::sync::Mutex;
use kit::eventually;

const LIMIT: Duration = Duration::from_secs(20);

/// A server that lets the first channel of each connection be opened, and then says nothing.
#[derive(Default)]
struct Fake(Mutex<Vec<socket2::Socket>>);

impl ServerSource for Fake {
    fn dial(&self, _: Deadline, _: &Show<'_>) -> Result<Wire, Error> {
        let kind = (socket2::Domain::UNIX, socket2::Type::STREAM);
        let (ours, mut theirs) = socket2::Socket::pair(kind.0, kind.1, None).unwrap();
        theirs.write_all(b"*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n").unwrap();
        self.0.lock().push(theirs);
        Ok(Wire::new(ours, ServerId::default()))
    }
}

impl Fake {
    fn says(&self, what: &[u8]) {
        self.0.lock().last_mut().unwrap().write_all(what).unwrap();
    }

    /// Once it has been asked all of this.
    fn was_asked(&self, words: &[&str]) {
        let mut heard = String::new();
        while !words.iter().all(|word| heard.contains(word)) {
            let mut bytes = [0; 1024];
            let mut theirs = self.0.lock().last_mut().unwrap().try_clone().unwrap();
            let count = theirs.read(&mut bytes).unwrap();
            heard.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }
}

/// The first digit of a name is its server, and the second one its slot.
struct Digits([Arc<Fake>; 2]);

impl Publishers for Digits {
    fn publisher(&self, name: &[u8]) -> Result<Publisher, Error> {
        let key = name[0] - b'0';
        let source: Arc<dyn ServerSource> =
            Arc::clone(&self.0[usize::from(key)]) as Arc<dyn ServerSource>;
        Ok(Publisher { key: key.into(), source })
    }

    fn slot(&self, name: &[u8]) -> Option<u16> {
        Some((name[1] - b'0').into())
    }
}

/// The first channel of each server is open, and those are of the slot in which `c` lies.
fn listener() -> (Listener, [Arc<Fake>; 2]) {
    let fakes = [(); 2].map(|()| Arc::<Fake>::default());
    let listener = Listener::new(Box::new(Digits(fakes.clone())), LIMIT, Box::new(read)).unwrap();
    for name in [b"01", b"11"] {
        listener.open(name, Deadline::after(LIMIT)).unwrap();
    }
    fakes.iter().for_each(|fake| fake.was_asked(&["SSUBSCRIBE"]));
    (listener, fakes)
}

fn read(_: &[u8]) -> Option<Notice> {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    Some(Notice::Free { name: Vec::new(), token })
}

const NOTICE: &[u8] = b"*3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n7\r\n";

#[test]
fn a_server_that_is_slow_to_open_a_channel_keeps_no_notice_of_another_one() {
    let (listener, [silent, other]) = listener();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let opens = scope.spawn(|| listener.open(b"02", Deadline::after(LIMIT)));
        silent.was_asked(&["SSUBSCRIBE"]);
        other.says(NOTICE);
        eventually(LIMIT, || listener.state.lock().unheard.len() == 1);
        scope.spawn(|| {
            let until = Moment::now().plus(LIMIT);
            while let Ok(heard) = listener.hear(until)
                && Moment::now() < until
            {
                heard.iter().for_each(|_| tell.send(()).unwrap());
            }
        });
        for _ in 0..20 {
            assert_eq!(told.recv_timeout(LIMIT / 4), Ok(()));
            other.says(NOTICE);
        }
        assert!(!opens.is_finished());
        listener.close();
        assert_eq!(opens.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn an_error_that_answers_a_ping_refuses_no_channel() {
    let (listener, [server, _]) = listener();
    let mut subscriptions = listener.subscriptions.enter_now().unwrap();
    listener.take_in(&mut subscriptions).unwrap();
    let subscription = &mut subscriptions[0];
    subscription.alive = Moment::now().minus(QUIET);
    subscription.tend(Moment::NEVER, LIMIT, &mut |_| false).unwrap();
    subscription.want(2, b"c", LIMIT);
    server.was_asked(&["PING", "SSUBSCRIBE"]);
    let mut refused = || {
        server.says(b"-NOPERM this user may not\r\n");
        subscription.look();
        subscription.tend(Moment::NEVER, LIMIT, &mut |_| false).unwrap();
        let changes = std::mem::take(&mut subscription.changes);
        changes.iter().any(|(_, change)| matches!(change, Change::Refused(_)))
    };
    assert!(!refused());
    assert!(refused());
}
