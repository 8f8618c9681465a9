use super::*;
use crate::error::ErrorKind;
use crate::jitter::Jitter;
use crate::store::{Notice, ServerId};
use crate::wait::Backoff;

const LIMIT: Duration = Duration::from_secs(20);

/// One server that cannot be reached, and one that can. The first letters of a name say where it is.
#[derive(Default)]
struct Two {
    tried: Mutex<Vec<String>>,
}

impl Two {
    fn tried(&self) -> Vec<String> {
        self.tried.lock().clone()
    }
}

impl Ears for Two {
    fn are_open(&self, name: &[u8]) -> bool {
        name.starts_with(b"well") && self.tried.lock().iter().any(|tried| tried.as_bytes() == name)
    }

    fn are_any_open(&self) -> bool {
        false
    }

    fn open(&self, name: &[u8], _: Deadline) -> Result<ServerId, Error> {
        self.tried.lock().push(name.escape_ascii().to_string());
        match self.are_open(name) {
            true => Ok(ServerId::default()),
            false => Err(Error::bare(ErrorKind::Refused)),
        }
    }

    fn hear(&self, _: Moment) -> Result<Vec<(ServerId, Notice)>, Error> {
        Ok(Vec::new())
    }

    fn close(&self) {}
}

fn room() -> Room {
    Room::new(Limits { turns: 1, within: Duration::ZERO, spread: Duration::ZERO })
}

fn sit<'a>(room: &'a Room, name: &str) -> Seat<'a> {
    let terms = Terms { ttl: Duration::from_secs(30), renew: false, max_hold: None };
    let pace = Pace::new(Backoff::default(), Duration::from_millis(64), Jitter::seeded(1));
    room.sit(&Arc::from(name.as_bytes()), Token::random().unwrap(), terms, pace)
}

/// Whoever waits for a name on a server that is gone tries again and again, and would always come
/// first.
#[test]
fn a_server_that_cannot_be_heard_keeps_nobody_from_hearing_another_one() {
    let (room, ears) = (room(), Two::default());
    let [gone, well, other] = ["gone", "well", "well too"].map(|name| sit(&room, name));
    let deadline = Deadline::after(LIMIT);
    gone.open(&ears, deadline);
    gone.open(&ears, deadline);
    well.open(&ears, deadline);
    gone.open(&ears, deadline);
    other.open(&ears, deadline);
    assert_eq!(ears.tried(), ["gone", "well", "well too"]);
}

#[test]
fn what_fails_for_one_name_does_not_put_off_what_is_due_for_another_one() {
    let (room, ears) = (room(), Two::default());
    let [one, other] = ["gone", "gone too"].map(|name| sit(&room, name));
    let deadline = Deadline::after(LIMIT);
    one.open(&ears, deadline);
    std::thread::sleep(REOPEN);
    other.open(&ears, deadline);
    one.open(&ears, deadline);
    assert_eq!(ears.tried(), ["gone", "gone too", "gone"]);
}
