use super::*;
use crate::error::ErrorKind;
use crate::jitter::Jitter;
use crate::store::{Notice, ServerId};
use crate::wait::Backoff;

/// One server that cannot be reached, and one that can.
#[derive(Default)]
struct Two {
    tried: Mutex<Vec<Vec<u8>>>,
}

impl Ears for Two {
    fn are_open(&self, name: &[u8]) -> bool {
        name.starts_with(b"well") && self.tried.lock().iter().any(|tried| tried == name)
    }

    fn are_any_open(&self) -> bool {
        false
    }

    fn open(&self, name: &[u8], _: Deadline) -> Result<ServerId, Error> {
        self.tried.lock().push(name.to_vec());
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

/// Whoever waits for a name on a server that is gone tries again and again, and would always come
/// first.
#[test]
fn a_server_that_cannot_be_heard_keeps_nobody_from_hearing_another_one() {
    let limits = Limits { turns: 1, within: Duration::ZERO, spread: Duration::ZERO };
    let (room, ears) = (Room::new(limits), Two::default());
    let terms = Terms { ttl: Duration::from_secs(30), renew: false, max_hold: None };
    let sit = |name: &str| {
        let pace = Pace::new(Backoff::default(), Duration::from_millis(64), Jitter::seeded(1));
        room.sit(&Arc::from(name.as_bytes()), Token::random().unwrap(), terms, pace)
    };
    let [gone, well, other] = ["gone", "well", "well too"].map(sit);
    let deadline = Deadline::after(Duration::from_secs(20));
    gone.open(&ears, deadline);
    gone.open(&ears, deadline);
    well.open(&ears, deadline);
    gone.open(&ears, deadline);
    other.open(&ears, deadline);
    let tried = ears.tried.lock();
    let tried: Vec<_> = tried.iter().map(|name| name.escape_ascii().to_string()).collect();
    assert_eq!(tried, ["gone", "well", "well too"]);
}
